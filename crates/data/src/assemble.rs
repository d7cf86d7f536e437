//! Assembles one batch: writes the samples of the order into reusable buffers.

use super::images::wrong_buffers;
use super::loader::LoaderOptions;
use super::{
    Dataset, FieldData, FieldFacts, FieldKind, FieldMut, FieldsMut, HostBatch, HostField, SampleKey,
    SampleMut, StoredImages, UNTRAINED,
};
use base::error::{Error, Result};
use base::panics;
use sampler::Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Everything a worker needs to assemble any batch.
pub struct BatchAssembler {
    pub dataset: Arc<dyn Dataset>,
    pub order: Box<dyn Order>,
    pub options: LoaderOptions,
    input: FieldFacts,
    target: FieldFacts,
    /// Return images as stored bytes.
    stored: bool,
    /// Set when the loader is dropped.
    pub stop: AtomicBool,
}

impl BatchAssembler {
    pub fn new(
        dataset: Arc<dyn Dataset>,
        order: Box<dyn Order>,
        options: LoaderOptions,
        stored: bool,
    ) -> Self {
        // Only `write` writes further fields.
        let stored = stored && dataset.fields().is_empty();
        let (input, target) = (dataset.input(), dataset.target());
        Self { dataset, order, options, input, target, stored, stop: AtomicBool::new(false) }
    }

    /// The images to return as stored bytes.
    pub fn images(&self) -> Option<&dyn StoredImages> {
        self.dataset.stored().filter(|_| self.stored)
    }

    /// An empty batch.
    pub fn buffers(&self) -> HostBatch {
        let mut batch = empty_batch(&*self.dataset);
        if self.images().is_some() {
            batch.input.data = FieldData::Bytes(Vec::new());
        }
        batch
    }

    /// Assembles batch `number`; returns a panic of the data set as an error.
    pub fn assemble_caught(&self, number: usize, buffers: HostBatch) -> Result<HostBatch> {
        catch_unwind(AssertUnwindSafe(|| self.assemble(number, buffers))).unwrap_or_else(|panic| {
            let what = panics::message(&*panic);
            Err(Error::internal(format!("the data set panicked in batch {number}: {what}")))
        })
    }

    fn assemble(&self, number: usize, mut batch: HostBatch) -> Result<HostBatch> {
        let size = self.options.batch_size;
        let first = number * size;
        let len = size.min(self.order.len() - first);
        let (inputs, _) = resize_batch(&mut batch, len);
        batch.indices.clear();
        batch.draws.clear();
        let images = self.images();
        for i in 0..len {
            if self.stop.load(Relaxed) {
                return Err(Error::internal("the loader was dropped"));
            }
            let sample = self.order.get(first + i);
            if sample >= self.dataset.len() as u64 {
                return Err(Error::internal(format!(
                    "sample {sample} is out of range: the data set has {} samples",
                    self.dataset.len()
                )));
            }
            let key = SampleKey { seed: self.options.seed, epoch: self.options.epoch, sample };
            match (images, &mut batch.input.data) {
                (Some(images), FieldData::Bytes(bytes)) => {
                    let target = part(&mut batch.target, i)?;
                    images.write_stored(key, &mut bytes[i * inputs..(i + 1) * inputs], target)?;
                    batch.draws.push(images.transform().draw(key));
                }
                _ => self.dataset.write(key, buffers_of(&mut batch, i)?)?,
            }
            self.check_indices(sample, &batch, i)?;
            batch.indices.push(sample);
        }
        Ok(batch)
    }

