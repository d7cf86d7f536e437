//! Room on a line of a terminal: texts cut to columns, and columns that share what a table lacks.

use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// A text of at most `width` columns of a terminal; one that was cut ends with `…`.
pub fn cut_to(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    // A wide character has no half.
    let end = ends.take_while(|end| text[..*end].width() < width).last().unwrap_or(0);
    Cow::Owned(format!("{}…", &text[..end]))
}

/// The widths of columns of which `over` has to go. The widest lose first, and none gets narrower than its `least`.
pub(super) fn narrowed(widths: &[usize], least: &[usize], mut over: usize) -> Vec<usize> {
    let mut widths = widths.to_vec();
    while over > 0 {
        let can = (0..widths.len()).filter(|at| widths[*at] > least[*at]);
        let Some(widest) = can.max_by_key(|at| widths[*at]) else { break };
        widths[widest] -= 1;
        over -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_columns_and_not_to_characters() {
        assert_eq!(cut_to("short", 5), "short");
        assert_eq!(cut_to("longer", 5), "long…");
        // Each of these has two columns.
        assert_eq!(cut_to("実験実験", 8), "実験実験");
        assert_eq!((cut_to("実験実験", 7), cut_to("実験実験", 6)), ("実験実…".into(), "実験…".into()));
        assert_eq!((cut_to("実", 1), cut_to("", 0)), ("…".into(), "".into()));
        for width in 1..12 {
            assert!(cut_to("a実b験cé実験", width).width() <= width, "{width}");
        }
    }

    #[test]
    fn the_widest_columns_lose_first() {
        assert_eq!(narrowed(&[30, 8, 20], &[12, 8, 12], 5), [25, 8, 20]);
        assert_eq!(narrowed(&[30, 8, 20], &[12, 8, 12], 20), [15, 8, 15]);
        assert_eq!(narrowed(&[30, 8, 20], &[12, 8, 12], 99), [12, 8, 12]);
        assert_eq!(narrowed(&[30], &[12], 0), [30]);
    }
}
