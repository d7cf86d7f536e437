//! Shows the progress of a transfer: a bar on a terminal, else a line now and then.

use base::screen::bar_target;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

const WITH_TOTAL: &str = "{bar:24} {decimal_bytes}/{decimal_total_bytes}  {decimal_bytes_per_sec}  eta {eta}";
const WITHOUT_TOTAL: &str = "{spinner} {decimal_bytes}  {decimal_bytes_per_sec}";
/// Frames of a bar that nothing changes: its rate falls, and the spinner turns.
const TICK: Duration = Duration::from_millis(250);

pub(super) struct Progress<'a> {
    url: &'a str,
    /// Bytes that were there before this transfer.
    first: u64,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    begun: Instant,
    reported: Instant,
    every: Duration,
    say: &'a mut dyn FnMut(&str),
}

impl<'a> Progress<'a> {
    /// Reports the begin of the transfer, after `first` bytes of `total`.
    pub fn new(
        url: &'a str,
        first: u64,
        total: Option<u64>,
        every: Duration,
        say: &'a mut dyn FnMut(&str),
    ) -> Self {
        let size = total.map_or(String::new(), |total| format!(", {}", megabytes(total)));
        let rest =
            if first > 0 { format!(", of which {} are here", megabytes(first)) } else { String::new() };
        say(&format!("downloading {url}{size}{rest}"));
        let bar = bar_target().map(|target| bar(target, first, total));
        let begun = Instant::now();
        Self { url, first, total, bar, begun, reported: begun, every, say }
    }

    /// `got` bytes are there, those from before included.
    pub fn at(&mut self, got: u64) {
        self.at_time(got, Instant::now());
    }

    fn at_time(&mut self, got: u64, now: Instant) {
        if let Some(bar) = &self.bar {
            bar.set_position(got);
        } else if now.duration_since(self.reported) >= self.every {
            self.reported = now;
            let rate = (got - self.first) as f64 / now.duration_since(self.begun).as_secs_f64().max(1e-3);
            let of = self.total.map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            let (got, rate) = (megabytes(got), rate / 1e6);
            (self.say)(&format!("downloading {}: {got}{of}, {rate:.1} MB/s", self.url));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(target: ProgressDrawTarget, first: u64, total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, target);
    let template = if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("━╸ "));
    bar.set_position(first);
    bar.reset_eta();
    bar.enable_steady_tick(TICK);
    bar
}

/// `170.1 MB`.
pub fn megabytes(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rare_and_say_size_and_rate() {
        let mut said = Vec::new();
        let mut say = |line: &str| said.push(line.to_owned());
        let mut progress =
            Progress::new("http://a/x", 2_000_000, Some(10_000_000), Duration::from_secs(5), &mut say);
        // A test that runs on a terminal shows no bar.
        progress.bar = None;
        let begun = progress.begun;
        for second in 1..=12u64 {
            progress.at_time(2_000_000 + 500_000 * second, begun + Duration::from_secs(second));
        }
        drop(progress);
        assert_eq!(
            said,
            [
                "downloading http://a/x, 10.0 MB, of which 2.0 MB are here",
                "downloading http://a/x: 4.5 MB of 10.0 MB, 0.5 MB/s",
                "downloading http://a/x: 7.0 MB of 10.0 MB, 0.5 MB/s",
            ]
        );
    }

    #[test]
    fn the_bar_shows_what_is_there() {
        for (template, total) in [(WITH_TOTAL, Some(10)), (WITHOUT_TOTAL, None)] {
            ProgressStyle::with_template(template).unwrap();
            let bar = bar(ProgressDrawTarget::hidden(), 4, total);
            assert_eq!((bar.position(), bar.length()), (4, total));
            bar.finish_and_clear();
        }
    }
}
