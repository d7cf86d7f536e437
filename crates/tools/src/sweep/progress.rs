//! One steady line for the whole sweep on a terminal, with the ends of the runs above it; elsewhere, a line at each end.

use super::schedule::{Child, ChildState, Ended, Schedule};
use super::state::File;
use base::display::{self, count};
use base::numbers::metric_words;
use base::screen::bar_target;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::Duration;

/// Frames of a line that changes only in its time.
const TICK: Duration = Duration::from_secs(1);

pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Says what there is to do.
    pub fn new(file: &File, schedule: &Schedule) -> Self {
        let children = schedule.children();
        let done = children.iter().filter(|child| is_final(child, file)).count();
        let before = if done > 0 { format!(", {done} of them done") } else { String::new() };
        status!("sweep of {}: {}{before}", display::piece(&file.spec), count(children.len(), "run"));
        Self(bar_target().map(|target| {
            let style = ProgressStyle::with_template("{wide_msg}  {elapsed}");
            let bar = ProgressBar::with_draw_target(None, target);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(line(file, schedule));
            bar.enable_steady_tick(TICK);
            bar
        }))
    }

    /// Shows how far the sweep is.
    pub fn show(&self, file: &File, schedule: &Schedule) {
        if let Some(bar) = &self.0 {
            bar.set_message(line(file, schedule));
        }
    }

    /// A run has ended, on its rung.
    pub fn ended(&self, file: &File, at: usize, ended: Ended, log: &Path) {
        let record = &file.children[at];
        let how = match ended {
            Ended::Done(value) => format!("done, {}", measured(file, value)),
            Ended::Stopped => "stopped".to_owned(),
            Ended::Failed(code) => {
                let code = code.map_or("killed".to_owned(), |code| format!("exit code {code}"));
                format!("failed ({code}), see {}", log.display())
            }
        };
        let rung = match (ended, file.rungs.get(record.values.len().saturating_sub(1))) {
            (Ended::Done(_), Some(length)) => format!(" ({length})"),
            _ => String::new(),
        };
        self.say(&format!("{}{rung}: {how}", record.name));
    }

    /// A line above the steady one.
    pub fn say(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.println(display::piece(text)),
            None => status!("{}", display::piece(text)),
        }
    }

    pub fn finish(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Whether nothing is left to do for a child.
fn is_final(child: &Child, file: &File) -> bool {
    let last = file.rungs.len().saturating_sub(1);
    child.state == ChildState::Dropped || child.state == ChildState::Done && child.rung >= last
}

/// `val.loss 0.31`
fn measured(file: &File, value: Option<f64>) -> String {
    value.map_or_else(
        || format!("{} was not measured", file.metric),
        |value| format!("{} {}", file.metric, metric_words(&file.metric, value)),
    )
}

/// `sweep 3/12 done · 2 running · 1 failed · best val.loss 0.31 (03_lr-0.1)`
fn line(file: &File, schedule: &Schedule) -> String {
    let children = schedule.children();
    let done = children.iter().filter(|child| is_final(child, file)).count();
    let mut parts = vec![format!("sweep {done}/{} done", children.len())];
    let running = schedule.running().count();
    if running > 0 {
        parts.push(format!("{running} running"));
    }
    let failed = children.iter().filter(|child| child.state == ChildState::Failed).count();
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    let rung = children.iter().map(|child| child.rung).max().unwrap_or(0);
    if !file.rungs.is_empty() {
        parts.push(format!("rung {}/{}", rung + 1, file.rungs.len()));
    }
    let best = schedule.ranking().into_iter().find_map(|at| Some((at, children[at].value()?)));
    if let Some((at, value)) = best {
        parts.push(format!("best {} ({})", measured(file, Some(value)), file.children[at].name));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::schedule::Rules;
    use crate::sweep::state::tests::file;

    #[test]
    fn the_line_tells_how_far_the_sweep_is() {
        let file = file(&[
            ("0.1", ChildState::Done, Some(0.5)),
            ("0.2", ChildState::Failed, None),
            ("0.3", ChildState::Waiting, None),
        ]);
        let rules = Rules { rungs: 1, eta: 3, prefers_larger: false, parallel: 1, fail_fast: false };
        let mut schedule =
            Schedule::new(rules, file.children.iter().map(|record| record.child(None)).collect());
        assert_eq!(schedule.start(), Some((1, 0)));
        assert_eq!(line(&file, &schedule), "sweep 1/3 done · 1 running · best val.loss 0.5000 (01_lr-0.1)");
        schedule.ended(1, Ended::Failed(Some(92)));
        assert_eq!(line(&file, &schedule), "sweep 1/3 done · 1 failed · best val.loss 0.5000 (01_lr-0.1)");
    }
}
