//! The open documents, and the answers to a client's messages.

use super::document::Document;
use super::text::Columns;
use super::{actions, complete, files, hover, publish};
use job::reference::Reference;
use job::registry::Registry;
use lsp_server::{ErrorCode, Message, Notification, Request, Response};
use lsp_types::notification as notes;
use lsp_types::request as requests;
use lsp_types::{
    CodeActionKind, CodeActionOptions, CompletionOptions, Diagnostic, HoverProviderCapability, OneOf,
    Position, PositionEncodingKind, SaveOptions, ServerCapabilities, TextDocumentSyncCapability,
    TextDocumentSyncKind, TextDocumentSyncOptions, TextDocumentSyncSaveOptions, Uri,
};
use serde::de::DeserializeOwned;
use spec::Override;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One client's documents.
pub struct Server {
    registry: Registry,
    edits: Vec<Override>,
    pub(super) columns: Columns,
    pub(super) reference: Reference,
    /// By their addresses.
    pub(super) documents: BTreeMap<String, Document>,
    /// Documents that are checked before the next wait.
    stale: Vec<String>,
    /// Documents that were checked since the last notification.
    checked: Vec<String>,
    /// What the client shows, by address.
    pub(super) shown: BTreeMap<String, Vec<Diagnostic>>,
    addresses: files::Addresses,
    shut_down: bool,
}

pub fn capabilities(columns: Columns) -> ServerCapabilities {
    let words = |all: [&str; 3]| Some(all.map(str::to_owned).to_vec());
    ServerCapabilities {
        position_encoding: Some(match columns {
            Columns::Utf8 => PositionEncodingKind::UTF8,
            Columns::Utf16 => PositionEncodingKind::UTF16,
        }),
        text_document_sync: Some(TextDocumentSyncCapability::Options(TextDocumentSyncOptions {
            open_close: Some(true),
            change: Some(TextDocumentSyncKind::FULL),
            save: Some(TextDocumentSyncSaveOptions::SaveOptions(SaveOptions { include_text: Some(false) })),
            ..TextDocumentSyncOptions::default()
        })),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: words(["[", ".", "\""]),
            ..CompletionOptions::default()
        }),
        definition_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(
            CodeActionOptions {
                code_action_kinds: Some(vec![CodeActionKind::QUICKFIX]),
                ..CodeActionOptions::default()
            }
            .into(),
        ),
        ..ServerCapabilities::default()
    }
}

impl Server {
    pub fn new(registry: &Registry, edits: Vec<Override>, columns: Columns) -> Self {
        Self {
            registry: registry.clone(),
            edits,
            columns,
            reference: Reference::new(registry),
            documents: BTreeMap::new(),
            stale: Vec::new(),
            checked: Vec::new(),
            shown: BTreeMap::new(),
            addresses: files::Addresses::default(),
            shut_down: false,
        }
    }

    /// Whether the client has asked for the shutdown.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// The response to a request.
    pub fn answer(&mut self, mut request: Request) -> Response {
        self.addresses.accept(&mut request.params);
        let mut response = self.response(request);
        if let Ok(result) = &mut response.response_result {
            self.addresses.restore(result);
        }
        response
    }

    fn response(&mut self, request: Request) -> Response {
        use requests::Request as R;
        if self.shut_down {
            let why = "the server was asked to shut down".to_owned();
            return Response::new_err(request.id, ErrorCode::InvalidRequest as i32, why);
        }
        // Ranges refer to the current text.
        self.check();
        match request.method.as_str() {
            requests::Shutdown::METHOD => {
                self.shut_down = true;
                Response::new_ok(request.id, ())
            }
            requests::HoverRequest::METHOD => answered::<requests::HoverRequest>(request, |params| {
                let at = params.text_document_position_params;
                let (document, offset) = self.place(&at.text_document.uri, at.position)?;
                hover::hover(document, &self.reference, offset, self.columns)
            }),
            requests::Completion::METHOD => answered::<requests::Completion>(request, |params| {
                let at = params.text_document_position;
                let (document, offset) = self.place(&at.text_document.uri, at.position)?;
                Some(complete::items(document, &self.reference, offset, self.columns).into())
            }),
            requests::GotoDefinition::METHOD => answered::<requests::GotoDefinition>(request, |params| {
                let at = params.text_document_position_params;
                let (document, offset) = self.place(&at.text_document.uri, at.position)?;
                let open = |path: &Path| Some(self.open(path)?.uri.clone());
                Some(actions::definition(document, offset, &open)?.into())
            }),
            requests::CodeActionRequest::METHOD => {
                answered::<requests::CodeActionRequest>(request, |params| {
                    let document = self.document(&params.text_document.uri)?;
                    Some(actions::fixes(document, params.range, self.columns))
                })
            }
            other => {
                let why = format!("no such request: {other}");
                Response::new_err(request.id, ErrorCode::MethodNotFound as i32, why)
            }
        }
    }

