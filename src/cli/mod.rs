//! The command line: one file per subcommand. `ddp-run SPEC.toml` means `ddp-run train SPEC.toml`.

mod bench;
mod bisect;
mod board;
mod candidates;
mod check;
mod completions;
mod data;
mod env;
mod eval;
mod eval_classes;
mod explain;
mod export;
mod export_gguf;
mod export_hf;
mod init;
mod inspect;
mod launch_program;
mod list;
mod lsp;
mod man;
mod outputs;
mod plan;
mod predict;
mod rehearse;
mod report;
mod repro;
mod runs;
mod schema;
mod shell_words;
mod shells;
mod spec_args;
mod submit;
mod sweep;
mod tokenizer;
mod train;
mod used;
mod words;

use crate::allocator::keep_freed_memory;
use base::error::Error;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use job::registry::Registry;
use launch::{self, ExitCode, StopFlag};
use spec::Diagnostics;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};

/// Runs distributed data-parallel training jobs on Burn from a version-controlled TOML job spec
#[derive(Debug, Parser)]
#[command(name = "ddp-run", version)]
#[command(after_help = format!(
    "`ddp-run [flags] SPEC.toml [flags]` is short for `ddp-run train [flags] SPEC.toml [flags]`.\n\n{}",
    ExitCode::list()
))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job: plan it, start its workers, watch them, resume where it stopped
    Train(train::Args),
    Launch(launch_program::Args),
    Sweep(sweep::Args),
    Check(check::Args),
    Plan(plan::Args),
    /// Evaluate a checkpoint on a split of the spec's data set
    Eval(eval::Args),
    Predict(predict::Args),
    /// Show the contents of a checkpoint, a run or a weight file
    Inspect(inspect::InspectArgs),
    /// Write a checkpoint's model as one safetensors file, as a folder for the Hugging Face hub, or as a GGUF file for llama.cpp
    Export(export::ExportArgs),
    /// Write a run's report.html again, from its metrics
    Report(report::Args),
    Repro(repro::Args),
    Rehearse(rehearse::Args),
    /// List, show, compare and remove runs
    Runs(runs::Args),
    Bisect(bisect::Args),
    Board(board::Args),
    /// Show what this build and this machine support
    Env(env::Args),
    /// List the models, data sets, optimizers … that a spec can name
    List(list::Args),
    /// Explain a key, a table or a component of specs
    Explain(explain::Args),
    /// Print the JSON Schema of specs, for editors
    Schema,
    Lsp(lsp::Args),
    Init(init::Args),
    /// Write the batch script that runs a spec on a cluster
    Submit(submit::Args),
    /// Measure training steps, or the engine
    Bench(bench::Args),
    /// Download the data of a spec before a run needs it
    Data(data::Args),
    /// Make a tokenizer from texts
    Tokenizer(tokenizer::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    Man(man::Args),
    /// A worker process, started by the supervisor
    #[command(hide = true)]
    Worker,
    /// A worker process of a measurement, started by `bench`
    #[command(hide = true)]
    BenchWorker,
}

/// The error for a terminal. The problems of a spec have colours; names in other messages can't bring any along.
fn shown(error: &Error) -> String {
    match error.caused_by::<Diagnostics>() {
        Some(_) => base::display::painted(&error.to_string()).into_owned(),
        None => {
            let hint = error.hint.iter().map(|hint| format!("\n\nhint: {}", base::display::message(hint)));
            base::display::message(&error.message).into_owned() + &hint.collect::<String>()
        }
    }
}

/// The whole program, for a user's own `main`.
pub trait Program {
    /// Runs the command line of this process, prints the error, if any, and exits with the documented exit code.
    fn run(self) -> !;

    /// Runs `arguments`, the first of which is the program's name, and returns what the process would exit with. Errors are
    /// not printed, but for a command line that can't be parsed ([`ExitCode::Usage`]). Stop signals are handled only while
    /// this process supervises workers; at other times one ends the process at once.
    ///
    /// A run starts this executable again for each of its ranks; there, this call works for the run and does not return.
    ///
    /// # Errors
    /// What [`run`](Self::run) would print.
    fn run_with<A: Into<OsString>>(self, arguments: impl IntoIterator<Item = A>) -> Result<ExitCode, Error>;
}

impl Program for Registry {
    fn run(self) -> ! {
        main(&self)
    }

    fn run_with<A: Into<OsString>>(self, arguments: impl IntoIterator<Item = A>) -> Result<ExitCode, Error> {
        let is_worker = |argument: OsString| argument == "worker" || argument == "bench-worker";
        if std::env::args_os().nth(1).is_some_and(is_worker) {
            self.run()
        }
        run(arguments.into_iter().map(Into::into), &self, &StopFlag::new())
    }
}

