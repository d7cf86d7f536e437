//! Tables that fit a page: columns for which there is no room continue in a further table below, which begins with the same first column.

use super::escape;
use std::fmt::Write;

/// The width of a page's contents where the window has 1280 pixels.
const ROOM: usize = 1130;
/// Estimated widths in pixels: of a character, and of the space around a cell in usual and in narrow tables.
const CHARACTER: usize = 9;
const SPACE: usize = 28;
const NARROW: usize = 16;
/// Characters above which a cell is broken into several lines.
const LONG: usize = 26;

/// A cell: its HTML, and how many characters of it stay in one line.
#[derive(Clone, Debug)]
pub struct Cell {
    html: String,
    width: usize,
    class: &'static str,
    is_head: bool,
}

impl Cell {
    /// Text, escaped.
    pub fn text(text: &str) -> Self {
        Self::html(escape(text), text.chars().count())
    }

    /// HTML that shows `width` characters.
    pub fn html(html: String, width: usize) -> Self {
        let class = if width > LONG { "long" } else { "" };
        Self { html, width: width.min(LONG), class, is_head: false }
    }

    /// The name of a row.
    pub(crate) fn head(self) -> Self {
        Self { is_head: true, ..self }
    }

    /// With the best value.
    pub(crate) fn best_if(self, best: bool) -> Self {
        Self { class: if best { "best" } else { self.class }, ..self }
    }

    fn write(&self, out: &mut String) {
        let tag = if self.is_head { "th" } else { "td" };
        let class = if self.class.is_empty() { String::new() } else { format!(" class=\"{}\"", self.class) };
        let _ = write!(out, "<{tag}{class}>{}</{tag}>", self.html);
    }
}

/// Behind these, a head may be broken.
const BREAKS: [char; 3] = [' ', '.', '_'];

/// The head of a column or a row, which may be broken behind dots and underscores.
pub fn breakable(head: &str) -> String {
    escape(head).replace('.', ".<wbr>").replace('_', "_<wbr>")
}

/// The head of a column.
struct Head {
    html: String,
    width: usize,
    /// The column stays beside the one before.
    joined: bool,
}

/// Rows of as many cells as there are heads.
#[derive(Default)]
pub struct Wide {
    /// Cells have words, not numbers.
    words: bool,
    heads: Vec<Head>,
    /// The class of each row in the style sheet, and its cells.
    pub rows: Vec<(&'static str, Vec<Cell>)>,
}

impl Wide {
    pub(crate) fn of_words() -> Self {
        Self { words: true, ..Self::default() }
    }

    /// Adds a column.
    pub fn column(&mut self, head: &str) {
        self.column_of(breakable(head), head);
    }

    /// A column that stays beside the one before.
    pub fn joined(&mut self, head: &str) {
        self.column(head);
        self.heads.iter_mut().last().into_iter().for_each(|head| head.joined = true);
    }

    /// A column whose head is `html`, and shows `text`.
    pub(crate) fn column_of(&mut self, html: String, text: &str) {
        let words = text.split_inclusive(BREAKS);
        let width = words.map(|word| word.trim_end().chars().count()).max().unwrap_or(0).min(LONG);
        self.heads.push(Head { html, width, joined: false });
    }

    /// The columns of each table besides the first, and whether the tables are narrow.
    fn parts(&self) -> (Vec<Vec<usize>>, bool) {
        let mut widths: Vec<usize> = self.heads.iter().map(|head| head.width).collect();
        for (_, cells) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.width);
            }
        }
        let pixels = |at: usize, space: usize| CHARACTER * widths[at] + space;
        let all = |space: usize| (0..widths.len()).map(|at| pixels(at, space)).sum::<usize>();
        if all(SPACE) <= ROOM {
            return (vec![(1..widths.len()).collect()], false);
        }
        let (mut parts, mut left) = (Vec::new(), 0);
        for group in self.groups() {
            let wide: usize = group.iter().map(|at| pixels(*at, NARROW)).sum();
            if wide > left || parts.is_empty() {
                parts.push(Vec::new());
                left = ROOM.saturating_sub(pixels(0, NARROW));
            }
            left = left.saturating_sub(wide);
            parts.iter_mut().last().into_iter().for_each(|part: &mut Vec<usize>| part.extend(&group));
        }
        (parts, true)
    }

    /// Columns that stay beside each other.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (at, head) in self.heads.iter().enumerate().skip(1) {
            match groups.last_mut().filter(|_| head.joined) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        groups
    }

    /// Writes the rows as one HTML table, or several if they are too wide.
    pub fn write(&self, out: &mut String) {
        let (parts, narrow) = self.parts();
        let words = if self.words { " words" } else { "" };
        let narrow = if narrow { " narrow" } else { "" };
        for part in parts {
            let columns = || std::iter::once(0).chain(part.iter().copied());
            let _ = write!(out, "<div class=\"wide{words}{narrow}\" tabindex=\"0\"><table><thead><tr>");
            for at in columns() {
                let _ = write!(out, "<th>{}</th>", self.heads[at].html);
            }
            out.push_str("</tr></thead><tbody>");
            for (class, cells) in &self.rows {
                let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
                let _ = write!(out, "<tr{class}>");
                columns().filter_map(|at| cells.get(at)).for_each(|cell| cell.write(out));
                out.push_str("</tr>");
            }
            out.push_str("</tbody></table></div>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(columns: usize, text: &str) -> String {
        let mut table = Wide::default();
        table.column("run");
        (1..columns)
            .for_each(|at| if at % 3 == 1 { table.column("val loss") } else { table.joined("val loss") });
        let cells = std::iter::repeat_n(Cell::text(text), columns - 1);
        table.rows.push(("", std::iter::once(Cell::text("a").head()).chain(cells).collect()));
        let mut out = String::new();
        table.write(&mut out);
        out
    }

    #[test]
    fn columns_without_room_continue_below_beside_those_that_they_belong_to() {
        let few = written(10, "0.1234");
        assert_eq!((few.matches("<table>").count(), few.matches(">run</th>").count()), (1, 1));
        let many = written(31, "0.1234");
        let tables: Vec<usize> = many.split("<table>").skip(1).map(|t| t.matches("<td>").count()).collect();
        assert_eq!(tables.iter().sum::<usize>(), 30);
        assert!(tables.len() > 1 && tables.iter().all(|columns| columns % 3 == 0), "{tables:?}");
        assert_eq!(many.matches("<th>a</th>").count(), tables.len(), "each has the names of rows");
    }

    #[test]
    fn long_words_are_broken() {
        let text = written(2, &"x".repeat(400));
        assert!(text.contains("<td class=\"long\">xxx") && text.matches("<table>").count() == 1, "{text}");
        let mut table = Wide::default();
        table.column("optimizer.weight_decay & co");
        let mut out = String::new();
        table.write(&mut out);
        assert!(out.contains("<th>optimizer.<wbr>weight_<wbr>decay &amp; co</th>"), "{out}");
    }
}
