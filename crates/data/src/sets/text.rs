//! `text` and `tinyshakespeare`: texts as a sequence of tokens, divided into windows: the input is `block_size` tokens, the target the
//! same shifted by one. Without a tokenizer the tokens are all characters in the text, by code point. The last `val_split` of it is used
//! for validation.

use crate::fingerprint::digest_of_parts;
use crate::images::wrong_buffers;
use crate::store::{Cache, NamedFile, Published, fitting};
use crate::tokens::{
    Pack, PackedRows, Packing, TextFiles, Texts, TokenFile, TokenFiles, is_json_lines, not_utf8, tokens,
};
use crate::{
    Content, DataFacts, Dataset, DatasetSource, Encoding, FieldFacts, FieldKind, FieldMut, POSITIONS,
    SampleKey, SampleMut, Splits, TextEncoding, Tokenizer, TokenizerPlan, UNTRAINED, in_line,
};
use base::display::count;
use base::error::{Error, IoContext, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TINYSHAKESPEARE: Published = Published {
    name: "tinyshakespeare.txt",
    urls: &["https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"],
    size: 1_115_394,
    sha256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
};
/// Its different characters.
const TINYSHAKESPEARE_CHARACTERS: usize = 65;

/// UTF-8 text. `tinyshakespeare` is a known text, 1.1 MB of Shakespeare's plays with 65 different characters, which is downloaded if it
/// is missing. What a token is follows from `[tokenizer]`: by default each character.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-summaries" = {
    "text": "Files of UTF-8 text, or JSON Lines with texts.",
    "tinyshakespeare": "1.1 MB of Shakespeare's plays.",
}))]
struct TextSource {
    #[serde(skip)]
    file: NamedFile,
    /// The number of different characters, if it is known before the text is read.
    #[serde(skip)]
    characters: Option<usize>,
    #[serde(skip)]
    tokenizer: TokenizerPlan,
    /// The field of the text in lines of JSON.
    #[serde(skip)]
    #[default("text".to_owned())]
    field: String,
    /// The files of the validation split.
    #[serde(skip)]
    val: Option<PathBuf>,
    /// Tokens per sample.
    #[default = 64]
    #[schemars(range(min = 1, max = 1_048_576))]
    block_size: usize,
    /// How tokens become samples of `block_size`; with a tokenizer. Longer documents are cut, others never; what is left of a sample is
    /// padding, which is not trained. Default: `stream`.
    pack: Option<Pack>,
    /// Part of the text, from its end, that is the validation split. Not with `val`.
    #[default = 0.1]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    val_split: f64,
    /// Use at most this many training samples, the first of the text.
    #[schemars(range(min = 1))]
    max_train: Option<usize>,
    /// Use at most this many validation samples, the first of its part.
    #[schemars(range(min = 1))]
    max_val: Option<usize>,
}

// Of `text` alone: the other one is a known file.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Text"))]
struct LineKeys {
    /// The field of the text in JSON Lines (`.jsonl`, `.ndjson`), each line of which is a document.
    #[default("text".to_owned())]
    text: String,
    /// The file of the validation split, or a pattern of several. Default: `val_split` of the training text.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    val: Option<PathBuf>,
}

/// Reads the `[dataset]` table.
pub fn text(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let (file, LineKeys { text: field, val }) = (NamedFile::of_several(fields), fields.config());
    let mut source = TextSource { file, field, val, ..fields.config() };
    if source.val.is_some() {
        // A resolved spec says 0.
        if fields.has("val_split") && source.val_split > 0.0 {
            fields.problem_with_key("val_split", "has no effect with `val`");
        }
        source.val_split = 0.0;
        fields.note_resolved("val_split", 0.0);
    }
    Arc::new(source)
}

/// Reads the `[dataset]` table.
pub fn tinyshakespeare(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::published(fields, &TINYSHAKESPEARE);
    Arc::new(TextSource { file, characters: Some(TINYSHAKESPEARE_CHARACTERS), ..fields.config() })
}

impl DatasetSource for TextSource {
    fn facts(&self) -> DataFacts {
        let facts = |n| FieldFacts { shape: vec![self.block_size], kind: FieldKind::Index(n) };
        let size = match &self.tokenizer {
            TokenizerPlan::Characters => self.characters,
            other => other.known().map(Tokenizer::vocabulary_size),
        };
        let facts = size.map(facts);
        DataFacts { input: facts.clone(), target: facts, ..DataFacts::default() }
    }

    fn tokenized(&self, tokenizer: &TokenizerPlan) -> Option<Arc<dyn DatasetSource>> {
        Some(Arc::new(Self { tokenizer: tokenizer.clone(), ..self.clone() }))
    }

