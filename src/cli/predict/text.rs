//! Continues texts with a model that predicts the next token.

use super::Args;
use super::out::{Column, Lines, is_read, unusable};
use base::display;
use base::error::Result;
use data::{TextEncoding, TextStream, Tokenizer};
use job::worker::{Generator, Predictor, Sampling};
use serde_json::{Map, json};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

#[derive(Clone, Debug, clap::Args)]
pub struct TextArgs {
    /// Text to continue; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Texts")]
    pub prompt: Vec<String>,
    /// Tokens to add; a text ends before if the model ends it
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Texts")]
    pub max_tokens: usize,
    /// Below 1 prefers probable tokens more, above 1 less; 0 always takes the most probable one
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = parse_temperature, allow_negative_numbers = true, help_heading = "Texts")]
    pub temperature: f64,
    /// Draw among the K most probable tokens only
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Texts")]
    pub top_k: Option<u32>,
    /// Draw among the fewest tokens that together have the probability P
    #[arg(long, value_name = "P", value_parser = parse_part, allow_negative_numbers = true, help_heading = "Texts")]
    pub top_p: Option<f64>,
    /// Draw among tokens with at least P times the largest probability
    #[arg(long, value_name = "P", value_parser = parse_part, allow_negative_numbers = true, help_heading = "Texts")]
    pub min_p: Option<f64>,
    /// Above 1, tokens that are in the text already become less probable
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = parse_penalty, allow_negative_numbers = true, help_heading = "Texts")]
    pub repetition_penalty: f64,
    /// End a text before this one; repeatable
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new(), allow_hyphen_values = true, help_heading = "Texts")]
    pub stop: Vec<String>,
    /// Seed of the random choices: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Texts")]
    pub seed: u64,
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|t| t.is_finite() && *t >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_owned())
}

fn parse_part(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|part| *part > 0.0 && *part <= 1.0);
    number.ok_or_else(|| "expected a number above 0, at most 1".to_owned())
}

