//! Trains steps of a run again, in a temporary folder, with digests of each step.

use super::side::Side;
use crate::repro::{EditedSpec, Trainer};
use base::error::{IoContext, Result};
use base::files::{Temporary, folder as folder_of};
use checkpoint::Entry;
use job::worker::STOP_AT;
use launch::{ExitCode, OnSecondSignal, StopFlag};
use record::Digests;
use std::path::Path;

/// The digests of the steps from checkpoint `from`, or from the beginning, to step `last`, or to the end of the run before.
///
/// # Errors
/// The replay fails, with its exit code; its output goes to standard error. Its folder is kept.
pub(super) fn replay(side: &Side, from: Option<&Entry>, last: u64, stop: &StopFlag) -> Result<Digests> {
    // What is written is removed first.
    stop.on_second(OnSecondSignal::Exit);
    let first = from.map_or(0, |from| from.step);
    info!("replays {} from step {first} to step {last}", base::display::path(&side.folder));
    let folder = Temporary::new("ddp-run-bisect")?;
    let run = folder.path().join("run");
    let done = trained(side, from, last, &run, stop);
    let lines = done.and_then(|()| Digests::read(&run)).map(|lines| lines.within(first + 1..=last));
    lines.map_err(|error| if stop.requested() { error } else { folder.kept_after(error) })
}

fn trained(side: &Side, from: Option<&Entry>, last: u64, run: &Path, stop: &StopFlag) -> Result<()> {
    let folder = folder_of(run);
    let legs = side.legs(from.map_or(0, |from| from.step), last);
    let spec = folder.join("job.toml");
    for (at, leg) in legs.iter().enumerate() {
        let text = job(&side.history.specs[leg.spec].job, legs.len()).text();
        std::fs::write(&spec, text).doing("write", &spec)?;
        let resume = match (at, from) {
            (0, Some(from)) => from.path.display().to_string(),
            (0, None) => "never".to_owned(),
            _ => "auto".to_owned(),
        };
        let trainer =
            Trainer::new(&spec, run, leg.world, stop).flags(["--resume", &resume, "--accept-changes"]);
        let mut child = trainer.variable(STOP_AT, leg.last).start()?;
        let Some(status) = child.watch(|_| Ok(true))? else { continue };
        let code = status.code().and_then(ExitCode::from_status);
        if !matches!(code, Some(ExitCode::Done | ExitCode::Stopped)) {
            return Err(child.failed(status, &format!("the replay of {}", side.folder.display())));
        }
    }
    Ok(())
}

/// The spec of a replay in so many parts. What differs from the run: digests of each step, and nothing that is saved or told to
/// others. Not the run's length, on which learning rates may depend.
fn job(spec: &EditedSpec, legs: usize) -> EditedSpec {
    let mut job = spec.clone().on_its_own();
    job.set("metrics.digests", "1 step")
        .set("distributed.check_replicas", "never")
        .set("save_every", "never");
    // The next part resumes from the stop of this one.
    job.set("checkpoint.on_preempt", if legs > 1 { "save" } else { "exit" });
    job
}
