//! The problems that the client shows.

use super::document::Document;
use super::files;
use super::found::Finding;
use super::server::Server;
use super::text::Columns;
use lsp_server::{Message, Notification};
use lsp_types::notification::{Notification as _, PublishDiagnostics};
use lsp_types::{
    Diagnostic, DiagnosticRelatedInformation, Location, NumberOrString, PublishDiagnosticsParams,
};
use std::path::Path;

/// Messages for the documents whose problems are not those that are shown; and for all of `checked`.
pub fn changes(server: &mut Server, checked: &[String]) -> Vec<Message> {
    let mut messages = Vec::new();
    let closed = server.shown.keys().filter(|key| !server.documents.contains_key(*key)).cloned();
    for key in closed.collect::<Vec<_>>() {
        if server.shown.remove(&key).is_some_and(|shown| !shown.is_empty())
            && let Ok(uri) = key.parse()
        {
            messages.push(message(PublishDiagnosticsParams::new(uri, Vec::new(), None)));
        }
    }
    for (key, document) in &server.documents {
        let found = diagnostics(document, server);
        let same = server.shown.get(key).is_some_and(|shown| *shown == found);
        if same && !checked.contains(key) {
            continue;
        }
        server.shown.insert(key.clone(), found.clone());
        messages.push(message(PublishDiagnosticsParams::new(document.uri.clone(), found, document.version)));
    }
    messages
}

fn message(params: PublishDiagnosticsParams) -> Message {
    Notification::new(PublishDiagnostics::METHOD.to_owned(), params).into()
}

/// The diagnostics of one document: from its own check, then from the checks of open documents that extend it.
fn diagnostics(document: &Document, server: &Server) -> Vec<Diagnostic> {
    let columns = server.columns;
    let path = document.path.as_deref().map(files::identity);
    let extends = |above: &&Document| path.as_ref().is_some_and(|path| above.checked.bases.contains(path));
    let above: Vec<&Document> = server.documents.values().filter(extends).collect();
    // What a part of a spec lacks is in those that extend it.
    let own = document.checked.problems.iter().filter(|found| above.is_empty() || found.code != "missing");
    let mut all: Vec<Diagnostic> = own.map(|found| diagnostic(found, document, columns)).collect();
    let Some(path) = &path else { return all };
    for above in above {
        for found in &above.checked.problems {
            let Some(base) = found.base.as_ref().filter(|base| files::identity(&base.path) == *path) else {
                continue;
            };
            let range = base.text.range(found.range.clone(), columns);
            let code = plain(found).code;
            // Two files that extend each other see the cycle from either end.
            let same =
                |d: &Diagnostic| d.message == found.message || (found.code == "extends" && d.code == code);
            let known = |d: &Diagnostic| d.range == range && same(d);
            if !all.iter().any(known) {
                let at = above.text.range(above.extends(), columns);
                let from = related(Location::new(above.uri.clone(), at), "extended here");
                let other = Diagnostic { range, related_information: Some(vec![from]), ..plain(found) };
                all.push(other);
            }
        }
    }
    all
}

/// A problem of a check of `document`; one in another file is at `extends`.
pub fn diagnostic(found: &Finding, document: &Document, columns: Columns) -> Diagnostic {
    let Some(base) = &found.base else {
        let range = document.text.range(found.range.clone(), columns);
        return Diagnostic { range, ..plain(found) };
    };
    let range = base.text.range(found.range.clone(), columns);
    let folder = document.path.as_deref().and_then(Path::parent);
    let name = folder.and_then(|folder| base.path.strip_prefix(folder).ok()).unwrap_or(&base.path);
    let place = format!("{}, line {}: {}", name.display(), range.start.line + 1, found.message);
    let there = files::uri_of(&files::identity(&base.path))
        .map(|uri| vec![related(Location::new(uri, range), &found.message)]);
    Diagnostic {
        range: document.text.range(document.extends(), columns),
        message: place,
        related_information: there,
        ..plain(found)
    }
}

fn related(location: Location, message: &str) -> DiagnosticRelatedInformation {
    DiagnosticRelatedInformation { location, message: message.to_owned() }
}

fn plain(found: &Finding) -> Diagnostic {
    Diagnostic {
        severity: Some(found.severity),
        code: Some(NumberOrString::String(found.code.to_owned())),
        source: Some("ddp-run".to_owned()),
        message: found.message.clone(),
        ..Diagnostic::default()
    }
}
