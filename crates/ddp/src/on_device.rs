//! Gradients in device memory. They stay there, except where the process group works in host memory.

use super::buckets::BucketLayout;
use crate::device::Readback;
use base::error::Result;
use burn::tensor::{Device, Tensor, TensorData};

/// One model's gradients, as flat tensors.
#[derive(Debug)]
pub(super) struct DeviceGradients {
    device: Device,
    /// By parameter; `None` until one arrives in this step.
    values: Vec<Option<Tensor<1>>>,
    /// Parameters of each bucket with their lengths, in packing order.
    members: Vec<Vec<(usize, usize)>>,
}

impl DeviceGradients {
    pub fn new(device: Device, layout: &BucketLayout) -> Self {
        let mut members = vec![Vec::new(); layout.buckets.len()];
        for parameter in layout.order() {
            if let Some(slot) = layout.slots[parameter] {
                members[slot.bucket].push((parameter, slot.len));
            }
        }
        Self { device, values: vec![None; layout.slots.len()], members }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Discards the previous step's gradients.
    pub fn clear(&mut self) {
        self.values.fill(None);
    }

    /// Adds to this step's gradient of a parameter.
    pub fn add(&mut self, parameter: usize, gradient: Tensor<1>) {
        let sum = match self.values[parameter].take() {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.values[parameter] = Some(sum);
    }

    /// Concatenates a bucket's gradients, with zeros for missing ones.
    pub fn flatten(&mut self, bucket: usize) -> Tensor<1> {
        let one = |(parameter, len): &(usize, usize)| {
            self.values[*parameter].take().unwrap_or_else(|| Tensor::zeros([*len], &self.device))
        };
        Tensor::cat(self.members[bucket].iter().map(one).collect(), 0)
    }

    /// As [`DeviceGradients::flatten`], with a copy to the host started.
    pub fn download(&mut self, bucket: usize) -> Result<Readback> {
        Readback::start(self.flatten(bucket))
    }

    /// Stores a complete bucket after averaging.
    pub fn put(&mut self, bucket: usize, flat: Tensor<1>) {
        let mut start = 0;
        for &(parameter, len) in &self.members[bucket] {
            self.values[parameter] = Some(flat.clone().narrow(0, start, len));
            start += len;
        }
    }

    /// As [`DeviceGradients::put`], from host memory.
    pub fn upload(&mut self, bucket: usize, values: Vec<f32>) {
        let len = values.len();
        self.put(bucket, Tensor::from_data(TensorData::new(values, [len]), &self.device));
    }

    /// Takes every parameter's gradient, zeros if none arrived. `None` for tensors without gradients.
    pub fn take(&mut self) -> Vec<Option<Tensor<1>>> {
        let none = vec![None; self.values.len()];
        let mut all = std::mem::replace(&mut self.values, none);
        for &(parameter, len) in self.members.iter().flatten() {
            all[parameter].get_or_insert_with(|| Tensor::zeros([len], &self.device));
        }
        all
    }
}
