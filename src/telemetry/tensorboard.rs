//! TensorBoard event files, written directly: TFRecord frames of hand-encoded `tensorflow.Event` messages with scalar
//! summaries. `tensorboard --logdir runs` shows the curves of all runs.

use super::events::Event;
use crate::error::{IoContext, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends scalars to one event file. Each start of a run writes its own file; TensorBoard merges them.
#[derive(Debug)]
pub struct TensorBoardWriter {
    path: PathBuf,
    file: File,
}

impl TensorBoardWriter {
    /// Creates `<folder>/events.out.tfevents.<time>.<pid>.ddp-run`. If there are earlier files, a session log tells
    /// TensorBoard to discard their values for steps after `done`.
    pub fn create(folder: &Path, done: u64) -> Result<Self> {
        let first = !folder.exists();
        fs::create_dir_all(folder).doing("create", folder)?;
        let seconds = now() as u64;
        // TensorBoard reads files in the order of their names, so the name begins with the time. Names are unique.
        let (path, file) = (0..)
            .find_map(|n| {
                let name = format!("events.out.tfevents.{seconds:010}.{}.{n}.ddp-run", std::process::id());
                let path = folder.join(name);
                match File::options().append(true).create_new(true).open(&path) {
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => None,
                    other => Some(other.doing("create", &path).map(|file| (path, file))),
                }
            })
            .expect("the range is endless")?;
        let mut writer = Self { path, file };
        let mut version = wall_time();
        bytes_field(&mut version, 3, b"brain.Event:2");
        writer.record(&version)?;
        if !first {
            // SessionLog { status: START }: values of earlier files from this step on are stale.
            let mut start = wall_time();
            varint_field(&mut start, 2, done + 1);
            bytes_field(&mut start, 7, &[0x08, 1]);
            writer.record(&start)?;
        }
        Ok(writer)
    }

    #[cfg(test)]
    fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the scalars of an event, if it has any: `step/loss`, `step/lr`, `train/…`, `val/…`.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut scalars = Vec::new();
        match event {
            Event::Step(e) => {
                scalars.push(("step/loss".to_owned(), e.loss));
                scalars.push(("step/lr".to_owned(), e.lr));
                scalars.push(("step/samples_per_s".to_owned(), e.samples_per_s));
                scalars.extend(e.grad_norm.map(|x| ("step/grad_norm".to_owned(), x)));
                scalars.push(("step/data_wait".to_owned(), e.data_wait));
            }
            Event::Epoch(e) => {
                scalars.extend(e.train.iter().map(|(name, value)| (format!("train/{name}"), value)));
                let val = e.val.iter().flat_map(|v| v.iter());
                scalars.extend(val.map(|(name, value)| (format!("val/{name}"), value)));
                scalars.push(("epoch/seconds".to_owned(), e.seconds));
            }
            _ => return Ok(()),
        }
        let step = event.step().unwrap_or(0);
        let scalars: Vec<(&str, f64)> = scalars.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        self.scalars(step, &scalars)
    }

    /// Writes named scalars for one step.
    pub fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        // Event { wall_time = 1 double, step = 2, summary = 5 { value = 1 { tag = 1, simple_value = 2 float } } }
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            bytes_field(&mut entry, 1, tag.as_bytes());
            key(&mut entry, 2, 5);
            entry.extend_from_slice(&(*value as f32).to_le_bytes());
            bytes_field(&mut summary, 1, &entry);
        }
        let mut event = wall_time();
        varint_field(&mut event, 2, step);
        bytes_field(&mut event, 5, &summary);
        self.record(&event)
    }

    /// Writes one TFRecord with a single write: length, masked CRC of the length, data, masked CRC of the data.
    fn record(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut frame = Vec::with_capacity(data.len() + 16);
        frame.extend_from_slice(&length);
        frame.extend_from_slice(&masked_crc(&length).to_le_bytes());
        frame.extend_from_slice(data);
        frame.extend_from_slice(&masked_crc(data).to_le_bytes());
        self.file.write_all(&frame).doing("write", &self.path)
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// An encoded event that contains only the time.
fn wall_time() -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, 1);
    event.extend_from_slice(&now().to_le_bytes());
    event
}

