//! `ddp-run check SPEC...`: validates specs without touching devices, sockets or data.

use super::spec_args::OverrideArgs;
use base::error::Error;
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use launch::ExitCode;
use serde_json::{Value as Json, json};
use spec::{Diagnostics, Problem};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Check job specs without running them
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The job specs
    #[arg(value_name = "SPEC", required = true)]
    pub specs: Vec<PathBuf>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// `json`: one document on standard output with the problems and warnings of each spec
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// Prints `ok PATH` for each valid spec, and every problem of each invalid one.
///
/// # Errors
/// Exit 78: a spec is invalid. Exit 2: an edit of the command line is not written as one.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode, Error> {
    let plan = |path: &Path| args.overrides.plan(path, registry, WorldRequest::default().to(Purpose::Start));
    match args.format {
        Format::Text => text(args, plan).map(|()| ExitCode::Done),
        Format::Json => json(args, plan),
    }
}

/// What is wrong is part of the document, so that the exit code is not an error with a message of its own.
fn json(args: &Args, plan: impl Fn(&Path) -> Result<Plan, Diagnostics>) -> Result<ExitCode, Error> {
    let mut code = ExitCode::Done;
    let mut of = |path: &PathBuf| {
        let (problems, warnings) = match plan(path) {
            Ok(plan) => (Vec::new(), plan.warnings()),
            Err(wrong) => {
                let problems = wrong.problems().iter().map(|problem| of_problem(&wrong, problem)).collect();
                code = Error::from(wrong).kind.into();
                (problems, Vec::new())
            }
        };
        let warning = |(key, message): (&str, String)| json!({ "key": key, "message": message });
        let warnings: Vec<Json> = warnings.into_iter().map(warning).collect();
        json!({ "spec": path, "ok": problems.is_empty(), "problems": problems, "warnings": warnings })
    };
    let specs: Vec<Json> = args.specs.iter().map(&mut of).collect();
    super::print(&format!("{:#}\n", json!({ "specs": specs })))?;
    Ok(code)
}

/// Lines and columns count from 1, columns in characters; `end` is behind the last marked character.
fn of_problem(all: &Diagnostics, problem: &Problem) -> Json {
    let (source, line, column) = all.place(problem);
    let (end_line, end_column) = all.source(problem).position(problem.span.end);
    json!({
        "code": problem.code(),
        "message": problem.message,
        "hint": problem.hint,
        "meant": problem.meant,
        "source": source,
        "start": { "line": line, "column": column },
        "end": { "line": end_line, "column": end_column },
    })
}

fn text(args: &Args, plan: impl Fn(&Path) -> Result<Plan, Diagnostics>) -> Result<(), Error> {
    let mut wrong = Vec::new();
    for path in &args.specs {
        match plan(path) {
            Ok(plan) => {
                super::print(&format!("ok {}\n", path.display()))?;
                for (key, why) in plan.warnings() {
                    status!("warning: {}: `{key}`: {why}", base::display::path(path));
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
        let _ = writeln!(std::io::stderr(), "error: {}\n", super::shown(&error));
    }
    Err(Error::spec(format!("{count} of {} specs are invalid", args.specs.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    const GOOD: &str = "name = \"a\"\nbatch_size = 8\nmodel.name = \"linear\"\ndataset.name = \"random\"\noptimizer.name = \"sgd\"\n";

    fn checked(specs: &[(&str, &str)], set: &[&str]) -> Result<ExitCode, Error> {
        checked_as(Format::Text, specs, set)
    }

    fn checked_as(format: Format, specs: &[(&str, &str)], set: &[&str]) -> Result<ExitCode, Error> {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |(name, text): &(&str, &str)| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let overrides =
            OverrideArgs { set: set.iter().map(|s| (*s).to_owned()).collect(), ..OverrideArgs::default() };
        run(&Args { specs: specs.iter().map(write).collect(), overrides, format }, &Registry::standard())
    }

    #[test]
    fn valid_specs_pass_and_invalid_ones_are_counted() {
        assert!(checked(&[("a.toml", GOOD), ("b.toml", GOOD)], &[]).is_ok());
        let one = checked(&[("a.toml", GOOD), ("b.toml", "")], &[]).expect_err("b is wrong");
        assert_eq!(one.kind, ErrorKind::Spec);
        assert!(one.message.contains("problems in") && one.message.contains("b.toml"), "{}", one.message);
        let two = checked(&[("a.toml", "x = 1"), ("b.toml", GOOD), ("c.toml", "")], &[])
            .expect_err("two are wrong");
        assert_eq!((two.kind, two.message.as_str()), (ErrorKind::Spec, "2 of 3 specs are invalid"));
    }

    #[test]
    fn overrides_are_checked_with_the_specs() {
        assert!(checked(&[("a.toml", GOOD)], &["seed=3"]).is_ok());
        let error = checked(&[("a.toml", GOOD)], &["sede=3"]).expect_err("no such key");
        assert!(error.message.contains("did you mean `seed`?"), "{}", error.message);
    }

    #[test]
    fn the_exit_code_of_a_document_is_that_of_the_text() {
        for (spec, set, code) in [(GOOD, "seed=3", ExitCode::Done), ("", "seed=3", ExitCode::Spec)] {
            assert_eq!(checked_as(Format::Json, &[("a.toml", spec)], &[set]).expect("printed"), code);
        }
        assert_eq!(
            checked_as(Format::Json, &[("a.toml", GOOD)], &["seed"]).expect("printed"),
            ExitCode::Usage
        );
    }

    #[test]
    fn a_problem_has_its_place_and_what_was_meant() {
        let tree = spec::JobTree::parse("a.toml", &format!("sede = 3\n{GOOD}"), &[]);
        let wrong = Plan::resolve(&tree, &Registry::standard(), WorldRequest::default()).expect_err("no key");
        let problems: Vec<Json> = wrong.problems().iter().map(|p| of_problem(&wrong, p)).collect();
        let expected = json!([{
            "code": "unknown-key",
            "message": "unknown key; did you mean `seed`?",
            "hint": null,
            "meant": "seed",
            "source": "a.toml",
            "start": { "line": 1, "column": 1 },
            "end": { "line": 1, "column": 5 },
        }]);
        assert_eq!(Json::from(problems), expected);
    }
}
