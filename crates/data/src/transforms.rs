//! Converts stored pixels to the network's input: normalisation, and in training random crop, flip and cutout, in one pass
//! over the image. What changes bytes comes before that (`edit`), on the host for every device. Draws are pure functions
//! of the sample's key, so they are the same on any rank and thread.

use super::SampleKey;
use super::color_jitter::ColorJitter;
use super::resample::{Picture, resized_crop};
use super::resized_crop::ResizedCrop;
use super::rng::{CounterRng, Stream};
use super::scaling::Scaling;

/// Channels, height, width.
pub type ImageShape = [usize; 3];

/// The settings of an image transform.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransformOptions {
    /// Mean and standard deviation per channel; `None` keeps pixels in [0, 1].
    pub normalize: Option<(Vec<f64>, Vec<f64>)>,
    /// Random transforms, applied in training only.
    pub augment: Augment,
    /// How images of files get the size of the samples.
    pub scaling: Scaling,
}

/// The random transforms of the training split, in the order in which they are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Augment {
    /// Crops a random window and scales it to the size of the samples; `None`: no such crop.
    pub resized_crop: Option<ResizedCrop>,
    /// Changes brightness, contrast, saturation and hue at random; `None`: not at all.
    pub color_jitter: Option<ColorJitter>,
    /// Width of the black padding from which the window is cropped.
    pub crop: Option<usize>,
    /// Flip horizontally with probability 1/2.
    pub flip: bool,
    /// Side of the cleared square.
    pub cutout: Option<usize>,
}

impl TransformOptions {
    /// The transform of a split; without `training` it only normalises.
    pub fn build(&self, shape: ImageShape, training: bool) -> ImageTransform {
        let (mean, std) =
            self.normalize.clone().unwrap_or_else(|| (vec![0.0; shape[0]], vec![1.0; shape[0]]));
        let augment = if training { self.augment } else { Augment::default() };
        let affine =
            mean.iter().zip(&std).map(|(m, s)| ((1.0 / (255.0 * s)) as f32, (-m / s) as f32)).collect();
        ImageTransform { shape, affine, augment }
    }
}

/// Converts pixels to floats, for one split.
#[derive(Clone, Debug)]
pub struct ImageTransform {
    shape: ImageShape,
    /// Per channel: output = pixel * factor + offset.
    affine: Vec<(f32, f32)>,
    augment: Augment,
}

/// The random choices for one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Position of the window in the image; pixels outside the image are black.
    pub top: isize,
    /// First column of the window.
    pub left: isize,
    /// Whether the window is flipped horizontally.
    pub flip: bool,
    /// Rows and columns that cutout clears.
    pub hole: Option<(std::ops::Range<usize>, std::ops::Range<usize>)>,
}

impl ImageTransform {
    /// Shape of a sample.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// Per channel `(factor, offset)`: a pixel becomes `pixel * factor + offset`.
    pub fn affine(&self) -> &[(f32, f32)] {
        &self.affine
    }

    /// The random transforms; all off unless the split is that of training.
    pub fn augment(&self) -> Augment {
        self.augment
    }

    /// Whether `edit` changes images.
    pub fn edits(&self) -> bool {
        self.augment.resized_crop.is_some() || self.augment.color_jitter.is_some()
    }

    /// Applies the transforms that work on bytes: crops and scales `picture` to the size of the samples, which it has
    /// already without random-resized-crop, and changes its colours. `out` has channels * height * width elements.
    pub fn edit(&self, key: SampleKey, picture: Picture<'_>, out: &mut [u8]) {
        let [channels, height, width] = self.shape;
        match self.augment.resized_crop {
            Some(crop) => {
                let window = crop.draw(picture.size, &mut CounterRng::new(key, Stream::ResizedCrop));
                resized_crop(picture, window, [height, width], out);
            }
            None => out.copy_from_slice(picture.pixels),
        }
        if let Some(jitter) = self.augment.color_jitter {
            for step in jitter.draw(&mut CounterRng::new(key, Stream::ColorJitter)) {
                step.apply(out, channels);
            }
        }
    }

