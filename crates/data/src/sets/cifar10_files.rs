//! Finds the files of CIFAR-10, or makes them: the data set reads the official binary files; the binary archive is
//! unpacked and the Python release converted once.

use super::official::OfficialFiles;
use crate::store::{
    Cache, Digest, Download, FileSpec, Member, absolute, create_atomically, fetch, identity, read_batch,
    untar, verify, with_temporary_path,
};
use base::error::{Error, IoContext, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of one image: three planes of 32 x 32.
pub(super) const PIXELS: usize = 3072;
/// A label byte, then the image.
pub(super) const RECORD: usize = 1 + PIXELS;
const FILE_BYTES: u64 = 10_000 * RECORD as u64;

/// Binary file and its SHA-256; file of the Python release and its MD5 (from torchvision). The last one is the test set.
#[rustfmt::skip]
pub(super) const FILES: [(&str, &str, &str, &str); 6] = [
    ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
     "data_batch_1", "c99cafc152244af753f735de768cd75f"),
    ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
     "data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
    ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
     "data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
    ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
     "data_batch_4", "634d18415352ddfa80567beed471001a"),
    ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
     "data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
     "test_batch", "40351d587109b95175f43aff81a1287e"),
];

const BINARY: &str = "cifar-10-binary.tar.gz";
const PYTHON: &str = "cifar-10-python.tar.gz";
const BINARY_FOLDER: &str = "cifar-10-batches-bin";
const PYTHON_FOLDER: &str = "cifar-10-batches-py";
/// Binary files converted from the Python release.
const CONVERTED: &str = "cifar-10-batches-bin-from-py";
/// The only address of the official archives.
const SITE: &str = "https://www.cs.toronto.edu/~kriz";
/// Size and SHA-256 of the binary archive.
const ARCHIVE: (u64, &str) =
    (170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd");

/// The files of CIFAR-10.
#[derive(Clone, Debug)]
pub(super) struct Files(pub OfficialFiles);

/// A source from which the binary files can be made.
enum Origin {
    BinaryArchive(PathBuf),
    PythonArchive(PathBuf),
    PythonFolder(PathBuf),
}

impl Files {
    /// The folder of the binary files, after `prepare`.
    pub fn folder(&self) -> Result<PathBuf> {
        self.found().ok_or_else(|| self.missing())
    }

    /// # Errors
    /// There is nothing to read, and it is not to be downloaded.
    pub fn are_there_or_allowed(&self) -> Result<()> {
        let is_there = self.found().is_some() || self.origin().is_some();
        if is_there { Ok(()) } else { self.address().map(drop) }
    }

    /// Verifies the binary files; unpacks, converts or downloads them if they are missing.
    pub fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        if let Some(folder) = self.found() {
            return self.check(&folder);
        }
        let origin = match self.origin() {
            Some(origin) => origin,
            None => self.fetch(say)?,
        };
        let beside = self.0.root().join(origin.unpacks_to());
        let target = self.0.unpacked_place(beside, false, || self.cached(&origin))?;
        say(&self.0.unpacking(origin.path(), &target, FILES.len() as u64 * FILE_BYTES));
        create_atomically(&target, |folder| self.unpack(&origin, folder))
    }

    /// Creates `folder` and writes the binary files of `origin` to it.
    fn unpack(&self, origin: &Origin, folder: &Path) -> Result<()> {
        match origin {
            Origin::BinaryArchive(archive) => {
                untar(archive, &members(BINARY_FOLDER, |f| f.0.to_owned()), folder)?;
                self.check(folder)
            }
            Origin::PythonFolder(source) => {
                fs::create_dir(folder).doing("create", folder)?;
                self.convert(source, folder)
            }
            Origin::PythonArchive(archive) => {
                fs::create_dir(folder).doing("create", folder)?;
                let unpacked = folder.join("py");
                untar(archive, &members(PYTHON_FOLDER, |f| f.2.to_owned()), &unpacked)?;
                self.convert(&unpacked, folder)?;
                fs::remove_dir_all(&unpacked).doing("remove", &unpacked)
            }
        }
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders =
            vec![self.0.root().join(BINARY_FOLDER), self.0.root().to_owned(), self.0.root().join(CONVERTED)];
        let cached = self.0.verify.then(|| [BINARY_FOLDER, CONVERTED].map(|name| self.0.cache.join(name)));
        folders.extend(cached.into_iter().flatten().flatten());
        if !self.0.verify
            && let Some(origin) = self.origin()
        {
            folders.extend(self.cached(&origin));
        }
        folders
    }

    /// The first folder that contains any of the files.
    fn found(&self) -> Option<PathBuf> {
        self.folders().into_iter().find(|folder| FILES.iter().any(|f| folder.join(f.0).is_file()))
    }

    fn origin(&self) -> Option<Origin> {
        let download = |name| self.0.cache.join(name).ok();
        let archive = |name| {
            [Some(self.0.root().join(name)), download(name)].into_iter().flatten().find(|p| p.is_file())
        };
        let python = self.0.root().join(PYTHON_FOLDER);
        None.or_else(|| archive(BINARY).map(Origin::BinaryArchive))
            .or_else(|| python.is_dir().then_some(Origin::PythonFolder(python)))
            .or_else(|| archive(PYTHON).map(Origin::PythonArchive))
    }

    /// The folder in the cache. Verified contents are the same for every archive; others are stored per archive.
    fn cached(&self, origin: &Origin) -> Result<PathBuf> {
        let name = origin.unpacks_to();
        if self.0.verify {
            return self.0.cache.join(name);
        }
        self.0.cache.join(&format!("{name}-{}", identity(origin.path())?))
    }

    /// Where the archive is downloaded from.
    ///
    /// # Errors
    /// Downloads are not allowed.
    fn address(&self) -> Result<String> {
        let url = self.0.url.as_ref().map_or_else(|| format!("{SITE}/{BINARY}"), |url| url.0.clone());
        self.0.may_download(|| self.missing(), &url, &self.0.root().join(archive_of(&url).0))?;
        Ok(url)
    }

    fn fetch(&self, say: &mut dyn FnMut(&str)) -> Result<Origin> {
        let official = format!("{SITE}/{BINARY}");
        let url = self.address()?;
        let (name, origin) = archive_of(&url);
        self.0.make(self.0.root());
        let path = self.0.place(self.0.root(), name, || self.0.cache.join(name))?;
        // At another address may be another archive: the digests of its members are known.
        let known = (url == official && self.0.verify).then_some(ARCHIVE);
        let spec = FileSpec {
            size: known.map(|known| known.0),
            digest: known.map(|known| Digest::Sha256(known.1.to_owned())),
            from: url.clone(),
        };
        let check = |archive: &Path| match known {
            Some(_) => Ok(()),
            None => with_temporary_path(&path, |folder| self.unpack(&origin(archive.to_owned()), folder)),
        };
        fetch(Download { urls: &[url], target: &path, spec: &spec }, &check, say)?;
        Ok(origin(path))
    }

    /// Checks that every file exists, has a valid size, and is the official one if `verify` is set.
    fn check(&self, folder: &Path) -> Result<()> {
        let official = self.0.verify && !folder.ends_with(CONVERTED);
        for (name, sha256, ..) in FILES {
            let path = folder.join(name);
            let spec = FileSpec {
                size: self.0.verify.then_some(FILE_BYTES),
                digest: official.then(|| Digest::Sha256(sha256.to_owned())),
                from: format!("{SITE}/{BINARY}"),
            };
            let Ok(meta) = fs::metadata(&path) else {
                return Err(Error::data(format!("{} is missing\n  expected {spec}", path.display())).hint(
                    format!(
                        "other files of CIFAR-10 are in {}; download all of them from {}",
                        folder.display(),
                        spec.from
                    ),
                ));
            };
            if meta.len() == 0 || meta.len() % RECORD as u64 != 0 {
                let message = format!(
                    "{} has {} bytes, which is not a multiple of {RECORD}",
                    path.display(),
                    meta.len()
                );
                return Err(Error::data(format!("{message}\n  expected {spec}"))
                    .hint(format!("download it again from {}", spec.from)));
            }
            verify(&path, &spec, &self.0.cache)?;
        }
        Ok(())
    }

    /// Converts the files of the Python release in `source` to binary files in `folder`.
    fn convert(&self, source: &Path, folder: &Path) -> Result<()> {
        for (binary, _, python, md5) in FILES {
            let path = source.join(python);
            let from = format!("{SITE}/{PYTHON}");
            let digest = self.0.verify.then(|| Digest::Md5(md5.to_owned()));
            let spec = FileSpec { size: None, digest, from };
            if !path.is_file() {
                return Err(Error::data(format!("{} is missing\n  expected {spec}", path.display()))
                    .hint(format!("download it from {}", spec.from)));
            }
            verify(&path, &spec, &Cache::none())?;
            let pickle = base::files::read(&path).doing("read", &path)?;
            let batch = read_batch(&pickle, PIXELS).map_err(|why| {
                Error::data(format!("{} is not a batch of CIFAR-10: {why}", path.display()))
                    .hint(format!("download it again from {}", spec.from))
            })?;
            let target = folder.join(binary);
            let records = batch.labels.iter().zip(batch.pixels.chunks_exact(PIXELS));
            let bytes: Vec<u8> = records.flat_map(|(&label, pixels)| [&[label], pixels].concat()).collect();
            let written =
                File::create(&target).and_then(|mut f| f.write_all(&bytes).and_then(|()| f.sync_all()));
            written.doing("write", &target)?;
        }
        Ok(())
    }

    fn missing(&self) -> Error {
        let root = absolute(self.0.root());
        let root = root.display();
        Error::data(format!(
            "CIFAR-10 was not found in {root}\n  looked for {BINARY_FOLDER}/, {BINARY}, {PYTHON_FOLDER}/ and {PYTHON}\n  \
             expected six files of {FILE_BYTES} bytes each, such as {}, SHA-256 {}",
            FILES[0].0, FILES[0].1
        ))
        .hint(format!("copy {SITE}/{BINARY} to {root} (`[dataset] root`)"))
    }
}

impl Origin {
    fn path(&self) -> &Path {
        match self {
            Self::BinaryArchive(path) | Self::PythonArchive(path) | Self::PythonFolder(path) => path,
        }
    }

    fn unpacks_to(&self) -> &'static str {
        if matches!(self, Self::BinaryArchive(_)) { BINARY_FOLDER } else { CONVERTED }
    }
}

fn members(folder: &str, name: impl Fn(&(&str, &str, &str, &str)) -> String) -> Vec<Member> {
    // The Python files contain file names as well.
    FILES
        .iter()
        .map(|f| Member { path: format!("{folder}/{}", name(f)), max: FILE_BYTES + (1 << 20) })
        .collect()
}

/// The archive at this address: its name and description.
fn archive_of(url: &str) -> (&'static str, fn(PathBuf) -> Origin) {
    match url.contains("python") {
        true => (PYTHON, Origin::PythonArchive),
        false => (BINARY, Origin::BinaryArchive),
    }
}
