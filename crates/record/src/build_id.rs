//! The build ID that the linker gives a program: a digest of what it was linked from. Two builds of the same version have different ones.

use data_encoding::HEXLOWER;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the header of a 64-bit ELF file.
const HEADER: usize = 64;
/// No program has more; limits the allocation for a damaged header.
const MOST: usize = 64 << 10;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// The build ID of this program, in hexadecimal; `None` if its linker wrote none, or its format is not ELF.
pub fn build_id() -> Option<String> {
    of_file(&std::env::current_exe().ok()?).ok()?
}

fn of_file(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let header = part(&mut file, 0, HEADER)?;
    // ELF, of 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (at, size, count) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
    let table = part(&mut file, at, usize::from(size) * usize::from(count))?;
    for entry in table.chunks_exact(usize::from(size).max(40)) {
        if u32_at(entry, 0) == PT_NOTE {
            let notes = part(&mut file, u64_at(entry, 8), u64_at(entry, 32) as usize)?;
            if let Some(id) = in_notes(&notes) {
                return Ok(Some(HEXLOWER.encode(id)));
            }
        }
    }
    Ok(None)
}

/// The build ID among notes: each has the sizes of its name and content, its kind, name and content, padded to 4 bytes.
fn in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let sizes = [0, 4].map(|at| u32_at(notes, at) as usize);
        let [name, content] = sizes.map(|size| size.checked_next_multiple_of(4));
        let (kind, rest) = (u32_at(notes, 8), &notes[12..]);
        let (of, rest) = rest.split_at_checked(name?)?;
        let (found, rest) = rest.split_at_checked(content?)?;
        if kind == NT_GNU_BUILD_ID && of == b"GNU\0" {
            return found.get(..sizes[1]);
        }
        notes = rest;
    }
    None
}

fn part(file: &mut File, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes.min(MOST)];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut read)?;
    Ok(read)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note as the linker writes it.
    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            out.extend(number.to_le_bytes());
        }
        for bytes in [name, content] {
            out.extend(bytes);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let own = note(b"GNU\0", NT_GNU_BUILD_ID, &[0xab, 0xcd, 0x01]);
        let all = [note(b"GNU\0", 1, &[0; 16]), note(b"Go\0", 3, &[9; 5]), own.clone()].concat();
        assert_eq!(in_notes(&all), Some(&[0xab, 0xcd, 0x01][..]));
        assert_eq!(in_notes(&all[..all.len() - 4]), None, "it is torn");
        assert_eq!(in_notes(&note(b"GNU\0", 1, &[0; 16])), None);
        assert_eq!(in_notes(&[0xff; 40]), None);
    }

    #[test]
    fn a_file_of_another_format_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        std::fs::write(&path, format!("#!/bin/sh\n{}", " ".repeat(HEADER))).unwrap();
        assert_eq!(of_file(&path).unwrap(), None);
        std::fs::write(&path, "short").unwrap();
        assert!(of_file(&path).is_err());
        // That of this program, if its linker gave it one, is at least as long as the shortest kind in use.
        assert!(build_id().is_none_or(|id| id.len() >= 16 && id.chars().all(|c| c.is_ascii_hexdigit())));
    }
}
