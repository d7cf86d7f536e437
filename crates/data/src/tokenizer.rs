//! Turns text into tokens and back: characters, bytes, or a tokenizer of Hugging Face (`tokenizer.json`).

use crate::Content;
use crate::fingerprint::digest_of_parts;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use tokenizers::{Tokenizer as HuggingFace, step_decode_stream};

/// The end of a document, where tokens are bytes.
const END_OF_BYTES: u32 = 256;

/// How text becomes tokens; clones share what has been built.
#[derive(Clone)]
pub struct Tokenizer(Kind);

#[derive(Clone)]
enum Kind {
    /// By index.
    Characters(Arc<[char]>),
    Bytes,
    File(Arc<FromFile>),
}

/// How a text is made of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Chat {
    /// Of Jinja.
    pub template: String,
    /// The texts of tokens that the template may name, such as `bos_token`.
    pub tokens: BTreeMap<String, String>,
}

struct FromFile {
    /// The text of `tokenizer.json`.
    json: String,
    /// Ids are below.
    size: usize,
    /// What documents end with.
    end: u32,
    chat: Option<Chat>,
    built: OnceLock<Result<HuggingFace, String>>,
}

/// The part of `tokenizer.json` that the size of the vocabulary follows from.
#[derive(Deserialize)]
struct TokenizerJson {
    model: ModelJson,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct ModelJson {
    vocab: VocabularyJson,
    dropout: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum VocabularyJson {
    /// BPE, WordPiece and whole words.
    Ids(HashMap<String, u32>),
    /// Unigram: pieces with their scores.
    Pieces(Vec<(String, IgnoredAny)>),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The names that end tokens have in published tokenizers, if no other file says which one it is.
const USUAL_ENDS: [&str; 6] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]"];

impl Tokenizer {
    /// Each of these characters is a token, in this order.
    pub fn of_characters(characters: impl IntoIterator<Item = char>) -> Self {
        Self(Kind::Characters(characters.into_iter().collect()))
    }

    /// Each byte of UTF-8 is a token; token 256 ends a document.
    pub fn of_bytes() -> Self {
        Self(Kind::Bytes)
    }

    /// That of a `tokenizer.json`. `end` is what documents end with; `None`: a token that is usually called so. Returns its text too.
    ///
    /// # Errors
    /// In words: it is not such a file, or has no such token.
    pub fn from_json(json: String, end: Option<&str>) -> Result<(Self, String), String> {
        let read: TokenizerJson =
            serde_json::from_str(&json).map_err(|e| format!("it is no tokenizer of Hugging Face: {e}"))?;
        if read.model.dropout.is_some_and(|dropout| dropout > 0.0) {
            return Err("its `dropout` would make tokens random: remove it".to_owned());
        }
        let added = |name: &str| read.added_tokens.iter().find(|token| token.content == name).map(|t| t.id);
        let of_model = |name: &str| match &read.model.vocab {
            VocabularyJson::Ids(ids) => ids.get(name).copied(),
            VocabularyJson::Pieces(pieces) => {
                pieces.iter().position(|(piece, _)| piece == name).map(|at| at as u32)
            }
        };
        let id_of = |name: &str| added(name).or_else(|| of_model(name));
        let (end, text) = match end {
            Some(name) => (id_of(name).ok_or_else(|| format!("it has no token `{name}`"))?, name),
            None => USUAL_ENDS
                .iter()
                .find_map(|name| Some((id_of(name)?, *name)))
                .ok_or("no token that ends a document is known; `end_token` names it")?,
        };
        let text = text.to_owned();
        let own = match &read.model.vocab {
            VocabularyJson::Ids(ids) => ids.values().max().map_or(0, |id| *id as usize + 1),
            VocabularyJson::Pieces(pieces) => pieces.len(),
        };
        let added = read.added_tokens.iter().map(|token| token.id as usize + 1).max();
        Ok((Self::from_parts(json, own.max(added.unwrap_or(0)), end), text))
    }

    fn from_parts(json: String, size: usize, end: u32) -> Self {
        Self(Kind::File(Arc::new(FromFile { json, size, end, chat: None, built: OnceLock::new() })))
    }

    /// With what makes a text of a conversation; only a tokenizer of Hugging Face has it.
    #[must_use]
    pub fn with_chat(self, chat: Option<Chat>) -> Self {
        match self.0 {
            Kind::File(file) => {
                let FromFile { json, size, end, .. } = &*file;
                let (json, built) = (json.clone(), OnceLock::new());
                Self(Kind::File(Arc::new(FromFile { json, size: *size, end: *end, chat, built })))
            }
            other => Self(other),
        }
    }

    /// Tokens are below this number.
    pub fn vocabulary_size(&self) -> usize {
        match &self.0 {
            Kind::Characters(characters) => characters.len(),
            Kind::Bytes => END_OF_BYTES as usize + 1,
            Kind::File(file) => file.size,
        }
    }

    /// What documents end with; characters have none.
    pub fn end(&self) -> Option<u32> {
        match &self.0 {
            Kind::Characters(_) => None,
            Kind::Bytes => Some(END_OF_BYTES),
            Kind::File(file) => Some(file.end),
        }
    }

    /// The text of the token that documents end with, if it has one.
    pub fn end_text(&self) -> Option<String> {
        match &self.0 {
            Kind::File(file) => file.built().ok()?.id_to_token(file.end),
            Kind::Characters(_) | Kind::Bytes => None,
        }
    }

    /// The text of `tokenizer.json`, if it is one of Hugging Face.
    pub fn json(&self) -> Option<&str> {
        match &self.0 {
            Kind::File(file) => Some(&file.json),
            Kind::Characters(_) | Kind::Bytes => None,
        }
    }

    /// What makes a text of a conversation, if the tokenizer has it.
    pub fn chat(&self) -> Option<&Chat> {
        match &self.0 {
            Kind::File(file) => file.chat.as_ref(),
            Kind::Characters(_) | Kind::Bytes => None,
        }
    }

    /// The Jinja template of [`chat`](Self::chat).
    pub fn chat_template(&self) -> Option<&str> {
        self.chat().map(|chat| chat.template.as_str())
    }

    /// The characters by index, if these are the tokens.
    pub fn characters(&self) -> Option<&[char]> {
        match &self.0 {
            Kind::Characters(characters) => Some(characters),
            Kind::Bytes | Kind::File(_) => None,
        }
    }

    /// What a token is called.
    pub fn unit(&self) -> &'static str {
        match &self.0 {
            Kind::Characters(_) => "character",
            Kind::Bytes => "byte",
            Kind::File(_) => "token",
        }
    }

    /// Of everything that tokens depend on.
    pub fn digest(&self) -> Content {
        match &self.0 {
            Kind::Characters(characters) => {
                digest_of_parts(["characters", &characters.iter().collect::<String>()])
            }
            Kind::Bytes => digest_of_parts(["bytes", ""]),
            Kind::File(file) => digest_of_parts([file.json.as_str(), &file.end.to_string()]),
        }
    }

    /// The tokens of a text, without any that only mark its beginning or end; as transformers' `add_special_tokens=False`.
    ///
    /// # Errors
    /// In words: the text has a character that the model does not know, or the tokenizer can't be used.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        match &self.0 {
            Kind::Characters(characters) => {
                let ids: HashMap<char, u32> = characters.iter().copied().zip(0..).collect();
                let id = |c: char| ids.get(&c).copied().ok_or_else(|| unknown_character(c, characters.len()));
                text.chars().map(id).collect()
            }
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::File(file) => {
                let encoding = file.built()?.encode_fast(text, false);
                Ok(encoding.map_err(|e| format!("the tokenizer fails: {e}"))?.get_ids().to_vec())
            }
        }
    }

    /// The text of these tokens, with the special ones.
    pub fn decode(&self, tokens: &[i64]) -> String {
        let mut stream = self.stream();
        let mut text: String = tokens.iter().map(|token| stream.push(*token)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// For the text of tokens that come one by one.
    fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, tokens: Vec::new(), before: String::new(), shown: 0 }
    }

    /// For the text of tokens that follow others.
    pub fn stream_after(&self, tokens: &[i64]) -> TextStream<'_> {
        let mut stream = self.stream();
        tokens.iter().for_each(|token| drop(stream.push(*token)));
        stream
    }

    /// The bytes of text that each token stands for, by token; the end of a document stands for none. `None` where this depends on the
    /// tokens around it, or the tokens are not of the text as it is.
    pub fn bytes_of_tokens(&self) -> Option<Vec<u32>> {
        match &self.0 {
            Kind::Characters(characters) => Some(characters.iter().map(|c| c.len_utf8() as u32).collect()),
            Kind::Bytes => Some((0..=END_OF_BYTES).map(|token| u32::from(token != END_OF_BYTES)).collect()),
            Kind::File(file) => {
                let built = file.built().ok()?;
                // Its tokens are written with a character for each byte.
                let decoder = serde_json::to_value(built.get_decoder()?).ok()?;
                let adds_space = serde_json::to_string(&built.get_pre_tokenizer()).ok()?;
                let adds_space = adds_space.contains("\"add_prefix_space\":true");
                if decoder["type"] != "ByteLevel" || built.get_normalizer().is_some() || adds_space {
                    return None;
                }
                let added = built.get_added_tokens_decoder();
                let bytes = |token: u32| match added.get(&token) {
                    Some(_) if token == file.end => 0,
                    Some(token) => token.content.len() as u32,
                    None => built.id_to_token(token).map_or(0, |text| text.chars().count() as u32),
                };
                Some((0..file.size as u32).map(bytes).collect())
            }
        }
    }
}

