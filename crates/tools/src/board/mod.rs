//! `ddp-run board`: the runs of some folders, live in a browser. It reads and never writes.
//!
//! The main thread polls the folders once a second (`poll`): file sizes show what is new, and only that is read. A second
//! thread answers all browsers (`server`, hyper on a runtime of one thread). Both share the state of the runs (`shared`).
//! Requests are interpreted without sockets (`access`, `routes`, `stream`).

mod access;
mod page;
mod poll;
mod routes;
mod server;
mod shared;
mod stream;

use crate::runs::Ranking;
use access::Access;
use base::error::{Error, Result};
use poll::Poller;
use server::Site;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two polls of the folders.
const PAUSE: Duration = Duration::from_secs(1);

/// The runs to show, and the address.
pub struct Options {
    /// Folders with runs, or runs; none means `runs`.
    pub folders: Vec<PathBuf>,
    /// Also the numbered folders of earlier starts.
    pub archived: bool,
    /// The address to listen on, by number or name.
    pub host: String,
    /// 0 takes a free one.
    pub port: u16,
}

/// The address of a board.
pub struct Open {
    /// Socket address that the server listens on.
    pub at: SocketAddr,
    /// With the token.
    pub address: String,
}

/// Serves the board until the process ends. Calls `opened` with its address once it accepts requests.
///
/// # Errors
/// Exit code 2: the address can't be listened on; 74: a folder that was named can't be read.
pub fn serve(
    options: &Options,
    ranking: Ranking<'_>,
    opened: impl FnOnce(&Open) -> Result<()>,
) -> Result<()> {
    let mut poller = Poller::new(&options.folders, options.archived, ranking);
    poller.check()?;
    let listener = listen(&options.host, options.port)?;
    let of_socket = |e: std::io::Error| Error::internal(format!("cannot serve the board: {e}"));
    let at = listener.local_addr().map_err(of_socket)?;
    let access = Access::new(at, &options.host)?;
    let open = Open { at, address: format!("http://{}/{}/", shown(at), access.token()) };
    let site = Arc::new(Site { access, shared: poller.shared() });
    let (ended, end) = channel();
    let serves = move || drop(ended.send(server::run(listener, site)));
    std::thread::Builder::new().name("board".to_owned()).spawn(serves).map_err(of_socket)?;
    opened(&open)?;
    let begun = Instant::now();
    loop {
        poller.poll(begun.elapsed());
        match end.recv_timeout(PAUSE) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(e)) => return Err(of_socket(e)),
            Ok(Ok(())) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("the board's server has ended"));
            }
        }
    }
}

/// An address at which browsers reach it.
fn shown(at: SocketAddr) -> String {
    match at.ip().is_unspecified() {
        true => format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), at.port()),
        false => at.to_string(),
    }
}

fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let refused = |e: std::io::Error| {
        Error::usage(format!("cannot listen on {host}, port {port}: {e}"))
            .hint("`--port 0` takes a free port; `--host` is an address of this machine")
    };
    let all: Vec<SocketAddr> = (name, port).to_socket_addrs().map_err(refused)?.collect();
    TcpListener::bind(&all[..]).map_err(refused)
}

#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;