    fn needs_documents(&self) -> Option<&'static str> {
        self.pack.is_some_and(|pack| pack != Pack::Stream).then_some("pack")
    }

    fn check_files(&self) -> Result<()> {
        self.tokenizer.get()?;
        self.val_texts()?;
        self.file.is_there().map(drop)
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let tokenizer = self.tokenizer.get()?;
        // One that is downloaded has not got its name yet.
        let is_text = |path: &Path| match tokenizer {
            None => self.read(&self.text_files(vec![path.to_owned()])).map(drop),
            Some(_) => Ok(()),
        };
        self.file.prepare(&is_text, say)?;
        tokenizer.map_or(Ok(()), |tokenizer| self.of_tokens(self.texts()?, tokenizer, say).map(drop))
    }

    fn files(&self) -> Vec<PathBuf> {
        let val = self.val_texts().ok().flatten().map(|texts| texts.paths);
        [self.file.paths().unwrap_or_default(), val.unwrap_or_default()].concat()
    }

    fn open(&self) -> Result<Splits> {
        let texts = self.texts()?;
        let Some(tokenizer) = self.tokenizer.get()? else { return self.read(&texts) };
        self.of_tokens(texts, tokenizer, &mut |_| ())
    }
}

impl TextSource {
    fn windows(&self) -> Windowing {
        let Self { block_size, val_split, max_train, max_val, .. } = *self;
        let pack = self.pack.unwrap_or_default();
        Windowing { block_size, pack, val_split, max_train, max_val }
    }

    /// The samples of tokens, made of the texts unless they are there. `texts` are for training.
    fn of_tokens(
        &self,
        texts: TextFiles,
        tokenizer: &Tokenizer,
        say: &mut dyn FnMut(&str),
    ) -> Result<Splits> {
        let (place, tokens) = (texts.named.clone(), self.tokens(texts, tokenizer, say)?);
        self.windows().of_tokens(&place, self.file.cache(), tokenizer, tokens, say)
    }

    /// The training texts.
    fn texts(&self) -> Result<TextFiles> {
        let paths = self.file.paths()?;
        if paths.is_empty() {
            self.file.is_there()?;
            return Err(Error::internal("a text is read before it is downloaded"));
        }
        Ok(self.text_files(paths))
    }

    fn text_files(&self, paths: Vec<PathBuf>) -> TextFiles {
        TextFiles { paths, field: self.field.clone(), named: self.file.path.display().to_string() }
    }

    fn val_texts(&self) -> Result<Option<TextFiles>> {
        let Some(val) = &self.val else { return Ok(None) };
        Ok(Some(TextFiles {
            paths: fitting(val)?,
            field: self.field.clone(),
            named: val.display().to_string(),
        }))
    }

    /// The tokens of the splits, made of the texts unless they are there.
    fn tokens(
        &self,
        texts: TextFiles,
        tokenizer: &Tokenizer,
        say: &mut dyn FnMut(&str),
    ) -> Result<TokenSplits> {
        let mut of = |texts: TextFiles| -> Result<TokenFiles> {
            let made = texts.paths.iter().filter(|path| is_tokens(path)).count();
            match made {
                0 => Ok(tokens(self.file.cache(), &texts, tokenizer, say)?.into()),
                n if n == texts.paths.len() => {
                    texts.paths.iter().map(|path| TokenFile::of_another_program(path, tokenizer)).collect()
                }
                _ => Err(Error::data(format!("{} has files of tokens (.bin) and others", texts.named))
                    .hint("name either by `[dataset] path`")),
            }
        };
        Ok(TokenSplits { train: of(texts)?, val: self.val_texts()?.map(of).transpose()?, test: None })
    }

    /// As characters; several documents are joined with line ends. `texts` are for training.
    fn read(&self, texts: &TextFiles) -> Result<Splits> {
        let joined = |texts: &TextFiles| {
            let mut text = String::new();
            if let Some(file) = texts.paths.iter().find(|path| is_tokens(path)) {
                return Err(Error::data(format!("{} is a file of tokens", file.display()))
                    .hint("`[tokenizer]` says what they are"));
            }
            texts.read(0, 0, &mut |chunk| {
                text.push_str(chunk.text());
                text.push_str(if chunk.ends { "\n" } else { "" });
                Ok(())
            })?;
            text.pop();
            Ok(text)
        };
        let text = joined(texts)?;
        let val = self.val_texts()?.as_ref().map(joined).transpose()?;
        let content = digest_of_parts([Some(&text), val.as_ref()].into_iter().flatten());
        // Lines of the text are those of the file.
        let file = match &texts.paths[..] {
            [only] if !is_json_lines(only) => Some(texts.named.as_str().into()),
            _ => None,
        };
        let all = SplitTexts { train: text, val, test: None, file };
        self.windows().splits(&texts.named, &all, content)
    }
}

