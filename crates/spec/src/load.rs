//! Merges files and arguments into one tree: `extends` chains, then the command line's edits.

use super::collect::{Collector, Declaration, ResolvedValue};
use super::diagnostics::{Diagnostics, Problem};
use super::fields::Fields;
use super::merge::merge;
use super::overrides::{self, Override};
use super::parse;
use super::source::{Origin, Role, Source, Span};
use super::tree::{Node, Table, Value};
use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The key of the top level that names a base.
pub(super) const EXTENDS: &str = "extends";
/// Maximum size of a spec; a longer file is something else.
const MAX_BYTES: u64 = 4 << 20;

/// A job as written: the spec, the specs that it extends, and the command line's edits, merged.
#[derive(Clone, Debug)]
pub struct JobTree {
    /// The spec, then its bases, then the command line's edits.
    pub(super) sources: Arc<Vec<Source>>,
    pub(super) root: Table,
    /// Problems of reading the texts, kept until they are shown together with those of the tree.
    pub(super) early: Vec<Problem>,
    /// Something missing from the tree may be in text that could not be read.
    pub(super) shaky: bool,
    torn: Vec<Span>,
}

impl JobTree {
    /// Reads the spec at `path` (`-`: from standard input, whose `extends` is relative to the current folder) and its
    /// bases.
    ///
    /// The only error here is a file that can't be read. Syntax errors, wrong edits, missing bases and cycles of bases
    /// are kept for [`JobTree::read`], to be shown with all other problems.
    pub fn load(path: &Path, edits: &[Override]) -> Result<JobTree, Diagnostics> {
        Self::load_with(path, edits, &|_| None)
    }

    /// As [`JobTree::load`]; files for which `unsaved` has a text are not read.
    pub fn load_with(path: &Path, edits: &[Override], unsaved: Texts<'_>) -> Result<JobTree, Diagnostics> {
        let name = shown_name(path);
        let read = match is_standard_input(path) {
            true => text_of(std::io::stdin().lock()),
            false => read_text(path, unsaved),
        };
        match read {
            Ok(text) if is_standard_input(path) => Ok(Self::build(&name, text, None, edits, unsaved)),
            Ok(text) => Ok(Self::build(&name, text, Some(path), edits, unsaved)),
            Err(why) => {
                let sources = Arc::new(vec![Source::new(Role::Spec, name, "")]);
                Err(Diagnostics::new(sources, vec![Problem::new(Span::new(0, 0..0), why)]))
            }
        }
    }

    /// As [`JobTree::load`], for a text in memory; an `extends` in it is relative to the folder of `name`.
    pub fn parse(name: &str, text: &str, edits: &[Override]) -> JobTree {
        Self::build(name, text.to_owned(), None, edits, &|_| None)
    }

    fn build(
        name: &str,
        text: String,
        path: Option<&Path>,
        edits: &[Override],
        unsaved: Texts<'_>,
    ) -> JobTree {
        let mut loader = Loader::new(unsaved);
        let identity = path.map_or_else(|| PathBuf::from(name), identify);
        let mut root = loader.document(Role::Spec, PathBuf::from(name), identity, text);
        let edit_problems = overrides::apply(&mut root, edits, &mut loader.sources);
        loader.shaky |= !edit_problems.is_empty();
        loader.problems.extend(edit_problems);
        JobTree {
            sources: Arc::new(loader.sources),
            root,
            early: loader.problems,
            shaky: loader.shaky,
            torn: loader.torn,
        }
    }

    /// Reads the whole tree with `read`. Returns its result and all values, or all problems: those that it reported,
    /// keys that it did not read, and syntax errors.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Result<(T, Vec<ResolvedValue>), Diagnostics> {
        let Examined { made, values, problems, .. } = self.examine(read);
        problems.map_or(Ok((made, values)), Err)
    }

    /// Reads the whole tree with `read`, and returns all that is learnt by it.
    pub fn examine<T>(&self, read: impl FnOnce(&mut Fields<'_>) -> T) -> Examined<T> {
        let out = Collector::default();
        let made = {
            let mut root = Fields::root(self, &out);
            // It is taken out of the tree before the tree is read.
            root.know(Cow::Borrowed(EXTENDS));
            read(&mut root)
        };
        let declarations = out.declarations.take();
        let (values, found) = out.finish();
        let sound = found.is_empty() && self.early.is_empty();
        let problems = (!sound)
            .then(|| Diagnostics::combine(self.sources.clone(), &self.early, self.shaky, &self.torn, found));
        Examined { made, values, declarations, problems }
    }

    pub(super) fn origin(&self, span: Span) -> Origin {
        self.sources[span.source].origin()
    }
}

