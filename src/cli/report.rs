//! `ddp-run report RUN…`: writes the run's `report.html` again from its folder, or a page that compares several runs.

use super::outputs::destroys_nothing;
use base::error::{Error, ErrorKind, Result};
use base::files;
use record::{prediction, report};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A run folder (`runs/<name>`); several are compared on one page
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Where the page is written [default: report.html in the run's folder, or compare.html here for several runs]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show this prediction of `ddp-run plan --cluster` beside what was measured, now and in later reports: a copy is put in
    /// the run's folder
    #[arg(long, value_name = "FILE")]
    pub prediction: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(other) = args.runs.iter().find(|run| !run.join("metrics.jsonl").is_file()) {
        return Err(Error::usage(format!(
            "{} is not a run folder: it has no metrics.jsonl",
            other.display()
        )));
    }
    // The files belong to a run's folder; a wrong `--out` is one of usage.
    let of_folder = |e: Error| match e.kind {
        ErrorKind::Usage => e,
        _ => Error { kind: ErrorKind::Io, ..e },
    };
    if let Some(file) = &args.prediction {
        let [run] = &args.runs[..] else {
            return Err(Error::usage(
                "--prediction is of one run; several are compared by what they measured",
            ));
        };
        let read = prediction::read(file)?;
        files::replace_json(&prediction::path(run), &read).map_err(of_folder)?;
    }
    let written = match (&args.out, &args.runs[..]) {
        (None, [run]) => report::write(run).map_err(of_folder)?,
        (out, runs) => {
            let out = match out {
                Some(out) => {
                    destroys_nothing(out, &[])?;
                    out.clone()
                }
                None => {
                    let out = PathBuf::from("compare.html");
                    files::replaces_no_other(&out, &[report::MARK])?;
                    out
                }
            };
            let folders: Vec<&Path> = runs.iter().map(PathBuf::as_path).collect();
            report::write_to(&folders, &out).map_err(of_folder)?;
            out
        }
    };
    super::print(&format!("{}\n", written.display()))
}
