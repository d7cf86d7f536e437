//! Where `extends` leads, and quick fixes.

use super::cursor::At;
use super::document::Document;
use super::text::Columns;
use super::{files, publish};
use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, Location, Range, TextEdit, Uri, WorkspaceEdit,
};
use std::collections::HashMap;
use std::path::Path;

/// The file that the position's `extends` names, if it is there or `open`.
pub fn definition(
    document: &Document,
    offset: usize,
    open: &dyn Fn(&Path) -> Option<Uri>,
) -> Option<Location> {
    let on_key = |table: &str, name: &str| table.is_empty() && name == "extends";
    let here = match document.at(offset) {
        At::Value { key, .. } => on_key("", &key),
        At::Key { table, part, .. } => on_key(&table, &part.name),
        _ => false,
    };
    let base = files::identity(&document.base().filter(|_| here)?);
    let uri = open(&base).or_else(|| files::uri_of(&base).filter(|_| base.is_file()))?;
    Some(Location::new(uri, Range::default()))
}

/// For each problem in `range` with a "did you mean": the replacement.
// The client's address is the key; it does not change.
#[allow(clippy::mutable_key_type)]
pub fn fixes(document: &Document, range: Range, columns: Columns) -> Vec<CodeActionOrCommand> {
    let own = document.checked.problems.iter().filter(|found| found.base.is_none());
    let fix = |found: &super::found::Finding| {
        let diagnostic = publish::diagnostic(found, document, columns);
        let meant = found.meant.clone()?;
        if diagnostic.range.end < range.start || range.end < diagnostic.range.start {
            return None;
        }
        let edit = TextEdit::new(diagnostic.range, meant.clone());
        Some(CodeActionOrCommand::CodeAction(CodeAction {
            title: format!("Replace by `{meant}`"),
            kind: Some(CodeActionKind::QUICKFIX),
            diagnostics: Some(vec![diagnostic]),
            edit: Some(WorkspaceEdit::new(HashMap::from([(document.uri.clone(), vec![edit])]))),
            is_preferred: Some(true),
            ..CodeAction::default()
        }))
    };
    own.filter_map(fix).collect()
}
