//! What a rehearsal has found, as a table and as JSON.

use super::trial::{TrialResult, TrialVerdict};
use base::display;
use base::numbers::seconds;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// A rehearsal before its faults.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The spec as typed.
    pub spec: String,
    /// Number of processes of a node.
    pub world: usize,
    /// Number of simulated nodes; with 1, no node is lost.
    pub nodes: usize,
    /// Optimizer steps of each run.
    pub steps: u64,
    /// What was changed in the spec, a line each.
    pub reduced: Vec<String>,
    /// What is not rehearsed, a line each.
    pub left_out: Vec<String>,
    /// Of the run without a fault.
    pub undisturbed_seconds: f64,
    /// `checkpoint.grace` of the spec, in seconds.
    pub grace: f64,
    /// Number of faults to try.
    pub faults: usize,
    /// Seconds that the whole may take, as far as it can be said before.
    pub expected_seconds: f64,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct RehearsalReport {
    /// What was known before the first fault.
    pub setting: Setting,
    /// Results of all faults, in the order in which they were tried.
    pub tried: Vec<TrialResult>,
    /// The folder of the trials, if it is kept.
    pub folder: Option<PathBuf>,
}

/// The widths of the columns: fault, outcome, exit codes, steps, seconds.
const WIDTHS: [usize; 5] = [32, 12, 9, 8, 10];
/// Those of a usual terminal; the table is as wide.
const COLUMNS: usize = 80;

impl Setting {
    /// What is about to happen, and the head of the table.
    pub fn heading(&self) -> String {
        let mut out = format!(
            "{}: {} faults of a run with {} and {} steps, about {}\n",
            display::piece(&self.spec),
            self.faults,
            display::count(self.world, "process"),
            self.steps,
            seconds(self.expected_seconds)
        );
        out += &format!("  the run without a fault takes {}\n", seconds(self.undisturbed_seconds));
        for (heading, lines) in [("reduced", &self.reduced), ("left out", &self.left_out)] {
            if !lines.is_empty() {
                out += &format!("  {heading}:\n");
            }
            for line in lines {
                out += &format!("    - {}\n", wrapped(line, 6));
            }
        }
        out + "\n" + &line(["fault", "outcome", "exit", "repeated", "back after"].map(str::to_owned))
    }
}

impl TrialResult {
    /// A line of the table, and what the user should know.
    pub fn line(&self) -> String {
        let mut codes: Vec<String> = self
            .exit_codes
            .iter()
            .map(|code| code.map_or_else(|| "killed".to_owned(), |code| code.to_string()))
            .collect();
        // Those of many nodes.
        codes.dedup();
        let steps = self
            .steps_repeated
            .map_or_else(|| "-".to_owned(), |steps| display::count(steps as usize, "step"));
        let back = self.seconds.map_or_else(|| "-".to_owned(), short);
        let mut out =
            line([self.fault.clone(), self.verdict.words().to_owned(), codes.join(", "), steps, back]);
        if !self.note.is_empty() {
            out += &format!("    {}\n", wrapped(&display::piece(&self.note), 4));
        }
        out
    }
}

impl TrialVerdict {
    fn words(self) -> &'static str {
        match self {
            Self::Survived => "same bits",
            Self::OtherBits => "OTHER BITS",
            Self::Failed => "FAILED",
            Self::NotReached => "not reached",
        }
    }
}

impl RehearsalReport {
    /// Whether a fault was reached, and none did harm.
    pub fn survived(&self) -> bool {
        let mut reached =
            self.tried.iter().filter(|tried| tried.verdict != TrialVerdict::NotReached).peekable();
        reached.peek().is_some() && reached.all(|tried| tried.verdict == TrialVerdict::Survived)
    }

    /// The time that a stop request took, from the signal to the end of the run.
    fn stop_seconds(&self) -> Option<f64> {
        let stop = super::matrix::Fault::StopRequest.name();
        self.tried.iter().find(|tried| tried.fault == stop).and_then(|tried| tried.seconds)
    }

    /// What follows the table.
    pub fn verdict(&self) -> String {
        let of = |verdict: TrialVerdict| self.tried.iter().filter(|tried| tried.verdict == verdict).count();
        let reached = self.tried.len() - of(TrialVerdict::NotReached);
        let mut out = format!("\nsurvived {} of {reached} faults\n", of(TrialVerdict::Survived));
        if self.tried.iter().any(|tried| tried.exit_codes.len() == 2 && tried.exit_codes[0] != Some(0)) {
            out += "two exit codes: the same command was started again\n";
        }
        if let Some(stop) = self.stop_seconds() {
            let grace = self.setting.grace;
            let fits = if stop < grace { "fits" } else { "DOES NOT FIT" };
            let told = format!(
                "a stop request took {}, which {fits} in checkpoint.grace ({grace} s); `--signal=…@SECONDS` of Slurm and \
                 `terminationGracePeriodSeconds` of Kubernetes must be longer than checkpoint.grace",
                short(stop)
            );
            out += &format!("{}\n", wrapped(&told, 0));
        }
        let harm = reached > of(TrialVerdict::Survived);
        if harm && self.folder.is_none() {
            out += "`--out DIR` keeps the trials, with the logs of their ranks\n";
        }
        if let Some(folder) = &self.folder {
            out += &format!("the trials are in {}\n", display::path(folder));
        }
        out
    }

