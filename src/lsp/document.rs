//! An open document, and what checking it tells.

use super::lines::{Line, lines};
use super::text::Text;
use super::{cursor, files};
use crate::caught::caught;
use crate::plan::{Plan, WorldRequest};
use crate::reference::{Key, Reference, keys, without_indices};
use crate::registry::Registry;
use crate::spec::{Declaration, Diagnostics, Examined, JobTree, Override, Problem, ResolvedValue};
use lsp_types::Uri;
use std::path::{Path, PathBuf};

/// A document as the client has it.
pub struct Document {
    pub uri: Uri,
    /// `None` if it is in no file.
    pub path: Option<PathBuf>,
    pub version: Option<i32>,
    pub text: Text,
    pub lines: Vec<Line>,
    pub checked: Checked,
    /// The values of the last text without problems.
    pub earlier: Vec<ResolvedValue>,
}

/// What a check tells.
#[derive(Default)]
pub struct Checked {
    /// `None` if it could not be read at all.
    pub tree: Option<JobTree>,
    pub values: Vec<ResolvedValue>,
    pub declarations: Vec<Declaration>,
    pub problems: Vec<Found>,
    /// Canonical paths of the files that it extends.
    pub bases: Vec<PathBuf>,
}

/// A problem, or a warning.
pub struct Found {
    /// The file that it is in; `None` for the document itself and for the command line.
    pub base: Option<Base>,
    /// The bytes; of the file's text if there is one, else of the document.
    pub range: std::ops::Range<usize>,
    pub message: String,
    pub code: &'static str,
    pub meant: Option<String>,
    pub is_warning: bool,
}

/// Another file.
pub struct Base {
    pub path: PathBuf,
    pub text: Text,
}

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
        let foreign = |line: &Line| match line {
            Line::Header(header) => {
                header.parts.first().is_some_and(|part| OTHERS.contains(&part.name.as_str()))
            }
            Line::Pair(_) => false,
        };
        self.path.as_deref().is_none_or(files::may_be_spec) && !self.lines.iter().any(foreign)
    }

    /// Checks the text as `ddp-run check` does; `others` has the texts of other open documents.
    pub fn check(
        &mut self,
        registry: &Registry,
        edits: &[Override],
        others: &dyn Fn(&Path) -> Option<String>,
    ) {
        self.checked = Checked::default();
        if !self.is_spec() {
            return;
        }
        let own = self.path.as_deref().map(files::identity);
        let unsaved = |path: &Path| match own.as_ref() == Some(&files::identity(path)) {
            true => Some(self.text.text.clone()),
            false => others(path),
        };
        let tree = match &self.path {
            Some(path) => JobTree::load_with(path, edits, &unsaved),
            None => JobTree::parse("", &self.text.text, edits),
        };
        let tree = match tree {
            Ok(tree) => tree,
            Err(problems) => return self.checked.problems = self.found(&problems),
        };
        // A user's component may panic on values that it does not check.
        let examined = caught(|| Plan::examine(&tree, registry, WorldRequest::default()));
        self.checked.bases = bases(&tree);
        match examined {
            Ok(Examined { made, values, declarations, problems }) => {
                self.checked.problems = match (&problems, made) {
                    (Some(problems), _) => self.found(problems),
                    (None, Some(plan)) => warnings(&plan, &tree),
                    (None, None) => Vec::new(),
                };
                if problems.is_none() {
                    self.earlier.clone_from(&values);
                }
                (self.checked.values, self.checked.declarations) = (values, declarations);
            }
            Err(why) => self.checked.problems.push(Found {
                base: None,
                range: 0..0,
                message: format!("a component panicked when it read its keys: {why}"),
                code: "panic",
                meant: None,
                is_warning: false,
            }),
        }
        self.checked.tree = Some(tree);
    }

    fn found(&self, diagnostics: &Diagnostics) -> Vec<Found> {
        let of = |problem: &Problem| {
            let source = diagnostics.source(problem);
            let hint = problem.hint.as_deref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let at = problem.span.start..problem.span.end;
            let (range, place) = match source.is_override() {
                true => (0..0, format!("{}: ", source.text)),
                false => (at, String::new()),
            };
            let base = source
                .is_base()
                .then(|| Base { path: PathBuf::from(&source.name), text: Text::new(source.text.as_str()) });
            Found {
                base,
                range,
                message: format!("{place}{}{hint}", problem.message),
                code: problem.code(),
                meant: problem.meant.clone(),
                is_warning: false,
            }
        };
        diagnostics.problems().iter().map(of).collect()
    }

    /// The bytes of the `extends` value; the start of the text if there is none.
    pub fn extends(&self) -> std::ops::Range<usize> {
        let pair = self.lines.iter().find_map(|line| match line {
            Line::Pair(pair) if pair.table.is_empty() && pair.parts.len() == 1 => {
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
        // Keys that only this spec has: those of a hook.
        let declared = self.checked.declarations.iter().filter(|d| d.table == table);
        declared.flat_map(|declaration| keys(&declaration.schema)).collect()
    }

    /// The `name` in a table: in this text, else in a file that it extends, else as it was.
    pub fn name_in(&self, table: &str) -> Option<String> {
        let path = format!("{table}.name");
        let written = self.lines.iter().find_map(|line| match line {
            Line::Pair(pair) if path_of(pair) == path => {
                Some(unquoted(&self.text.text[pair.value.clone()]).to_owned())
            }
            _ => None,
        });
        let read = || Some(self.checked.tree.as_ref()?.string(&path)?.to_owned());
        let earlier =
            || Some(self.earlier.iter().find(|value| value.key == path)?.value.as_str()?.to_owned());
        written.or_else(read).or_else(earlier)
    }

    /// Names of the keys that this text sets in a table.
    pub fn set_in(&self, table: &str) -> Vec<String> {
        let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
        let of = |line: &Line| match line {
            Line::Pair(pair) => Some(path_of(pair)),
            Line::Header(header) => Some(header.path.clone()),
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
pub fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

fn bases(tree: &JobTree) -> Vec<PathBuf> {
    let bases = tree.sources().iter().filter(|source| source.is_base());
    bases.map(|source| files::identity(Path::new(&source.name))).collect()
}

fn warnings(plan: &Plan, tree: &JobTree) -> Vec<Found> {
    let of = |(key, why): (&str, String)| {
        let place = tree.place(key);
        let source = place.map(|place| tree.source(place.value));
        let base = source
            .filter(|source| source.is_base())
            .map(|source| Base { path: PathBuf::from(&source.name), text: Text::new(source.text.as_str()) });
        let own = place.filter(|_| source.is_some_and(|source| !source.is_override()));
        Found {
            base,
            range: own.map_or(0..0, |place| place.value.start..place.value.end),
            message: format!("`{key}`: {why}"),
            code: "warning",
            meant: None,
            is_warning: true,
        }
    };
    plan.warnings().into_iter().map(of).collect()
}
