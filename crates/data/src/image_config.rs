//! The keys of `[dataset]` that all image data sets share.

use super::color_jitter::ColorJitter;
use super::resized_crop::ResizedCrop;
use super::scaling::Scaling;
use super::transforms::{Augment, TransformOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::schema::ONLY_WORDS;
use spec::{Fields, Syntax, syntax};

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
    /// Random transforms of training images, of `random-resized-crop` (as torchvision's on PIL images), `color-jitter` (as
    /// torchvision's on uint8 tensors), `crop`, `flip` and `cutout`; they are applied in this order. `crop` and
    /// `random-resized-crop` exclude each other.
    #[schemars(schema_with = "augment_schema")]
    augment: Vec<String>,
}

/// Which names there are is checked below, so that a wrong one is the only problem of the list.
fn augment_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names = AUGMENTATIONS.map(|(name, _)| name);
    schemars::json_schema!({ "type": "array", "items": { "type": "string", ONLY_WORDS: names } })
}

// Read only with the augmentation `random-resized-crop`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Images"))]
struct Window {
    /// Smallest and largest part of the image's area that `random-resized-crop` takes and scales to the size of the samples.
    #[default([0.08, 1.0])]
    #[schemars(inner(range(min = 1e-6, max = 1.0)))]
    crop_scale: [f64; 2],
    /// Smallest and largest ratio of width to height of what `random-resized-crop` takes.
    #[default([3.0 / 4.0, 4.0 / 3.0])]
    #[schemars(inner(range(min = 0.01, max = 100.0)))]
    crop_ratio: [f64; 2],
}

// Read only with the augmentation `color-jitter`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("x-section" = "Images"))]
struct Colours {
    /// How much `color-jitter` changes the brightness: by a factor from `1 - brightness` (at least 0) to `1 + brightness`, or from
    /// the first number of a list to the second. Not changed if it is not set.
    brightness: Option<Amount>,
    /// How much `color-jitter` changes the contrast, as `brightness`.
    contrast: Option<Amount>,
    /// How much `color-jitter` changes the saturation, as `brightness`. Refused for grey images.
    saturation: Option<Amount>,
    /// How much `color-jitter` changes the hue: by a part of the colour circle from `-hue` to `hue`, at most 0.5, or from the first
    /// number of a list to the second. Refused for grey images.
    hue: Option<Amount>,
}

/// torchvision's ways to write a range of factors.
#[derive(Clone, Copy, Debug)]
enum Amount {
    /// The largest distance from no change.
    Around(f64),
    Between([f64; 2]),
}

impl Syntax for Amount {
    const EXPECTED: &'static str = "a number of at least 0, or a list of two numbers, the smaller one first";
    const TYPES: &'static [&'static str] = &["number", "array"];
    const LEAST: Option<u32> = Some(0);

    fn read(value: &toml::Value) -> Option<Self> {
        let number = |value: &toml::Value| match value {
            toml::Value::Integer(i) => Some(*i as f64),
            toml::Value::Float(x) => Some(*x).filter(|x| x.is_finite()),
            _ => None,
        };
        match value.as_array().map(Vec::as_slice) {
            None => number(value).filter(|x| *x >= 0.0).map(Self::Around),
            Some([from, to]) => {
                Some([number(from)?, number(to)?]).filter(|[from, to]| from <= to).map(Self::Between)
            }
            Some(_) => None,
        }
    }

    fn write(&self) -> toml::Value {
        match self {
            Self::Around(x) => toml::Value::Float(*x),
            Self::Between(range) => toml::Value::Array(range.map(toml::Value::Float).to_vec()),
        }
    }
}

syntax!(Amount);

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
        Self {
            normalize: normalize.then_some((mean, std)),
            augment: Augment::read(fields, &augment, channels),
            // Only data sets of files have images of any size.
            scaling: Scaling::default(),
        }
    }
}

/// Every augmentation, in the order in which they are applied, and its keys.
const AUGMENTATIONS: [(&str, &[&str]); 5] = [
    ("random-resized-crop", &["crop_scale", "crop_ratio"]),
    ("color-jitter", &["brightness", "contrast", "saturation", "hue"]),
    ("crop", &["crop_padding"]),
    ("flip", &[]),
    ("cutout", &["cutout"]),
];

/// Keys of `color-jitter` that leave grey images as they are.
const OF_COLOURS: [&str; 2] = ["saturation", "hue"];