    /// Inputs and targets that are indices are below the bounds that the data set declares. No operation on a device checks this.
    fn check_indices(&self, sample: u64, batch: &HostBatch, i: usize) -> Result<()> {
        let outside = |facts: &FieldFacts, field: &HostField, untrained: bool| {
            let (FieldKind::Index(bound), FieldData::Index(indices)) = (facts.kind, &field.data) else {
                return None;
            };
            let each = field.shape.iter().product::<usize>();
            let fits = |index: i64| {
                usize::try_from(index).is_ok_and(|index| index < bound) || untrained && index == UNTRAINED
            };
            let found = indices[i * each..(i + 1) * each].iter().find(|index| !fits(**index));
            found.map(|index| (*index, bound))
        };
        let place = || self.dataset.place(sample).map_or(String::new(), |place| format!(" ({place})"));
        if let Some((target, classes)) = outside(&self.target, &batch.target, batch.has_untrained) {
            let what = format!(
                "sample {sample}{} has target {target}, but the data set declares {classes} classes, counted from 0",
                place()
            );
            return Err(Error::data(what).hint(match target {
                UNTRAINED => {
                    "a data set with targets that are not trained says so by `Dataset::has_untrained`"
                }
                _ => "correct the sample, or the number of classes that the data set declares",
            }));
        }
        if let Some((index, bound)) = outside(&self.input, &batch.input, false) {
            let what = format!(
                "sample {sample}{} has index {index} in its input, but the data set declares indices below {bound}",
                place()
            );
            return Err(Error::data(what).hint(
                "correct the sample, or the bound that the data set declares (`FieldKind::Index`; for a Burn data set `BurnData::vocabulary`)",
            ));
        }
        Ok(())
    }
}

/// A batch of no samples of `dataset`.
pub(super) fn empty_batch(dataset: &dyn Dataset) -> HostBatch {
    let field = |facts: FieldFacts| HostField {
        shape: facts.shape,
        data: match facts.kind {
            FieldKind::Float => FieldData::Float(Vec::new()),
            FieldKind::Index(_) => FieldData::Index(Vec::new()),
        },
    };
    HostBatch {
        len: 0,
        input: field(dataset.input()),
        target: field(dataset.target()),
        fields: dataset.fields().into_iter().map(|(name, facts)| (name, field(facts))).collect(),
        target_scale: dataset.target_scale(),
        has_untrained: dataset.has_untrained(),
        indices: Vec::new(),
        draws: Vec::new(),
    }
}

/// Resizes the buffers to `len` samples; returns the number of elements per input and per target.
pub(super) fn resize_batch(batch: &mut HostBatch, len: usize) -> (usize, usize) {
    batch.len = len;
    for field in batch.fields.values_mut() {
        resize(field, len);
    }
    (resize(&mut batch.input, len), resize(&mut batch.target, len))
}

/// Resizes the buffer to `len` samples; returns the number of elements per sample.
fn resize(field: &mut HostField, len: usize) -> usize {
    let each = field.shape.iter().product::<usize>();
    match &mut field.data {
        FieldData::Float(values) => values.resize(len * each, 0.0),
        FieldData::Index(values) => values.resize(len * each, 0),
        FieldData::Bytes(values) => values.resize(len * each, 0),
    }
    each
}

/// The buffers of sample `i`.
pub(super) fn buffers_of(batch: &mut HostBatch, i: usize) -> Result<SampleMut<'_>> {
    let HostBatch { input, target, fields, .. } = batch;
    let fields: Result<Vec<_>> =
        fields.iter_mut().map(|(name, field)| Ok((name.as_str(), part(field, i)?))).collect();
    Ok(SampleMut { input: part(input, i)?, target: part(target, i)?, fields: FieldsMut::new(fields?) })
}

/// The buffer of sample `i`.
pub(super) fn part(field: &mut HostField, i: usize) -> Result<FieldMut<'_>> {
    let each = field.shape.iter().product::<usize>();
    let range = i * each..(i + 1) * each;
    match &mut field.data {
        FieldData::Float(values) => Ok(FieldMut::Float(&mut values[range])),
        FieldData::Index(values) => Ok(FieldMut::Index(&mut values[range])),
        FieldData::Bytes(_) => Err(wrong_buffers("floats or indices")),
    }
}
