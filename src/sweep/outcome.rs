//! What a sweep has led to: a table from the best run to the worst, and the same as JSON.

use super::Outcome;
use super::schedule::State;
use super::state::{File, Record};
use crate::error::{Error, ExitCode};
use crate::runs::{Column, Table};
use crate::show;
use crate::telemetry::significant;
use serde_json::{Value as Json, json};

impl Outcome {
    /// The exit code, or what failed.
    ///
    /// # Errors
    /// Exit code 90: runs have failed.
    pub fn verdict(&self) -> Result<ExitCode, Error> {
        if self.code != ExitCode::WorkerFailed {
            return Ok(self.code);
        }
        let failed: Vec<&Record> =
            self.file.children.iter().filter(|record| record.state == State::Failed).collect();
        let names: Vec<&str> = failed.iter().take(8).map(|record| record.name.as_str()).collect();
        let more = if failed.len() > names.len() { ", …" } else { "" };
        let what = format!(
            "{} of {} failed: {}{more}",
            failed.len(),
            show::count(self.file.children.len(), "run"),
            names.join(", ")
        );
        let logs = self.folder.join(super::children::LOGS);
        Err(Error::new(self.code, what)
            .hint(format!("the logs are in {}; the same command tries what failed again", logs.display())))
    }
}

/// The table, in at most `width` columns, and where the page is.
pub fn text(outcome: &Outcome, width: Option<usize>) -> String {
    let table = table(&outcome.file, &outcome.ranking).text(width);
    format!("{}page       {}\n", show::message(&table), outcome.page.display())
}

fn table(file: &File, ranking: &[usize]) -> Table {
    let keys = keys(file);
    let mut columns = vec![Column::left("RUN", 0), Column::left("STATE", 1), Column::right(&file.metric, 0)];
    columns.extend(keys.iter().map(|key| Column::right(key, 0)));
    let continued = file.rungs.len() > 1;
    columns.push(Column::right(if continued { "RUNGS" } else { "" }, 2));
    let row = |at: &usize| {
        let record = &file.children[*at];
        let value = record.values.last().copied().flatten().map(significant);
        let mut row = vec![record.name.clone(), word(record), value.unwrap_or_default()];
        row.extend(keys.iter().map(|key| record.set.get(*key).cloned().unwrap_or_default()));
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
pub fn json(outcome: &Outcome) -> Json {
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

    fn outcome() -> Outcome {
        let mut file = file(&[
            ("0.1", State::Done, Some(0.5)),
            ("0.2", State::Failed, None),
            ("0.3", State::Done, Some(0.25)),
        ]);
        file.children[1].exit_code = Some(92);
        file.children[1].values.clear();
        Outcome {
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
        assert_eq!(lines[1], ["03_lr-0.3", "done", "0.25", "0.3"]);
        assert_eq!(lines[2][..3], ["01_lr-0.1", "done", "0.5"]);
        assert_eq!(lines[3], ["02_lr-0.2", "failed", "(92)", "0.2"]);
        assert_eq!(lines[4], ["page", "runs/s/sweep.html"]);
    }

    #[test]
    fn the_exit_code_says_that_runs_failed() {
        let error = outcome().verdict().unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (ExitCode::WorkerFailed, "1 of 3 runs failed: 02_lr-0.2")
        );
        let done = Outcome { code: ExitCode::Done, ..outcome() };
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
