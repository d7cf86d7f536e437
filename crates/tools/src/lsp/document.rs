//! An open document, and the results of its check.

use super::found::{self, Finding};
use super::lines::{SpecLine, lines};
use super::text::Text;
use super::{cursor, files};
use base::panics::catch_model_panic;
use job::plan::{Plan, Purpose, WorldRequest};
use job::reference::{Key, Reference, keys, without_indices};
use job::registry::Registry;
use lsp_types::{DiagnosticSeverity, Uri};
use spec::{Declaration, Diagnostics, Examined, JobTree, Override, ResolvedValue, Texts};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// A document in the client's state.
pub struct Document {
    pub uri: Uri,
    /// `None` if it is in no file.
    pub path: Option<PathBuf>,
    pub version: Option<i32>,
    pub text: Text,
    pub lines: Vec<SpecLine>,
    pub checked: Checked,
    /// The values of the last text without problems.
    pub earlier: Vec<ResolvedValue>,
}

/// The results of a check.
#[derive(Default)]
pub struct Checked {
    /// `None` if it could not be read at all.
    pub tree: Option<JobTree>,
    pub values: Vec<ResolvedValue>,
    pub declarations: Vec<Declaration>,
    pub problems: Vec<Finding>,
    /// The identities of the files that it extends, those that can't be read included.
    pub bases: Vec<PathBuf>,
}

/// A text as read, or why a component panicked; with the messages about edits that do not fit.
type Read = (JobTree, Result<Examined<Option<Plan>>, String>, Vec<Finding>);

impl Document {
    pub fn new(uri: Uri, version: Option<i32>, text: String) -> Self {
        let path = files::path_of(&uri);
        let mut document = Self {
            uri,
            path,
            version: None,
            text: Text::default(),
            lines: Vec::new(),
            checked: Checked::default(),
            earlier: Vec::new(),
        };
        document.change(version, text);
        document
    }

    pub fn change(&mut self, version: Option<i32>, text: String) {
        self.version = version;
        self.lines = lines(&text);
        self.text = Text::new(text);
    }

    /// Canonical path and text.
    pub fn unsaved(&self) -> Option<(PathBuf, String)> {
        Some((files::identity(self.path.as_deref()?), self.text.text.clone()))
    }

    /// Whether this is a job spec: see docs/editors.md.
    pub fn is_spec(&self) -> bool {
        const OTHERS: [&str; 5] = ["package", "workspace", "project", "tool", "build-system"];
        let foreign = |line: &SpecLine| match line {
            SpecLine::Header(header) => {
                header.parts.first().is_some_and(|part| OTHERS.contains(&part.name.as_str()))
            }
            SpecLine::Pair(_) => false,
        };
        self.path.as_deref().is_none_or(files::may_be_spec) && !self.lines.iter().any(foreign)
    }

    /// Checks the text as `ddp-run check` does; `others` has the texts of other open documents.
    pub fn check(&mut self, registry: &Registry, edits: &[Override], others: Texts<'_>) {
        self.checked = Checked::default();
        if !self.is_spec() {
            return;
        }
        let own = self.path.as_deref().map(files::identity);
        // Every file is requested here before it is read.
        let asked = RefCell::new(Vec::new());
        let unsaved = |path: &Path| {
            let path = files::identity(path);
            if own.as_ref() == Some(&path) {
                return Some(self.text.text.clone());
            }
            let text = others(&path);
            asked.borrow_mut().push(path);
            text
        };
        let (tree, examined, unfit) = match self.examined(registry, edits, &unsaved) {
            Ok(read) => read,
            Err(problems) => return self.checked.problems = found::all(&problems),
        };
        self.checked.bases = asked.into_inner();
        match examined {
            Ok(Examined { made, values, declarations, problems }) => {
                self.checked.problems = match (&problems, made) {
                    (Some(problems), _) => found::all(problems),
                    (None, Some(plan)) => found::warnings(&plan, &tree),
                    (None, None) => Vec::new(),
                };
                if problems.is_none() {
                    self.earlier.clone_from(&values);
                }
                (self.checked.values, self.checked.declarations) = (values, declarations);
            }
            Err(why) => {
                let message = format!("a component panicked when it read its keys: {why}");
                self.checked.problems.push(Finding::at_start(message, "panic", DiagnosticSeverity::ERROR));
            }
        }
        self.checked.problems.extend(unfit);
        self.checked.tree = Some(tree);
    }

