//! A batch on the device. The network requests it with the tensor rank that it expects; a panic here is at the place of the request.

use crate::device_transform::DeviceBytes;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use data::{FieldData, HostField};
use ddp::module::in_dtype;

/// The inputs of one batch.
#[derive(Clone, Debug)]
pub struct Input {
    shape: Vec<usize>,
    data: Field,
}

/// The targets of one batch.
pub type Target = Input;

#[derive(Clone, Debug)]
enum Field {
    Float(Tensor<1>),
    Index(Tensor<1, Int>),
}

impl Input {
    /// Copies `len` samples of a host field to `device`.
    pub fn from_host(field: &HostField, len: usize, device: &Device) -> Self {
        let mut shape = vec![len];
        shape.extend_from_slice(&field.shape);
        let count: usize = shape.iter().product();
        let data = match &field.data {
            FieldData::Float(v) => {
                Field::Float(Tensor::from_data(TensorData::new(v[..count].to_vec(), [count]), device))
            }
            FieldData::Index(v) => {
                Field::Index(Tensor::from_data(TensorData::new(v[..count].to_vec(), [count]), device))
            }
            FieldData::Bytes(v) => Field::Float(DeviceBytes::send(&v[..count], device).into_floats()),
        };
        Self { shape, data }
    }

    /// The type of the values.
    pub fn dtype(&self) -> DType {
        match &self.data {
            Field::Float(t) => t.dtype(),
            Field::Index(t) => t.dtype(),
        }
    }

    /// The same batch with its float values in `dtype`.
    pub fn cast(self, dtype: DType) -> Self {
        match self.data {
            Field::Float(t) => Self { data: Field::Float(in_dtype(t, dtype)), ..self },
            Field::Index(_) => self,
        }
    }

    /// A batch that is already on its device; the first dimension is the batch.
    pub fn from_tensor<const D: usize>(tensor: Tensor<D>) -> Self {
        Self { shape: tensor.dims().to_vec(), data: Field::Float(tensor.flatten(0, D - 1)) }
    }

    /// `[batch, …]`.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values as a tensor of rank `D`.
    ///
    /// # Panics
    /// If the data set returns indices, or samples of another rank: the model does not fit the data set.
    #[track_caller]
    pub fn float<const D: usize>(self) -> Tensor<D> {
        let dims = self.dims::<D>();
        match self.data {
            Field::Float(t) => t.reshape(dims),
            Field::Index(_) => panic!("the model expects float inputs, but the data set has indices"),
        }
    }

    /// The indices (tokens, labels) as a tensor of rank `D`.
    ///
    /// # Panics
    /// If the data set returns floats, or samples of another rank.
    #[track_caller]
    pub fn index<const D: usize>(self) -> Tensor<D, Int> {
        let dims = self.dims::<D>();
        match self.data {
            Field::Index(t) => t.reshape(dims),
            Field::Float(_) => panic!("the model expects indices, but the data set has float inputs"),
        }
    }

    /// The values as `[batch, features]`, each sample flattened.
    #[track_caller]
    pub fn rows(self) -> Tensor<2> {
        let shape = vec![self.shape[0], self.shape[1..].iter().product()];
        Self { shape, ..self }.float()
    }

    /// The same values without the graph behind them.
    pub fn without_autodiff(self) -> Self {
        let data = match self.data {
            Field::Float(t) => Field::Float(t.inner()),
            Field::Index(t) => Field::Index(t.inner()),
        };
        Self { data, ..self }
    }

    /// All indices, flattened: labels of `[batch]` or `[batch, time]` targets.
    #[track_caller]
    pub fn flat_index(self) -> Tensor<1, Int> {
        match self.data {
            Field::Index(t) => t,
            Field::Float(_) => panic!("the loss requires class indices, but the data set has float targets"),
        }
    }

    /// Whether the field holds indices.
    pub fn is_index(&self) -> bool {
        matches!(self.data, Field::Index(_))
    }

    #[track_caller]
    fn dims<const D: usize>(&self) -> [usize; D] {
        // No closure: the message is about the place of the caller.
        match self.shape.clone().try_into() {
            Ok(dims) => dims,
            Err(shape) => {
                panic!(
                    "the model expects inputs of rank {D}, but batches of the data set have shape {shape:?}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::panics::catch_model_panic;

    #[test]
    fn what_does_not_fit_is_told_at_the_place_of_the_request() {
        let input = || Input::from_tensor(Tensor::<2>::zeros([3, 2], &Device::flex()));
        let asked: [(u32, fn(Input)); 4] = [
            (line!(), |input| drop(input.float::<3>())),
            (line!(), |input| drop(input.index::<2>())),
            (line!(), |input| drop(input.flat_index())),
            (line!(), |input| drop(Input { shape: vec![7], ..input }.float::<2>())),
        ];
        for (line, ask) in asked {
            let why = catch_model_panic(|| ask(input())).unwrap_err();
            assert!(why.contains(&format!(" (at {}:{line}:", file!())), "{why}");
        }
        let why = catch_model_panic(|| input().float::<4>()).unwrap_err();
        let expected = "the model expects inputs of rank 4, but batches of the data set have shape [3, 2]";
        assert!(why.starts_with(expected), "{why}");
    }
}
