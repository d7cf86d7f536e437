//! Against torchvision: tests/reference/augment.py computes the expected values.

use super::*;
use crate::SampleKey;
use crate::rng::Stream;
use crate::testing::{augment_reference, part, picture};
use data_encoding::HEXLOWER;
use std::collections::BTreeMap;

#[test]
fn each_step_is_that_of_torchvision() {
    let all = augment_reference("jitters");
    assert_eq!(all.len(), 17);
    for case in all {
        let channels: usize = part(&case, "channels");
        let steps: Vec<(String, f32)> = part(&case, "steps");
        let mut pixels = picture(channels, part(&case, "size"));
        for (name, factor) in &steps {
            let step = match name.as_str() {
                "brightness" => Step::Brightness,
                "contrast" => Step::Contrast,
                "saturation" => Step::Saturation,
                "hue" => Step::Hue,
                other => unreachable!("{other}"),
            };
            step(*factor).apply(&mut pixels, channels);
        }
        let expected: String = part(&case, "pixels");
        assert_eq!(HEXLOWER.encode(&pixels), expected, "{channels} channels, {steps:?}");
    }
}

fn drawn(jitter: ColorJitter, sample: u64) -> Vec<Step> {
    jitter.draw(&mut CounterRng::new(SampleKey { seed: 1, epoch: 2, sample }, Stream::ColorJitter))
}

#[test]
fn steps_come_in_every_order_with_factors_from_the_whole_range() {
    let jitter = ColorJitter {
        brightness: Some([0.6, 1.4]),
        contrast: Some([0.0, 2.0]),
        saturation: Some([1.5, 1.5]),
        hue: Some([-0.1, 0.1]),
    };
    let (mut orders, mut least, mut most) = (BTreeMap::new(), 9f32, 0f32);
    for sample in 0..2400 {
        let steps = drawn(jitter, sample);
        assert_eq!(steps, drawn(jitter, sample));
        let order: String = steps
            .iter()
            .map(|step| match step {
                Step::Brightness(factor) => {
                    assert!((0.6..=1.4).contains(factor));
                    (least, most) = (least.min(*factor), most.max(*factor));
                    'b'
                }
                Step::Contrast(factor) => {
                    assert!((0.0..=2.0).contains(factor));
                    'c'
                }
                Step::Saturation(factor) => {
                    assert_eq!(*factor, 1.5);
                    's'
                }
                Step::Hue(turn) => {
                    assert!((-0.1..=0.1).contains(turn));
                    'h'
                }
            })
            .collect();
        *orders.entry(order).or_insert(0) += 1;
    }
    // Each is expected 100 times.
    assert_eq!(orders.len(), 24);
    assert!(orders.values().all(|n| (50..150).contains(n)), "{orders:?}");
    assert!(least < 0.61 && most > 1.39, "{least} to {most}");
    let one = ColorJitter { hue: Some([0.2, 0.2]), ..ColorJitter::default() };
    assert_eq!(drawn(one, 5), [Step::Hue(0.2)]);
}
