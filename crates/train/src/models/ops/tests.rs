//! The operations together.

use super::testing::{bits, device, leaves, pass, poison, read};
use super::{Activation, cross_entropy, layer_norm, linear};
use crate::models::testing::gradients;
use crate::models::{ALL, Gpt, GptConfig, Input, Model, NetModel};
use burn::tensor::{Device, Tensor};
use data::{FieldData, HostField};
use ddp::buffers::{kept, misses};
use ddp::device::{Compute, drawn};
use std::sync::Arc;

const BATCH: usize = 3;
const TIME: usize = 33;
const WIDTH: usize = 24;
const CLASSES: usize = 11;

fn gpt(dropout: f64) -> NetModel<Gpt> {
    let config =
        GptConfig { vocab_size: CLASSES, block_size: TIME, n_layer: 2, n_head: 3, n_embd: WIDTH, dropout };
    NetModel::new(&Compute::host(), 1, |device| Ok(Gpt::new(config, device))).unwrap()
}

fn tokens(offset: usize, device: &Device) -> Input {
    let tokens = (0..BATCH * TIME).map(|i| ((i * i + offset) % CLASSES) as i64).collect();
    Input::from_host(&HostField { shape: vec![TIME], data: FieldData::Index(tokens) }, BATCH, device)
}

/// The loss of one step, then the gradients by parameter.
fn step(model: &NetModel<Gpt>, step: usize) -> Vec<Vec<f32>> {
    gradients(model, tokens(step, &device()), |logits| {
        cross_entropy(logits, tokens(step + 1, &device()).flat_index(), 0.1) * 0.5
    })
}

/// Bits of losses and gradients of three steps.
fn train(dropout: f64, seed: u64) -> Vec<Vec<u32>> {
    let mut model = gpt(dropout);
    let results = drawn(&device(), seed, || {
        [0, 1, 2].map(|step| {
            let results = self::step(&model, step);
            let descend = |number: usize, values: &mut [f32]| {
                values.iter_mut().zip(&results[number + 1]).for_each(|(value, g)| *value -= 0.1 * g);
            };
            model.edit(ALL, &mut { descend }).unwrap();
            results
        })
    });
    results.iter().flatten().map(|values| bits(values)).collect()
}

/// With empty pools and with those that hold the memory of other steps, or NaN.
#[test]
fn training_gives_the_same_bits_with_any_memory() {
    for dropout in [0.0, 0.2] {
        let first = std::thread::spawn(move || train(dropout, 7)).join().unwrap();
        assert!(first.iter().flatten().all(|bits| f32::from_bits(*bits).is_finite()));
        for width in [CLASSES, WIDTH, 3 * WIDTH, 4 * WIDTH] {
            poison(BATCH * TIME * width);
        }
        for _ in 0..2 {
            assert!(train(dropout, 7) == first, "dropout {dropout}");
        }
        // The seed is that of dropout only.
        assert_eq!(train(dropout, 8) == first, dropout == 0.0, "dropout {dropout}");
    }
}

/// Evaluation draws nothing, and computes what training without dropout does.
#[test]
fn evaluation_gives_the_bits_of_training_without_dropout() {
    let tapped = gpt(0.0).forward(tokens(0, &device()), Arc::new(|_, parameter| parameter));
    let trained = bits(&read(tapped.inner()));
    for dropout in [0.0, 0.2] {
        let evaluator = gpt(dropout).evaluator();
        let outputs = evaluator.forward(tokens(0, &evaluator.device()));
        assert!(bits(&read(outputs)) == trained, "dropout {dropout}");
    }
}

/// What the other tests of the operations rely on: after the first pass, all of a pass's large tensors that do not leave it
/// are memory of the pass before.
#[test]
fn a_pass_uses_the_memory_of_the_one_before() {
    // A new thread has an empty pool.
    let test = || {
        let given = leaves([130 * 33, 33 * 33, 33]);
        let op = |given: &[Tensor<1>]| {
            let [x, w, b] = given else { unreachable!() };
            let x = layer_norm(x.clone().reshape([130, 33]), b.clone(), b.clone(), 1e-5);
            let w = w.clone().reshape([33, 33]);
            let y = linear(x.clone(), w.clone(), None, Some(x), Activation::Gelu);
            linear(y, w, Some(b.clone()), None, Activation::Relu)
        };
        assert!(given[0].device() == device());
        let missed = [(); 3].map(|()| {
            let before = misses();
            drop(pass(&given, op));
            misses() - before
        });
        assert!(missed[0] > 0 && kept() > 0);
        // Results and gradients of inputs leave the pass; here everything else is used again.
        assert!(missed[2] < missed[0], "{missed:?}");
    };
    std::thread::spawn(test).join().unwrap();
}
