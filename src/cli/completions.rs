//! `ddp-run completions SHELL`.

use crate::error::Result;
use clap::Command;
use clap_complete::Shell;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script to standard output.
pub fn run(args: &Args) -> Result<()> {
    super::print(&script(args.shell))
}

fn script(shell: Shell) -> String {
    let name = match shell {
        // clap_complete's bash script takes a dash in the program's name for the separator of a subcommand, and
        // completes nothing then.
        Shell::Bash => "ddp_run",
        _ => "ddp-run",
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(name), name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match shell {
        // The last word of a registration is the program's name. Flags are offered only after a dash; otherwise a
        // file is expected.
        Shell::Bash => script
            .replace(" ddp_run\n", " ddp-run\n")
            .replace("compgen -W \"${opts}\" --", "compgen -W \"${opts}\" -X \"${cur:+ }${cur:--*}\" --"),
        _ => script,
    };
    with_default_subcommand(shell, &script)
}

/// Makes a script insert `train` before a first word that can only be a spec, as [`run`](super::run) does. Not
/// possible in Elvish and PowerShell.
fn with_default_subcommand(shell: Shell, script: &str) -> String {
    let (there, becomes) = match shell {
        Shell::Bash => (
            "    for i in \"${COMP_WORDS",
            "    if [[ ${COMP_CWORD} -gt 1 && ${COMP_WORDS[1]} != -* && ${COMP_WORDS[1]} == *[./]* ]]; then\n        \
             COMP_WORDS=(\"${COMP_WORDS[0]}\" train \"${COMP_WORDS[@]:1}\")\n        \
             COMP_CWORD=$((COMP_CWORD + 1))\n    fi\n    \
             for i in \"${COMP_WORDS",
        ),
        Shell::Zsh => (
            "_ddp-run() {\n",
            "_ddp-run() {\n    \
             if (( CURRENT > 2 )) && [[ $words[2] != -* && $words[2] == *[./]* ]]; then\n        \
             words=(\"$words[1]\" train \"${(@)words[2,-1]}\")\n        \
             (( CURRENT += 1 ))\n    fi\n",
        ),
        Shell::Fish => (
            "        echo $argv[1]\n",
            "        string match -qr '[./]' -- $argv[1]\n        \
             and echo train\n        or echo $argv[1]\n",
        ),
        _ => return script.to_owned(),
    };
    script.replacen(there, becomes, 1)
}

/// The command line without the hidden subcommands, which are for internal use.
fn shown(name: &'static str) -> Command {
    let full = super::command();
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(full.get_arguments().cloned())
        .subcommands(full.get_subcommands().filter(|c| !c.is_hide_set()).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command as Process, Stdio};

    /// The output of a shell for `commands` (standard input), if the shell is installed.
    fn answer(shell: &str, arguments: &[&str], commands: &str) -> Option<String> {
        let spawned = Process::new(shell)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = match spawned {
            Ok(process) => process,
            Err(e) => {
                println!("skipped: no {shell}: {e}");
                return None;
            }
        };
        process.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("written");
        let output = process.wait_with_output().expect("it ends");
        let [said, wrong] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success() && wrong.is_empty(), "{shell}: {wrong}\n{said}");
        Some(said)
    }

    /// Typed words, and words that are offered after them.
    const OFFERED: [(&[&str], &[&str]); 16] = [
        (&["tr"], &["train"]),
        (&["check", "--s"], &["--set"]),
        // Files, which the shell completes itself.
        (&["train", ""], &[]),
        (&["train", "a.toml", ""], &[]),
        (&["eval", "a.toml", "--split", ""], &["test", "train", "val"]),
        (&["train", "--resume", "auto", "--nproc"], &["--nproc-per-node"]),
        (&["inspect", "--format", "j"], &["json"]),
        (&["bench", "all"], &["allreduce"]),
        (&["init", "c"], &["cifar10", "csv", "custom"]),
        (&["bench", "allreduce", "--wor"], &["--world"]),
        (&["bench", "allreduce", "--op", "m"], &["max", "mean", "min"]),
        (&["bench", "allreduce", "--algorithm", "h"], &["halving-doubling", "hierarchical"]),
        (&["train", "a.toml", "--log-format", ""], &["json", "text"]),
        // A first word that is a path means `train`.
        (&["a.toml", "--max"], &["--max-restarts"]),
        (&["./a", "--out", "b", "--progress", "b"], &["bar"]),
        (&["check", "a.toml", "--max"], &[]),
    ];

    /// Every subcommand that is not hidden.
    fn subcommands() -> Vec<String> {
        let all = super::super::command();
        all.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect()
    }

    /// Queries a shell once for all of `typed`; the words of an answer are on one line.
    fn check(ask: impl Fn(&[&[&str]]) -> Option<String>) {
        let empty: &[&[&str]] = &[&[""]];
        let typed: Vec<&[&str]> = empty.iter().copied().chain(OFFERED.map(|(typed, _)| typed)).collect();
        let Some(said) = ask(&typed) else { return };
        let answers: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(answers.len(), typed.len(), "{said}");
        let first: Vec<&str> = answers[0].iter().copied().filter(|word| !word.starts_with('-')).collect();
        let (mut first, mut expected) = (first, subcommands());
        first.sort_unstable();
        expected.sort_unstable();
        assert_eq!(first, expected);
        for ((typed, offered), answer) in OFFERED.into_iter().zip(&answers[1..]) {
            let mut answer = answer.clone();
            answer.sort_unstable();
            assert_eq!(answer, offered, "{typed:?}");
        }
    }

    #[test]
    fn bash_completes_subcommands_their_flags_and_values() {
        check(|typed| {
            let mut commands = script(Shell::Bash);
            // As bash does it: calls the function registered by `complete` with the program, the word and the previous word.
            commands.push_str("f=$(complete -p ddp-run | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n");
            for words in typed {
                let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                let last = words.len();
                commands.push_str(&format!(
                    "COMP_WORDS=(ddp-run {}); COMP_CWORD={last}; COMPREPLY=()\n\
                     $f ddp-run \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{}]}}\"; echo \"${{COMPREPLY[@]}}\"\n",
                    quoted.join(" "),
                    last - 1
                ));
            }
            answer("bash", &["--norc"], &commands)
        });
    }

    #[test]
    fn fish_completes_subcommands_their_flags_and_values() {
        check(|typed| {
            let mut commands = script(Shell::Fish);
            for words in typed {
                // A tab separates the description.
                let line = words.join(" ");
                commands.push_str(&format!(
                    "echo (complete -C 'ddp-run {line}' | string replace -r '\\t.*' '' | string match -v '*.toml' | string match -v '*/')\n"
                ));
            }
            let folder = tempfile::tempdir().expect("a folder");
            let home = folder.path().display();
            let commands = format!("cd {home}\n{commands}");
            answer("fish", &["--no-config"], &commands)
        });
    }

    /// Zsh offers completions only at a terminal, so this tests that it can read the script, the program's name, and
    /// the queries.
    #[test]
    fn zsh_reads_the_script() {
        let script = script(Shell::Zsh);
        assert!(script.starts_with("#compdef ddp-run\n") && !script.contains("bench-worker"));
        let asked = |typed: &str, current: usize| {
            format!(
                "words=(ddp-run {typed}); CURRENT={current}; _arguments() {{ print -r -- $CURRENT $words }}; _ddp-run\n"
            )
        };
        let commands = format!(
            "compdef() {{ print -r -- $@ }}\nfunction fake {{ {script}\n }}\nfake\n{}{}",
            asked("a.toml --max", 3),
            asked("check a.toml --s", 4)
        );
        if let Some(said) = answer("zsh", &["-f"], &commands) {
            assert_eq!(said, "_ddp-run ddp-run\n4 ddp-run train a.toml --max\n4 ddp-run check a.toml --s\n");
        }
    }
}
