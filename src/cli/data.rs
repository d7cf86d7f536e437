//! `ddp-run data fetch SPEC` and `ddp-run data tokenize SPEC`: the data set of a spec, downloaded, checked and tokenised before a run needs it.

use super::spec_args::SpecArgs;
use base::display;
use base::error::{Error, Result};
use job::plan::{Purpose, WorldRequest};
use job::registry::Registry;
use spec::{Given, Override, ResolvedValue};
use std::path::{Path, PathBuf};

const DOWNLOAD: &str = "dataset.download";

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Download, unpack and check what the data set of a spec needs, also with `download = false`
    Fetch(SpecArgs),
    /// Tokenise the text of a spec before a run needs it, with all cores
    Tokenize(SpecArgs),
}

/// Prints where the data set is.
///
/// # Errors
/// The spec is invalid, or the data set is missing or damaged (exit 78).
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let (Command::Fetch(spec) | Command::Tokenize(spec)) = &args.command;
    let mut plan = spec.plan(registry, WorldRequest::default().to(Purpose::Use))?;
    let tokenised = plan.values.iter().any(|value| value.key.starts_with("tokenizer."));
    if matches!(args.command, Command::Tokenize(_)) && !tokenised {
        let what = "the spec has no `[tokenizer]`: its data set is no text, or the characters of the text are the tokens";
        return Err(Error::spec(what).hint("`ddp-run data fetch` prepares other data"));
    }
    let is_off = |value: &ResolvedValue| value.key == DOWNLOAD && value.value.as_bool() == Some(false);
    if plan.values.iter().any(is_off) {
        // The key is about runs; this command is for where they may not.
        let (from, yes) = ("data fetch".to_owned(), "true".to_owned());
        let given = Given { from, typed: yes.clone(), key: DOWNLOAD, toml: yes };
        let mut spec = spec.clone();
        spec.overrides.given.push(Override::Given(given));
        plan = spec.plan(registry, WorldRequest::default().to(Purpose::Use))?;
    }
    let (name, source) = (&plan.dataset.name, &plan.dataset.source);
    let mut said = false;
    let mut tell = |line: &str| {
        said = true;
        status!("{}", display::message(line));
    };
    source.prepare(&mut tell).map_err(Error::of_data)?;
    super::print(&answer(name, &source.files(), said))
}

fn answer(name: &str, files: &[PathBuf], new: bool) -> String {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let line = |path: &PathBuf| format!("  {}\n", show_path(&absolute(path)));
    let lines: String = files.iter().map(line).collect();
    match (files.is_empty(), new) {
        (true, _) => format!("data set `{name}` needs no files\n"),
        (false, true) => format!("data set `{name}` is ready:\n{lines}"),
        (false, false) => format!("data set `{name}` was ready, nothing to do:\n{lines}"),
    }
}

fn show_path(path: &Path) -> String {
    display::path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_says_where_the_files_are() {
        let files = [PathBuf::from("/a/b"), PathBuf::from("/a/c")];
        assert_eq!(answer("csv", &files, true), "data set `csv` is ready:\n  /a/b\n  /a/c\n");
        assert!(answer("csv", &files, false).contains("nothing to do:\n  /a/b\n"));
        assert_eq!(answer("random", &[], false), "data set `random` needs no files\n");
    }
}
