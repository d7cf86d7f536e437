//! Element types of the computation.

use burn::tensor::DType;
use serde::Serialize;

/// What the forward and backward passes compute in. Parameters, gradients, optimizer state, norms and losses are f32 whatever this
/// says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    #[default]
    F32,
    /// f32 values, of which tensor cores multiply the first 10 bits of the mantissa.
    Tf32,
    Bf16,
    /// Gradients are scaled up while they are computed, so that small ones don't vanish.
    F16,
}

impl Precision {
    pub const CHOICES: [(&str, Precision); 4] = [
        ("f32", Precision::F32),
        ("tf32", Precision::Tf32),
        ("bf16", Precision::Bf16),
        ("f16", Precision::F16),
    ];

    /// The type of tensors.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }
}
