//! Decodes PNG and JPEG files: the whole image or an error, within memory bounds.

use std::borrow::Cow;
use std::io::{self, Cursor, Read};
use std::path::Path;

/// Largest file, in bytes.
const MAX_FILE: u64 = 256 << 20;
/// Largest decoded image, in bytes: a file of a few kilobytes can declare terabytes.
const MAX_PIXELS: u64 = 512 << 20;
const MAX_SIDE: u32 = 1 << 15;

const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
const JPEG: [u8; 3] = [0xff, 0xd8, 0xff];

/// Why an image could not be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The file can't be read, perhaps temporarily: the image itself may be valid.
    Io(io::Error),
    /// The image is invalid; the reason as text.
    Invalid(String),
}

/// Reads and decodes an image.
pub(super) fn decode(path: &Path) -> Result<image::DynamicImage, DecodeError> {
    let mut bytes = Vec::new();
    let file = base::files::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput => DecodeError::Invalid(e.to_string()),
        _ => DecodeError::Io(e),
    })?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(DecodeError::Io)?;
    decode_bytes(&bytes).map_err(DecodeError::Invalid)
}

/// Decodes the bytes of an image file, or describes what is wrong with them.
pub(super) fn decode_bytes(bytes: &[u8]) -> Result<image::DynamicImage, String> {
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {} MiB", MAX_FILE >> 20));
    }
    let bytes = if bytes.starts_with(&PNG) {
        without_colour_profiles(bytes).ok_or("it is truncated")?
    } else if bytes.starts_with(&JPEG) {
        // The decoder fills missing parts with grey.
        ends_like_a_jpeg(bytes).then_some(Cow::Borrowed(bytes)).ok_or("it is truncated")?
    } else {
        return Err("it is neither PNG nor JPEG".to_owned());
    };
    let mut reader =
        image::ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_PIXELS);
    reader.limits(limits);
    reader.decode().map_err(|e| e.to_string())
}

/// A PNG without its colour profiles. They are not used, and the decoder would decompress them regardless of size. `None`
/// if the end of the image is missing.
fn without_colour_profiles(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (mut kept, mut from, mut at) = (Vec::new(), 0, PNG.len());
    loop {
        let length = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
        let end = at.checked_add(length)?.checked_add(12)?;
        match bytes.get(at + 4..end)?.first_chunk()? {
            b"IEND" => break,
            b"iCCP" => {
                kept.extend_from_slice(&bytes[from..at]);
                from = end;
            }
            _ => {}
        }
        at = end;
    }
    if from == 0 {
        return Some(Cow::Borrowed(bytes));
    }
    kept.extend_from_slice(&bytes[from..]);
    Some(Cow::Owned(kept))
}

/// Whether the segments end with the end marker. Whether the scan before it is complete is not checked: the decoder, like
/// libjpeg, reads zeros beyond an early end, even in strict mode.
fn ends_like_a_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    // A marker is one or more 0xff bytes and another byte.
    while let Some(&[mark, kind]) = bytes.get(at..at + 2).and_then(|b| b.first_chunk()) {
        match (mark, kind) {
            (0xff, 0xff) => at += 1,
            (0xff, 0xd9) => return true,
            // Markers without a length: stuffed bytes, restarts, and the start of an image.
            (0xff, 0x00 | 0x01 | 0xd0..=0xd8) => at += 2,
            (0xff, _) => {
                let Some(length) = bytes.get(at + 2..at + 4).and_then(|b| b.first_chunk()) else {
                    return false;
                };
                at += 2 + usize::from(u16::from_be_bytes(*length)).max(2);
            }
            // Data of a scan, or bytes between two segments.
            _ => match bytes[at..].iter().position(|b| *b == 0xff) {
                Some(next) => at += next,
                None => return false,
            },
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, Rgb, RgbImage};

    fn encoded(format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        // Noise gives a lot of data, with stuffed bytes.
        let image = RgbImage::from_fn(40, 40, |x, y| {
            Rgb([((x * 37) ^ (y * 91)) as u8, (x * y) as u8, (y * 53) as u8])
        });
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<image::DynamicImage, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, bytes).unwrap();
        decode(&path).map_err(|unread| match unread {
            DecodeError::Invalid(why) => why,
            DecodeError::Io(e) => panic!("{e}"),
        })
    }

    /// It is no image, and is not waited for.
    #[test]
    fn a_pipe_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let unread = decode(&base::testing::pipe(folder.path()).unwrap()).unwrap_err();
        assert!(
            matches!(&unread, DecodeError::Invalid(why) if why.contains("no regular file")),
            "{unread:?}"
        );
    }

    #[test]
    fn rejects_an_image_truncated_at_any_byte() {
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let whole = encoded(format);
            assert_eq!(read(&whole).unwrap().width(), 40);
            // Bytes after the end are ignored.
            assert_eq!(read(&[whole.as_slice(), b"\xff\x00trailer"].concat()).unwrap().height(), 40);
            for cut in (0..whole.len() - 1).step_by(7).chain([whole.len() - 1]) {
                assert!(read(&whole[..cut]).is_err(), "{format:?} of {} bytes cut at {cut}", whole.len());
            }
        }
    }

    #[test]
    fn rejects_files_that_are_not_images() {
        for (bytes, why) in [
            (&b"GIF89a"[..], "neither PNG nor JPEG"),
            (b"", "neither PNG nor JPEG"),
            (b"\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR", "is truncated"),
            (b"\xff\xd8\xff\xd9", ""),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        // The header declares 2^15 x 2^15 pixels.
        let mut png = encoded(ImageFormat::Png);
        png[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
        let crc = flate2::Crc::new();
        let crc = {
            let mut crc = crc;
            crc.update(&png[12..29]);
            crc.sum()
        };
        png[29..33].copy_from_slice(&crc.to_be_bytes());
        let error = read(&png).unwrap_err();
        assert!(error.to_lowercase().contains("limit"), "{error}");
    }

    /// The profile decompresses to 64 MiB of zeros.
    #[test]
    fn does_not_decompress_colour_profiles() {
        use std::io::Write;
        let mut packed = flate2::write::ZlibEncoder::new(b"iCCPp\0\0".to_vec(), flate2::Compression::fast());
        packed.write_all(&vec![0; 64 << 20]).unwrap();
        let chunk = packed.finish().unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(&chunk);
        let whole = encoded(ImageFormat::Png);
        // After the header.
        let (header, rest) = whole.split_at(33);
        let length = (chunk.len() as u32 - 4).to_be_bytes();
        let bomb = [header, &length, &chunk, &crc.sum().to_be_bytes(), rest].concat();
        assert!(bomb.len() > whole.len() + 60_000);
        assert_eq!(*without_colour_profiles(&bomb).unwrap(), *whole);
        assert!(matches!(without_colour_profiles(&whole), Some(Cow::Borrowed(same)) if same == whole));
        assert_eq!(read(&bomb).unwrap(), read(&whole).unwrap());
    }
}
