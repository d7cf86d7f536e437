//! The prediction for people: a row for each number of processes, then what it assumes.

use base::display::{Column, Table};
use base::numbers::{seconds, significant};
use record::{PredictedRow, Prediction};
use std::fmt::Write;

/// A column's title, and which is left out first where there is no room for all: the one with the largest number.
const TITLES: [(&str, u8); 11] = [
    ("world", 0),
    ("nodes", 6),
    ("threads", 5),
    ("step ms", 0),
    ("comm ms", 4),
    ("exposed ms", 2),
    ("samples/s", 1),
    ("efficiency", 0),
    ("checkpoint", 3),
    ("job", 0),
    ("cost", 0),
];

/// The table, in at most `width` columns, and the assumptions, each line ended.
pub fn text(prediction: &Prediction, width: Option<usize>) -> String {
    let Prediction { job, cluster, currency, rows, assumptions, .. } = prediction;
    let columns = TITLES.map(|(title, spare)| Column::right(title, spare)).into();
    let rows = rows.iter().map(|row| cells(row, currency).into()).collect();
    let mut out = format!("{job} on {cluster}\n\n{}", Table { columns, rows }.text(width));
    // Writing to a string can't fail.
    let _ = writeln!(out, "\nIt assumes:");
    assumptions.iter().for_each(|text| {
        let _ = writeln!(out, "- {text}");
    });
    out
}

fn cells(row: &PredictedRow, currency: &str) -> [String; 11] {
    let ms = |seconds: f64| significant(seconds * 1e3);
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
        or_dash(row.checkpoint_s.map(duration)),
        or_dash(row.job_s.map(duration)),
        or_dash(row.cost.map(|cost| price(cost, currency))),
    ]
}

/// Short times have units in which they are not 0.
fn duration(time: f64) -> String {
    match time {
        _ if time >= 1.0 || time <= 0.0 => seconds(time),
        _ if time >= 1e-3 => format!("{:.1} ms", time * 1e3),
        _ => format!("{:.1} us", time * 1e6),
    }
}

fn price(cost: f64, currency: &str) -> String {
    match cost {
        _ if cost >= 0.1 || cost <= 0.0 => format!("{cost:.2} {currency}"),
        _ => format!("{} {currency}", significant(cost)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::prediction::sample;

    #[test]
    fn small_values_are_not_zero() {
        for (time, text) in
            [(0.0, "0 ms"), (7.73e-6, "7.7 us"), (0.0156, "15.6 ms"), (2.0, "2.0 s"), (3700.0, "1h01m")]
        {
            assert_eq!(duration(time), text);
        }
        for (cost, text) in
            [(0.0, "0.00 A"), (0.000472, "0.0004720 A"), (0.0472, "0.04720 A"), (1234.5, "1234.50 A")]
        {
            assert_eq!(price(cost, "A"), text);
        }
    }

    #[test]
    fn unknown_values_are_dashes() {
        let mut prediction = sample();
        prediction.rows[0].cost = Some(1234.5);
        prediction.rows[1].checkpoint_s = None;
        let expected = "a on b<c\n\n\
world  nodes  threads  step ms  comm ms  exposed ms  samples/s  efficiency  checkpoint     job         cost\n    \
1      1        1    125.0    50.00       25.00        8.0      90.0 %       2.0 s  12.5 s  1234.50 USD\n    \
2      1        1    125.0    50.00       25.00       16.0      90.0 %           -  12.5 s            -\n\n\
It assumes:\n- all ranks are equally fast\n";
        assert_eq!(text(&prediction, None), expected);
        let narrow = text(&prediction, Some(60));
        let table = narrow.lines().skip(2).take(3);
        assert!(table.clone().all(|line| line.len() <= 60), "{narrow}");
        let heads: Vec<&str> = table.clone().flat_map(|line| line.split("  ")).map(str::trim).collect();
        assert!(
            ["world", "step ms", "efficiency", "cost"].iter().all(|head| heads.contains(head)),
            "{narrow}"
        );
    }
}
