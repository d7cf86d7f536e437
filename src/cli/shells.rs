//! The scripts of shells whose completion clap's scripts do not fit, and the answers to these scripts.

use super::shell_words::Typed;
use clap::Command;
use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use std::ffi::OsString;
use std::io::{Result, Write};
use std::path::Path;

/// The value of a variable of the environment.
fn variables(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The number of the word that is being typed, if the script says it.
fn index() -> Option<usize> {
    variables("_CLAP_COMPLETE_INDEX")?.parse().ok()
}

/// The words of the command line that `shell` asks about, as the program would get them, and the one that is being typed.
pub fn read(shell: &str, words: &[OsString]) -> (Vec<OsString>, Typed) {
    let last = words.len().saturating_sub(1);
    let of = |(at, word): (usize, &OsString)| match (shell, word.to_str()) {
        ("bash" | "zsh", Some(word)) => Some(Typed::new(word, false, &variables)),
        // Fish quotes the last word alone.
        ("fish", Some(word)) if at == last => Some(Typed::new(word, true, &variables)),
        ("fish", Some(word)) => Some(Typed::without_quotes(word, &variables)),
        // Words that are not UTF-8, and other shells: unchanged.
        _ => None,
    };
    let typed: Vec<Option<Typed>> = words.iter().enumerate().map(of).collect();
    let plain = |(typed, word): (&Option<Typed>, &OsString)| match typed {
        Some(typed) => typed.plain.clone().into(),
        None => word.clone(),
    };
    let plain = typed.iter().zip(words).map(plain).collect();
    (plain, typed.get(index().unwrap_or(last)).cloned().flatten().unwrap_or_default())
}

/// `word`, or `'word'`, as bash and zsh read it. Zsh takes no quotes in `#compdef`.
fn quoted(word: &str) -> String {
    match word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A script with its names filled in.
fn script(template: &str, function: &str, (var, bin, completer): (&str, &str, &str)) -> String {
    template
        .replace("FUNCTION", function)
        .replace("PROGRAM", &quoted(bin))
        .replace("VARIABLE", var)
        .replace("COMPLETER", &quoted(completer))
}

/// A shell that clap's script does not fit.
pub struct OwnScript {
    clap: &'static dyn EnvCompleter,
    typed: Typed,
}

impl OwnScript {
    /// Bash splits words at `=` and `:`, too, so clap's script would complete no value of `--set`; and it inserts words
    /// unquoted.
    pub fn bash(typed: Typed) -> Self {
        Self { clap: &Bash, typed }
    }

    /// clap's script passes words with their quotes, completes no path that begins with a variable, and adds a blank to `KEY=`,
    /// before its value can be typed.
    pub fn zsh() -> Self {
        Self { clap: &Zsh, typed: Typed::default() }
    }

    /// Fish compares words with the `~` that is typed.
    pub fn fish(typed: Typed) -> Self {
        Self { clap: &Fish, typed }
    }
}

impl EnvCompleter for OwnScript {
    fn name(&self) -> &'static str {
        self.clap.name()
    }

    fn is(&self, name: &str) -> bool {
        self.clap.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> Result<()> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let (template, function) = match self.name() {
            "bash" => (BASH, "_complete_".chars().chain(name.chars().map(plain)).collect()),
            "zsh" => (ZSH, format!("_clap_dynamic_completer_{}", name.replace('-', "_"))),
            _ => return self.clap.write_registration(var, name, bin, completer, buf),
        };
        buf.write_all(script(template, &function, (var, bin, completer)).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<()> {
        match self.name() {
            "bash" => {
                let separator = variables("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
                let found = complete(cmd, args, index().unwrap_or_default(), current_dir)?;
                let word =
                    |found: &CompletionCandidate| self.typed.completed(&found.get_value().to_string_lossy());
                let words: Vec<String> = found.iter().map(word).collect();
                buf.write_all(words.join(&separator).as_bytes())
            }
            "fish" => {
                let mut answer = Vec::new();
                self.clap.write_complete(cmd, args, current_dir, &mut answer)?;
                for line in String::from_utf8_lossy(&answer).lines() {
                    writeln!(buf, "{}", self.typed.with_tilde(line, &variables))?;
                }
                Ok(())
            }
            _ => self.clap.write_complete(cmd, args, current_dir, buf),
        }
    }
}

const BASH: &str = r#"FUNCTION() {
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
    # The answers are quoted as the word that is being typed.
    mapfile -t COMPREPLY < <(_CLAP_COMPLETE_INDEX=$index _CLAP_IFS=$'\n' VARIABLE=bash COMPLETER -- "${words[@]}" 2> /dev/null)
    # Bash replaces what is behind the last `=` or `:`, or behind an open quote.
    COMPREPLY=("${COMPREPLY[@]#"${whole%"$2"}"}")
    if [[ ${COMPREPLY[0]-} == *[=/] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o bashdefault -o default -o nosort -F FUNCTION PROGRAM
"#;

const ZSH: &str = r#"#compdef PROGRAM
function FUNCTION() {
    local completions=("${(@f)$( \
        _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) VARIABLE=zsh COMPLETER -- "${words[@]}" 2> /dev/null \
    )}")
    # A path is completed behind its last slash: what is before it stays as it is typed, with its `~`, variables and quotes.
    local in_folder=
    compset -P '*/' && in_folder=1
    local -a dirs=() keys=() other=()
    local completion value name
    for completion in $completions; do
        value=${completion%%:*}
        if [[ -n $in_folder ]]; then
            name=${${value%/}##*/}
            completion=${completion#"${${value%/}%"$name"}"}
            value=${completion%%:*}
        fi
        if [[ $value == */ ]]; then
            dirs+=("${value%/}${completion#"$value"}")
        elif [[ $value == *= ]]; then
            keys+=("$completion")
        else
            other+=("$completion")
        fi
    done
    [[ -n $dirs ]] && _describe -V 'values' dirs -S '/' -r '/'
    [[ -n $keys ]] && _describe -V 'values' keys -S ''
    [[ -n $other ]] && _describe -V 'values' other
}

compdef FUNCTION PROGRAM
"#;
