//! Images in files of their own, each with its class or number: what the data sets of such files have in common.

use super::image_decode::{DecodeError, decode};
use super::image_files::{content, unreadable};
use super::image_pixels::Pixels;
use crate::fingerprint::digest_of_parts;
use crate::image_config::ChannelStats;
use crate::images::{ImageSetBuilder, ImageSource, Original};
use crate::store::Cache;
use crate::transforms::TransformOptions;
use crate::{Content, DataFacts, FieldFacts, FieldKind};
use base::error::{Error, IoContext, Result};
use image::DynamicImage;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The statistics of ImageNet.
pub(super) const DEFAULT_STATS: ChannelStats =
    ChannelStats { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

choice! {
    /// What to do with unreadable images.
    BadImages:
    /// End the run at the first one.
    Error = "error",
    /// Read all images at the first start, leave out the unreadable ones, and keep the result in `cache` until a file
    /// changes.
    Skip = "skip",
}

/// PNG and JPEG files as samples.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Files of images"))]
pub(super) struct ImageFiles {
    /// Width and height of the samples, to which images are scaled (`resize`).
    #[default = 224]
    #[schemars(range(min = 8, max = 1024))]
    image_size: usize,
    /// 1 for grey (brightness by ITU-R 601, as Pillow's mode `L`), 3 for colour.
    #[default = 3]
    #[schemars(range(min = 1, max = 3))]
    channels: usize,
    /// What to do with unreadable images.
    pub bad_images: BadImages,
    /// Where the result of `bad_images = "skip"` is kept. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
    #[serde(skip)]
    transform: TransformOptions,
}

impl ImageFiles {
    /// Reads the keys of the transforms, once those of this table are known.
    pub fn read_transform(&mut self, fields: &mut Fields<'_>) {
        let scaling = fields.config();
        self.transform =
            TransformOptions { scaling, ..TransformOptions::read(fields, self.channels, DEFAULT_STATS) };
    }

    pub fn facts(&self) -> DataFacts {
        let shape = vec![self.channels, self.image_size, self.image_size];
        let input = Some(FieldFacts { shape, kind: FieldKind::Float });
        DataFacts { input, ..DataFacts::default() }
    }

    pub fn builder(&self, classes: Vec<String>) -> ImageSetBuilder {
        ImageSetBuilder::new(self.channels, self.image_size, classes, self.transform.clone())
    }

    /// With `bad_images = "skip"`: leaves out images of `place` that can't be read, and says how many.
    pub fn leave_out_unreadable(
        &self,
        place: &Path,
        images: &mut Vec<(PathBuf, usize)>,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        if self.bad_images != BadImages::Skip {
            return Ok(());
        }
        let bad = unreadable(place, images, &self.cache, say)?;
        if let Some((_, first)) = bad.first_key_value() {
            let (n, of, place) = (bad.len(), images.len(), place.display());
            say(&format!(
                "warning: {place}: {n} of {of} images can't be read and are left out, such as {first}"
            ));
        }
        let mut index = 0..;
        images.retain(|_| index.next().is_none_or(|i| !bad.contains_key(&i)));
        Ok(())
    }

    /// Images in `folder`, each with its class.
    pub fn source(&self, folder: &Path, images: Vec<(PathBuf, usize)>) -> Arc<dyn ImageSource> {
        self.source_of_numbers(folder, images, Vec::new())
    }

    /// Images in `folder`, of which the model predicts these numbers.
    pub fn source_of_numbers(
        &self,
        folder: &Path,
        images: Vec<(PathBuf, usize)>,
        numbers: Vec<f32>,
    ) -> Arc<dyn ImageSource> {
        let scaling = self.transform.scaling;
        let mut content = content(folder, &images);
        if !numbers.is_empty() {
            let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            content = digest_of_parts([&content[..], &numbers]);
        }
        let pixels = Pixels { size: self.image_size, channels: self.channels, scaling };
        Arc::new(Images { content, images, numbers, pixels })
    }
}

struct Images {
    content: Content,
    images: Vec<(PathBuf, usize)>,
    /// What the model predicts, if that is a number.
    numbers: Vec<f32>,
    pixels: Pixels,
}

impl ImageSource for Images {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn content(&self) -> Option<Content> {
        Some(self.content)
    }

    fn place(&self, index: usize) -> Option<String> {
        Some(self.images[index].0.display().to_string())
    }

    fn class(&self, index: usize) -> Result<usize> {
        Ok(self.images[index].1)
    }

    fn number(&self, index: usize) -> Option<f32> {
        self.numbers.get(index).copied()
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        self.pixels.fitted(self.decoded(index)?, scratch);
        Ok((scratch, self.images[index].1))
    }

    fn original<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Original<'a>> {
        let size = Some(self.pixels.whole(self.decoded(index)?, scratch));
        Ok(Original { pixels: scratch, class: self.images[index].1, size })
    }
}

impl Images {
    fn decoded(&self, index: usize) -> Result<DynamicImage> {
        let (path, _) = &self.images[index];
        match decode(path) {
            Ok(decoded) => Ok(decoded),
            Err(DecodeError::Io(e)) => Err(e).doing("read", path).map_err(Error::of_data),
            Err(DecodeError::Invalid(why)) => {
                let what = format!("cannot decode the image {}: {why}", path.display());
                Err(Error::data(what).hint(
                    "replace or remove the file, or set `[dataset] bad_images = \"skip\"` to leave out such images",
                ))
            }
        }
    }
}
