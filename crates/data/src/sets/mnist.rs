//! `mnist` and `fashion-mnist`: 70,000 grey images of 28 x 28 in ten classes, as four IDX files, gzipped or not. The
//! official test set is used for validation unless `val_split` is set.

use super::official::{CLASSES, OfficialFiles};
use crate::fingerprint::{digest_of_parts, sampled_digest};
use crate::image_config::ChannelStats;
use crate::images::{ImageSetBuilder, ImageSource, image_in};
use crate::split::SplitOptions;
use crate::store::{
    Cache, DataFile, Digest, Download, FileSpec, absolute, create_atomically, fetch, gunzip, identity,
    verify, with_temporary_path,
};
use crate::transforms::TransformOptions;
use crate::{Content, DataFacts, DatasetKind, DatasetSource, Splits};
use base::error::{Error, Result};
use spec::Fields;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The data-set kinds of the MNIST family.
#[derive(Clone, Copy, Debug)]
pub struct Mnist {
    title: &'static str,
    classes: [&'static str; CLASSES],
    /// Folders in `root` to search: our own and torchvision's.
    folders: [&'static str; 2],
    /// Size and SHA-256 of the gzipped files, in the order of [`STEMS`].
    gzipped: [(u64, &'static str); 4],
    default_stats: ChannelStats,
    /// Folders of the files on the network, in the order in which they are asked.
    sites: [&'static str; 2],
}

impl Mnist {
    pub const DIGITS: Self = Self {
        title: "MNIST",
        classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        folders: ["mnist", "MNIST/raw"],
        gzipped: [
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ],
        default_stats: ChannelStats { mean: [0.1307; 3], std: [0.3081; 3] },
        sites: [
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ],
    };

    pub const FASHION: Self = Self {
        title: "Fashion-MNIST",
        classes: [
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ],
        folders: ["fashion-mnist", "FashionMNIST/raw"],
        gzipped: [
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ],
        default_stats: ChannelStats { mean: [0.2860; 3], std: [0.3530; 3] },
        sites: [
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ],
    };
}

const STEMS: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];
/// Sizes of the unpacked files, in bytes.
const SIZES: [u64; 4] = [47_040_016, 60_008, 7_840_016, 10_008];
const SIDE: usize = 28;
const SHAPE: [usize; 3] = [1, SIDE, SIDE];

/// Whether file `i` contains images rather than labels.
fn is_images(i: usize) -> bool {
    i.is_multiple_of(2)
}

#[derive(Clone, Debug)]
struct MnistSource {
    set: Mnist,
    files: OfficialFiles,
    split: SplitOptions,
    transform: TransformOptions,
}

impl DatasetKind for Mnist {
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
        Arc::new(MnistSource {
            set: *self,
            files: fields.config(),
            split: SplitOptions::read(fields),
            transform: TransformOptions::read(fields, 1, self.default_stats),
        })
    }
}

impl DatasetSource for MnistSource {
    fn facts(&self) -> DataFacts {
        self.files.facts(SHAPE, 60_000, &self.split)
    }

    fn check_files(&self) -> Result<()> {
        let is_there = |i: &usize| self.unpacked(*i).or_else(|| self.gzipped(*i)).is_some();
        (0..4).find(|i| !is_there(i)).map_or(Ok(()), |i| self.addresses(i).map(drop))
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        (0..4).try_for_each(|i| self.prepare_file(i, say))
    }

    fn files(&self) -> Vec<PathBuf> {
        (0..4).filter_map(|i| self.unpacked(i)).collect()
    }

    fn open(&self) -> Result<Splits> {
        let paths = [0, 1, 2, 3].map(|i| self.unpacked(i).ok_or_else(|| self.missing(i)));
        let [images, labels, test_images, test_labels] = paths;
        let train: Arc<dyn ImageSource> = Arc::new(IdxPair::open(&images?, &labels?)?);
        let test: Arc<dyn ImageSource> = Arc::new(IdxPair::open(&test_images?, &test_labels?)?);
        let classes = self.set.classes.map(str::to_owned).to_vec();
        let builder = ImageSetBuilder::new(SHAPE[0], SIDE, classes, self.transform.clone());
        builder.splits(train, Some(test), &self.split)
    }
}

impl MnistSource {
    fn folders(&self) -> Vec<PathBuf> {
        let [own, torchvision] = self.set.folders;
        vec![self.files.root().join(own), self.files.root().join(torchvision), self.files.root().to_owned()]
    }

    /// File `i` in `root`, under either of its common names (`-idx3` or `.idx3`).
    fn find(&self, i: usize, suffix: &str) -> Option<PathBuf> {
        let dotted = STEMS[i].replace("-idx", ".idx");
        let names = [format!("{}{suffix}", STEMS[i]), format!("{dotted}{suffix}")];
        let all = self.folders().into_iter().flat_map(|f| names.clone().map(|n| f.join(n)));
        all.into_iter().find(|path| path.is_file())
    }

    fn gzipped(&self, i: usize) -> Option<PathBuf> {
        let downloaded = || self.files.cache.join(&self.cached_name(i, "gz")).ok().filter(|p| p.is_file());
        self.find(i, ".gz").or_else(downloaded)
    }

    fn cached_name(&self, i: usize, key: &str) -> String {
        format!("{}/{key}/{}{}", self.set.folders[0], STEMS[i], if key == "gz" { ".gz" } else { "" })
    }

    /// The path in the cache of the unpacked file.
    fn cached(&self, i: usize, gz: Option<&Path>) -> Result<PathBuf> {
        match gz {
            Some(gz) if !self.files.verify => self.files.cache.join(&self.cached_name(i, &identity(gz)?)),
            _ => self.files.cache.join(&self.cached_name(i, &self.set.gzipped[i].1[..12])),
        }
    }

    /// The unpacked file, if there is one.
    fn unpacked(&self, i: usize) -> Option<PathBuf> {
        let cached = || self.cached(i, self.gzipped(i).as_deref()).ok().filter(|path| path.is_file());
        self.find(i, "").or_else(cached)
    }

    /// The gzipped file.
    fn spec(&self, i: usize) -> FileSpec {
        let known = self.files.verify.then_some(self.set.gzipped[i]);
        FileSpec {
            size: known.map(|known| known.0),
            digest: known.map(|known| Digest::Sha256(known.1.to_owned())),
            from: format!("{}/{}.gz", self.set.sites[0], STEMS[i]),
        }
    }

    fn unpacked_spec(&self, i: usize) -> FileSpec {
        FileSpec { size: self.files.verify.then_some(SIZES[i]), digest: None, ..self.spec(i) }
    }

    fn prepare_file(&self, i: usize, say: &mut dyn FnMut(&str)) -> Result<()> {
        if let Some(path) = self.unpacked(i) {
            return verify(&path, &self.unpacked_spec(i), &self.files.cache);
        }
        let gz = match self.gzipped(i) {
            Some(gz) => gz,
            None => self.fetch(i, say)?,
        };
        verify(&gz, &self.spec(i), &self.files.cache)?;
        let of_cache = self.files.cache.folder().is_some_and(|cache| gz.starts_with(cache));
        let beside = match of_cache {
            true => self.files.root().join(self.set.folders[0]).join(STEMS[i]),
            false => gz.with_extension(""),
        };
        let target = self.files.unpacked_place(beside, of_cache, || self.cached(i, Some(&gz)))?;
        say(&self.files.unpacking(&gz, &target, SIZES[i]));
        create_atomically(&target, |path| self.unpack(i, &gz, path))
    }

    /// Unpacks file `i` from `gz` to `path` and checks it.
    fn unpack(&self, i: usize, gz: &Path, path: &Path) -> Result<()> {
        gunzip(gz, path, 1 << 30)?;
        verify(path, &self.unpacked_spec(i), &Cache::none())?;
        let file = DataFile::open(path)?;
        if is_images(i) { header::<3>(&file).map(drop) } else { header::<1>(&file).map(drop) }
    }

    /// Where file `i` is downloaded from.
    ///
    /// # Errors
    /// Downloads are not allowed.
    fn addresses(&self, i: usize) -> Result<Vec<String>> {
        let sites: Vec<&str> = match &self.files.url {
            Some(url) => vec![url.0.trim_end_matches('/')],
            None => self.set.sites.to_vec(),
        };
        let urls: Vec<String> = sites.iter().map(|site| format!("{site}/{}.gz", STEMS[i])).collect();
        let target = self.files.root().join(self.set.folders[0]).join(format!("{}.gz", STEMS[i]));
        self.files.may_download(|| self.missing(i), &urls[0], &target)?;
        Ok(urls)
    }

    fn fetch(&self, i: usize, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let urls = self.addresses(i)?;
        let (name, folder) = (format!("{}.gz", STEMS[i]), self.files.root().join(self.set.folders[0]));
        self.files.make(&folder);
        let cached = || self.files.cache.join(&self.cached_name(i, "gz"));
        let path = self.files.place(&folder, &name, cached)?;
        let check = |gz: &Path| with_temporary_path(&path, |raw| self.unpack(i, gz, raw));
        fetch(Download { urls: &urls, target: &path, spec: &self.spec(i) }, &check, say)?;
        Ok(path)
    }

    fn missing(&self, i: usize) -> Error {
        let folders: Vec<String> = self.folders().iter().map(|f| absolute(f).display().to_string()).collect();
        let (title, stem, spec) = (self.set.title, STEMS[i], self.spec(i));
        Error::data(format!(
            "{title}: {stem} is missing\n  looked for {stem} and {stem}.gz in {}\n  expected {} bytes, gzipped {spec}",
            folders.join(", "),
            SIZES[i]
        ))
        .hint(format!("copy {} to {}", spec.from, folders[0]))
    }
}

/// A pair of IDX files: images, and labels, which are kept in memory.
struct IdxPair {
    images: DataFile,
    labels: Vec<u8>,
    content: Content,
}

/// Offsets of the pixels and the labels, after the headers.
const IMAGES_AT: usize = 16;
const LABELS_AT: usize = 8;

impl IdxPair {
    fn open(images: &Path, labels: &Path) -> Result<Self> {
        let (image_file, label_file) = (DataFile::open(images)?, DataFile::open(labels)?);
        let [len, height, width] = header::<3>(&image_file)?;
        let [count] = header::<1>(&label_file)?;
        if [height, width] != [SIDE, SIDE] {
            return Err(Error::data(format!(
                "{} has images of {height} x {width} instead of 28 x 28",
                images.display()
            )));
        }
        if count != len {
            let message =
                format!("{} has {len} images, but {} has {count} labels", images.display(), labels.display());
            return Err(Error::data(message).hint("the files belong to different data sets"));
        }
        let content = digest_of_parts([sampled_digest(&image_file)?, sampled_digest(&label_file)?]);
        let mut labels = vec![0; len];
        label_file.read_at(LABELS_AT, &mut labels)?;
        Ok(Self { images: image_file, labels, content })
    }
}

/// The dimensions in the header of an IDX file of bytes with `D` dimensions, checked against the file's size.
fn header<const D: usize>(file: &DataFile) -> Result<[usize; D]> {
    let mut bytes = vec![0; file.len().min(4 + 4 * D)];
    file.read_at(0, &mut bytes)?;
    let word = |i: usize| bytes.get(4 * i..4 * i + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    if word(0) != Some(0x0800 + D as u32) {
        return Err(Error::data(format!(
            "{} is not an IDX file of bytes with {D} dimensions",
            file.path().display()
        ))
        .hint("delete it and download it again"));
    }
    let sizes = std::array::from_fn(|i| word(i + 1).unwrap_or(0) as usize);
    let expected =
        sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size)).and_then(|n| n.checked_add(4 + 4 * D));
    if expected != Some(file.len()) {
        let declared = expected.map_or("too many".to_owned(), |n| n.to_string());
        return Err(Error::data(format!(
            "{} is truncated or damaged: its header declares {declared} bytes, but it has {}",
            file.path().display(),
            file.len()
        ))
        .hint("delete it and download it again"));
    }
    Ok(sizes)
}

impl ImageSource for IdxPair {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn content(&self) -> Option<Content> {
        Some(self.content)
    }

    fn place(&self, index: usize) -> Option<String> {
        Some(image_in(self.images.path(), index))
    }

    fn class(&self, index: usize) -> Result<usize> {
        Ok(usize::from(self.labels[index]))
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        let pixels = self.images.read(IMAGES_AT + index * SIDE * SIDE, SIDE * SIDE, scratch)?;
        Ok((pixels, usize::from(self.labels[index])))
    }
}

#[cfg(test)]
#[path = "mnist_tests.rs"]
mod tests;
