//! `shapes`: generated images of eight figures at random positions, sizes, angles and brightness, with noise. Needs no
//! files and no network; each image is a pure function of (seed, index), drawn on access.

use crate::image_config::ChannelStats;
use crate::images::{ImageSetBuilder, ImageSource, class_facts};
use crate::rng::{CounterRng, Stream};
use crate::split::{SplitOptions, Subset};
use crate::transforms::TransformOptions;
use crate::{DataFacts, DatasetSource, FieldFacts, FieldKind, SampleKey, Splits};
use base::error::Result;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

/// The classes, in label order.
pub const FIGURES: [&str; 8] = ["circle", "square", "triangle", "cross", "ring", "bar", "dots", "frame"];

/// Images of drawn figures (circle, square, triangle, cross, ring, bar, dots, frame); generated from `seed`, nothing to
/// download.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct ShapesSource {
    /// Training images.
    #[default = 4000]
    #[schemars(range(min = 1, max = 268_435_456))]
    train: usize,
    /// Validation images.
    #[default = 1000]
    #[schemars(range(max = 268_435_456))]
    val: usize,
    /// Width and height.
    #[default = 24]
    #[schemars(range(min = 16, max = 512))]
    size: usize,
    /// 1 for grey, 3 for colour.
    #[default = 1]
    #[schemars(range(min = 1, max = 3))]
    channels: usize,
    /// Number of different figures.
    #[default(FIGURES.len())]
    #[schemars(range(min = 2, max = FIGURES.len()))]
    classes: usize,
    /// Standard deviation of the noise on the pixels, which are in [0, 1].
    #[default = 0.05]
    #[schemars(range(min = 0.0, max = 1.0))]
    noise: f64,
    /// Seed of the data.
    seed: u64,
    #[serde(skip)]
    transform: TransformOptions,
}

const DEFAULT_STATS: ChannelStats = ChannelStats { mean: [0.3; 3], std: [0.23; 3] };

/// Reads the `[dataset]` table.
pub fn shapes(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let own: ShapesSource = fields.config();
    Arc::new(ShapesSource { transform: TransformOptions::read(fields, own.channels, DEFAULT_STATS), ..own })
}

impl DatasetSource for ShapesSource {
    fn facts(&self) -> DataFacts {
        let shape = vec![self.channels, self.size, self.size];
        DataFacts {
            input: Some(FieldFacts { shape, kind: FieldKind::Float }),
            target: Some(class_facts(self.classes)),
            train: Some(self.train),
            val: Some(self.val),
            ..DataFacts::default()
        }
    }

    fn open(&self) -> Result<Splits> {
        let classes = FIGURES[..self.classes].iter().map(|name| (*name).to_owned()).collect();
        let builder = ImageSetBuilder::new(self.channels, self.size, classes, self.transform.clone());
        let source = |first: usize, len: usize| -> Arc<dyn ImageSource> {
            Arc::new(Drawer { spec: self.clone(), first: first as u64, len })
        };
        let mut splits = builder.splits(source(0, self.train), None, &SplitOptions::default())?;
        // Validation images have indices beyond those of any training set.
        splits.val = Some(builder.set(&source(1 << 40, self.val), Subset::all(self.val), false));
        Ok(splits)
    }
}

struct Drawer {
    spec: ShapesSource,
    first: u64,
    len: usize,
}

impl ImageSource for Drawer {
    fn len(&self) -> usize {
        self.len
    }

    fn class(&self, index: usize) -> Result<usize> {
        // Classes alternate, so every set is balanced.
        Ok(index % self.spec.classes)
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        let key = SampleKey { seed: self.spec.seed, epoch: 0, sample: self.first + index as u64 };
        let class = self.class(index)?;
        scratch.resize(self.spec.channels * self.spec.size * self.spec.size, 0);
        draw(&self.spec, key, class, scratch);
        Ok((scratch, class))
    }
}

fn draw(spec: &ShapesSource, key: SampleKey, class: usize, out: &mut [u8]) {
    let mut rng = CounterRng::new(key, Stream::Input);
    let mut noise = CounterRng::new(key, Stream::Noise);
    let size = spec.size as f32;
    let radius = size * rng.between(0.29, 0.41);
    let room = size / 2.0 - radius;
    let (cx, cy) = (size / 2.0 + rng.between(-room, room), size / 2.0 + rng.between(-room, room));
    let (sin, cos) = rng.between(0.0, std::f32::consts::TAU).sin_cos();
    let mut colours = [(0.0, 0.0); 3];
    let (back, ink) = (rng.between(0.0, 0.3), rng.between(0.65, 1.0));
    for colour in &mut colours {
        // Grey images use only the first. Foreground stays brighter than background by at least 0.2.
        *colour = (back + rng.between(-0.05, 0.05), ink + rng.between(-0.1, 0.0));
    }
    for y in 0..spec.size {
        for x in 0..spec.size {
            let (dx, dy) = (x as f32 + 0.5 - cx, y as f32 + 0.5 - cy);
            let (u, v) = ((dx * cos + dy * sin) / radius, (dy * cos - dx * sin) / radius);
            // Anti-aliased edges, one pixel wide.
            let cover = (0.5 - distance(class, u, v) * radius).clamp(0.0, 1.0);
            for (c, (back, ink)) in colours.iter().take(spec.channels).enumerate() {
                // The sum of two uniform draws approximates a normal distribution cheaply.
                let grain = spec.noise as f32 * 2.45 * (noise.uniform() + noise.uniform() - 1.0);
                let value = back + (ink - back) * cover + grain;
                out[(c * spec.size + y) * spec.size + x] = (value.clamp(0.0, 1.0) * 255.0) as u8;
            }
        }
    }
}

