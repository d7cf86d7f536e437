//! `ddp-run runs show`.

use super::folder::{RunFolder, RunStatus};
use super::list::{epochs, state};
use base::display::{self, count, shell_word};
use base::numbers::{metric_words, rate, seconds};
use checkpoint::format::step_dir_name;
use job::plan::show_bytes;
use record::history::checkpoints;
use record::{Provenance, epoch_summary};

/// Checkpoints, restarts and resumes that are listed one by one.
const LISTED: usize = 8;

/// A description of a run, and the next command; `program` is the name of this one.
pub fn show(run: &RunFolder, program: &str) -> String {
    let mut rows: Vec<(&str, String)> = vec![("state", state_words(run)), ("started", started(run))];
    rows.push(("trained", trained(run)));
    let all = run.of_spec("epochs").and_then(|all| all.parse().ok());
    if let Some(last) = &run.course.last_epoch {
        rows.push(("last", epoch_summary(last, all.unwrap_or(run.course.epochs))));
    }
    rows.extend(best(run).map(|text| ("best", text)));
    let (restarts, resumes) = (&run.course.restarts, &run.course.resumes);
    rows.extend(
        newest(restarts)
            .map(|it| ("restart", format!("attempt {}: {}", it.attempt, display::piece(&it.reason)))),
    );
    rows.extend(newest(resumes).map(|it| {
        (
            "resume",
            format!("at step {} from {}, {}", it.step, display::piece(&it.path), count(it.world, "process")),
        )
    }));
    let saved: Vec<String> = run.checkpoints.iter().map(|entry| step_dir_name(entry.step)).collect();
    let listed = saved[saved.len().saturating_sub(LISTED)..].join(", ");
    rows.push((
        "checkpoints",
        match saved.len() {
            0 => "none".to_owned(),
            n if n > LISTED => format!("{n}, the newest {listed}"),
            _ => listed,
        },
    ));
    if let Some(start) = run.latest() {
        rows.extend(origin(start));
    }
    rows.push(("size", show_bytes(run.bytes)));
    rows.extend(run.problems.iter().map(|why| ("problem", display::piece(why))));
    rows.extend(next(run, program).map(|command| ("next", command)));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = rows.iter().filter(|(_, text)| !text.is_empty());
    let lines: String = lines.map(|(name, text)| format!("  {name:width$}  {text}\n")).collect();
    let archived = if run.archived { ", archived by a later start" } else { "" };
    format!("{} ({}{archived})\n{lines}", display::path(&run.folder), display::name(&run.name))
}

fn newest<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all[all.len().saturating_sub(LISTED)..].iter()
}

fn state_words(run: &RunFolder) -> String {
    match &run.state {
        RunStatus::Failed { reason, .. } => format!("{}: {}", state(run), display::piece(reason)),
        RunStatus::Removing => "removing: `runs rm` was interrupted".to_owned(),
        RunStatus::Untrained => "untrained: no step was recorded".to_owned(),
        _ => state(run),
    }
}

fn started(run: &RunFolder) -> String {
    let starts = run.starts.as_ref().map_or(&[][..], |file| &file.earlier);
    match starts.first() {
        None => display::name(&run.started),
        Some(first) => {
            let n = count(starts.len() + 1, "start");
            format!(
                "{}, the last of {n} since {}",
                display::name(&run.started),
                display::name(&first.started)
            )
        }
    }
}

/// `12/12 epochs, 756 steps in 10.2 s, 4905 samples/s, 1 restart`
fn trained(run: &RunFolder) -> String {
    let course = &run.course;
    if !course.trained {
        return String::new();
    }
    let time = course.seconds().map_or_else(String::new, |time| format!(" in {}", seconds(time)));
    let speed =
        course.samples_per_s().map_or_else(String::new, |speed| format!(", {} samples/s", rate(speed)));
    let restarts = match course.restart_count() {
        0 => String::new(),
        n => format!(", {}", count(n, "restart")),
    };
    format!("{} epochs, {}{time}{speed}{restarts}", epochs(run), count(course.step as usize, "step"))
}

/// `epoch 11/12  val.accuracy 99.4 %  checkpoints/step-00000693`
fn best(run: &RunFolder) -> Option<String> {
    let (best, by) = (run.course.best.as_ref()?, run.by.as_ref()?);
    let all = run.of_spec("epochs").map_or_else(String::new, |all| format!("/{}", display::name(&all)));
    let saved = run.best_checkpoint().map_or_else(String::new, |name| format!("  checkpoints/{name}"));
    let value = metric_words(&by.metric, best.value);
    Some(format!("epoch {}{all}  {} {value}{saved}", best.epoch.epoch.saturating_add(1), by.metric))
}

fn origin(start: &Provenance) -> Vec<(&'static str, String)> {
    let on = format!(
        "{} on {} ({}), started by {}",
        count(start.world, "process"),
        display::name(&super::facts::devices(start)),
        display::name(&start.backend),
        display::name(&start.launcher)
    );
    let commit = start.git.as_ref().map_or_else(String::new, |git| {
        let changed = if git.dirty == Some(true) { " with changed files" } else { "" };
        format!("{}{changed}", display::name(&git.commit))
    });
    vec![
        ("processes", on),
        ("host", format!("{}, {}", display::name(&start.host.name), display::name(&start.host.cpu))),
        ("commit", commit),
        ("versions", versions(start)),
        ("hash", display::name(&start.spec_hash)),
    ]
}

pub(super) fn versions(start: &Provenance) -> String {
    let of = &start.versions;
    let rustc = of.rustc.as_ref().map_or_else(String::new, |rustc| format!(", {}", display::name(rustc)));
    format!("ddp-run {}, Burn {}{rustc}", display::name(&of.ddp_run), display::name(&of.burn))
}

/// The next command.
fn next(run: &RunFolder, program: &str) -> Option<String> {
    let folder = shell_word(&run.folder);
    let again = || {
        let spec = run.folder.join("job.toml");
        spec.is_file().then(|| format!("{program} train {} --out {folder}", shell_word(&spec)))
    };
    match &run.state {
        RunStatus::Running => None,
        RunStatus::Removing => Some(format!("{program} runs rm {folder}")),
        RunStatus::Done if checkpoints(&run.folder).is_dir() && !run.checkpoints.is_empty() => {
            let best = if run.best_checkpoint().is_some() { " --checkpoint best" } else { "" };
            let measured = run.course.measured.iter().any(|(name, _)| name.starts_with("val."));
            Some(format!("{program} eval {folder}{best}{}", if measured { "" } else { " --split train" }))
        }
        RunStatus::Done => None,
        RunStatus::Stopped | RunStatus::Failed { .. } | RunStatus::Untrained => again(),
    }
}
