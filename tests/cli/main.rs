//! What needs no training: the command line, specs and their messages, the language server, and documents that say what the code does.

#[path = "../common/mod.rs"]
mod common;
mod completions;
mod configs;
mod documents;
mod init;
mod lsp;
mod schema;
mod spec_messages;
