//! Cross-entropy compared with Burn's own operations.

use super::super::testing::{bits, device, equal, leaves, noise, pass, poison, random, read};
use super::*;
use burn::tensor::Device;

/// Logarithms of sums of at most 33 exponentials, and means of at most 130 rows of them, each below 6: a few roundings of
/// 2^-24 * 6.
const TOLERANCE: f32 = 3e-6;

type Loss = fn(Tensor<2>, Tensor<1, Int>, f64) -> Tensor<1>;

fn targets(rows: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let targets: Vec<i64> = (0..rows).map(|row| (row * 7 % classes) as i64).collect();
    Tensor::from_ints(&targets[..], device)
}

fn apply(loss: Loss, rows: usize, classes: usize, smoothing: f64) -> impl Fn(&[Tensor<1>]) -> Tensor<1> {
    move |given| {
        let logits = given[0].clone().reshape([rows, classes]) * 3.0;
        let targets = targets(rows, classes, &logits.device());
        loss(logits, targets, smoothing)
    }
}

#[test]
fn values_and_gradients_equal_burns() {
    for rows in [1, 7, 130] {
        for classes in [1, 2, 9, 33] {
            for smoothing in [0.0, 0.1, 0.9] {
                let what = format!("{rows} x {classes}, smoothing {smoothing}");
                let apply = |loss| apply(loss, rows, classes, smoothing);
                let given = leaves([rows * classes]);
                equal(&what, &given, TOLERANCE, apply(cross_entropy), apply(composed));
            }
        }
    }
}

#[test]
fn with_one_class_there_is_nothing_to_learn() {
    for smoothing in [0.0, 0.1] {
        let found = pass(&leaves([130]), apply(cross_entropy, 130, 1, smoothing));
        assert_eq!(found, [vec![0.0], vec![0.0; 130]].map(Some));
    }
}

/// The gradient is computed in the forward pass; the loss may be scaled or used twice afterwards.
#[test]
fn the_gradient_is_proportional_to_the_losses_weight() {
    let logits = random([130, 33], 1).require_grad();
    poison(130 * 33);
    let gradient = |used: fn(Tensor<1>) -> Tensor<1>| {
        let loss = cross_entropy(logits.clone(), targets(130, 33, &device()), 0.1);
        read(logits.grad(&used(loss).backward()).unwrap())
    };
    let times = |factor: f32| gradient(|l| l).iter().map(|g| g * factor).collect::<Vec<_>>();
    for _ in 0..3 {
        assert_eq!(bits(&gradient(|loss| loss * 0.5)), bits(&times(0.5)));
        assert_eq!(bits(&gradient(|loss| loss * 3.0)), bits(&times(3.0)));
        assert_eq!(bits(&gradient(|loss| loss.clone() + loss)), bits(&times(2.0)));
    }
    let largest = times(1.0).into_iter().fold(0.0, f32::max);
    assert!(largest > 1e-4, "{largest}");
}

#[test]
fn inputs_may_be_views() {
    let (rows, classes) = (130, 9);
    let given = leaves([(classes + 1) * (rows + 2)]);
    let strided = |loss: Loss, given: &[Tensor<1>]| {
        let logits = given[0].clone().reshape([classes + 1, rows + 2]).transpose();
        let logits = logits.slice([2..rows + 2, 1..classes + 1]);
        let targets = targets(2 * rows, classes, &logits.device()).reshape([rows, 2]);
        loss(logits, targets.narrow(1, 1, 1).reshape([rows]), 0.1)
    };
    equal("views", &given, TOLERANCE, |g| strided(cross_entropy, g), |g| strided(composed, g));
}

#[test]
fn logits_may_be_used_twice() {
    let given = leaves([130 * 33]);
    let twice = |loss: Loss, given: &[Tensor<1>]| {
        let logits = given[0].clone().reshape([130, 33]);
        let targets = targets(130, 33, &logits.device());
        loss(logits.clone(), targets.clone(), 0.0) * 0.3 + loss(logits, targets, 0.2)
    };
    equal("twice", &given, TOLERANCE, |g| twice(cross_entropy, g), |g| twice(composed, g));
}

#[test]
fn logits_without_gradient_have_a_loss() {
    let loss = |logits| read(cross_entropy(logits, targets(130, 33, &device()), 0.1));
    let logits = random([130, 33], 1);
    assert_eq!(bits(&loss(logits.clone())), bits(&loss(logits.require_grad())));
}

/// The loss of three rows of nine logits, the second of class `target`.
fn with_target(target: i32, device: &Device) {
    let logits = Tensor::<1>::from_floats(&noise(27, 1)[..], device).reshape([3, 9]);
    cross_entropy(logits, Tensor::from_ints([0, target, 8], device), 0.0);
}

#[test]
fn accepts_targets_that_are_classes() {
    [0, 8].into_iter().for_each(|target| with_target(target, &device()));
}

#[test]
#[should_panic(expected = "target -1 is not one of the 9 classes")]
fn rejects_a_negative_target() {
    with_target(-1, &device());
}

#[test]
#[should_panic(expected = "target 9 is not one of the 9 classes")]
fn rejects_a_target_beyond_the_classes() {
    with_target(9, &Device::flex());
}
