//! What shells offer behind `ddp-run`, by the script of `ddp-run completions SHELL` and the program's own answers.

use crate::common::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const SPEC: &str = "name = 'a'\nbatch_size = 8\n[model]\nname = 'linear'\n[dataset]\nname = 'random'\n[optimizer]\nname = 'adamw'\n";

/// Typed words, and those that are offered in place of the last one, with flags only behind a dash.
const OFFERED: [(&[&str], &[&str]); 24] = [
    (&["tr"], &["train"]),
    (&["check", "--s"], &["--set"]),
    (&["train", "jo"], &["job.toml"]),
    (&["check", "job.toml", "fold"], &["folder/"]),
    (&["jo"], &["job.toml"]),
    (&["eval", "job.toml", "--split", ""], &["test", "train", "val"]),
    (&["train", "--resume", "auto", "--nproc"], &["--nproc-per-node"]),
    (&["inspect", "--format", "j"], &["json"]),
    (&["bench", "all"], &["allreduce"]),
    (&["bench", "allreduce", "--wor"], &["--world"]),
    (&["bench", "allreduce", "--op", "m"], &["max", "mean", "min"]),
    (&["bench", "allreduce", "--algorithm", "h"], &["halving-doubling", "hierarchical"]),
    (&["train", "job.toml", "--log-format", ""], &["json", "text"]),
    // A first word that is a path means `train`.
    (&["job.toml", "--max"], &["--max-restarts"]),
    (&["./a", "--out", "b", "--progress", "b"], &["bar"]),
    (&["check", "job.toml", "--max"], &[]),
    (&["check", "job.toml", "--set", "optimizer.bet"], &["optimizer.betas="]),
    (&["job.toml", "--set", "optimizer.bet"], &["optimizer.betas="]),
    (&["job.toml", "--set", "optimizer.name=rms"], &["optimizer.name=rmsprop"]),
    (&["job.toml", "--set", "optimizer.name=sgd", "--set", "optimizer.nest"], &["optimizer.nesterov="]),
    (&["check", "job.toml", "--unset", "optimizer.n"], &["optimizer.name"]),
    (&["explain", "optimizer.adamw"], &["optimizer.adamw"]),
    (&["list", "mod"], &["models"]),
    (&["completions", "z"], &["zsh"]),
];

/// A folder with a spec, another program's file, and a folder.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("job.toml", SPEC);
    write("Cargo.toml", "[package]\n");
    write("notes.txt", "");
    std::fs::create_dir(folder.path().join("folder")).expect("made");
    folder
}

/// The words that are offered, by line of the output, against those that are expected.
#[track_caller]
fn compare(typed: &[&str], answer: &str, expected: &[&str]) {
    let mut words: Vec<&str> = answer.split_whitespace().collect();
    if !typed.last().is_some_and(|word| word.starts_with('-')) {
        words.retain(|word| !word.starts_with('-'));
    }
    words.sort_unstable();
    assert_eq!(words, expected, "{typed:?}");
}

fn script(shell: &str) -> String {
    stdout_of(ddp_run().args(["completions", shell]))
}

/// The output of a shell in `folder` for `commands` (standard input), if the shell is installed.
fn shell(name: &str, arguments: &[&str], folder: &Path, commands: &str) -> Option<String> {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(folder).env("HOME", folder);
    // A locale that is not installed, or a start-up file, would be heard of on stderr.
    command.env("LC_ALL", "C.UTF-8").env_remove("BASH_ENV");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = match command.spawn() {
        Ok(process) => process,
        Err(e) => {
            println!("skipped: no {name}: {e}");
            return None;
        }
    };
    process.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("written");
    let output = finish(process);
    let said = stdout(&output);
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}\n{said}", stderr(&output));
    Some(said)
}

#[test]
fn the_program_answers_a_shell() {
    let folder = folder();
    let ask = |words: &[&str]| {
        let mut command = ddp_run();
        command.current_dir(folder.path()).env("DDP_RUN_COMPLETE", "bash").env("_CLAP_IFS", " ");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).args(["--", "ddp-run"]).args(words);
        stdout_of(&mut command)
    };
    for (typed, expected) in OFFERED {
        compare(typed, &ask(typed), expected);
    }
    let first = ask(&[""]);
    let first: Vec<&str> = first.split_whitespace().collect();
    for word in ["train", "lsp", "man", "job.toml", "folder/"] {
        assert!(first.contains(&word), "{word}: {first:?}");
    }
    for word in ["worker", "bench-worker", "Cargo.toml", "notes.txt"] {
        assert!(!first.contains(&word), "{word}: {first:?}");
    }
}

