//! The words of the command line before clap reads them: which subcommand is meant. torchrun's order is taken too:
//! flags first, then what is run.

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// Moves the subcommand to the front: of `--max-restarts 2 plan job.toml`, `plan`. `train` is inserted if the first
/// word that is not a flag is a spec, if there is no such word, and if a flag is unknown, so that the message has
/// `train`'s flags. `words` starts with the program's name.
pub(super) fn with_subcommand_first(root: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let subcommands: Vec<&str> = root.get_subcommands().map(Command::get_name).collect();
    let text: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let of_root = |word: &str| ["-h", "--help", "-V", "--version"].contains(&word);
    match text.get(1) {
        None => return words,
        Some(first) if of_root(first) || (!is_flag(first) && !is_spec(first)) => return words,
        Some(first) if subcommands.contains(&first.as_str()) => return words,
        Some(_) => {}
    }
    let train = root.find_subcommand("train").expect("it is declared");
    match first_operand(train, &text) {
        Some(at) if !is_spec(&text[at]) && text[at] != "--" => {
            let subcommand = words.remove(at);
            words.insert(1, subcommand);
        }
        _ => words.insert(1, "train".into()),
    }
    words
}

/// Writes flags with dashes that were typed with underscores, as torchrun's users do. Unknown flags stay as typed.
pub(super) fn with_dashes(root: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut operands = false;
    let dashed = |word: OsString| {
        operands |= word == "--";
        let name = match word.to_str() {
            Some(flag) if flag.starts_with("--") && !operands => flag.split('=').next().unwrap_or(flag),
            _ => return word,
        };
        let new = name.replace('_', "-");
        match name != new && has_flag(root, &new[2..]) {
            true => (new + &word.to_string_lossy()[name.len()..]).into(),
            false => word,
        }
    };
    words.into_iter().map(dashed).collect()
}

/// Joins `--profile 20` to `--profile=20`: a word after it is not its value, which may be left out.
pub(super) fn with_equals(words: Vec<OsString>) -> Vec<OsString> {
    let (mut joined, mut operands) = (Vec::with_capacity(words.len()), false);
    let mut words = words.into_iter().peekable();
    while let Some(mut word) = words.next() {
        operands |= word == "--";
        if word == "--profile"
            && !operands
            && let Some(steps) = words.next_if(is_number_or_range)
        {
            word.push("=");
            word.push(steps);
        }
        joined.push(word);
    }
    joined
}

/// `20` or `100..120`, and no spec.
fn is_number_or_range(word: &OsString) -> bool {
    let text = word.to_string_lossy();
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn has_flag(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_long() == Some(name))
        || command.get_subcommands().any(|sub| has_flag(sub, name))
}

fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word != "-"
}

/// Whether a word is a spec and not a mistyped subcommand. `-` is standard input.
fn is_spec(word: &str) -> bool {
    word == "-" || word.ends_with(".toml") || word.contains(['/', '.'])
}

