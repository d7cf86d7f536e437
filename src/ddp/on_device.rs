//! Gradients in a device's memory: they stay there, but for their way through the process group where that works in host memory.

use super::buckets::BucketLayout;
use crate::device::Readback;
use crate::error::Result;
use burn::tensor::{Device, Tensor, TensorData};

/// One model's gradients, each flat.
#[derive(Debug)]
pub(super) struct DeviceGradients {
    device: Device,
    /// By parameter; `None` until there is one in this step.
    values: Vec<Option<Tensor<1>>>,
    /// Parameters of each bucket, in the order in which they lie there, with their lengths.
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

    /// Forgets the last step's.
    pub fn clear(&mut self) {
        self.values.fill(None);
    }

    /// Adds to what has come of this parameter in this step.
    pub fn add(&mut self, parameter: usize, gradient: Tensor<1>) {
        let sum = match self.values[parameter].take() {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.values[parameter] = Some(sum);
    }

    /// A bucket's gradients one behind the other, those that did not come as zeros.
    pub fn flatten(&mut self, bucket: usize) -> Tensor<1> {
        let one = |(parameter, len): &(usize, usize)| {
            self.values[*parameter].take().unwrap_or_else(|| Tensor::zeros([*len], &self.device))
        };
        Tensor::cat(self.members[bucket].iter().map(one).collect(), 0)
    }

    /// As [`DeviceGradients::flatten`], on its way to the host.
    pub fn download(&mut self, bucket: usize) -> Result<Readback> {
        Readback::start(self.flatten(bucket))
    }

    /// Takes a whole bucket back, averaged.
    pub fn put(&mut self, bucket: usize, flat: Tensor<1>) {
        let mut start = 0;
        for &(parameter, len) in &self.members[bucket] {
            self.values[parameter] = Some(flat.clone().narrow(0, start, len));
            start += len;
        }
    }

    /// As [`DeviceGradients::put`], from the host.
    pub fn upload(&mut self, bucket: usize, values: Vec<f32>) {
        let len = values.len();
        self.put(bucket, Tensor::from_data(TensorData::new(values, [len]), &self.device));
    }

    /// Every parameter's gradient; zeros where none came. `None` for what has no gradient.
    pub fn take(&mut self) -> Vec<Option<Tensor<1>>> {
        let none = vec![None; self.values.len()];
        let mut all = std::mem::replace(&mut self.values, none);
        for &(parameter, len) in self.members.iter().flatten() {
            all[parameter].get_or_insert_with(|| Tensor::zeros([len], &self.device));
        }
        all
    }
}
