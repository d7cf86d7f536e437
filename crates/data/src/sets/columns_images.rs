//! A column of encoded images and one of classes as a source of images.

use super::columns::{Blobs, Cell, Label, RowSet, Stored, column, listed, same_in_splits};
use super::image_decode::decode_bytes;
use super::image_pixels::Pixels;
use crate::Content;
use crate::images::{ImageSource, Original};
use base::display;
use base::error::{Error, Result};
use image::DynamicImage;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::ops::ControlFlow::Continue;
use std::sync::Arc;

/// Most classes of a column of numbers without names: the largest number is one of them.
const MAX_CLASSES: u64 = 1 << 20;
/// Images whose bytes are part of the digest, at equal distances, and how much of each.
const DIGESTED: usize = 64;
const DIGESTED_BYTES: usize = 4096;

/// The images of the splits.
pub(super) struct ImageSplits {
    pub classes: Vec<String>,
    pub train: Arc<dyn ImageSource>,
    pub val: Option<Arc<dyn ImageSource>>,
    pub test: Option<Arc<dyn ImageSource>>,
}

/// Opens the columns `image` and `target`, each with the key of the spec that names it.
pub(super) fn open_images(
    stored: &Stored,
    image: &str,
    target: &str,
    pixels: Pixels,
    say: &mut dyn FnMut(&str),
) -> Result<ImageSplits> {
    let sets = [("train", Some(&stored.train)), ("val", stored.val.as_ref()), ("test", stored.test.as_ref())];
    let mut labelled = Vec::new();
    for (split, set) in sets.into_iter().filter_map(|(split, set)| Some((split, set?))) {
        let labels = labels(&**set, target, split != "test")?;
        match labels {
            Some(labels) => labelled.push((split, set.clone(), labels)),
            None => say(&format!("{}: left out, because no row has a label in `{target}`", set.place())),
        }
    }
    for (_, set, _) in &labelled {
        same_in_splits(&*stored.train, &**set, &[target])?;
    }
    let classes = Classes::find(&*stored.train, target, &labelled)?;
    let mut open = |wanted: &str| -> Result<Option<Arc<dyn ImageSource>>> {
        let Some((_, set, labels)) = labelled.iter().find(|(split, ..)| *split == wanted) else {
            return Ok(None);
        };
        let index = |(row, label): (usize, &Label)| {
            classes.index(label).ok_or_else(|| {
                let (place, label) = (set.place_of(row), label.in_words());
                Error::data(format!(
                    "{place}: {label} in `{target}` is none of the {} classes",
                    classes.len()
                ))
            })
        };
        let labels = labels.iter().enumerate().map(index).collect::<Result<Vec<usize>>>()?;
        let blobs = set.blobs(column(&**set, image, "image")?, say)?;
        let content = digest(&*blobs, &labels)?;
        Ok(Some(Arc::new(Images { set: set.clone(), blobs, labels, content, pixels })))
    };
    let train = open("train")?.ok_or_else(|| Error::internal("there are no training images"))?;
    let (val, test) = (open("val")?, open("test")?);
    Ok(ImageSplits { classes: classes.names(), train, val, test })
}