/// The whole program with the components of `registry`: parses the process's arguments, runs the subcommand, prints
/// the error, if any, and exits with the documented exit code.
pub fn main(registry: &Registry) -> ! {
    let run = |stop| run(std::env::args_os(), registry, &stop);
    let done = match completions::asked() {
        true => completions::answer(registry).map(|()| ExitCode::Done),
        false => launch::begin().and_then(run),
    };
    let code = done.map_err(Error::hint_of_unexpanded).unwrap_or_else(|error| {
        launch::write_error_file(&error);
        base::status::put(format!("error: {}\n", shown(&error)).into_bytes());
        error.kind.into()
    });
    base::status::flush();
    std::process::exit(code as i32)
}

/// Parses `arguments` (starting with the program's name), runs the subcommand, and returns the exit code or the
/// error. `stop` has received the stop signals.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    registry: &Registry,
    stop: &StopFlag,
) -> Result<ExitCode, Error> {
    let command = built();
    let arguments = words::with_dashes(&command, arguments.into_iter().collect());
    let arguments = words::with_subcommand_first(&command, words::with_equals(arguments));
    let matches = command.try_get_matches_from(&arguments);
    let cli = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => {
            let e = launch_program::with_tip(e, &arguments);
            // Help and version are printed to standard output and are not errors.
            let code = if e.use_stderr() { ExitCode::Usage } else { ExitCode::Done };
            if code == ExitCode::Usage {
                launch::write_error_file(&Error::usage(e.to_string()));
            }
            return printed(e.print()).map(|()| code);
        }
    };
    let done = |()| ExitCode::Done;
    use Command::{Eval, Launch, Sweep, Train, Worker};
    if !matches!(cli.command, Train(_) | Launch(_) | Eval(_) | Sweep(_) | Worker) {
        stop.release();
    }
    if matches!(cli.command, Train(_) | Eval(_) | Worker) {
        keep_freed_memory();
    }
    match cli.command {
        Command::Train(args) => train::run(&args, registry, stop),
        Command::Launch(args) => launch_program::run(&args, stop),
        Command::Sweep(args) => sweep::run(&args, registry, stop),
        Command::Check(args) => check::run(&args, registry),
        Command::Plan(args) => plan::run(&args, registry).map(done),
        Command::Eval(args) => eval::run(&args, registry, stop),
        Command::Predict(args) => predict::run(&args, registry).map(done),
        Command::Inspect(args) => inspect::run(&args).map(done),
        Command::Export(args) => export::run(&args, registry).map(done),
        Command::Report(args) => report::run(&args).map(done),
        Command::Repro(args) => repro::run(&args, registry, stop),
        Command::Rehearse(args) => rehearse::run(&args, registry, stop),
        Command::Runs(args) => runs::run(&args, registry).map(done),
        Command::Bisect(args) => bisect::run(&args, registry, stop),
        Command::Board(args) => board::run(&args, registry).map(done),
        Command::Env(args) => env::run(&args, registry).map(done),
        Command::List(args) => list::run(&args, registry).map(done),
        Command::Explain(args) => explain::run(&args, registry).map(done),
        Command::Schema => schema::run(registry).map(done),
        Command::Lsp(args) => lsp::run(&args, registry),
        Command::Init(args) => init::run(&args, registry).map(done),
        Command::Submit(args) => submit::run(&args, registry).map(done),
        Command::Bench(args) => bench::run(&args, registry).map(done),
        Command::Data(args) => data::run(&args, registry).map(done),
        Command::Tokenizer(args) => tokenizer::run(&args).map(done),
        Command::Man(args) => man::run(&args).map(done),
        Command::Completions(args) => completions::run(&args).map(done),
        Command::Worker => job::worker::run(registry, stop),
        Command::BenchWorker => tools::bench::work(stop),
    }
}

/// The command line with the flags and the subcommand that clap adds.
fn built() -> clap::Command {
    let mut command = command();
    command.build();
    command
}

/// Prints to standard output. A terminal gets no control characters.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    let text = &if out.is_terminal() { base::display::message(text) } else { text.into() };
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A reader that closes the pipe early (`| head`) is not an error.
fn printed(result: std::io::Result<()>) -> Result<(), Error> {
    match result {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::io(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// The whole command line, for completion scripts.
fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_takes_no_more_is_a_file_that_cannot_be_written() {
        let full = std::io::Error::from(ErrorKind::StorageFull);
        assert_eq!(printed(Err(full)).unwrap_err().kind, base::error::ErrorKind::Io);
        assert!(printed(Err(ErrorKind::BrokenPipe.into())).is_ok());
    }

    #[test]
    fn an_error_has_no_colours_but_those_of_a_spec() {
        let foreign = Error::data("no metric `\u{1b}[31m\nerror: x`").hint("see `\nhint: y`");
        assert_eq!(shown(&foreign), "no metric `·[31m\n  error: x`\n\nhint: see `\n  hint: y`");
        let missing = std::path::Path::new("/nonexistent/job.toml");
        let spec = spec::JobTree::load(missing, &[]).map(drop).unwrap_err();
        let spec = Error { message: "\u{1b}[31ma\u{1b}[0m\u{1b}[2J".to_owned(), ..Error::from(spec) };
        assert_eq!(shown(&spec), "\u{1b}[31ma\u{1b}[0m·[2J");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