impl FromFile {
    fn built(&self) -> Result<&HuggingFace, String> {
        let build = || {
            let mut built =
                HuggingFace::from_bytes(&self.json).map_err(|e| format!("the tokenizer is invalid: {e}"))?;
            // A file may say how batches for a model are made; whole texts are tokenised here.
            built.with_padding(None);
            built.with_truncation(None).map_err(|e| format!("the tokenizer is invalid: {e}"))?;
            // The library numbers added tokens by the vocabulary, whatever the file says.
            let read: TokenizerJson = serde_json::from_str(&self.json).map_err(|e| e.to_string())?;
            for AddedToken { id, content } in &read.added_tokens {
                if let Some(other) = built.token_to_id(content).filter(|other| other != id) {
                    return Err(format!(
                        "the tokenizer is invalid: its added token `{content}` has the id {id}, which is {other} by its vocabulary"
                    ));
                }
            }
            Ok(built)
        };
        self.built.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

fn unknown_character(c: char, known: usize) -> String {
    let shown = base::display::piece(&c.to_string());
    format!(
        "the model does not know the character `{shown}` (U+{:04X}); it knows the {known} of its training text",
        u32::from(c)
    )
}

/// The text of a growing sequence of tokens. A character that is not complete yet waits for further ones.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// Those whose text has not been returned, after those that it depends on.
    tokens: Vec<u32>,
    /// The text of the tokens that have been returned.
    before: String,
    /// How many have been.
    shown: usize,
}

impl TextStream<'_> {
    /// The text that this token adds, which may be empty.
    pub fn push(&mut self, token: i64) -> String {
        let known =
            u32::try_from(token).ok().filter(|token| (*token as usize) < self.tokenizer.vocabulary_size());
        let Some(token) = known else { return self.finish() + "\u{fffd}" };
        match &self.tokenizer.0 {
            Kind::Characters(characters) => characters[token as usize].to_string(),
            Kind::Bytes => self.push_byte(token),
            Kind::File(file) => {
                let Ok(built) = file.built() else { return String::new() };
                let Self { tokens, before, shown, .. } = self;
                match step_decode_stream(built, vec![token], false, tokens, before, shown) {
                    Ok(text) => text.unwrap_or_default(),
                    // Its text changes that of tokens before it, which has been returned.
                    Err(_) => {
                        (self.before, self.shown) = (String::new(), 0);
                        self.tokens = vec![token];
                        self.finish()
                    }
                }
            }
        }
    }