    /// Takes note of a notification; one that is not known may be ignored.
    pub fn note(&mut self, mut note: Notification) {
        use notes::Notification as N;
        self.addresses.accept(&mut note.params);
        match note.method.as_str() {
            notes::DidOpenTextDocument::METHOD => {
                if let Some(params) = read::<<notes::DidOpenTextDocument as N>::Params>(note) {
                    let opened = params.text_document;
                    let document = Document::new(opened.uri, Some(opened.version), opened.text);
                    let key = document.uri.as_str().to_owned();
                    self.documents.insert(key.clone(), document);
                    self.stale(&key);
                }
            }
            notes::DidChangeTextDocument::METHOD => {
                let params = read::<<notes::DidChangeTextDocument as N>::Params>(note);
                let Some(mut params) = params else { return };
                let key = params.text_document.uri.as_str();
                // Each change is the whole text.
                if let (Some(document), Some(change)) =
                    (self.documents.get_mut(key), params.content_changes.pop())
                {
                    document.change(Some(params.text_document.version), change.text);
                    self.stale(key);
                }
            }
            notes::DidCloseTextDocument::METHOD => {
                if let Some(params) = read::<<notes::DidCloseTextDocument as N>::Params>(note) {
                    let key = params.text_document.uri.as_str();
                    // Those that extend it read the file from now on.
                    self.stale(key);
                    self.stale.retain(|stale| stale != key);
                    self.documents.remove(key);
                }
            }
            // Other files may have changed, too.
            notes::DidSaveTextDocument::METHOD | notes::DidChangeWatchedFiles::METHOD => {
                self.stale = self.documents.keys().cloned().collect();
            }
            _ => {}
        }
    }

    /// A document, and those that extend it, are to be checked.
    fn stale(&mut self, key: &str) {
        let own = self.documents.get(key).and_then(|document| document.path.as_deref()).map(files::identity);
        let extends =
            |document: &Document| own.as_ref().is_some_and(|own| document.checked.bases.contains(own));
        let above =
            self.documents.iter().filter(|(_, document)| extends(document)).map(|(key, _)| key.clone());
        let all: Vec<String> = std::iter::once(key.to_owned()).chain(above).collect();
        self.stale.extend(all);
    }

    /// Checks what has changed.
    fn check(&mut self) {
        let mut stale = std::mem::take(&mut self.stale);
        stale.sort();
        stale.dedup();
        let texts: Vec<(PathBuf, String)> = match stale.is_empty() {
            true => Vec::new(),
            false => self.documents.values().filter_map(Document::unsaved).collect(),
        };
        let unsaved = |path: &Path| texts.iter().find(|(open, _)| open == path).map(|(_, text)| text.clone());
        for key in &stale {
            if let Some(document) = self.documents.get_mut(key) {
                document.check(&self.registry, &self.edits, &unsaved);
            }
        }
        self.checked.extend(stale);
    }

    /// Checks what has changed, and returns the updates for the client.
    pub fn publish(&mut self) -> Vec<Message> {
        self.check();
        let checked = std::mem::take(&mut self.checked);
        let mut messages = publish::changes(self, &checked);
        for message in &mut messages {
            if let Message::Notification(note) = message {
                self.addresses.restore(&mut note.params);
            }
        }
        messages
    }

    /// The document in the file of this identity.
    fn open(&self, path: &Path) -> Option<&Document> {
        let is_there =
            |document: &&Document| document.path.as_deref().is_some_and(|own| files::identity(own) == path);
        self.documents.values().find(is_there)
    }

    pub(super) fn document(&self, uri: &Uri) -> Option<&Document> {
        self.documents.get(uri.as_str()).filter(|document| document.is_spec())
    }

    fn place(&self, uri: &Uri, position: Position) -> Option<(&Document, usize)> {
        let document = self.document(uri)?;
        Some((document, document.text.offset(position, self.columns)))
    }
}

fn answered<R: requests::Request>(request: Request, answer: impl FnOnce(R::Params) -> R::Result) -> Response {
    match serde_json::from_value(request.params) {
        Ok(params) => Response::new_ok(request.id, answer(params)),
        Err(e) => {
            let why = format!("{}: {e}", request.method);
            Response::new_err(request.id, ErrorCode::InvalidParams as i32, why)
        }
    }
}

/// The parameters of a notification, which gets no error response.
fn read<P: DeserializeOwned>(note: Notification) -> Option<P> {
    serde_json::from_value(note.params).ok()
}
