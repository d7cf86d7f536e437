//! `ddp-run board [DIR…]`: the runs, live in a browser.

use base::error::Result;
use job::registry::Registry;
use std::path::PathBuf;

/// Show runs live in a browser: a table of all, each run's report while it is trained, comparisons
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Folders that contain runs, or runs [default: runs]
    #[arg(value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// The address of this machine to listen on; from elsewhere `ssh -L` reaches the default
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Also the numbered folders of earlier starts
    #[arg(long)]
    pub archived: bool,
}

/// Serves until a signal ends the process. The address is a line of standard output.
///
/// # Errors
/// The address can't be listened on (exit 2), a folder can't be read (exit 74), or this build lacks the server (exit 69).
#[cfg(feature = "board")]
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    use tools::board::{Open, Options, serve};
    let options = Options {
        folders: args.folders.clone(),
        archived: args.archived,
        host: args.host.clone(),
        port: args.port,
    };
    serve(&options, &tools::runs::ranking(registry), |open: &Open| {
        super::print(&format!("{}\n", open.address))?;
        let port = open.at.port();
        if open.at.ip().is_loopback() {
            let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let (at, node) = (open.at, base::display::name(&node));
            status!(
                "from another machine: `ssh -L {port}:{at} {node}`, then the same address; Ctrl-C ends the board"
            );
        } else {
            status!(
                "warning: whoever reaches port {port} of this machine and knows the address can read these runs, and nothing is encrypted; \
                 without `--host`, only `ssh -L` reaches the board"
            );
        }
        base::status::flush();
        Ok(())
    })
}

#[cfg(not(feature = "board"))]
pub fn run(args: &Args, _: &Registry) -> Result<()> {
    // Builds without it take the same command line.
    let _ = (&args.folders, &args.host, args.port, args.archived);
    let what = "this build of ddp-run has no board: it lacks the feature `board`";
    Err(base::error::Error::unavailable(what).hint("build it with `cargo build --features board`"))
}
