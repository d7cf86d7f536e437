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

use crate::error::{Error, Result};
use crate::plan::changes::between;
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::spec::JobTree;
use crate::telemetry::{DifferentTensor, DigestLine};
use findings::{Outcome, Replays};
use known::{Known, Window};
use replay::replay;
use side::Side;
use std::collections::BTreeMap;
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
/// A folder that can't be read (exit 74); nothing that can be compared (exit 2); a replay that fails, with its exit code.
pub fn bisect(a: &Path, b: &Path, question: Question, registry: &Registry) -> Result<Findings> {
    let sides = [Side::read(a)?, Side::read(b)?];
    let specs = changes(&sides, registry);
    let known = Known::of(&sides);
    let mut findings = Findings::new(&sides, specs);
    let window = known.window(question.until);
    let Some(window) = window else {
        findings.outcome = same(&sides, &known)?;
        return Ok(findings);
    };
    findings.equal_until = window.equal;
    if window.is_exact() || !question.replays {
        findings.outcome = Outcome::Differ { step: window.last, exact: window.is_exact() };
        findings.tensors = recorded(&sides, window.last);
        return Ok(findings);
    }
    let from = known.common_checkpoint(&sides, window.equal)?;
    let [a, b] = &sides;
    // Its own, if it has one: the state of communication hooks is not compared.
    let own = |side: &Side| from.as_ref().map(|from| side.checkpoint(from.step).unwrap_or(from).clone());
    let replayed = [replay(a, own(a).as_ref(), window.last)?, replay(b, own(b).as_ref(), window.last)?];
    judge(
        &mut findings,
        &sides,
        window,
        Replays { from: from.as_ref().map_or(0, |from| from.step), of: replayed },
    );
    Ok(findings)
}

/// The outcome for runs of which no difference is known.
///
/// # Errors
/// There is nothing in common that could be compared (exit 2).
fn same(sides: &[Side; 2], known: &Known) -> Result<Outcome> {
    if let Some(until) = known.last_equal() {
        return Ok(Outcome::Identical { until });
    }
    let [a, b] = sides.each_ref().map(|side| side.folder.display());
    Err(Error::usage(format!(
        "nothing of {a} and {b} can be compared: they have neither digests of the same step nor checkpoints of the same step"
    ))
    .hint("`--until STEP` replays both up to that step; a run with `[metrics] digests = \"100 steps\"` can be compared without"))
}

/// What the replays tell.
fn judge(findings: &mut Findings, sides: &[Side; 2], window: Window, replays: Replays) {
    let [a, b] = &replays.of;
    let first = first_difference(a, b, window.last);
    findings.strays = [0, 1].map(|i| stray(&sides[i], &replays.of[i], window.last));
    findings.replayed_from = Some(replays.from);
    findings.unknown = sides.each_ref().map(|side| match replays.from < side.spec_since {
        true => side.history.unknown.clone(),
        false => Vec::new(),
    });
    let equal = window.equal.unwrap_or(0);
    match first {
        // The replays are not what the runs did: only what is recorded tells of these.
        Some(step) if window.differs && (findings.strays != [None, None] || step <= equal) => {
            let tensor = a[&step].differences(&b[&step]).swap_remove(0);
            findings.replays_differ = Some((step, tensor));
            findings.outcome = Outcome::Differ { step: window.last, exact: window.last == equal + 1 };
            findings.tensors = recorded(sides, window.last);
        }
        Some(step) => {
            findings.outcome = Outcome::Differ { step, exact: findings.strays == [None, None] };
            findings.tensors = a[&step].differences(&b[&step]);
            findings.equal_until = (step > 1).then(|| step - 1);
        }
        // The runs differ, and what they do when they are repeated does not.
        None if window.differs => {
            let recorded_at = findings.strays.iter().flatten().min().copied();
            findings.outcome = Outcome::Unrepeatable { step: recorded_at.unwrap_or(window.last) };
            findings.tensors =
                unrepeated(findings, sides, &replays).unwrap_or_else(|| recorded(sides, window.last));
        }
        None => {
            // A run may end before the step that was asked for.
            let compared = [a, b].into_iter().filter_map(|lines| lines.keys().next_back()).min();
            findings.outcome = Outcome::Identical { until: compared.copied().unwrap_or(replays.from) };
        }
    }
}

/// The tensors of the first step that a run did not repeat.
fn unrepeated(findings: &Findings, sides: &[Side; 2], replays: &Replays) -> Option<Vec<DifferentTensor>> {
    let (at, step) =
        (0..2).filter_map(|at| Some((at, findings.strays[at]?))).min_by_key(|(_, step)| *step)?;
    Some(sides[at].digests.get(&step)?.differences(replays.of[at].get(&step)?))
}

/// The first step up to `last` that differs between two replays.
fn first_difference(a: &BTreeMap<u64, DigestLine>, b: &BTreeMap<u64, DigestLine>, last: u64) -> Option<u64> {
    let differs = |(step, line): &(&u64, &DigestLine)| {
        b.get(*step).is_some_and(|other| !line.differences(other).is_empty())
    };
    a.range(..=last).find(differs).map(|(step, _)| *step)
}

/// The first step whose recorded digests are not those of the replay.
fn stray(side: &Side, replay: &BTreeMap<u64, DigestLine>, last: u64) -> Option<u64> {
    first_difference(replay, &side.digests, last)
}

/// The tensors of a step that differ according to the folders' digests; none if they have no digests of it.
fn recorded(sides: &[Side; 2], step: u64) -> Vec<DifferentTensor> {
    let lines = sides.each_ref().map(|side| side.digests.get(&step));
    if let [Some(a), Some(b)] = lines { a.differences(b) } else { Vec::new() }
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
    let tree = JobTree::parse(&name, &side.job_toml, &[])?;
    Ok(Plan::resolve(&tree, registry, WorldRequest::of(side.world))?)
}

#[cfg(test)]
mod tests;