    /// Transforms one image, stored as planes of bytes: `pixels` and `out` have channels * height * width elements.
    pub fn apply(&self, key: SampleKey, pixels: &[u8], out: &mut [f32]) {
        let [_, height, width] = self.shape;
        let draws = self.draw(key);
        let plane = height * width;
        for (c, &(factor, offset)) in self.affine.iter().enumerate() {
            let (pixels, out) = (&pixels[c * plane..][..plane], &mut out[c * plane..][..plane]);
            for (y, row) in out.chunks_exact_mut(width).enumerate() {
                let source = y as isize + draws.top;
                match usize::try_from(source).ok().filter(|&s| s < height) {
                    Some(s) => {
                        write_row(&pixels[s * width..][..width], row, draws.left, draws.flip, factor, offset)
                    }
                    None => row.fill(offset),
                }
            }
            if let Some((rows, columns)) = &draws.hole {
                for y in rows.clone() {
                    out[y * width..][columns.clone()].fill(0.0);
                }
            }
        }
    }

    /// The draws for the sample `key`.
    pub fn draw(&self, key: SampleKey) -> Draws {
        let [_, height, width] = self.shape;
        let Augment { crop, flip, cutout, .. } = self.augment;
        let (mut top, mut left) = (0, 0);
        if let Some(padding) = crop {
            let mut rng = CounterRng::new(key, Stream::Crop);
            let mut shift = || rng.below(2 * padding as u32 + 1) as isize - padding as isize;
            (top, left) = (shift(), shift());
        }
        let hole = cutout.map(|side| {
            let mut rng = CounterRng::new(key, Stream::Cutout);
            let mut span = |length: usize| {
                let start = rng.below(length as u32) as usize + length;
                // Offset by `length` to stay non-negative.
                let start = start - side.min(2 * length) / 2;
                start.saturating_sub(length)..(start + side).saturating_sub(length).min(length)
            };
            (span(height), span(width))
        });
        Draws { top, left, flip: flip && CounterRng::new(key, Stream::Flip).below(2) == 1, hole }
    }
}

