//! Labelled images from any source (files of records, decoded files, generated images) as a [`Dataset`]: a part of the
//! source's samples, transformed.

use super::resample::Picture;
use super::split::Subset;
use super::transforms::{ImageShape, ImageTransform, TransformOptions};
use super::{
    Content, Dataset, Encoding, FieldFacts, FieldKind, FieldMut, ImageEncoding, NumberEncoding, SampleKey,
    SampleMut, Splits, StoredImages,
};
use base::error::{Error, Result};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

/// Images as planes of bytes (channel, row, column), with their classes.
pub trait ImageSource: Send + Sync {
    fn len(&self) -> usize;
    /// See [`Dataset::content`].
    fn content(&self) -> Option<Content> {
        None
    }
    /// Image `index` and its class. `scratch` is a buffer for sources that read or compute the bytes.
    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)>;
    /// See [`Dataset::place`].
    fn place(&self, index: usize) -> Option<String> {
        let _ = index;
        None
    }
    /// The class of image `index`, without its pixels where that is cheaper.
    fn class(&self, index: usize) -> Result<usize> {
        self.image(index, &mut Vec::new()).map(|(_, class)| class)
    }
    /// What the model predicts of image `index`, scaled, where that is a number ([`ImageEncoding::number`]) and not its class.
    fn number(&self, index: usize) -> Option<f32> {
        let _ = index;
        None
    }
    /// As `image`, with the image's own height and width if it is not scaled to those of the samples:
    /// random-resized-crop scales its window itself.
    fn original<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Original<'a>> {
        let (pixels, class) = self.image(index, scratch)?;
        Ok(Original { pixels, class, size: None })
    }
}

/// An image in its original size.
pub struct Original<'a> {
    pub pixels: &'a [u8],
    pub class: usize,
    /// Height and width, unless they are those of the samples.
    pub size: Option<[usize; 2]>,
}

/// A split of an image data set.
pub struct ImageSet {
    source: Arc<dyn ImageSource>,
    part: Subset,
    transform: ImageTransform,
    encoding: Arc<ImageEncoding>,
}

thread_local! {
    /// Buffers for one image, as the source computes it and as it is edited, reused for every sample.
    static SCRATCH: RefCell<[Vec<u8>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Dataset for ImageSet {
    fn len(&self) -> usize {
        self.part.len()
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: self.transform.shape().to_vec(), kind: FieldKind::Float }
    }
    fn target(&self) -> FieldFacts {
        match self.encoding.number {
            Some(_) => FieldFacts { shape: vec![1], kind: FieldKind::Float },
            None => class_facts(self.encoding.classes.len()),
        }
    }
    fn target_scale(&self) -> f64 {
        self.encoding.number.map_or(1.0, |number| number.std)
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let FieldMut::Float(input) = to.input else { return Err(wrong_buffers("images")) };
        self.read(key, |pixels| self.transform.apply(key, pixels, input), to.target)
    }
    fn content(&self) -> Option<Content> {
        self.source.content().map(|content| self.part.content(content))
    }
    fn class_counts(&self) -> Option<Vec<usize>> {
        if self.encoding.number.is_some() {
            return None;
        }
        let classes = (0..self.part.len()).map(|i| self.source.class(self.part.get(i)).ok());
        counts(self.encoding.classes.len(), classes)
    }
    fn place(&self, index: u64) -> Option<String> {
        self.source.place(self.part.get(index as usize))
    }
    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Images((*self.encoding).clone()))
    }
    fn stored(&self) -> Option<&dyn StoredImages> {
        Some(self)
    }
}

impl StoredImages for ImageSet {
    fn transform(&self) -> &ImageTransform {
        &self.transform
    }
    fn write_stored(&self, key: SampleKey, pixels: &mut [u8], target: FieldMut<'_>) -> Result<()> {
        self.read(key, |stored| pixels.copy_from_slice(stored), target)
    }
}

