use super::*;
use crate::testing::{
    TarMember, configure, persistent_cache, python2_pickle, sample, serve_file, shared, tar_gz,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Three records per file: label (file + record) % 10, every pixel 10 * file + record.
fn records(file: usize) -> Vec<u8> {
    (0..3)
        .flat_map(|r| [vec![((file + r) % 10) as u8], vec![(10 * file + r) as u8; PIXELS]].concat())
        .collect()
}

fn archive() -> Vec<u8> {
    let names = FILES.map(|f| format!("cifar-10-batches-bin/{}", f.0));
    let files: Vec<Vec<u8>> = (0..6).map(records).collect();
    let members: Vec<TarMember<'_>> = names.iter().zip(&files).map(|(n, f)| TarMember::File(n, f)).collect();
    tar_gz(&members)
}

fn python_files() -> Vec<(String, Vec<u8>)> {
    let batch = |i: usize| {
        let records = records(i);
        let labels: Vec<u8> = records.chunks(RECORD).map(|r| r[0]).collect();
        let pixels: Vec<u8> = records.chunks(RECORD).flat_map(|r| r[1..].to_vec()).collect();
        python2_pickle(&labels, &pixels, PIXELS as u16)
    };
    FILES.iter().enumerate().map(|(i, f)| (f.2.to_owned(), batch(i))).collect()
}

const OFFICIAL: &str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        Self { folder }
    }
    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("root")
    }
    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }
    fn source(&self, more: &str) -> Arc<dyn DatasetSource> {
        let (root, cache) = (self.root(), self.cache());
        let table =
            format!("root = '{}'\ncache = '{}'\nnormalize = false\n{more}", root.display(), cache.display());
        configure(&cifar10, &table).unwrap()
    }
    fn loose(&self) -> Arc<dyn DatasetSource> {
        self.source("verify = false")
    }
}

fn prepare(source: &dyn DatasetSource) -> Result<Vec<String>> {
    let mut said = Vec::new();
    source.prepare(&mut |line| said.push(line.to_owned()))?;
    Ok(said)
}

fn assert_is_the_set(source: &dyn DatasetSource) {
    let splits = source.open().unwrap();
    assert_eq!(
        (splits.train.len(), splits.val.unwrap().len(), splits.test.as_ref().unwrap().len()),
        (15, 3, 3)
    );
    for i in 0..15 {
        let (pixels, label) = sample(&*splits.train, i, 0);
        assert_eq!(label, [((i / 3 + i % 3) % 10) as f64]);
        assert!(pixels.iter().all(|p| (p * 255.0 - (10 * (i / 3) + i % 3) as f64).abs() < 1e-4));
    }
    assert_eq!(sample(&*splits.test.unwrap(), 2, 0).1, [7.0]);
}

#[test]
fn reads_a_folder_of_binary_files() {
    let place = Place::new();
    let folder = place.root().join("cifar-10-batches-bin");
    fs::create_dir(&folder).unwrap();
    FILES.iter().enumerate().for_each(|(i, f)| fs::write(folder.join(f.0), records(i)).unwrap());
    assert!(prepare(&*place.loose()).unwrap().is_empty());
    assert_is_the_set(&*place.loose());
    // These are not the official files.
    let error = prepare(&*place.source("")).unwrap_err().to_string();
    assert!(error.contains("data_batch_1.bin is damaged or the wrong file"), "{error}");
    assert!(error.contains("expected 30730000 bytes, SHA-256 cee91656"), "{error}");
    assert!(error.contains("found    9219 bytes"), "{error}");
    assert!(error.contains("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"), "{error}");
    fs::write(folder.join("data_batch_4.bin"), [0; 100]).unwrap();
    let error = prepare(&*place.loose()).unwrap_err().to_string();
    assert!(error.contains("data_batch_4.bin has 100 bytes, which is not a multiple of 3073"), "{error}");
    fs::remove_file(folder.join("data_batch_4.bin")).unwrap();
    let error = prepare(&*place.loose()).unwrap_err().to_string();
    assert!(error.contains("data_batch_4.bin is missing"), "{error}");
}

#[test]
fn unpacks_the_binary_archive_beside_it() {
    let place = Place::new();
    fs::write(place.root().join("cifar-10-binary.tar.gz"), archive()).unwrap();
    assert_eq!(prepare(&*place.loose()).unwrap().len(), 1);
    assert!(place.root().join("cifar-10-batches-bin/test_batch.bin").is_file());
    assert!(prepare(&*place.loose()).unwrap().is_empty(), "a second start has nothing to unpack");
    assert_is_the_set(&*place.loose());
}

