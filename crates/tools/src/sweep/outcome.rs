//! The result of a sweep: a table from the best run to the worst, and the same as JSON.

use super::SweepOutcome;
use super::schedule::ChildState;
use super::state::{File, Record};
use base::display::{self, Column, Table};
use base::error::Error;
use base::numbers::metric_words;
use launch::ExitCode;
use serde_json::{Value as Json, json};
use unicode_width::UnicodeWidthStr;

/// Longest value in the table; `sweep.json` has all of it.
const LONGEST: usize = 24;

impl SweepOutcome {
    /// The exit code, or what failed.
    ///
    /// # Errors
    /// Exit code 90: runs have failed.
    pub fn verdict(&self) -> Result<ExitCode, Error> {
        if self.code != ExitCode::WorkerFailed {
            return Ok(self.code);
        }
        let failed: Vec<&Record> =
            self.file.children.iter().filter(|record| record.state == ChildState::Failed).collect();
        let names: Vec<&str> = failed.iter().take(8).map(|record| record.name.as_str()).collect();
        let more = if failed.len() > names.len() { ", …" } else { "" };
        let what = format!(
            "{} of {} failed: {}{more}",
            failed.len(),
            display::count(self.file.children.len(), "run"),
            names.join(", ")
        );
        let logs = self.folder.join(super::children::LOGS);
        Err(Error::new(self.code.error_kind(), what)
            .hint(format!("the logs are in {}; the same command tries what failed again", logs.display())))
    }
}

/// The table, in at most `width` columns, and where the page is.
pub fn text(outcome: &SweepOutcome, width: Option<usize>) -> String {
    let table = table(&outcome.file, &outcome.ranking, width);
    format!("{}page       {}\n", display::message(&table), outcome.page.display())
}

/// Keys as typed if all fit, else without their tables; then the last ones are left out, because the names of runs show them, too.
fn table(file: &File, ranking: &[usize], width: Option<usize>) -> String {
    let text = columns(file, ranking, false).text(None);
    let fits = |width: usize| text.lines().all(|line| line.width() <= width);
    if width.is_none_or(fits) { text } else { columns(file, ranking, true).text(width) }
}

fn columns(file: &File, ranking: &[usize], short: bool) -> Table {
    let keys = keys(file);
    let mut columns =
        vec![Column::left("RUN", 0), Column::left("STATE", 1).whole(), Column::right(&file.metric, 0)];
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let heads = keys.iter().map(|key| {
        let alone = keys.iter().filter(|other| last(other) == last(key)).count() == 1;
        if short && alone { last(key) } else { (*key).to_owned() }
    });
    columns.extend(heads.map(|head| Column::right(&head, 2)));
    let continued = file.rungs.len() > 1;
    columns.push(Column::right(if continued { "RUNGS" } else { "" }, 3));
    let row = |at: &usize| {
        let record = &file.children[*at];
        let value = record.values.last().copied().flatten().map(|value| metric_words(&file.metric, value));
        let mut row = vec![record.name.clone(), word(record), value.unwrap_or_default()];
        let cell = |key: &&str| {
            display::cut_middle(record.set.get(*key).map_or("", String::as_str), LONGEST).into_owned()
        };
        row.extend(keys.iter().map(cell));
        row.push(if continued { record.values.len().to_string() } else { String::new() });
        row
    };
    Table { columns, rows: ranking.iter().map(row).collect() }
}

/// The keys that the sweep varies.
pub fn keys(file: &File) -> Vec<&str> {
    let mut keys: Vec<&str> = Vec::new();
    for key in file.children.iter().flat_map(|record| record.set.keys()) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    keys
}

/// `failed (92)`
pub fn word(record: &Record) -> String {
    match record.exit_code {
        Some(code) => format!("{} ({code})", record.state.word()),
        None => record.state.word().to_owned(),
    }
}

/// Everything, the best run first.
pub fn json(outcome: &SweepOutcome) -> Json {
    let child = |at: &usize| {
        let record = &outcome.file.children[*at];
        json!({
            "name": record.name,
            "folder": outcome.folder.join(&record.name).display().to_string(),
            "state": record.state.word(),
            "exit_code": record.exit_code,
            "value": record.values.last().copied().flatten(),
            "values": record.values,
            "set": record.set,
            "hash": record.hash,
            "processes": record.processes,
            "continues": record.continues,
        })
    };
    json!({
        "folder": outcome.folder.display().to_string(),
        "page": outcome.page.display().to_string(),
        "spec": outcome.file.spec,
        "metric": outcome.file.metric,
        "prefers_larger": outcome.file.prefers_larger,
        "rungs": outcome.file.rungs,
        "exit_code": outcome.code as u8,
        "runs": outcome.ranking.iter().map(child).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::state::tests::file;
    use base::error::ErrorKind;

    fn outcome() -> SweepOutcome {
        let mut file = file(&[
            ("0.1", ChildState::Done, Some(0.5)),
            ("0.2", ChildState::Failed, None),
            ("0.3", ChildState::Done, Some(0.25)),
        ]);
        file.children[1].exit_code = Some(92);
        file.children[1].values.clear();
        SweepOutcome {
            folder: "runs/s".into(),
            page: "runs/s/sweep.html".into(),
            file,
            ranking: vec![2, 0, 1],
            code: ExitCode::WorkerFailed,
        }
    }

    #[test]
    fn the_table_begins_with_the_best_run() {
        let outcome = outcome();
        let text = text(&outcome, None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["RUN", "STATE", "val.loss", "optimizer.lr"]);
        assert_eq!(lines[1], ["03_lr-0.3", "done", "0.2500", "0.3"]);
        assert_eq!(lines[2][..3], ["01_lr-0.1", "done", "0.5000"]);
        assert_eq!(lines[3], ["02_lr-0.2", "failed", "(92)", "0.2"]);
        assert_eq!(lines[4], ["page", "runs/s/sweep.html"]);
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let mut outcome = outcome();
        for record in &mut outcome.file.children {
            let long = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            record.set.extend([
                long("optimizer.weight_decay", "0.1"),
                long("model.hidden", "[128, 128, 128, 128, 128, 128]"),
                long("scheduler.warmup_epochs", "10"),
                long("dataset.seed", "1"),
                long("seed", "2"),
            ]);
        }
        let narrow = text(&outcome, Some(80));
        assert!(narrow.lines().all(|line| line.width() <= 80), "{narrow}");
        let heads: Vec<&str> = narrow.lines().next().expect("a head").split_whitespace().collect();
        assert_eq!(heads, ["RUN", "STATE", "val.loss", "dataset.seed", "hidden", "lr"], "{narrow}");
        assert!(text(&outcome, None).contains("optimizer.weight_decay"));
    }

    #[test]
    fn the_exit_code_says_that_runs_failed() {
        let error = outcome().verdict().unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::WorkerFailed, "1 of 3 runs failed: 02_lr-0.2")
        );
        let done = SweepOutcome { code: ExitCode::Done, ..outcome() };
        assert_eq!(done.verdict().unwrap(), ExitCode::Done);
    }

    #[test]
    fn json_has_every_run_and_its_values() {
        let json = json(&outcome());
        assert_eq!(json["runs"][0]["folder"], "runs/s/03_lr-0.3");
        assert_eq!(json["runs"][0]["set"]["optimizer.lr"], "0.3");
        assert_eq!(
            (&json["runs"][2]["value"], &json["runs"][2]["exit_code"]),
            (&Json::Null, &Json::from(92))
        );
        assert_eq!(json["metric"], "val.loss");
    }
}
