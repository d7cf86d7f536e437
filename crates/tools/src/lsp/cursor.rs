//! The part of a document that a position is in.

use super::lines::{Header, KeyPart, Pair, SpecLine, join, tokens};
use std::ops::Range;

/// The part of a document that a position is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In the brackets of a header.
    Header { parts: Vec<KeyPart>, part: usize, inner: Range<usize>, double: bool },
    /// In a key, or where one may be typed.
    Key {
        /// The path of the table in which the part at the position is a key.
        table: String,
        part: KeyPart,
        /// The line is empty up to here, so a header fits too.
        blank: bool,
        /// A value follows.
        valued: bool,
    },
    /// In a value, or where one may be typed.
    Value {
        /// Dotted path of the key.
        key: String,
        /// The word or string at the position; empty between them.
        token: Range<usize>,
        /// In the brackets of a list.
        listed: bool,
    },
    /// A comment, or beyond a value.
    Nothing,
}

/// What is at a byte offset, on a character, of `text` with these lines.
pub fn at(text: &str, lines: &[SpecLine], offset: usize) -> At {
    let next = lines.partition_point(|line| line.start() <= offset);
    let before = next.checked_sub(1).map(|i| &lines[i]);
    let same_line = |from: usize| !text[from.min(offset)..offset].contains('\n');
    match before {
        Some(SpecLine::Header(header)) if same_line(header.range.start) => in_header(header, offset),
        Some(SpecLine::Pair(pair)) if same_line(pair.value.end.max(pair.key.end)) => {
            in_pair(text, pair, offset)
        }
        _ => {
            let start = text[..offset].rfind('\n').map_or(0, |i| i + 1);
            if !text[start..offset].trim_start_matches('\u{feff}').trim().is_empty() {
                return At::Nothing;
            }
            let table = match before {
                Some(SpecLine::Header(header)) => header.path.clone(),
                Some(SpecLine::Pair(pair)) => pair.table.clone(),
                None => String::new(),
            };
            // At the beginning of a line that has a key, or a header, already.
            let end = text[offset..].find('\n').map_or(text.len(), |i| offset + i);
            if !text[offset..end].trim().is_empty() {
                return At::Nothing;
            }
            At::Key { table, part: empty(offset), blank: true, valued: false }
        }
    }
}

fn empty(offset: usize) -> KeyPart {
    KeyPart { name: String::new(), range: offset..offset }
}

fn in_header(header: &Header, offset: usize) -> At {
    if offset > header.range.end || offset < header.inner.start {
        return At::Nothing;
    }
    let part = header.parts.iter().position(|part| offset <= part.range.end);
    At::Header {
        part: part.unwrap_or(header.parts.len().saturating_sub(1)),
        parts: header.parts.clone(),
        inner: header.inner.clone(),
        double: header.double,
    }
}

fn in_pair(text: &str, pair: &Pair, offset: usize) -> At {
    let mut table = pair.table.clone();
    match pair.equals.filter(|equals| offset > *equals) {
        None => {
            if pair.equals.is_none() && offset > pair.key.end {
                return At::Nothing;
            }
            let at = pair.parts.iter().position(|part| offset <= part.range.end);
            let at = at.unwrap_or(pair.parts.len().saturating_sub(1));
            pair.parts.iter().take(at).for_each(|part| join(&mut table, &part.name));
            let part = pair.parts.get(at).cloned().unwrap_or_else(|| empty(offset));
            At::Key { table, part, blank: at == 0, valued: pair.equals.is_some() }
        }
        Some(_) => {
            pair.parts.iter().for_each(|part| join(&mut table, &part.name));
            let behind = text.get(pair.value.end..offset).unwrap_or_default();
            if behind.contains('#') || !(behind.is_empty() || pair.value.is_empty()) {
                return At::Nothing;
            }
            in_value(text, table, &pair.value, offset)
        }
    }
}

/// A list or an inline table that is open at the position.
struct Open {
    is_table: bool,
    /// The key of the pair that is being read.
    key: Vec<KeyPart>,
    in_value: bool,
    /// The index of the item that is being read.
    index: usize,
}

