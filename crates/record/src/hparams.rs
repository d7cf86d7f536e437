//! The data of TensorBoard's HPARAMS tab. It compares the runs in a folder by the values of each run's start and by the last values of its
//! scalars. There is no description of all runs (`_hparams_/experiment`): TensorBoard would take that of one run for all, where without
//! one it finds out itself which keys there are and which of them differ.

use super::event_file::{bytes_field, key, plugin_value, varint_field};
use serde_json::{Map, Value};

/// A summary value with the values of a run that begins: numbers, truth values and texts; lists as text.
pub(super) fn start(values: &Map<String, Value>, seconds: f64) -> Vec<u8> {
    // SessionStartInfo { hparams = 1 map, start_time_secs = 5 }
    let mut info = Vec::new();
    for (name, value) in values {
        let Some(value) = encoded(value) else { continue };
        let mut entry = Vec::new();
        bytes_field(&mut entry, 1, name.as_bytes());
        bytes_field(&mut entry, 2, &value);
        bytes_field(&mut info, 1, &entry);
    }
    double_field(&mut info, 5, seconds);
    data("_hparams_/session_start_info", 3, &info)
}

/// A summary value with the end of a run: done or failed, or `None` if it is to continue.
pub(super) fn end(done: Option<bool>, seconds: f64) -> Vec<u8> {
    // SessionEndInfo { status = 1, end_time_secs = 2 }; SUCCESS is 1, FAILURE 2.
    let mut info = Vec::new();
    if let Some(done) = done {
        varint_field(&mut info, 1, if done { 1 } else { 2 });
    }
    double_field(&mut info, 2, seconds);
    data("_hparams_/session_end_info", 4, &info)
}

/// `HParamsPluginData` with one field, and a tensor without values.
fn data(tag: &str, field: u64, info: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    bytes_field(&mut content, field, info);
    plugin_value(tag, "hparams", &content, &[0x08, 1, 0x12, 2, 0x12, 0])
}

/// `google.protobuf.Value`; `None` for what has no value there.
fn encoded(value: &Value) -> Option<Vec<u8>> {
    // number_value = 2, string_value = 3, bool_value = 4
    let mut out = Vec::new();
    match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(x) => varint_field(&mut out, 4, u64::from(*x)),
        // Of larger whole numbers f64 has not all: two seeds would be one.
        Value::Number(x) if x.as_i64().is_some_and(|n| n.unsigned_abs() > 1 << 53) => {
            bytes_field(&mut out, 3, x.to_string().as_bytes());
        }
        Value::Number(x) => double_field(&mut out, 2, x.as_f64()?),
        Value::String(text) => bytes_field(&mut out, 3, text.as_bytes()),
        Value::Array(_) => bytes_field(&mut out, 3, value.to_string().as_bytes()),
    }
    Some(out)
}

fn double_field(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}
