//! Children whose runs begin alike. Of two that differ only in their length, the longer one continues a copy of the shorter
//! one's folder, where that has the bits of a run from the start.

use base::error::{IoContext, Result};
use base::files::{self, TempPath};
use checkpoint::Every;
use job::plan::Plan;
use std::cmp::Ordering;
use std::fs;
use std::path::Path;

/// Keys of a run's length, and its name.
const LENGTH: [&str; 3] = ["epochs", "train.max_steps", "name"];
/// Files that a copy leaves out: they belong only to the other run, and are written again.
const OWN: [&str; 4] = [".lock", "logs", "report.html", "profile.json"];

/// For each plan, the longest other plan whose whole run equals the beginning of its own run.
pub fn behind(plans: &[&Plan]) -> Vec<Option<usize>> {
    let shapes: Vec<_> = plans.iter().map(|plan| shape(plan)).collect();
    // All values last: of most pairs neither is shorter.
    let is_beginning = |short: usize, long: usize| {
        is_shorter(plans[short], plans[long])
            && ends_measured(plans[short], plans[long])
            && shapes[short].is_some()
            && shapes[short] == shapes[long]
    };
    (0..plans.len())
        .map(|long| {
            let mut best: Option<usize> = None;
            for short in (0..plans.len()).filter(|short| is_beginning(*short, long)) {
                if best.is_none_or(|best| is_shorter(plans[best], plans[short])) {
                    best = Some(short);
                }
            }
            best
        })
        .collect()
}

/// All values but the length; `None` if a run of this plan is not the beginning of a longer one, or leaves no checkpoint at its end.
fn shape(plan: &Plan) -> Option<(usize, serde_json::Map<String, serde_json::Value>)> {
    if plan.save_every == Every::Never || why_not_a_beginning(plan).is_some() {
        return None;
    }
    let mut values = plan.flat();
    values.retain(|key, _| !LENGTH.contains(&key.as_str()));
    Some((plan.world.world_size, values))
}

/// Why a run that ends earlier, by `epochs` or `train.max_steps`, may differ from the beginning of this one; `None` if it does not.
/// The learning rate has to be free of the length.
pub fn why_not_a_beginning(plan: &Plan) -> Option<String> {
    let name = plan.schedule.depends_on_length()?;
    Some(format!("the schedule `{name}` depends on the length of the run"))
}

/// Whether `short` ends before `long` in any case.
fn is_shorter(short: &Plan, long: &Plan) -> bool {
    let steps = |plan: &Plan| plan.train.max_steps.unwrap_or(u64::MAX);
    let epochs = |plan: &Plan| plan.epochs.unwrap_or(u64::MAX);
    let (epochs, steps) = (epochs(short).cmp(&epochs(long)), steps(short).cmp(&steps(long)));
    [epochs, steps].contains(&Ordering::Less) && ![epochs, steps].contains(&Ordering::Greater)
}

/// Whether the evaluation at the end of `short` is one of `long`, too: another one would be in its metrics, and could be its best.
fn ends_measured(short: &Plan, long: &Plan) -> bool {
    let every = long.train.eval_every;
    let whole = short.epochs.is_some_and(|epochs| epochs.is_multiple_of(every));
    every <= 1 || short.train.max_steps == long.train.max_steps && whole
}

/// Makes the run folder `to` a copy of `from`, completely or not at all.
///
/// # Errors
/// Exit code 74: a file can't be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let scratch = TempPath::beside(to).doing("create a folder beside", to)?;
    copy_folder(from, scratch.path(), &OWN)?;
    fs::rename(scratch.path(), to).doing("create", to)
}

