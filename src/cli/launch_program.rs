//! `ddp-run launch -- PROGRAM`: any program in place of this one's training.

use base::error::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use job::start::{ProgramLaunch, launch_program};
use launch::clusters::{self, LaunchFlags};
use launch::{ExitCode, StopFlag};
use std::ffi::OsString;

/// Start any program with the environment that torchrun gives it, and restart it after failures
#[derive(Clone, Debug, clap::Args)]
#[command(
    mut_arg("node_rank", |arg| arg.help("This node's rank; node 0 hosts the rendezvous (also DDP_RUN_NODE_RANK)")),
    mut_arg("rdzv_id", |arg| arg.help("Identifies the run: nodes with another id are refused; TORCHELASTIC_RUN_ID")),
    mut_arg("standalone", |arg| arg.help("A run on this machine alone, whatever the environment says about nodes")),
    mut_arg("max_restarts", |arg| arg.help("Restarts of all processes after failures [default: 0]")),
    mut_arg("log_dir", |arg| arg.help("Write the ranks' logs to DIR [default: a new folder for temporary files]")),
)]
pub struct Args {
    #[command(flatten)]
    pub launch: LaunchFlags,
    /// Show warnings and errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

/// Adds to clap's error where the program begins, if the arguments of `launch` do not say it.
pub fn with_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_launch = arguments.get(1).is_some_and(|subcommand| subcommand == "launch");
    let is_misspelt = error.get(ContextKind::SuggestedArg).is_some();
    if is_launch
        && error.kind() == ErrorKind::UnknownArgument
        && !is_misspelt
        && !arguments.iter().any(|argument| argument == "--")
    {
        let tip = "the program follows `--`: `ddp-run launch [FLAGS] -- python x.py`";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

pub fn run(args: &Args, stop: &StopFlag) -> Result<ExitCode> {
    base::status::set_quiet(args.quiet);
    args.launch.without_effect.warn();
    let get = |name: &str| std::env::var(name).ok();
    let settings = args.launch.settings(&get, clusters::starter_pid())?;
    let origin = clusters::detect_supervisor(&get, &settings)?;
    let settings = clusters::completed(&get, &settings)?;
    let flags = args.launch.completed(&origin, &get)?;
    launch_program(ProgramLaunch { command: args.program.clone(), origin, settings, flags }, stop)
}
