//! Unpacks gzip and tar archives that may be damaged or hostile: only expected members are written, under their file names,
//! within size limits.

use base::error::{Error, IoContext, Result};
use flate2::read::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path};

/// A member that an archive must contain.
#[derive(Clone, Debug)]
pub struct Member {
    /// Path in the archive, `folder/file`.
    pub path: String,
    /// Maximum size.
    pub max: u64,
}

fn damaged(archive: &Path, why: impl std::fmt::Display) -> Error {
    Error::data(format!("cannot unpack {}: {why}", archive.display()))
        .hint("the archive is damaged or the wrong one; delete it and download it again")
}

/// Writes the `members` of a `.tar.gz` into the new folder `target`, under their file names. Other members are skipped;
/// paths outside the archive, and expected members that are not regular files, are errors.
pub fn untar(archive: &Path, members: &[Member], target: &Path) -> Result<()> {
    let file = base::files::open(archive).doing("read", archive)?;
    // Skipped members are decompressed too, so the total is limited.
    let bound = members.iter().map(|m| m.max + 1024).sum::<u64>() + (64 << 20);
    let mut tar = tar::Archive::new(MultiGzDecoder::new(io::BufReader::new(file)).take(bound));
    fs::create_dir(target).doing("create", target)?;
    let mut missing: Vec<&str> = members.iter().map(|m| m.path.as_str()).collect();
    for entry in tar.entries().map_err(|e| damaged(archive, e))? {
        let mut entry = entry.map_err(|e| damaged(archive, e))?;
        let path = entry.path().map_err(|e| damaged(archive, e))?.into_owned();
        if path.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(damaged(
                archive,
                format!("its member {} has a path outside the archive", path.display()),
            ));
        }
        let plain: std::path::PathBuf =
            path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        let Some(member) = members.iter().find(|m| Path::new(&m.path) == plain) else { continue };
        if !entry.header().entry_type().is_file() {
            return Err(damaged(archive, format!("its member {} is not a regular file", member.path)));
        }
        let name = plain.file_name().unwrap_or_default();
        write_bounded(&mut entry, &target.join(name), member.max)
            .map_err(|e| damaged(archive, format!("{}: {e}", member.path)))?;
        missing.retain(|m| *m != member.path);
    }
    // Read to the end, including padding: gzip stores its checksum there.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|e| damaged(archive, e))?;
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(damaged(archive, format!("{first} is missing"))),
    }
}

/// Decompresses a gzip file to `target`, at most `max` bytes.
pub fn gunzip(archive: &Path, target: &Path, max: u64) -> Result<()> {
    let file = base::files::open(archive).doing("read", archive)?;
    let mut reader = MultiGzDecoder::new(io::BufReader::new(file));
    write_bounded(&mut reader, target, max).map_err(|e| damaged(archive, e))
}

fn write_bounded(reader: &mut dyn Read, target: &Path, max: u64) -> io::Result<()> {
    let mut file = File::create(target)?;
    let written = io::copy(&mut reader.take(max + 1), &mut file)?;
    if written > max {
        return Err(io::Error::other(format!("larger than the limit of {max} bytes")));
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TarMember, tar_gz};

    fn unpack(members: &[TarMember<'_>], max: u64) -> (tempfile::TempDir, Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("a.tar.gz");
        fs::write(&archive, tar_gz(members)).unwrap();
        let expected = Member { path: "set/one.bin".to_owned(), max };
        let result = untar(&archive, &[expected], &folder.path().join("out"));
        (folder, result)
    }

    #[test]
    fn unpacks_only_expected_members() {
        let (folder, result) =
            unpack(&[TarMember::File("set/readme", b"x"), TarMember::File("./set/one.bin", b"12345")], 5);
        result.unwrap();
        let out = folder.path().join("out");
        assert_eq!(fs::read(out.join("one.bin")).unwrap(), b"12345");
        assert_eq!(fs::read_dir(out).unwrap().count(), 1);
    }

    #[test]
    fn rejects_hostile_archives() {
        for (members, why) in [
            (
                vec![TarMember::File("../one.bin", b"x"), TarMember::File("set/one.bin", b"x")],
                "a path outside",
            ),
            (vec![TarMember::File("/tmp/one.bin", b"x")], "a path outside"),
            (vec![TarMember::File("set/../../one.bin", b"x")], "a path outside"),
            (vec![TarMember::Link("set/one.bin", "/etc/passwd")], "not a regular file"),
            (vec![TarMember::File("set/one.bin", b"123456")], "larger than the limit of 5 bytes"),
            (vec![TarMember::File("other/one.bin", b"1")], "set/one.bin is missing"),
        ] {
            let (folder, result) = unpack(&members, 5);
            let error = result.unwrap_err();
            assert!(error.message.contains(why), "{error}");
            assert!(!folder.path().join("one.bin").exists());
        }
    }

    #[test]
    fn rejects_truncated_archives() {
        let folder = tempfile::tempdir().unwrap();
        let noise: Vec<u8> = (0..50_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let whole = tar_gz(&[TarMember::File("set/one.bin", &noise)]);
        let expected = Member { path: "set/one.bin".to_owned(), max: 1 << 20 };
        for (i, cut) in [0, 5, whole.len() / 2, whole.len() - 9].into_iter().enumerate() {
            let archive = folder.path().join("a.tar.gz");
            fs::write(&archive, &whole[..cut]).unwrap();
            let out = folder.path().join(format!("out{i}"));
            let result = untar(&archive, std::slice::from_ref(&expected), &out);
            assert!(result.is_err(), "cut at {cut} of {}", whole.len());
        }
    }
}
