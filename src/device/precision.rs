//! Element types of the computation.

use crate::spec::choice;
use burn::tensor::DType;

choice! {
    /// What the forward and backward passes compute in. Parameters, gradients, optimizer state, norms and losses are f32
    /// whatever this says.
    Precision:
    /// f32, to the bit.
    F32 = "f32",
    /// f32 values, of which tensor cores multiply the first 10 bits of the mantissa.
    Tf32 = "tf32",
    /// bfloat16, with the range of f32.
    Bf16 = "bf16",
    /// Gradients are scaled up while they are computed, so that small ones don't vanish.
    F16 = "f16",
}

impl Precision {
    /// The type of tensors.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }
}