/// Writes one row of the window that starts at column `left` of `pixels`, flipped if `flip`.
fn write_row(pixels: &[u8], row: &mut [f32], left: isize, flip: bool, factor: f32, offset: f32) {
    let width = pixels.len();
    // Columns of the window inside the image.
    let from = (-left).clamp(0, width as isize) as usize;
    let to = (width as isize - left).clamp(0, width as isize) as usize;
    if from >= to {
        return row.fill(offset);
    }
    let source = &pixels[(from as isize + left) as usize..][..to - from];
    let value = |&p: &u8| f32::from(p) * factor + offset;
    if flip {
        row[..width - to].fill(offset);
        row[width - from..].fill(offset);
        let inner = &mut row[width - to..width - from];
        inner.iter_mut().zip(source.iter().rev()).for_each(|(o, p)| *o = value(p));
    } else {
        row[..from].fill(offset);
        row[to..].fill(offset);
        row[from..to].iter_mut().zip(source).for_each(|(o, p)| *o = value(p));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(sample: u64) -> SampleKey {
        SampleKey { seed: 1, epoch: 2, sample }
    }

    fn options(augment: Augment) -> TransformOptions {
        TransformOptions { normalize: Some((vec![0.5, 0.25], vec![0.5, 0.2])), augment, ..Default::default() }
    }

    fn pixels() -> Vec<u8> {
        (0..2 * 5 * 6).map(|i| (i * 4 + 1) as u8).collect()
    }

    fn run(options: &TransformOptions, training: bool, sample: u64) -> Vec<f32> {
        let mut out = vec![f32::NAN; 60];
        options.build([2, 5, 6], training).apply(key(sample), &pixels(), &mut out);
        out
    }

    fn normalised(channel: usize, pixel: u8) -> f32 {
        let (mean, std) = [(0.5, 0.5), (0.25, 0.2)][channel];
        ((f64::from(pixel) / 255.0 - mean) / std) as f32
    }

    fn close(a: f32, b: f32) -> bool {
        (a - b).abs() < 1e-5
    }

    const ALL: Augment =
        Augment { resized_crop: None, color_jitter: None, crop: Some(2), flip: true, cutout: Some(3) };

    #[test]
    fn validation_is_only_normalised() {
        let out = run(&options(ALL), false, 3);
        for (i, (&o, p)) in out.iter().zip(pixels()).enumerate() {
            assert!(close(o, normalised(i / 30, p)), "{i}: {o}");
        }
        let raw = TransformOptions { augment: ALL, ..Default::default() };
        assert!(run(&raw, false, 3).iter().zip(pixels()).all(|(&o, p)| close(o, f32::from(p) / 255.0)));
    }

    /// Each augmented image must equal the original under exactly one of 25 shifts, flipped or not.
    #[test]
    fn crop_and_flip_move_whole_images() {
        let options = options(Augment { cutout: None, ..ALL });
        let (image, mut seen) = (pixels(), std::collections::BTreeMap::new());
        for sample in 0..1000 {
            let out = run(&options, true, sample);
            let mut found = Vec::new();
            for (top, left, flip) in
                (-2i32..=2).flat_map(|t| (-2..=2).flat_map(move |l| [(t, l, false), (t, l, true)]))
            {
                let expected = |c: usize, y: i32, x: i32| {
                    let (y, x) = (y + top, if flip { 5 - x } else { x } + left);
                    let inside = (0..5).contains(&y) && (0..6).contains(&x);
                    normalised(c, if inside { image[c * 30 + (y * 6 + x) as usize] } else { 0 })
                };
                let same = (0..60usize)
                    .all(|i| close(out[i], expected(i / 30, (i % 30 / 6) as i32, (i % 6) as i32)));
                if same {
                    found.push((top, left, flip));
                }
            }
            assert_eq!(found.len(), 1, "sample {sample}: {found:?}");
            *seen.entry(found[0]).or_insert(0) += 1;
        }
        // 50 outcomes, each expected 20 times.
        assert_eq!(seen.len(), 50);
        assert!(seen.values().all(|&n| n < 45), "{seen:?}");
    }

    #[test]
    fn cutout_clears_one_square_of_every_channel() {
        let options = options(Augment { cutout: Some(3), ..Augment::default() });
        let (mut largest, mut smallest) = (0, 99);
        for sample in 0..300 {
            let out = run(&options, true, sample);
            let cleared: Vec<usize> = (0..30).filter(|&i| out[i] == 0.0).collect();
            assert_eq!(cleared, (0..30).filter(|&i| out[30 + i] == 0.0).collect::<Vec<_>>());
            let rows: std::collections::BTreeSet<usize> = cleared.iter().map(|i| i / 6).collect();
            let columns: std::collections::BTreeSet<usize> = cleared.iter().map(|i| i % 6).collect();
            assert_eq!(rows.len() * columns.len(), cleared.len());
            largest = largest.max(cleared.len());
            smallest = smallest.min(cleared.len());
        }
        assert_eq!((smallest, largest), (4, 9)); // a corner, and the whole square
        // Larger than the image: everything is cleared, without overflow.
        let huge =
            TransformOptions { augment: Augment { cutout: Some(100), ..Augment::default() }, ..options };
        assert!(run(&huge, true, 0).iter().all(|&x| x == 0.0));
    }

    #[test]
    fn draws_depend_on_the_key_alone() {
        let options = options(ALL);
        assert_eq!(run(&options, true, 17), run(&options, true, 17));
        let transform = options.build([2, 5, 6], true);
        let mut other = vec![0.0; 60];
        let differing = (0..50)
            .filter(|&sample| {
                transform.apply(SampleKey { epoch: 3, ..key(sample) }, &pixels(), &mut other);
                other != run(&options, true, sample)
            })
            .count();
        assert!(differing > 40, "another epoch, other draws: {differing}");
    }
}