    /// The report as JSON, as `--format json` prints it.
    pub fn json(&self) -> Json {
        let Setting { spec, world, nodes, steps, reduced, left_out, undisturbed_seconds, grace, .. } =
            &self.setting;
        json!({
            "spec": spec,
            "world": world,
            "nodes": nodes,
            "steps": steps,
            "reduced": reduced,
            "left_out": left_out,
            "undisturbed_seconds": undisturbed_seconds,
            "trials": self.tried,
            "stop": { "seconds": self.stop_seconds(), "grace": grace },
            "survived": self.survived(),
            "folder": self.folder.as_ref().map(|folder| folder.display().to_string()),
        })
    }
}

fn line(cells: [String; 5]) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:width$}"));
    format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
}

fn wrapped(text: &str, indent: usize) -> String {
    display::wrapped_at(COLUMNS, text.split(' '), indent)
}

/// A time that may be a part of a second.
fn short(seconds: f64) -> String {
    if seconds < 1.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fault: &str, verdict: TrialVerdict, seconds: f64) -> TrialResult {
        TrialResult {
            fault: fault.to_owned(),
            verdict,
            exit_codes: vec![Some(75), Some(0)],
            steps_repeated: Some(1),
            seconds: Some(seconds),
            note: String::new(),
        }
    }

    fn report(tried: Vec<TrialResult>) -> RehearsalReport {
        let setting = Setting {
            spec: "job.toml".to_owned(),
            world: 2,
            nodes: 1,
            steps: 6,
            reduced: vec!["epochs".to_owned()],
            left_out: vec!["a lost node".to_owned()],
            undisturbed_seconds: 1.5,
            grace: 2.0,
            faults: 3,
            expected_seconds: 20.0,
        };
        RehearsalReport { setting, tried, folder: None }
    }

    #[test]
    fn the_table_has_a_line_a_fault() {
        let heading = report(Vec::new()).setting.heading();
        assert!(
            heading.starts_with("job.toml: 3 faults of a run with 2 processes and 6 steps, about 20.0 s\n"),
            "{heading}"
        );
        for line in
            ["  reduced:\n    - epochs\n", "  left out:\n    - a lost node\n", "without a fault takes 1.5 s"]
        {
            assert!(heading.contains(line), "{heading}");
        }
        let line = tried("kill rank 0 in save", TrialVerdict::Survived, 0.5).line();
        let words: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(words, ["kill rank 0 in save", "same bits", "75, 0", "1 step", "0.50 s"]);
        assert_eq!(heading.lines().last().unwrap().find("outcome"), line.find("same bits"));
        let mut long = tried("kill rank 0 in save", TrialVerdict::Failed, 0.5);
        (long.note, long.exit_codes) = ("a word and ".repeat(20), vec![Some(0); 8]);
        let line = long.line();
        assert!(line.lines().count() == 4 && line.lines().all(|line| line.len() <= COLUMNS), "{line}");
        let mut setting = report(Vec::new()).setting;
        setting.left_out = vec!["a word and ".repeat(20)];
        assert!(setting.heading().lines().all(|line| line.len() <= COLUMNS), "{}", setting.heading());
    }

    #[test]
    fn a_stop_is_measured_against_the_grace_period() {
        let stop = super::super::matrix::Fault::StopRequest.name();
        let all = report(vec![
            tried(&stop, TrialVerdict::Survived, 0.5),
            tried("x", TrialVerdict::NotReached, 1.0),
        ]);
        let verdict = all.verdict();
        assert!(verdict.contains("survived 1 of 1 faults\n") && all.survived(), "{verdict}");
        assert!(verdict.contains("took 0.50 s, which fits in checkpoint.grace (2 s)"), "{verdict}");
        assert!(verdict.lines().all(|line| line.chars().count() <= COLUMNS), "{verdict}");
        assert!(!report(vec![tried("x", TrialVerdict::NotReached, 1.0)]).survived());
        let late = report(vec![tried(&stop, TrialVerdict::OtherBits, 3.0)]);
        assert!(late.verdict().contains("took 3.0 s, which DOES NOT FIT") && !late.survived());
        assert!(late.verdict().contains("--out DIR") && !verdict.contains("--out DIR"), "{verdict}");
        assert_eq!(late.json()["stop"]["seconds"], 3.0);
        assert_eq!(late.json()["trials"][0]["verdict"], "other-bits");
    }
}
