//! The line of an epoch: whole, or as much of it as a terminal has columns for.

use super::epochs::rate_of;
use super::events::EpochEvent;
use base::display::{self, cut_to};
use base::numbers::{epoch_of, seconds};
use base::numbers::{metric_words, percent};
use unicode_width::UnicodeWidthStr;

/// The metric that ranks a run's checkpoints unless its spec says otherwise.
const USUAL_BEST: &str = "val.loss";

/// A part of the line.
struct SummaryPart {
    /// `train` or `val`, before the first metric of the split; empty for what is no metric.
    split: &'static str,
    text: String,
    /// The part with the greatest is left out first.
    rank: usize,
}

/// `epoch 1/12  train loss 1.234 acc 55.1 %  val loss … acc …  12.3 s  1234 samples/s  data wait 0.1 %`; of `epochs`. An epoch that is
/// too short has no rate and no wait.
pub fn epoch_summary(event: &EpochEvent, epochs: u64) -> String {
    joined(&epoch_of(event.epoch, epochs), &parts(event, USUAL_BEST))
}

/// The same in less than `columns` columns. What matters least is left out first: the wait for data, the rate, the metrics from the last to the
/// first (those of training before those of validation), the losses; `best`, the metric that ranks checkpoints, is left out last.
pub(super) fn epoch_summary_within(columns: usize, event: &EpochEvent, epochs: u64, best: &str) -> String {
    within(columns, &epoch_of(event.epoch, epochs), parts(event, best))
}

/// The epoch and its metrics: `epoch 1/12  train loss 1.234 acc 55.1 %  val loss …`, in less than `columns` columns if there are any.
pub(super) fn metrics_summary(columns: Option<usize>, event: &EpochEvent, epochs: u64, best: &str) -> String {
    let (head, parts) = (epoch_of(event.epoch, epochs), metrics(event, best));
    match columns {
        Some(columns) => within(columns, &head, parts),
        None => joined(&head, &parts),
    }
}

fn parts(event: &EpochEvent, best: &str) -> Vec<SummaryPart> {
    let mut parts = metrics(event, best);
    // As important as the second metric: more than all others.
    parts.push(SummaryPart { split: "", text: seconds(event.seconds), rank: SECOND });
    if let Some(per_second) = rate_of(event.trained()) {
        let wait = format!("data wait {}", percent(event.data_wait));
        let rate = event.per_sample().rate_words(per_second);
        parts.push(SummaryPart { split: "", text: rate, rank: usize::MAX - 1 });
        parts.push(SummaryPart { split: "", text: wait, rank: usize::MAX });
    }
    parts
}

/// The rank of the second metric of a split, the first besides the loss.
const SECOND: usize = 4;

fn metrics(event: &EpochEvent, best: &str) -> Vec<SummaryPart> {
    let mut parts = Vec::new();
    for (place, split, metrics) in [(3, "train", Some(&event.train)), (2, "val", event.val.as_ref())] {
        for (number, (name, value)) in metrics.into_iter().flat_map(|metrics| metrics.iter()).enumerate() {
            let is_best = best.split_once('.') == Some((split, name));
            // These two say nothing besides the loss.
            let of_the_loss = matches!(name, "perplexity" | "bits_per_byte");
            let number = if of_the_loss { usize::MAX / 4 } else { number };
            let rank = if is_best { 0 } else { place + 2 * number };
            parts.push(SummaryPart {
                split,
                text: format!("{} {}", short(name), metric_words(name, value)),
                rank,
            });
        }
    }
    parts
}

/// A metric's name as the line has it.
fn short(name: &str) -> String {
    match name {
        "accuracy" => "acc".to_owned(),
        "top5" => "top-5".to_owned(),
        name => display::piece(name),
    }
}

fn within(columns: usize, head: &str, mut parts: Vec<SummaryPart>) -> String {
    loop {
        let line = joined(head, &parts);
        // A line that reaches the last column would be wrapped by some terminals.
        if line.width() < columns {
            return line;
        }
        match (0..parts.len()).filter(|at| parts[*at].rank > 0).max_by_key(|at| parts[*at].rank) {
            Some(least) => drop(parts.remove(least)),
            None => return least(columns, head, &parts),
        }
    }
}

