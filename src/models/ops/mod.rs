//! Operations that Burn's own don't serve well enough, each with its backward step; shapes and semantics are PyTorch's. In host memory
//! they are custom operations over our own kernels (`crate::kernels`), on a device Burn's kernels, put together anew where
//! that saves passes over memory.

mod attention;
mod buffers;
mod conv;
mod cross_entropy;
mod layer_norm;
mod linear;
mod norm;
#[cfg(feature = "cubecl-devices")]
mod norm_on_device;
mod pool;
mod residual;

pub use attention::{CausalMask, causal_attention};
pub use conv::conv2d;
pub use cross_entropy::cross_entropy;
pub use layer_norm::layer_norm;
pub use linear::{Activation, linear};
pub use norm::{batch_norm_eval, batch_norm_train};
pub use pool::max_pool2d;
pub use residual::add_relu;

use buffers::{buffer, recycle};
use burn::backend::{Autodiff, BackendTypes, Flex};
use burn::tensor::{Shape, Tensor, TensorData};

type Ad = Autodiff<Flex>;
type Flat = <Flex as BackendTypes>::FloatTensorPrimitive;

fn threads() -> usize {
    rayon::current_num_threads()
}

/// The values of a contiguous tensor.
fn values(tensor: &Flat) -> &[f32] {
    tensor.as_slice::<f32>().expect("made contiguous, and models are f32")
}

fn tensor(values: Vec<f32>, dims: impl Into<Shape>) -> Flat {
    Flat::from_data(TensorData::new(values, dims))
}

/// A tensor without autodiff as its contiguous primitive.
fn plain<const D: usize>(tensor: Tensor<D>) -> Flat {
    tensor.try_into_primitive::<Flex>().expect("the caller looked").to_contiguous()
}

/// A tensor with autodiff as its primitive and the guard of its node.
fn tracked<const D: usize>(tensor: Tensor<D>) -> (Flat, burn_autodiff::ops::NodeGuard) {
    let tensor = tensor.try_into_primitive::<Ad>().expect("the caller looked");
    let (primitive, node) = tensor.into_parts();
    (primitive.to_contiguous(), node)
}
