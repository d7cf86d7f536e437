//! The values of a column of a Parquet file, as cells.

use super::columns::Cell;
use super::parquet_schema::Number;
use half::f16;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{AsBytes, ByteArray, DataType, FixedLenByteArray, Int96};
use parquet::errors::Result;
use std::borrow::Cow;

/// A part of a column that has been decoded.
pub(super) struct DecodedColumn {
    reader: ColumnReader,
    /// The level of a value that is there.
    level: i16,
    number: Number,
    /// See [`ColumnSource::element`](super::parquet_schema::ColumnSource::element).
    element: Option<i16>,
    /// Empty if every row has a value. A list has one for each element, or one.
    levels: Vec<i16>,
    /// Of lists: 0 where the next row begins.
    repeats: Vec<i16>,
    values: Decoded,
    /// The indices of the next row's level, and of its value if it has one.
    row: usize,
    value: usize,
}

enum Decoded {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl DecodedColumn {
    pub fn new(reader: ColumnReader, level: i16, number: Number, element: Option<i16>) -> Self {
        let values = match &reader {
            ColumnReader::BoolColumnReader(_) => Decoded::Bool(Vec::new()),
            ColumnReader::Int32ColumnReader(_) => Decoded::Int32(Vec::new()),
            ColumnReader::Int64ColumnReader(_) => Decoded::Int64(Vec::new()),
            ColumnReader::Int96ColumnReader(_) => Decoded::Int96(Vec::new()),
            ColumnReader::FloatColumnReader(_) => Decoded::Float(Vec::new()),
            ColumnReader::DoubleColumnReader(_) => Decoded::Double(Vec::new()),
            ColumnReader::ByteArrayColumnReader(_) => Decoded::Bytes(Vec::new()),
            ColumnReader::FixedLenByteArrayColumnReader(_) => Decoded::Fixed(Vec::new()),
        };
        let (levels, repeats) = (Vec::new(), Vec::new());
        Self { reader, level, number, element, levels, repeats, values, row: 0, value: 0 }
    }

    /// Decodes the next rows in place of those before; returns how many there are, at most `rows`.
    pub fn load(&mut self, rows: usize) -> Result<usize> {
        (self.row, self.value) = (0, 0);
        self.levels.clear();
        self.repeats.clear();
        let levels = (&mut self.levels, self.element.map(|_| &mut self.repeats));
        match (&mut self.reader, &mut self.values) {
            (ColumnReader::BoolColumnReader(reader), Decoded::Bool(to)) => fill(reader, levels, to, rows),
            (ColumnReader::Int32ColumnReader(reader), Decoded::Int32(to)) => fill(reader, levels, to, rows),
            (ColumnReader::Int64ColumnReader(reader), Decoded::Int64(to)) => fill(reader, levels, to, rows),
            (ColumnReader::Int96ColumnReader(reader), Decoded::Int96(to)) => fill(reader, levels, to, rows),
            (ColumnReader::FloatColumnReader(reader), Decoded::Float(to)) => fill(reader, levels, to, rows),
            (ColumnReader::DoubleColumnReader(reader), Decoded::Double(to)) => fill(reader, levels, to, rows),
            (ColumnReader::ByteArrayColumnReader(reader), Decoded::Bytes(to)) => {
                fill(reader, levels, to, rows)
            }
            (ColumnReader::FixedLenByteArrayColumnReader(reader), Decoded::Fixed(to)) => {
                fill(reader, levels, to, rows)
            }
            _ => Ok(0),
        }
    }

    /// The cell of the next row that has been loaded.
    pub fn next(&mut self) -> Cell<'_> {
        if let Some(element) = self.element {
            return self.next_list(element);
        }
        let there = self.levels.get(self.row).is_none_or(|level| *level == self.level);
        self.row += 1;
        if !there {
            return Cell::Null;
        }
        let at = self.value;
        self.value += 1;
        cell(&self.values, at, self.number)
    }