#[test]
fn a_shell_that_is_not_known_is_an_error() {
    let output = output_of(ddp_run().env("DDP_RUN_COMPLETE", "tcsh").args(["--", "ddp-run", ""]));
    assert_code(&output, 2);
    assert!(stderr(&output).contains("unknown shell `tcsh`"), "{}", stderr(&output));
    // An empty value asks for nothing.
    let output = output_of(ddp_run().env("DDP_RUN_COMPLETE", "").arg("--version"));
    assert_code(&output, 0);
}

/// A word as bash splits it: at `=` and `:`, too.
fn split(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in word.chars() {
        let (last, breaks) = (parts.last_mut().expect("one"), "=:".contains(c));
        if last.is_empty() || breaks == last.starts_with(['=', ':']) {
            last.push(c);
        } else {
            parts.push(c.to_string());
        }
    }
    parts
}

#[test]
fn bash_offers_what_the_program_answers() {
    let folder = folder();
    let mut commands = script("bash");
    // As bash does it: calls the function that `complete` has registered with the program, the word and the one before.
    commands.push_str("f=$(complete -p ddp-run | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n");
    for (typed, _) in OFFERED {
        let words: Vec<String> = typed.iter().flat_map(|word| split(word)).collect();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!("ddp-run {}", typed.join(" "));
        // Behind a `=` there is no word yet.
        let word = words.last().filter(|word| !word.starts_with(['=', ':'])).map_or("", |word| word);
        commands.push_str(&format!(
            "COMP_WORDS=(ddp-run {}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}; COMPREPLY=()\n\
             $f ddp-run '{word}' x; echo \"${{COMPREPLY[@]}}\"\n",
            quoted.join(" "),
            words.len(),
            line.len(),
        ));
    }
    let Some(said) = shell("bash", &["--norc"], folder.path(), &commands) else { return };
    let answers: Vec<&str> = said.lines().collect();
    assert_eq!(answers.len(), OFFERED.len(), "{said}");
    for ((typed, expected), answer) in OFFERED.into_iter().zip(answers) {
        // Bash replaces only what is behind the `=`.
        let values: Vec<&str> = expected
            .iter()
            .map(|word| match typed.last() {
                Some(last) if last.contains('=') => word.split_once('=').map_or(*word, |(_, value)| value),
                _ => *word,
            })
            .collect();
        compare(typed, answer, &values);
    }
}

#[test]
fn fish_offers_what_the_program_answers() {
    let folder = folder();
    let mut commands = script("fish");
    for (typed, _) in OFFERED {
        // A tab separates the description.
        let line = typed.join(" ");
        commands.push_str(&format!("echo (complete -C 'ddp-run {line}' | string replace -r '\\t.*' '')\n"));
    }
    let Some(said) = shell("fish", &["--no-config"], folder.path(), &commands) else { return };
    let answers: Vec<&str> = said.lines().collect();
    assert_eq!(answers.len(), OFFERED.len(), "{said}");
    for ((typed, expected), answer) in OFFERED.into_iter().zip(answers) {
        compare(typed, answer, expected);
    }
}

/// What zsh has only at a terminal.
const ZSH_STUBS: &str = "compdef() { print -r -- $@ }\n_describe() { print -rl -- ${(P)3} }\ncompset() { [[ $words[CURRENT] == */* ]] }\n";

/// Zsh offers completions only at a terminal, so this tests the function that it calls, and what that adds.
#[test]
fn zsh_offers_what_the_program_answers() {
    let folder = folder();
    let mut commands = ZSH_STUBS.to_owned();
    commands.push_str(&format!("function fake {{ {}\n}}\nfake\n", script("zsh")));
    for (typed, _) in OFFERED {
        let quoted: Vec<String> = typed.iter().map(|word| format!("'{word}'")).collect();
        commands.push_str(&format!(
            "words=(ddp-run {}); CURRENT={}\nprint -r -- $(_clap_dynamic_completer_ddp_run)\n",
            quoted.join(" "),
            typed.len() + 1
        ));
    }
    let Some(said) = shell("zsh", &["-f"], folder.path(), &commands) else { return };
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("_clap_dynamic_completer_ddp_run ddp-run"));
    let answers: Vec<&str> = lines.collect();
    assert_eq!(answers.len(), OFFERED.len(), "{said}");
    for ((typed, expected), answer) in OFFERED.into_iter().zip(answers) {
        for word in expected {
            assert!(answer.contains(word.trim_end_matches('/')), "{typed:?}: {answer}");
        }
    }
}

