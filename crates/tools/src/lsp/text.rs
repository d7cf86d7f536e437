//! Positions in a text: byte offsets here, lines and columns in the protocol.

use lsp_types::{Position, Range};

/// What a column counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    Utf8,
    /// The encoding that every client supports.
    #[default]
    Utf16,
}

impl Columns {
    fn width(self, c: char) -> usize {
        match self {
            Columns::Utf8 => c.len_utf8(),
            Columns::Utf16 => c.len_utf16(),
        }
    }
}

/// A text with the starts of its lines.
#[derive(Clone, Debug, Default)]
pub struct Text {
    pub text: String,
    starts: Vec<usize>,
}

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let bytes = text.as_bytes();
        // In the protocol, a carriage return alone ends a line too.
        let ends = |i: usize| bytes[i] == b'\n' || (bytes[i] == b'\r' && bytes.get(i + 1) != Some(&b'\n'));
        let starts = std::iter::once(0).chain((0..bytes.len()).filter(|i| ends(*i)).map(|i| i + 1)).collect();
        Self { text, starts }
    }

    /// The position of a byte offset. An offset within a character counts as the character's start, one after the text as its end.
    pub fn position(&self, offset: usize, columns: Columns) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset) - 1;
        let column: usize = self.text[self.starts[line]..offset].chars().map(|c| columns.width(c)).sum();
        Position::new(clamped(line), clamped(column))
    }

    pub fn range(&self, range: std::ops::Range<usize>, columns: Columns) -> Range {
        Range::new(self.position(range.start, columns), self.position(range.end, columns))
    }

    /// The byte offset of a position; after the end of a line, the offset of its end.
    pub fn offset(&self, position: Position, columns: Columns) -> usize {
        let line = position.line as usize;
        let Some(start) = self.starts.get(line) else { return self.text.len() };
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| *next);
        let content = self.text[*start..end].trim_end_matches(['\n', '\r']);
        let (mut column, wanted) = (0, position.character as usize);
        for (at, c) in content.char_indices() {
            column += columns.width(c);
            if column > wanted {
                return start + at;
            }
        }
        start + content.len()
    }
}

fn clamped(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_units_of_the_encoding() {
        let text = Text::new("a = \"é😀\" # x\r\nb\rc\n");
        let hash = text.text.find('#').expect("a comment");
        assert_eq!(text.position(hash, Columns::Utf16), Position::new(0, 10));
        assert_eq!(text.position(hash, Columns::Utf8), Position::new(0, 13));
        for columns in [Columns::Utf8, Columns::Utf16] {
            for (at, _) in text.text.char_indices().filter(|(_, c)| !['\r', '\n'].contains(c)) {
                assert_eq!(text.offset(text.position(at, columns), columns), at, "{columns:?}");
            }
        }
        let c = text.text.find('c').expect("a letter");
        assert_eq!(text.position(c, Columns::Utf16), Position::new(2, 0));
    }

    #[test]
    fn positions_that_are_not_there_are_the_nearest_ones() {
        let text = Text::new("a😀\nb");
        assert_eq!(text.offset(Position::new(0, 2), Columns::Utf16), 1, "within a pair of surrogates");
        assert_eq!(text.offset(Position::new(0, 99), Columns::Utf16), 5);
        assert_eq!(text.offset(Position::new(9, 0), Columns::Utf16), 7);
        assert_eq!(text.position(99, Columns::Utf16), Position::new(1, 1));
        assert_eq!(text.position(3, Columns::Utf16), Position::new(0, 1));
    }
}
