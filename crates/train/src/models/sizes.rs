//! Sizes of the built-in models, from the data set and the spec.

use base::error::{Error, Result};
use data::{DataFacts, FieldFacts, FieldKind};
use spec::Fields;

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
    at_least: bool,
    given: Option<usize>,
}

impl Size {
    /// That of the data. Reports another one in the spec.
    pub fn exactly(
        fields: &mut Fields<'_>,
        facts: &DataFacts,
        (key, given): (&'static str, Option<usize>),
        known: fn(&DataFacts) -> Result<usize>,
    ) -> Self {
        Self { key, known, at_least: false, given }.checked(fields, facts)
    }

    /// That of the data, or a larger one in the spec. Reports a smaller one.
    pub fn at_least(
        fields: &mut Fields<'_>,
        facts: &DataFacts,
        (key, given): (&'static str, Option<usize>),
        known: fn(&DataFacts) -> Result<usize>,
    ) -> Self {
        Self { key, known, at_least: true, given }.checked(fields, facts)
    }

    fn checked(self, fields: &mut Fields<'_>, facts: &DataFacts) -> Self {
        if let Some(problem) = self.mismatch(facts) {
            fields.problem(self.key, problem);
        }
        self
    }

    fn mismatch(&self, facts: &DataFacts) -> Option<String> {
        let (given, known) = (self.given?, (self.known)(facts).ok()?);
        let least = if self.at_least { "at least " } else { "" };
        (given < known || !self.at_least && given != known)
            .then(|| format!("the data set requires {least}{known}, found {given}"))
    }

    /// The size for the opened data.
    pub fn resolve(&self, facts: &DataFacts) -> Result<usize> {
        match self.mismatch(facts) {
            Some(problem) => Err(Error::spec(format!("model.{}: {problem}", self.key))),
            None => self.given.map_or_else(|| (self.known)(facts), Ok),
        }
    }
}

/// Length and vocabulary size of a window of tokens.
pub(super) fn tokens(facts: &DataFacts) -> Result<(usize, usize)> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Index(symbols) }) if shape.len() == 1 => {
            Ok((shape[0], *symbols))
        }
        Some(FieldFacts { shape, .. }) => Err(Error::spec(format!(
            "this model expects windows of tokens, but the data set has inputs of shape {shape:?}"
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