fn in_value(text: &str, mut key: String, value: &Range<usize>, offset: usize) -> At {
    let mut open: Vec<Open> = Vec::new();
    let mut token = offset..offset;
    for range in tokens(&text[value.clone()]) {
        let range = value.start + range.start..value.start + range.end;
        let is_word =
            !matches!(text.as_bytes()[range.start], b'[' | b']' | b'{' | b'}' | b',' | b'=' | b'\n');
        if range.start > offset || (range.start == offset && !is_word) {
            break;
        }
        if is_word && offset <= range.end {
            if text[range.clone()].starts_with('#') {
                return At::Nothing;
            }
            token = range;
            break;
        }
        match (text.as_bytes()[range.start], open.last_mut()) {
            (b @ (b'[' | b'{'), _) => {
                open.push(Open { is_table: b == b'{', key: Vec::new(), in_value: false, index: 0 });
            }
            (b']' | b'}', _) => drop(open.pop()),
            (b',', Some(inner)) => {
                (inner.in_value, inner.index) = (false, inner.index + 1);
                inner.key.clear();
            }
            (b'=', Some(inner)) => inner.in_value = true,
            (_, Some(inner)) if is_word && inner.is_table && !inner.in_value => {
                inner.key = super::lines::dotted(text, range.start, range.end).0;
            }
            _ => {}
        }
    }
    let innermost = open.len().saturating_sub(1);
    for (i, inner) in open.iter().enumerate() {
        if !inner.is_table {
            // Items of a list of values have no key.
            if i < innermost {
                join(&mut key, &inner.index.to_string());
            }
        } else if inner.in_value || i < innermost {
            inner.key.iter().for_each(|part| join(&mut key, &part.name));
        }
    }
    match open.last() {
        Some(inner) if inner.is_table && !inner.in_value => {
            let (mut parts, _) = super::lines::dotted(text, token.start, token.end);
            let at = parts.iter().position(|part| offset <= part.range.end);
            let at = at.unwrap_or(parts.len().saturating_sub(1));
            parts.iter().take(at).for_each(|part| join(&mut key, &part.name));
            let part = if parts.is_empty() { empty(offset) } else { parts.swap_remove(at) };
            let line = text[token.end..].lines().next().unwrap_or_default();
            At::Key { table: key, part, blank: false, valued: line.trim_start().starts_with('=') }
        }
        last => At::Value { key, token, listed: last.is_some_and(|inner| !inner.is_table) },
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::lines;
    use super::*;

    /// What is at the `|` of a text.
    fn shown(text: &str) -> String {
        let offset = text.find('|').expect("a cursor");
        let text = text.replacen('|', "", 1);
        match at(&text, &lines(&text), offset) {
            At::Header { parts, part, double, .. } => {
                let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                format!("header {} {part} {double}", names.join("."))
            }
            At::Key { table, part, blank, valued } => format!(
                "key {table}:{}{}{}",
                part.name,
                if blank { " blank" } else { "" },
                if valued { " valued" } else { "" }
            ),
            At::Value { key, token, listed } => {
                format!("value {key}:{}{}", &text[token], if listed { " listed" } else { "" })
            }
            At::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn the_cursor_is_found() {
        for (text, expected) in [
            ("|", "key : blank"),
            ("[a]\n|", "key a: blank"),
            ("[a]\nx = 1\n|\n[b]", "key a: blank"),
            ("[a|]", "header a 0 false"),
            ("[[a.b|", "header a.b 1 true"),
            ("[|", "header  0 false"),
            ("[a]\nl|r = 1", "key a:lr blank valued"),
            ("[a]\nl|", "key a:l blank"),
            ("a.|", "key a:"),
            ("a.b|.c = 1", "key a:b valued"),
            ("[a]\nlr =|", "value a.lr:"),
            ("[a]\nlr = |", "value a.lr:"),
            ("[a]\nn = \"sg|d\" # c", "value a.n:\"sgd\""),
            ("[a]\nn = \"|", "value a.n:\""),
            ("[a]\nn = \"sgd\" # |c", "nothing"),
            ("[a]\nn = 1 | # c", "nothing"),
            ("# |", "nothing"),
            ("b = [1, 2|]", "value b:2 listed"),
            ("b = [\n  \"x\",\n  \"y|\"\n]", "value b:\"y\" listed"),
            ("b = [|", "value b: listed"),
            ("b = [1, |\nc = 2", "value b: listed"),
            ("o = { name = \"a|\" }", "value o.name:\"a\""),
            ("o = { name = \"a\", l| }", "key o:l"),
            ("o = { na|me = \"a\" }", "key o:name valued"),
            ("o = { | }", "key o:"),
            ("s = [{ name = \"a\" }, { u|", "key s.1:u"),
            ("[[s]]\nx = 1\n[[s]]\ny|", "key s.1:y blank"),
            ("| x = 1", "nothing"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
