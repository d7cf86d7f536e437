//! Casts that are free if the tensor already has the type.

use burn::tensor::{DType, Tensor};

/// `x` in `dtype`.
pub fn in_dtype<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    if x.dtype() == dtype { x } else { x.cast(dtype) }
}

/// `x` in f32.
pub fn in_f32<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    in_dtype(x, DType::F32)
}
