//! Makes foreign text (names in a file, a spec's own words, a system error) safe to print: it can neither control the
//! terminal nor fill it.

mod room;
mod table;

pub use room::cut_to;
pub use table::{Column, Table};

use std::borrow::Cow;
use std::path::Path;
use unicode_width::UnicodeWidthStr;

/// Maximum number of characters of a name.
const LONGEST: usize = 120;
/// Maximum number of dimensions of a shape.
const MOST_SIZES: usize = 12;

/// Part of a line: control characters, including line ends, become dots.
pub fn piece(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { '\u{b7}' } else { c }).collect()
}

/// Whether it is a control character, or changes the direction in which others are shown.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same for a name; a very long name is truncated.
pub fn name(text: &str) -> String {
    piece(&cut(text, LONGEST))
}

/// At most this many characters of a text.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// At most this many characters of a text, from its beginning and its end: names and values that differ often do so there.
pub fn cut_middle(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let end = most / 2;
    let start = most.saturating_sub(end + 1);
    let characters = text.chars();
    Cow::Owned(characters.clone().take(start).chain(['…']).chain(characters.skip(length - end)).collect())
}

/// `1 process`, `2 processes`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {}", plural(n, what))
}

/// The noun as it is used behind `n`.
pub fn plural(n: usize, what: &str) -> String {
    match n {
        1 => what.to_owned(),
        _ if what.ends_with('s') || what.ends_with("batch") => format!("{what}es"),
        _ => format!("{what}s"),
    }
}

/// `[2, 3]`.
pub fn shape(sizes: &[usize]) -> String {
    let mut shown: Vec<String> = sizes.iter().take(MOST_SIZES).map(ToString::to_string).collect();
    if sizes.len() > MOST_SIZES {
        shown.push(format!("… ({} dimensions)", sizes.len()));
    }
    format!("[{}]", shown.join(", "))
}

/// How this program's own messages begin.
const OURS: [&str; 3] = ["error:", "warning:", "hint:"];

/// A whole message: lines and tabs are kept, other control characters become dots. A name may have line ends, so a line behind the first
/// that begins as a message of this program is indented.
pub fn message(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| is_control(c) && c != '\n' && c != '\t';
    let fake = |line: &str| OURS.iter().any(|ours| line.starts_with(ours));
    if !text.contains(hidden) && !text.lines().skip(1).any(fake) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let shown: String = line.chars().map(|c| if hidden(c) { '\u{b7}' } else { c }).collect();
        out.push_str(if number > 0 && fake(&shown) { "  " } else { "" });
        out.push_str(&shown);
    }
    Cow::Owned(out)
}

/// As [`message`], with the colours and lines of a text that this program has painted, and whose foreign parts are filtered.
pub fn painted(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| is_control(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = colour(rest).unwrap_or(c.len_utf8());
        match c {
            '\n' | '\t' => out.push(c),
            '\u{1b}' if length > 1 => out.push_str(&rest[..length]),
            c if is_control(c) => out.push('\u{b7}'),
            c => out.push(c),
        }
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// A path, as part of a line.
pub fn path(path: &Path) -> String {
    piece(&path.display().to_string())
}

/// A path as a shell takes it, in one line.
pub fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    if path.contains(is_control) {
        return ansi_c_quoted(&path);
    }
    match path.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c)) && !path.starts_with('-') {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// `$'…'`, the form of POSIX 2024 (bash, zsh and others) for control characters.
fn ansi_c_quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' => r"\n".to_owned(),
        '\'' | '\\' => format!("\\{c}"),
        // By bytes: three octal digits each, so that no digit behind them counts.
        c if is_control(c) => {
            c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        c => c.to_string(),
    };
    format!("$'{}'", text.chars().map(escaped).collect::<String>())
}

/// Columns of a line that is wrapped.
const COLUMNS: usize = 100;

/// `words` in lines of at most 100 columns; the first begins at column `indent`, the others are indented so far.
pub fn wrapped<'a>(words: impl IntoIterator<Item = &'a str>, indent: usize) -> String {
    wrapped_at(COLUMNS, words, indent)
}

/// As [`wrapped`], in lines of at most so many columns.
pub fn wrapped_at<'a>(columns: usize, words: impl IntoIterator<Item = &'a str>, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), indent);
    for word in words {
        let width = word.width();
        if column > indent && column + 1 + width > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

/// The length of the escape sequence at the start of `text`, if it only sets a colour.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_truncated() {
        assert_eq!(name("layer.0\u{1b}]0;title\u{7}\n\u{9b}2J.é"), "layer.0·]0;title···2J.é");
        assert_eq!(name(&"é".repeat(LONGEST)), "é".repeat(LONGEST));
        assert_eq!(name(&"é".repeat(1 << 20)), format!("{}…", "é".repeat(LONGEST)));
        assert_eq!((shape(&[]), shape(&[2, 3])), ("[]".to_owned(), "[2, 3]".to_owned()));
        assert_eq!(shape(&[1; 100_000]), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … (100000 dimensions)]");
    }

    #[test]
    fn long_texts_keep_their_beginning_and_end() {
        assert_eq!(cut_middle("data/a-long-folder/train.csv", 12), "data/…in.csv");
        assert_eq!((cut_middle("ab", 2), cut_middle("", 0)), ("ab".into(), "".into()));
        assert_eq!(cut_middle(&"é".repeat(300), 120).chars().count(), 120);
    }

    #[test]
    fn counted_nouns() {
        assert_eq!(
            (count(1, "process"), count(2, "process")),
            ("1 process".to_owned(), "2 processes".to_owned())
        );
        assert_eq!(
            (count(0, "node"), count(3, "micro-batch")),
            ("0 nodes".to_owned(), "3 micro-batches".to_owned())
        );
    }

    #[test]
    fn a_path_for_a_shell() {
        assert_eq!(shell_word(Path::new("a/b-c.d")), "a/b-c.d");
        assert_eq!(shell_word(Path::new("it's $x")), r"'it'\''s $x'");
        assert_eq!(shell_word(Path::new("~x")), "'~x'");
        let odd = "a\n'b\\\u{1b}1\u{202e}";
        assert_eq!(shell_word(Path::new(odd)), r"$'a\n\'b\\\0331\342\200\256'");
        let script = format!("printf %s {}", shell_word(Path::new(odd)));
        let said = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), odd);
    }

    #[test]
    fn long_lines_are_wrapped_and_indented() {
        let text = wrapped(["word"; 50], 4);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 50);
        assert_eq!(wrapped(["a = [1, 2],", "b"], 0), "a = [1, 2], b");
    }

    #[test]
    fn messages_keep_lines_and_no_name_fakes_another() {
        let plain = "error: é\n\thint";
        assert!(matches!(message(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(
            message("no metric `a\u{1b}[1;31m\nerror: all is lost\r\nhint: run it\u{202e}`"),
            "no metric `a·[1;31m\n  error: all is lost·\n  hint: run it·`"
        );
    }

    #[test]
    fn painted_texts_keep_lines_and_colours_only() {
        let plain = "error: é\n\thint";
        assert!(matches!(painted(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(
            painted("\u{1b}[1;31merror\u{1b}[0m\r\u{1b}[2J \u{1b}[31 \u{1b}\n\u{9b}3m"),
            "\u{1b}[1;31merror\u{1b}[0m··[2J ·[31 ·\n·3m"
        );
    }
}
