//! Dropout.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::nn::Dropout;
use burn::tensor::{Distribution, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::dropout::{Mask, apply};

/// `torch.nn.functional.dropout`: in training, elements become 0 with the layer's probability, and the others are divided
/// by that of being kept. The device's random stream gives a key, from which the mask follows.
pub fn dropout<const D: usize>(x: Tensor<D>, layer: &Dropout) -> Tensor<D> {
    let device = x.device();
    if layer.prob == 0.0 || !device.is_autodiff() {
        return x;
    }
    if !is_host(&device) {
        return layer.forward(x);
    }
    let (x, node) = super::tracked(x);
    let mask = Mask { key: key(&device), probability: layer.prob };
    let out = masked(mask, x);
    record(DropoutStep, [node], mask, out)
}

fn key(device: &burn::tensor::Device) -> [u32; 2] {
    let drawn = Tensor::<1>::random([2], Distribution::Default, device).inner();
    let drawn = drawn.into_data().try_into_vec::<f32>().expect("two floats");
    // A float in [0, 1) has 24 random bits.
    [0, 1].map(|i| (drawn[i] * (1u32 << 24) as f32) as u32)
}

fn masked(mask: Mask, x: Flat) -> Flat {
    let mut out = buffer(values(&x).len());
    apply(mask, values(&x), &mut out, threads());
    let out = tensor(out, dims(&x));
    recycle(x);
    out
}

#[derive(Debug)]
struct DropoutStep;

impl Backward<Flex, 1> for DropoutStep {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        register(grads, &ops, [masked(ops.state, dy)]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, device, leaves, pass, read};
    use super::*;
    use burn::nn::DropoutConfig;
    use ddp::device::drawn;

    fn layer(probability: f64) -> Dropout {
        DropoutConfig::new(probability).init()
    }

    #[test]
    fn the_gradient_has_the_mask_of_the_result() {
        let [x] = leaves([5 * 1000]);
        let results = drawn(&device(), 1, || {
            pass(std::slice::from_ref(&x), |given| dropout(given[0].clone(), &layer(0.25)))
        });
        let ones = drawn(&device(), 1, || {
            pass(std::slice::from_ref(&x), |given| dropout(given[0].clone() * 0.0 + 1.0, &layer(0.25)))
        });
        let (out, dx) = (results[0].as_ref().unwrap(), results[1].as_ref().unwrap());
        let (factors, x) = (ones[0].as_ref().unwrap(), read(x.inner()));
        // `pass` weighs the result's elements.
        let weights = read(testing::random([5 * 1000], 99));
        for (i, factor) in factors.iter().enumerate() {
            assert_eq!((out[i], dx[i]), (x[i] * factor, weights[i] * factor), "element {i}");
        }
        let kept = factors.iter().filter(|f| **f == 4.0 / 3.0).count();
        let dropped = factors.iter().filter(|f| **f == 0.0).count();
        assert!(kept + dropped == 5000 && (1100..1400).contains(&dropped), "{kept} kept, {dropped} dropped");
    }

    #[test]
    fn masks_follow_the_seed() {
        let given = leaves([3000]);
        let run = |seed| {
            drawn(&device(), seed, || [(); 3].map(|()| pass(&given, |g| dropout(g[0].clone(), &layer(0.5)))))
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn evaluation_drops_nothing() {
        let [x] = leaves([3000]);
        let x = x.inner();
        assert_eq!(read(dropout(x.clone(), &layer(0.5))), read(x));
    }

    #[test]
    fn held_activations_keep_their_values() {
        let [x] = leaves([4000]);
        // It draws, from the stream that other tests' models draw from.
        drawn(&device(), 1, || {
            testing::held_activations_keep_their_values(x, |x| [x.clone(), dropout(x, &layer(0.5))]);
        });
    }
}
