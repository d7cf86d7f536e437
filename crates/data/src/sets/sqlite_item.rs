//! Items in MessagePack, as Burn's `SqliteDatasetWriter` stores them: the fields of a struct in order, without their names.

use super::columns::{Cell, CellKind, Column};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Levels of lists and maps within each other. Each takes its part of the stack.
const DEEPEST: usize = 64;

/// The fields of an item.
#[derive(Debug, PartialEq)]
pub(super) struct ItemFields(Vec<(Option<String>, Field)>);

#[derive(Debug, PartialEq)]
enum Field {
    Null,
    Bool(bool),
    Integer(i128),
    Single(f32),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Field>),
    Map(Vec<(Field, Field)>),
}

impl ItemFields {
    /// # Errors
    /// Why it is not an item.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
        // It refuses what has as many.
        reader.set_max_depth(DEEPEST + 1);
        let item = Field::deserialize(&mut reader).map_err(|e| e.to_string())?;
        Ok(Self(match item {
            Field::List(fields) => fields.into_iter().map(|field| (None, field)).collect(),
            Field::Map(fields) => {
                let named = |(name, field): (Field, Field)| match name {
                    Field::Text(name) => (Some(name), field),
                    _ => (None, field),
                };
                fields.into_iter().map(named).collect()
            }
            only => vec![(None, only)],
        }))
    }

    /// A column for each field.
    pub fn columns(&self) -> Vec<Column> {
        let column = |(at, (name, field)): (usize, &(Option<String>, Field))| {
            let kind = match field.cell() {
                Cell::Bytes(_) => CellKind::Bytes,
                Cell::Text(_) => CellKind::Texts,
                Cell::Other(what) => CellKind::Other(format!("holds {what}")),
                _ => CellKind::Values,
            };
            Column::new(name.clone().unwrap_or_else(|| at.to_string()), kind)
        };
        self.0.iter().enumerate().map(column).collect()
    }

    /// The field of the column `name`, which is at this place in the first item.
    pub fn cell(&self, at: usize, name: &str) -> Cell<'_> {
        let named = self.0.iter().find(|(own, _)| own.as_deref() == Some(name));
        let placed = || self.0.get(at).filter(|(own, _)| own.is_none());
        named.or_else(placed).map_or(Cell::Null, |(_, field)| field.cell())
    }
}

impl Field {
    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Bool(yes) => Cell::Bool(*yes),
            Self::Integer(i) => Cell::Integer(*i),
            Self::Single(x) => Cell::Single(*x),
            Self::Double(x) => Cell::Double(*x),
            Self::Text(text) => Cell::Text(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Cell::Bytes(Cow::Borrowed(bytes)),
            // serde writes a `Vec<u8>` as a list of numbers.
            Self::List(list) => match list.iter().map(Self::byte).collect::<Option<Vec<u8>>>() {
                Some(bytes) if !bytes.is_empty() => Cell::Bytes(Cow::Owned(bytes)),
                _ => Cell::Other(format!("a list of {} values", list.len())),
            },
            Self::Map(map) => Cell::Other(format!("a map of {} values", map.len())),
        }
    }

    fn byte(&self) -> Option<u8> {
        match self {
            Self::Integer(i) => u8::try_from(*i).ok(),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyField)
    }
}

struct AnyField;

impl<'de> Visitor<'de> for AnyField {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field::Null)
    }
    fn visit_none<E>(self) -> Result<Field, E> {
        Ok(Field::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        Field::deserialize(deserializer)
    }
    fn visit_bool<E>(self, yes: bool) -> Result<Field, E> {
        Ok(Field::Bool(yes))
    }
    fn visit_i64<E>(self, i: i64) -> Result<Field, E> {
        Ok(Field::Integer(i128::from(i)))
    }
    fn visit_u64<E>(self, i: u64) -> Result<Field, E> {
        Ok(Field::Integer(i128::from(i)))
    }
    fn visit_f32<E>(self, x: f32) -> Result<Field, E> {
        Ok(Field::Single(x))
    }
    fn visit_f64<E>(self, x: f64) -> Result<Field, E> {
        Ok(Field::Double(x))
    }
    fn visit_str<E>(self, text: &str) -> Result<Field, E> {
        Ok(Field::Text(text.to_owned()))
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Field, E> {
        Ok(Field::Bytes(bytes.to_owned()))
    }
    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Field, E> {
        Ok(Field::Bytes(bytes))
    }
    // The length that a file claims is not believed: elements are counted as they come.
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Field, A::Error> {
        let mut list = Vec::new();
        while let Some(field) = all.next_element()? {
            list.push(field);
        }
        Ok(Field::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Field, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = all.next_entry()? {
            map.push(entry);
        }
        Ok(Field::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Sample {
        picture: Vec<u8>,
        label: u8,
        weight: f32,
        name: Option<String>,
        pair: (i64, f64),
    }

    const SAMPLE: Sample = Sample { picture: Vec::new(), label: 3, weight: 0.5, name: None, pair: (-1, 2.0) };

    #[test]
    fn fields_are_told_by_their_places_or_their_names() {
        let sample = Sample { picture: vec![137, 80, 255], ..SAMPLE };
        let item = ItemFields::read(&rmp_serde::to_vec(&sample).unwrap()).unwrap();
        let kinds: Vec<(String, CellKind)> = item.columns().into_iter().map(|c| (c.name, c.kind)).collect();
        let named = |name: &str, kind| (name.to_owned(), kind);
        let pair = CellKind::Other("holds a list of 2 values".to_owned());
        let expected = [CellKind::Bytes, CellKind::Values, CellKind::Values, CellKind::Values, pair];
        assert_eq!(
            kinds,
            expected.into_iter().enumerate().map(|(i, kind)| named(&i.to_string(), kind)).collect::<Vec<_>>()
        );
        assert_eq!(item.cell(0, "0"), Cell::Bytes(vec![137, 80, 255].into()));
        assert_eq!(item.cell(1, "1"), Cell::Integer(3));
        assert_eq!(item.cell(2, "2"), Cell::Single(0.5));
        assert_eq!(item.cell(3, "3"), Cell::Null);
        let item = ItemFields::read(&rmp_serde::to_vec_named(&sample).unwrap()).unwrap();
        assert_eq!(item.columns()[1].name, "label");
        // The order of a map is not specified.
        assert_eq!(item.cell(4, "label"), Cell::Integer(3));
        assert_eq!(item.cell(0, "more"), Cell::Null);
    }

    #[test]
    fn what_is_no_item_is_an_error() {
        let whole = rmp_serde::to_vec(&SAMPLE).unwrap();
        for cut in 0..whole.len() {
            assert!(ItemFields::read(&whole[..cut]).is_err(), "{cut}");
        }
        // A list that claims 2^32 - 1 elements, and lists within lists.
        ItemFields::read(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1]).unwrap_err();
        ItemFields::read(&[0x91; 1 << 20]).unwrap_err();
        let nested = |levels: usize| [vec![0x91; levels - 1], vec![0x90]].concat();
        ItemFields::read(&nested(DEEPEST)).unwrap();
        ItemFields::read(&nested(DEEPEST + 1)).unwrap_err();
        assert_eq!(ItemFields::read(&[7]).unwrap().cell(0, "0"), Cell::Integer(7));
    }
}
