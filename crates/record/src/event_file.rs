//! TensorBoard's files: TFRecord frames of hand-encoded `tensorflow.Event` messages, and the encoding of protocol buffers.

use base::error::{IoContext, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An event file that is appended to.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Creates the file and writes its version; `None` if there is one of the name.
    pub fn create(path: &Path) -> Result<Option<Self>> {
        let file = match File::options().append(true).create_new(true).open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
            other => other.doing("create", path)?,
        };
        let mut new = Self { path: path.to_owned(), file };
        let mut version = wall_time();
        bytes_field(&mut version, 3, b"brain.Event:2");
        new.record(&version)?;
        Ok(Some(new))
    }

    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes summary values, encoded, for one step.
    pub fn values(&mut self, step: u64, values: &[Vec<u8>]) -> Result<()> {
        // Event { wall_time = 1 double, step = 2, summary = 5 { value = 1 } }
        let mut summary = Vec::new();
        values.iter().for_each(|value| bytes_field(&mut summary, 1, value));
        let mut event = wall_time();
        varint_field(&mut event, 2, step);
        bytes_field(&mut event, 5, &summary);
        self.record(&event)
    }

    /// Writes one TFRecord with a single write: length, masked CRC of the length, data, masked CRC of the data.
    pub fn record(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut frame = Vec::with_capacity(data.len() + 16);
        frame.extend_from_slice(&length);
        frame.extend_from_slice(&masked_crc(&length).to_le_bytes());
        frame.extend_from_slice(data);
        frame.extend_from_slice(&masked_crc(data).to_le_bytes());
        self.file.write_all(&frame).doing("write", &self.path)
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// An encoded event that contains only the time.
pub(super) fn wall_time() -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, 1);
    event.extend_from_slice(&now().to_le_bytes());
    event
}

/// A protobuf field's number and wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
pub(super) fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

pub(super) fn varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, 0);
    varint(out, value);
}

pub(super) fn bytes_field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    key(out, field, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// TFRecord masks CRCs, because a CRC of data that contains CRCs is weak.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A summary value of a plugin: its data, and a tensor, encoded.
pub(super) fn plugin_value(tag: &str, plugin: &str, content: &[u8], tensor: &[u8]) -> Vec<u8> {
    // Value { tag = 1, tensor = 8, metadata = 9 { plugin_data = 1 { plugin_name = 1, content = 2 }, data_class = 4 } }
    let (mut data, mut metadata, mut value) = (Vec::new(), Vec::new(), Vec::new());
    bytes_field(&mut data, 1, plugin.as_bytes());
    bytes_field(&mut data, 2, content);
    bytes_field(&mut metadata, 1, &data);
    varint_field(&mut metadata, 4, 2);
    bytes_field(&mut value, 1, tag.as_bytes());
    bytes_field(&mut value, 8, tensor);
    bytes_field(&mut value, 9, &metadata);
    value
}

/// CRC-32C (Castagnoli). Records have a few hundred bytes, so one byte at a time is fast enough.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !data.iter().fold(!0u32, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
pub(super) mod testing {
    use super::masked_crc;

    /// The frames of a file, with their CRCs checked.
    pub fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(bytes[8..12], masked_crc(&bytes[..8]).to_le_bytes());
            let data = &bytes[12..12 + length];
            assert_eq!(bytes[12 + length..16 + length], masked_crc(data).to_le_bytes());
            frames.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        frames
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// Field number and raw bytes (varints as little-endian u64) of each field of a message.
    pub fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = read_varint(&mut bytes);
            let length = match key & 7 {
                0 => {
                    fields.push((key >> 3, read_varint(&mut bytes).to_le_bytes().to_vec()));
                    continue;
                }
                1 => 8,
                2 => read_varint(&mut bytes) as usize,
                5 => 4,
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, bytes[..length].to_vec()));
            bytes = &bytes[length..];
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_has_known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
    }
}
