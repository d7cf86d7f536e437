//! The columns of a Parquet file: what the schema and the metadata of Hugging Face say of them.

use super::columns::{CellKind, Column};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::Type;
use serde_json::Value as Json;
use std::collections::HashMap;

/// Key of the metadata in which Hugging Face's `datasets` describes the columns.
const HUGGING_FACE: &str = "huggingface";
/// The field of an image that holds its file.
const BYTES: &str = "bytes";

/// A column, and where its values are.
pub(super) struct ColumnSource {
    pub column: Column,
    /// Index of the column of values; `None` if there is no single one.
    pub leaf: Option<usize>,
    pub number: Number,
    /// Of a column of lists: the least definition level of an element. An empty list is one below, no list less.
    pub element: Option<i16>,
}

/// What the values of a column stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Plain,
    Unsigned,
    /// A whole number of powers of ten, by this many digits after the decimal point.
    Decimal(usize),
    Half,
    /// UTF-8 in bytes.
    Text,
}

/// The columns of a file.
pub(super) fn sources(meta: &FileMetaData) -> Vec<ColumnSource> {
    let schema = meta.schema_descr();
    // Leaves in the order of the file, each with its path.
    let leaves: HashMap<String, usize> =
        schema.columns().iter().enumerate().map(|(i, leaf)| (leaf.path().parts().join("\0"), i)).collect();
    let features = features(meta);
    let column = |field: &Type| {
        let name = field.name();
        let (kind, number, path, element) = match lists(field) {
            Some((number, path, element)) => (CellKind::Lists, number, Some(path), Some(element)),
            None => {
                let (kind, number, path) = classify(field);
                (kind, number, path, None)
            }
        };
        let mut column = Column::new(name, kind);
        // What pandas writes beside the columns.
        column.counter = name.starts_with("__index_level_");
        if let Some(feature) = features.as_ref().and_then(|features| features.get(name)) {
            column.image = feature["_type"] == "Image";
            column.classes = classes(feature);
        }
        let leaf = path.and_then(|path| leaves.get(&path).copied());
        ColumnSource { column, leaf, number, element }
    };
    schema.root_schema().get_fields().iter().map(|field| column(field)).collect()
}

/// What Hugging Face's `datasets` says of the columns.
fn features(meta: &FileMetaData) -> Option<Json> {
    let entry = meta.key_value_metadata()?.iter().find(|entry| entry.key == HUGGING_FACE)?;
    let mut json: Json = serde_json::from_str(entry.value.as_ref()?).ok()?;
    Some(json["info"]["features"].take())
}

/// The names of a `ClassLabel`; their numbers if it has none.
fn classes(feature: &Json) -> Option<Vec<String>> {
    if feature["_type"] != "ClassLabel" {
        return None;
    }
    match (feature["names"].as_array(), feature["num_classes"].as_u64()) {
        (Some(names), _) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        (None, Some(n)) if n <= 1 << 20 => Some((0..n).map(|i| i.to_string()).collect()),
        _ => None,
    }
}

/// What a column of the schema holds, and the path of its values.
fn classify(field: &Type) -> (CellKind, Number, Option<String>) {
    let name = field.name();
    let other = |what: &str| (CellKind::Other(format!("holds {what}")), Number::Plain, None);
    if field.is_group() {
        let bytes = field.get_fields().iter().find(|inner| inner.name() == BYTES && inner.is_primitive());
        return match (field.get_basic_info().logical_type_ref(), bytes) {
            (None, Some(inner)) if inner.get_physical_type() == Physical::BYTE_ARRAY && !repeated(field) => {
                (CellKind::Bytes, Number::Plain, Some(format!("{name}\0{BYTES}")))
            }
            (Some(LogicalType::List), _) => other("lists"),
            (Some(LogicalType::Map), _) => other("maps"),
            _ => {
                let inner: Vec<&str> = field.get_fields().iter().map(|inner| inner.name()).collect();
                other(&format!("several fields (`{}`)", inner.join("`, `")))
            }
        };
    }
    if repeated(field) {
        return other("lists");
    }
    match primitive(field) {
        Ok((kind, number)) => (kind, number, Some(name.to_owned())),
        Err(what) => other(what),
    }
}

/// Of a column of lists of whole numbers: what these are, their path, and [`ColumnSource::element`]. As the format's `LIST`, and as older
/// writers left it.
fn lists(field: &Type) -> Option<(Number, String, i16)> {
    let info = field.get_basic_info();
    let is_list = matches!(info.logical_type_ref(), Some(LogicalType::List))
        || info.converted_type() == ConvertedType::LIST
        || (repeated(field) && field.is_primitive());
    if !is_list {
        return None;
    }
    let (mut field, mut path, mut level, mut element) = (field, Vec::new(), 0, None);
    loop {
        path.push(field.name());
        if repeated(field) {
            level += 1;
            if element.replace(level).is_some() {
                return None;
            }
        } else if field.get_basic_info().repetition() == Repetition::OPTIONAL {
            level += 1;
        }
        match field.is_primitive() {
            true => break,
            false => {
                let [only] = field.get_fields() else { return None };
                field = only;
            }
        }
    }
    match (field.get_physical_type(), primitive(field)) {
        (Physical::INT32 | Physical::INT64, Ok((_, number @ (Number::Plain | Number::Unsigned)))) => {
            Some((number, path.join("\0"), element?))
        }
        _ => None,
    }
}

fn repeated(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// # Errors
/// A description of unusable contents.
fn primitive(field: &Type) -> Result<(CellKind, Number), &'static str> {
    use ConvertedType as Converted;
    let info = field.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let scale = || usize::try_from(field.get_scale()).unwrap_or(0);
    match (logical, converted) {
        (Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_)), _)
        | (_, Converted::DATE | Converted::TIME_MILLIS | Converted::TIME_MICROS)
        | (_, Converted::TIMESTAMP_MILLIS | Converted::TIMESTAMP_MICROS | Converted::INTERVAL) => {
            return Err("dates or times");
        }
        (Some(LogicalType::Decimal(_)), _) | (_, Converted::DECIMAL) => {
            return Ok((CellKind::Values, Number::Decimal(scale())));
        }
        (Some(LogicalType::Float16), _) => return Ok((CellKind::Values, Number::Half)),
        _ => {}
    }
    let unsigned = match (logical, converted) {
        (Some(LogicalType::Integer(int)), _) => !int.is_signed,
        (_, Converted::UINT_8 | Converted::UINT_16 | Converted::UINT_32 | Converted::UINT_64) => true,
        _ => false,
    };
    match field.get_physical_type() {
        Physical::INT32 | Physical::INT64 if unsigned => Ok((CellKind::Values, Number::Unsigned)),
        Physical::BOOLEAN | Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE => {
            Ok((CellKind::Values, Number::Plain))
        }
        Physical::INT96 => Err("dates or times"),
        Physical::BYTE_ARRAY => match (logical, converted) {
            (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _)
            | (_, Converted::UTF8 | Converted::ENUM | Converted::JSON) => Ok((CellKind::Texts, Number::Text)),
            (None, Converted::NONE) => Ok((CellKind::Bytes, Number::Plain)),
            _ => Err("values of a type that is not known here"),
        },
        Physical::FIXED_LEN_BYTE_ARRAY => Err("bytes of fixed length"),
    }
}
