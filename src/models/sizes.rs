//! Sizes of the built-in models, from the data set and the spec.

use crate::data::{DataFacts, FieldFacts, FieldKind};
use crate::error::{Error, Result};
use crate::spec::Fields;

/// Number of values in one sample of floats.
pub(super) fn features(facts: &DataFacts) -> Result<usize> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Float }) => Ok(shape.iter().product()),
        Some(_) => Err(Error::spec("this model expects float inputs, but the data set has tokens")),
        None => Err(Error::spec("the data set's input shape is not known yet")),
    }
}

/// Channels, height and width of one image.
pub(super) fn image(facts: &DataFacts) -> Result<[usize; 3]> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Float }) => shape.as_slice().try_into().map_err(|_| {
            Error::spec(format!(
                "this model expects images [channels, height, width], but the data set has {shape:?}"
            ))
        }),
        Some(_) => Err(Error::spec("this model expects images, but the data set has tokens")),
        None => Err(Error::spec("the data set's input shape is not known yet")),
    }
}

/// Number of outputs of the head: classes, or values of one target.
pub(super) fn outputs(facts: &DataFacts) -> Result<usize> {
    match &facts.target {
        Some(FieldFacts { kind: FieldKind::Index(classes), .. }) => Ok(*classes),
        Some(FieldFacts { shape, kind: FieldKind::Float }) => Ok(shape.iter().product()),
        None => Err(Error::spec("the data set's targets are not known yet")),
    }
}

/// A size that the spec may set and that may follow from the data.
#[derive(Clone, Copy)]
pub(super) struct Size {
    key: &'static str,
    known: fn(&DataFacts) -> Result<usize>,
    /// Whether the size in the spec may be larger than that of the data.
    at_least: fn(&DataFacts) -> bool,
    given: Option<usize>,
}

impl Size {
    /// Reports a size in the spec that does not fit the data.
    pub fn new(
        fields: &mut Fields<'_>,
        facts: &DataFacts,
        (key, given): (&'static str, Option<usize>),
        known: fn(&DataFacts) -> Result<usize>,
        at_least: fn(&DataFacts) -> bool,
    ) -> Self {
        let size = Self { key, known, at_least, given };
        if let Some(problem) = size.mismatch(facts) {
            fields.problem(key, problem);
        }
        size
    }

    fn mismatch(&self, facts: &DataFacts) -> Option<String> {
        let (given, known) = (self.given?, (self.known)(facts).ok()?);
        let at_least = (self.at_least)(facts);
        let least = if at_least { "at least " } else { "" };
        (given < known || !at_least && given != known)
            .then(|| format!("the data set requires {least}{known}, found {given}"))
    }

    /// The size for the opened data.
    pub fn of(&self, facts: &DataFacts) -> Result<usize> {
        match self.mismatch(facts) {
            Some(problem) => Err(Error::spec(format!("model.{}: {problem}", self.key))),
            None => self.given.map_or_else(|| (self.known)(facts), Ok),
        }
    }
}

pub(super) fn at_least(_: &DataFacts) -> bool {
    true
}

pub(super) fn exactly(_: &DataFacts) -> bool {
    false
}

/// A classifier may have more outputs than classes in the data; a regression needs exactly one per value of the target.
pub(super) fn at_least_for_classes(facts: &DataFacts) -> bool {
    !matches!(&facts.target, Some(FieldFacts { kind: FieldKind::Float, .. }))
}

/// Length and vocabulary size of a window of tokens.
pub(super) fn tokens(facts: &DataFacts) -> Result<(usize, usize)> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Index(symbols) }) if shape.len() == 1 => {
            Ok((shape[0], *symbols))
        }
        Some(FieldFacts { shape, .. }) => Err(Error::spec(format!(
            "gpt expects windows of tokens, but the data set has inputs of shape {shape:?}"
        ))),
        None => Err(Error::spec("the data set's input shape is not known yet")),
    }
}

/// Reports a data set that the model can't read, at the model's name. Unknown facts are accepted.
pub(super) fn check_input<T>(fields: &mut Fields<'_>, facts: &DataFacts, read: Result<T>) {
    if let (Some(_), Err(e)) = (&facts.input, read) {
        fields.problem("name", e.message);
    }
}