/// The result of reading a tree.
pub struct Examined<T> {
    /// What `read` returned, with problems too.
    pub made: T,
    /// The values that could be read, with problems too.
    pub values: Vec<ResolvedValue>,
    /// The declarations of all keys that were read.
    pub declarations: Vec<Declaration>,
    /// `None` if the tree is sound.
    pub problems: Option<Diagnostics>,
}

/// A canonical name of the file, to detect cycles. Of one that is not there, that of its folder and its own.
pub fn identify(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            identify(folder).join(name)
        }
        _ => path.to_owned(),
    })
}

/// `-`.
fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of a spec in messages.
pub fn shown_name(path: &Path) -> String {
    match is_standard_input(path) {
        true => "<stdin>".to_owned(),
        false => path.display().to_string(),
    }
}

fn read_text(path: &Path, unsaved: Texts<'_>) -> Result<String, String> {
    match unsaved(path) {
        Some(text) => text_of(text.as_bytes()),
        None => text_of(base::files::open(path).map_err(cannot_read)?),
    }
}

fn cannot_read(e: std::io::Error) -> String {
    format!("cannot read the file: {e}")
}

fn text_of(file: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("not a job spec: longer than {} MiB", MAX_BYTES >> 20));
    }
    String::from_utf8(bytes)
        .map_err(|e| format!("not a job spec: byte {} is not UTF-8 text", e.utf8_error().valid_up_to() + 1))
}

/// The text of a file that an editor has not saved yet, by its path.
pub type Texts<'a> = &'a dyn Fn(&Path) -> Option<String>;

struct Loader<'a> {
    unsaved: Texts<'a>,
    sources: Vec<Source>,
    /// Identity and displayed name of each file in the current chain.
    chain: Vec<(PathBuf, String)>,
    problems: Vec<Problem>,
    shaky: bool,
    torn: Vec<Span>,
}

impl<'a> Loader<'a> {
    fn new(unsaved: Texts<'a>) -> Self {
        let (sources, chain, problems, torn) = Default::default();
        Self { unsaved, sources, chain, problems, shaky: false, torn }
    }

    /// Parses one text and merges it over its base. Problems are recorded in `self`.
    fn document(&mut self, role: Role, path: PathBuf, identity: PathBuf, text: String) -> Table {
        let source = self.sources.len();
        let name = path.display().to_string();
        let parsed = parse::document(&text, source);
        self.sources.push(Source::new(role, name.clone(), text));
        self.problems.extend(parsed.problems.into_iter().map(|problem| problem.coded("syntax")));
        self.shaky |= parsed.shaky;
        self.torn.extend(parsed.torn);
        let mut table = parsed.root;
        let Some(extends) = table.remove(EXTENDS) else { return table };
        self.chain.push((identity, name));
        let base = self.base(&path, &extends.node);
        self.chain.pop();
        match base {
            Ok(mut below) => {
                merge(&mut below, table);
                below
            }
            Err(message) => {
                // Otherwise a key that only the base has would be reported as missing.
                self.shaky = true;
                self.problems.push(Problem::new(extends.node.span, message).coded("extends"));
                table
            }
        }
    }

    fn base(&mut self, from: &Path, extends: &Node) -> Result<Table, String> {
        let Value::String(name) = &extends.value else {
            return Err(format!("expected the path of a spec, found {}", extends.value.describe()));
        };
        if name.is_empty() {
            return Err("expected the path of a spec, found an empty string".to_owned());
        }
        let path = from.parent().unwrap_or(Path::new("")).join(name);
        let identity = identify(&path);
        if let Some(at) = self.chain.iter().position(|(seen, _)| *seen == identity) {
            let mut names: Vec<&str> = self.chain[at..].iter().map(|(_, name)| name.as_str()).collect();
            names.push(&self.chain[at].1);
            return Err(format!("a spec can't extend itself: {}", names.join(" -> ")));
        }
        // Reading a pipe would wait for a writer.
        let is_special = path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir());
        let read = match is_special && (self.unsaved)(&path).is_none() {
            true => Err("not a file".to_owned()),
            false => read_text(&path, self.unsaved),
        };
        let text = read.map_err(|why| {
            let chain: Vec<String> = self.chain.iter().map(|(_, name)| name.clone()).collect();
            format!("{} (extended by {}): {why}", path.display(), chain.join(" -> "))
        })?;
        Ok(self.document(Role::Base, path, identity, text))
    }
}
