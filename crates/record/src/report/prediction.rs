//! The prediction of `ddp-run plan --cluster` beside what the run measured.

use super::escape;
use super::records::{Anatomy, RunRecords, Window};
use crate::events::{CheckpointEvent, Event};
use crate::prediction::{PredictedRow, Prediction};
use base::display::count;
use base::numbers::significant;
use std::fmt::Write;

/// The part of the time that belongs to a step: the rest belongs to saves, evaluations and events.
const OF_STEPS: [&str; 5] = ["data", "forward", "backward", "comm", "optimizer"];

/// A quantity, in the unit of its name.
#[derive(Debug, PartialEq)]
struct QuantityLine {
    what: &'static str,
    predicted: Option<f64>,
    measured: Option<f64>,
}

pub(super) fn section(out: &mut String, run: &RunRecords) {
    let (Some(prediction), Some(start)) = (&run.prediction, run.start()) else { return };
    let Prediction { cluster, spec_hash, rows, assumptions, .. } = prediction;
    out.push_str("<section><h2>Prediction and measurement</h2>");
    let processes = count(start.world, "process");
    let Some(row) = rows.iter().find(|row| row.world == start.world) else {
        let worlds: Vec<String> = rows.iter().map(|row| row.world.to_string()).collect();
        let _ = write!(
            out,
            "<p>The prediction for {} is of {} processes, and this run has {processes}.</p></section>",
            escape(cluster),
            worlds.join(", ")
        );
        return;
    };
    let other = match *spec_hash == start.spec_hash {
        true => "",
        false => " It was made for another spec.",
    };
    let _ = write!(
        out,
        "<p>Of {processes} on {}, the median of the steps that are logged.{other}</p><div class=\"wide\" tabindex=\"0\"><table><thead><tr><th></th>\
         <th>predicted</th><th>measured</th><th>measured / predicted</th></tr></thead><tbody>",
        escape(cluster)
    );
    for QuantityLine { what, predicted, measured } in lines(run, row) {
        let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), significant);
        let ratio = predicted.zip(measured).filter(|(predicted, _)| *predicted > 0.0);
        let ratio = ratio
            .map_or_else(|| "–".to_owned(), |(predicted, measured)| format!("{:.2}", measured / predicted));
        let _ = write!(
            out,
            "<tr><th>{what}</th><td>{}</td><td>{}</td><td>{ratio}</td></tr>",
            shown(predicted),
            shown(measured)
        );
    }
    out.push_str("</tbody></table></div><p>The prediction assumes:</p><ul>");
    assumptions.iter().for_each(|text| {
        let _ = write!(out, "<li>{}</li>", escape(text));
    });
    out.push_str("</ul></section>");
}

/// Seconds of all phases of `names` in a step, the mean over ranks: the median of the windows with the last number of ranks,
/// without the first of several, which has allocations and the first order of the buckets.
fn median_of(anatomy: &Anatomy, names: &[&str]) -> Option<f64> {
    let Anatomy { phases, windows, summed, .. } = anatomy;
    let value = |window: &Window| -> f64 {
        let named = phases.iter().zip(&window.means).filter(|(name, _)| names.contains(name));
        named.map(|(_, seconds)| seconds).sum()
    };
    let last = &windows[windows.len().saturating_sub(*summed)..];
    let mut values: Vec<f64> = last.iter().skip(usize::from(last.len() > 1)).map(value).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

fn lines(run: &RunRecords, row: &PredictedRow) -> Vec<QuantityLine> {
    let ms = |seconds: f64| seconds * 1e3;
    let step = median_of(&run.anatomy, &OF_STEPS);
    let samples = row.samples_per_s * row.step_s;
    let saves: Vec<&CheckpointEvent> = run
        .events()
        .filter_map(|event| if let Event::Checkpoint(save) = event { Some(save) } else { None })
        .collect();
    let mean =
        |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let written = mean(saves.iter().map(|save| save.seconds).collect());
    let held_up = mean(saves.iter().filter_map(|save| save.held_up_s).collect());
    let line =
        |what, predicted: Option<f64>, measured: Option<f64>| QuantityLine { what, predicted, measured };
    vec![
        line("step, ms", Some(ms(row.step_s)), step.map(ms)),
        line(
            "exposed communication, ms",
            Some(ms(row.exposed_s)),
            median_of(&run.anatomy, &["comm"]).map(ms),
        ),
        line("samples/s", Some(row.samples_per_s), step.map(|seconds| samples / seconds)),
        line("checkpoint written, s", row.checkpoint_s, written),
        line("checkpoint holds up the step, s", row.held_up_s, held_up),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::sample;
    use crate::rank_times::RankTimes;
    use crate::{Provenance, provenance};

    fn run(world: usize) -> RunRecords {
        let times = RankTimes {
            data: vec![0.01, 0.03],
            forward: vec![0.04, 0.04],
            backward: vec![0.1, 0.1],
            comm: vec![0.05, 0.03],
            optimizer: vec![0.05, 0.05],
            checkpoint: vec![9.0, 9.0],
            other: vec![9.0, 9.0],
        };
        let mut anatomy = Anatomy::default();
        // The first is not like the others, and one of them is disturbed.
        let slow = |factor: f64| RankTimes { backward: vec![0.1 * factor; 2], ..times.clone() };
        anatomy.add(1, &slow(50.0), None);
        anatomy.add(1, &times, None);
        anatomy.add(1, &slow(30.0), None);
        anatomy.add(2, &times, None);
        let start = Provenance { world, ..provenance::sample(std::path::Path::new(".")) };
        RunRecords { anatomy, starts: vec![start], prediction: Some(sample()), ..RunRecords::default() }
    }

    #[test]
    fn what_was_predicted_stands_beside_what_was_measured() {
        let lines = lines(&run(2), &sample().rows[1]);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert_eq!((lines[0].what, lines[0].predicted), ("step, ms", Some(125.0)));
        assert!(close(lines[0].measured.unwrap(), 250.0), "{lines:?}");
        assert!(close(lines[1].measured.unwrap(), 40.0), "{lines:?}");
        assert!(close(lines[2].measured.unwrap(), 8.0), "half as fast: {lines:?}");
        assert_eq!(
            lines[3],
            QuantityLine { what: "checkpoint written, s", predicted: Some(2.0), measured: None }
        );
        let mut page = String::new();
        section(&mut page, &run(2));
        for part in
            ["<td>125.0</td><td>250.0</td><td>2.00</td>", "<td>–</td><td>–</td>", "b&lt;c", "another spec"]
        {
            assert!(page.contains(part), "{part} is missing: {page}");
        }
    }

    #[test]
    fn another_number_of_processes_has_no_prediction() {
        let mut page = String::new();
        section(&mut page, &run(4));
        assert!(page.contains("is of 1, 2 processes, and this run has 4 processes"), "{page}");
        let mut page = String::new();
        section(&mut page, &RunRecords { prediction: None, ..run(2) });
        assert_eq!(page, "");
    }
}