impl Augment {
    fn read(fields: &mut Fields<'_>, names: &[String], channels: usize) -> Self {
        check_names(fields, names, channels);
        let has = |name: &str| names.iter().any(|n| n == name);
        // A key of an augmentation that is not listed is read if it is set, so that it is reported as misplaced, not as unknown.
        let mut reads = |augmentation: &str| {
            let keys = AUGMENTATIONS
                .iter()
                .find(|(name, _)| *name == augmentation)
                .map_or(&[][..], |(_, keys)| *keys);
            let misplaced: Vec<&str> =
                keys.iter().copied().filter(|key| !has(augmentation) && fields.has(key)).collect();
            for key in &misplaced {
                fields.problem(key, format!("has no effect without \"{augmentation}\" in `augment`"));
            }
            has(augmentation) || !misplaced.is_empty()
        };
        let [window, colours, crop, cutout] =
            ["random-resized-crop", "color-jitter", "crop", "cutout"].map(&mut reads);
        if channels == 1 && has("color-jitter") {
            fields.misplaced(&OF_COLOURS, "on grey images");
        }
        Self {
            resized_crop: fields.config_if(window).map(|window| resized_crop(fields, &window)),
            color_jitter: fields.config_if(colours).map(|colours| color_jitter(fields, &colours)),
            crop: fields.config_if(crop).map(|Crop { crop_padding }| crop_padding),
            cutout: fields.config_if(cutout).map(|Cutout { cutout }| cutout),
            flip: has("flip"),
        }
    }
}

fn check_names(fields: &mut Fields<'_>, names: &[String], channels: usize) {
    let crops = |name: &str| ["crop", "random-resized-crop"].contains(&name);
    for (i, name) in names.iter().enumerate() {
        let known = AUGMENTATIONS.iter().find(|(known, _)| known == name);
        let other_crop = names[..i].iter().find(|other| crops(name) && crops(other));
        let why = match (known, other_crop) {
            (None, _) => {
                let known = AUGMENTATIONS.map(|(known, _)| known);
                fields.unknown_word_at(&["augment", &i.to_string()], "unknown augmentation", name, &known);
                continue;
            }
            _ if names[..i].contains(name) => "listed twice".to_owned(),
            (_, Some(other)) => {
                format!("`{name}` and `{other}` exclude each other: both choose the part of the image")
            }
            (Some((_, keys)), _) if name == "color-jitter" && !keys.iter().any(|key| fields.has(key)) => {
                let keys = match channels {
                    1 => "`brightness` or `contrast`",
                    _ => "`brightness`, `contrast`, `saturation` or `hue`",
                };
                format!("changes nothing without {keys}")
            }
            _ => continue,
        };
        fields.problem_at(&["augment", &i.to_string()], why);
    }
}

fn resized_crop(fields: &mut Fields<'_>, window: &Window) -> ResizedCrop {
    for (key, [from, to]) in [("crop_scale", window.crop_scale), ("crop_ratio", window.crop_ratio)] {
        if from > to {
            fields.problem(key, "expected the smaller number first");
        }
    }
    ResizedCrop { scale: window.crop_scale, ratio: window.crop_ratio }
}

fn color_jitter(fields: &mut Fields<'_>, colours: &Colours) -> ColorJitter {
    let mut factor = |key: &str, amount: Option<Amount>| {
        let range = match amount? {
            Amount::Around(x) => [(1.0 - x).max(0.0), 1.0 + x],
            Amount::Between(range) => range,
        };
        if range[0] < 0.0 {
            fields.problem(key, "expected factors of at least 0");
        } else if range[1] > 1000.0 {
            fields.problem(key, "expected factors of at most 1000");
        }
        Some(range).filter(|range| *range != [1.0, 1.0])
    };
    let brightness = factor("brightness", colours.brightness);
    let contrast = factor("contrast", colours.contrast);
    let saturation = factor("saturation", colours.saturation);
    let hue = colours.hue.map(|amount| match amount {
        Amount::Around(x) => [-x, x],
        Amount::Between(range) => range,
    });
    if hue.is_some_and(|[from, to]| from < -0.5 || to > 0.5) {
        fields.problem("hue", "expected parts of the colour circle from -0.5 to 0.5");
    }
    ColorJitter { brightness, contrast, saturation, hue: hue.filter(|hue| *hue != [0.0, 0.0]) }
}

#[cfg(test)]
#[path = "image_config_tests.rs"]
mod tests;
