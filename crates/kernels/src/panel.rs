//! A block of a matrix in a mutable slice. Several threads may each write a block of the same matrix: blocks share rows,
//! but no element.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// `rows` x `columns` elements of a slice; each row is contiguous and starts `step` elements after the one before.
pub struct Panel<'a> {
    first: *mut f32,
    rows: usize,
    columns: usize,
    step: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: a panel is the only way to its elements while it lives, as a `&mut [f32]` to them would be.
unsafe impl Send for Panel<'_> {}

/// Rows or columns: a multiple of the vector's length.
const UNIT: usize = 16;

/// `0..len` in `count` ranges or fewer, none of them empty, that begin at multiples of [`UNIT`].
fn ranges(len: usize, count: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let units = len.div_ceil(UNIT);
    let at = move |i: usize| (units * i / count * UNIT).min(len);
    (0..count).map(move |i| at(i)..at(i + 1)).filter(|range| !range.is_empty())
}

impl<'a> Panel<'a> {
    /// Panics if the slice is too short or rows overlap.
    pub(super) fn new(slice: &'a mut [f32], rows: usize, columns: usize, step: usize) -> Self {
        if rows > 0 && columns > 0 {
            assert!(step >= columns || rows == 1, "rows of the result overlap");
            assert!((rows - 1) * step + columns <= slice.len(), "result too short");
        }
        Self { first: slice.as_mut_ptr(), rows, columns, step, slice: PhantomData }
    }

    /// A whole matrix, in rows of `columns` elements.
    pub fn whole(slice: &'a mut [f32], columns: usize) -> Self {
        let rows = slice.len() / columns;
        Self::new(slice, rows, columns, columns)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// The element (0, 0); (i, j) is `i * step + j` elements further.
    pub(super) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.first
    }

    /// Parts of at most `height` x `width`, row by row.
    pub(super) fn split(self, height: usize, width: usize) -> Vec<PanelPart<'a>> {
        let steps = |len: usize, step: usize| (0..len).step_by(step).map(move |at| at..len.min(at + step));
        let (rows, columns) = (steps(self.rows, height), steps(self.columns, width));
        self.cut(rows, columns)
    }

    /// At most `down` times `across` parts of nearly the same size, row by row. They begin at multiples of [`UNIT`].
    pub(super) fn divide(self, down: usize, across: usize) -> Vec<PanelPart<'a>> {
        let (rows, columns) = (ranges(self.rows, down), ranges(self.columns, across));
        self.cut(rows, columns)
    }

    /// The ranges of each kind do not overlap and are inside the panel.
    fn cut(
        self,
        rows: impl Iterator<Item = Range<usize>>,
        columns: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Vec<PanelPart<'a>> {
        let mut parts = Vec::new();
        for rows in rows {
            for columns in columns.clone() {
                let (row, column) = (rows.start, columns.start);
                assert!(rows.end <= self.rows && columns.end <= self.columns, "a part outside of its panel");
                // SAFETY: (row, column) is an element of this panel, as asserted, and each element is in one part only, because
                // rows don't overlap. `self` is consumed, so the parts are the only way to its elements for 'a.
                let first = unsafe { self.first.add(row * self.step + column) };
                let (rows, columns) = (rows.len(), columns.len());
                let panel = Panel { first, rows, columns, step: self.step, slice: PhantomData };
                parts.push(PanelPart { row, column, panel });
            }
        }
        parts
    }

    /// Some of its rows.
    pub(super) fn of_rows(&mut self, rows: Range<usize>) -> Panel<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        // Wrapping, because a panel without elements may lie anywhere.
        let first = self.first.wrapping_add(rows.start * self.step);
        Panel { first, rows: rows.len(), columns: self.columns, step: self.step, slice: PhantomData }
    }

    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        if self.columns == 0 {
            return &mut [];
        }
        // SAFETY: `columns` elements from there are in the slice, as `new` has checked, and nothing else has them. The
        // result borrows the panel.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.step), self.columns) }
    }
}

/// A part of a panel and its place in it.
pub(super) struct PanelPart<'a> {
    pub row: usize,
    pub column: usize,
    pub panel: Panel<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_panel_are_all_its_elements_once() {
        for (rows, columns, step, height, width) in [
            (1, 1, 1, 1, 1),
            (5, 7, 9, 2, 3),
            (4, 6, 6, 4, 6),
            (3, 8, 8, 9, 2),
            (0, 3, 3, 1, 1),
            (2, 0, 4, 1, 1),
        ] {
            let mut values = vec![0.0f32; rows * step];
            for mut part in Panel::new(&mut values, rows, columns, step).split(height, width) {
                for r in 0..part.panel.rows() {
                    let start = (part.row + r) * columns + part.column;
                    for (c, value) in part.panel.row(r).iter_mut().enumerate() {
                        *value += (start + c + 1) as f32;
                    }
                }
            }
            for (i, value) in values.iter().enumerate() {
                let (r, c) = (i / step, i % step);
                let expected = if c < columns { (r * columns + c + 1) as f32 } else { 0.0 };
                assert_eq!(*value, expected, "{rows} x {columns}: ({r}, {c})");
            }
        }
    }

    #[test]
    fn even_parts_are_all_of_a_panel_once_and_nearly_equal() {
        for (rows, columns, down, across) in [
            (1, 1, 1, 1),
            (768, 384, 6, 1),
            (1030, 130, 8, 1),
            (300, 260, 2, 2),
            (20, 500, 1, 3),
            (3, 9, 5, 4),
        ] {
            let mut values = vec![0.0f32; rows * columns];
            let parts = Panel::whole(&mut values, columns).divide(down, across);
            assert!(!parts.is_empty() && parts.len() <= down * across);
            for mut part in parts {
                assert!(part.row % UNIT == 0 && part.column % UNIT == 0);
                assert!(
                    part.panel.rows() + 2 * UNIT > rows / down && part.panel.rows() < rows / down + 2 * UNIT
                );
                assert!(part.panel.columns() + 2 * UNIT > columns / across);
                for r in 0..part.panel.rows() {
                    part.panel.row(r).iter_mut().for_each(|value| *value += 1.0);
                }
            }
            assert!(values.iter().all(|&value| value == 1.0), "{rows} x {columns} in {down} x {across}");
        }
    }

    #[test]
    fn threads_write_columns_of_the_same_rows() {
        let mut values = vec![0.0f32; 100 * 64];
        std::thread::scope(|scope| {
            for mut part in Panel::whole(&mut values, 64).split(100, 16) {
                scope.spawn(move || {
                    for r in 0..part.panel.rows() {
                        part.panel.row(r).fill(part.column as f32);
                    }
                });
            }
        });
        assert!(values.iter().enumerate().all(|(i, &v)| v == (i % 64 / 16 * 16) as f32));
    }

    #[test]
    fn some_rows_of_a_panel() {
        let mut values: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut panel = Panel::new(&mut values, 3, 2, 4);
        let mut last = panel.of_rows(1..3);
        assert_eq!(
            (last.rows(), last.row(0).to_vec(), last.row(1).to_vec()),
            (2, vec![4.0, 5.0], vec![8.0, 9.0])
        );
        assert_eq!(panel.of_rows(3..3).rows(), 0);
    }

    #[test]
    #[should_panic(expected = "result too short")]
    fn a_short_slice_panics() {
        Panel::new(&mut [0.0; 5], 2, 2, 4);
    }

    #[test]
    #[should_panic(expected = "rows of the result overlap")]
    fn overlapping_rows_panic() {
        Panel::new(&mut [0.0; 9], 2, 3, 2);
    }
}
