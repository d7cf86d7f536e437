//! `ddp-run bisect A B`: the first step at which two runs differ, and the first tensor in it.
//!
//! What the folders have is compared first: digests of steps and the files of checkpoints (`known`). Between the last step that is
//! the same and the first that is not, both runs are replayed from the nearest checkpoint before, with digests of each step
//! (`replay`). The folders are only read.

mod findings;
mod known;
mod replay;
mod side;

pub use findings::Findings;

use base::error::{Error, Result};
use findings::{Comparison, Replays};
use job::plan::changes::between;
use job::plan::{Plan, WorldRequest};
use job::registry::Registry;
use known::{Known, Window};
use launch::StopFlag;
use record::DifferentTensor;
use replay::replay;
use side::Side;
use spec::JobTree;
use std::path::Path;

/// What is asked besides the two folders.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Whether steps may be trained again.
    pub replays: bool,
    /// Steps up to this one are compared by a replay if the folders tell of no difference before it.
    pub until: Option<u64>,
}

/// Compares the runs in two folders. Call it from the main thread: replays die with the calling thread.
///
/// # Errors
/// A folder that can't be read (exit 74); nothing that can be compared (exit 2); a replay that fails, with its exit code; a stop
/// request during a replay (exit 75).
pub fn bisect(
    a: &Path,
    b: &Path,
    question: Question,
    registry: &Registry,
    stop: &StopFlag,
) -> Result<Findings> {
    let sides = [Side::read(a)?, Side::read(b)?];
    let specs = changes(&sides, registry);
    let known = Known::new(&sides);
    let mut findings = Findings::new(&sides, specs);
    let window = known.window(question.until);
    let Some(window) = window else {
        findings.outcome = same(&sides, &known)?;
        return Ok(findings);
    };
    findings.equal_until = window.equal;
    if window.is_exact() || !question.replays {
        findings.take_recorded(&sides, window)?;
        return Ok(findings);
    }
    let from = match known.common_checkpoint(&sides, window.equal) {
        // What is recorded tells that they differ.
        Err(why) if window.differs => {
            findings.not_replayed = Some(why.message);
            findings.take_recorded(&sides, window)?;
            return Ok(findings);
        }
        from => from?,
    };
    let [a, b] = &sides;
    // Its own, if it has one: the state of communication hooks is not compared.
    let own = |side: &Side| from.as_ref().map(|from| side.checkpoint(from.step).unwrap_or(from).clone());
    let replayed = |side| replay(side, own(side).as_ref(), window.last, stop);
    let replays =
        Replays { from: from.as_ref().map_or(0, |from| from.step), of: [replayed(a)?, replayed(b)?] };
    judge(&mut findings, &sides, window, replays)?;
    Ok(findings)
}

impl Findings {
    /// The outcome for runs that differ, by what their folders have alone.
    fn take_recorded(&mut self, sides: &[Side; 2], window: Window) -> Result<()> {
        self.outcome = Comparison::Differ { step: window.last, exact: window.is_exact() };
        self.tensors = recorded(sides, window.last)?;
        Ok(())
    }
}

/// The outcome for runs of which no difference is known.
///
/// # Errors
/// There is nothing in common that could be compared (exit 2).
fn same(sides: &[Side; 2], known: &Known) -> Result<Comparison> {
    if let Some(until) = known.last_equal() {
        return Ok(Comparison::Identical { until });
    }
    let [a, b] = sides.each_ref().map(|side| side.folder.display());
    Err(Error::usage(format!(
        "nothing of {a} and {b} can be compared: they have neither digests of the same step nor checkpoints of the same step"
    ))
    .hint("`--until STEP` replays both up to that step; a run with `[metrics] digests = \"100 steps\"` can be compared without"))
}

/// What the replays tell.
///
/// # Errors
/// Digests can't be read; or the runs differ, and one has nothing to replay (exit 2).
fn judge(findings: &mut Findings, sides: &[Side; 2], window: Window, replays: Replays) -> Result<()> {
    let [a, b] = &replays.of;
    if let Some((side, _)) = sides.iter().zip(&replays.of).find(|(_, of)| window.differs && of.is_empty()) {
        return Err(Error::usage(format!(
            "{} has no step between {} and {}: its spec ends before",
            side.folder.display(),
            replays.from,
            window.last
        )));
    }
    // By run: the first step whose recorded digests are not those of the replay.
    findings.strays = [0, 1].map(|i| replays.of[i].first_difference(&sides[i].digests, window.last));
    findings.replayed_from = Some(replays.from);
    findings.unknown = sides.each_ref().map(|side| side.history.unknown_of(replays.from, Some(window.last)));
    let equal = window.equal.unwrap_or(0);
    match a.first_difference(b, window.last) {
        // The replays are not what the runs did: only what is recorded tells of these.
        Some(step) if window.differs && (findings.strays != [None, None] || step <= equal) => {
            findings.replays_differ = a.differences(b, step)?.into_iter().next().map(|tensor| (step, tensor));
            findings.take_recorded(sides, window)?;
        }
        Some(step) => {
            findings.outcome = Comparison::Differ { step, exact: findings.strays == [None, None] };
            findings.tensors = a.differences(b, step)?;
            findings.equal_until = (step > 1).then(|| step - 1);
        }
        // The runs differ, and what they do when they are repeated does not.
        None if window.differs => {
            let strays = findings.strays.into_iter().enumerate();
            let first = strays.filter_map(|(run, step)| Some((step?, run))).min();
            let step = first.map_or(window.last, |(step, _)| step);
            findings.outcome = Comparison::Unrepeatable { step };
            findings.tensors = recorded(sides, step)?;
            if let Some((_, run)) = first.filter(|_| findings.tensors.is_empty()) {
                findings.tensors = sides[run].digests.differences(&replays.of[run], step)?;
            }
        }
        None => {
            // A run may end before the step that was asked for.
            let compared = a.last_step().min(b.last_step());
            findings.outcome = Comparison::Identical { until: compared.unwrap_or(replays.from) };
        }
    }
    Ok(())
}

/// The tensors of a step that differ according to the folders' digests; none if they have no digests of it.
fn recorded([a, b]: &[Side; 2], step: u64) -> Result<Vec<DifferentTensor>> {
    a.digests.differences(&b.digests, step)
}

/// The keys that results depend on and that differ, each with both values; all keys that differ if this program resolves neither spec.
fn changes(sides: &[Side; 2], registry: &Registry) -> Vec<[String; 3]> {
    let [a, b] = sides;
    let plan = sides.iter().find_map(|side| resolved(side, registry).ok());
    let text = |value: Option<&str>| value.unwrap_or("not given").to_owned();
    let mut all = between(&a.values, &b.values);
    all.retain(|change| plan.as_ref().is_none_or(|plan| plan.changes_results(change.key)));
    all.iter().map(|c| [c.key.to_owned(), text(c.before), text(c.now)]).collect()
}

fn resolved(side: &Side, registry: &Registry) -> Result<Plan> {
    let name = side.folder.join("job.toml").display().to_string();
    let tree = JobTree::parse(&name, &side.job_toml, &[]);
    Ok(Plan::resolve(&tree, registry, WorldRequest::new(side.world))?)
}

#[cfg(test)]
mod tests;
