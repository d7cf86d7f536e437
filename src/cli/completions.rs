//! `ddp-run completions SHELL`, and what the program answers when a shell with such a script asks it.

use super::candidates::Line;
use crate::error::{Error, Result};
use crate::registry::Registry;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Names the shell that asks. The words of its command line are behind `--`.
const VARIABLE: &str = "DDP_RUN_COMPLETE";

/// Prints the script to standard output.
pub fn run(args: &Args) -> Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &OwnZsh,
        _ => &OwnBash,
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
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let words: Vec<OsString> = arguments.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let line = Arc::new(Line::new(registry, &words));
    let is_train = |words: &[OsString]| words.get(1).is_some_and(|word| word == "train");
    let meant = super::words::with_subcommand_first(&super::built(), words.clone());
    let short_for_train = words.len() > 2 && !is_train(&words) && is_train(&meant);
    CompleteEnv::with_factory(|| completing(&line, short_for_train))
        .var(VARIABLE)
        .shells(Shells(&[&OwnBash, &Elvish, &Fish, &Powershell, &OwnZsh]))
        .try_complete(arguments, std::env::current_dir().ok().as_deref())
        .map(drop)
        .map_err(|e| Error::usage(format!("cannot complete: {e}")))
}

/// The command line without hidden subcommands, with what completes its arguments.
fn completing(line: &Arc<Line>, short_for_train: bool) -> Command {
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

fn with_completers(command: Command, line: &Arc<Line>) -> Command {
    let explains = command.get_name() == "explain";
    command
        .mut_args(|arg| match arg.get_id().as_str() {
            "spec" | "specs" => arg.add(ArgValueCompleter::new(specs())),
            "set" => arg.add(completer(line, Line::set)),
            "unset" => arg.add(completer(line, Line::unset)),
            "key" if explains => arg.add(completer(line, Line::explain)),
            _ => arg,
        })
        .mut_subcommands(|sub| with_completers(sub, line))
}

fn completer(
    line: &Arc<Line>,
    candidates: fn(&Line, &str) -> Vec<clap_complete::CompletionCandidate>,
) -> ArgValueCompleter {
    let line = Arc::clone(line);
    ArgValueCompleter::new(move |typed: &std::ffi::OsStr| {
        typed.to_str().map(|typed| candidates(&line, typed)).unwrap_or_default()
    })
}

/// Files that may be specs, and folders.
fn specs() -> impl ValueCompleter {
    let fits = |path: &Path| {
        path.extension().is_some_and(|e| e == "toml") && path.is_file() && crate::lsp::may_be_spec(path)
    };
    PathCompleter::any().filter(fits)
}

/// Bash splits words at `=` and `:`, too, so clap's script would complete no value of `--set`.
struct OwnBash;

const BASH: &str = r#"_FUNCTION() {
    # Words as the program gets them: bash splits at `=` and `:`, too. What is behind the cursor does not count.
    local rest=${COMP_LINE:0:COMP_POINT} words=() i word blanks
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${rest%%[![:space:]]*}
        rest=${rest#"$blanks"}
        word=${COMP_WORDS[i]}
        [[ $i == "$COMP_CWORD" ]] && word=$rest
        rest=${rest#"$word"}
        if [[ $i -gt 0 && -z $blanks ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
    local index=$((${#words[@]} - 1))
    local whole=${words[index]}
    mapfile -t COMPREPLY < <(_CLAP_COMPLETE_INDEX=$index _CLAP_IFS=$'\n' VARIABLE=bash COMPLETER -- "${words[@]}" 2> /dev/null)
    # Bash replaces what is behind the last `=` or `:`.
    COMPREPLY=("${COMPREPLY[@]#"${whole%"$2"}"}")
    if [[ ${COMPREPLY[0]-} == *[=/] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o bashdefault -o default -o nosort -F _FUNCTION PROGRAM
"#;

impl EnvCompleter for OwnBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        let function: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
        let script = BASH
            .replace("FUNCTION", &format!("complete_{function}"))
            .replace("PROGRAM", &quoted(bin))
            .replace("VARIABLE", var)
            .replace("COMPLETER", &quoted(completer));
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        Bash.write_complete(cmd, args, current_dir, buf)
    }
}

/// clap's script adds a blank to `KEY=`, before its value can be typed.
struct OwnZsh;

impl EnvCompleter for OwnZsh {
    fn name(&self) -> &'static str {
        Zsh.name()
    }

    fn is(&self, name: &str) -> bool {
        Zsh.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        let mut script = Vec::new();
        Zsh.write_registration(var, name, bin, completer, &mut script)?;
        let script = String::from_utf8_lossy(&script)
            .replace("local -a other=()", "local -a other=() keys=()")
            .replace(
                "other+=(\"$completion\")",
                "if [[ \"$value\" == *= ]]; then keys+=(\"$completion\"); else other+=(\"$completion\"); fi",
            )
            .replace(
                "[[ -n $other ]] &&",
                "[[ -n $keys ]] && _describe -V 'values' keys -S ''\n        [[ -n $other ]] &&",
            );
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        Zsh.write_complete(cmd, args, current_dir, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_that_are_completed_are_consistent() {
        let line = Arc::new(Line::new(&Registry::standard(), &[]));
        for short_for_train in [true, false] {
            completing(&line, short_for_train).build();
        }
    }

    #[test]
    fn zsh_is_told_which_words_go_on() {
        let mut script = Vec::new();
        OwnZsh.write_registration("V", "ddp-run", "ddp-run", "/x/ddp-run", &mut script).expect("written");
        let script = String::from_utf8_lossy(&script).into_owned();
        // Each is in a part of clap's script that another release may write differently.
        for part in ["keys=()\n", "keys+=(\"$completion\")", "keys -S ''\n"] {
            assert!(script.contains(part), "{part} is not in:\n{script}");
        }
    }
}
