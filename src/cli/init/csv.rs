//! `ddp-run init csv FILE|DIR`: a spec for a table, or for those of a folder, with what their columns propose.

use super::{Output, commented, foreign, image_table, place, quoted, run_name, utf8};
use base::display::{self, count};
use base::error::Result;
use data::{CsvProposal, CsvTables, OtherTable, propose_csv};
use std::path::PathBuf;

/// A table, or train.csv with val.csv and test.csv: examines the columns and proposes target, task and features
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The table, with the names of the columns in its first line; or the folder of the tables
    #[arg(value_name = "FILE|DIR")]
    file: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

/// With more, and none left out, the list says nothing that the file does not.
const MAX_LISTED: usize = 60;

/// The spec, and what it took from the table.
pub fn proposal(args: &Args) -> Result<(String, String)> {
    if let Some(found) = image_table::proposal(&args.file)? {
        return Ok(found);
    }
    let (tables, found) = propose_csv(&args.file)?;
    let path = utf8(&tables.train)?;
    for (name, why) in &found.passed_over {
        let (name, target) = (foreign(name), foreign(&found.target));
        status!(
            "warning: `{name}` has the name of a target, but can't be one: {why}; `{target}` is proposed instead"
        );
    }
    let text = spec(&run_name(&args.file), path, &found, dataset(path, &tables, &found));
    Ok((text, about(&found)))
}

/// A summary of what was found.
pub fn about(found: &CsvProposal) -> String {
    let target = match found.classes {
        Some(classes) => format!("`{}`, one of {classes} classes", foreign(&found.target)),
        None => format!("`{}`, a number", foreign(&found.target)),
    };
    format!(
        " (target: {target}; {}, {} left out)",
        count(found.features.len(), "feature"),
        count(found.left_out.len(), "column")
    )
}

/// A multilayer perceptron on a table, which `dataset` names.
pub fn spec(name: &str, path: &str, found: &CsvProposal, dataset: Vec<String>) -> String {
    let (batch, epochs) = match found.rows {
        0..1000 => (16, 50),
        1000..50_000 => (64, 20),
        _ => (256, 10),
    };
    let mut lines = vec![
        format!("# A job on {}, proposed from its columns: comments give the reasons.", foreign(path)),
        super::WHERE_TO_LOOK.to_owned(),
    ];
    lines.extend(super::head(name, epochs, batch));
    lines.extend([
        "[model]".to_owned(),
        commented("name = \"mlp\"", "or linear"),
        commented("hidden = [64, 64]", "widths of the hidden layers; inputs and outputs come from the data"),
        String::new(),
    ]);
    lines.extend(dataset);
    let best = if found.classes.is_some() { "val.accuracy" } else { "val.r2" };
    lines.extend(super::tail("lr = 2e-3", best, ("2", "processes on this machine")));
    lines.join("\n") + "\n"
}

fn dataset(path: &str, tables: &CsvTables, found: &CsvProposal) -> Vec<String> {
    let mut lines = vec!["[dataset]".to_owned(), "name = \"csv\"".to_owned()];
    lines.push(place("path", path));
    lines.extend(tables.val.as_ref().map(|val| {
        let why = format!("validation: {}", count(val.rows, "row"));
        commented(&format!("val = {}", quoted(&val.name)), &why)
    }));
    lines.extend(tables.test.as_ref().map(|test| test_table(test, tables)));
    if !tables.unused.is_empty() {
        let names: Vec<String> = tables.unused.iter().map(|name| foreign(name)).collect();
        lines.push(format!("# Not used: {}.", names.join(", ")));
    }
    if found.delimiter != ',' {
        lines.push(format!("delimiter = {}", quoted(&found.delimiter.to_string())));
    }
    lines.extend(columns(found));
    if tables.val.is_none() {
        let val = if found.rows < 1000 { "0.2" } else { "0.1" };
        lines.push(commented(
            &format!("val_split = {val}"),
            "part of the rows for validation, drawn at random",
        ));
    }
    lines
}

/// The line about the test table.
fn test_table(test: &OtherTable, tables: &CsvTables) -> String {
    match test.labelled {
        true => {
            let why = format!("`ddp-run eval --split test` measures its {}", count(test.rows, "row"));
            commented(&format!("test = {}", quoted(&test.name)), &why)
        }
        false => format!(
            "# {} has no targets: `ddp-run predict RUN {}` predicts them.",
            foreign(&test.name),
            display::shell_word(&tables.train.with_file_name(&test.name))
        ),
    }
}

/// The lines of `[dataset]` about columns.
pub fn columns(found: &CsvProposal) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(commented(
        &format!("target = {}", quoted(&found.target)),
        &format!("chosen {}", found.target_reason),
    ));
    let task = if found.classes.is_some() { "classification" } else { "regression" };
    lines.push(commented(&format!("task = {}", quoted(task)), &found.task_reason));
    if !found.left_out.is_empty() || found.features.len() <= MAX_LISTED {
        lines.push("features = [".to_owned());
        let feature = |(name, kind): &(String, String)| commented(&format!("    {},", quoted(name)), kind);
        lines.extend(found.features.iter().map(feature));
        lines.push("]".to_owned());
    } else {
        lines.push(format!(
            "# `features` lists input columns; without it, they are all {} others",
            found.features.len()
        ));
    }
    if !found.left_out.is_empty() {
        lines.push("# Left out of `features`:".to_owned());
        lines.extend(
            found.left_out.iter().map(|(name, why)| format!("#   {}: {why}", foreign(&quoted(name)))),
        );
    }
    if let Some(marks) = found.blank_marks() {
        let marks: Vec<String> = marks.iter().map(|mark| quoted(mark)).collect();
        let why = format!("with {}, which the target has", foreign(&found.marks.join(", ")));
        lines.push(commented(&format!("blank_marks = [{}]", marks.join(", ")), &why));
    }
    if let Some((blanks, why)) = &found.blanks {
        lines.push(commented(&format!("blanks = {}", quoted(blanks)), why));
    }
    lines
}
