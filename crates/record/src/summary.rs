//! The last lines of a complete run on the terminal: its length, its last and best metrics, and what to do next.

use super::epoch_summary::metrics_summary;
use super::epochs::{PerSample, best, rate_over};
use super::events::{CheckpointEvent, EndEvent, EpochEvent, Event};
use super::report;
use base::display::{count, path, shell_word};
use base::numbers::metric_words;
use base::numbers::{epoch_of, seconds};
use std::path::{Path, PathBuf};

/// What the events do not contain.
pub struct SummaryFacts<'a> {
    /// The run's folder.
    pub dir: &'a Path,
    /// The name of this program.
    pub program: &'a str,
    /// The epochs of the whole run.
    pub epochs: u64,
    /// The metric that ranks checkpoints (`val.loss`), and whether larger values are better.
    pub best: (&'a str, bool),
    /// Those of the terminal on which the lines are shown.
    pub columns: Option<usize>,
}

/// The columns in front of the text of a row.
const INDENT: usize = 10;

/// The lines, without a newline at the end.
pub fn summary(events: &[Event], end: &EndEvent, run: &SummaryFacts<'_>) -> String {
    let epochs: Vec<&EpochEvent> =
        events.iter().filter_map(|e| if let Event::Epoch(e) = e { Some(e) } else { None }).collect();
    let best = best(epochs.iter().copied(), run.best.0, run.best.1);
    let newest = saved(events, run.dir, |_| true);
    let of_best = best.and_then(|(epoch, _)| saved(events, run.dir, |saved| saved.step == epoch.step));
    let mut rows = Vec::new();
    if let Some(last) = epochs.last() {
        let columns = run.columns.map(|columns| columns.saturating_sub(INDENT));
        rows.push(("last", metrics_summary(columns, last, run.epochs, run.best.0)));
    }
    if let Some((of, value)) = best {
        let (name, _) = run.best;
        let place = of_best.as_ref().map_or("no checkpoint".to_owned(), |at| path(at));
        rows.push((
            "best",
            format!("{}  {name} {}  {place}", epoch_of(of.epoch, run.epochs), metric_words(name, value)),
        ));
    }
    rows.push(("report", path(&report::path(run.dir))));
    if of_best.is_some() || newest.is_some() {
        let best = if of_best.is_some() { " --checkpoint best" } else { "" };
        let split = if epochs.iter().any(|e| e.val.is_some()) { "" } else { " --split train" };
        rows.push(("next", format!("{} eval {}{best}{split}", run.program, shell_word(run.dir))));
    }
    let rows: String = rows.iter().map(|(name, text)| format!("\n  {name:6}  {text}")).collect();
    format!("{}{rows}", headline(events, &epochs, end))
}

/// `done: 756 steps in 10.2 s, 4,905 samples/s, 1 restart`
fn headline(events: &[Event], epochs: &[&EpochEvent], end: &EndEvent) -> String {
    let speed = rate_over(epochs.iter().copied());
    let per_sample = epochs.last().map_or_else(PerSample::default, |epoch| epoch.per_sample());
    let speed = speed.map_or_else(String::new, |speed| format!(", {}", per_sample.rate_words(speed)));
    let restarts = match events.iter().filter(|e| matches!(e, Event::Restart(r) if r.attempt > 1)).count() {
        0 => String::new(),
        n => format!(", {}", count(n, "restart")),
    };
    let steps = count(end.step as usize, "step");
    format!("done: {steps} in {}{speed}{restarts}", seconds(end.seconds))
}

/// The newest of these checkpoints that is still there.
fn saved(events: &[Event], dir: &Path, meant: impl Fn(&CheckpointEvent) -> bool) -> Option<PathBuf> {
    let saves = events.iter().rev().filter_map(|e| if let Event::Checkpoint(e) = e { Some(e) } else { None });
    saves.filter(|saved| meant(saved)).map(|saved| dir.join(&saved.path)).find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, checkpoint, restart};

    fn epoch_event(epoch: u64, accuracy: f64) -> Event {
        Event::Epoch(samples::epoch(epoch, accuracy))
    }

    #[test]
    fn it_names_the_last_and_the_best_epoch_and_the_next_command() {
        let dir = tempfile::tempdir().unwrap();
        for step in [20, 30] {
            std::fs::create_dir_all(dir.path().join(format!("checkpoints/step-{step:08}"))).unwrap();
        }
        let events = [
            epoch_event(0, 0.75),
            checkpoint(10),
            restart(),
            epoch_event(1, 0.875),
            checkpoint(20),
            epoch_event(2, 0.875),
            checkpoint(30),
        ];
        let end = EndEvent { step: 30, epoch: 3, reason: "done".to_owned(), exit_code: 0, seconds: 7.5 };
        let run = |best| SummaryFacts { dir: dir.path(), program: "mynet", epochs: 3, best, columns: None };
        let text = summary(&events, &end, &run(("val.accuracy", true)));
        let text = text.replace(&dir.path().display().to_string(), "RUN");
        assert_eq!(
            text,
            "done: 30 steps in 7.5 s, 1000 samples/s, 1 restart\n  \
             last    epoch 3/3  train loss 0.5000  val loss 0.2500 acc 87.5 %\n  \
             best    epoch 3/3  val.accuracy 87.5 %  RUN/checkpoints/step-00000030\n  \
             report  RUN/report.html\n  \
             next    mynet eval RUN --checkpoint best"
        );
        // The best epoch's checkpoint is gone, or nothing ranks.
        let text = summary(&events, &end, &run(("val.accuracy", false)));
        assert!(text.contains("best    epoch 1/3  val.accuracy 75.0 %  no checkpoint\n"), "{text}");
        assert!(text.contains("next    mynet eval ") && !text.contains("--checkpoint"), "{text}");
        let text = summary(&events, &end, &run(("val.mae", false)));
        assert!(!text.contains("best"), "{text}");
        let narrow = SummaryFacts { columns: Some(60), ..run(("val.accuracy", true)) };
        let text = summary(&events, &end, &narrow);
        assert!(text.contains("  last    epoch 3/3  val loss 0.2500 acc 87.5 %\n"), "{text}");
    }

    #[test]
    fn the_rate_of_a_run_is_that_of_all_its_samples() {
        let epoch = |seconds, samples_per_s| EpochEvent { seconds, samples_per_s, ..samples::epoch(0, 0.5) };
        let (quick, slow) = (epoch(1.0, 100.0), epoch(3.0, 20.0));
        assert_eq!(
            rate_over([&quick, &slow].into_iter()),
            Some(40.0),
            "not 60, the mean of the epochs' rates"
        );
        assert_eq!(rate_over([].into_iter()), None);
    }

    #[test]
    fn a_run_without_an_epoch_has_a_summary() {
        let end = EndEvent { step: 3, epoch: 0, reason: "done".to_owned(), exit_code: 0, seconds: 0.5 };
        let (dir, best) = (Path::new("runs/x"), ("val.loss", false));
        let run = SummaryFacts { dir, program: "ddp-run", epochs: 1, best, columns: None };
        assert_eq!(summary(&[], &end, &run), "done: 3 steps in 0.5 s\n  report  runs/x/report.html");
        let run = SummaryFacts { dir: Path::new("a\nb"), ..run };
        assert_eq!(summary(&[], &end, &run), "done: 3 steps in 0.5 s\n  report  a·b/report.html");
    }
}
