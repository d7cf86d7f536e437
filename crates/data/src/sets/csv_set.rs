//! The rows of an encoded table as a [`Dataset`].

use super::table_places::Places;
use super::table_values::Scale;
use crate::images::{class_facts, counts, wrong_buffers};
use crate::split::Subset;
use crate::{
    Content, Dataset, Encoding, FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, TableEncoding,
};
use base::error::Result;
use std::sync::Arc;

pub(super) enum Targets {
    Numbers {
        values: Vec<f32>,
        /// The scale of the table's targets, if they are standardised.
        scale: Scale,
    },
    Classes {
        labels: Vec<i64>,
        /// By label.
        names: Vec<String>,
    },
}

impl Targets {
    pub fn in_words(&self) -> String {
        match self {
            Self::Numbers { .. } => "a number".to_owned(),
            Self::Classes { names, .. } => format!("one of {} classes", names.len()),
        }
    }
}

pub(super) struct Rows {
    pub width: usize,
    pub values: Vec<f32>,
    pub targets: Targets,
    pub remarks: Vec<String>,
    pub content: Content,
    pub places: Places,
    pub encoding: TableEncoding,
}

pub(super) struct CsvSet {
    pub rows: Arc<Rows>,
    pub part: Subset,
}

impl Dataset for CsvSet {
    fn len(&self) -> usize {
        self.part.len()
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.rows.width], kind: FieldKind::Float }
    }
    fn target(&self) -> FieldFacts {
        match &self.rows.targets {
            Targets::Numbers { .. } => FieldFacts { shape: vec![1], kind: FieldKind::Float },
            Targets::Classes { names, .. } => class_facts(names.len()),
        }
    }
    fn target_scale(&self) -> f64 {
        match &self.rows.targets {
            Targets::Numbers { scale, .. } => scale.std,
            Targets::Classes { .. } => 1.0,
        }
    }
    fn content(&self) -> Option<Content> {
        Some(self.part.content(self.rows.content))
    }
    fn class_counts(&self) -> Option<Vec<usize>> {
        let Targets::Classes { labels, names } = &self.rows.targets else { return None };
        counts(names.len(), (0..self.part.len()).map(|i| usize::try_from(labels[self.part.get(i)]).ok()))
    }
    fn place(&self, index: u64) -> Option<String> {
        self.rows.places.of_row(self.part.get(index as usize))
    }
    fn remarks(&self) -> Vec<String> {
        self.rows.remarks.clone()
    }
    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Table(self.rows.encoding.clone()))
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let row = self.part.get(key.sample as usize);
        match (to.input, to.target, &self.rows.targets) {
            (FieldMut::Float(input), FieldMut::Float(target), Targets::Numbers { values: numbers, .. }) => {
                input.copy_from_slice(self.rows.row(row));
                target[0] = numbers[row];
            }
            (FieldMut::Float(input), FieldMut::Index(target), Targets::Classes { labels, .. }) => {
                input.copy_from_slice(self.rows.row(row));
                target[0] = labels[row];
            }
            _ => return Err(wrong_buffers("table rows")),
        }
        Ok(())
    }
}

impl Rows {
    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }
}