/// As much as there is room for of the epoch and `best`: its value to the last. Without `best`, the epoch.
fn least(columns: usize, head: &str, best: &[SummaryPart]) -> String {
    let cut = |line: &str| cut_to(line, columns.saturating_sub(1)).into_owned();
    let Some(SummaryPart { text, .. }) = best.first() else { return cut(head) };
    let value = text.split_once(' ').map_or(text.as_str(), |(_, value)| value);
    let line = |head: &str| joined(head, best).trim_start().to_owned();
    let lines =
        [line(head), line(head.trim_start_matches("epoch ")), line(""), text.clone(), value.to_owned()];
    lines.into_iter().find(|line| line.width() < columns).unwrap_or_else(|| cut(value))
}

fn joined(head: &str, parts: &[SummaryPart]) -> String {
    let (mut line, mut split) = (head.to_owned(), "");
    for part in parts {
        if part.split.is_empty() {
            line.push(' ');
        } else if part.split != split {
            line.push_str("  ");
            line.push_str(part.split);
        }
        split = part.split;
        line.push(' ');
        line.push_str(&part.text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metrics, samples};

    fn event() -> EpochEvent {
        EpochEvent {
            train: Metrics::new(1.2341).with("accuracy", 0.5512),
            val: Some(Metrics::new(1.1).with("accuracy", 0.6).samples(5000)),
            seconds: 12.34,
            samples_per_s: 1234.4,
            data_wait: 0.001,
            ..samples::epoch(0, 0.5)
        }
    }

    #[test]
    fn the_whole_line_with_and_without_validation() {
        let mut event = event();
        assert_eq!(
            epoch_summary(&event, 12),
            "epoch 1/12  train loss 1.234 acc 55.1 %  val loss 1.100 acc 60.0 %  12.3 s  1234 samples/s  data wait 0.1 %"
        );
        event.val = None;
        event.train = Metrics::new(0.00001234).with("mae", 12345.6);
        assert_eq!(
            epoch_summary(&event, 12),
            "epoch 1/12  train loss 1.234e-5 mae 12346  12.3 s  1234 samples/s  data wait 0.1 %"
        );
        event.seconds = 0.04;
        assert_eq!(epoch_summary(&event, 12), "epoch 1/12  train loss 1.234e-5 mae 12346  40 ms");
    }

    #[test]
    fn the_line_is_shorter_than_the_terminal_is_wide_and_keeps_what_matters() {
        let all = |loss: f64| {
            Metrics::new(loss).with("accuracy", 0.5512).with("top5", 0.9).with("perplexity", loss.exp())
        };
        let event = EpochEvent { train: all(1.2341), val: Some(all(1.1)), ..event() };
        let line = |columns| epoch_summary_within(columns, &event, 12, "val.accuracy");
        assert_eq!(epoch_summary(&event, 12).width(), 167);
        assert_eq!(line(168), epoch_summary(&event, 12));
        assert_eq!(
            line(130),
            "epoch 1/12  train loss 1.234 acc 55.1 % top-5 90.0 %  val loss 1.100 acc 55.1 % top-5 90.0 % perplexity 3.004  12.3 s"
        );
        assert_eq!(
            line(100),
            "epoch 1/12  train loss 1.234 acc 55.1 %  val loss 1.100 acc 55.1 % top-5 90.0 %  12.3 s"
        );
        assert_eq!(line(80), "epoch 1/12  train loss 1.234 acc 55.1 %  val loss 1.100 acc 55.1 %  12.3 s");
        assert_eq!(line(50), "epoch 1/12  val loss 1.100 acc 55.1 %");
        assert_eq!(line(30), "epoch 1/12  val acc 55.1 %");
        for columns in 2..200 {
            assert!(line(columns).width() < columns, "{columns}: {}", line(columns));
        }
        assert_eq!(line(21), "1/12  val acc 55.1 %");
        assert_eq!(
            [line(20), line(11), line(10), line(6)],
            ["val acc 55.1 %", "acc 55.1 %", "55.1 %", "55.1…"]
        );
        let ranked_by = |best| epoch_summary_within(32, &event, 12, best);
        assert_eq!(ranked_by("val.loss"), "epoch 1/12  val loss 1.100");
        assert_eq!(ranked_by("train.top5"), "epoch 1/12  train top-5 90.0 %");
    }

    #[test]
    fn names_of_users_take_their_columns_and_control_no_terminal() {
        let name = "実験\u{1b}[31m";
        let event = EpochEvent { train: Metrics::new(1.0).with(name, 0.5), val: None, ..event() };
        assert_eq!(
            epoch_summary_within(80, &event, 2, "val.loss"),
            "epoch 1/2  train loss 1.000 実験·[31m 0.5000  12.3 s  1234 samples/s"
        );
        for columns in 2..100 {
            assert!(epoch_summary_within(columns, &event, 2, "val.loss").width() < columns, "{columns}");
        }
    }
}
