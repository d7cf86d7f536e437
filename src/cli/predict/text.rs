//! Continues texts with a model that predicts the next character.

use super::Args;
use super::out::{Column, Lines, is_read, unusable};
use base::display;
use base::error::Result;
use data::TextEncoding;
use job::worker::{Generator, Predictor, Sampling};
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
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = parse_temperature, allow_negative_numbers = true, help_heading = "Texts")]
    pub temperature: f64,
    /// Draw among the K most probable characters only
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Texts")]
    pub top_k: Option<u32>,
    /// Seed of the random choices: the same seed gives the same text
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
    let prompts = prompts(args);
    let mut to = match &args.out {
        Some(out) => To::Lines(Lines::new(Some(out), || COLUMNS.map(Column::new).into(), 0)?),
        None => To::Screen { texts: 0, only: prompts.len() == 1 },
    };
    let (count, mut failed, mut first) = (prompts.len(), 0, String::new());
    for (number, (source, prompt)) in (0..).zip(prompts) {
        let read = prompt.and_then(|prompt| Ok((tokens(encoding, &prompt)?, prompt)));
        let is_read = match read {
            Ok((tokens, prompt)) => {
                let mut generator = Generator::new(
                    predictor.evaluator(),
                    tokens,
                    encoding.block_size,
                    vocabulary.len(),
                    sampling,
                    number,
                );
                let next = || Ok(vocabulary.get(generator.next_token()?).copied().unwrap_or('\u{fffd}'));
                to.text(&source, &prompt, args.text.max_tokens, next)?
            }
            Err(why) => {
                if failed == 0 {
                    first = format!("{}: {why}", display::piece(&source));
                }
                failed += 1;
                to.error(&source, &why)?
            }
        };
        if !is_read {
            break;
        }
    }
    let has_lines = matches!(to, To::Lines(_));
    if let To::Lines(lines) = to {
        lines.finish()?;
    }
    unusable(failed, count, &first, has_lines)
}

/// Those of a CSV file.
const COLUMNS: [&str; 5] = ["input", "prompt", "text", "tokens", "error"];

/// Where texts go. Its functions return whether there is still a reader.
enum To {
    Lines(Lines),
    /// Standard output, with an empty line between two texts.
    Screen {
        /// So far.
        texts: usize,
        /// There is one prompt.
        only: bool,
    },
}

impl To {
    fn text(
        &mut self,
        source: &str,
        prompt: &str,
        tokens: usize,
        mut next: impl FnMut() -> Result<char>,
    ) -> Result<bool> {
        match self {
            Self::Lines(lines) => {
                let text = (0..tokens).map(|_| next()).collect::<Result<String>>()?;
                lines.write(Map::from_iter([
                    ("input".to_owned(), json!(source)),
                    ("prompt".to_owned(), json!(prompt)),
                    ("text".to_owned(), json!(text)),
                    ("tokens".to_owned(), json!(tokens)),
                ]))
            }
            Self::Screen { texts, .. } => {
                let between = if *texts > 0 { "\n" } else { "" };
                *texts += 1;
                if !stream(&format!("{between}{prompt}"))? {
                    return Ok(false);
                }
                for _ in 0..tokens {
                    if !stream(next()?.encode_utf8(&mut [0; 4]))? {
                        return Ok(false);
                    }
                }
                stream("\n")
            }
        }
    }

    /// The prompt can't be used.
    fn error(&mut self, source: &str, why: &str) -> Result<bool> {
        match self {
            Self::Lines(lines) => lines.write(Map::from_iter([
                ("input".to_owned(), json!(source)),
                ("error".to_owned(), json!(why)),
            ])),
            Self::Screen { only, .. } => {
                // The last message names the first one.
                if !*only {
                    status!("error: {}: {}", display::piece(source), display::message(why));
                }
                Ok(true)
            }
        }
    }
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
        false => base::files::read(path).map(|read| bytes = read),
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
            display::piece(&unknown.to_string()),
            u32::from(unknown)
        )
    })
}

/// Shows a piece at once, and returns whether there is still a reader. A terminal gets no control characters.
fn stream(text: &str) -> Result<bool> {
    let mut out = std::io::stdout();
    let plain = |c: char| if display::is_control(c) && c != '\n' && c != '\t' { '\u{b7}' } else { c };
    let text = if out.is_terminal() { text.chars().map(plain).collect() } else { text.to_owned() };
    is_read(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}
