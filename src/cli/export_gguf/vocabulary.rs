//! The tokenizer as llama.cpp has it: a BPE of bytes, each written as a character (model `gpt2` there).

use super::file::{Metadata, Value};
use super::model::refused;
use super::pre;
use base::display::piece;
use base::error::{Error, Result};
use data::Tokenizer;
use serde_json::{Map, Value as Json};
use std::collections::HashSet;

/// `llama_token_type`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal = 1,
    /// Of no text, such as the end of a document.
    Control = 3,
    /// Found in a text before it is cut.
    UserDefined = 4,
    /// A row of the embedding that is no token.
    Unused = 5,
}

#[derive(Debug, PartialEq)]
pub(super) struct Vocabulary {
    pre: &'static str,
    tokens: Vec<(String, Kind)>,
    merges: Vec<String>,
    /// By the names of llama.cpp.
    special: Vec<(&'static str, u32)>,
    /// What llama.cpp does otherwise with few texts.
    pub warnings: Vec<String>,
}

impl Vocabulary {
    /// That of an embedding with so many rows.
    ///
    /// # Errors
    /// Exit 78: llama.cpp is not known to make the same tokens.
    pub fn of(tokenizer: &Tokenizer, rows: usize) -> Result<Self> {
        let end = tokenizer.end().unwrap_or_default();
        let mut found = match tokenizer.json() {
            Some(json) => {
                let json: Json = serde_json::from_str(json)
                    .map_err(|e| Error::data(format!("the tokenizer is not JSON: {e}")))?;
                of_json(&json, end)?
            }
            None if tokenizer.characters().is_some() => {
                let why = "the model's tokens are characters, and llama.cpp has no such tokenizer";
                let hint = "train with `[tokenizer] kind = \"bytes\"`, or with one that `ddp-run tokenizer train` makes";
                return Err(refused(why).hint(hint));
            }
            None => of_bytes(end),
        };
        if found.tokens.len() > rows {
            let what = format!("the tokenizer has {} tokens, the model {rows}", found.tokens.len());
            return Err(Error::data(what));
        }
        found.tokens.extend((found.tokens.len()..rows).map(unused));
        // llama.cpp finds tokens by their text.
        let mut texts = HashSet::new();
        match found.tokens.iter().find(|(text, _)| !texts.insert(text.as_str())) {
            Some((text, _)) => Err(refused(format!("two tokens are called `{}`", piece(text)))),
            None => Ok(found),
        }
    }

    /// The keys of the metadata.
    pub fn metadata(self, chat_template: Option<&str>) -> Metadata {
        let kinds = self.tokens.iter().map(|(_, kind)| *kind as i32).collect();
        let tokens = self.tokens.into_iter().map(|(text, _)| text).collect();
        let mut found = vec![
            ("tokenizer.ggml.model".to_owned(), "gpt2".into()),
            ("tokenizer.ggml.pre".to_owned(), self.pre.into()),
            ("tokenizer.ggml.tokens".to_owned(), Value::Strings(tokens)),
            ("tokenizer.ggml.token_type".to_owned(), Value::I32s(kinds)),
            ("tokenizer.ggml.merges".to_owned(), Value::Strings(self.merges)),
        ];
        let ids = self.special.into_iter();
        found.extend(ids.map(|(name, id)| (format!("tokenizer.ggml.{name}_token_id"), Value::U32(id))));
        // Training adds none either.
        found.push(("tokenizer.ggml.add_bos_token".to_owned(), Value::Bool(false)));
        found.extend(chat_template.map(|text| ("tokenizer.chat_template".to_owned(), text.into())));
        found
    }
}

/// As llama.cpp's converter calls a row that is no token.
fn unused(id: usize) -> (String, Kind) {
    (format!("[PAD{id}]"), Kind::Unused)
}

/// The character of each byte: its own if it is visible in Latin-1, else one of those from U+0100 on.
fn alphabet() -> Vec<char> {
    let mut others = (0x100..).filter_map(char::from_u32);
    let of_byte = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next(),
    };
    (0..=u8::MAX).filter_map(of_byte).collect()
}

fn of_bytes(end: u32) -> Vocabulary {
    let mut tokens: Vec<_> = alphabet().into_iter().map(|c| (c.to_string(), Kind::Normal)).collect();
    tokens.push(("<|endoftext|>".to_owned(), Kind::Control));
    // Nothing is merged, so it does not matter how texts are cut.
    let special = vec![("bos", end), ("eos", end)];
    Vocabulary { pre: "gpt-2", tokens, merges: Vec::new(), special, warnings: Vec::new() }
}