type Labelled = (&'static str, Arc<dyn RowSet>, Vec<Label>);

/// The names of the classes of training, and the number of its images of each.
pub(super) fn count_classes(stored: &Stored, target: &str) -> Result<Vec<(String, usize)>> {
    let set = &stored.train;
    let labels = labels(&**set, target, true)?.unwrap_or_default();
    let labelled = [("train", set.clone(), labels)];
    let classes = Classes::find(&**set, target, &labelled)?;
    let mut counts = vec![0; classes.len()];
    labelled[0].2.iter().filter_map(|label| classes.index(label)).for_each(|class| counts[class] += 1);
    Ok(classes.names().into_iter().zip(counts).collect())
}

/// The labels of all rows; `None` if no row of a split that needs none has one.
fn labels(set: &dyn RowSet, target: &str, needed: bool) -> Result<Option<Vec<Label>>> {
    let at = column(set, target, "target")?;
    let (mut labels, mut without) = (Vec::with_capacity(set.len()), None);
    set.read(&[at], &mut |row, cells| {
        let label = cells[0].to_label().map_err(|what| {
            Error::data(format!("{}: `{target}` holds {what}, which is not a class", set.place_of(row)))
                .hint("classes are whole numbers from 0, or texts; `[dataset] target` names their column")
        })?;
        match label {
            Some(label) => labels.push(label),
            None => without = without.or(Some(row)),
        }
        Ok(Continue(()))
    })?;
    match without {
        Some(_) if labels.is_empty() && !needed => Ok(None),
        Some(row) => Err(Error::data(format!("{}: the row has no label in `{target}`", set.place_of(row)))
            .hint("remove such rows; only a test split may be without labels, and is left out then")),
        None => Ok(Some(labels)),
    }
}

/// The classes of a data set.
enum Classes {
    /// Numbers from 0, perhaps with names.
    Numbers(Vec<String>),
    /// Texts, sorted.
    Names(Vec<String>),
}

impl Classes {
    /// The classes that the column `target` of training declares, or else those of the labels.
    fn find(train: &dyn RowSet, target: &str, labelled: &[Labelled]) -> Result<Self> {
        let column = train.columns().iter().find(|column| column.name == target);
        if let Some(names) = column.and_then(|column| column.classes.clone()) {
            return Ok(Self::Numbers(names));
        }
        let (mut largest, mut names) = (None, BTreeSet::new());
        for label in labelled.iter().flat_map(|(_, _, labels)| labels) {
            match label {
                Label::Number(number) => largest = largest.max(Some(*number)),
                Label::Name(name) => _ = names.insert(name.clone()),
            }
        }
        let place = || labelled.first().map_or_else(String::new, |(_, set, _)| set.place().to_owned());
        match (largest, names.first()) {
            (Some(number), Some(name)) => Err(Error::data(format!(
                "{}: some classes are numbers, such as {number}, and some texts, such as `{}`",
                place(),
                display::name(name)
            ))),
            (Some(number), _) if number >= MAX_CLASSES => {
                let what = format!("{}: the largest class is {number}", place());
                Err(Error::data(what).hint("classes are whole numbers from 0 without large gaps, or texts"))
            }
            (Some(number), _) => Ok(Self::Numbers((0..=number).map(|i| i.to_string()).collect())),
            (None, _) => Ok(Self::Names(names.into_iter().collect())),
        }
    }

    fn len(&self) -> usize {
        let (Self::Numbers(names) | Self::Names(names)) = self;
        names.len()
    }

    fn names(self) -> Vec<String> {
        let (Self::Numbers(names) | Self::Names(names)) = self;
        names
    }

    fn index(&self, label: &Label) -> Option<usize> {
        match (self, label) {
            (Self::Numbers(names), Label::Number(i)) => usize::try_from(*i).ok().filter(|i| *i < names.len()),
            (Self::Numbers(names), Label::Name(name)) => names.iter().position(|known| known == name),
            (Self::Names(names), Label::Name(name)) => names.binary_search(name).ok(),
            (Self::Names(_), Label::Number(_)) => None,
        }
    }
}

impl Label {
    fn in_words(&self) -> String {
        match self {
            Self::Number(i) => format!("the class {i}"),
            Self::Name(name) => format!("the class `{}`", display::name(name)),
        }
    }
}

/// Classes in a message.
pub(super) fn in_words(classes: &[String]) -> String {
    format!("{} classes ({})", classes.len(), listed(classes.iter().map(String::as_str)))
}

/// Digest of the classes, of the sizes of all images, and of the first bytes of some. It does not depend on how they are stored.
fn digest(blobs: &dyn Blobs, labels: &[usize]) -> Result<Content> {
    let mut hasher = Sha256::new();
    for (row, label) in labels.iter().enumerate() {
        hasher.update((*label as u64).to_le_bytes());
        hasher.update(blobs.size(row).to_le_bytes());
    }
    let apart = labels.len().div_ceil(DIGESTED).max(1);
    for row in (0..labels.len()).step_by(apart) {
        let bytes = blobs.get(row)?;
        hasher.update(&bytes[..bytes.len().min(DIGESTED_BYTES)]);
    }
    Ok(hasher.finalize().into())
}

struct Images {
    set: Arc<dyn RowSet>,
    blobs: Box<dyn Blobs>,
    labels: Vec<usize>,
    content: Content,
    pixels: Pixels,
}

impl ImageSource for Images {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn content(&self) -> Option<Content> {
        Some(self.content)
    }

    fn place(&self, index: usize) -> Option<String> {
        Some(self.set.place_of(index))
    }

    fn class(&self, index: usize) -> Result<usize> {
        Ok(self.labels[index])
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        self.pixels.fitted(self.decoded(index)?, scratch);
        Ok((scratch, self.labels[index]))
    }

    fn original<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Original<'a>> {
        let size = Some(self.pixels.whole(self.decoded(index)?, scratch));
        Ok(Original { pixels: scratch, class: self.labels[index], size })
    }
}

impl Images {
    fn decoded(&self, index: usize) -> Result<DynamicImage> {
        decode_bytes(&self.blobs.get(index)?).map_err(|why| {
            Error::data(format!("cannot decode the image at {}: {why}", self.set.place_of(index)))
                .hint("write the data set again without this row, or with a PNG or JPEG in it")
        })
    }
}

/// The error of a cell that holds no image.
pub(super) fn no_image(place: &str, column: &str, cell: &Cell<'_>) -> Error {
    let (column, what) = (display::name(column), cell.in_words());
    Error::data(format!("{place}: `{column}` holds {what} instead of the bytes of an image")).hint(
        "`[dataset] image` names a column of PNG or JPEG files; paths of images in other files are not followed",
    )
}
