//! Against torchvision and PyTorch: tests/reference/mixing.py computes the expected values.

use super::*;
use crate::tasks::{StandardLoss, mixed_loss};
use burn::tensor::{Device, TensorData};
use data::testing::part;
use data::{HostBatch, HostField};
use std::collections::BTreeMap;

const LABELS: [i64; 4] = [2, 0, 2, 1];

fn reference(of: &str) -> Vec<serde_json::Value> {
    let text = include_str!("../../../../tests/reference/mixing.json");
    let mut all: serde_json::Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(all[of].take()).unwrap()
}

/// The first images of 5 x 6 pixels, which are numbered through, with their labels.
fn batch(len: usize, device: &Device) -> DeviceBatch {
    let pixels = (0..len * 30).map(|i| i as f32).collect();
    let input = HostField { shape: vec![1, 5, 6], data: FieldData::Float(pixels) };
    let target = HostField { shape: vec![], data: FieldData::Index(LABELS[..len].to_vec()) };
    let sent = |field| Input::from_host(field, len, device);
    DeviceBatch {
        batch: Batch { input: sent(&input), target: sent(&target), fields: BTreeMap::new() },
        host: HostBatch {
            len,
            input,
            target,
            fields: BTreeMap::new(),
            target_scale: 1.0,
            has_untrained: false,
            indices: vec![],
            draws: vec![],
        },
    }
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

fn labels(target: &Target) -> Vec<i64> {
    target.clone().flat_index().into_data().convert::<i64>().try_into_vec().unwrap()
}

fn images_are_mixed_as_in_torchvision(device: &Device) {
    let all = reference("mixes");
    assert_eq!(all.len(), 7);
    for case in all {
        let (rows, columns): ([usize; 2], [usize; 2]) = (part(&case, "rows"), part(&case, "columns"));
        let own: f64 = part(&case, "own");
        let mix = match case["kind"].as_str() {
            Some("MixUp") => Mix { own, cut: None },
            _ => Mix::cut(part(&case, "lam"), part(&case, "centre"), [5, 6]),
        };
        assert!((mix.own - own).abs() < 1e-12, "{mix:?} {case}");
        if let Some(cut) = &mix.cut {
            assert_eq!(*cut, [rows[0]..rows[1], columns[0]..columns[1]]);
        }
        let got = floats(mix.pixels(batch(4, device).batch.input.float()));
        assert_eq!(got, part::<Vec<f32>>(&case, "pixels"), "{mix:?}");
    }
}

#[test]
fn pixels_and_boxes_are_those_of_torchvision() {
    images_are_mixed_as_in_torchvision(&Device::flex());
    images_are_mixed_as_in_torchvision(&Device::flex().autodiff());
}

#[cfg(feature = "wgpu")]
#[test]
fn pixels_are_mixed_on_wgpu() {
    let Some(device) = ddp::device::testing::wgpu() else { return };
    images_are_mixed_as_in_torchvision(&device);
}

/// The loss against both labels by weight is the cross-entropy with probabilities, with label smoothing too.
#[test]
fn the_loss_is_that_of_pytorch_with_mixed_labels() {
    let device = Device::flex().autodiff();
    let target = |turned: bool| {
        let mut labels = LABELS;
        labels.rotate_right(usize::from(turned));
        let field = HostField { shape: vec![], data: FieldData::Index(labels.to_vec()) };
        Target::from_host(&field, 4, &device)
    };
    for case in reference("losses") {
        let logits = TensorData::new(part::<Vec<f32>>(&case, "logits"), [4, 3]);
        let logits = Tensor::<2>::from_data(logits, &device).require_grad();
        let loss = StandardLoss::CrossEntropy { label_smoothing: part(&case, "smoothing") };
        let lighter = Lighter { target: target(true), weight: 1.0 - part::<f64>(&case, "lam") };
        let value = mixed_loss(&loss, logits.clone(), target(false), Some(lighter));
        let (got, expected) = (floats(value.clone().inner())[0], part::<f32>(&case, "loss"));
        assert!((got - expected).abs() < 1e-6, "{got} against {expected}");
        let gradient = floats(logits.grad(&value.backward()).unwrap());
        for (got, expected) in gradient.iter().zip(part::<Vec<f32>>(&case, "gradient")) {
            assert!((got - expected).abs() < 1e-6, "{got} against {expected}");
        }
    }
}

const BOTH: Mixing = Mixing { mixup: Some(0.8), cutmix: Some(1.0) };

#[test]
fn the_heavier_label_is_the_target_on_host_and_device() {
    let (mut own, mut other) = (0, 0);
    for number in 0..50 {
        let mix = BOTH.draw(3, number, [5, 6]);
        let (batch, lighter) = mixed(Some(BOTH), batch(4, &Device::flex()), 3, number);
        let (lighter, mut before) = (lighter.unwrap(), LABELS);
        before.rotate_right(1);
        let (heavy, light) = if mix.own >= 0.5 { (LABELS, before) } else { (before, LABELS) };
        assert_eq!((labels(&batch.batch.target), labels(&lighter.target)), (heavy.to_vec(), light.to_vec()));
        assert_eq!(batch.host.target.data, FieldData::Index(heavy.to_vec()));
        assert!((lighter.weight - mix.own.min(1.0 - mix.own)).abs() < 1e-12);
        *(if mix.own >= 0.5 { &mut own } else { &mut other }) += 1;
    }
    assert!(own > 5 && other > 5, "{own} {other}");
    let (plain, nothing) = mixed(None, batch(3, &Device::flex()), 3, 0);
    assert!(nothing.is_none() && labels(&plain.batch.target) == LABELS[..3]);
}

/// A short micro-batch is mixed within itself; a single image with itself.
#[test]
fn short_micro_batches_are_mixed_too() {
    for number in 0..20 {
        let (one, _) = mixed(Some(BOTH), batch(1, &Device::flex()), 3, number);
        let pixels = floats(one.batch.input.float::<4>());
        assert!(pixels.iter().enumerate().all(|(i, p)| (p - i as f32).abs() < 1e-4), "{pixels:?}");
        let (three, _) = mixed(Some(BOTH), batch(3, &Device::flex()), 3, number);
        assert_eq!(three.batch.input.shape(), [3, 1, 5, 6]);
    }
}

/// Also notices a change of the sampler, which would change the results of runs.
#[test]
fn draws_depend_on_seed_and_number_alone() {
    let draw = |seed, number| BOTH.draw(seed, number, [32, 32]);
    assert_eq!(draw(3, 4), draw(3, 4));
    assert!(draw(3, 4) != draw(3, 5) && draw(3, 4) != draw(4, 4));
    let first: Vec<String> = (0..4).map(|number| format!("{:.6}", draw(42, number).own)).collect();
    assert_eq!(first, ["0.480469", "0.695508", "0.302208", "0.331720"]);
}

/// Lambda has the distribution functions of Beta(1/2, 1/2), Beta(1, 1) and Beta(2, 2).
#[test]
fn lambda_has_the_beta_distribution() {
    type Cdf = fn(f64) -> f64;
    let cases: [(f64, Cdf); 3] = [
        (0.5, |x| 2.0 / std::f64::consts::PI * x.sqrt().asin()),
        (1.0, |x| x),
        (2.0, |x| x * x * (3.0 - 2.0 * x)),
    ];
    for (alpha, cdf) in cases {
        let mixing = Mixing { mixup: Some(alpha), cutmix: None };
        let mut drawn: Vec<f64> = (0..4000).map(|number| mixing.draw(1, number, [8, 8]).own).collect();
        drawn.sort_by(f64::total_cmp);
        let apart = |(i, x): (usize, &f64)| (cdf(*x) - (i as f64 + 0.5) / 4000.0).abs();
        let most = drawn.iter().enumerate().map(apart).fold(0.0, f64::max);
        // Kolmogorov-Smirnov: 1.95 / sqrt(4000) is exceeded once in a thousand seeds.
        assert!(most < 0.031, "alpha {alpha}: {most}");
    }
    let halves = (0..2000).filter(|number| BOTH.draw(1, *number, [8, 8]).cut.is_some()).count();
    assert!((900..1100).contains(&halves), "{halves} of 2000 are cut");
    // Extreme numbers give no NaN.
    for alpha in [1e-9, 1e-3, 1e6] {
        let mixing = Mixing { mixup: Some(alpha), cutmix: None };
        assert!((0..500).all(|number| (0.0..=1.0).contains(&mixing.draw(1, number, [8, 8]).own)), "{alpha}");
    }
}

#[test]
fn only_images_with_classes_are_mixed() {
    let field = |shape: &[usize], kind| FieldFacts { shape: shape.to_vec(), kind };
    let (image, class) = (field(&[3, 8, 8], FieldKind::Float), field(&[], FieldKind::Index(10)));
    assert!(BOTH.fits(&image, &class).is_ok());
    assert_eq!(BOTH.unfit(Some(&image), None), None);
    for (input, target) in [
        (field(&[20], FieldKind::Float), class.clone()),
        (field(&[3, 8, 8], FieldKind::Index(256)), class.clone()),
        (image.clone(), field(&[], FieldKind::Float)),
        (image.clone(), field(&[16], FieldKind::Index(50))),
    ] {
        assert_eq!(BOTH.fits(&input, &target).unwrap_err().kind, base::error::ErrorKind::Spec);
    }
}
