//! The prediction for people: a row for each number of processes, then what it assumes.

use crate::telemetry::{PredictedRow, Prediction, seconds};
use std::fmt::Write;

const TITLES: [&str; 11] = [
    "world",
    "nodes",
    "threads",
    "step ms",
    "comm ms",
    "exposed ms",
    "samples/s",
    "efficiency",
    "checkpoint",
    "job",
    "cost",
];

/// The table and the assumptions, each line ended.
pub fn text(prediction: &Prediction) -> String {
    let Prediction { job, cluster, currency, rows, assumptions, .. } = prediction;
    let cells: Vec<[String; 11]> = rows.iter().map(|row| cells(row, currency)).collect();
    let width = |column: usize| {
        let of_rows = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        of_rows.max(TITLES[column].len())
    };
    let widths: [usize; 11] = std::array::from_fn(width);
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    let mut out = format!("{job} on {cluster}\n\n{}", line(&TITLES.map(str::to_owned)));
    cells.iter().for_each(|row| out += &line(row));
    // Writing to a string can't fail.
    let _ = writeln!(out, "\nIt assumes:");
    assumptions.iter().for_each(|text| {
        let _ = writeln!(out, "- {text}");
    });
    out
}

fn cells(row: &PredictedRow, currency: &str) -> [String; 11] {
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        row.world.to_string(),
        row.nodes.to_string(),
        row.threads.to_string(),
        ms(row.step_s),
        ms(row.communication_s),
        ms(row.exposed_s),
        format!("{:.*}", if row.samples_per_s < 100.0 { 1 } else { 0 }, row.samples_per_s),
        format!("{:.1} %", row.efficiency * 100.0),
        or_dash(row.checkpoint_s.map(seconds)),
        or_dash(row.job_s.map(seconds)),
        or_dash(row.cost.map(|cost| format!("{cost:.2} {currency}"))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::prediction::tests::sample;

    #[test]
    fn unknown_values_are_dashes() {
        let mut prediction = sample();
        prediction.rows[0].cost = Some(1234.5);
        prediction.rows[1].checkpoint_s = None;
        let expected = "a on b<c\n\n\
world  nodes  threads  step ms  comm ms  exposed ms  samples/s  efficiency  checkpoint     job         cost\n    \
1      1        1   125.00    50.00       25.00        8.0      90.0 %       2.0 s  12.5 s  1234.50 USD\n    \
2      1        1   125.00    50.00       25.00       16.0      90.0 %           -  12.5 s            -\n\n\
It assumes:\n- all ranks are equally fast\n";
        assert_eq!(text(&prediction), expected);
    }
}
