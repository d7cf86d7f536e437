//! Test helpers: torch's reference values, and generated files of every format.

pub use base::testing::shared;
use std::path::PathBuf;

/// A persistent cache beside the test program, so that real data is unpacked once.
pub fn persistent_cache() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("test-data-cache")
}

/// A member of a test archive.
pub enum TarMember<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
}

/// A `.tar.gz` with arbitrary member names, including hostile ones that `tar::Builder` itself would reject.
pub fn tar_gz(members: &[TarMember<'_>]) -> Vec<u8> {
    let mut builder =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for member in members {
        let (name, bytes, link) = match member {
            TarMember::File(name, bytes) => (*name, *bytes, None),
            TarMember::Link(name, link) => (*name, &[][..], Some(*link)),
        };
        let mut header = tar::Header::new_old();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if let Some(link) = link {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        builder.append(&header, bytes).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[allow(dead_code, reason = "the tests of the binary use the rest")]
#[path = "../../../../tests/common/server.rs"]
pub mod server;

#[cfg(feature = "parquet")]
#[path = "../../../../tests/common/parquet_file.rs"]
pub mod parquet_file;

/// Serves one file of these bytes; returns the URL.
pub fn serve_file(body: &[u8]) -> String {
    server::Server::script(vec![server::Answer::Plain(body.to_vec())]).url("abc")
}

/// A batch with `row` bytes per sample as in CIFAR-10's Python release: Python 2, protocol 2.
pub fn python2_pickle(labels: &[u8], pixels: &[u8], row: u16) -> Vec<u8> {
    let n = labels.len() as u8;
    let mut out =
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
            .to_vec();
    labels.iter().for_each(|&l| out.extend([b'K', l]));
    out.extend(b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09(K\x01");
    out.extend([b'K', n, b'M']);
    out.extend(row.to_le_bytes());
    out.extend(b"\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T");
    out.extend((pixels.len() as u32).to_le_bytes());
    out.extend(pixels);
    out.extend(b"tbU\tfilenamesq\x0c]q\x0d(U\x05a.pngq\x0eeu.");
    out
}

/// The results of torchvision's transforms of [`picture`], computed by tests/reference/augment.py.
pub fn augment_reference(of: &str) -> Vec<serde_json::Value> {
    let text = include_str!("../../../../tests/reference/augment.json");
    let mut all: serde_json::Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(all[of].take()).unwrap()
}

/// Planes of noise with many zeros, full values and repeated ones.
pub fn picture(channels: usize, [height, width]: [usize; 2]) -> Vec<u8> {
    let (mut state, mut last) = (7u64, 0);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        last = match (state >> 40) & 7 {
            0 => 0,
            1 => 255,
            2 => last,
            _ => (state >> 56) as u8,
        };
        last
    };
    (0..channels * height * width).map(|_| next()).collect()
}
