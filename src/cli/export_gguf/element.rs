//! The types of a tensor's elements in a GGUF file.

use base::error::{Error, Result};
use half::{bf16, f16};

/// A type of ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Element {
    F32,
    F16,
    Bf16,
    /// 32 numbers of 8 bits with a common factor in f16.
    Q8_0,
}

/// Numbers of [`Element::Q8_0`] with a common factor.
pub(super) const BLOCK: usize = 32;

impl Element {
    /// `ggml_type`.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Bf16 => 30,
        }
    }

    /// `general.file_type` of a file with matrices of this type.
    pub fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Bf16 => 32,
        }
    }

    /// The bytes of so many elements; of `Q8_0`, whole blocks.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Self::F32 => 4 * elements,
            Self::F16 | Self::Bf16 => 2 * elements,
            Self::Q8_0 => elements / BLOCK * (2 + BLOCK),
        }
    }

    /// The bytes of these values of the tensor `name`; of `Q8_0`, whole blocks.
    ///
    /// # Errors
    /// A value is too large for the type.
    pub fn encode(self, name: &str, values: &[f32]) -> Result<Vec<u8>> {
        match self {
            Self::F32 => Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Self::F16 => rounded(name, values, |x| {
                let short = f16::from_f32(x);
                (short.is_finite(), short.to_le_bytes())
            }),
            Self::Bf16 => rounded(name, values, |x| {
                let short = bf16::from_f32(x);
                (short.is_finite(), short.to_le_bytes())
            }),
            Self::Q8_0 => q8_0(name, values),
        }
    }
}

/// The bytes of all values. `round` also tells whether they are a finite number.
fn rounded(name: &str, values: &[f32], round: impl Fn(f32) -> (bool, [u8; 2])) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(2 * values.len());
    for value in values {
        let (is_finite, bytes) = round(*value);
        if value.is_finite() && !is_finite {
            let what = format!("{value:e} in tensor `{name}` is too large for the type");
            return Err(Error::checkpoint(what).hint("bf16 has the range of f32"));
        }
        out.extend(bytes);
    }
    Ok(out)
}

/// As `quantize_row_q8_0_ref` of ggml.
fn q8_0(name: &str, values: &[f32]) -> Result<Vec<u8>> {
    let (blocks, _) = values.as_chunks::<BLOCK>();
    let factor = |block: &[f32; BLOCK]| block.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
    let factors: Vec<f32> = blocks.iter().map(factor).collect();
    let in_f16 = Element::F16.encode(name, &factors)?;
    let mut out = Vec::with_capacity(Element::Q8_0.bytes(values.len()));
    for ((block, factor), in_f16) in blocks.iter().zip(factors).zip(in_f16.as_chunks::<2>().0) {
        let inverse = if factor == 0.0 { 0.0 } else { 1.0 / factor };
        out.extend(in_f16);
        out.extend(block.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q8_0_has_a_factor_and_rounded_values_by_block() {
        let mut values = [0.0_f32; 3 * BLOCK];
        // The factor of the first block is 1; halves are rounded away from zero.
        values[..5].copy_from_slice(&[127.0, -127.0, 2.5, -2.5, 0.49]);
        values[BLOCK] = -0.254;
        values[BLOCK + 1] = 0.001;
        let found = Element::Q8_0.encode("w", &values).unwrap();
        assert_eq!(found.len(), Element::Q8_0.bytes(values.len()));
        let (blocks, rest) = found.as_chunks::<34>();
        assert!(rest.is_empty());
        assert_eq!(blocks[0][..8], [0x00, 0x3c, 127, 129, 3, 253, 0, 0]);
        // 0.002 in f16; 0.001 is half of it.
        assert_eq!(blocks[1][..5], [0x19, 0x18, 129, 1, 0]);
        assert_eq!(blocks[2], [0; 34]);
    }

    #[test]
    fn values_that_f16_lacks_are_refused() {
        assert_eq!(Element::F16.encode("w", &[1.0, -2.0]).unwrap(), [0x00, 0x3c, 0x00, 0xc0]);
        assert_eq!(Element::Bf16.encode("w", &[1.0]).unwrap(), [0x80, 0x3f]);
        assert_eq!(Element::F32.encode("w", &[1.0]).unwrap(), [0, 0, 0x80, 0x3f]);
        // The last bit of f32 decides which of two is nearer.
        let above_half = f32::from_bits(0x3f80_8001);
        assert_eq!(Element::Bf16.encode("w", &[above_half]).unwrap(), [0x81, 0x3f]);
        let above_half = f32::from_bits(0x3f80_1001);
        assert_eq!(Element::F16.encode("w", &[above_half]).unwrap(), [0x01, 0x3c]);
        let why = Element::F16.encode("w", &[1e6]).unwrap_err().message;
        assert!(why.contains("tensor `w`"), "{why}");
    }
}
