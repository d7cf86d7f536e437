//! Attention compared with Burn's own operations.

use super::super::testing::{self, bits, device, equal, leaves, pass, read};
use super::*;
use burn::nn::DropoutConfig;
use ddp::device::drawn;

/// Scores are products of at most 33 values below 1, and each output a mean of values below 1. Gradients are sums of at
/// most 130 such terms: about sqrt(130) * 8 * 2^-25 = 3e-6 between two orders of summation.
const TOLERANCE: f32 = 1e-5;

fn dropout(probability: f64) -> Dropout {
    DropoutConfig::new(probability).init()
}

fn mask(sees: Sees) -> Mask {
    Mask::new(sees)
}

fn own(qkv: Tensor<2>, batch: usize, heads: usize) -> Tensor<2> {
    attention(qkv, batch, Heads::equal(heads), &dropout(0.0), &mask(Sees::Past))
}

fn reference(qkv: Tensor<2>, batch: usize, heads: usize) -> Tensor<2> {
    composed(qkv, batch, Heads::equal(heads), &dropout(0.0), &mask(Sees::Past))
}

/// Batch, time, heads of queries and of keys, and width of a head.
const SIZES: [[usize; 5]; 8] = [
    [1, 1, 1, 1, 1],
    [1, 130, 1, 1, 9],
    [7, 9, 3, 3, 1],
    [3, 65, 2, 2, 9],
    [2, 64, 1, 1, 33],
    [1, 7, 9, 3, 33],
    [130, 1, 1, 1, 9],
    [2, 130, 4, 2, 5],
];

#[test]
fn values_and_gradients_equal_burns() {
    for [batch, time, queries, keys, head] in SIZES {
        let heads = Heads { queries, keys };
        let (rows, width) = (batch * time, (queries + 2 * keys) * head);
        let of = |given: &[Tensor<1>]| given[0].clone().reshape([rows, width]);
        for sees in [Sees::Past, Sees::All, Sees::Window(1), Sees::Window(5), Sees::Window(200)] {
            equal(
                &format!("{batch} x {time}, {heads:?} of {head}, {sees:?}"),
                &leaves([rows * width]),
                TOLERANCE,
                |g| attention(of(g), batch, heads, &dropout(0.0), &mask(sees)),
                |g| composed(of(g), batch, heads, &dropout(0.0), &mask(sees)),
            );
        }
    }
}

/// Sequences of documents, some of one token.
fn documents(batch: usize, time: usize) -> Documents {
    let lengths = [3, 1, 64, 2, 75, 5].iter().cycle();
    let sequence = |b: usize| lengths.clone().skip(b).flat_map(|length| 0..*length).take(time);
    Documents::new(&(0..batch).flat_map(sequence).collect::<Vec<i64>>(), time).unwrap()
}

#[test]
fn documents_are_apart_as_with_a_mask() {
    for [batch, time, queries, keys, head] in SIZES {
        let heads = Heads { queries, keys };
        let (rows, width) = (batch * time, (queries + 2 * keys) * head);
        let of = |given: &[Tensor<1>]| given[0].clone().reshape([rows, width]);
        for sees in [Sees::Past, Sees::Window(5)] {
            let mask = || Mask::new(sees).within(Some(&documents(batch, time)));
            equal(
                &format!("{batch} x {time}, {heads:?} of {head}, {sees:?}"),
                &leaves([rows * width]),
                TOLERANCE,
                |g| attention(of(g), batch, heads, &dropout(0.0), &mask()),
                |g| composed(of(g), batch, heads, &dropout(0.0), &mask()),
            );
        }
    }
}

/// Each token sees what the definition says, whether queries are the last ones of a sequence or all.
#[test]
fn masks_hide_later_tokens_and_those_before_the_window() {
    for sees in [Sees::All, Sees::Past, Sees::Window(1), Sees::Window(3), Sees::Window(7)] {
        for (queries, keys) in [(5, 5), (2, 5), (1, 5), (1, 1)] {
            let scores = mask(sees).apply(Tensor::<2>::zeros([queries, keys], &Device::flex()));
            for (i, score) in read(scores).into_iter().enumerate() {
                let (t, s) = (i / keys + keys - queries, i % keys);
                let seen = match sees {
                    Sees::All => true,
                    Sees::Past => s <= t,
                    Sees::Window(width) => s <= t && s + width > t,
                };
                assert_eq!(score == 0.0, seen, "{sees:?}, {queries} x {keys}, {t} and {s}");
            }
        }
    }
}

#[test]
fn inputs_and_gradients_may_be_views() {
    let (rows, width) = (2 * 65, 3 * 2 * 9);
    type Attention = fn(Tensor<2>, usize, usize) -> Tensor<2>;
    let transposed = |attention: Attention, given: &[Tensor<1>]| {
        attention(given[0].clone().reshape([width, rows]).transpose(), 2, 2).transpose()
    };
    let given = leaves([rows * width]);
    equal("transposed", &given, TOLERANCE, |g| transposed(own, g), |g| transposed(reference, g));
    let part = |attention: Attention, given: &[Tensor<1>]| {
        let qkv = given[0].clone().reshape([rows + 3, width]).narrow(0, 1, rows);
        attention(qkv, 2, 2).mean().reshape([1, 1])
    };
    let given = leaves([(rows + 3) * width]);
    equal("offset", &given, TOLERANCE, |g| part(own, g), |g| part(reference, g));
}

#[test]
fn a_tensor_may_be_used_twice() {
    let (rows, width) = (2 * 65, 18);
    type Attention = fn(Tensor<2>, usize, usize) -> Tensor<2>;
    let twice = |attention: Attention, given: &[Tensor<1>]| {
        let qkv = given[0].clone().reshape([rows, 3 * width]);
        let first = attention(qkv.clone(), 2, 2);
        let again = Tensor::cat(vec![first.clone(), first.clone(), first.clone()], 1);
        first + attention(qkv, 1, 3) + attention(again, 2, 1)
    };
    let given = leaves([rows * 3 * width]);
    equal("twice", &given, 4.0 * TOLERANCE, |g| twice(own, g), |g| twice(reference, g));
}

#[test]
fn held_activations_keep_their_values() {
    let [qkv] = leaves([130 * 54]);
    testing::held_activations_keep_their_values(qkv, |qkv| {
        [qkv.clone(), own(qkv.reshape([130, 54]), 2, 2).reshape([130 * 18])]
    });
}

/// Weights are dropped in training only, and as the seed says.
#[test]
fn dropout_follows_the_seed() {
    let given = leaves([2 * 65 * 54]);
    let with = |probability: f64| {
        move |given: &[Tensor<1>]| {
            let qkv = given[0].clone().reshape([2 * 65, 54]);
            attention(qkv, 2, Heads::equal(2), &dropout(probability), &mask(Sees::Past))
        }
    };
    let run = |seed| drawn(&device(), seed, || [(); 3].map(|()| pass(&given, with(0.2))));
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    assert_ne!(first[0], first[1]);
    let plain = |probability| read(with(probability)(&[given[0].clone().inner()]));
    assert_eq!(bits(&plain(0.2)), bits(&plain(0.0)));
}