    fn push_byte(&mut self, token: u32) -> String {
        let Ok(byte) = u8::try_from(token) else { return self.finish() };
        self.tokens.push(u32::from(byte));
        let bytes: Vec<u8> = self.tokens.iter().map(|byte| *byte as u8).collect();
        match std::str::from_utf8(&bytes) {
            Err(e) if e.error_len().is_none() => String::new(),
            _ => self.finish(),
        }
    }

    /// The rest of the text. What follows is another one.
    pub fn finish(&mut self) -> String {
        let tokens = std::mem::take(&mut self.tokens);
        let (before, shown) = (std::mem::take(&mut self.before), std::mem::take(&mut self.shown));
        match &self.tokenizer.0 {
            Kind::Characters(_) => String::new(),
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().map(|byte| *byte as u8).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::File(_) if tokens.len() <= shown => String::new(),
            Kind::File(file) => {
                let decoded = file.built().ok().and_then(|built| built.decode(&tokens, false).ok());
                decoded.and_then(|text| Some(text.get(before.len()..)?.to_owned())).unwrap_or_default()
            }
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({}s below {})", self.unit(), self.vocabulary_size())
    }
}

/// Whether texts have the same tokens.
impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Characters(own), Kind::Characters(other)) => own == other,
            (Kind::Bytes, Kind::Bytes) => true,
            (Kind::File(own), Kind::File(other)) => {
                Arc::ptr_eq(own, other) || (own.end == other.end && own.json == other.json)
            }
            _ => false,
        }
    }
}

