//! `ddp-run rehearse`: what a spec survives on this machine. The spec is made short (`reduce`), run once undisturbed, and then once for
//! each fault (`matrix`), with the faults that ranks have for that (`worker::InjectedFault`) and signals (`trial`, `nodes`). What happens
//! is read from outside (`watch`), and the end compared with the undisturbed run to the bit.

mod matrix;
mod nodes;
mod reduce;
mod report;
mod trial;
mod watch;

pub use matrix::{LEAST_STEPS, Moment};
pub use report::{RehearsalReport, Setting};
pub use trial::TrialResult;

use crate::repro::Trainer;
use base::error::{IoContext, Result};
use base::files::WorkFolder;
use job::plan::Plan;
use launch::{OnSecondSignal, StopFlag};
use matrix::{Fault, RehearsalRequest};
use nodes::SimulatedNodes;
use reduce::{Reduced, Timeouts, reduced};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trial::{Stage, clear, undisturbed};

/// What is to be rehearsed.
#[derive(Clone, Debug)]
pub struct Request {
    /// The spec as typed, for readers.
    pub name: String,
    /// Rank failures only in the phases forward and save, and at most one silent rank.
    pub quick: bool,
    /// In which faults happen; all if it is empty.
    pub moments: Vec<Moment>,
    /// Optimizer steps of each run, at least [`LEAST_STEPS`].
    pub steps: u64,
    /// Simulated nodes.
    pub nodes: usize,
    /// For the files of the trials, which are kept then.
    pub out: Option<PathBuf>,
    /// Ends the rehearsal.
    pub stop: StopFlag,
}

/// What is told while it happens: what is about to be tried, and each fault.
pub enum TrialEvent<'a> {
    /// The undisturbed run has ended, and the first fault is about to be tried.
    Begins(&'a Setting),
    /// A fault has been tried.
    TrialResult(&'a TrialResult),
}

/// Rehearses the faults of a run of `plan`, with the processes of one of its nodes. Call it from the main thread.
///
/// # Errors
/// The run fails without a fault, with its exit code; files can't be written (74); the backend needs a launcher (2); it was asked to end (75).
pub fn run(
    plan: &Plan,
    request: &Request,
    tell: &mut dyn FnMut(TrialEvent<'_>) -> Result<()>,
) -> Result<RehearsalReport> {
    let moments = match request.moments.is_empty() {
        true => Moment::all().into_iter().filter(|moment| moment.is_in(plan)).collect(),
        false => request.moments.clone(),
    };
    let wanted = RehearsalRequest {
        world: plan.world.nproc_per_node,
        nodes: request.nodes,
        quick: request.quick,
        moments,
    };
    let evaluates = !wanted.quick && wanted.moments.iter().any(|moment| moment.needs_evaluation());
    let mut short = reduced(plan, request.steps, evaluates)?;
    // From now on a signal does not end this process at once: the folder is removed first.
    request.stop.on_second(OnSecondSignal::Exit);
    WorkFolder::check(request.out.as_deref(), "the trials get a folder of their own")?;
    let place = WorkFolder::new(request.out.as_deref(), "ddp-run-rehearse")?;
    let spec = place.path().join("job.toml");
    let whole = place.path().join("whole");
    write(&spec, &short)?;
    let [first, longest, took] = undisturbed(&Trainer::new(&spec, &whole, wanted.world, &request.stop))?;
    let timeouts = Timeouts::new(first, longest);
    let silent = short.hurry(plan, timeouts);
    write(&spec, &short)?;
    let faults = wanted.faults();
    let setting = Setting {
        spec: request.name.clone(),
        world: wanted.world,
        nodes: wanted.nodes,
        steps: request.steps,
        reduced: short.lines.clone(),
        left_out: wanted.left_out(),
        undisturbed_seconds: took.as_secs_f64(),
        grace: plan.checkpoint.grace.as_secs_f64(),
        faults: faults.len(),
        expected_seconds: expected(&faults, took, timeouts).as_secs_f64(),
    };
    tell(TrialEvent::Begins(&setting))?;
    let stage = Stage {
        spec,
        stop: request.stop.clone(),
        folder: place.path().to_owned(),
        world: wanted.world,
        whole,
        silent,
        limit: limit(took, timeouts),
    };
    let mut tried = Vec::new();
    for (number, fault) in (1..).zip(&faults) {
        let outcome = match fault {
            Fault::LostNode => SimulatedNodes::new(&stage, wanted.nodes, wanted.world)?.play()?,
            fault => stage.play(fault, number)?,
        };
        tell(TrialEvent::TrialResult(&outcome))?;
        if request.out.is_none() {
            clear(&stage.folder.join(format!("trial-{number}")))?;
        }
        tried.push(outcome);
    }
    Ok(RehearsalReport { setting, tried, folder: request.out.clone() })
}

fn write(spec: &Path, short: &Reduced) -> Result<()> {
    std::fs::write(spec, short.job.text()).doing("write", spec)
}

/// About how long all of it takes.
fn expected(faults: &[Fault], took: Duration, timeouts: Timeouts) -> Duration {
    let of = |fault: &Fault| match fault {
        Fault::Rank { kill: false, moment: Moment::Connect, .. } => took * 2 + timeouts.join,
        Fault::Rank { kill: false, .. } => took * 2 + timeouts.collective,
        Fault::LostNode => took * 4,
        _ => took * 2,
    };
    faults.iter().map(of).sum()
}

/// What takes longer hangs: some starts, each with a deadline that is met twice, and the time that ranks have to end.
fn limit(took: Duration, timeouts: Timeouts) -> Duration {
    Duration::from_secs(120) + took * 10 + (timeouts.collective + timeouts.join) * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::Phase;

    #[test]
    fn the_time_that_faults_take_is_estimated() {
        let second = Duration::from_secs(1);
        let timeouts = Timeouts { collective: second * 8, join: second * 20 };
        let kill = |kill, moment| Fault::Rank { kill, rank: 0, moment };
        let forward = Moment::Phase(Phase::Forward);
        let of = |faults: &[Fault]| expected(faults, second, timeouts).as_secs();
        assert_eq!(of(&[kill(true, forward), Fault::StopRequest]), 4);
        assert_eq!(of(&[kill(false, forward), kill(false, Moment::Connect)]), 10 + 22);
        assert!(limit(second, timeouts) > timeouts.join * 2 + second * 2);
    }
}