#[test]
fn unpacks_to_the_cache_if_root_is_read_only() {
    let place = Place::new();
    fs::write(place.root().join("cifar-10-binary.tar.gz"), archive()).unwrap();
    fs::set_permissions(place.root(), fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(prepare(&*place.loose()).unwrap().len(), 1);
    assert_is_the_set(&*place.loose());
    assert!(prepare(&*place.loose()).unwrap().is_empty());
    fs::set_permissions(place.root(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
    // Files that are not official are rejected, and nothing is left in the cache.
    fs::set_permissions(place.root(), fs::Permissions::from_mode(0o555)).unwrap();
    let error = prepare(&*place.source("")).unwrap_err().to_string();
    assert!(error.contains("expected 30730000 bytes"), "{error}");
    assert!(!place.cache().join("cifar-10-batches-bin").exists());
    fs::set_permissions(place.root(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn archives_are_unpacked_where_the_spec_says() {
    let place = Place::new();
    let archive_path = place.root().join("cifar-10-binary.tar.gz");
    fs::write(&archive_path, archive()).unwrap();
    let unpacked = |more: &str| {
        let source = place.source(&format!("verify = false\n{more}"));
        let said = prepare(&*source).unwrap();
        assert_is_the_set(&*source);
        let folder = source.files().remove(0);
        let size = fs::metadata(&archive_path).unwrap().len() as f64 / 1e3;
        let line = format!("unpacking {} ({size:.1} kB) to {}", archive_path.display(), folder.display());
        assert_eq!(said, [line]);
        fs::remove_dir_all(&folder).unwrap();
        folder.starts_with(place.cache())
    };
    assert!(!unpacked(""));
    assert!(unpacked("unpack = 'cache'"));
    // What is unpacked would be a part of the work tree.
    fs::create_dir(place.folder.path().join(".git")).unwrap();
    assert!(unpacked(""));
    assert!(!unpacked("unpack = 'root'"));
    let official = place.source("");
    let said = std::cell::RefCell::new(Vec::new());
    official.prepare(&mut |line| said.borrow_mut().push(line.to_owned())).unwrap_err();
    assert!(said.borrow()[0].ends_with("/cache/cifar-10-batches-bin (184.4 MB)"), "{said:?}");
}

#[test]
fn reads_the_python_release_as_folder_and_archive() {
    let place = Place::new();
    let py = place.root().join("cifar-10-batches-py");
    fs::create_dir(&py).unwrap();
    python_files().iter().for_each(|(name, bytes)| fs::write(py.join(name), bytes).unwrap());
    prepare(&*place.loose()).unwrap();
    assert_is_the_set(&*place.loose());
    let error = prepare(&*Place { folder: place.folder }.source("")).unwrap_err().to_string();
    assert!(error.contains("30730000"), "{error}");

    let place = Place::new();
    let files: Vec<(String, Vec<u8>)> =
        python_files().into_iter().map(|(n, b)| (format!("cifar-10-batches-py/{n}"), b)).collect();
    let members: Vec<TarMember<'_>> = files.iter().map(|(n, b)| TarMember::File(n, b)).collect();
    fs::write(place.root().join("cifar-10-python.tar.gz"), tar_gz(&members)).unwrap();
    let error = prepare(&*place.source("")).unwrap_err().to_string();
    assert!(error.contains("expected MD5 c99cafc152244af753f735de768cd75f"), "{error}");
    prepare(&*place.loose()).unwrap();
    assert_is_the_set(&*place.loose());
    let names: Vec<_> = fs::read_dir(place.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn downloads_a_missing_archive() {
    let place = Place::new();
    let error = prepare(&*place.source("download = false")).unwrap_err().to_string();
    assert!(
        error.contains("CIFAR-10 was not found in") && error.contains("looked for cifar-10-batches-bin/"),
        "{error}"
    );
    let ways = "hint: `[dataset] download` is false. `ddp-run data fetch SPEC` downloads it";
    assert!(error.contains("30730000 bytes") && error.contains(ways), "{error}");
    let by_hand = format!("or copy {OFFICIAL} to {}/cifar-10-binary.tar.gz by hand", place.root().display());
    assert!(error.contains(&by_hand), "{error}");
    // Ranks of a node that has no files say the same.
    let error = place.source("").open().err().unwrap().to_string();
    assert!(error.contains("hint: copy https://www.cs"), "{error}");
    let source = place.source(&format!("verify = false\nurl = '{}'", serve_file(&archive())));
    assert_eq!(prepare(&*source).unwrap().len(), 2);
    assert_is_the_set(&*source);
    assert_eq!(source.files(), [place.root().join("cifar-10-batches-bin")]);
}

/// A default `root` is not created in the working directory.
#[test]
fn downloads_to_the_cache_unless_root_exists_or_is_set() {
    if Path::new("data").exists() {
        println!("skipped: there is a folder `data`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (root, caches) = (folder.path().join("root"), ["a", "b"].map(|name| folder.path().join(name)));
    let found = |cache: &Path, more: &str| {
        let table = format!("verify = false\nnormalize = false\ncache = '{}'\n{more}", cache.display());
        let from = format!("{table}\nurl = '{}'", serve_file(&archive()));
        let source = configure(&cifar10, &from).unwrap();
        prepare(&*source).unwrap();
        assert_is_the_set(&*configure(&cifar10, &table).unwrap());
        source.files()
    };
    assert!(found(&caches[0], "")[0].starts_with(&caches[0]));
    let root_is_set = format!("root = '{}'", root.display());
    assert!(found(&caches[1], &root_is_set)[0].starts_with(&root));
    assert!(!caches[1].exists());
}

/// An error page, an archive of other files, and an archive with unofficial contents: each is rejected before it is renamed
/// to the archive's name, so a later download is not blocked.
#[test]
fn removes_a_wrong_download() {
    let place = Place::new();
    let other = tar_gz(&[TarMember::File("cifar-10-batches-bin/readme", b"x")]);
    for (wrong, more, why) in [
        (&b"<html>not found</html>"[..], "verify = false", "cifar-10-binary.tar.gz: "),
        (&other, "verify = false", "data_batch_1.bin is missing"),
        (&archive(), "", "expected 30730000 bytes"),
    ] {
        let source = place.source(&format!("{more}\nurl = '{}'", serve_file(wrong)));
        let error = prepare(&*source).unwrap_err();
        assert!(error.message.contains("is not the expected file"), "{error}");
        assert!(error.message.contains(why) && !error.message.contains(".part-"), "{error}");
        assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0, "{why}");
    }
    let source = place.source(&format!("verify = false\nurl = '{}'", serve_file(&archive())));
    prepare(&*source).unwrap();
    assert_is_the_set(&*source);
}

#[test]
fn reads_the_real_archive() {
    let Some(root) = shared("data") else { return };
    // A persistent cache speeds up the next run of the test.
    let cache = persistent_cache();
    let table = format!("root = '{}'\ncache = '{}'\nval_split = 0.1", root.display(), cache.display());
    let source = configure(&cifar10, &table).unwrap();
    prepare(&*source).unwrap();
    assert!(prepare(&*source).unwrap().is_empty());
    let (splits, facts) = (source.open().unwrap(), source.facts());
    let val = splits.val.unwrap();
    assert_eq!((facts.train, facts.val, facts.test), (Some(45_000), Some(5_000), Some(10_000)));
    assert_eq!((splits.train.len(), val.len(), splits.test.as_ref().unwrap().len()), (45_000, 5_000, 10_000));
    // The Python release starts with these labels.
    let plain = configure(&cifar10, &table.replace("0.1", "0.0")).unwrap().open().unwrap();
    let labels = |set: &dyn crate::Dataset| (0..10).map(|i| sample(set, i, 0).1[0]).collect::<Vec<_>>();
    assert_eq!(labels(&*plain.train), [6., 9., 9., 4., 1., 1., 2., 7., 8., 3.]);
    assert_eq!(labels(&*splits.test.unwrap()), [3., 8., 8., 0., 6., 6., 1., 6., 3., 1.]);
    // The first training sample of random_split is 37542.
    assert_eq!(sample(&*splits.train, 0, 0), sample(&*plain.train, 37542, 0));
    let mut sum = 0.0;
    (0..500).for_each(|i| sum += sample(&*splits.train, i, 0).0.iter().sum::<f64>() / 3072.0);
    assert!((sum / 500.0).abs() < 0.1, "normalised: mean {}", sum / 500.0);
}

#[test]
fn a_file_that_is_cut_short_while_it_is_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.bin"), records(0)).unwrap();
    let set = Records::open(folder.path(), &["a.bin"]).unwrap();
    let mut scratch = Vec::new();
    assert_eq!(set.image(2, &mut scratch).unwrap(), (&[2; PIXELS][..], 2));
    fs::write(folder.path().join("a.bin"), &records(0)[..2 * RECORD + 1]).unwrap();
    assert_eq!(set.image(1, &mut scratch).unwrap().1, 1);
    let error = set.image(2, &mut scratch).unwrap_err().message;
    assert!(
        error.ends_with(&format!(
            "a.bin ends before byte {}; it had {0} bytes when it was opened",
            3 * RECORD
        ))
    );
}