fn parse_penalty(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|penalty| penalty.is_finite() && *penalty > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Continues each prompt: with `--out` a JSON line each, else as text on standard output while it is made.
pub(super) fn run(args: &Args, encoding: &TextEncoding, predictor: &Predictor) -> Result<()> {
    let TextArgs { temperature, top_k, top_p, min_p, repetition_penalty, seed, .. } = args.text;
    let top_k = top_k.map(|k| k as usize);
    let sampling = Sampling { temperature, top_k, top_p, min_p, repetition_penalty, seed };
    let TextEncoding { tokenizer, block_size } = encoding;
    let prompts = prompts(args);
    let mut to = match &args.out {
        Some(out) => To::Lines(Lines::new(Some(out), || COLUMNS.map(Column::new).into(), 0)?),
        None => To::Screen { texts: 0, only: prompts.len() == 1 },
    };
    let (count, mut failed, mut first) = (prompts.len(), 0, String::new());
    for (number, (source, prompt)) in (0..).zip(prompts) {
        let read = prompt.and_then(|prompt| Ok((tokens(tokenizer, &prompt)?, prompt)));
        let is_read = match read {
            Ok((tokens, prompt)) => {
                let size = tokenizer.vocabulary_size();
                let evaluator = predictor.evaluator();
                let text = tokenizer.stream_after(&tokens);
                let generator = Generator::new(evaluator, tokens, *block_size, size, sampling, number);
                let mut continuation = Continuation {
                    generator,
                    end: tokenizer.end().map(|end| end as usize),
                    text,
                    held: Held { stop: &args.text.stop, text: String::new() },
                    left: args.text.max_tokens,
                    tokens: 0,
                };
                to.text(&source, &prompt, &mut continuation)?
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

/// What follows a prompt, piece by piece.
struct Continuation<'a> {
    generator: Generator<'a>,
    end: Option<usize>,
    text: TextStream<'a>,
    held: Held<'a>,
    /// Tokens that may still be drawn.
    left: usize,
    /// Those that were.
    tokens: usize,
}

impl Continuation<'_> {
    /// The next piece of text; `None` at the end.
    fn next(&mut self) -> Result<Option<String>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let token = self.generator.next_token()?;
        let is_end = self.end == Some(token);
        self.tokens += usize::from(!is_end);
        let mut new = if is_end { String::new() } else { self.text.push(token as i64) };
        if is_end || self.left == 0 {
            self.left = 0;
            new += &self.text.finish();
        }
        let (shown, stops) = self.held.shown(&new, self.left == 0);
        if stops {
            self.left = 0;
        }
        Ok(Some(shown))
    }
}

/// Text that may be the beginning of one that ends all.
struct Held<'a> {
    stop: &'a [String],
    text: String,
}

impl Held<'_> {
    /// What is certain of the text when `new` follows, and whether the text ends there. `last`: nothing else follows.
    fn shown(&mut self, new: &str, last: bool) -> (String, bool) {
        self.text.push_str(new);
        let stopped = self.stop.iter().filter_map(|stop| self.text.find(stop.as_str())).min();
        if let Some(at) = stopped {
            self.text.truncate(at);
            return (std::mem::take(&mut self.text), true);
        }
        let may_stop = |at: usize| self.stop.iter().any(|stop| stop.starts_with(&self.text[at..]));
        let ends = self.text.char_indices().map(|(at, _)| at);
        let held = ends.filter(|_| !last).find(|at| may_stop(*at));
        let rest = self.text.split_off(held.unwrap_or(self.text.len()));
        (std::mem::replace(&mut self.text, rest), false)
    }
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
    fn text(&mut self, source: &str, prompt: &str, continuation: &mut Continuation<'_>) -> Result<bool> {
        match self {
            Self::Lines(lines) => {
                let mut text = String::new();
                while let Some(piece) = continuation.next()? {
                    text += &piece;
                }
                lines.write(Map::from_iter([
                    ("input".to_owned(), json!(source)),
                    ("prompt".to_owned(), json!(prompt)),
                    ("text".to_owned(), json!(text)),
                    ("tokens".to_owned(), json!(continuation.tokens)),
                ]))
            }
            Self::Screen { texts, .. } => {
                let between = if *texts > 0 { "\n" } else { "" };
                *texts += 1;
                if !stream(&format!("{between}{prompt}"))? {
                    return Ok(false);
                }
                while let Some(piece) = continuation.next()? {
                    if !stream(&piece)? {
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

fn tokens(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<i64>, String> {
    let tokens = tokenizer.encode(prompt)?;
    match tokens.is_empty() {
        true => {
            Err("the prompt is empty; the model continues at least one token, such as a line end".to_owned())
        }
        false => Ok(tokens.into_iter().map(i64::from).collect()),
    }
}

/// Shows a piece at once, and returns whether there is still a reader. A terminal gets no control characters.
fn stream(text: &str) -> Result<bool> {
    let mut out = std::io::stdout();
    let plain = |c: char| if display::is_control(c) && c != '\n' && c != '\t' { '\u{b7}' } else { c };
    let text = if out.is_terminal() { text.chars().map(plain).collect() } else { text.to_owned() };
    is_read(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_before_what_stops_it() {
        let stop = ["\n\n".to_owned(), "END".to_owned()];
        let shown = |pieces: &[&str]| {
            let mut held = Held { stop: &stop, text: String::new() };
            let mut all = Vec::new();
            for (number, piece) in (1..).zip(pieces) {
                let (text, stops) = held.shown(piece, number == pieces.len());
                all.push(text);
                if stops {
                    all.push("|".to_owned());
                    break;
                }
            }
            all
        };
        assert_eq!(shown(&["ab", "cd"]), ["ab", "cd"]);
        // A line end may be the first of two.
        assert_eq!(shown(&["ab\n", "c\n", "\nd"]), ["ab", "\nc", "", "|"]);
        assert_eq!(shown(&["aE", "N", "DE", "x"]), ["a", "", "", "|"]);
        assert_eq!(shown(&["éE", "N", "d", "E"]), ["é", "", "ENd", "E"]);
        assert_eq!(shown(&["xENDy\n\n"]), ["x", "|"]);
    }
}