/// Approximate signed distance from the figure's edge, negative inside, for a figure of radius 1 around the origin.
fn distance(class: usize, u: f32, v: f32) -> f32 {
    let r = u.hypot(v);
    let square = u.abs().max(v.abs());
    match class {
        0 => r - 0.88,
        1 => square - 0.8,
        // Three edges at 120 degrees, each 0.5 from the centre.
        2 => (-v).max(0.866 * u + 0.5 * v).max(-0.866 * u + 0.5 * v) - 0.5,
        3 => (u.abs() - 0.26).max(v.abs() - 0.95).min((v.abs() - 0.26).max(u.abs() - 0.95)),
        4 => (r - 0.75).abs() - 0.2,
        5 => (u.abs() - 1.0).max(v.abs() - 0.24),
        6 => (u.abs() - 0.6).hypot(v) - 0.36,
        _ => (square - 0.66).abs() - 0.17,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{configure, sample};

    #[test]
    fn sizes_and_facts() {
        let source = configure(&shapes, "train = 100\nval = 33\nsize = 32\nchannels = 3").unwrap();
        let (facts, splits) = (source.facts(), source.open().unwrap());
        assert_eq!(facts.input, Some(splits.train.input()));
        assert_eq!(facts.target, Some(splits.train.target()));
        assert_eq!((facts.train, facts.val), (Some(splits.train.len()), splits.val.map(|v| v.len())));
        assert_eq!(splits.train.input().shape, [3, 32, 32]);
        let error = configure(&shapes, "channels = 2\nclasses = 9").err().unwrap();
        assert!(error.contains("expected 1 (grey) or 3 (colour)") && error.contains("2 problems"), "{error}");
    }

    #[test]
    fn images_depend_on_seed_and_index_alone() {
        let open = |table| configure(&shapes, table).unwrap().open().unwrap();
        let (a, b, other) = (open("train = 80"), open("train = 5000"), open("seed = 1"));
        for i in [0, 7, 79] {
            assert_eq!(sample(&*a.train, i, 0), sample(&*b.train, i, 3));
            assert_ne!(sample(&*a.train, i, 0), sample(&*other.train, i, 0));
            assert_ne!(sample(&*a.train, i, 0), sample(&**a.val.as_ref().unwrap(), i, 0));
        }
    }

    #[test]
    fn images_are_varied_balanced_and_normalised() {
        let train = configure(&shapes, "train = 800").unwrap().open().unwrap().train;
        let (mut counts, mut sum, mut square, mut n) = ([0; 8], 0.0, 0.0, 0.0);
        let mut distinct = std::collections::HashSet::new();
        for i in 0..800 {
            let (pixels, class) = sample(&*train, i, 0);
            counts[class[0] as usize] += 1;
            distinct.insert(format!("{:?}", &pixels[250..260]));
            for p in pixels {
                (sum, square, n) = (sum + p, square + p * p, n + 1.0);
            }
        }
        assert_eq!(counts, [100; 8]);
        assert_eq!(distinct.len(), 800);
        let mean: f64 = sum / n;
        let std = (square / n - mean * mean).sqrt();
        assert!(mean.abs() < 0.15 && (std - 1.0).abs() < 0.15, "mean {mean}, std {std}");
    }

    /// Every figure differs from every other one, whatever the rotation.
    #[test]
    #[allow(clippy::needless_range_loop)]
    fn figures_differ() {
        let mask = |class: usize, turn: f32| -> Vec<bool> {
            let (sin, cos) = turn.sin_cos();
            (0..1600)
                .map(|i| ((i % 40) as f32 / 18.0 - 1.1, (i / 40) as f32 / 18.0 - 1.1))
                .map(|(x, y)| distance(class, x * cos + y * sin, y * cos - x * sin) < 0.0)
                .collect()
        };
        for a in 0..8 {
            for b in 0..a {
                for turn in 0..24 {
                    let turned = mask(b, turn as f32 * 0.27);
                    let differing = mask(a, 0.0).iter().zip(&turned).filter(|(p, q)| p != q).count();
                    assert!(differing > 80, "{} and {}: {differing} of 1600 pixels", FIGURES[a], FIGURES[b]);
                }
            }
        }
    }
}
