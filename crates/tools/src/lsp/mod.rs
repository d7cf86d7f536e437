//! The language server: the answers of `ddp-run check` and `ddp-run explain`, while a spec is being edited.
//!
//! [`serve`] speaks the Language Server Protocol on standard input and output. `Server` holds the open documents, and answers
//! from `spec` (problems with positions), `plan` (resolved values) and `reference` (what a spec may say). What is being typed is
//! seldom TOML, so places are found line by line (`lines`, `cursor`), and values that can't be read now are those of the last
//! text without problems. Nothing is trained, and no file is read but specs.

mod actions;
mod complete;
mod cursor;
mod document;
#[cfg(test)]
mod edit_tests;
mod files;
mod found;
mod hover;
mod lines;
mod publish;
mod server;
#[cfg(test)]
mod tests;
mod text;
mod transport;

pub use files::may_be_spec;

use crossbeam_channel::TryRecvError;
use job::registry::Registry;
use lsp_server::{Connection, Message, Response};
use serde_json::json;
use server::Server;
use spec::Override;
use text::Columns;

/// Serves one client until it says `exit` or closes the pipe. Every spec is read with `edits`.
///
/// Returns whether the client has requested the shutdown before, as the protocol demands.
pub fn serve(registry: &Registry, edits: Vec<Override>) -> bool {
    let (connection, threads) = transport::stdio();
    let orderly = run(&connection, registry, edits);
    // What was sent is written before the process ends. The reader has ended with the input, or waits for more of it.
    let Connection { sender, receiver } = connection;
    drop((sender, receiver));
    if orderly.is_some()
        && let Err(e) = threads.join()
    {
        status!("error: the client's messages can't be read: {e}");
    }
    orderly.unwrap_or(false)
}

/// `None` if the client does not read any more.
fn run(connection: &Connection, registry: &Registry, edits: Vec<Override>) -> Option<bool> {
    // Without it, the input has ended or says `exit` first.
    let Ok((id, params)) = connection.initialize_start() else { return Some(false) };
    // Nothing else in there matters, whether it is as the protocol says or not.
    let encodings = params["capabilities"]["general"]["positionEncodings"].as_array();
    let columns = match encodings.is_some_and(|all| all.iter().any(|encoding| encoding == "utf-8")) {
        true => Columns::Utf8,
        false => Columns::Utf16,
    };
    let about = json!({
        "capabilities": server::capabilities(columns),
        "serverInfo": { "name": "ddp-run", "version": env!("CARGO_PKG_VERSION") },
    });
    connection.sender.send(Response::new_ok(id, about).into()).ok()?;
    let mut server = Server::new(registry, edits, columns);
    loop {
        // While more is waiting, a check would be out of date at once.
        let message = match connection.receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return Some(server.is_shut_down()),
            Err(TryRecvError::Empty) => {
                for message in server.publish() {
                    connection.sender.send(message).ok()?;
                }
                match connection.receiver.recv() {
                    Ok(message) => message,
                    Err(_) => return Some(server.is_shut_down()),
                }
            }
        };
        match message {
            Message::Request(request) => {
                connection.sender.send(server.answer(request).into()).ok()?;
            }
            Message::Notification(note) if note.method == "exit" => return Some(server.is_shut_down()),
            Message::Notification(note) => server.note(note),
            // The server sends no requests to the client.
            Message::Response(_) => {}
        }
    }
}
