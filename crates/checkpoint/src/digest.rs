//! Streaming SHA-256: a writer that hashes what it writes and a reader that hashes what it reads, so that the data is
//! read only once.

use std::io::{self, Read, Write};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Bytes hashed and passed on at a time. The chunk stays in the cache for both.
const CHUNK: usize = 256 * 1024;

/// Lower-case hex of a SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Hashes and counts the bytes written to `inner`.
pub struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), bytes: 0 }
    }

    /// Returns the inner writer, the number of bytes written, and their digest.
    pub fn finish(self) -> (W, u64, String) {
        (self.inner, self.bytes, HEXLOWER.encode(&self.hasher.finalize()))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(&buf[..buf.len().min(CHUNK)])?;
        self.hasher.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Hashes the bytes read from `inner`.
pub struct HashingReader<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// Reads the rest of the file, so that the digest covers all of it, and returns the digest.
    pub fn finish(mut self) -> io::Result<String> {
        let mut buf = vec![0; CHUNK];
        while self.read(&mut buf)? > 0 {}
        Ok(HEXLOWER.encode(&self.hasher.finalize()))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(CHUNK);
        let n = self.inner.read(&mut buf[..len])?;
        self.hasher.update(&buf[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_that_of_fips_180() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), abc);
        let mut writer = HashingWriter::new(Vec::new());
        writer.write_all(b"ab").unwrap();
        writer.write_all(b"c").unwrap();
        let (inner, bytes, digest) = writer.finish();
        assert_eq!((inner.as_slice(), bytes, digest.as_str()), (b"abc".as_slice(), 3, abc));
        let mut reader = HashingReader::new(b"abc".as_slice());
        reader.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(reader.finish().unwrap(), abc);
    }
}
