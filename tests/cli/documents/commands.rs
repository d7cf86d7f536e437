//! Every command line in a document is one that the binary takes: the subcommand is there, and so is each flag. Every variable of
//! ddp-run that a document names is one that the code reads.

use super::markdown::{Block, Document, cells, spans};
use super::{documents, read, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// `ddp-run SUB… --help`, asked for once.
#[derive(Default)]
struct Help(BTreeMap<Vec<String>, Option<String>>);

impl Help {
    fn of(&mut self, command: &[String]) -> Option<&str> {
        let ask = || {
            let mut program = Command::new(env!("CARGO_BIN_EXE_ddp-run"));
            let output =
                program.args(command).arg("--help").stdin(Stdio::null()).output().expect("it starts");
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        self.0.entry(command.to_vec()).or_insert_with(ask).as_deref()
    }

    /// What is wrong with the arguments of a command line.
    fn refuse(&mut self, arguments: &[&str]) -> Option<String> {
        let arguments = arguments.strip_prefix(&["help"]).unwrap_or(arguments);
        let mut command: Vec<String> = Vec::new();
        if arguments.first().is_some_and(|first| first.starts_with('-'))
            && arguments.iter().any(|w| is_spec(w))
        {
            command.push("train".to_owned());
        }
        for word in arguments.iter().take(2).take_while(|word| !word.starts_with('-')) {
            if command.is_empty() && is_spec(word) {
                command.push("train".to_owned());
                break;
            }
            // A placeholder.
            if command.is_empty() && !word.starts_with(char::is_lowercase) {
                return None;
            }
            if command.is_empty() || self.of(&command).is_some_and(|help| help.contains("Commands:")) {
                command.push((*word).to_owned());
            }
        }
        let Some(help) = self.of(&command) else {
            return Some(format!("no command `{}`", command.join(" ")));
        };
        // `-v,`, and `--profile[=<STEPS>]`, whose value may be left out.
        let plain = |word: &str| word.trim_end_matches(',').split("[=").next().unwrap_or_default().to_owned();
        let known: Vec<String> = help.split_whitespace().map(plain).collect();
        let flags = arguments.iter().filter(|word| word.len() > 1 && word.starts_with('-'));
        // Underscores are taken for dashes.
        let names = flags.map(|flag| flag.split('=').next().unwrap_or(flag).replace('_', "-"));
        let mut unknown = names.filter(|name| !known.contains(name));
        unknown.next().map(|flag| format!("`{}` has no flag {flag}", command.join(" ")))
    }
}

fn is_spec(word: &str) -> bool {
    word.ends_with(".toml") || word == "SPEC"
}

/// The arguments of ddp-run in a line for the shell, if it is started there.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let ends = |word: &&str| !["#", "|", "&", "&&", ";", ">"].contains(word);
    let words: Vec<&str> = line.split_whitespace().take_while(ends).collect();
    // With its folder, or in a substitution.
    let own = words.iter().position(|word| word.rsplit(['/', '(']).next() == Some("ddp-run"));
    let starts = |word: &&str| word.contains('=') || ["time", "taskset", "mpirun", "source"].contains(word);
    let own = own.filter(|at| *at == 0 || words.first().is_some_and(starts));
    let by_cargo = || {
        let own = words.starts_with(&["cargo", "run"]) && !words.contains(&"--example");
        words.iter().position(|word| *word == "--").filter(|_| own)
    };
    let at = own.or_else(by_cargo)?;
    Some(words[at + 1..].iter().map(|word| word.trim_end_matches(')')).collect())
}

/// The lines of a block that are typed: those behind `$ ` where there are any; else all.
fn typed(block: &Block) -> Vec<&str> {
    let behind_prompt: Vec<&str> = block.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let shell = ["", "sh", "console"].contains(&block.language.as_str());
    match (shell, behind_prompt.is_empty()) {
        (false, _) => Vec::new(),
        (true, true) => block.text.lines().collect(),
        (true, false) => behind_prompt,
    }
}

/// The command lines in a line of prose. Flags in the second cell of a table's row belong to the command in the first.
fn named(line: &str) -> Vec<String> {
    match cells(line).as_deref() {
        Some([command, meaning, ..]) if command.starts_with("`ddp-run ") => {
            let flags = spans(meaning).filter(|span| span.starts_with('-'));
            vec![std::iter::once(command.trim_matches('`')).chain(flags).collect::<Vec<_>>().join(" ")]
        }
        _ => spans(line).filter(|span| span.contains("ddp-run ")).map(str::to_owned).collect(),
    }
}

#[test]
fn every_command_line_is_one_that_the_binary_takes() {
    let mut help = Help::default();
    let (mut wrong, mut commands) = (Vec::new(), 0);
    for document in documents() {
        let parsed = Document::parse(&read(&document));
        let typed = parsed.blocks.iter().flat_map(typed).map(str::to_owned);
        for line in typed.chain(parsed.prose.iter().flat_map(|line| named(line))) {
            let Some(arguments) = arguments(&line) else { continue };
            commands += 1;
            wrong.extend(help.refuse(&arguments).map(|why| format!("{document}: {line}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 40, "only {commands} command lines were found");
}

#[test]
fn a_command_line_that_is_not_taken_is_found() {
    let mut help = Help::default();
    let mut refuse = |line: &str| help.refuse(&arguments(line).expect("a command line"));
    assert_eq!(refuse("mpirun -n 8 ddp-run job.toml --set backend=mpi   # --no-flag"), None);
    assert_eq!(refuse("source <(ddp-run completions bash)"), None);
    assert_eq!(refuse("cargo run --release -- configs/quickstart.toml --resume never"), None);
    assert_eq!(refuse("ddp-run --nproc_per_node 2 job.toml"), None);
    assert_eq!(refuse("ddp-run help train"), None);
    for wrong in [
        "ddp-run trian SPEC",
        "ddp-run job.toml --nprocs 2",
        "ddp-run bench all-reduce",
        "cargo run -- --nodes",
    ] {
        assert!(refuse(wrong).is_some(), "{wrong}");
    }
    assert_eq!(arguments("cargo run --example mynet -- a.toml"), None);
}

fn variables(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    words.filter(|word| word.starts_with("DDP_RUN_")).collect()
}

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            sources(&entry.path(), text);
        } else {
            *text += &fs::read_to_string(entry.path()).unwrap_or_default();
        }
    }
}

#[test]
fn every_variable_is_one_that_the_code_reads() {
    let mut code = String::new();
    ["src", "crates"].iter().for_each(|folder| sources(&root().join(folder), &mut code));
    let mut read_ones = 0;
    for document in documents() {
        for variable in variables(&read(&document)) {
            assert!(code.contains(&format!("\"{variable}\"")), "{document}: nothing reads {variable}");
            read_ones += 1;
        }
    }
    assert!(read_ones > 10, "{read_ones}");
}
