//! Element types of the computation.

use burn::tensor::DType;
use spec::choice;

choice! {
    /// Type of the forward and backward passes. Parameters, gradients, optimizer state, norms and losses stay f32.
    Precision:
    /// Exact f32.
    F32 = "f32",
    /// f32 values that tensor cores multiply with 10 bits of mantissa (CUDA only).
    Tf32 = "tf32",
    /// bfloat16, with the range of f32 (devices only).
    Bf16 = "bf16",
    /// f16 with dynamic loss scaling (devices only).
    F16 = "f16",
}

impl Precision {
    /// The element type of tensors.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }
}
