//! Single samples, as people look at them.

use super::assemble::{buffers_of, empty_batch, part, resize_batch};
use super::resample::{Picture, Window, resized_crop};
use super::{Dataset, Encoding, FieldData, FieldKind, HostBatch, HostField, SampleKey};
use base::error::{Error, Result};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use std::fmt::Display;

/// The longer side of a picture, in pixels.
const SIDE: usize = 96;

/// A small image of a sample, as PNG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallPicture {
    pub png: Vec<u8>,
    pub width: usize,
    pub height: usize,
}

/// What people know of a sample: where it is stored, and its input if that is a row of a table or a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleWords {
    /// See [`Dataset::place`].
    pub place: Option<String>,
    /// Columns and cells.
    pub cells: Vec<(String, String)>,
    /// The input as text, if it consists of tokens.
    pub text: Option<String>,
}

/// The place of a line: `PATH, line 7`.
pub fn in_line(path: impl Display, line: impl Display) -> String {
    format!("{path}, line {line}")
}

/// Sample `key.sample` in words.
pub fn words_of(dataset: &dyn Dataset, key: SampleKey) -> Result<SampleWords> {
    let mut words = SampleWords { place: dataset.place(key.sample), ..SampleWords::default() };
    // A user-defined data set may describe its samples wrongly.
    let encoding = dataset.encoding().filter(|encoding| encoding.fits(&dataset.input()).is_ok());
    match encoding {
        Some(Encoding::Table(table)) => {
            if let FieldData::Float(inputs) = input_of(dataset, key)?.data {
                words.cells = table.cells(&inputs);
            }
        }
        Some(Encoding::Text(text)) => {
            if let FieldData::Index(tokens) = input_of(dataset, key)?.data {
                words.text = Some(text.tokenizer.decode(&tokens));
            }
        }
        Some(Encoding::Images(_)) | None => {}
    }
    Ok(words)
}

/// The input of sample `key.sample`, as an evaluation reads it.
pub fn input_of(dataset: &dyn Dataset, key: SampleKey) -> Result<HostField> {
    let mut batch = one_sample(dataset);
    dataset.write(key, buffers_of(&mut batch, 0)?)?;
    Ok(batch.input)
}

fn one_sample(dataset: &dyn Dataset) -> HostBatch {
    let mut batch = empty_batch(dataset);
    resize_batch(&mut batch, 1);
    batch
}

/// Sample `key.sample` as a picture; `None` if it is not an image of one channel or three. Stored images are shown unchanged, others from
/// their smallest value (black) to their largest.
pub fn picture_of(dataset: &dyn Dataset, key: SampleKey) -> Result<Option<SmallPicture>> {
    let facts = dataset.input();
    let [channels @ (1 | 3), height, width] = facts.shape[..] else { return Ok(None) };
    if facts.kind != FieldKind::Float || height < 2 || width < 2 {
        return Ok(None);
    }
    let planes = match dataset.stored().filter(|_| dataset.fields().is_empty()) {
        Some(stored) => {
            let mut pixels = vec![0; channels * height * width];
            stored.write_stored(key, &mut pixels, part(&mut one_sample(dataset).target, 0)?)?;
            pixels
        }
        None => match input_of(dataset, key)?.data {
            FieldData::Float(values) => as_bytes(&values),
            FieldData::Index(_) | FieldData::Bytes(_) => return Ok(None),
        },
    };
    small(&planes, channels, [height, width]).map(Some)
}

/// Scaled so that the smallest value is 0 and the largest 255; what is not finite is 0.
fn as_bytes(values: &[f32]) -> Vec<u8> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f32::MAX, f32::min), finite().fold(f32::MIN, f32::max));
    let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
    // A cast of NaN is 0.
    values.iter().map(|value| ((value - low) * scale).round() as u8).collect()
}

/// Planes of bytes as a PNG whose sides have at most [`SIDE`] pixels.
fn small(planes: &[u8], channels: usize, size: [usize; 2]) -> Result<SmallPicture> {
    let longer = size[0].max(size[1]);
    let to = match longer <= SIDE {
        true => size,
        false => size.map(|side| (side * SIDE).div_ceil(longer)),
    };
    let mut scaled = vec![0; channels * to[0] * to[1]];
    let window = Window { top: 0, left: 0, height: size[0], width: size[1] };
    resized_crop(Picture { pixels: planes, size }, window, to, &mut scaled);
    let plane = to[0] * to[1];
    let mixed: Vec<u8> =
        (0..plane).flat_map(|at| (0..channels).map(move |c| c * plane + at)).map(|at| scaled[at]).collect();
    let colour = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let mut png = Vec::new();
    PngEncoder::new(&mut png)
        .write_image(&mixed, to[1] as u32, to[0] as u32, colour)
        .map_err(|e| Error::internal(format!("cannot encode a picture: {e}")))?;
    Ok(SmallPicture { png, width: to[1], height: to[0] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldFacts, FieldMut, SampleMut};

    /// Images of floats: a gradient from the left to the right, times the channel's number.
    struct Floats([usize; 3]);

    impl Dataset for Floats {
        fn len(&self) -> usize {
            1
        }
        fn input(&self) -> FieldFacts {
            FieldFacts { shape: self.0.to_vec(), kind: FieldKind::Float }
        }
        fn target(&self) -> FieldFacts {
            FieldFacts { shape: vec![], kind: FieldKind::Index(2) }
        }
        fn write(&self, _key: SampleKey, to: SampleMut<'_>) -> Result<()> {
            let [_, height, width] = self.0;
            let FieldMut::Float(input) = to.input else { panic!("floats") };
            for (i, value) in input.iter_mut().enumerate() {
                *value = (i / (height * width)) as f32 * (i % width) as f32 - 1.0;
            }
            Ok(())
        }
    }

    const KEY: SampleKey = SampleKey { seed: 0, epoch: 0, sample: 0 };

    #[test]
    fn pictures_are_small_and_keep_their_colours_and_proportions() {
        let picture = picture_of(&Floats([3, 8, 10]), KEY).unwrap().unwrap();
        assert_eq!((picture.width, picture.height), (10, 8));
        let decoded = image::load_from_memory(&picture.png).unwrap().into_rgb8();
        // Channel 0 is constant; the last one has the largest value.
        assert_eq!(decoded.get_pixel(0, 3).0, [0, 0, 0]);
        let [red, green, blue] = decoded.get_pixel(9, 7).0;
        assert!(red == 0 && (127..=128).contains(&green) && blue == 255, "{red} {green} {blue}");
        let picture = picture_of(&Floats([1, 100, 400]), KEY).unwrap().unwrap();
        assert_eq!((picture.width, picture.height), (96, 24));
        let decoded = image::load_from_memory(&picture.png).unwrap();
        assert_eq!((decoded.width(), decoded.height()), (96, 24));
    }

    #[test]
    fn what_is_no_image_has_no_picture() {
        assert_eq!(picture_of(&Floats([2, 8, 8]), KEY).unwrap(), None);
        assert_eq!(picture_of(&Floats([3, 1, 8]), KEY).unwrap(), None);
    }

    #[test]
    fn values_without_a_range_are_black() {
        assert_eq!(as_bytes(&[2.0, 2.0]), [0, 0]);
        assert_eq!(as_bytes(&[f32::NAN, f32::NAN]), [0, 0]);
        assert_eq!(as_bytes(&[0.0, f32::NAN, 4.0, f32::NEG_INFINITY]), [0, 0, 255, 0]);
    }
}