    fn next_list(&mut self, element: i16) -> Cell<'static> {
        let begin = self.row;
        let more = self.repeats.iter().skip(begin + 1).take_while(|repeats| **repeats > 0).count();
        self.row += 1 + more;
        let levels = self.levels.get(begin..self.row).unwrap_or_default();
        match levels.first() {
            None => return Cell::Null,
            Some(first) if first + 1 < element => return Cell::Null,
            Some(first) if *first < element => return Cell::List(Vec::new()),
            Some(_) => {}
        }
        let values = self.value..self.value + levels.iter().filter(|level| **level == self.level).count();
        self.value = values.end;
        if values.len() < levels.len() {
            return Cell::Other("a list with an element of no value".to_owned());
        }
        let unsigned = self.number == Number::Unsigned;
        Cell::List(match &self.values {
            Decoded::Int32(all) if unsigned => all[values].iter().map(|i| i64::from(*i as u32)).collect(),
            Decoded::Int32(all) => all[values].iter().map(|i| i64::from(*i)).collect(),
            Decoded::Int64(all) if unsigned => {
                all[values].iter().map(|i| i64::try_from(*i as u64).unwrap_or(i64::MAX)).collect()
            }
            Decoded::Int64(all) => all[values].to_vec(),
            _ => return Cell::Other("a list of other values than whole numbers".to_owned()),
        })
    }
}

fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    (levels, repeats): (&mut Vec<i16>, Option<&mut Vec<i16>>),
    values: &mut Vec<T::T>,
    rows: usize,
) -> Result<usize> {
    values.clear();
    Ok(reader.read_records(rows, Some(levels), repeats, values)?.0)
}

fn cell(values: &Decoded, at: usize, number: Number) -> Cell<'_> {
    match (values, number) {
        (Decoded::Bool(values), _) => Cell::Bool(values[at]),
        (Decoded::Int32(values), Number::Unsigned) => Cell::Integer(i128::from(values[at] as u32)),
        (Decoded::Int64(values), Number::Unsigned) => Cell::Integer(i128::from(values[at] as u64)),
        (Decoded::Int32(values), Number::Decimal(scale)) => decimal(i128::from(values[at]), scale),
        (Decoded::Int64(values), Number::Decimal(scale)) => decimal(i128::from(values[at]), scale),
        (Decoded::Int32(values), _) => Cell::Integer(i128::from(values[at])),
        (Decoded::Int64(values), _) => Cell::Integer(i128::from(values[at])),
        (Decoded::Int96(_), _) => Cell::Other("a time".to_owned()),
        (Decoded::Float(values), _) => Cell::Single(values[at]),
        (Decoded::Double(values), _) => Cell::Double(values[at]),
        (Decoded::Bytes(values), number) => of_bytes(values[at].data(), number),
        (Decoded::Fixed(values), number) => of_bytes(values[at].as_bytes(), number),
    }
}

fn of_bytes(bytes: &[u8], number: Number) -> Cell<'_> {
    match number {
        Number::Text => match std::str::from_utf8(bytes) {
            Ok(text) => Cell::Text(Cow::Borrowed(text)),
            Err(_) => Cell::Other("a text that is not UTF-8".to_owned()),
        },
        Number::Half => match bytes.first_chunk() {
            Some(half) => Cell::Single(f16::from_le_bytes(*half).to_f32()),
            None => Cell::Other("half of a number".to_owned()),
        },
        // Big-endian, with its sign in the first bit.
        Number::Decimal(scale) if (1..=16).contains(&bytes.len()) => {
            let sign = if bytes[0] & 0x80 != 0 { u8::MAX } else { 0 };
            let mut all = [sign; 16];
            all[16 - bytes.len()..].copy_from_slice(bytes);
            decimal(i128::from_be_bytes(all), scale)
        }
        Number::Decimal(_) => Cell::Other("a decimal number of more than 128 bits".to_owned()),
        Number::Plain | Number::Unsigned => Cell::Bytes(Cow::Borrowed(bytes)),
    }
}

/// `digits` with `scale` of them after the decimal point.
fn decimal(digits: i128, scale: usize) -> Cell<'static> {
    let text = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    let (whole, rest) = text.split_at(text.len() - scale);
    let sign = if digits < 0 { "-" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    Cell::Digits(format!("{sign}{whole}{point}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_their_point() {
        for (digits, scale, text) in
            [(12345, 2, "123.45"), (-5, 3, "-0.005"), (7, 0, "7"), (0, 2, "0.00"), (-12, 0, "-12")]
        {
            assert_eq!(decimal(digits, scale).to_text().unwrap(), text);
        }
        assert_eq!(of_bytes(&[0xff, 0x38], Number::Decimal(2)).to_text().unwrap(), "-2.00");
        assert_eq!(of_bytes(&[0x00, 0x3c], Number::Half).to_text().unwrap(), "1");
        assert_eq!(of_bytes(b"\xff", Number::Text).in_words(), "a text that is not UTF-8");
    }
}
