//! A batch on the device. The network requests it with the tensor rank that it expects; a panic here is at the place of the request.

use super::Documents;
use crate::device_transform::DeviceBytes;
use base::error::{Error, Result};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use data::{FieldData, HostField, UNTRAINED};
use ddp::module::in_dtype;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The inputs of one batch.
#[derive(Clone, Debug)]
pub struct Input {
    shape: Vec<usize>,
    data: Field,
    documents: Option<Documents>,
    trained: Option<Arc<TrainedRows>>,
}

/// The targets of one batch.
pub type Target = Input;

/// The targets of a batch that are trained, where others are [`UNTRAINED`].
#[derive(Debug)]
pub struct TrainedRows {
    used: AtomicBool,
    /// Their places in the flattened targets.
    rows: Vec<i64>,
    /// The targets there.
    pub labels: FieldData,
}

impl TrainedRows {
    /// Number of trained targets.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Of `[rows, outputs]` those rows whose targets are trained. Without any it is the first row, so that a backward pass reaches all
    /// parameters; its loss has no weight.
    pub(crate) fn select(&self, outputs: Tensor<2>) -> Tensor<2> {
        if self.rows.len() == outputs.dims()[0] {
            return outputs;
        }
        let rows = if self.rows.is_empty() { &[0][..] } else { &self.rows };
        let device = outputs.device();
        outputs.select(0, Tensor::from_data(TensorData::new(rows.to_vec(), [rows.len()]), &device))
    }

    /// The targets of [`Self::select`]'s rows, `[rows]`.
    pub(crate) fn target(&self, device: &Device) -> Target {
        let none = FieldData::Index(vec![0]);
        let data = if self.rows.is_empty() { &none } else { &self.labels };
        let field = HostField { shape: Vec::new(), data: data.clone() };
        Target::from_host(&field, self.rows.len().max(1), device)
    }
}

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
        Self { shape, data, documents: None, trained: None }
    }

    /// The same input, whose tokens have these positions in their documents ([`data::POSITIONS`]).
    ///
    /// # Errors
    /// They do not fit.
    #[doc(hidden)]
    pub fn with_positions(self, positions: &HostField) -> Result<Self> {
        let (FieldData::Index(values), [_, time]) = (&positions.data, &self.shape[..]) else {
            return Err(Error::spec(
                "the field `positions` requires indices, and samples of one sequence each",
            )
            .hint("it is for the places of tokens in their documents; another field has another name"));
        };
        if positions.shape[..] != [*time] {
            let (found, expected) = (&positions.shape, &self.shape[1..]);
            return Err(Error::spec(format!(
                "the field `positions` has shape {found:?}, the input {expected:?}"
            )));
        }
        let count = self.shape.iter().product::<usize>();
        Ok(Self { documents: Some(Documents::new(&values[..count], *time)?), ..self })
    }

    /// The documents that the sequences consist of, if they are several. A model that has them keeps them apart: its tokens have
    /// positions within their document, and see no other.
    pub fn documents(&self) -> Option<Documents> {
        self.documents.iter().for_each(Documents::mark_used);
        self.documents.clone()
    }

    /// The same without marking them as used.
    #[doc(hidden)]
    pub fn given_documents(&self) -> Option<Documents> {
        self.documents.clone()
    }

    /// The same targets, of which those of `field`, their source, that are [`UNTRAINED`] are left out.
    #[doc(hidden)]
    pub fn with_untrained(self, field: &HostField) -> Self {
        let FieldData::Index(labels) = &field.data else { return self };
        let labels = &labels[..self.shape.iter().product()];
        let trained = || (0..).zip(labels).filter(|(_, label)| **label != UNTRAINED);
        let rows = trained().map(|(row, _)| row).collect();
        let labels = FieldData::Index(trained().map(|(_, label)| *label).collect());
        let used = AtomicBool::new(false);
        Self { trained: Some(Arc::new(TrainedRows { used, rows, labels })), ..self }
    }

    /// Which targets are trained, if some may be [`UNTRAINED`]: those are among [`Self::flat_index`]'s values then.
    pub fn trained(&self) -> Option<&TrainedRows> {
        let trained = self.trained.as_deref()?;
        trained.used.store(true, Relaxed);
        Some(trained)
    }

    /// Checks that a task has asked which targets are trained, if not all are.
    ///
    /// # Errors
    /// It has not (exit 78).
    #[doc(hidden)]
    pub fn require_trained(&self) -> Result<()> {
        match &self.trained {
            Some(trained) if !trained.used.load(Relaxed) => Err(Error::spec(
                "some targets are not trained, and the task does not ask which (`Target::trained`)",
            )
            .hint("it would take -100 for a class; the tasks of ddp-run leave such targets out")),
            _ => Ok(()),
        }
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
        let (shape, data) = (tensor.dims().to_vec(), Field::Float(tensor.flatten(0, D - 1)));
        Self { shape, data, documents: None, trained: None }
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

    /// Where the values are.
    pub(crate) fn device(&self) -> Device {
        match &self.data {
            Field::Float(t) => t.device(),
            Field::Index(t) => t.device(),
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
