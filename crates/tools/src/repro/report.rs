//! What a repetition has found, as text and as JSON.

use super::checks::{self, Check};
use super::history::HistoryPart;
use super::repeat::Compared;
use base::display::{self, count};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Result of `ddp-run repro`.
#[derive(Clone, Debug)]
pub struct ReproReport {
    /// The run's folder.
    pub run: PathBuf,
    /// Recorded facts of the run, each compared with the present one.
    pub checks: Vec<Check>,
    /// What can't be repeated as it was, or is not recorded, a line each.
    pub unknown: Vec<String>,
    /// Parts of the recorded run up to `until`, in the order of their steps.
    pub parts: Vec<HistoryPart>,
    /// The hash of each spec, by [`HistoryPart::spec`]: specs of one hash have the same results.
    pub hashes: Vec<String>,
    /// The last step of the repetition; `None` where the run ends by itself.
    pub until: Option<u64>,
    /// Last step with an event in the recorded run; 0 if there is none.
    pub recorded_last_step: u64,
    /// The run's folder of the repetition, if it is kept.
    pub folder: Option<PathBuf>,
    /// `None` if the run was not repeated.
    pub compared: Option<Compared>,
}

impl ReproReport {
    /// Whether something was compared, and all of it was the same.
    pub fn is_identical(&self) -> bool {
        let compared = |it: &Compared| it.step_events + it.epoch_events > 0 || !it.checkpoints.is_empty();
        self.compared.as_ref().is_some_and(|it| it.first_difference.is_none() && compared(it))
    }

    /// What differs from the recorded facts, before the run is repeated.
    pub fn heading(&self, repeats: bool) -> String {
        let mut out = format!("{}\n", display::path(&self.run));
        out += &checks::text(&self.checks);
        for line in &self.unknown {
            out += &format!("  not known: {}\n", display::piece(line));
        }
        if !repeats {
            return out;
        }
        let last = self.until.unwrap_or(self.recorded_last_step);
        let ends = self.parts.iter().skip(1).map(|part| part.from).chain([last]);
        let parts: Vec<String> = self
            .parts
            .iter()
            .zip(ends)
            .scan(None, |before: &mut Option<&String>, (part, end)| {
                let hash = &self.hashes[part.spec];
                let other = before.replace(hash).is_some_and(|before| before != hash);
                let spec = if other { " and another spec" } else { "" };
                Some(format!("steps {} to {end} with {}{spec}", part.from + 1, count(part.world, "process")))
            })
            .collect();
        out + &format!("repeats {}\n", parts.join(", "))
    }

    /// The verdict.
    pub fn verdict(&self) -> String {
        let Some(compared) = &self.compared else { return String::new() };
        let checkpoints = match &compared.checkpoints[..] {
            [] => "no checkpoint".to_owned(),
            all => {
                let steps: Vec<String> = all.iter().map(u64::to_string).collect();
                format!("{} (steps {})", count(all.len(), "checkpoint"), steps.join(", "))
            }
        };
        let seen = format!(
            "{}, {}, {checkpoints}",
            count(compared.step_events as usize, "step event"),
            count(compared.epoch_events as usize, "epoch event")
        );
        let mut out = match &compared.first_difference {
            None if self.is_identical() => format!("identical to the bit: {seen}\n"),
            None => "nothing could be compared: the recorded run has no event up to this step\n".to_owned(),
            Some(first) => format!(
                "differs first at step {}: {} is {}, recorded {}\n  compared: {seen}\n{}",
                first.step,
                display::name(&first.what),
                display::name(&first.now),
                display::name(&first.recorded),
                self.suspects()
            ),
        };
        for line in &compared.not_compared {
            out += &format!("  not compared: {}\n", display::piece(line));
        }
        if let Some(folder) = &self.folder {
            out += &format!("  the repetition is in {}\n", display::path(folder));
        }
        out
    }

    /// Which of the recorded facts may be the cause of a difference.
    fn suspects(&self) -> String {
        let suspects: Vec<&str> =
            self.checks.iter().filter(|c| c.matters()).map(|check| check.what).collect();
        match suspects.is_empty() {
            true => "  nothing that is recorded and may change results has changed\n".to_owned(),
            false => format!("  may be the cause: {}\n", suspects.join(", ")),
        }
    }

    /// The report as JSON.
    pub fn json(&self) -> Json {
        json!({
            "run": self.run.display().to_string(),
            "checks": self.checks.iter().map(Check::json).collect::<Vec<_>>(),
            "unknown": self.unknown,
            "parts": self.parts,
            "until": self.until,
            "recorded_last_step": self.recorded_last_step,
            "identical": self.compared.as_ref().map(|_| self.is_identical()),
            "compared": self.compared,
            "folder": self.folder.as_ref().map(|folder| folder.display().to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::checks::Effect;
    use crate::repro::same::Mismatch;

    fn report() -> ReproReport {
        let check = Check {
            what: "cpu",
            recorded: Some("EPYC".to_owned()),
            present: Some("Xeon".to_owned()),
            effect: Effect::May,
            why: "of its instructions",
        };
        ReproReport {
            run: "runs/a".into(),
            checks: vec![check],
            unknown: vec!["a file".to_owned()],
            parts: vec![
                HistoryPart { from: 0, world: 2, at_epoch_end: false, spec: 0 },
                HistoryPart { from: 20, world: 1, at_epoch_end: true, spec: 1 },
                HistoryPart { from: 40, world: 2, at_epoch_end: true, spec: 2 },
            ],
            // The second differs in what results don't depend on.
            hashes: ["a", "a", "b"].map(str::to_owned).into(),
            until: None,
            recorded_last_step: 60,
            folder: None,
            compared: None,
        }
    }

    #[test]
    fn the_heading_says_what_differs_and_what_is_repeated() {
        let expected = "runs/a\n  cpu  EPYC, now Xeon; may change results: of its instructions\n  not known: a file\n\
                        repeats steps 1 to 20 with 2 processes, steps 21 to 40 with 1 process, steps 41 to 60 with 2 processes and another spec\n";
        let report = report();
        assert_eq!((report.heading(true).as_str(), report.verdict().as_str()), (expected, ""));
        assert_eq!((report.is_identical(), &report.json()["identical"]), (false, &Json::Null));
    }

    #[test]
    fn the_verdict_names_the_first_difference_and_its_suspects() {
        let compared =
            Compared { step_events: 6, epoch_events: 1, checkpoints: vec![20, 40], ..Compared::default() };
        let same = ReproReport { compared: Some(compared.clone()), ..report() };
        let expected = "identical to the bit: 6 step events, 1 epoch event, 2 checkpoints (steps 20, 40)\n";
        assert_eq!((same.verdict().as_str(), same.is_identical()), (expected, true));
        let first = Mismatch { step: 30, what: "loss".into(), recorded: "0.5".into(), now: "0.25".into() };
        let compared = Compared { first_difference: Some(first), ..compared };
        let other = ReproReport { compared: Some(compared), ..report() };
        let verdict = other.verdict();
        assert!(verdict.starts_with("differs first at step 30: loss is 0.25, recorded 0.5\n"), "{verdict}");
        assert!(verdict.contains("may be the cause: cpu\n") && !other.is_identical(), "{verdict}");
        let unchanged = ReproReport { checks: Vec::new(), ..other };
        assert!(unchanged.verdict().contains("nothing that is recorded and may change results has changed"));
        let nothing = ReproReport { compared: Some(Compared::default()), ..report() };
        assert!(nothing.verdict().starts_with("nothing could be compared") && !nothing.is_identical());
    }
}
