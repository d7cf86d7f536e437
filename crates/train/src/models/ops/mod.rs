//! Operations for which Burn's own are too slow, each with its backward step; shapes and semantics are those of PyTorch. In
//! host memory they are custom operations with our own kernels (`kernels`); on a device they use Burn's kernels,
//! combined to save passes over memory.

mod attention;
mod conv;
mod cross_entropy;
mod dropout;
mod embedding;
mod head;
mod layer_norm;
mod linear;
mod norm;
#[cfg(feature = "cubecl-devices")]
mod norm_on_device;
mod pool;
mod residual;
mod rms_norm;
mod rotary;
mod swiglu;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use attention::{Heads, KeysAndValues, Mask, attention, attention_after};
pub use conv::conv2d;
pub use cross_entropy::cross_entropy;
pub use dropout::dropout;
pub use embedding::embedding;
pub use head::{MANY_LOGITS, has_many_logits, head_cross_entropy};
pub use kernels::attention::Sees;
pub use kernels::head::ROWS as ROWS_OF_LOGITS;
pub use layer_norm::layer_norm;
pub use linear::{Activation, linear};
pub use norm::{batch_norm_eval, batch_norm_train};
pub use pool::max_pool2d;
pub use residual::add_relu;
pub use rms_norm::rms_norm;
pub use rotary::rotary;
pub use swiglu::swiglu;

use burn::backend::{Autodiff, BackendTypes, Flex};
use burn::tensor::{Shape, Tensor, TensorData};
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use ddp::buffers::{buffer, recycle};

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

/// The dimensions of a tensor.
fn dims(tensor: &Flat) -> Shape {
    Shape::from(tensor.layout().shape().to_vec())
}

/// A tensor without autodiff as its contiguous primitive.
fn plain<const D: usize>(tensor: Tensor<D>) -> Flat {
    tensor.try_into_primitive::<Flex>().expect("the caller looked").to_contiguous()
}

/// A tensor with autodiff as its contiguous primitive and the guard of its node.
fn tracked<const D: usize>(tensor: Tensor<D>) -> (Flat, NodeGuard) {
    let tensor = tensor.try_into_primitive::<Ad>().expect("the caller looked");
    let (primitive, node) = tensor.into_parts();
    (primitive.to_contiguous(), node)
}

/// Registers `out` as the result of `step`, whose backward pass gets `state`.
fn record<const N: usize, const D: usize, S>(
    step: impl Backward<Flex, N, State = S>,
    nodes: [NodeGuard; N],
    state: S,
    out: Flat,
) -> Tensor<D>
where
    S: Clone + Send + std::fmt::Debug + 'static,
{
    let prepared = step.prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    Tensor::from_primitive::<Ad>(match prepared {
        OpsKind::Tracked(prep) => prep.finish(state, out),
        OpsKind::UnTracked(prep) => prep.finish(out),
    })
}

/// Registers the gradient of each parent that requires one.
fn register<const N: usize, S>(grads: &mut Gradients, ops: &Ops<S, N>, gradients: [Flat; N]) {
    for (parent, gradient) in ops.parents.iter().zip(gradients) {
        if let Some(node) = parent {
            grads.register::<Flex>(node.id, gradient);
        }
    }
}