/// A folder with specs whose names mean something to shells; it is `HOME`, too.
fn odd_names() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["my job.toml", "do$llar.toml", "br(1).toml", "sub/job.toml"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, SPEC).expect("written");
    }
    folder
}

#[test]
fn bash_gets_names_in_the_quotes_that_are_typed() {
    let folder = odd_names();
    let mut commands = script("bash");
    commands.push_str("f=$(complete -p ddp-run | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n");
    // Words before the last one, the last one, what bash takes for it, and the answer.
    let cases: [(&[&str], &str, &str, &str); 8] = [
        (&["check"], "my", "my", r"my\ job.toml"),
        (&["check"], r"my\ jo", r"my\ jo", r"my\ job.toml"),
        (&["check"], "\"my jo", "my jo", "my job.toml"),
        (&["check"], "do", "do", r"do\$llar.toml"),
        (&["check"], "br", "br", r"br\(1\).toml"),
        (&["check"], "~/sub/jo", "~/sub/jo", "~/sub/job.toml"),
        (&["check"], "$HOME/sub/jo", "$HOME/sub/jo", "$HOME/sub/job.toml"),
        (&["check", r"~/my\ job.toml", "--set"], "optimizer.bet", "optimizer.bet", "optimizer.betas="),
    ];
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    for (before, last, word, _) in cases {
        let words = [&["ddp-run"], before, &[last]].concat();
        let line = words.join(" ");
        let all: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        commands.push_str(&format!(
            "COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE={}; COMP_POINT={}; COMPREPLY=()\n\
             $f ddp-run {} x; echo \"${{COMPREPLY[*]}}\"\n",
            all.join(" "),
            words.len() - 1,
            quoted(&line),
            line.len(),
            quoted(word),
        ));
    }
    let Some(said) = shell("bash", &["--norc"], folder.path(), &commands) else { return };
    assert_eq!(said.lines().collect::<Vec<_>>(), cases.map(|(.., expected)| expected));
}

#[test]
fn fish_and_zsh_read_words_as_they_are_typed() {
    let folder = odd_names();
    let cases = [
        (r"check my\ jo", "my job.toml"),
        ("check ~/sub/jo", "~/sub/job.toml"),
        (r"check my\ job.toml --set optimizer.bet", "optimizer.betas="),
        ("check ~/sub/job.toml --set optimizer.bet", "optimizer.betas="),
    ];
    let mut commands = script("fish");
    for (typed, _) in cases {
        let line = format!("ddp-run {typed}").replace('\\', r"\\");
        commands.push_str(&format!("echo (complete -C '{line}' | string replace -r '\\t.*' '')\n"));
    }
    if let Some(said) = shell("fish", &["--no-config"], folder.path(), &commands) {
        assert_eq!(said.lines().collect::<Vec<_>>(), cases.map(|(_, expected)| expected));
    }
    let mut commands = ZSH_STUBS.to_owned();
    commands.push_str(&format!("function fake {{ {}\n}}\nfake\n", script("zsh")));
    for (typed, _) in cases {
        let words: Vec<String> = typed
            .replace(r"\ ", "\0")
            .split(' ')
            .map(|word| format!("'{}'", word.replace('\0', r"\ ")))
            .collect();
        commands.push_str(&format!(
            "words=(ddp-run {}); CURRENT={}\nprint -r -- $(_clap_dynamic_completer_ddp_run)\n",
            words.join(" "),
            words.len() + 1
        ));
    }
    if let Some(said) = shell("zsh", &["-f"], folder.path(), &commands) {
        for (answer, (typed, expected)) in said.lines().skip(1).zip(cases) {
            // Behind the last slash, which stays as it is typed; a description may follow.
            let expected = expected.rsplit('/').next().expect("a part");
            assert!(answer.split(':').next() == Some(expected), "{typed}: {answer}");
        }
    }
}
