//! The user's spec, made short.

use super::matrix::SAVE_EVERY;
use crate::repro::EditedSpec;
use base::error::{Error, Result};
use collectives::Backend;
use job::plan::Plan;
use std::path::Path;
use std::time::Duration;

/// A spec whose run takes a few steps, and what was changed for that, a line each.
#[derive(Clone, Debug)]
pub struct Reduced {
    pub job: EditedSpec,
    pub lines: Vec<String>,
}

/// Reduces the spec of `plan` to `steps` optimizer steps; without `evaluates` to training.
///
/// # Errors
/// MPI's launcher would have to start the processes (exit 2).
pub fn reduced(plan: &Plan, steps: u64, evaluates: bool) -> Result<Reduced> {
    if plan.backend == Backend::Mpi {
        return Err(Error::usage("backend `mpi`: MPI's launcher must start the processes")
            .hint("`--set backend=gloo` rehearses the same with ddp-run's own engine"));
    }
    let mut job = EditedSpec::parse(Path::new("the resolved spec"), &plan.to_toml())?.on_its_own();
    job.set("train.max_steps", steps as i64)
        .set("epochs", steps as i64)
        .unset("early_stop")
        .unset("train.stop_after");
    job.set("save_every", format!("{SAVE_EVERY} steps")).set("metrics.log_every", 1i64);
    let mut lines = vec![
        format!("train.max_steps = {steps} (epochs = {steps}), without early_stop and train.stop_after"),
        format!("save_every = \"{SAVE_EVERY} steps\", metrics.log_every = 1"),
        "no observers and sinks, one node, no requeue".to_owned(),
        restarts(plan.nodes.max_restarts),
    ];
    // A schedule that follows a metric needs the evaluation.
    if !evaluates && plan.schedule.on_plateau().is_none() {
        job.set("train.eval_every", 0i64).set("checkpoint.best", "train.loss");
        lines.push("train.eval_every = 0".to_owned());
    }
    Ok(Reduced { job, lines })
}

fn restarts(own: u32) -> String {
    let without = match own {
        0 => ": a run of the spec itself ends at such a fault, and the same command resumes it",
        _ => "",
    };
    format!("launch.max_restarts = 1 for faults of ranks (it is {own}{without})")
}

/// How long ranks wait for a silent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// In a collective.
    pub collective: Duration,
    /// Where the ranks meet.
    pub join: Duration,
}

impl Timeouts {
    /// Less would take a rank that is only slow for a silent one.
    const LEAST: Duration = Duration::from_secs(12);

    /// For a run whose first step is done after `first`, and whose steps take at most `longest` then.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let collective = Self::LEAST.max(longest * 3 + Self::LEAST / 2);
        Self { collective: whole(collective), join: whole(Self::LEAST.max(first * 3)) }
    }
}

/// Whole seconds, rounded up.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

impl Reduced {
    /// Has ranks wait shorter than the spec says, where that is longer. Returns the flags for runs with a silent rank: what a slow disk
    /// does to the others is no fault.
    pub fn hurry(&mut self, plan: &Plan, timeouts: Timeouts) -> Vec<String> {
        let own = *plan.launch.shutdown_timeout;
        if timeouts.collective < own {
            let short = timeouts.collective.as_secs();
            self.job.set("launch.shutdown_timeout", short as i64);
            self.lines.push(format!("launch.shutdown_timeout = {short} (it is {} s)", own.as_secs()));
        }
        let keys = [
            ("distributed.timeout", *plan.distributed.timeout, timeouts.collective),
            ("distributed.init_timeout", *plan.distributed.init_timeout, timeouts.join),
        ];
        let mut flags = Vec::new();
        for (key, own, short) in keys.into_iter().filter(|(_, own, short)| short < own) {
            let short = short.as_secs();
            flags.extend(["--set".to_owned(), format!("{key}={short}")]);
            self.lines.push(format!("{key} = {short} where a rank is silent (it is {} s)", own.as_secs()));
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::plan::testing::resolved;
    use job::registry::Registry;

    const SPEC: &str = "name = \"long\"\nepochs = 90\nbatch_size = 8\n[model]\nname = \"linear\"\n\
        [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n[optimizer]\nname = \"sgd\"\nlr = 0.05\n\
        [early_stop]\npatience = 3\n[train]\nstop_after = 1\n[metrics]\nsinks = [\"csv\"]\n[distributed]\ninit_timeout = 5\n\
        [launch]\nshutdown_timeout = 600\n";

    fn plan(spec: &str) -> Plan {
        resolved(&Registry::standard(), spec, &[], 2).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_reduced_spec_is_a_short_run() {
        let plan = plan(SPEC);
        let mut short = reduced(&plan, 6, true).unwrap();
        let timeouts = Timeouts { collective: Duration::from_secs(9), join: Duration::from_secs(20) };
        // The spec's own init_timeout is shorter.
        assert_eq!(short.hurry(&plan, timeouts), ["--set", "distributed.timeout=9"]);
        let read = self::plan(&short.job.text());
        assert_eq!((read.total_steps(), read.metrics.log_every), (Some(6), 1));
        assert!(read.early_stop.is_none() && read.observers.is_empty());
        assert!(!short.job.text().contains("stop_after"));
        assert_eq!(*read.launch.shutdown_timeout, Duration::from_secs(9));
        assert_eq!(read.distributed.timeout, plan.distributed.timeout);
        assert!(
            short
                .lines
                .iter()
                .any(|line| line.starts_with("distributed.timeout = 9 where a rank is silent (it is ")),
            "{:?}",
            short.lines
        );
        assert!(read.never_evaluated().is_none());
        let trains = self::plan(&reduced(&plan, 6, false).unwrap().job.text());
        assert!(trains.never_evaluated().is_some());
    }

    #[test]
    fn slow_steps_have_longer_timeouts() {
        let of = |first, longest| Timeouts::new(Duration::from_millis(first), Duration::from_millis(longest));
        let seconds = |of: Timeouts| (of.collective.as_secs(), of.join.as_secs());
        assert_eq!(seconds(of(500, 10)), (12, 12));
        assert_eq!(seconds(of(10_100, 4_000)), (18, 31));
    }
}