    /// Reads the text with the edits that fit it, and returns those that do not.
    fn examined(
        &self,
        registry: &Registry,
        edits: &[Override],
        unsaved: Texts<'_>,
    ) -> Result<Read, Diagnostics> {
        let (mut edits, mut unfit) = (edits.to_vec(), Vec::new());
        loop {
            let tree = match &self.path {
                Some(path) => JobTree::load_with(path, &edits, unsaved)?,
                None => JobTree::parse("", &self.text.text, &edits),
            };
            // A user's component may panic on values that it does not check.
            let examined = catch_model_panic(|| {
                Plan::examine(&tree, registry, WorldRequest::default().to(Purpose::Start))
            });
            let problems = examined.as_ref().ok().and_then(|examined| examined.problems.as_ref());
            let wrong = problems.map(found::unfit_edits).unwrap_or_default();
            let before = edits.len();
            edits.retain(|edit| !wrong.iter().any(|(typed, _)| *typed == edit.shown()));
            if edits.len() == before {
                return Ok((tree, examined, unfit));
            }
            unfit.extend(wrong.into_iter().map(|(_, found)| found));
        }
    }

    /// The bytes of the `extends` value; the start of the text if there is none.
    pub fn extends(&self) -> std::ops::Range<usize> {
        let pair = self.lines.iter().find_map(|line| match line {
            SpecLine::Pair(pair) if pair.table.is_empty() && pair.parts.len() == 1 => {
                (pair.parts[0].name == "extends").then_some(pair)
            }
            _ => None,
        });
        pair.map_or(0..0, |pair| pair.value.clone())
    }

    /// The file that the spec extends.
    pub fn base(&self) -> Option<PathBuf> {
        let name = unquoted(&self.text.text[self.extends()]);
        let folder = self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        (!name.is_empty()).then(|| folder.join(name))
    }

    pub fn at(&self, offset: usize) -> cursor::At {
        cursor::at(&self.text.text, &self.lines, offset)
    }

    /// The keys that the table at a path may have.
    pub fn keys(&self, reference: &Reference, table: &str) -> Vec<Key> {
        let plain = without_indices(table);
        // A name of the table itself, with its index, not of another one of its list.
        let chosen = |path: &str| self.name_in(if path == plain { table } else { path });
        let known = reference.keys_at(&plain, &chosen);
        if !known.is_empty() {
            return known;
        }
        // Keys that only this spec has: the keys of a hook.
        let declared = self.checked.declarations.iter().filter(|d| d.table == table);
        declared.flat_map(|declaration| keys(&declaration.schema)).collect()
    }

    /// The `name` in a table: in this text, else in a file that it extends, else as it was.
    pub fn name_in(&self, table: &str) -> Option<String> {
        let path = format!("{table}.name");
        let written = self.lines.iter().find_map(|line| match line {
            SpecLine::Pair(pair) if path_of(pair) == path => {
                Some(unquoted(&self.text.text[pair.value.clone()]))
            }
            _ => None,
        });
        let read = || Some(self.checked.tree.as_ref()?.string(&path)?.to_owned());
        let earlier =
            || Some(self.earlier.iter().find(|value| value.key == path)?.value.as_str()?.to_owned());
        written.or_else(read).or_else(earlier)
    }

    /// Whether each header of this table is one of a list (`[[table]]`), without the header that is being typed at `except`.
    pub fn headings(&self, table: &str, except: &std::ops::Range<usize>) -> Vec<bool> {
        let of = |line: &SpecLine| match line {
            SpecLine::Header(header) => {
                let typed = header.range.start <= except.start && except.end <= header.range.end;
                (without_indices(&header.path) == table && !typed).then_some(header.double)
            }
            SpecLine::Pair(_) => None,
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// Names of the keys that this text sets in a table.
    pub fn set_in(&self, table: &str) -> Vec<String> {
        let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
        let of = |line: &SpecLine| match line {
            SpecLine::Pair(pair) => Some(path_of(pair)),
            SpecLine::Header(header) => Some(header.path.clone()),
        };
        let below = self.lines.iter().filter_map(of);
        let names = below.filter_map(|path| Some(path.strip_prefix(&prefix)?.split('.').next()?.to_owned()));
        names.collect()
    }
}

/// The dotted path of a pair's key.
fn path_of(pair: &super::lines::Pair) -> String {
    let mut path = pair.table.clone();
    pair.parts.iter().for_each(|part| super::lines::join(&mut path, &part.name));
    path
}

/// The text of a string, whether its end is there or not.
pub fn unquoted(text: &str) -> String {
    let text = text.trim();
    let read = format!("text = {text}").parse::<toml::Table>();
    match read.as_ref().ok().and_then(|table| table.get("text")?.as_str()) {
        Some(text) => text.to_owned(),
        None => text.trim_matches(['"', '\'']).to_owned(),
    }
}
