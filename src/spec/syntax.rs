//! Types with a syntax of their own: durations, devices, numbers of nodes.

use super::schema::EXPECTED;
use serde::{Deserialize, Deserializer, de};

/// How specs write the values of a type. serde and the JSON Schema follow from it, by [`syntax!`](crate::spec::syntax).
pub trait Syntax: Sized {
    /// What is accepted, after "expected".
    const EXPECTED: &'static str;
    /// The types of JSON that it comes in.
    const TYPES: &'static [&'static str];

    fn read(value: &toml::Value) -> Option<Self>;
    fn write(&self) -> toml::Value;

    /// What `Deserialize` does.
    fn from_serde<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(from)?;
        Self::read(&value).ok_or_else(|| de::Error::custom(format_args!("expected {}", Self::EXPECTED)))
    }

    /// What `JsonSchema` says.
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": Self::TYPES, EXPECTED: Self::EXPECTED })
    }
}

/// `Deserialize`, `Serialize` and `JsonSchema` of a type that has a [`Syntax`].
macro_rules! syntax {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::spec::Syntax::from_serde(from)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::spec::Syntax::write(self), to)
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
                <Self as $crate::spec::Syntax>::schema()
            }
        }
    };
}

pub(crate) use syntax;
