//! The headers and pairs of a TOML text, found line by line. A text that is being typed is seldom TOML; this reads any text.

use std::collections::BTreeMap;
use std::ops::Range;

/// A value with more lines is not closed.
const MAX_LINES: usize = 500;
/// A longer text is not a spec, and would take long to read at every change.
const MAX_BYTES: usize = 1 << 20;

/// One part of a dotted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    pub name: String,
    /// With its quotes, if it has some.
    pub range: Range<usize>,
}

/// `[table]`, `[[table]]` or a beginning of it.
#[derive(Clone, Debug)]
pub struct Header {
    pub parts: Vec<KeyPart>,
    pub range: Range<usize>,
    /// What is between the brackets.
    pub inner: Range<usize>,
    pub double: bool,
    /// Dotted path, with an index for a table of a list: `scheduler.1`.
    pub path: String,
}

/// `key = value`, or a beginning of it.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The path of the table that it is in.
    pub table: String,
    pub parts: Vec<KeyPart>,
    /// From the first part to the last.
    pub key: Range<usize>,
    pub equals: Option<usize>,
    /// Empty without a value.
    pub value: Range<usize>,
}

#[derive(Clone, Debug)]
pub enum SpecLine {
    Header(Header),
    Pair(Pair),
}

impl SpecLine {
    pub fn start(&self) -> usize {
        match self {
            SpecLine::Header(header) => header.range.start,
            SpecLine::Pair(pair) => pair.key.start,
        }
    }
}

/// The headers and pairs of a text, in order.
pub fn lines(text: &str) -> Vec<SpecLine> {
    let (mut found, mut at, mut table) = (Vec::new(), 0, String::new());
    // How many tables a list has so far.
    let mut lists: BTreeMap<String, usize> = BTreeMap::new();
    if text.len() > MAX_BYTES {
        return found;
    }
    if text.starts_with('\u{feff}') {
        at = '\u{feff}'.len_utf8();
    }
    while at < text.len() {
        let end = line_end(text, at);
        let start = at + (text[at..end].len() - text[at..end].trim_start().len());
        let line = &text[start..end];
        if line.starts_with('[') {
            let header = header(text, start, end, &mut lists);
            table.clone_from(&header.path);
            found.push(SpecLine::Header(header));
        } else if !line.is_empty() && !line.starts_with('#') {
            let pair = pair(text, start, end, &table);
            at = pair.value.end;
            found.push(SpecLine::Pair(pair));
        }
        at = line_end(text, at.max(start)) + 1;
    }
    found
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |i| at + i)
}

fn header(text: &str, start: usize, end: usize, lists: &mut BTreeMap<String, usize>) -> Header {
    let double = text[start..end].starts_with("[[");
    let from = start + if double { 2 } else { 1 };
    let (parts, mut stop) = dotted(text, from, end);
    stop += text[stop..end].len() - text[stop..end].trim_start().len();
    let closing = text[stop..end].bytes().take_while(|b| *b == b']').count().min(2);
    let mut path = String::new();
    for (i, part) in parts.iter().enumerate() {
        join(&mut path, &part.name);
        let last = i + 1 == parts.len();
        if last && double {
            let count = lists.entry(path.clone()).or_default();
            *count += 1;
        }
        let index = lists.get(&path).map(|count| count - 1);
        index.iter().for_each(|index| join(&mut path, &index.to_string()));
    }
    Header { parts, range: start..stop + closing, inner: from..stop, double, path }
}

fn pair(text: &str, start: usize, end: usize, table: &str) -> Pair {
    let (parts, stop) = dotted(text, start, end);
    let key = start..parts.last().map_or(start, |part| part.range.end);
    let mut pair = Pair { table: table.to_owned(), parts, key, equals: None, value: stop..stop };
    let blanks = text[stop..end].len() - text[stop..end].trim_start().len();
    let equals = stop + blanks;
    if text[equals..end].starts_with('=') {
        pair.equals = Some(equals);
        let rest = &text[equals + 1..end];
        let from = equals + 1 + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
        let from = from.min(end);
        pair.value = from..value_end(text, from, end).max(from);
    }
    pair
}

/// The parts of a dotted key from `at` on, and where they end. An empty last part is one that is not typed yet.
pub fn dotted(text: &str, mut at: usize, end: usize) -> (Vec<KeyPart>, usize) {
    let mut parts = Vec::new();
    loop {
        at += text[at..end].len() - text[at..end].trim_start_matches([' ', '\t']).len();
        let rest = &text[at..end];
        let length = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => string_end(rest, quote),
            _ => rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len()),
        };
        let name = rest[..length].trim_matches(['"', '\'']).to_owned();
        if length > 0 || !parts.is_empty() {
            parts.push(KeyPart { name, range: at..at + length });
        }
        let after = at + length;
        let blanks = text[after..end].len() - text[after..end].trim_start_matches([' ', '\t']).len();
        if !text[after + blanks..end].starts_with('.') {
            return (parts, after);
        }
        at = after + blanks + 1;
    }
}

