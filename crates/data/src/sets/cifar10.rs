//! `cifar10`: Krizhevsky's 60,000 images of 3 x 32 x 32 in ten classes. The official test set is used for validation
//! unless `val_split` is set; `val_split = 0.1, split_seed = 42` equals `random_split` with `manual_seed(42)`.

use super::cifar10_files::{FILES, Files, PIXELS, RECORD};
use super::official::CIFAR10;
use crate::fingerprint::{digest_of_parts, sampled_digest};
use crate::image_config::ChannelStats;
use crate::images::{ImageSetBuilder, ImageSource, image_in};
use crate::split::SplitOptions;
use crate::store::DataFile;
use crate::transforms::TransformOptions;
use crate::{Content, DataFacts, DatasetSource, Splits};
use base::error::{Error, Result};
use spec::Fields;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEFAULT_STATS: ChannelStats =
    ChannelStats { mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616] };
const SHAPE: [usize; 3] = [3, 32, 32];

#[derive(Clone, Debug)]
struct Cifar10Source {
    files: Files,
    split: SplitOptions,
    transform: TransformOptions,
}

/// Reads the `[dataset]` table.
pub fn cifar10(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    Arc::new(Cifar10Source {
        files: Files(fields.config()),
        split: SplitOptions::read(fields),
        transform: TransformOptions::read(fields, SHAPE[0], DEFAULT_STATS),
    })
}

impl DatasetSource for Cifar10Source {
    fn facts(&self) -> DataFacts {
        self.files.0.facts(SHAPE, 50_000, &self.split)
    }

    fn check_files(&self) -> Result<()> {
        self.files.are_there_or_allowed()
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.files.prepare(say)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.folder().into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        let folder = self.files.folder()?;
        let source =
            |files: &[&str]| Records::open(&folder, files).map(|r| Arc::new(r) as Arc<dyn ImageSource>);
        let names = FILES.map(|f| f.0);
        let (train, test) = (source(&names[..5])?, source(&names[5..])?);
        let classes = CIFAR10.map(str::to_owned).to_vec();
        let builder = ImageSetBuilder::new(SHAPE[0], SHAPE[1], classes, self.transform.clone());
        builder.splits(train, Some(test), &self.split)
    }
}

/// The records of several files, concatenated.
struct Records {
    /// Each file with the index of its first record.
    files: Vec<(usize, DataFile)>,
    len: usize,
    content: Content,
}

impl Records {
    fn open(folder: &Path, names: &[&str]) -> Result<Self> {
        let (mut files, mut len, mut digests) = (Vec::new(), 0, Vec::new());
        for name in names {
            let path = folder.join(name);
            let file = DataFile::open(&path)?;
            if file.len() % RECORD != 0 {
                return Err(Error::data(format!(
                    "{} has {} bytes, which is not a multiple of {RECORD}",
                    path.display(),
                    file.len()
                )));
            }
            let records = file.len() / RECORD;
            digests.push(sampled_digest(&file)?);
            files.push((len, file));
            len += records;
        }
        Ok(Self { files, len, content: digest_of_parts(digests) })
    }

    /// The file of an image, and the index of its first.
    fn file(&self, index: usize) -> (usize, &DataFile) {
        let (first, file) = &self.files[self.files.partition_point(|(first, _)| *first <= index) - 1];
        (*first, file)
    }
}

impl ImageSource for Records {
    fn len(&self) -> usize {
        self.len
    }

    fn content(&self) -> Option<Content> {
        Some(self.content)
    }

    fn place(&self, index: usize) -> Option<String> {
        let (first, file) = self.file(index);
        Some(image_in(file.path(), index - first))
    }

    fn class(&self, index: usize) -> Result<usize> {
        let (first, file) = self.file(index);
        Ok(usize::from(file.read((index - first) * RECORD, 1, &mut Vec::new())?[0]))
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        let (first, file) = self.file(index);
        let record = file.read((index - first) * RECORD, RECORD, scratch)?;
        Ok((&record[1..][..PIXELS], usize::from(record[0])))
    }
}

#[cfg(test)]
#[path = "cifar10_tests.rs"]
mod tests;
