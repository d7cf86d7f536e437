//! The table `[tokenizer]`.

use crate::Tokenizer;
use crate::store::absolute;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::path::{Path, PathBuf};

choice! {
    /// What a token is.
    TokenizerKind:
    /// Each character of the text, in the order of their code points.
    Chars = "chars",
    /// Each byte of the text in UTF-8; token 256 ends a document.
    Bytes = "bytes",
    /// A tokenizer of Hugging Face, in `path`.
    HuggingFace = "huggingface",
}

/// How text becomes tokens, where a data set is text. Rows of a text of characters begin at each character; those of other tokens follow
/// each other, so that an epoch trains each token once.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct TokenizerKeys {
    /// What a token is. Default: `chars`, or `huggingface` with `path`.
    kind: Option<TokenizerKind>,
    /// A tokenizer.json, or a folder of Hugging Face with one.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    path: Option<PathBuf>,
    /// The token of the tokenizer that ends a document. Default: `eos_token` of tokenizer_config.json beside it, or one that is
    /// usually called so, such as `<|endoftext|>`.
    end_token: Option<String>,
}

/// How the text of a job becomes tokens.
#[derive(Clone, Debug, Default)]
pub enum TokenizerPlan {
    /// The characters of the text are the tokens.
    #[default]
    Characters,
    /// What is known without the text.
    Known(Tokenizer),
    /// The file is missing.
    Missing(PathBuf),
}

impl TokenizerPlan {
    /// Reads `[tokenizer]`; characters if it is not there.
    pub fn read(fields: &mut Fields<'_>, is_there: bool) -> Self {
        let Some(TokenizerKeys { kind, path, end_token }) = fields.config_if(is_there) else {
            return Self::default();
        };
        let implied = if path.is_some() { TokenizerKind::HuggingFace } else { TokenizerKind::Chars };
        let kind = fields.or_default("kind", kind, implied);
        if kind != TokenizerKind::HuggingFace {
            fields.misplaced(&["path", "end_token"], "where tokens are characters or bytes");
            return if kind == TokenizerKind::Bytes {
                Self::Known(Tokenizer::of_bytes())
            } else {
                Self::Characters
            };
        }
        let Some(path) = path else {
            fields.problem_with_hint(
                "kind",
                "a tokenizer of Hugging Face needs the key `path`",
                "it names a tokenizer.json, or a folder with one",
            );
            return Self::default();
        };
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path };
        // As other data, it is looked for before a run starts.
        if !file.exists() {
            return Self::Missing(file);
        }
        match read(&file, end_token.as_deref()) {
            Ok((tokenizer, end)) => {
                fields.or_default("end_token", end_token, end);
                Self::Known(tokenizer)
            }
            Err(why) => {
                let key = if fields.has("end_token") { "end_token" } else { "path" };
                fields.problem(key, format!("{}: {why}", file.display()));
                Self::default()
            }
        }
    }

    /// The tokenizer; `None` for characters.
    ///
    /// # Errors
    /// The file is missing.
    pub fn get(&self) -> Result<Option<&Tokenizer>> {
        match self {
            Self::Characters => Ok(None),
            Self::Known(tokenizer) => Ok(Some(tokenizer)),
            Self::Missing(file) => {
                Err(Error::data(format!("the tokenizer {} is missing", absolute(file).display())).hint(
                    "copy it there, or correct `[tokenizer] path` (a relative one starts in the working directory of ddp-run)",
                ))
            }
        }
    }

    /// The tokenizer, if it is known.
    pub fn known(&self) -> Option<&Tokenizer> {
        self.get().ok().flatten()
    }
}

/// # Errors
/// In words.
fn read(file: &Path, end: Option<&str>) -> Result<(Tokenizer, String), String> {
    let text = base::files::read_text(file).map_err(|e| e.to_string())?;
    let said = end.map(str::to_owned).map_or_else(|| end_of_config(file), |end| Ok(Some(end)))?;
    Tokenizer::from_json(text, said.as_deref())
}

/// `eos_token` of tokenizer_config.json, which is the token or an object with its content.
fn end_of_config(file: &Path) -> Result<Option<String>, String> {
    let path = file.with_file_name("tokenizer_config.json");
    if !path.exists() {
        return Ok(None);
    }
    let text = base::files::read_text(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let config: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let end = &config["eos_token"];
    Ok(end.as_str().or_else(|| end["content"].as_str()).map(str::to_owned))
}
