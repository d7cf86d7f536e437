//! Tensors with autodiff, and gradients, on either backend, for code below Burn's `Tensor`, which has no type parameter
//! for its backend.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Autodiff, Backend, BackendTypes, Flex};
use burn::tensor::Tensor;

#[cfg(feature = "cubecl-devices")]
use burn::backend::Cube;

type Primitive<B> = <B as BackendTypes>::FloatTensorPrimitive;

/// A float tensor of any rank with its node in the graph.
pub enum Tracked {
    /// A tensor in host memory.
    Host(Primitive<Autodiff<Flex>>),
    /// A tensor on a device with its own memory.
    #[cfg(feature = "cubecl-devices")]
    Device(Primitive<Autodiff<Cube>>),
}

impl Tracked {
    /// # Panics
    /// If the tensor's device has no autodiff; models train on one that has.
    pub fn from_tensor<const D: usize>(tensor: Tensor<D>) -> Self {
        #[cfg(feature = "cubecl-devices")]
        if !super::is_host(&tensor.device()) {
            return Tracked::Device(tensor.try_into_primitive::<Autodiff<Cube>>().expect(NO_AUTODIFF));
        }
        Tracked::Host(tensor.try_into_primitive::<Autodiff<Flex>>().expect(NO_AUTODIFF))
    }

    /// `D` must be the original rank.
    pub fn into_tensor<const D: usize>(self) -> Tensor<D> {
        match self {
            Tracked::Host(primitive) => Tensor::from_primitive::<Autodiff<Flex>>(primitive),
            #[cfg(feature = "cubecl-devices")]
            Tracked::Device(primitive) => Tensor::from_primitive::<Autodiff<Cube>>(primitive),
        }
    }
}

const NO_AUTODIFF: &str = "a model's tensors live on a device with autodiff";

/// A parameter's finished gradient.
pub enum Gradient {
    /// With the parameter's shape and any strides.
    Host(Primitive<Flex>),
    /// Flat.
    Device(Tensor<1>),
}

impl Gradient {
    /// Multiplied by a number.
    pub fn times(self, factor: f32) -> Self {
        match self {
            Gradient::Host(gradient) => Gradient::Host(Flex::float_mul_scalar(gradient, factor.into())),
            Gradient::Device(gradient) => Gradient::Device(gradient * factor),
        }
    }
}

/// A backend whose gradients can be identified.
pub(crate) trait Differentiable: Backend {
    fn gradient(primitive: Self::FloatTensorPrimitive) -> Gradient;
}

impl Differentiable for Flex {
    fn gradient(primitive: Primitive<Flex>) -> Gradient {
        Gradient::Host(primitive)
    }
}

#[cfg(feature = "cubecl-devices")]
impl Differentiable for Cube {
    fn gradient(primitive: Primitive<Cube>) -> Gradient {
        use burn::backend::TensorMetadata;
        let flat = [primitive.shape().num_elements()];
        Gradient::Device(Tensor::from_primitive::<Cube>(Cube::float_reshape(primitive, flat.into())))
    }
}
