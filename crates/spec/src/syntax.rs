//! Types with their own syntax: durations, devices, numbers of nodes.

use super::schema::{EXPECTED, WORDS};
use serde::{Deserialize, Deserializer, de};

/// How specs write the values of a type. [`syntax!`](crate::syntax) derives serde's traits and the JSON Schema
/// from it.
pub trait Syntax: Sized {
    /// What is accepted, after "expected".
    const EXPECTED: &'static str;
    /// The JSON types in which it can be written.
    const TYPES: &'static [&'static str];
    /// Values that are words, for editors and shells to offer; there may be others.
    const WORDS: &'static [&'static str] = &[];
    /// The least number that is accepted, if there is one, for checkers of the JSON Schema.
    const LEAST: Option<u32> = None;

    /// The value, if `value` is written as [`Self::EXPECTED`] says.
    fn read(value: &toml::Value) -> Option<Self>;
    /// The value as it is written in a resolved spec.
    fn write(&self) -> toml::Value;

    /// The implementation of `Deserialize`.
    fn from_serde<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(from)?;
        Self::read(&value).ok_or_else(|| de::Error::custom(format_args!("expected {}", Self::EXPECTED)))
    }

    /// The implementation of `JsonSchema`.
    fn schema() -> schemars::Schema {
        let mut schema = schemars::json_schema!({ "type": Self::TYPES, EXPECTED: Self::EXPECTED });
        if !Self::WORDS.is_empty() {
            schema.insert(WORDS.to_owned(), Self::WORDS.into());
        }
        if let Some(least) = Self::LEAST {
            schema.insert("minimum".to_owned(), least.into());
        }
        schema
    }
}

/// Implements `Deserialize`, `Serialize` and `JsonSchema` for a type with a [`Syntax`].
#[macro_export]
macro_rules! syntax {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::Syntax::from_serde(from)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::Syntax::write(self), to)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <Self as $crate::Syntax>::schema()
            }
        }
    };
}
