//! Continues texts with a model that predicts the next character.

use super::super::printed;
use super::Args;
use super::out::{Lines, unusable};
use crate::data::TextEncoding;
use crate::error::{Error, Result};
use crate::show;
use crate::worker::{Generator, Predictor, Sampling};
use serde_json::{Map, json};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

#[derive(Clone, Debug, clap::Args)]
pub struct TextArgs {
    /// Text to continue; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Texts")]
    pub prompt: Vec<String>,
    /// Characters to add
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Texts")]
    pub max_tokens: usize,
    /// Below 1 prefers probable characters more, above 1 less; 0 always takes the most probable one
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = parse_temperature, help_heading = "Texts")]
    pub temperature: f64,
    /// Draw among the K most probable characters only
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Texts")]
    pub top_k: Option<u32>,
    /// Of what is drawn: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Texts")]
    pub seed: u64,
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|t| t.is_finite() && *t >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_owned())
}

/// Continues each prompt: with `--out` a JSON line each, else as text on standard output while it is made.
pub(super) fn run(args: &Args, encoding: &TextEncoding, predictor: &Predictor) -> Result<()> {
    let sampling = Sampling {
        temperature: args.text.temperature,
        top_k: args.text.top_k.map(|k| k as usize),
        seed: args.text.seed,
    };
    let vocabulary: Vec<char> = encoding.vocabulary.chars().collect();
    let mut lines = args.out.as_deref().map(|out| Lines::new(Some(out))).transpose()?;
    let prompts = prompts(args);
    let (count, mut failed, mut first) = (prompts.len(), 0, String::new());
    for (number, (source, prompt)) in prompts.into_iter().enumerate() {
        let tokens = prompt.and_then(|prompt| Ok((tokens(encoding, &prompt)?, prompt)));
        let (tokens, prompt) = match tokens {
            Ok(read) => read,
            Err(why) => {
                if failed == 0 {
                    first = format!("{source}: {why}");
                }
                failed += 1;
                match &mut lines {
                    Some(lines) => lines.write(Map::from_iter([
                        ("input".to_owned(), json!(source)),
                        ("error".to_owned(), json!(why)),
                    ]))?,
                    None => say!("error: {}: {}", show::piece(&source), show::message(&why)),
                }
                continue;
            }
        };
        let mut text = String::new();
        if lines.is_none() {
            stream(if number > 0 { "\n" } else { "" })?;
            stream(&prompt)?;
        }
        let mut generator =
            Generator::new(predictor, tokens, encoding.block_size, vocabulary.len(), sampling, number as u64);
        for _ in 0..args.text.max_tokens {
            let token = generator.next_token()?;
            let next = vocabulary.get(token).copied().unwrap_or('\u{fffd}');
            text.push(next);
            if lines.is_none() {
                stream(next.encode_utf8(&mut [0; 4]))?;
            }
        }
        match &mut lines {
            Some(lines) => lines.write(Map::from_iter([
                ("input".to_owned(), json!(source)),
                ("prompt".to_owned(), json!(prompt)),
                ("text".to_owned(), json!(text)),
                ("tokens".to_owned(), json!(args.text.max_tokens)),
            ]))?,
            None => stream("\n")?,
        }
    }
    lines.map_or(Ok(()), Lines::finish)?;
    unusable(failed, count, &first)
}

/// The prompts, each with where it is from: those of the command line, then those of files.
fn prompts(args: &Args) -> Vec<(String, Result<String, String>)> {
    let typed = args.text.prompt.iter().map(|text| ("--prompt".to_owned(), Ok(text.clone())));
    let files = args.inputs.iter().map(|path| (path.display().to_string(), read(path)));
    typed.chain(files).collect()
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let done = match path == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    done.map_err(|e| format!("cannot read it: {e}"))?;
    String::from_utf8(bytes)
        .map_err(|e| format!("it is not UTF-8 text: invalid byte at offset {}", e.utf8_error().valid_up_to()))
}

fn tokens(encoding: &TextEncoding, prompt: &str) -> Result<Vec<i64>, String> {
    if prompt.is_empty() {
        return Err(
            "the prompt is empty; the model continues at least one character, such as a line end".to_owned()
        );
    }
    encoding.encode(prompt).map_err(|unknown| {
        let count = encoding.vocabulary.chars().count();
        format!(
            "the model does not know the character `{}` (U+{:04X}); it knows the {count} of its training text",
            show::piece(&unknown.to_string()),
            u32::from(unknown)
        )
    })
}

/// Shows a piece at once. A terminal gets no control characters.
fn stream(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    let plain = |c: char| if show::is_control(c) && c != '\n' && c != '\t' { '\u{b7}' } else { c };
    let text = if out.is_terminal() { text.chars().map(plain).collect() } else { text.to_owned() };
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}