/// Index of the first word that is neither a flag of `train` nor its value; `None` if there is none, or if a flag is
/// unknown: its values can't be distinguished from operands then.
fn first_operand(train: &Command, words: &[String]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if !is_flag(word) || word == "--" {
            return Some(at);
        }
        let (arg, alone) = match word.strip_prefix("--") {
            Some(long) => {
                let name = long.split('=').next().unwrap_or(long);
                (train.get_arguments().find(|a| a.get_long() == Some(name)), !long.contains('='))
            }
            // `-vv`, `-t 3` and `-t3`
            None => {
                let short = word.chars().nth(1);
                (train.get_arguments().find(|a| a.get_short() == short), word.chars().count() == 2)
            }
        };
        at += if alone && takes_value(arg?) { 2 } else { 1 };
    }
    None
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::super::built;
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[track_caller]
    fn becomes(typed: &str, read: &str) {
        assert_eq!(with_subcommand_first(&built(), words(typed)), words(read), "{typed}");
    }

    #[test]
    fn a_spec_means_train_before_and_after_flags() {
        becomes("ddp-run a/b.toml --nnodes 1", "ddp-run train a/b.toml --nnodes 1");
        becomes("ddp-run - --nnodes 1", "ddp-run train - --nnodes 1");
        for flags in [
            "--nproc-per-node 2",
            "--nproc-per-node 2 --max-restarts=3 --set a.b=c",
            "-q",
            "-vv --standalone",
            "--standalone --resume never",
            "-t 3 -r3 --tee=0:1,1:2",
            "--",
        ] {
            becomes(&format!("ddp-run {flags} job.toml"), &format!("ddp-run train {flags} job.toml"));
            becomes(&format!("ddp-run {flags} -"), &format!("ddp-run train {flags} -"));
        }
        // A value that looks like a subcommand or a spec is a value.
        becomes("ddp-run --out plan job.toml", "ddp-run train --out plan job.toml");
        becomes("ddp-run --out a/b", "ddp-run train --out a/b");
    }

    #[test]
    fn the_steps_of_a_profile_may_be_left_out() {
        let steps = |typed: &str| {
            let read = with_subcommand_first(&built(), with_equals(words(typed)));
            let read = built().try_get_matches_from(read).unwrap_or_else(|e| panic!("{typed}: {e}"));
            let (name, train) = read.subcommand().expect("one");
            assert_eq!(
                (name, train.get_one::<std::path::PathBuf>("spec")),
                ("train", Some(&"job.toml".into()))
            );
            train.get_one::<record::ProfileSteps>("profile").map(ToString::to_string)
        };
        for typed in
            ["ddp-run --profile job.toml", "ddp-run train --profile job.toml", "ddp-run job.toml --profile"]
        {
            assert_eq!(steps(typed).as_deref(), Some("10"), "{typed}");
        }
        for typed in [
            "ddp-run --profile 20 job.toml",
            "ddp-run job.toml --profile=20",
            "ddp-run train job.toml --profile 20",
        ] {
            assert_eq!(steps(typed).as_deref(), Some("20"), "{typed}");
        }
        assert_eq!(steps("ddp-run --profile 3..5 -q job.toml").as_deref(), Some("3..5"));
        assert_eq!(steps("ddp-run --profile -q job.toml").as_deref(), Some("10"));
        assert_eq!(steps("ddp-run -q job.toml"), None);
        let kept = "ddp-run train -- --profile 20";
        assert_eq!(with_equals(words(kept)), words(kept), "operands");
    }

    #[test]
    fn subcommands_win() {
        becomes("ddp-run --nproc-per-node 2 plan job.toml", "ddp-run plan --nproc-per-node 2 job.toml");
        becomes("ddp-run --out=x train job.toml", "ddp-run train --out=x job.toml");
        // Not a spec: the subcommand that was meant is suggested.
        becomes("ddp-run --out x trian job.toml", "ddp-run trian --out x job.toml");
        for same in [
            "ddp-run check a.toml",
            "ddp-run --version",
            "ddp-run -h",
            "ddp-run trian",
            "ddp-run",
            "ddp-run help train",
        ] {
            becomes(same, same);
        }
    }

    #[test]
    fn an_unknown_flag_is_one_of_train() {
        becomes("ddp-run --nproc-per-nod 2 job.toml", "ddp-run train --nproc-per-nod 2 job.toml");
        becomes("ddp-run -x job.toml", "ddp-run train -x job.toml");
    }

    #[test]
    fn flags_are_taken_with_underscores_and_named_as_documented() {
        let parse = |text: &str| built().try_get_matches_from(with_dashes(&built(), words(text)));
        assert!(parse("ddp-run train a.toml --nproc_per_node=2 --max_restarts 3 --set a_b=c_d").is_ok());
        assert!(parse("ddp-run submit slurm a.toml --gpus_per_node 2").is_ok());
        let wrong = parse("ddp-run train a.toml --max_restarts x").expect_err("no number").to_string();
        assert!(wrong.contains("invalid value 'x' for '--max-restarts <N>'"), "{wrong}");
        let unknown = parse("ddp-run train a.toml --max_restart 1").expect_err("unknown").to_string();
        assert!(
            unknown.contains("'--max_restart' found") && unknown.contains("'--max-restarts'"),
            "{unknown}"
        );
        let kept = "ddp-run train --out=--max_restarts -- --max_restarts";
        assert_eq!(with_dashes(&built(), words(kept)), words(kept), "values and operands");
    }

    #[test]
    fn every_flag_of_train_is_taken_with_underscores() {
        let built = built();
        let train = built.find_subcommand("train").expect("it is declared");
        let dashed = train.get_arguments().filter_map(|a| a.get_long()).filter(|l| l.contains('-'));
        let both: Vec<_> = dashed.map(|l| (format!("--{}", l.replace('-', "_")), format!("--{l}"))).collect();
        assert!(both.len() > 10, "{both:?}");
        for (typed, read) in both {
            assert_eq!(with_dashes(&built, words(&typed)), words(&read));
        }
    }
}
