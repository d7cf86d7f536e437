//! Modules that two and more ranks train, as threads of one process.

mod checks;
mod gradients;
mod replicas;
mod resume;

use crate::device::drawn;
use crate::{DdpOptions, DistributedDataParallel};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_optim::GradientsParams;
use collectives::ProcessGroup;
use std::sync::Arc;

#[derive(Module, Debug)]
struct Net {
    inner: Linear,
    norm: Option<BatchNorm>,
    outer: Linear,
    /// Not used by forward passes unless a test says so.
    spare: Linear,
}

impl Net {
    fn new(seed: u64, hidden: usize, norm: bool) -> Self {
        let device = Device::flex().autodiff();
        drawn(&device, seed, || {
            let net = Self {
                inner: LinearConfig::new(3, hidden).init(&device),
                norm: norm.then(|| BatchNormConfig::new(hidden).init(&device)),
                outer: LinearConfig::new(hidden, 2).init(&device),
                spare: LinearConfig::new(3, 2).init(&device),
            };
            crate::module::draw_lazy(&net);
            net
        })
    }

    fn loss(&self, batch: Tensor<2>) -> Tensor<1> {
        let hidden = self.inner.forward(batch);
        let hidden = match &self.norm {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        };
        self.outer.forward(hidden.tanh()).powi_scalar(2).mean()
    }
}

/// Four samples, others in each rank and step.
fn batch(rank: usize, step: usize) -> Tensor<2> {
    let values = (0..12).map(|i| ((rank * 97 + step * 31 + i * 7) % 23) as f32 / 11.0 - 1.0);
    Tensor::from_data(TensorData::new(values.collect(), [4, 3]), &Device::flex().autodiff())
}

/// Many small buckets, so that several are under way.
fn small_buckets() -> DdpOptions {
    let bytes = 24.0 / (1024.0 * 1024.0);
    DdpOptions { bucket_cap_mb: bytes, first_bucket_mb: bytes, ..Default::default() }
}

fn parallel<M: Module>(module: M, group: Arc<dyn ProcessGroup>) -> DistributedDataParallel<M> {
    DistributedDataParallel::new(module, group, small_buckets()).unwrap()
}

/// Reads the tensors of a module, or their gradients.
struct Reader<'a> {
    gradients: Option<&'a GradientsParams>,
    read: Vec<Vec<f32>>,
}

impl ModuleVisitor for Reader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = match self.gradients {
            Some(gradients) => gradients.get::<D>(param.id),
            None => Some(param.val().inner()),
        };
        self.read.extend(tensor.map(|tensor| tensor.into_data().try_into_vec::<f32>().unwrap()));
    }
}

/// The values of all float tensors.
fn values(module: &impl Module) -> Vec<Vec<f32>> {
    let mut reader = Reader { gradients: None, read: Vec::new() };
    module.visit(&mut reader);
    reader.read
}

/// The gradients in the order of the module's parameters.
fn gradients(module: &impl Module, gradients: &GradientsParams) -> Vec<Vec<f32>> {
    let mut reader = Reader { gradients: Some(gradients), read: Vec::new() };
    module.visit(&mut reader);
    reader.read
}

/// Burn's gradients of a loss, without data parallelism. Parameters without one are left out.
fn alone(net: &Net, loss: impl FnOnce(&Net) -> Tensor<1>) -> Vec<Vec<f32>> {
    gradients(net, &GradientsParams::from_grads(loss(net).backward(), net))
}

fn combined(a: &[Vec<f32>], b: &[Vec<f32>], by: impl Fn(f32, f32) -> f32) -> Vec<Vec<f32>> {
    let one = |(a, b): (&Vec<f32>, &Vec<f32>)| a.iter().zip(b).map(|(a, b)| by(*a, *b)).collect();
    a.iter().zip(b).map(one).collect()
}

fn mean(a: &[Vec<f32>], b: &[Vec<f32>]) -> Vec<Vec<f32>> {
    combined(a, b, |a, b| (a + b) / 2.0)
}

/// Of the four tensors that forward passes use; `spare` has zeros.
fn with_zeros_of_spare(mut used: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    used.extend([vec![0.0; 6], vec![0.0; 2]]);
    used
}
