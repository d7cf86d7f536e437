//! `ddp-run check SPEC...`: validates specs without touching devices, sockets or data.

use super::spec_args::OverrideArgs;
use crate::error::{Error, ExitCode};
use crate::plan::WorldRequest;
use crate::registry::Registry;
use std::io::Write;
use std::path::PathBuf;

/// Check job specs without running them
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The job specs
    #[arg(value_name = "SPEC", required = true)]
    pub specs: Vec<PathBuf>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

/// Prints `ok PATH` for each valid spec, and every problem of each invalid one.
///
/// # Errors
/// Exit 78: a spec is invalid.
pub fn run(args: &Args, registry: &Registry) -> Result<(), Error> {
    let mut wrong = Vec::new();
    for path in &args.specs {
        match args.overrides.plan(path, registry, WorldRequest::default()) {
            Ok(plan) => {
                super::print(&format!("ok {}\n", path.display()))?;
                for (key, why) in plan.warnings() {
                    say!("warning: {}: `{key}`: {why}", path.display());
                }
            }
            Err(diagnostics) => wrong.push(diagnostics),
        }
    }
    // `main` prints the last error; the others are printed here.
    let Some(last) = wrong.pop() else { return Ok(()) };
    if wrong.is_empty() {
        return Err(last.into());
    }
    let count = wrong.len() + 1;
    for diagnostics in wrong.into_iter().chain([last]) {
        let error = Error::from(diagnostics);
        let _ = writeln!(std::io::stderr(), "error: {error}\n");
    }
    Err(Error::new(ExitCode::Spec, format!("{count} of {} specs are invalid", args.specs.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"a\"\nbatch_size = 8\nmodel.name = \"linear\"\ndataset.name = \"random\"\noptimizer.name = \"sgd\"\n";

    fn checked(specs: &[(&str, &str)], set: &[&str]) -> Result<(), Error> {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |(name, text): &(&str, &str)| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let overrides =
            OverrideArgs { set: set.iter().map(|s| (*s).to_owned()).collect(), ..OverrideArgs::default() };
        run(&Args { specs: specs.iter().map(write).collect(), overrides }, &Registry::standard())
    }

    #[test]
    fn valid_specs_pass_and_invalid_ones_are_counted() {
        assert!(checked(&[("a.toml", GOOD), ("b.toml", GOOD)], &[]).is_ok());
        let one = checked(&[("a.toml", GOOD), ("b.toml", "")], &[]).expect_err("b is wrong");
        assert_eq!(one.code, ExitCode::Spec);
        assert!(one.message.contains("problems in") && one.message.contains("b.toml"), "{}", one.message);
        let two = checked(&[("a.toml", "x = 1"), ("b.toml", GOOD), ("c.toml", "")], &[])
            .expect_err("two are wrong");
        assert_eq!((two.code, two.message.as_str()), (ExitCode::Spec, "2 of 3 specs are invalid"));
    }

    #[test]
    fn overrides_are_checked_with_the_specs() {
        assert!(checked(&[("a.toml", GOOD)], &["seed=3"]).is_ok());
        let error = checked(&[("a.toml", GOOD)], &["sede=3"]).expect_err("no such key");
        assert!(error.message.contains("did you mean `seed`?"), "{}", error.message);
    }
}