/// A [`Tokenizer`] in a file.
#[derive(Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Stored {
    Bytes,
    #[serde(rename = "huggingface")]
    HuggingFace {
        size: usize,
        end: u32,
        json: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat: Option<Chat>,
    },
}

/// [`crate::TextEncoding`] in a file: of characters, it is what it was before there were others.
#[derive(Deserialize, Serialize)]
pub(crate) struct StoredEncoding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vocabulary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<Stored>,
    block_size: usize,
}

impl From<crate::TextEncoding> for StoredEncoding {
    fn from(encoding: crate::TextEncoding) -> Self {
        let block_size = encoding.block_size;
        let (vocabulary, tokenizer) = match &encoding.tokenizer.0 {
            Kind::Characters(characters) => (Some(characters.iter().collect()), None),
            Kind::Bytes => (None, Some(Stored::Bytes)),
            Kind::File(file) => {
                let FromFile { json, size, end, chat, .. } = &**file;
                let (json, chat) = (json.clone(), chat.clone());
                (None, Some(Stored::HuggingFace { size: *size, end: *end, json, chat }))
            }
        };
        Self { vocabulary, tokenizer, block_size }
    }
}

impl TryFrom<StoredEncoding> for crate::TextEncoding {
    type Error = &'static str;

    fn try_from(stored: StoredEncoding) -> Result<Self, Self::Error> {
        let tokenizer = match (stored.vocabulary, stored.tokenizer) {
            (Some(characters), None) => Tokenizer::of_characters(characters.chars()),
            (None, Some(Stored::Bytes)) => Tokenizer::of_bytes(),
            (None, Some(Stored::HuggingFace { size, end, json, chat })) => {
                Tokenizer::from_parts(json, size, end).with_chat(chat)
            }
            _ => return Err("expected either `vocabulary` or `tokenizer`"),
        };
        Ok(Self { tokenizer, block_size: stored.block_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_outside_of_the_vocabulary_are_named() {
        let tokenizer = Tokenizer::of_characters("abé".chars());
        assert_eq!(tokenizer.encode("éab"), Ok(vec![2, 0, 1]));
        let why = tokenizer.encode("ab\u{202e}").unwrap_err();
        assert!(why.starts_with("the model does not know the character `\u{b7}` (U+202E)"), "{why}");
        assert_eq!(tokenizer.decode(&[2, 0, 7, -1]), "éa\u{fffd}\u{fffd}");
        assert_eq!(tokenizer.bytes_of_tokens(), Some(vec![1, 1, 2]));
    }

    #[test]
    fn bytes_wait_for_the_rest_of_their_character() {
        let tokenizer = Tokenizer::of_bytes();
        let ids = tokenizer.encode("a€b").unwrap();
        assert_eq!(ids, [97, 0xe2, 0x82, 0xac, 98]);
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().map(|id| stream.push(i64::from(*id))).collect();
        assert_eq!(pieces, ["a", "", "", "€", "b"]);
        assert_eq!(
            (stream.push(0xe2), stream.push(98), stream.finish()),
            (String::new(), "\u{fffd}b".into(), String::new())
        );
        assert_eq!(tokenizer.decode(&[0xe2, 0x82]), "\u{fffd}");
        assert_eq!(tokenizer.decode(&[97, 256, 98]), "ab");
        assert_eq!(tokenizer.vocabulary_size(), 257);
    }

    const WORDS: &str = r#"{"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 2, "[UNK]": 1}, "unk_token": "[UNK]"},
        "added_tokens": [{"id": 3, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
        "pre_tokenizer": {"type": "Whitespace"}, "padding": {"strategy": {"Fixed": 9}, "direction": "Right",
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}, "truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}}"#;

    #[test]
    fn a_file_says_how_many_tokens_there_are_and_which_one_ends_a_document() {
        let (tokenizer, end) = Tokenizer::from_json(WORDS.to_owned(), None).unwrap();
        assert_eq!(end, "</s>");
        assert_eq!((tokenizer.vocabulary_size(), tokenizer.end()), (4, Some(3)));
        assert_eq!(Tokenizer::from_json(WORDS.to_owned(), Some("b")).unwrap().0.end(), Some(2));
        // Neither padded nor cut.
        assert_eq!(tokenizer.encode("a b c"), Ok(vec![0, 2, 1]));
        let why = |json: &str, end| Tokenizer::from_json(json.to_owned(), end).unwrap_err();
        assert_eq!(why(WORDS, Some("<eos>")), "it has no token `<eos>`");
        assert_eq!(
            why(&WORDS.replace("</s>", "<x>"), None),
            "no token that ends a document is known; `end_token` names it"
        );
        assert!(why("{}", None).starts_with("it is no tokenizer of Hugging Face: "));
        // It may be invalid in what is only read when it is used.
        let broken = Tokenizer::from_json(WORDS.replace("Whitespace", "Nothing"), None).unwrap().0;
        assert!(broken.encode("a").unwrap_err().starts_with("the tokenizer is invalid: "));
    }

    #[test]
    fn tokens_that_the_library_numbers_otherwise_are_refused() {
        let moved = WORDS.replace("\"id\": 3", "\"id\": 2");
        let why = Tokenizer::from_json(moved, None).unwrap().0.encode("a").unwrap_err();
        assert!(why.contains("its added token `</s>` has the id 2, which is 3 "), "{why}");
        let random = WORDS.replace("\"unk_token\": \"[UNK]\"", "\"unk_token\": \"[UNK]\", \"dropout\": 0.1");
        assert!(
            Tokenizer::from_json(random, None).unwrap_err().contains("`dropout` would make tokens random")
        );
    }

    #[test]
    fn encodings_are_stored_with_their_tokenizer() {
        let (file, _) = Tokenizer::from_json(WORDS.to_owned(), None).unwrap();
        let tokens = [("bos_token".to_owned(), "a".to_owned())].into();
        let with_template =
            file.clone().with_chat(Some(Chat { template: "{{ messages }}".to_owned(), tokens }));
        for tokenizer in [Tokenizer::of_characters("ba".chars()), Tokenizer::of_bytes(), file, with_template]
        {
            let encoding = crate::TextEncoding { tokenizer, block_size: 3 };
            let json = serde_json::to_string(&encoding).unwrap();
            let read: crate::TextEncoding = serde_json::from_str(&json).unwrap();
            assert_eq!(read.tokenizer.chat(), encoding.tokenizer.chat());
            assert_eq!(read, encoding);
        }
        // As checkpoints of versions without tokenizers have it.
        let old: crate::TextEncoding =
            serde_json::from_str(r#"{"vocabulary": "ba", "block_size": 3}"#).unwrap();
        assert_eq!(old.tokenizer, Tokenizer::of_characters("ba".chars()));
        assert!(serde_json::from_str::<crate::TextEncoding>(r#"{"block_size": 3}"#).is_err());
    }
}