/// A protobuf field's number and wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, 0);
    varint(out, value);
}

fn bytes_field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
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
mod tests {
    use super::*;
    use crate::telemetry::{Metrics, StepEvent};

    #[test]
    fn crc32c_has_known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
    }

    /// The frames of a file, with their CRCs checked.
    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
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
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
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

    #[test]
    fn written_records_decode() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = TensorBoardWriter::create(dir.path(), 299).unwrap();
        let event = Event::Step(StepEvent {
            step: 300,
            loss: 0.5,
            lr: 0.25,
            samples_per_s: 8.0,
            grad_norm: Some(4.0),
            data_wait: 0.125,
            ..StepEvent::default()
        });
        writer.write(&event).unwrap();
        let frames = frames(&fs::read(writer.path()).unwrap());
        assert_eq!(frames.len(), 3);
        assert_eq!(fields(&frames[0])[1], (3, b"brain.Event:2".to_vec()));
        assert_eq!(fields(&frames[1])[1..], [(2, 300u64.to_le_bytes().to_vec()), (7, vec![8, 1])]);
        let event = fields(&frames[2]);
        assert_eq!(event[1], (2, 300u64.to_le_bytes().to_vec()));
        let values: Vec<(String, f32)> = fields(&event[2].1)
            .iter()
            .map(|(_, value)| {
                let value = fields(value);
                let float = f32::from_le_bytes(value[1].1.as_slice().try_into().unwrap());
                (String::from_utf8(value[0].1.clone()).unwrap(), float)
            })
            .collect();
        let expected = [
            ("step/loss", 0.5),
            ("step/lr", 0.25),
            ("step/samples_per_s", 8.0),
            ("step/grad_norm", 4.0),
            ("step/data_wait", 0.125),
        ];
        assert_eq!(values, expected.map(|(n, v)| (n.to_owned(), v)));
    }

    #[test]
    fn starts_in_the_same_second_have_separate_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tensorboard");
        let a = TensorBoardWriter::create(&folder, 0).unwrap();
        let b = TensorBoardWriter::create(&folder, 0).unwrap();
        assert_ne!(a.path(), b.path());
        // The second file invalidates the first from the first step on.
        let [a, b] = [a, b].map(|writer| frames(&fs::read(writer.path()).unwrap()));
        assert_eq!((a.len(), b.len()), (1, 2));
        assert_eq!(fields(&b[1])[1..], [(2, 1u64.to_le_bytes().to_vec()), (7, vec![8, 1])]);
    }

    #[test]
    fn tensorboard_reads_the_files() {
        let Ok(python) = std::env::var("DDP_RUN_TENSORBOARD_PYTHON") else {
            println!("skipped: DDP_RUN_TENSORBOARD_PYTHON does not name a Python that has tensorboard");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let mut first = TensorBoardWriter::create(dir.path(), 0).unwrap();
        for step in 1..=4 {
            first.scalars(step, &[("step/loss", 1.0 / step as f64)]).unwrap();
        }
        // Resumed at step 2: steps 3 and 4 of the first file are stale.
        let mut second = TensorBoardWriter::create(dir.path(), 2).unwrap();
        second.scalars(3, &[("step/loss", 9.0)]).unwrap();
        second
            .write(&Event::Epoch(crate::telemetry::EpochEvent {
                epoch: 0,
                train: Metrics::new(0.5),
                val: Some(Metrics::new(0.25).with("accuracy", 0.75)),
                seconds: 1.0,
                step: 3,
                lr: 0.1,
                samples_per_s: 1.0,
                data_wait: 0.0,
                cut: false,
            }))
            .unwrap();
        let script = "import sys\n\
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
            a = EventAccumulator(sys.argv[1]); a.Reload()\n\
            print([(s.step, s.value) for s in a.Scalars('step/loss')], a.Scalars('val/accuracy')[0].value)\n";
        let out = std::process::Command::new(python).args(["-c", script]).arg(dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert_eq!(text.trim(), "[(1, 1.0), (2, 0.5), (3, 9.0)] 0.75", "{errors}");
    }
}