/// The text in a file.
///
/// # Errors
/// It can't be read, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = base::files::read(path).doing("read", path)?;
    String::from_utf8(bytes).map_err(|e| not_utf8(path, e.utf8_error().valid_up_to() as u64))
}

/// Whether it has tokens already, as nanoGPT and llm.c write them.
fn is_tokens(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
}

/// The tokens of the splits.
pub(super) struct TokenSplits {
    pub train: TokenFiles,
    pub val: Option<TokenFiles>,
    pub test: Option<TokenFiles>,
}

/// The texts of the splits.
pub(super) struct SplitTexts {
    pub train: String,
    pub val: Option<String>,
    pub test: Option<String>,
    /// The file whose lines are those of the training text.
    pub file: Option<Arc<str>>,
}

/// The tokens of each split, and which of them it has.
struct Parts<T> {
    train: (T, Range<usize>),
    val: Option<(T, Range<usize>)>,
    test: Option<(T, Range<usize>)>,
}

/// How texts become samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windowing {
    /// Tokens per sample.
    pub block_size: usize,
    /// With a tokenizer.
    pub pack: Pack,
    /// Part of the training text that is the validation split; with 0 its text, or else that of the test split, if there is one.
    pub val_split: f64,
    pub max_train: Option<usize>,
    pub max_val: Option<usize>,
}

impl Windowing {
    /// The samples of `texts`, which messages call `place`; their characters are the tokens.
    pub fn splits(&self, place: &str, texts: &SplitTexts, content: Content) -> Result<Splits> {
        let all = || [Some(&texts.train), texts.val.as_ref(), texts.test.as_ref()].into_iter().flatten();
        let vocabulary = vocabulary(all());
        if vocabulary.len() > 1 << 16 {
            let message = format!("{place} has {} different characters", vocabulary.len());
            return Err(
                Error::data(message).hint("`text` supports up to 65,536; check that this is a text file")
            );
        }
        let ids: HashMap<char, u16> = vocabulary.iter().enumerate().map(|(i, &c)| (c, i as u16)).collect();
        let tokenizer = Tokenizer::of_characters(vocabulary);
        let whole = |text: &String| {
            let tokens = text.chars().map(|c| ids[&c]).collect();
            Windows::new(Tokens::Characters(tokens), self.block_size, &tokenizer, content)
        };
        let train = Windows { file: texts.file.clone(), ..whole(&texts.train) };
        // Training samples begin at each character.
        self.of_windows(place, train, texts.val.as_ref().map(whole), texts.test.as_ref().map(whole), 1)
    }

    /// The samples of tokens in files: windows which follow each other without overlapping, or documents, for which the rows are
    /// written to the cache if they are not there yet.
    pub fn of_tokens(
        &self,
        place: &str,
        cache: &Cache,
        tokenizer: &Tokenizer,
        splits: TokenSplits,
        say: &mut dyn FnMut(&str),
    ) -> Result<Splits> {
        if self.pack != Pack::Stream {
            return self.of_documents(place, cache, tokenizer, splits, say);
        }
        let whole = |tokens: TokenFiles| {
            let content = tokens.content();
            Windows::new(Tokens::Files(Arc::new(tokens)), self.block_size, tokenizer, content)
        };
        let TokenSplits { train, val, test } = splits;
        self.of_windows(place, whole(train), val.map(whole), test.map(whole), self.block_size)
    }

    fn of_documents(
        &self,
        place: &str,
        cache: &Cache,
        tokenizer: &Tokenizer,
        TokenSplits { train, val, test }: TokenSplits,
        say: &mut dyn FnMut(&str),
    ) -> Result<Splits> {
        let &Self { block_size, pack, max_train, max_val, .. } = self;
        let mut rows = |tokens: &Arc<TokenFiles>, range: Range<usize>, max: Option<usize>| {
            let part = if range.len() < tokens.len() { " in this split" } else { "" };
            let packing = Packing { pack, block_size, range };
            let rows = PackedRows::of(cache, place, tokens, tokenizer, &packing, say)?;
            if rows.len() == 0 {
                return Err(Error::data(format!("{place} has no document of two tokens{part}")).hint(
                    "each file is a document, or each line of JSON Lines: set `val_split = 0`, or name the \
                     validation split by `val`",
                ));
            }
            let len = max.map_or(rows.len(), |max| rows.len().min(max));
            let tokenizer = tokenizer.clone();
            let documents =
                Documents { tokens: Tokens::Files(tokens.clone()), rows, len, block_size, pack, tokenizer };
            Ok::<_, Error>(Arc::new(documents) as Arc<dyn Dataset>)
        };
        let [val, test] = [val, test].map(|tokens| tokens.map(Arc::new));
        let parts = self.parts(Arc::new(train), val, test, |tokens| tokens.len());
        let (train, cut) = parts.train;
        Ok(Splits {
            train: rows(&train, cut, max_train)?,
            val: parts.val.map(|(tokens, range)| rows(&tokens, range, max_val)).transpose()?,
            test: parts.test.map(|(tokens, range)| rows(&tokens, range, None)).transpose()?,
        })
    }

