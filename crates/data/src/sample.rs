//! The buffers that a data set writes a sample to.

use base::error::{Error, Result};

/// A buffer for one field of a sample.
#[derive(Debug)]
pub enum FieldMut<'a> {
    /// For [`FieldKind::Float`](super::FieldKind::Float).
    Float(&'a mut [f32]),
    /// For [`FieldKind::Index`](super::FieldKind::Index).
    Index(&'a mut [i64]),
}

/// The buffers of one sample, each exactly one sample long.
#[derive(Debug)]
pub struct SampleMut<'a> {
    /// For the input.
    pub input: FieldMut<'a>,
    /// For the target.
    pub target: FieldMut<'a>,
    /// For the further fields that the data set declares ([`Dataset::fields`](super::Dataset::fields)).
    pub fields: FieldsMut<'a>,
}

/// The buffers of a sample's further fields, by name.
#[derive(Debug, Default)]
pub struct FieldsMut<'a>(Vec<(&'a str, FieldMut<'a>)>);

impl FieldMut<'_> {
    /// The same buffer, for a call that takes one.
    pub(crate) fn again(&mut self) -> FieldMut<'_> {
        match self {
            FieldMut::Float(values) => FieldMut::Float(values),
            FieldMut::Index(values) => FieldMut::Index(values),
        }
    }
}

impl<'a> SampleMut<'a> {
    /// A sample without further fields.
    pub fn new(input: FieldMut<'a>, target: FieldMut<'a>) -> Self {
        Self { input, target, fields: FieldsMut::default() }
    }

    /// The same buffers, for a call that takes them.
    pub(crate) fn again(&mut self) -> SampleMut<'_> {
        SampleMut { input: self.input.again(), target: self.target.again(), fields: self.fields.again() }
    }
}

impl<'a> FieldsMut<'a> {
    /// The buffers of these fields.
    pub fn new(fields: impl IntoIterator<Item = (&'a str, FieldMut<'a>)>) -> Self {
        Self(fields.into_iter().collect())
    }

    /// The same buffers, for a call that takes them.
    pub(crate) fn again(&mut self) -> FieldsMut<'_> {
        FieldsMut(self.0.iter_mut().map(|(name, field)| (*name, field.again())).collect())
    }

    /// Takes the buffer of the field `name` out.
    ///
    /// # Errors
    /// The data set declares no such field, or it has been taken already (`ErrorKind::Spec`).
    pub fn take(&mut self, name: &str) -> Result<FieldMut<'a>> {
        match self.0.iter().position(|(other, _)| *other == name) {
            Some(place) => Ok(self.0.remove(place).1),
            None => Err(no_field(name, self.0.iter().map(|(name, _)| *name))),
        }
    }

    /// The names of the fields that have not been taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

/// The error about a field that is not among the further fields `there`.
pub fn no_field<'n>(name: &str, there: impl Iterator<Item = &'n str>) -> Error {
    let there: Vec<String> = there.map(|name| format!("`{name}`")).collect();
    let there = if there.is_empty() {
        "there are only `input` and `target`".to_owned()
    } else {
        format!("besides `input` and `target` there are {}", there.join(", "))
    };
    Error::spec(format!("the samples have no field `{name}`: {there}"))
        .hint("`Dataset::fields` of the data set, or `BurnBatch::with`, declares fields")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn fields_are_taken_by_name() {
        let (mut mask, mut boxes) = ([0.0; 2], [0; 3]);
        let mut fields =
            FieldsMut::new([("boxes", FieldMut::Index(&mut boxes)), ("mask", FieldMut::Float(&mut mask))]);
        let FieldMut::Float(first) = fields.again().take("mask").unwrap() else { panic!() };
        first[0] = 1.0;
        let e = fields.take("masks").unwrap_err();
        assert_eq!(e.kind, ErrorKind::Spec);
        assert_eq!(
            e.message,
            "the samples have no field `masks`: besides `input` and `target` there are `boxes`, `mask`"
        );
        let (FieldMut::Float(mask), FieldMut::Index(boxes)) =
            (fields.take("mask").unwrap(), fields.take("boxes").unwrap())
        else {
            panic!()
        };
        (mask[1], boxes[2]) = (2.0, 3);
        let e = fields.take("mask").unwrap_err().message;
        assert_eq!(e, "the samples have no field `mask`: there are only `input` and `target`");
        assert_eq!((mask, boxes), (&mut [1.0, 2.0][..], &mut [0, 0, 3][..]));
    }
}
