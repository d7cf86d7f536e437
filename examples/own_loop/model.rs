//! The model and the data of both programs.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};

/// Predicts the height of a wave at a point.
#[derive(Module, Debug)]
pub struct Waves {
    inner: Linear,
    outer: Linear,
}

impl Waves {
    pub fn new(device: &Device) -> Self {
        Self { inner: LinearConfig::new(2, 32).init(device), outer: LinearConfig::new(32, 1).init(device) }
    }

    pub fn forward(&self, points: Tensor<2>) -> Tensor<2> {
        self.outer.forward(self.inner.forward(points).tanh())
    }
}

/// A point of the plane, and the height of the wave there.
#[derive(Clone, Debug)]
pub struct Sample {
    at: [f32; 2],
    height: f32,
}

/// `count` samples, by Kronecker's sequence.
pub fn samples(count: usize) -> Vec<Sample> {
    let at = |i: usize, step: f64| ((i as f64 * step).fract() * 2.0 - 1.0) as f32;
    let sample = |i| {
        let at = [at(i, 0.754_877_666_2), at(i, 0.569_840_290_9)];
        Sample { at, height: at[0] * at[1] + 0.25 * at[0] }
    };
    (0..count).map(sample).collect()
}

#[derive(Clone, Debug)]
pub struct SampleBatch {
    /// `[batch, 2]`
    pub points: Tensor<2>,
    /// `[batch, 1]`
    pub heights: Tensor<2>,
}

pub struct SampleBatcher;

impl Batcher<Sample, SampleBatch> for SampleBatcher {
    fn batch(&self, items: Vec<Sample>, device: &Device) -> SampleBatch {
        let points: Vec<f32> = items.iter().flat_map(|item| item.at).collect();
        let heights: Vec<f32> = items.iter().map(|item| item.height).collect();
        SampleBatch {
            points: Tensor::from_data(TensorData::new(points, [items.len(), 2]), device),
            heights: Tensor::from_data(TensorData::new(heights, [items.len(), 1]), device),
        }
    }
}