    /// Which tokens each split has.
    fn parts<T: Clone>(
        &self,
        train: T,
        val: Option<T>,
        test: Option<T>,
        len: impl Fn(&T) -> usize,
    ) -> Parts<T> {
        let all = len(&train);
        let cut = all - (all as f64 * self.val_split) as usize;
        let whole = |tokens: T| (tokens.clone(), 0..len(&tokens));
        let val = match self.val_split > 0.0 {
            true => Some((train.clone(), cut..all)),
            false => val.or_else(|| test.clone()).map(whole),
        };
        Parts { train: (train, 0..cut), val, test: test.map(whole) }
    }

    /// `stride`: tokens between the starts of two training samples.
    fn of_windows(
        &self,
        place: &str,
        train: Windows,
        val: Option<Windows>,
        test: Option<Windows>,
        stride: usize,
    ) -> Result<Splits> {
        let part = |(whole, range): (Windows, Range<usize>), max: Option<usize>| {
            let part = whole.part(place, range, self.block_size, max)?;
            Ok::<_, Error>(Arc::new(part) as Arc<dyn Dataset>)
        };
        let parts = self.parts(train, val, test, |windows| windows.tokens.len());
        let val = parts.val.map(|of| part(of, self.max_val)).transpose()?;
        let test = parts.test.map(|of| part(of, None)).transpose()?;
        let (train, range) = parts.train;
        let train = train.part(place, range, stride, self.max_train)?;
        Ok(Splits { train: Arc::new(train), val, test })
    }
}

/// Every character in the texts, sorted by code point. A token is an index into this.
fn vocabulary<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<char> {
    texts.flat_map(|text| text.chars()).collect::<BTreeSet<char>>().into_iter().collect()
}

#[derive(Clone)]
enum Tokens {
    Characters(Arc<[u16]>),
    Files(Arc<TokenFiles>),
}

impl Tokens {
    fn len(&self) -> usize {
        match self {
            Self::Characters(tokens) => tokens.len(),
            Self::Files(files) => files.len(),
        }
    }

    fn read(&self, start: usize, to: &mut [i64]) -> Result<()> {
        match self {
            Self::Characters(tokens) => {
                to.iter_mut().zip(&tokens[start..]).for_each(|(to, token)| *to = i64::from(*token));
                Ok(())
            }
            Self::Files(files) => files.read(start, to),
        }
    }

    /// Writes the tokens from `start` on, and those that follow each of them.
    fn read_pairs(&self, start: usize, input: &mut [i64], target: &mut [i64]) -> Result<()> {
        self.read(start, input)?;
        // All but the last token have been read.
        let last = input.len() - 1;
        target[..last].copy_from_slice(&input[1..]);
        self.read(start + input.len(), &mut target[last..])
    }
}

/// Bytes of text that tokens stand for, by those of each token.
fn bytes_of(tokens: &[i64], bytes: &[u32]) -> u64 {
    // A file of another program may have any number; the loader refuses it.
    let of = |token: &i64| bytes.get(*token as usize).map_or(0, |bytes| u64::from(*bytes));
    tokens.iter().map(of).sum()
}

#[derive(Clone)]
struct Windows {
    tokens: Tokens,
    start: usize,
    len: usize,
    block: usize,
    stride: usize,
    tokenizer: Tokenizer,
    content: Content,
    /// See [`SplitTexts::file`].
    file: Option<Arc<str>>,
}

impl Windows {
    /// Of no sample yet.
    fn new(tokens: Tokens, block: usize, tokenizer: &Tokenizer, content: Content) -> Self {
        let tokenizer = tokenizer.clone();
        Self { tokens, start: 0, len: 0, block, stride: 1, tokenizer, content, file: None }
    }

    /// The windows in a range of the tokens, `stride` apart, at most `max` of them.
    fn part(&self, place: &str, range: Range<usize>, stride: usize, max: Option<usize>) -> Result<Self> {
        let starts = range.len().checked_sub(self.block).filter(|&n| n > 0);
        let len = starts.map(|n| n.div_ceil(stride)).ok_or_else(|| {
            let n = count(self.tokens.len(), self.tokenizer.unit());
            let part = match range.len() < self.tokens.len() {
                true => format!(", {} of them in this split", range.len()),
                false => String::new(),
            };
            Error::data(format!("{place} has {n}{part}: too few for `block_size = {}`", self.block))
                .hint("lower `block_size`, change `val_split`, or use a longer text")
        })?;
        let len = max.map_or(len, |max| len.min(max));
        Ok(Self { start: range.start, len, stride, ..self.clone() })
    }

