//! How long the runs of each rung of successive halving are.

use super::fork;
use super::prepare::ChildPlan;
use super::schedule::rungs;
use base::display::count;
use base::error::{Error, Result};
use checkpoint::Every;
use job::plan::Plan;
use job::plan::sweep::SweepConfig;

/// The lengths of the rungs but the last, as `--set`s; none without successive halving.
///
/// # Errors
/// A run that ends earlier would not be the beginning of a longer one (78).
pub fn lengths(config: &SweepConfig, children: &[ChildPlan]) -> Result<Vec<String>> {
    let plans = || children.iter().map(|child| &child.plan);
    if config.min_epochs.is_none() && config.min_steps.is_none() {
        return Ok(Vec::new());
    }
    if plans().any(|plan| plan.save_every == Every::Never) {
        return Err(Error::spec(
            "successive halving continues runs from their checkpoints, and `save_every` is \"never\"",
        )
        .hint("`--set save_every=1`"));
    }
    let all_but_last = |least: u64, whole: u64| {
        let mut all = rungs(least, config.eta, whole);
        all.pop();
        all
    };
    if let Some(least) = config.min_epochs {
        let rare = plans()
            .find(|plan| plan.checkpoint.best.name().starts_with("val.") && plan.train.eval_every > least);
        if let Some(plan) = rare {
            let what = format!(
                "after {} nothing is measured: `train.eval_every` is {}",
                count(least as usize, "epoch"),
                plan.train.eval_every
            );
            return Err(Error::spec(what).hint("a larger `min_epochs`, or `--set train.eval_every=1`"));
        }
        let whole = plans().map(Plan::total_epochs).collect::<Option<Vec<u64>>>();
        let Some(whole) = whole.and_then(|all| all.into_iter().max()) else {
            return Err(Error::spec(
                "how many epochs `train.max_steps` takes is not known before the data is read",
            )
            .hint("`--set epochs=N`, or `--min-steps`"));
        };
        if least >= whole {
            return Err(never_longer(&count(least as usize, "epoch"), &whole.to_string()));
        }
        let set = |epochs: u64| format!("train.stop_after={epochs}");
        return Ok(all_but_last(least, whole).into_iter().map(set).collect());
    }
    if let Some(why) = plans().find_map(fork::why_not_a_beginning) {
        let what = format!("a run of fewer steps is not the beginning of a longer one: {why}");
        return Err(Error::spec(what)
            .hint("`min_epochs` (`--min-epochs`) ends runs at an epoch and keeps their schedules"));
    }
    let whole = plans().map(Plan::total_steps).collect::<Option<Vec<u64>>>();
    let Some(whole) = whole.and_then(|all| all.into_iter().max()) else {
        return Err(Error::spec("how many steps a run has is not known before its data is read")
            .hint("`--set train.max_steps=N`, or `--min-epochs`"));
    };
    let least = config.min_steps.unwrap_or(1);
    if least >= whole {
        return Err(never_longer(&count(least as usize, "optimizer step"), &whole.to_string()));
    }
    let set = |steps: u64| format!("train.max_steps={steps}");
    Ok(all_but_last(least, whole).into_iter().map(set).collect())
}

fn never_longer(least: &str, whole: &str) -> Error {
    let what = format!("successive halving begins with {least}, and the longest run has {whole}");
    Error::spec(what).hint("a smaller `--min-epochs` or `--min-steps`, or longer runs")
}
