//! The keys of `[dataset]` that all image data sets share.

use super::transforms::{Augment, TransformOptions};
use crate::spec::{Fields, did_you_mean};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// The default mean and standard deviation per channel of a data set, for pixels in [0, 1].
#[derive(Clone, Copy, Debug)]
pub struct ChannelStats {
    pub mean: [f64; 3],
    pub std: [f64; 3],
}

/// Transforms of the pixels.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Images"))]
struct Pixels {
    /// Subtract `mean` and divide by `std`; `false` leaves pixels in 0 to 1.
    #[default = true]
    normalize: bool,
    /// Mean of the pixels, one number per channel. Default: the data set's.
    #[schemars(inner(range(min = 0.0, max = 1.0)))]
    mean: Option<Vec<f64>>,
    /// Standard deviation of the pixels, one number per channel. Default: the data set's.
    #[schemars(inner(range(min = 1e-6, max = 1.0)))]
    std: Option<Vec<f64>>,
    /// Random transforms of training images, of `crop`, `flip` and `cutout`.
    augment: Vec<String>,
}

// Read only with the augmentation `crop`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Images"))]
struct Crop {
    /// Black pixels added on each side before `crop` takes a random window of the image's size. Only with `crop`.
    #[default = 4]
    #[schemars(range(min = 1, max = 1024))]
    crop_padding: usize,
}

// Read only with the augmentation `cutout`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Images"))]
struct Cutout {
    /// Side of the square, centred at a random pixel, that `cutout` sets to zero after normalisation (DeVries and Taylor
    /// 2017). Only with `cutout`.
    #[default = 8]
    #[schemars(range(min = 1, max = 1024))]
    cutout: usize,
}

impl TransformOptions {
    /// `channels` is the number of channels of the samples: 1 (grey) or 3 (colour).
    pub fn read(fields: &mut Fields<'_>, channels: usize, usual: ChannelStats) -> Self {
        if channels == 2 {
            fields.problem("channels", "expected 1 (grey) or 3 (colour)");
        }
        let Pixels { normalize, mean, std, augment } = fields.config();
        let mut stat = |key: &str, listed: Option<Vec<f64>>, usual: [f64; 3]| {
            let listed = fields.or_default(key, listed, usual[..channels].to_vec());
            if listed.len() != channels {
                fields.problem(
                    key,
                    format!("expected {channels} numbers, one per channel, found {}", listed.len()),
                );
            }
            listed
        };
        let (mean, std) = (stat("mean", mean, usual.mean), stat("std", std, usual.std));
        Self { normalize: normalize.then_some((mean, std)), augment: Augment::read(fields, &augment) }
    }
}

impl Augment {
    fn read(fields: &mut Fields<'_>, names: &[String]) -> Self {
        let known = ["crop", "flip", "cutout"];
        for (i, name) in names.iter().enumerate() {
            let at = i.to_string();
            if !known.contains(&name.as_str()) {
                let near = did_you_mean(name, known);
                fields.problem_at(&["augment", &at], format!("unknown augmentation{near}"));
            } else if names[..i].contains(name) {
                fields.problem_at(&["augment", &at], "listed twice");
            }
        }
        let has = |name: &str| names.iter().any(|n| n == name);
        // A key of an augmentation that is not listed is read if it is set, so that it is reported as misplaced, not as unknown.
        let mut reads = |key: &str, name: &str| {
            let misplaced = !has(name) && fields.has(key);
            if misplaced {
                fields.problem(key, format!("has no effect without \"{name}\" in `augment`"));
            }
            misplaced || has(name)
        };
        let (crop, cutout) = (reads("crop_padding", "crop"), reads("cutout", "cutout"));
        Self {
            crop: fields.config_if(crop).map(|Crop { crop_padding }| crop_padding),
            cutout: fields.config_if(cutout).map(|Cutout { cutout }| cutout),
            flip: has("flip"),
        }
    }
}
