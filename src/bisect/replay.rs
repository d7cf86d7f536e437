//! Trains steps of a run again, in a temporary folder, with digests of each step.

use super::side::Side;
use crate::checkpoint::Entry;
use crate::clusters::Launcher;
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::files::Scratch;
use crate::launch::{bind_to_supervisor, own_program};
use crate::telemetry::{DigestLine, read_digests};
use crate::worker::STOP_AT;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// The digests of the steps from checkpoint `from`, or from the beginning, to step `last`.
///
/// # Errors
/// The replay fails, with its exit code; its output goes to standard error, and its folder is kept.
pub(super) fn replay(side: &Side, from: Option<&Entry>, last: u64) -> Result<BTreeMap<u64, DigestLine>> {
    let first = from.map_or(0, |from| from.step);
    inform!("replays {} from step {first} to step {last}", side.folder.display());
    let place = std::env::temp_dir().join("ddp-run-bisect");
    let scratch = Scratch::beside(&place).doing("create a folder beside", &place)?;
    let folder = scratch.path();
    std::fs::create_dir_all(folder).doing("create", folder)?;
    let run = folder.join("run");
    let done = trained(side, from, last, folder, &run);
    let lines = done.and_then(|()| read_digests(&run)).and_then(|mut lines| {
        lines.retain(|step, _| (first + 1..=last).contains(step));
        // A run may end before the other one.
        match lines.is_empty() {
            true => Err(Error::usage(format!(
                "{} has no step between {first} and {last}: its spec ends before",
                side.folder.display()
            ))),
            false => Ok(lines),
        }
    });
    if lines.is_err() {
        std::mem::forget(scratch);
    }
    lines
}

fn trained(side: &Side, from: Option<&Entry>, last: u64, folder: &Path, run: &Path) -> Result<()> {
    let (spec, output) = (folder.join("job.toml"), folder.join("stderr"));
    std::fs::write(&spec, &side.job_toml).doing("write", &spec)?;
    let log = File::create(&output).doing("create", &output)?;
    let program = own_program()?;
    let mut command = Command::new(&program);
    // It is a run of its own, whatever started this program, and nothing goes wrong on purpose.
    for name in Launcher::ALL.into_iter().flat_map(Launcher::variables).chain(&["DDP_RUN_FAULT"]) {
        command.env_remove(name);
    }
    command.arg("train").arg(&spec).arg("--out").arg(run).args(["--progress", "none"]);
    command.args(["--max-restarts", "0", "--nnodes", "1", "--nproc-per-node", &side.world.to_string()]);
    match from {
        Some(from) => command.arg("--resume").arg(&from.path),
        None => command.args(["--resume", "never"]),
    };
    for set in OVERRIDES {
        command.args(["--set", set]);
    }
    // Observers would be told of a run that is none, and one node meets no others.
    for key in ["observer", "launch.rdzv_endpoint"] {
        let within = format!("{key}.");
        if side.values.keys().any(|set| set == key || set.starts_with(&within)) {
            command.args(["--unset", key]);
        }
    }
    command.env(STOP_AT, last.to_string()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(log);
    bind_to_supervisor(&mut command, None);
    let status = command.status().doing("start", &program)?;
    let code = status.code().and_then(ExitCode::from_status);
    if matches!(code, Some(ExitCode::Done | ExitCode::Stopped)) {
        return Ok(());
    }
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    say!("{}", crate::show::message(text.trim_end()));
    let message = format!("the replay of {} failed ({status})", side.folder.display());
    let hint = format!("its folder is kept: {}", folder.display());
    Err(Error::new(code.unwrap_or(ExitCode::Internal), message).hint(hint))
}

/// What differs from the run: digests of each step, and nothing that is saved or told to others. Not the run's length, on which
/// learning rates may depend.
const OVERRIDES: [&str; 6] = [
    "metrics.digests=\"1 step\"",
    "metrics.sinks=[]",
    "save_every=\"never\"",
    "checkpoint.on_preempt=\"exit\"",
    "distributed.check_replicas=\"never\"",
    "launch.requeue=false",
];
