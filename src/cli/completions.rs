//! `ddp-run completions SHELL`, and what the program answers when a shell with such a script asks it.

use super::candidates::TypedLine;
use super::shell_words::Typed;
use super::shells::{OwnScript, read};
use base::error::{Error, Result};
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Elvish, EnvCompleter, Powershell, Shells};
use clap_complete::{CompletionCandidate, Shell};
use ddp::device::DeviceSpec;
use job::registry::Registry;
use launch::Nproc;
use spec::Syntax;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tools::runs::{FACTS, RunStatus};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Names the shell that asks. The words of its command line follow `--`.
const VARIABLE: &str = "DDP_RUN_COMPLETE";

/// Prints the script to standard output.
pub fn run(args: &Args) -> Result<()> {
    let [bash, fish] = [OwnScript::bash, OwnScript::fish].map(|of| of(Typed::default()));
    let zsh = OwnScript::zsh();
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Elvish => &Elvish,
        Shell::Fish => &fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &zsh,
        _ => &bash,
    };
    let program = PathBuf::from(std::env::args_os().next().unwrap_or_else(|| "ddp-run".into()));
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    // One that was found in PATH is looked for there again.
    let completer = match (program.components().count() > 1).then(std::env::current_dir) {
        Some(Ok(here)) => here.join(&program),
        _ => program,
    };
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, &name, &name, &completer.to_string_lossy(), &mut script)
        .map_err(|e| Error::internal(format!("cannot write the script: {e}")))?;
    super::print(&String::from_utf8_lossy(&script))
}

/// Whether a shell asks for completions.
pub fn asked() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|shell| !shell.is_empty())
}

/// Answers a shell that asks.
///
/// # Errors
/// It is not known, or asks for nothing (exit 2).
pub fn answer(registry: &Registry) -> Result<()> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let first = arguments.iter().position(|word| word == "--").map_or(arguments.len(), |at| at + 1);
    let shell = std::env::var(VARIABLE).unwrap_or_default();
    let (words, typed) = read(&shell, &arguments.split_off(first));
    arguments.extend(words.iter().cloned());
    let (bash, fish, zsh) = (OwnScript::bash(typed.clone()), OwnScript::fish(typed), OwnScript::zsh());
    let line = Arc::new(TypedLine::new(registry, &words));
    let is_train = |words: &[OsString]| words.get(1).is_some_and(|word| word == "train");
    let meant = super::words::with_subcommand_first(&super::built(), words.clone());
    let short_for_train = words.len() > 2 && !is_train(&words) && is_train(&meant);
    CompleteEnv::with_factory(|| completing(&line, short_for_train))
        .var(VARIABLE)
        .shells(Shells(&[&bash, &Elvish, &fish, &Powershell, &zsh]))
        .try_complete(arguments, std::env::current_dir().ok().as_deref())
        .map(drop)
        .map_err(|e| Error::usage(format!("cannot complete: {e}")))
}

/// The command line without hidden subcommands, with what completes its arguments.
fn completing(line: &Arc<TypedLine>, short_for_train: bool) -> Command {
    let full = super::command();
    let shown = Command::new("ddp-run").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    let train = full.find_subcommand("train").filter(|_| short_for_train);
    let command = match train {
        Some(train) => shown.args(train.get_arguments().cloned()),
        None => shown
            .subcommands(full.get_subcommands().filter(|c| !c.is_hide_set()).cloned())
            .arg(Arg::new("spec").value_name("SPEC")),
    };
    with_completers(command, line)
}

fn with_completers(command: Command, line: &Arc<TypedLine>) -> Command {
    let explains = command.get_name() == "explain";
    command
        .mut_args(|arg| match arg.get_id().as_str() {
            "spec" | "specs" => arg.add(ArgValueCompleter::new(specs())),
            "set" => arg.add(completer(line, TypedLine::set)),
            "unset" => arg.add(completer(line, TypedLine::unset)),
            "device" => arg.add(named(DeviceSpec::WORDS)),
            "nproc_per_node" => arg.add(named(Nproc::WORDS)),
            // Or a checkpoint's path.
            "resume" => arg.add(ArgValueCompleter::new(|typed: &std::ffi::OsStr| {
                let mut found = named_words(&["auto", "never"], typed);
                found.extend(PathCompleter::any().complete(typed));
                found
            })),
            "sort" => arg.add(named(&FACTS)),
            "filters" => arg.add(completer(line, conditions)),
            "key" if explains => arg.add(completer(line, TypedLine::explain)),
            _ => arg,
        })
        .mut_subcommands(|sub| with_completers(sub, line))
}

fn named(words: &'static [&'static str]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &std::ffi::OsStr| named_words(words, typed))
}

fn named_words(words: &[&str], typed: &std::ffi::OsStr) -> Vec<CompletionCandidate> {
    let fits = |word: &&&str| typed.to_str().is_some_and(|typed| word.starts_with(typed));
    words.iter().filter(fits).map(CompletionCandidate::new).collect()
}

/// `KEY=` for facts of runs and keys of specs, and their values.
fn conditions(line: &TypedLine, typed: &str) -> Vec<CompletionCandidate> {
    let facts = FACTS.map(|fact| format!("{fact}=")).into_iter();
    let all = facts.chain(RunStatus::WORDS.map(|state| format!("state={state}")));
    let fits = all.filter(|word| word.starts_with(typed) && (typed.contains('=') || word.ends_with('=')));
    let mut found: Vec<CompletionCandidate> =
        fits.filter(|word| word != typed).map(CompletionCandidate::new).collect();
    let of_spec = line.set(typed).into_iter();
    let new = of_spec.filter(|word| !found.iter().any(|known| known.get_value() == word.get_value()));
    let new: Vec<CompletionCandidate> = new.collect();
    found.extend(new);
    found
}

fn completer(
    line: &Arc<TypedLine>,
    candidates: fn(&TypedLine, &str) -> Vec<CompletionCandidate>,
) -> ArgValueCompleter {
    let line = Arc::clone(line);
    ArgValueCompleter::new(move |typed: &std::ffi::OsStr| {
        typed.to_str().map(|typed| candidates(&line, typed)).unwrap_or_default()
    })
}

/// Files that may be specs, and folders.
fn specs() -> impl ValueCompleter {
    let fits = |path: &Path| {
        path.extension().is_some_and(|e| e == "toml") && path.is_file() && tools::lsp::may_be_spec(path)
    };
    PathCompleter::any().filter(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_runs_have_facts_keys_and_states() {
        let line = TypedLine::new(&Registry::standard(), &[]);
        let offered = |typed: &str| -> Vec<String> {
            let found = conditions(&line, typed);
            found.iter().map(|word| word.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(offered("st"), ["state=", "started=", "step="]);
        assert_eq!(offered("state=d"), ["state=done"]);
        assert_eq!(offered("name"), ["name="]);
        assert_eq!(offered("optimizer.name=adamw"), ["optimizer.name=adamw"]);
    }

    #[test]
    fn the_command_lines_that_are_completed_are_consistent() {
        let line = Arc::new(TypedLine::new(&Registry::standard(), &[]));
        for short_for_train in [true, false] {
            completing(&line, short_for_train).build();
        }
    }
}
