//! State of an optimizer between steps, in host memory or on a device.

use base::error::Result;
use burn::tensor::{Device, Tensor, TensorData};
use ddp::device::read;

/// One array per parameter and slot, `[parameter][slot]`; empty for what is not trained.
pub enum OptimizerState {
    Host(Vec<Vec<Vec<f32>>>),
    /// Flat tensors.
    Device(Vec<Vec<Tensor<1>>>, Device),
}

impl OptimizerState {
    /// Arrays of zeros with the given lengths per parameter. Without a `device` they are in host memory.
    pub(super) fn zeros(lengths: impl Iterator<Item = Vec<usize>>, device: Option<Device>) -> Self {
        match device {
            None => Self::Host(lengths.map(|l| l.into_iter().map(|n| vec![0.0; n]).collect()).collect()),
            Some(device) => {
                let zeros = |l: Vec<usize>| l.into_iter().map(|n| Tensor::zeros([n], &device)).collect();
                Self::Device(lengths.map(zeros).collect(), device)
            }
        }
    }

    /// Elements of array `slot` of parameter `index`.
    pub fn len(&self, index: usize, slot: usize) -> usize {
        match self {
            Self::Host(all) => all[index][slot].len(),
            Self::Device(all, _) => all[index][slot].dims()[0],
        }
    }

    /// Calls `see` with the values of array `slot` of parameter `index`.
    pub fn read<T>(&self, index: usize, slot: usize, see: impl FnOnce(&[f32]) -> T) -> Result<T> {
        match self {
            Self::Host(all) => Ok(see(&all[index][slot])),
            Self::Device(all, _) => Ok(see(&values(all[index][slot].clone())?)),
        }
    }

    /// Calls `change` with the values of each array of a parameter, to overwrite.
    pub fn edit(
        &mut self,
        index: usize,
        mut change: impl FnMut(usize, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Host(all) => {
                all[index].iter_mut().enumerate().try_for_each(|(slot, array)| change(slot, array))
            }
            Self::Device(all, device) => {
                for (slot, tensor) in all[index].iter_mut().enumerate() {
                    let mut values = values(tensor.clone())?;
                    change(slot, &mut values)?;
                    let len = values.len();
                    *tensor = Tensor::from_data(TensorData::new(values, [len]), &*device);
                }
                Ok(())
            }
        }
    }

    /// A parameter's arrays in host memory.
    ///
    /// # Panics
    /// If the state is on a device.
    pub(super) fn slices(&mut self, index: usize) -> Vec<&mut [f32]> {
        match self {
            Self::Host(all) => all[index].iter_mut().map(Vec::as_mut_slice).collect(),
            Self::Device(..) => panic!("the model is on a device"),
        }
    }

    /// A parameter's arrays on a device.
    ///
    /// # Panics
    /// If the state is in host memory.
    pub(super) fn tensors(&mut self, index: usize) -> &mut [Tensor<1>] {
        match self {
            Self::Device(all, _) => &mut all[index],
            Self::Host(_) => panic!("the model is in host memory"),
        }
    }
}

/// A copy of a device tensor's values.
fn values(tensor: Tensor<1>) -> Result<Vec<f32>> {
    match tensor.dims() {
        [0] => Ok(Vec::new()),
        _ => read(tensor),
    }
}