    /// The index of its first token.
    fn first(&self, sample: u64) -> usize {
        self.start + sample as usize * self.stride
    }

    fn facts(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.block], kind: FieldKind::Index(self.tokenizer.vocabulary_size()) }
    }
}

impl Dataset for Windows {
    fn len(&self) -> usize {
        self.len
    }
    fn input(&self) -> FieldFacts {
        self.facts()
    }
    fn target(&self) -> FieldFacts {
        self.facts()
    }
    fn content(&self) -> Option<Content> {
        Some(self.content)
    }
    fn place(&self, index: u64) -> Option<String> {
        let (Tokens::Characters(tokens), Some(file)) = (&self.tokens, &self.file) else { return None };
        let characters = self.tokenizer.characters()?;
        let before = tokens.get(..self.first(index))?;
        let ends = before.iter().filter(|token| characters[usize::from(**token)] == '\n').count();
        Some(in_line(file, ends + 1))
    }
    fn bytes_per_target(&self) -> Result<Option<f64>> {
        let Some(bytes) = self.tokenizer.bytes_of_tokens() else { return Ok(None) };
        let mut window = vec![0; self.block];
        let mut all = 0_u64;
        for sample in 0..self.len as u64 {
            self.tokens.read(self.first(sample) + 1, &mut window)?;
            all += bytes_of(&window, &bytes);
        }
        Ok(Some(all as f64 / (self.len * self.block) as f64))
    }
    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Text(TextEncoding { tokenizer: self.tokenizer.clone(), block_size: self.block }))
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Index(input), FieldMut::Index(target)) = (to.input, to.target) else {
            return Err(wrong_buffers("tokens"));
        };
        self.tokens.read_pairs(self.first(key.sample), input, target)
    }
}

/// Rows of whole documents.
struct Documents {
    tokens: Tokens,
    rows: PackedRows,
    /// Rows in use, the first ones.
    len: usize,
    block_size: usize,
    pack: Pack,
    tokenizer: Tokenizer,
}

impl Documents {
    fn facts(&self, bound: usize) -> FieldFacts {
        FieldFacts { shape: vec![self.block_size], kind: FieldKind::Index(bound) }
    }
}

impl Dataset for Documents {
    fn len(&self) -> usize {
        self.len
    }
    fn input(&self) -> FieldFacts {
        self.facts(self.tokenizer.vocabulary_size())
    }
    fn target(&self) -> FieldFacts {
        self.input()
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        // Padding comes last, where no token sees it.
        let several = self.pack == Pack::Documents;
        several.then(|| (POSITIONS.to_owned(), self.facts(self.block_size))).into_iter().collect()
    }
    fn has_untrained(&self) -> bool {
        true
    }
    fn content(&self) -> Option<Content> {
        Some(self.rows.content())
    }
    fn bytes_per_target(&self) -> Result<Option<f64>> {
        let Some(bytes) = self.tokenizer.bytes_of_tokens() else { return Ok(None) };
        let mut targets = vec![0; self.block_size];
        let (mut all, mut count) = (0_u64, 0_u64);
        for row in 0..self.len {
            for piece in self.rows.pieces(row)? {
                let targets = &mut targets[..piece.len as usize];
                self.tokens.read(piece.start as usize + 1, targets)?;
                all += bytes_of(targets, &bytes);
                count += u64::from(piece.len);
            }
        }
        Ok(Some(all as f64 / count as f64))
    }
    fn encoding(&self) -> Option<Encoding> {
        let (tokenizer, block_size) = (self.tokenizer.clone(), self.block_size);
        Some(Encoding::Text(TextEncoding { tokenizer, block_size }))
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Index(input), FieldMut::Index(target)) = (to.input, to.target) else {
            return Err(wrong_buffers("tokens"));
        };
        let mut positions = match self.pack {
            Pack::Documents => Some(to.fields.take(POSITIONS)?),
            _ => None,
        };
        let positions = match &mut positions {
            Some(FieldMut::Index(positions)) => &mut positions[..],
            Some(FieldMut::Float(_)) => return Err(wrong_buffers("positions")),
            None => &mut [],
        };
        input.fill(self.tokenizer.end().map_or(0, i64::from));
        target.fill(UNTRAINED);
        // Each token of the padding is a document of its own.
        positions.fill(0);
        let mut at = 0;
        for piece in self.rows.pieces(key.sample as usize)? {
            let here = at..at + piece.len as usize;
            let (input, target) = (&mut input[here.clone()], &mut target[here.clone()]);
            self.tokens.read_pairs(piece.start as usize, input, target)?;
            let of_document = positions.iter_mut().take(here.end).skip(at);
            of_document.zip(0..).for_each(|(position, i)| *position = i);
            at = here.end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{configure, sample, shared};

    fn open(content: &[u8], more: &str) -> Result<Splits> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        std::fs::write(&path, content).unwrap();
        configure(&text, &format!("path = '{}'\n{more}", path.display())).unwrap().open()
    }

