//! The operations on images together: the memory that they use again never shows in a result.

use super::testing::{Results, bits, held_activations_keep_their_values, leaves, pass, poison};
use super::{add_relu, batch_norm_train, conv2d, max_pool2d};
use burn::tensor::Tensor;

const BATCH: usize = 8;
const CHANNELS: usize = 16;
const SIDE: usize = 8;
/// Elements of an image batch, before and after pooling.
const LARGE: usize = BATCH * CHANNELS * SIDE * SIDE;
const SMALL: usize = LARGE / 4;
const WEIGHT: usize = CHANNELS * CHANNELS * 3 * 3;

/// The activations of a network with a pooling layer and a residual block: `x`, a convolution's weight, and the channels' bias.
fn activations(given: &[Tensor<1>]) -> [Tensor<4>; 4] {
    let [x, w, b] = given else { unreachable!() };
    let w = w.clone().reshape([CHANNELS, CHANNELS, 3, 3]);
    let normed = |x| batch_norm_train(x, b.clone(), b.clone(), 1e-5, true).0;
    let x = x.clone().reshape([BATCH, CHANNELS, SIDE, SIDE]);
    let first = normed(conv2d(x, w.clone(), Some(b.clone()), 1, 1));
    let pooled = max_pool2d(first.clone(), 2, 2, 0);
    let inner = normed(conv2d(pooled.clone(), w.clone(), None, 1, 1));
    let out = add_relu(conv2d(inner.clone(), w, None, 1, 1), pooled.clone());
    [first, pooled, inner, out]
}

/// The last of [`activations`].
pub(super) fn block(given: &[Tensor<1>]) -> Tensor<4> {
    let [.., out] = activations(given);
    out
}

/// Inputs of [`block`].
pub(super) fn inputs() -> [Tensor<1>; 3] {
    leaves([LARGE, WEIGHT, CHANNELS])
}

fn all_bits(results: &Results) -> Vec<Vec<u32>> {
    results.iter().flatten().map(|values| bits(values)).collect()
}

/// With an empty pool, with NaN in it, and with what other passes left there.
#[test]
fn a_pass_gives_the_same_bits_with_any_memory() {
    let first = std::thread::spawn(|| all_bits(&pass(&inputs(), block))).join().unwrap();
    assert_eq!(first.len(), 4);
    assert!(first.iter().flatten().all(|bits| f32::from_bits(*bits).is_finite()));
    for len in [LARGE, SMALL, WEIGHT] {
        poison(len);
    }
    for number in 1..=3 {
        assert!(all_bits(&pass(&inputs(), block)) == first, "pass {number}");
    }
}

#[test]
fn activations_that_somebody_holds_keep_their_values() {
    let [x, w, b] = inputs();
    held_activations_keep_their_values(x, |x| {
        activations(&[x, w.clone(), b.clone()]).map(|t| {
            let len = t.shape().num_elements();
            t.reshape([len])
        })
    });
}