/// Removes copies of the folder `to` that a killed sweep has begun. No other sweep may be writing there.
///
/// # Errors
/// Exit code 74: one can't be removed.
pub fn remove_begun(to: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else { return Ok(()) };
    let begun = format!(".{}.part-", name.to_string_lossy());
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        let is_begun = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begun));
        if is_begun && path.is_dir() {
            fs::remove_dir_all(&path).doing("remove", &path)?;
        }
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path, without: &[&str]) -> Result<()> {
    fs::create_dir_all(to).doing("create", to)?;
    for entry in fs::read_dir(from).doing("read", from)? {
        let entry = entry.doing("read", from)?;
        let name = entry.file_name();
        if without.iter().any(|own| name == *own) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        // Behind a link, too: two runs may not write to one folder.
        match fs::metadata(&from).doing("read", &from)?.is_dir() {
            true => copy_folder(&from, &to, &[])?,
            false => files::open(&from).and_then(|_| fs::copy(&from, &to)).map(drop).doing("copy", &from)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::plan::testing::resolved;
    use job::registry::Registry;

    const SPEC: &str = "name = \"run\"\nbatch_size = 8\n[model]\nname = \"linear\"\n\
        [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n[optimizer]\nname = \"sgd\"\nlr = 0.05\n";

    fn behind_of(children: &[&[&str]]) -> Vec<Option<usize>> {
        let plan =
            |sets: &&[&str]| resolved(&Registry::standard(), SPEC, sets, 1).unwrap_or_else(|e| panic!("{e}"));
        let plans: Vec<Plan> = children.iter().map(plan).collect();
        behind(&plans.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_longer_run_continues_the_longest_that_is_its_beginning() {
        let lengths: [&[&str]; 4] =
            [&["epochs=9"], &["epochs=3"], &["epochs=6", "name=other"], &["epochs=9", "seed=1"]];
        assert_eq!(behind_of(&lengths), [Some(2), None, Some(1), None]);
        let steps: [&[&str]; 3] =
            [&["epochs=9"], &["epochs=9", "train.max_steps=5"], &["epochs=2", "train.max_steps=50"]];
        assert_eq!(behind_of(&steps), [Some(1), None, None], "5 steps may be more or less than two epochs");
    }

    #[test]
    fn what_depends_on_the_length_is_trained_from_the_start() {
        for key in ["scheduler.name=cosine", "save_every=\"never\""] {
            assert_eq!(behind_of(&[&["epochs=3", key], &["epochs=9", key]]), [None, None], "{key}");
        }
        let rare = ["early_stop.patience=2", "train.eval_every=2"];
        assert_eq!(
            behind_of(&[&[&["epochs=3"], &rare[..]].concat(), &[&["epochs=9"], &rare[..]].concat()]),
            [None, None]
        );
        let rare = ["early_stop.patience=2", "train.eval_every=3"];
        assert_eq!(
            behind_of(&[&[&["epochs=3"], &rare[..]].concat(), &[&["epochs=9"], &rare[..]].concat()]),
            [None, Some(0)]
        );
        // The end of 3 epochs is evaluated, but not in a run of 8 epochs; the end of 4 epochs is evaluated in both.
        let every_second = "train.eval_every=2";
        assert_eq!(
            behind_of(&[
                &["epochs=8", every_second],
                &["epochs=3", every_second],
                &["epochs=4", every_second]
            ]),
            [Some(2), None, None]
        );
        let by_steps: [&[&str]; 2] =
            [&["train.max_steps=16", every_second], &["train.max_steps=8", every_second]];
        assert_eq!(behind_of(&by_steps), [None, None]);
        let each = "early_stop.patience=2";
        assert_eq!(behind_of(&[&["epochs=3", each], &["epochs=9", each]]), [None, Some(0)]);
    }

    #[test]
    fn a_copy_has_what_a_run_continues_from() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        for name in
            ["checkpoints/step-3/state.json", "metrics.jsonl", ".lock", "logs/rank-0.log", "checkpoints/logs"]
        {
            fs::create_dir_all(from.join(name).parent().unwrap()).unwrap();
            fs::write(from.join(name), name).unwrap();
        }
        copy(&from, &to).unwrap();
        assert_eq!(
            fs::read_to_string(to.join("checkpoints/step-3/state.json")).unwrap(),
            "checkpoints/step-3/state.json"
        );
        assert!(to.join("metrics.jsonl").is_file() && to.join("checkpoints/logs").is_file());
        assert!(!to.join(".lock").exists() && !to.join("logs").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
        // As left by a process that is killed while it copies.
        let killed = TempPath::beside(&to).unwrap();
        fs::create_dir_all(killed.path().join("checkpoints")).unwrap();
        fs::create_dir_all(folder.path().join(".c.part-1")).unwrap();
        remove_begun(&to).unwrap();
        assert!(!killed.path().exists() && folder.path().join(".c.part-1").exists() && to.exists());
    }
}
