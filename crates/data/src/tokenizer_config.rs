//! The table `[tokenizer]`.

use crate::store::absolute;
use crate::{Chat, Tokenizer};
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
    let beside = |name: &str| {
        let path = file.with_file_name(name);
        let read = path.exists().then(|| base::files::read_text(&path));
        read.transpose().map_err(|e| format!("{}: {e}", path.display()))
    };
    let config = match beside(CONFIG)? {
        Some(text) => serde_json::from_str(&text).map_err(|e| format!("{CONFIG} beside it: {e}"))?,
        None => Json::Null,
    };
    let text_of = |token: &Json| token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned);
    let said = end.map(str::to_owned).or_else(|| text_of(&config["eos_token"]));
    let (tokenizer, end) = Tokenizer::from_json(text, said.as_deref())?;
    let template = beside("chat_template.jinja")?.or_else(|| chat_template(&config["chat_template"]));
    let named = config.as_object().into_iter().flatten().filter(|(key, _)| key.ends_with("_token"));
    let tokens = named.filter_map(|(key, token)| Some((key.clone(), text_of(token)?))).collect();
    Ok((tokenizer.with_chat(template.map(|template| Chat { template, tokens })), end))
}

const CONFIG: &str = "tokenizer_config.json";

/// The template of tokenizer_config.json, or the one of several that is called `default`.
fn chat_template(said: &Json) -> Option<String> {
    let default = || said.as_array()?.iter().find(|one| one["name"] == "default")?["template"].as_str();
    said.as_str().or_else(default).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str =
        r#"{"model": {"type": "WordLevel", "vocab": {"a": 0, "<x>": 1, "</s>": 2}, "unk_token": "a"}}"#;

    #[test]
    fn files_beside_a_tokenizer_say_what_ends_a_text_and_how_a_conversation_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let found = |end: Option<&str>| {
            let (tokenizer, end) = read(&folder.path().join("tokenizer.json"), end)?;
            Ok::<_, String>((end, tokenizer.chat_template().map(str::to_owned)))
        };
        write("tokenizer.json", WORDS);
        assert_eq!(found(None), Ok(("</s>".to_owned(), None)));
        let template = |text: &str| Some(text.to_owned());
        let config = r#"{"bos_token": "a", "eos_token": {"content": "<x>"}, "add_bos_token": true, "chat_template": "{{ one }}"}"#;
        write("tokenizer_config.json", config);
        let (tokenizer, _) = read(&folder.path().join("tokenizer.json"), None).unwrap();
        let tokens = [("bos_token", "a"), ("eos_token", "<x>")];
        let tokens = tokens.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        assert_eq!(tokenizer.chat().unwrap().tokens, tokens);
        assert_eq!(found(None), Ok(("<x>".to_owned(), template("{{ one }}"))));
        assert_eq!(found(Some("a")), Ok(("a".to_owned(), template("{{ one }}"))));
        let several = r#"[{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]"#;
        write("tokenizer_config.json", &format!(r#"{{"eos_token": "<x>", "chat_template": {several}}}"#));
        assert_eq!(found(None), Ok(("<x>".to_owned(), template("d"))));
        write("chat_template.jinja", "{{ file }}");
        assert_eq!(found(None), Ok(("<x>".to_owned(), template("{{ file }}"))));
        write("tokenizer_config.json", "{");
        assert!(found(None).unwrap_err().starts_with("tokenizer_config.json beside it: "));
    }
}
