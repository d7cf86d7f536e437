//! The head of a GGUF file, version 3: metadata, and what its tensors are (ggml's specification of GGUF).

use super::element::Element;

const MAGIC: &[u8] = b"GGUF";
const VERSION: u32 = 3;

/// Where the data of tensors begin: multiples of it. It is the format's default, so no key says it.
pub(super) const ALIGNMENT: usize = 32;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    I32s(Vec<i32>),
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

/// Keys with their values, in the order of the file.
pub(super) type Metadata = Vec<(String, Value)>;

/// What the head says of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInfo {
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    pub element: Element,
}

impl TensorInfo {
    /// Bytes of its data, without the padding.
    pub fn size(&self) -> usize {
        self.element.bytes(self.shape.iter().product())
    }
}

/// Everything before the data of the first tensor. Each tensor's data are padded to [`ALIGNMENT`].
pub(super) fn head(metadata: &Metadata, tensors: &[TensorInfo]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_string(&mut out, key);
        put_value(&mut out, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        put_string(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        // The innermost dimension comes first.
        tensor.shape.iter().rev().for_each(|size| out.extend((*size as u64).to_le_bytes()));
        out.extend(tensor.element.id().to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset += tensor.size().next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let [i32_id, string_id, array_id] = [5_u32, 8, 9];
    let mut typed = |id: u32, bytes: &[u8]| {
        out.extend(id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U32(number) => typed(4, &number.to_le_bytes()),
        Value::F32(number) => typed(6, &number.to_le_bytes()),
        Value::Bool(is_set) => typed(7, &[u8::from(*is_set)]),
        Value::String(text) => {
            typed(string_id, &[]);
            put_string(out, text);
        }
        Value::Strings(texts) => {
            typed(array_id, &string_id.to_le_bytes());
            out.extend((texts.len() as u64).to_le_bytes());
            texts.iter().for_each(|text| put_string(out, text));
        }
        Value::I32s(numbers) => {
            typed(array_id, &i32_id.to_le_bytes());
            out.extend((numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_metadata_and_tensors_at_aligned_offsets() {
        let metadata = vec![
            ("general.architecture".to_owned(), Value::from("llama")),
            ("n".to_owned(), Value::U32(7)),
            ("tokens".to_owned(), Value::Strings(vec!["é".to_owned(), String::new()])),
            ("types".to_owned(), Value::I32s(vec![-1])),
            ("b".to_owned(), Value::Bool(true)),
        ];
        let tensor = |name: &str, shape: &[usize], element| TensorInfo {
            name: name.to_owned(),
            shape: shape.to_vec(),
            element,
        };
        let tensors = [
            tensor("norm", &[3], Element::F32),
            tensor("w", &[2, 32], Element::Q8_0),
            tensor("v", &[1, 4], Element::F16),
        ];
        let found = head(&metadata, &tensors);
        let mut expected = b"GGUF\x03\0\0\0\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
        expected.extend(b"\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama");
        expected.extend(b"\x01\0\0\0\0\0\0\0n\x04\0\0\0\x07\0\0\0");
        expected.extend(b"\x06\0\0\0\0\0\0\0tokens\x09\0\0\0\x08\0\0\0\x02\0\0\0\0\0\0\0");
        expected.extend("\x02\0\0\0\0\0\0\0é\0\0\0\0\0\0\0\0".as_bytes());
        expected.extend(b"\x05\0\0\0\0\0\0\0types\x09\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\0\xff\xff\xff\xff");
        expected.extend(b"\x01\0\0\0\0\0\0\0b\x07\0\0\0\x01");
        expected.extend(b"\x04\0\0\0\0\0\0\0norm\x01\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        expected.extend(b"\x01\0\0\0\0\0\0\0w\x02\0\0\0\x20\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x08\0\0\0");
        // 12 bytes of the first tensor, padded.
        expected.extend(b"\x20\0\0\0\0\0\0\0");
        expected.extend(b"\x01\0\0\0\0\0\0\0v\x02\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0");
        // Two blocks of 34 bytes behind it.
        expected.extend(b"\x80\0\0\0\0\0\0\0");
        assert_eq!(found[..expected.len()], expected);
        assert!(found[expected.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(found.len(), expected.len().next_multiple_of(32));
    }
}