impl ImageSet {
    /// Passes the pixels of image `key.sample`, edited (`ImageTransform::edit`), to `take`, and writes its target.
    fn read(&self, key: SampleKey, take: impl FnOnce(&[u8]), target: FieldMut<'_>) -> Result<()> {
        SCRATCH.with_borrow_mut(|[scratch, edited]| {
            let index = self.part.get(key.sample as usize);
            let Original { pixels, class, size } = match self.transform.augment().resized_crop {
                Some(_) => self.source.original(index, scratch)?,
                None => {
                    let (pixels, class) = self.source.image(index, scratch)?;
                    Original { pixels, class, size: None }
                }
            };
            self.write_target(index, class, target)?;
            if self.transform.edits() {
                let [channels, height, width] = self.transform.shape();
                edited.resize(channels * height * width, 0);
                let size = size.unwrap_or([height, width]);
                self.transform.edit(key, Picture { pixels, size }, edited);
                take(edited);
            } else {
                take(pixels);
            }
            Ok(())
        })
    }

    fn write_target(&self, index: usize, class: usize, to: FieldMut<'_>) -> Result<()> {
        let classes = self.encoding.classes.len();
        match (to, self.encoding.number, self.source.number(index)) {
            (FieldMut::Float(to), Some(_), Some(number)) => to[0] = number,
            (FieldMut::Index(_), None, _) if class >= classes => {
                let place = self.source.place(index).map_or(String::new(), |place| format!("{place}: "));
                return Err(Error::data(format!(
                    "{place}label {class} is out of range: the data set has {classes} classes"
                )));
            }
            (FieldMut::Index(to), None, _) => to[0] = class as i64,
            _ => return Err(wrong_buffers("images and their targets")),
        }
        Ok(())
    }
}

/// The place of an image in a file of several.
pub(super) fn image_in(path: &Path, index: usize) -> String {
    format!("{}, image {index} (counted from 0)", path.display())
}

/// How many samples each class has; `None` if one of them is not known.
pub(super) fn counts(classes: usize, samples: impl Iterator<Item = Option<usize>>) -> Option<Vec<usize>> {
    let mut counts = vec![0; classes];
    for class in samples {
        *counts.get_mut(class?)? += 1;
    }
    Some(counts)
}

/// Facts of a target that is a class label.
pub(super) fn class_facts(classes: usize) -> FieldFacts {
    FieldFacts { shape: vec![], kind: FieldKind::Index(classes) }
}

pub(super) fn wrong_buffers(what: &str) -> Error {
    Error::internal(format!("the batch's buffers don't fit a data set of {what}"))
}

/// The settings shared by the splits of an image data set.
pub(super) struct ImageSetBuilder {
    shape: ImageShape,
    transform: TransformOptions,
    encoding: Arc<ImageEncoding>,
}

impl ImageSetBuilder {
    /// Square images of `classes`, which are named by index.
    pub fn new(channels: usize, size: usize, classes: Vec<String>, transform: TransformOptions) -> Self {
        let encoding = Arc::new(ImageEncoding::new(channels, size, &transform, classes));
        Self { shape: [channels, size, size], transform, encoding }
    }

    /// Images of which the model predicts a number, in this scale.
    pub fn of_numbers(self, number: NumberEncoding) -> Self {
        let encoding = ImageEncoding { number: Some(number), ..(*self.encoding).clone() };
        Self { encoding: Arc::new(encoding), ..self }
    }

    pub fn set(&self, source: &Arc<dyn ImageSource>, part: Subset, training: bool) -> Arc<dyn Dataset> {
        Arc::new(ImageSet {
            source: source.clone(),
            part,
            transform: self.transform.build(self.shape, training),
            encoding: self.encoding.clone(),
        })
    }

    /// Splits `train` into training and validation; without a split, validation is `test`, the official test set.
    ///
    /// # Errors
    /// A class can't be read.
    pub fn splits(
        &self,
        train: Arc<dyn ImageSource>,
        test: Option<Arc<dyn ImageSource>>,
        options: &super::split::SplitOptions,
    ) -> Result<Splits> {
        let classes = self.encoding.number.is_none();
        let class = |index: usize| train.class(index);
        let (training, validation) = options.split(train.len(), classes.then_some(&class))?;
        let val = match &test {
            _ if options.val_split > 0.0 => Some(self.set(&train, validation, false)),
            Some(test) => {
                let class = |index: usize| test.class(index);
                let part = options.validation(Subset::all(test.len()), classes.then_some(&class))?;
                Some(self.set(test, part, false))
            }
            None => None,
        };
        let test = test.map(|test| self.set(&test, Subset::all(test.len()), false));
        Ok(Splits { train: self.set(&train, training, true), val, test })
    }
}
