use super::*;
use crate::testing::server::{Answer, Server};
use crate::testing::{configure, persistent_cache, sample, serve_file, shared};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut out = (0x0800 + sizes.len() as u32).to_be_bytes().to_vec();
    sizes.iter().for_each(|s| out.extend(s.to_be_bytes()));
    [out, bytes.to_vec()].concat()
}

/// Image i is filled with i and has label i % 10.
fn files(n: u32) -> [Vec<u8>; 2] {
    let pixels: Vec<u8> = (0..n).flat_map(|i| vec![i as u8; 784]).collect();
    [idx(&[n, 28, 28], &pixels), idx(&[n], &(0..n).map(|i| (i % 10) as u8).collect::<Vec<_>>())]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn source(root: &Path, cache: &Path, more: &str) -> Arc<dyn DatasetSource> {
    let table =
        format!("root = '{}'\ncache = '{}'\nnormalize = false\n{more}", root.display(), cache.display());
    configure(&Mnist::DIGITS, &table).unwrap()
}

fn write_all(folder: &Path, zipped: bool) {
    fs::create_dir_all(folder).unwrap();
    let all = files(20).into_iter().chain(files(6));
    for (stem, bytes) in STEMS.iter().zip(all) {
        match zipped {
            true => fs::write(folder.join(format!("{stem}.gz")), gzip(&bytes)).unwrap(),
            false => fs::write(folder.join(stem), bytes).unwrap(),
        }
    }
}

#[test]
fn removes_a_wrong_download() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    for (wrong, why) in [
        (b"<html>not found</html>".to_vec(), "cannot unpack"),
        (gzip(b"no IDX"), "is not an IDX file of bytes"),
    ] {
        let url = serve_file(&wrong);
        let source = source(&root, &cache, &format!("verify = false\nurl = '{url}'"));
        let error = source.prepare(&mut |_| ()).unwrap_err();
        assert!(error.message.contains(why) && !error.message.contains(".part-"), "{error}");
        assert_eq!(fs::read_dir(root.join("mnist")).unwrap().count(), 0, "{why}");
    }
    write_all(&root.join("mnist"), true);
    source(&root, &cache, "verify = false").prepare(&mut |_| ()).unwrap();
}