/// # Errors
/// It is none of byte-level BPE, or llama.cpp does not know how it cuts texts.
fn of_json(json: &Json, end: u32) -> Result<Vocabulary> {
    let model = &json["model"];
    let kind = model["type"].as_str().unwrap_or(if model["merges"].is_array() { "BPE" } else { "another" });
    let is_of_pieces = model["byte_fallback"] == true || json["pre_tokenizer"]["type"] == "Metaspace";
    if kind != "BPE" || is_of_pieces {
        let kind = if kind == "BPE" { "BPE of SentencePiece" } else { kind };
        let why =
            format!("the tokenizer is {kind}, whose tokens GGUF can't say exactly; byte-level BPE it can");
        let hint =
            "`--hf DIR`, then convert_hf_to_gguf.py of llama.cpp, with the published tokenizer.model in DIR";
        return Err(refused(why).hint(hint));
    }
    let ignore_merges = model["ignore_merges"].as_bool().unwrap_or(false);
    let pre = pre::name(&json["pre_tokenizer"], ignore_merges)
        .ok_or_else(|| unknown("pre_tokenizer", &json["pre_tokenizer"]))?;
    let mut warnings = Vec::new();
    match json["normalizer"]["type"].as_str() {
        None => {}
        Some("NFC") => warnings.push(
            "the tokenizer composes characters (NFC), llama.cpp does not: it makes other tokens of decomposed ones"
                .to_owned(),
        ),
        Some(_) => return Err(unknown("normalizer", &json["normalizer"])),
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[key].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(unknown(key, &model[key]));
        }
    }
    let tokens = tokens(json, &mut warnings)?;
    missing_bytes(&tokens, !model["unk_token"].is_null(), &mut warnings)?;
    let id = |text: &Json| tokens.iter().position(|(token, _)| Some(token.as_str()) == text.as_str());
    let id_of = |text: &Json| id(text).map(|id| id as u32);
    let mut special = vec![("bos", begin(json).unwrap_or(end)), ("eos", end)];
    special.extend(id_of(&model["unk_token"]).map(|id| ("unknown", id)));
    special.extend(id_of(&json["padding"]["pad_token"]).map(|id| ("padding", id)));
    Ok(Vocabulary { pre, merges: merges(&model["merges"])?, tokens, special, warnings })
}

/// Looks for bytes without a token, which are left out of texts.
///
/// # Errors
/// The tokenizer has a token for them, which llama.cpp does not use.
fn missing_bytes(tokens: &[(String, Kind)], has_unknown: bool, warnings: &mut Vec<String>) -> Result<()> {
    let known: HashSet<&str> = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let is_missing = |(byte, c): &(u8, char)| {
        // Others are in no text.
        let is_used = !matches!(byte, 0xc0 | 0xc1 | 0xf5..);
        is_used && !known.contains(&*c.encode_utf8(&mut [0; 4]))
    };
    let missing = (0..=u8::MAX).zip(alphabet()).filter(is_missing).count();
    match missing {
        0 => Ok(()),
        _ if has_unknown => {
            let why = "the tokenizer has an `unk_token` for bytes, and llama.cpp leaves them out";
            Err(refused(why))
        }
        _ => {
            warnings.push(format!(
                "{missing} bytes are no tokens: where a text has them, llama.cpp may make other tokens of what surrounds them"
            ));
            Ok(())
        }
    }
}

fn unknown(what: &str, found: &Json) -> Error {
    let shown: String = found.to_string().chars().take(200).collect();
    let why = format!("llama.cpp is not known to compute the tokenizer's `{what}`: {}", piece(&shown));
    let hint =
        "`--hf DIR` writes the tokenizer as it is; convert_hf_to_gguf.py of llama.cpp may know the model";
    refused(why).hint(hint)
}

/// Of the vocabulary and the added ones, by id.
fn tokens(json: &Json, warnings: &mut Vec<String>) -> Result<Vec<(String, Kind)>> {
    let invalid = || Error::data("the tokenizer is invalid: its vocabulary does not have names with ids");
    let mut found: Vec<Option<(String, Kind)>> = Vec::new();
    let mut put = |id: &Json, text: &str, kind: Kind| -> Result<()> {
        let id = id.as_u64().filter(|id| *id < u64::from(u32::MAX)).ok_or_else(invalid)? as usize;
        if found.len() <= id {
            found.resize(id + 1, None);
        }
        found[id] = Some((text.to_owned(), kind));
        Ok(())
    };
    for (text, id) in json["model"]["vocab"].as_object().ok_or_else(invalid)? {
        put(id, text, Kind::Normal)?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let text = token["content"].as_str().ok_or_else(invalid)?;
        // As llama.cpp's converter: some published files do not mark all of theirs.
        let looks_special = text.starts_with("<|") && text.ends_with("|>");
        let is_special = token["special"] == true || looks_special;
        put(&token["id"], text, if is_special { Kind::Control } else { Kind::UserDefined })?;
        let strict: Vec<&str> =
            ["lstrip", "rstrip", "single_word"].into_iter().filter(|key| token[*key] == true).collect();
        if !strict.is_empty() {
            let text = piece(text);
            warnings.push(format!("llama.cpp ignores `{}` of the token `{text}`", strict.join("`, `")));
        }
    }
    Ok(found.into_iter().enumerate().map(|(id, token)| token.unwrap_or_else(|| unused(id))).collect())
}

/// Each as its two parts with a space between them.
fn merges(json: &Json) -> Result<Vec<String>> {
    let invalid = || Error::data("the tokenizer is invalid: its merges are not pairs of tokens");
    let merge = |merge: &Json| {
        let pair = match merge {
            Json::String(text) => text.split_once(' '),
            other => other[0].as_str().zip(other[1].as_str()),
        };
        let is_clear = |(left, right): &(&str, &str)| !left.contains(' ') && !right.contains(' ');
        pair.filter(is_clear).map(|(left, right)| format!("{left} {right}")).ok_or_else(invalid)
    };
    json.as_array().ok_or_else(invalid)?.iter().map(merge).collect()
}

/// The token that the tokenizer puts before texts for models that were trained so.
fn begin(json: &Json) -> Option<u32> {
    let processor = &json["post_processor"];
    let nested = processor["processors"].as_array().into_iter().flatten();
    let template =
        std::iter::once(processor).chain(nested).find(|one| one["type"] == "TemplateProcessing")?;
    let name = template["single"][0]["SpecialToken"]["id"].as_str()?;
    let tokens: &Map<String, Json> = template["special_tokens"].as_object()?;
    u32::try_from(tokens.get(name)?["ids"][0].as_u64()?).ok()
}

#[cfg(test)]
#[path = "vocabulary_tests.rs"]
mod tests;