/// The length of the string in one line at the start of `text`, with its quotes.
fn string_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return i,
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return i + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The end of a value without what follows it: blanks and comments. A list, a table or a string that is not closed before the next
/// header ends with its line.
fn value_end(text: &str, from: usize, line: usize) -> usize {
    let (mut depth, mut lines) = (0usize, 0);
    for token in tokens(&text[from..]) {
        let range = from + token.start..from + token.end;
        match text[range.clone()].chars().next() {
            Some('\n') if depth == 0 => return trimmed(text, from, range.start),
            Some('\n') if lines == MAX_LINES || is_header(&text[range.end..]) => return line,
            Some('\n') => lines += 1,
            Some('#') if depth == 0 => return trimmed(text, from, range.start),
            Some('[' | '{') => depth += 1,
            Some(']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return range.end;
                }
            }
            _ => {}
        }
    }
    if depth == 0 { trimmed(text, from, text.len()) } else { line }
}

fn trimmed(text: &str, from: usize, to: usize) -> usize {
    from + text[from..to.max(from)].trim_end().len()
}

/// Whether a text begins with the line of a header. A list within a list may look like one, but its items are not bare words.
fn is_header(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default().trim();
    let inner = line.trim_start_matches('[');
    let name = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
    let (word, rest) = inner.split_at(inner.find(|c| !name(c)).unwrap_or(inner.len()));
    let value = ["true", "false", "inf", "nan"].contains(&word.trim());
    let rest = rest.trim_start_matches(']').trim_start();
    line.starts_with('[')
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !value
        && (rest.is_empty() || rest.starts_with('#'))
}

/// The tokens of a value: strings, comments, line ends, punctuation (one each), and words.
pub fn tokens(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].len() - text[at..].trim_start_matches([' ', '\t', '\r']).len();
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let long = ["\"\"\"", "'''"].into_iter().find(|quotes| rest.starts_with(quotes));
        let length = match (first, long) {
            (_, Some(quotes)) => match rest[3..].find(quotes) {
                Some(end) => end + 6,
                None => rest.find('\n').unwrap_or(rest.len()),
            },
            ('"' | '\'', _) => string_end(rest, first),
            ('#', _) => rest.find('\n').unwrap_or(rest.len()),
            ('\n' | '[' | ']' | '{' | '}' | ',' | '=', _) => 1,
            _ => rest
                .find(|c: char| " \t\r\n[]{},=#\"'".contains(c))
                .filter(|length| *length > 0)
                .unwrap_or(rest.len()),
        };
        at += length;
        Some(at - length..at)
    })
}

/// Appends a part to a dotted path.
pub fn join(path: &mut String, part: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let of = |line: &SpecLine| match line {
            SpecLine::Header(header) => format!("[{}]", header.path),
            SpecLine::Pair(pair) => {
                let parts: Vec<&str> = pair.parts.iter().map(|part| part.name.as_str()).collect();
                let equals = if pair.equals.is_some() { "=" } else { "" };
                format!("{}:{}{equals}{}", pair.table, parts.join("/"), &text[pair.value.clone()])
            }
        };
        lines(text).iter().map(of).collect()
    }

    #[test]
    fn headers_and_pairs_are_found() {
        let text = "seed = 3 # c\n[a.\"b c\"]\nx.y = [1, # c\n 2,\n]\n[[s]]\nn = \"# [x]\"\n[[s]]\n[s.t]\nz = '''\n[no]\n'''\n";
        let expected = [
            ":seed=3",
            "[a.b c]",
            "a.b c:x/y=[1, # c\n 2,\n]",
            "[s.0]",
            "s.0:n=\"# [x]\"",
            "[s.1]",
            "[s.1.t]",
            "s.1.t:z='''\n[no]\n'''",
        ];
        assert_eq!(shown(text), expected);
    }

    #[test]
    fn what_is_not_closed_ends_with_its_line() {
        let text = "a = [1, \nb = 2\n[t]\nc = \"x\nd = \"\"\"y\ne = {f = 1\n[u\ng.\nh\n=\ni =";
        let expected = [
            ":a=[1, ",
            ":b=2",
            "[t]",
            "t:c=\"x",
            "t:d=\"\"\"y",
            "t:e={f = 1",
            "[u]",
            "u:g/",
            "u:h",
            "u:=",
            "u:i=",
        ];
        assert_eq!(shown(text), expected);
    }
}
