//! Where predictions go: JSON lines or CSV to a file, which appears when it is whole, or to standard output; on a terminal, lines for a person.

use super::super::printed;
use base::display;
use base::error::{Error, IoContext, Result};
use base::files::AtomicFile;
use data::in_line;
use serde_json::{Map, Value};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

pub(super) struct Lines {
    to: Option<(AtomicFile, PathBuf)>,
    form: Form,
}

enum Form {
    /// A JSON object per input.
    Json,
    Csv(Vec<Column>),
    /// For a person at a terminal. Classes have this width.
    Screen(usize),
}

/// A column of a CSV file.
pub(super) struct Column {
    pub name: String,
    /// The entry of a line.
    pub key: &'static str,
    /// Where it is in the entry, which is a list.
    pub at: Option<usize>,
}

impl Column {
    /// An entry under its own name.
    pub fn new(key: &'static str) -> Self {
        Self { name: key.to_owned(), key, at: None }
    }

    fn cell(&self, line: &Map<String, Value>) -> String {
        let entry = line.get(self.key);
        match self.at.map_or(entry, |at| entry?.get(at)) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

impl Lines {
    /// To standard output without a file, and with `-`. A file that ends in `.csv` has these columns.
    pub fn new(file: Option<&Path>, columns: impl FnOnce() -> Vec<Column>, width: usize) -> Result<Self> {
        let is_csv = |file: &Path| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        let form = match file {
            Some(file) if is_csv(file) => Form::Csv(columns()),
            None if io::stdout().is_terminal() => Form::Screen(width),
            _ => Form::Json,
        };
        let to = match file.filter(|file| *file != Path::new("-")) {
            Some(file) => Some((AtomicFile::new(file).doing("write", file)?, file.to_owned())),
            None => None,
        };
        let mut lines = Self { to, form };
        if let Form::Csv(columns) = &lines.form {
            let names = row(columns.iter().map(|column| column.name.clone()));
            lines.put(&names)?;
        }
        Ok(lines)
    }

    /// Whether there is still a reader.
    pub fn write(&mut self, line: Map<String, Value>) -> Result<bool> {
        let text = match &self.form {
            Form::Json => format!("{}\n", Value::Object(line)),
            Form::Csv(columns) => row(columns.iter().map(|column| column.cell(&line))),
            Form::Screen(width) => on_screen(&line, *width),
        };
        self.put(&text)
    }

    fn put(&mut self, text: &str) -> Result<bool> {
        match &mut self.to {
            Some((draft, file)) => draft.write_all(text.as_bytes()).doing("write", file).map(|()| true),
            None => {
                // JSON escapes only some control characters.
                let text = if io::stdout().is_terminal() { display::message(text) } else { text.into() };
                is_read(io::stdout().write_all(text.as_bytes()))
            }
        }
    }

    /// Makes the file visible.
    pub fn finish(self) -> Result<()> {
        match self.to {
            Some((draft, file)) => draft.put_synced().doing("write", &file),
            None => printed(io::stdout().flush()),
        }
    }
}

/// A line of a CSV file.
fn row(cells: impl Iterator<Item = String>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither fails: it writes to memory, and there is one record.
    let _ = writer.write_record(cells.collect::<Vec<String>>());
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// `93.0 %  cat  a.png`, `206855.8  new.csv, line 2` or `error: it is not an image  a.png`.
fn on_screen(line: &Map<String, Value>, width: usize) -> String {
    let text = |key: &str| match line.get(key) {
        Some(Value::String(text)) => text.clone(),
        other => other.map(Value::to_string).unwrap_or_default(),
    };
    let answer = match line.get("probability").and_then(Value::as_f64) {
        _ if line.contains_key("error") => format!("error: {}", text("error")),
        Some(probability) => format!("{:5.1} %  {:width$}", probability * 100.0, text("class")),
        None => text("value") + &text("values"),
    };
    format!("{answer}  {}\n", place(line))
}

/// The input as text.
pub(super) fn place(line: &Map<String, Value>) -> String {
    let input = line.get("input").and_then(Value::as_str).unwrap_or_default();
    match line.get("line") {
        Some(at) => in_line(input, at),
        None => input.to_owned(),
    }
}

/// Whether somebody reads what was written to standard output: the work behind it ends with a reader that closes the pipe
/// (`| head`), which is not an error.
pub(super) fn is_read(written: io::Result<()>) -> Result<bool> {
    let closed = written.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
    printed(written).map(|()| !closed)
}

/// The error of a command that could not use some of its inputs: their lines say why, if there are lines.
pub(super) fn unusable(failed: usize, of: usize, first: &str, lines: bool) -> Result<()> {
    let error = Error::data(format!("{failed} of {of} inputs can't be used; the first: {first}"));
    match failed {
        0 => Ok(()),
        _ if lines => {
            Err(error.hint("the lines with `error` name all of them; the other lines are complete"))
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines() -> [Map<String, Value>; 3] {
        [
            json!({ "input": "a.png", "class": "a \"cat\", or so", "probability": 0.9312, "logits": [1.5, -2.0] }),
            json!({ "input": "new.csv", "line": 2, "value": 206855.8 }),
            json!({ "input": "b.png", "error": "it is not an image" }),
        ]
        .map(|line| line.as_object().unwrap().clone())
    }

    #[test]
    fn a_csv_file_has_a_column_for_each_entry() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.CSV");
        let columns = || {
            let logit = Column { name: "logit dog".to_owned(), key: "logits", at: Some(1) };
            vec![
                Column::new("input"),
                Column::new("class"),
                logit,
                Column::new("value"),
                Column::new("error"),
            ]
        };
        let mut out = Lines::new(Some(&file), columns, 0).unwrap();
        assert!(lines().into_iter().all(|line| out.write(line).unwrap()));
        assert!(!file.exists(), "it appears when it is whole");
        out.finish().unwrap();
        let expected = "input,class,logit dog,value,error\n\
                        a.png,\"a \"\"cat\"\", or so\",-2.0,,\n\
                        new.csv,,,206855.8,\n\
                        b.png,,,,it is not an image\n";
        assert_eq!(std::fs::read_to_string(file).unwrap(), expected);
    }

    #[test]
    fn a_person_reads_a_line_per_input() {
        let said: String = lines().iter().map(|line| on_screen(line, 16)).collect();
        let expected = " 93.1 %  a \"cat\", or so    a.png\n\
                        206855.8  new.csv, line 2\n\
                        error: it is not an image  b.png\n";
        assert_eq!(said, expected);
    }
}
