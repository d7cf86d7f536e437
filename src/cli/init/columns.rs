//! `ddp-run init parquet PATH` and `ddp-run init sqlite FILE`: a spec for images, a table or a text in columns.

use super::{Output, commented, csv, foreign, images, place, quoted, run_name, text, utf8};
use base::error::Result;
use data::{ColumnsFormat, ColumnsProposal, Holds, propose_columns};
use std::path::{Path, PathBuf};

/// A Hugging Face data set, or other Parquet files: images, a table or a text
#[derive(Clone, Debug, clap::Args)]
pub struct ParquetArgs {
    /// The folder of the data set, or a Parquet file
    #[arg(value_name = "FILE|DIR")]
    data: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
    /// The configuration, if the data set has several
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
}

/// A database of Burn's SqliteDataset, or another of SQLite: images, a table or a text
#[derive(Clone, Debug, clap::Args)]
pub struct SqliteArgs {
    /// The database
    #[arg(value_name = "FILE")]
    data: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
    /// The table of all samples, if it is not one for each split
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

/// The spec for Parquet files, and what it took from them.
pub fn parquet(args: &ParquetArgs) -> Result<(String, String)> {
    let found = propose_columns(&args.data, ColumnsFormat::Parquet(args.config.as_deref()))?;
    proposal("parquet", &args.data, args.config.as_ref().map(|name| ("config", name.as_str())), &found)
}

/// The spec for a database, and what it took from it.
pub fn sqlite(args: &SqliteArgs) -> Result<(String, String)> {
    let found = propose_columns(&args.data, ColumnsFormat::Sqlite(args.table.as_deref()))?;
    proposal("sqlite", &args.data, args.table.as_ref().map(|name| ("table", name.as_str())), &found)
}

/// `part` is the key that selects a part of the data set.
fn proposal(
    kind: &str,
    path: &Path,
    part: Option<(&str, &str)>,
    found: &ColumnsProposal,
) -> Result<(String, String)> {
    let (name, path) = (run_name(path), utf8(path)?);
    let mut lines = vec!["[dataset]".to_owned(), format!("name = {}", quoted(kind)), place("path", path)];
    lines.extend(part.map(|(key, value)| format!("{key} = {}", quoted(value))));
    Ok(match &found.holds {
        Holds::Images { survey, image, target } => {
            lines.push(commented(&format!("image = {}", quoted(image)), "the column of the images"));
            lines.push(commented(&format!("target = {}", quoted(target)), "the column of the classes"));
            lines.extend(images::sizes(survey));
            lines.extend(validation(found, "0.2"));
            lines.extend(images::hints());
            let about = images::about(survey);
            (images::spec(&name, path, survey, lines), about)
        }
        Holds::Table(table) => {
            lines.push("content = \"table\"".to_owned());
            lines.extend(csv::columns(table));
            lines.extend(validation(found, if table.rows < 1000 { "0.2" } else { "0.1" }));
            (csv::spec(&name, path, table, lines), csv::about(table))
        }
        Holds::Text(column) => {
            lines.push("content = \"text\"".to_owned());
            let why = "its texts are joined, with a line end between two";
            lines.push(commented(&format!("text = {}", quoted(column)), why));
            lines.push(commented("block_size = 64", "characters that the model sees"));
            lines.extend(validation(found, "0.1"));
            (
                text::spec(&name, &format!("the texts in {}", foreign(path)), lines),
                format!(" (the texts in `{}`)", foreign(column)),
            )
        }
    })
}

/// Where validation samples come from.
fn validation(found: &ColumnsProposal, part: &str) -> Vec<String> {
    let mut lines = Vec::new();
    match (found.val, found.test) {
        (Some(rows), _) => lines.push(format!("# Validation: the {rows} rows of the validation split.")),
        (None, Some(rows)) => lines.push(format!(
            "# Validation: the {rows} rows of the test split; `val_split = {part}` takes a part of training instead."
        )),
        (None, None) => {
            let why = "part of the rows for validation";
            lines.push(commented(&format!("val_split = {part}"), why));
        }
    }
    if let (Some(_), Some(rows)) = (found.val, found.test) {
        lines.push(format!("# `ddp-run eval --split test` measures the {rows} rows of the test split."));
    }
    lines
}
