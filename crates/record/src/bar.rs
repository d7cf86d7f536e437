//! The status line on a terminal, as wide as the terminal is when it is drawn.

use base::numbers::{clock, is_endless, of_all};
use base::screen;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Columns of the bar itself, from most to least.
const BARS: [usize; 3] = [24, 16, 8];

/// The line, of which a step changes the words.
pub(super) struct StatusLine {
    pub bar: ProgressBar,
    words: Arc<Mutex<Words>>,
}

/// What a step changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words {
    /// `epoch 2/12`
    pub epoch: String,
    pub loss: String,
    pub lr: String,
    /// `1234 samples/s`
    pub speed: String,
}

impl StatusLine {
    pub fn new(steps: u64, target: ProgressDrawTarget) -> Self {
        let words: Arc<Mutex<Words>> = Arc::default();
        let shown = words.clone();
        let line = move |state: &ProgressState, out: &mut dyn Write| {
            let steps = state.len().unwrap_or(0);
            let counts = of_all(state.pos(), steps);
            // Nothing is known before the first step; a resumed run is drawn then.
            let known = !is_endless(steps) && (state.per_sec() > 0.0 || steps == state.pos());
            let eta = if known { format!("eta {}", clock(state.eta().as_secs_f64())) } else { String::new() };
            let _ = out.write_str(&layout(screen::columns(), &lock(&shown), state.fraction(), &counts, &eta));
        };
        let style = ProgressStyle::with_template("{line}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_style(style.with_key("line", line));
        Self { bar, words }
    }

    pub fn set(&self, step: u64, words: Words) {
        *lock(&self.words) = words;
        self.bar.set_position(step);
    }

    /// Shows what the first step waits for.
    pub fn wait_for(&self, what: String) {
        lock(&self.words).epoch = what;
        self.bar.tick();
    }

    #[cfg(test)]
    pub fn words(&self) -> Words {
        lock(&self.words).clone()
    }
}

fn lock(words: &Mutex<Words>) -> MutexGuard<'_, Words> {
    words.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The line in less than `columns` columns: without the learning rate, then the bar, the speed and the remaining time where there
/// is no space for them.
fn layout(columns: usize, words: &Words, fraction: f32, counts: &str, eta: &str) -> String {
    let Words { epoch, loss, lr, speed } = words;
    let with_bar = |columns: usize| {
        let drawn = drawn(columns, fraction);
        joined(&[epoch, &drawn, counts, loss, lr, speed, eta])
    };
    let whole = BARS.into_iter().map(with_bar);
    let less: [&[&str]; 6] = [
        &[epoch, counts, loss, lr, speed, eta],
        &[epoch, counts, loss, speed, eta],
        &[epoch, counts, loss, eta],
        &[epoch, counts, loss],
        &[counts, loss],
        &[counts],
    ];
    // A line that reaches the last column would be wrapped by some terminals.
    let fits = |line: &String| line.chars().count() < columns;
    whole.chain(less.iter().map(|parts| joined(parts))).find(fits).unwrap_or_default()
}

/// The parts that say something.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("  ")
}

/// A bar of this many columns.
fn drawn(columns: usize, fraction: f32) -> String {
    let halves = (fraction.clamp(0.0, 1.0) * (2 * columns) as f32) as usize;
    let half = if halves % 2 == 1 { "╸" } else { "" };
    let line = "━".repeat(halves / 2) + half;
    format!("{line:columns$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words {
            epoch: "epoch 2/12".to_owned(),
            loss: "loss 2.303".to_owned(),
            lr: "lr 5e-4".to_owned(),
            speed: "1234 samples/s".to_owned(),
        }
    }

    #[test]
    fn the_line_is_shorter_than_the_terminal_is_wide() {
        let line = |columns| layout(columns, &words(), 0.5, "63/126", "eta 12s");
        assert_eq!(
            line(140),
            "epoch 2/12  ━━━━━━━━━━━━              63/126  loss 2.303  lr 5e-4  1234 samples/s  eta 12s"
        );
        assert_eq!(line(80), "epoch 2/12  ━━━━      63/126  loss 2.303  lr 5e-4  1234 samples/s  eta 12s");
        assert_eq!(line(60), "epoch 2/12  63/126  loss 2.303  1234 samples/s  eta 12s");
        assert_eq!(line(40), "epoch 2/12  63/126  loss 2.303  eta 12s");
        assert_eq!(line(7), "63/126");
        let nothing = layout(40, &Words::default(), 0.5, "63/126", "");
        assert_eq!(nothing, "━━━━━━━━━━━━              63/126", "before the first step of a resumed run");
        for columns in 0..200 {
            assert!(line(columns).chars().count() < columns.max(1), "{columns}: {}", line(columns));
        }
    }

    #[test]
    fn the_bar_has_one_width() {
        for (fraction, expected) in
            [(0.0, "    "), (0.5, "━━  "), (0.625, "━━╸ "), (1.0, "━━━━"), (2.0, "━━━━")]
        {
            assert_eq!(drawn(4, fraction), expected);
        }
        assert_eq!(drawn(4, f32::NAN), "    ");
    }
}
