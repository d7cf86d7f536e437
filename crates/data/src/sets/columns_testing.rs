//! What the tests of `parquet` and `sqlite` have in common.

use super::columns::RowStore;
use crate::Dataset;
use crate::testing::sample;
use std::ops::ControlFlow::{Break, Continue};

/// A PNG of one colour.
pub(super) fn png(colour: [u8; 3]) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(9, 8, image::Rgb(colour))
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    bytes.into_inner()
}

/// The keys of a table of images as they are, with `more`.
pub(super) fn image_keys(more: &str) -> String {
    format!("image_size = 8\nnormalize = false\n{more}")
}

/// The keys of a table of numbers as they are, with `more`.
pub(super) fn table_keys(more: &str) -> String {
    // Classes have no scale.
    let target = if more.contains("classification") { "" } else { "standardise_target = false\n" };
    format!("content = 'table'\nstandardise = false\n{target}{more}")
}

/// The first red value of each image, and its class.
pub(super) fn seen(set: &dyn Dataset) -> Vec<(u8, usize)> {
    let one = |i| {
        let (pixels, class) = sample(set, i, 0);
        ((pixels[0] * 255.0).round() as u8, class[0] as usize)
    };
    (0..set.len()).map(one).collect()
}

/// The rows of training that are read until one, in `after`, breaks off.
pub(super) fn read_until(store: &impl RowStore, after: usize) -> Vec<usize> {
    let (stored, mut rows) = (store.open(&mut |_| ()).unwrap(), Vec::new());
    let done = stored.train.read(&[0], &mut |row, _| {
        rows.push(row);
        Ok(if row == after { Break(()) } else { Continue(()) })
    });
    done.unwrap();
    rows
}