    #[test]
    fn splits_text_into_windows() {
        // a=0 b=1 c=2 é=3; 20 characters, 16 for training.
        let splits = open("abcéabcéabcéabcéccba".as_bytes(), "block_size = 3\nval_split = 0.2").unwrap();
        assert_eq!(splits.train.len(), 13);
        assert_eq!(splits.train.input(), FieldFacts { shape: vec![3], kind: FieldKind::Index(4) });
        assert_eq!(sample(&*splits.train, 0, 0), (vec![0., 1., 2.], vec![1., 2., 3.]));
        assert_eq!(sample(&*splits.train, 12, 0), (vec![0., 1., 2.], vec![1., 2., 3.]));
        let val = splits.val.unwrap();
        assert_eq!(val.len(), 1);
        assert_eq!(sample(&*val, 0, 0), (vec![2., 2., 1.], vec![2., 1., 0.]));
    }

    #[test]
    fn validation_windows_do_not_overlap() {
        let text: Vec<u8> = (0..100).map(|i| b'A' + i % 50).collect();
        let val = open(&text, "block_size = 4\nval_split = 0.5").unwrap().val.unwrap();
        // 50 characters: starts 0, 4, …, 44; each window needs the character after it.
        assert_eq!(val.len(), 12);
        let targets: Vec<f64> = (0..12).flat_map(|i| sample(&*val, i, 0).1).collect();
        assert!(targets.iter().copied().eq((1..49).map(f64::from)));
        assert_eq!(open(&text, "block_size = 4\nmax_train = 7\nval_split = 0.0").unwrap().train.len(), 7);
    }

    #[test]
    fn a_sample_is_at_the_line_of_its_first_character() {
        let text = "ab\ncd\nef\ngh\nij\n".repeat(2);
        let splits = open(text.as_bytes(), "block_size = 4\nval_split = 0.5").unwrap();
        let places = |set: &dyn Dataset, at: &[u64]| -> Vec<String> {
            let line = |i: &u64| set.place(*i).unwrap().rsplit_once(", line ").unwrap().1.to_owned();
            at.iter().map(line).collect()
        };
        assert_eq!(places(&*splits.train, &[0, 2, 3, 6]), ["1", "1", "2", "3"]);
        // Characters 15, 19 and 23.
        assert_eq!(places(&*splits.val.unwrap(), &[0, 1, 2]), ["6", "7", "8"]);
    }

    #[test]
    fn a_target_has_the_bytes_of_its_characters() {
        let splits = open("abcéabcéabcéabcéccba".as_bytes(), "block_size = 3\nval_split = 0.2").unwrap();
        let bytes = |set: &dyn Dataset| set.bytes_per_target().unwrap().unwrap();
        assert_eq!(bytes(&*splits.val.unwrap()), 1.0);
        // Every fourth one.
        let accents = (1..14).flat_map(|start| start..start + 3).filter(|at| at % 4 == 3).count();
        assert_eq!(bytes(&*splits.train), 1.0 + accents as f64 / 39.0);
    }

