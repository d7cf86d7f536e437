//! Writes Parquet files as Hugging Face's `datasets` does: columns that may lack values, groups of rows, and metadata.

use parquet::basic::{Compression, Repetition};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::path::Path;
use std::sync::Arc;

/// A column of the schema.
#[allow(dead_code, reason = "each of the two users needs some of them")]
pub enum Values {
    Int32(Vec<Option<i32>>),
    Int64(Vec<Option<i64>>),
    Float(Vec<Option<f32>>),
    Double(Vec<Option<f64>>),
    Bool(Vec<Option<bool>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Lists(Vec<Option<Vec<Option<i64>>>>),
}

/// A file.
pub struct ParquetFile<'a> {
    /// The columns, as in `optional int64 label;`.
    pub schema: &'a str,
    /// The value of the key `huggingface`.
    pub metadata: Option<&'a str>,
    pub compression: Compression,
    pub rows_per_group: usize,
}

/// The schema of images and labels.
pub const IMAGES: &str =
    "optional group image { optional binary bytes; optional binary path (STRING); } optional int64 label;";

impl Values {
    pub fn texts(texts: &[&str]) -> Self {
        Self::Bytes(texts.iter().map(|text| Some(text.as_bytes().to_vec())).collect())
    }

    #[allow(dead_code, reason = "each of the two users needs some of them")]
    pub fn lists(lists: &[&[i64]]) -> Self {
        Self::Lists(lists.iter().map(|list| Some(list.iter().copied().map(Some).collect())).collect())
    }

    fn len(&self) -> usize {
        match self {
            Self::Int32(v) => v.len(),
            Self::Int64(v) => v.len(),
            Self::Float(v) => v.len(),
            Self::Double(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Bytes(v) => v.len(),
            Self::Lists(v) => v.len(),
        }
    }
}

/// Images and labels with Hugging Face's metadata, in groups of three.
pub fn write_images(path: &Path, images: &[(Vec<u8>, i64)], metadata: Option<&str>) {
    let bytes = Values::Bytes(images.iter().map(|(bytes, _)| Some(bytes.clone())).collect());
    let paths = Values::Bytes(images.iter().map(|_| None).collect());
    let labels = Values::Int64(images.iter().map(|(_, label)| Some(*label)).collect());
    let file = ParquetFile { schema: IMAGES, metadata, compression: Compression::SNAPPY, rows_per_group: 3 };
    file.write(path, &[bytes, paths, labels]);
}

impl Default for ParquetFile<'_> {
    fn default() -> Self {
        Self { schema: "", metadata: None, compression: Compression::SNAPPY, rows_per_group: 1000 }
    }
}

impl ParquetFile<'_> {
    pub fn write(&self, path: &Path, columns: &[Values]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let schema = Arc::new(parse_message_type(&format!("message schema {{ {} }}", self.schema)).unwrap());
        let metadata =
            self.metadata.map(|json| vec![KeyValue::new("huggingface".to_owned(), json.to_owned())]);
        let properties = WriterProperties::builder()
            .set_compression(self.compression)
            .set_key_value_metadata(metadata)
            .build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let rows = columns.first().map_or(0, Values::len);
        for first in (0..rows).step_by(self.rows_per_group) {
            let range = first..rows.min(first + self.rows_per_group);
            let mut group = writer.next_row_group().unwrap();
            for column in columns {
                let mut to = group.next_column().unwrap().unwrap();
                write_part(to.untyped(), column, range.clone());
                to.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }
}

fn write_part(to: &mut ColumnWriter<'_>, column: &Values, range: std::ops::Range<usize>) {
    let descriptor = match &*to {
        ColumnWriter::BoolColumnWriter(writer) => writer.get_descriptor(),
        ColumnWriter::Int32ColumnWriter(writer) => writer.get_descriptor(),
        ColumnWriter::Int64ColumnWriter(writer) => writer.get_descriptor(),
        ColumnWriter::FloatColumnWriter(writer) => writer.get_descriptor(),
        ColumnWriter::DoubleColumnWriter(writer) => writer.get_descriptor(),
        ColumnWriter::ByteArrayColumnWriter(writer) => writer.get_descriptor(),
        _ => panic!("no such values"),
    };
    let level = descriptor.max_def_level();
    assert!(level > 0 || descriptor.self_type().get_basic_info().repetition() == Repetition::REQUIRED);
    macro_rules! write {
        ($writer:expr, $values:expr, $to:expr) => {{
            let part = &$values[range];
            let levels: Vec<i16> = part.iter().map(|v| if v.is_some() { level } else { level - 1 }).collect();
            let there: Vec<_> = part.iter().flatten().map($to).collect();
            $writer.write_batch(&there, (level > 0).then_some(&levels[..]), None).unwrap();
        }};
    }
    match (to, column) {
        (ColumnWriter::BoolColumnWriter(w), Values::Bool(v)) => write!(w, v, |x| *x),
        (ColumnWriter::Int32ColumnWriter(w), Values::Int32(v)) => write!(w, v, |x| *x),
        (ColumnWriter::Int64ColumnWriter(w), Values::Int64(v)) => write!(w, v, |x| *x),
        (ColumnWriter::FloatColumnWriter(w), Values::Float(v)) => write!(w, v, |x| *x),
        (ColumnWriter::DoubleColumnWriter(w), Values::Double(v)) => write!(w, v, |x| *x),
        (ColumnWriter::ByteArrayColumnWriter(w), Values::Bytes(v)) => {
            write!(w, v, |x: &Vec<u8>| ByteArray::from(x.clone()))
        }
        (ColumnWriter::Int64ColumnWriter(w), Values::Lists(v)) => {
            let (levels, repeats, values) = levels_of(&v[range], level);
            w.write_batch(&values, Some(&levels), Some(&repeats)).unwrap();
        }
        (ColumnWriter::Int32ColumnWriter(w), Values::Lists(v)) => {
            let (levels, repeats, values) = levels_of(&v[range], level);
            let values: Vec<i32> = values.into_iter().map(|value| value as i32).collect();
            w.write_batch(&values, Some(&levels), Some(&repeats)).unwrap();
        }
        _ => panic!("the values are of another type than the column"),
    }
}

/// The definition and repetition levels of lists, and their values. `level` is that of a value. Where no element lacks its value, it may
/// be that of an element.
fn levels_of(lists: &[Option<Vec<Option<i64>>>], level: i16) -> (Vec<i16>, Vec<i16>, Vec<i64>) {
    let (mut levels, mut repeats, mut values) = (Vec::new(), Vec::new(), Vec::new());
    // As `optional group (LIST) { repeated group { optional }}` if it is 3.
    let element = level.min(2);
    for list in lists {
        match list.as_deref() {
            None => levels.push(element - 2),
            Some([]) => levels.push(element - 1),
            Some(list) => {
                levels.extend(list.iter().map(|value| if value.is_some() { level } else { level - 1 }));
                repeats.extend((0..list.len()).map(|at| i16::from(at > 0)));
                values.extend(list.iter().flatten());
                continue;
            }
        }
        repeats.push(0);
    }
    (levels, repeats, values)
}