/// All four come from one folder, under their names.
#[test]
fn downloads_the_files_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    let at_site: Vec<(String, Vec<u8>)> = STEMS
        .iter()
        .zip(files(20).into_iter().chain(files(6)))
        .map(|(s, f)| (format!("/set/{s}.gz"), gzip(&f)))
        .collect();
    let server = Server::start(move |request, _| {
        let file = at_site.iter().find(|(path, _)| *path == request.path);
        file.map_or(Answer::Status(404), |(_, bytes)| Answer::File(bytes.clone()))
    });
    let source = source(&root, &cache, &format!("verify = false\nurl = '{}'", server.url("set/")));
    source.prepare(&mut |_| ()).unwrap();
    source.prepare(&mut |_| ()).unwrap();
    assert_eq!(server.requests().len(), 4);
    assert_eq!(source.open().unwrap().train.len(), 20);
    let names: Vec<PathBuf> = STEMS.iter().map(|stem| root.join("mnist").join(stem)).collect();
    assert_eq!(source.files(), names);
    // A root that can't be written: what is downloaded and unpacked to the cache is found there.
    std::fs::remove_dir_all(root.join("mnist")).unwrap();
    std::fs::create_dir(root.join("mnist")).unwrap();
    fs::set_permissions(root.join("mnist"), fs::Permissions::from_mode(0o555)).unwrap();
    source.prepare(&mut |_| ()).unwrap();
    assert_eq!((source.open().unwrap().train.len(), server.requests().len()), (20, 8));
    assert!(source.files().iter().all(|path| path.starts_with(&cache)), "{:?}", source.files());
    fs::set_permissions(root.join("mnist"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn reads_idx_files_gzipped_or_not_in_every_location() {
    for (below, zipped) in [("", false), ("mnist", true), ("MNIST/raw", false), ("MNIST/raw", true)] {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
        write_all(&root.join(below), zipped);
        let source = source(&root, &cache, "verify = false\nval_split = 0.25");
        let mut said = 0;
        source.prepare(&mut |_| said += 1).unwrap();
        source.prepare(&mut |_| said += 1).unwrap();
        assert_eq!(said, if zipped { 4 } else { 0 });
        let splits = source.open().unwrap();
        let val = splits.val.unwrap();
        assert_eq!((splits.train.len(), val.len(), splits.test.as_ref().unwrap().len()), (15, 5, 6));
        let mut seen: Vec<usize> = Vec::new();
        for (set, n) in [(&splits.train, 15), (&val, 5)] {
            for i in 0..n {
                let (pixels, label) = sample(&**set, i, 0);
                let stored = (pixels[0] * 255.0).round() as usize;
                assert_eq!(label, [(stored % 10) as f64]);
                let place = set.place(i as u64).unwrap();
                assert!(place.ends_with(&format!("-ubyte, image {stored} (counted from 0)")), "{place}");
                seen.push(stored);
            }
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..20));
    }
}

#[test]
fn reports_missing_and_damaged_files() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    let error = source(&root, &cache, "download = false").prepare(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("MNIST: train-images-idx3-ubyte is missing"), "{error}");
    assert!(error.contains("root/mnist, ") && error.contains("root/MNIST/raw"), "{error}");
    assert!(
        error.contains("expected 47040016 bytes, gzipped 9912422 bytes, SHA-256 440fcabf73cc546fa21475"),
        "{error}"
    );
    assert!(
        error.contains("or copy https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz to"),
        "{error}"
    );
    write_all(&root, true);
    let error = source(&root, &cache, "").prepare(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("train-images-idx3-ubyte.gz is damaged or the wrong file"), "{error}");
    assert!(!root.join(STEMS[0]).exists());
    // A truncated file, and a label file of another length.
    let raw = tempfile::tempdir().unwrap();
    write_all(raw.path(), false);
    let loose = || source(raw.path(), &cache, "verify = false").open().err().unwrap().to_string();
    fs::write(raw.path().join(STEMS[2]), &files(6)[0][..3000]).unwrap();
    assert!(loose().contains("its header declares 4720 bytes, but it has 3000"), "{}", loose());
    fs::write(raw.path().join(STEMS[2]), &files(7)[0]).unwrap();
    assert!(loose().contains("has 7 images, but"), "{}", loose());
    fs::write(raw.path().join(STEMS[2]), b"<html>").unwrap();
    assert!(loose().contains("is not an IDX file of bytes with 3 dimensions"), "{}", loose());
    fs::write(raw.path().join(STEMS[2]), idx(&[u32::MAX, u32::MAX, u32::MAX], b"")).unwrap();
    assert!(loose().contains("is truncated or damaged"), "{}", loose());
}

#[test]
fn reads_the_real_files() {
    let Some(root) = shared("data") else { return };
    let cache = persistent_cache();
    let source = source(&root, &cache, "max_val = 100");
    source.prepare(&mut |_| ()).unwrap();
    let splits = source.open().unwrap();
    assert_eq!(
        (splits.train.len(), splits.val.unwrap().len(), splits.test.unwrap().len()),
        (60_000, 100, 10_000)
    );
    let labels: Vec<f64> = (0..8).map(|i| sample(&*splits.train, i, 0).1[0]).collect();
    assert_eq!(labels, [5., 0., 4., 1., 9., 2., 1., 3.]);
    let (mut sum, mut square, mut n) = (0.0, 0.0, 0.0);
    for i in (0..60_000).step_by(7) {
        for p in sample(&*splits.train, i, 0).0 {
            (sum, square, n) = (sum + p, square + p * p, n + 1.0);
        }
    }
    let mean = sum / n;
    let std = f64::sqrt(square / n - mean * mean);
    assert!((mean - 0.1307).abs() < 0.002 && (std - 0.3081).abs() < 0.002, "{mean} {std}");
}