    #[test]
    fn tokens_of_a_tokenizer_are_samples_that_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("a.txt"), "abcdef").unwrap();
        std::fs::write(file("b.txt"), "ghi").unwrap();
        // Neither fits, as in a shell.
        std::fs::write(file(".c.txt"), "no").unwrap();
        std::fs::create_dir(file("d.txt")).unwrap();
        let (path, cache) = (file("*.txt"), file("cache"));
        let table = format!("path = {path:?}\ncache = {cache:?}\nblock_size = 3\nval_split = 0.4");
        let source = configure(&text, &table).unwrap();
        let source = source.tokenized(&TokenizerPlan::Known(Tokenizer::of_bytes())).unwrap();
        assert_eq!(source.facts().input.unwrap().kind, FieldKind::Index(257));
        source.check_files().unwrap();
        source.prepare(&mut |_| ()).unwrap();
        let splits = source.open().unwrap();
        // "abcdef" and its end are the first 7 of 11 tokens, of which the last 4 are for validation.
        let letters = |of: &[u8]| of.iter().map(|letter| f64::from(*letter)).collect::<Vec<_>>();
        assert_eq!(splits.train.len(), 2);
        assert_eq!(sample(&*splits.train, 0, 0), (letters(b"abc"), letters(b"bcd")));
        assert_eq!(sample(&*splits.train, 1, 0), (letters(b"def"), [letters(b"ef"), vec![256.0]].concat()));
        let val = splits.val.unwrap();
        assert_eq!((val.len(), sample(&*val, 0, 0).1), (1, [letters(b"hi"), vec![256.0]].concat()));
        assert_eq!(val.bytes_per_target().unwrap(), Some(2.0 / 3.0));
        std::os::unix::fs::symlink("nowhere", file("e.txt")).unwrap();
        let broken = source.check_files().unwrap_err().message;
        assert!(
            broken.contains("/e.txt fits ") && broken.ends_with(", and is no file that can be read"),
            "{broken}"
        );
        std::fs::remove_file(file("e.txt")).unwrap();
        std::fs::remove_file(file("b.txt")).unwrap();
        std::fs::remove_file(file("a.txt")).unwrap();
        let missing = source.check_files().unwrap_err().message;
        assert!(missing.starts_with("no file fits ") && missing.ends_with("/*.txt"), "{missing}");
    }

    #[test]
    fn documents_are_samples_of_their_own_or_share_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(
            file("a.jsonl"),
            ["abcde", "fg", "", "hijkl"].map(|text| format!("{{\"text\": \"{text}\"}}\n")).concat(),
        )
        .unwrap();
        let (path, cache) = (file("a.jsonl"), file("cache"));
        let of = |more: &str| {
            let table = format!("path = {path:?}\ncache = {cache:?}\nblock_size = 8\n{more}");
            let source = configure(&text, &table).unwrap();
            assert_eq!(source.needs_documents(), Some("pack"));
            source.tokenized(&TokenizerPlan::Known(Tokenizer::of_bytes())).unwrap()
        };
        let read = |set: &dyn Dataset, index: u64| {
            let mut batch = crate::assemble::empty_batch(set);
            crate::assemble::resize_batch(&mut batch, 1);
            let key = SampleKey { seed: 0, epoch: 0, sample: index };
            set.write(key, crate::assemble::buffers_of(&mut batch, 0).unwrap()).unwrap();
            let values = |field: &crate::HostField| match &field.data {
                crate::FieldData::Index(values) => values.clone(),
                _ => unreachable!(),
            };
            let positions = batch.fields.get(POSITIONS).map(values);
            (values(&batch.input), values(&batch.target), positions)
        };
        let letters = |text: &str, rest: i64| -> Vec<i64> {
            let letter = |letter| if letter == b'.' { 256 } else { i64::from(letter) };
            let letters = text.bytes().map(letter).collect::<Vec<_>>();
            [letters, vec![rest; 8 - text.len()]].concat()
        };

        let mut said = Vec::new();
        let packed = of("pack = 'documents'\nval_split = 0.4");
        packed.prepare(&mut |message| said.push(message.to_owned())).unwrap();
        assert!(
            said.iter().any(|line| line.ends_with(
                "3 documents in 1 row of 8 tokens, 87.5 % filled, 1 left out, without a token to train"
            )),
            "{said:?}"
        );
        let splits = packed.open().unwrap();
        assert_eq!((splits.train.len(), splits.train.has_untrained()), (1, true));
        let (input, target, positions) = read(&*splits.train, 0);
        assert_eq!(input, letters("abcdefg", 256));
        assert_eq!(target, letters("bcde.g.", UNTRAINED));
        assert_eq!(positions, Some(vec![0, 1, 2, 3, 4, 0, 1, 0]));
        // An end token stands for no text, so 5 of the 7 targets have a byte.
        assert_eq!(splits.train.bytes_per_target().unwrap(), Some(5.0 / 7.0));
        let val = splits.val.unwrap();
        assert_eq!(read(&*val, 0).1, letters("ijkl.", UNTRAINED));
        assert_ne!(val.content(), splits.train.content());

        let padded = of("pack = 'none'\nval_split = 0").open().unwrap();
        assert_eq!(padded.train.len(), 3);
        assert_eq!(read(&*padded.train, 1), (letters("fg", 256), letters("g.", UNTRAINED), None));
        let why = of("pack = 'none'\nval_split = 0.1").open().err().unwrap();
        assert!(why.message.ends_with("has no document of two tokens in this split"), "{why}");
    }

    #[test]
    fn files_of_tokens_and_of_the_validation_split_are_taken_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let write = |name: &str, ids: std::ops::Range<u16>| {
            let bytes: Vec<u8> = ids.flat_map(u16::to_le_bytes).collect();
            std::fs::write(file(name), bytes).unwrap();
        };
        write("train-0.bin", 0..4);
        write("train-1.bin", 4..9);
        write("val.bin", 250..257);
        std::fs::write(file("a.txt"), "abcabc").unwrap();
        std::fs::write(file("b.txt"), "cdcd").unwrap();
        let cache = file("cache");
        let open = |path: &str, val: &str, tokenizer: Option<Tokenizer>, more: &str| {
            let (path, val) = (file(path), file(val));
            let table = format!("path = {path:?}\nval = {val:?}\ncache = {cache:?}\nblock_size = 2\n{more}");
            let source = configure(&text, &table)?;
            let tokenizer = tokenizer.map_or(TokenizerPlan::Characters, TokenizerPlan::Known);
            let source = source.tokenized(&tokenizer).unwrap();
            let opened = source.check_files().and_then(|()| source.open()).map_err(|e| e.to_string())?;
            let targets = |set: &dyn Dataset| -> Vec<f64> {
                (0..set.len()).flat_map(|i| sample(set, i, 0).1).collect()
            };
            Ok::<_, String>((targets(&*opened.train), targets(&*opened.val.unwrap())))
        };
        let bytes = || Some(Tokenizer::of_bytes());
        let found = open("train-*.bin", "val.bin", bytes(), "").unwrap();
        assert_eq!(found, ((1..9).map(f64::from).collect(), (251..257).map(f64::from).collect()));
        // Of characters, with the vocabulary of both.
        let (train, val) = open("a.txt", "b.txt", None, "").unwrap();
        assert_eq!((train, val), (vec![1., 2., 2., 0., 0., 1., 1., 2.], vec![3., 2.]));
        let why = |found: Result<_, String>| found.unwrap_err();
        assert!(why(open("train-0.bin", "val.bin", None, "")).contains("train-0.bin is a file of tokens"));
        assert!(why(open("[at]*", "a.txt", bytes(), "")).contains("has files of tokens (.bin) and others"));
        assert!(why(open("a.txt", "none.txt", bytes(), "")).contains("no file fits "));
        assert!(why(open("a.txt", "b.txt", None, "val_split = 0.1")).contains("no effect with `val`"));
    }

    #[test]
    #[cfg(feature = "download")]
    fn a_text_is_downloaded_and_checked_before_it_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (tokenizer, samples) in
            [(TokenizerPlan::Characters, 9), (TokenizerPlan::Known(Tokenizer::of_bytes()), 4)]
        {
            let prepared = |name: &str, content: &'static [u8]| {
                let (path, url, cache) = (file(name), crate::testing::serve_file(content), file("cache"));
                let table = format!(
                    "path = {path:?}\nurl = '{url}'\ncache = {cache:?}\nblock_size = 3\nval_split = 0.0"
                );
                let source = configure(&text, &table).unwrap().tokenized(&tokenizer).unwrap();
                source.prepare(&mut |_| ()).map(|()| source.open().unwrap().train.len())
            };
            let name = format!("{samples}.txt");
            assert_eq!(prepared(&name, b"abcabcabcabc").unwrap(), samples);
            assert_eq!(std::fs::read(file(&name)).unwrap(), b"abcabcabcabc");
            let wrong = prepared(&format!("wrong-{name}"), b"abc\xffabcabc").unwrap_err().to_string();
            assert!(wrong.contains("is not UTF-8 text: invalid byte at offset 3"), "{wrong}");
        }
        // Not kept: it has been read as text.
        assert!(!file("wrong-9.txt").exists());
    }

    #[test]
    fn rejects_short_and_invalid_texts() {
        let error = open(b"abc", "block_size = 8\nval_split = 0.0").err().unwrap().to_string();
        assert!(error.contains("has 3 characters: too few for `block_size = 8`"), "{error}");
        let error = open(b"ab\xff", "block_size = 1").err().unwrap().to_string();
        assert!(error.contains("t.txt is not UTF-8 text: invalid byte at offset 2"), "{error}");
    }

    #[test]
    fn reads_the_real_text() {
        let Some(path) = shared("data/tinyshakespeare.txt") else { return };
        let source = configure(&tinyshakespeare, &format!("path = '{}'", path.display())).unwrap();
        source.prepare(&mut |_| ()).unwrap();
        assert_eq!(source.files(), [path]);
        let splits = source.open().unwrap();
        assert_eq!(splits.train.input(), FieldFacts { shape: vec![64], kind: FieldKind::Index(65) });
        assert_eq!(source.facts().input, Some(splits.train.input()));
        assert_eq!(splits.train.len(), 1_115_394 - 111_539 - 64);
        // "First Citizen:"
        assert_eq!(sample(&*splits.train, 0, 0).0[..5], [18., 47., 56., 57., 58.]);
    }
}
