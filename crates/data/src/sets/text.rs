//! `text` and `tinyshakespeare`: a file as a sequence of characters, divided into windows: the input is `block_size` characters, the target the
//! same shifted by one. The vocabulary is every character in the file, by code point. The last `val_split` of the text is
//! used for validation.

use crate::fingerprint::digest_of_parts;
use crate::images::wrong_buffers;
use crate::store::{NamedFile, Published};
use crate::{
    Content, DataFacts, Dataset, DatasetSource, Encoding, FieldFacts, FieldKind, FieldMut, SampleKey,
    SampleMut, Splits, TextEncoding, in_line,
};
use base::display::count;
use base::error::{Error, IoContext, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::collections::{BTreeSet, HashMap};
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

/// UTF-8 text; each character is a token. `tinyshakespeare` is a known text, 1.1 MB of Shakespeare's plays with 65 different
/// characters, which is downloaded if it is missing.
#[derive(Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-summaries" = {
    "text": "A file of UTF-8 text; each character is a token.",
    "tinyshakespeare": "1.1 MB of Shakespeare's plays; each character is a token.",
}))]
struct TextSource {
    #[serde(skip)]
    file: NamedFile,
    /// The number of different characters, if it is known before the text is read.
    #[serde(skip)]
    characters: Option<usize>,
    /// Characters per sample.
    #[default = 64]
    #[schemars(range(min = 1, max = 1_048_576))]
    block_size: usize,
    /// Part of the text, from its end, that is the validation split.
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

/// Reads the `[dataset]` table.
pub fn text(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::read(fields);
    Arc::new(TextSource { file, ..fields.config() })
}

/// Reads the `[dataset]` table.
pub fn tinyshakespeare(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::published(fields, &TINYSHAKESPEARE);
    Arc::new(TextSource { file, characters: Some(TINYSHAKESPEARE_CHARACTERS), ..fields.config() })
}

impl DatasetSource for TextSource {
    fn facts(&self) -> DataFacts {
        let facts = |n| FieldFacts { shape: vec![self.block_size], kind: FieldKind::Index(n) };
        let facts = self.characters.map(facts);
        DataFacts { input: facts.clone(), target: facts, ..DataFacts::default() }
    }

    fn check_files(&self) -> Result<()> {
        self.file.is_there().map(drop)
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.file.prepare(&|path| self.read(path).map(drop), say)
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.file.path.clone()).filter(|path| path.is_file()).into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        self.read(&self.file.path)
    }
}

impl TextSource {
    fn windows(&self) -> Windowing {
        let Self { block_size, val_split, max_train, max_val, .. } = *self;
        Windowing { block_size, val_split, max_train, max_val }
    }

    fn read(&self, path: &Path) -> Result<Splits> {
        let text = read_text(path)?;
        let content = digest_of_parts([&text]);
        let place = path.display().to_string();
        let texts = SplitTexts { train: text, val: None, test: None, file: Some(place.as_str().into()) };
        self.windows().splits(&place, &texts, content)
    }
}

/// The text in a file.
///
/// # Errors
/// It can't be read, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = base::files::read(path).doing("read", path)?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::data(format!("{} is not UTF-8 text: invalid byte at offset {at}", path.display()))
    })
}

/// The texts of the splits.
pub(super) struct SplitTexts {
    pub train: String,
    pub val: Option<String>,
    pub test: Option<String>,
    /// The file whose lines are those of the training text.
    pub file: Option<Arc<str>>,
}

/// How texts become samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windowing {
    /// Characters per sample.
    pub block_size: usize,
    /// Part of the training text that is the validation split; with 0 its text, or else that of the test split, if there is one.
    pub val_split: f64,
    pub max_train: Option<usize>,
    pub max_val: Option<usize>,
}

impl Windowing {
    /// The samples of `texts`, which messages call `place`.
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
        let tokens: Arc<[u16]> = all().flat_map(|text| text.chars()).map(|c| ids[&c]).collect();
        let whole = Windows {
            tokens,
            start: 0,
            len: 0,
            block: self.block_size,
            stride: 1,
            vocabulary: vocabulary.into(),
            content,
            file: texts.file.clone(),
        };
        let count = |text: &Option<String>| text.as_ref().map(|text| text.chars().count());
        let (val, test) = (count(&texts.val), count(&texts.test));
        let train = whole.tokens.len() - val.unwrap_or(0) - test.unwrap_or(0);
        let behind = train + val.unwrap_or(0);
        let cut = train - (train as f64 * self.val_split) as usize;
        let test = test.map(|n| behind..behind + n);
        let val = match val {
            _ if self.val_split > 0.0 => Some(cut..train),
            Some(n) => Some(train..train + n),
            None => test.clone(),
        };
        let part = |range: Option<Range<usize>>, max: Option<usize>| {
            let windows = range.map(|range| whole.part(place, range, self.block_size, max)).transpose()?;
            Ok::<_, Error>(windows.map(|windows| Arc::new(windows) as Arc<dyn Dataset>))
        };
        Ok(Splits {
            train: Arc::new(whole.part(place, 0..cut, 1, self.max_train)?),
            val: part(val, self.max_val)?,
            test: part(test, None)?,
        })
    }
}

/// Every character in the texts, sorted by code point. A token is an index into this.
fn vocabulary<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<char> {
    texts.flat_map(|text| text.chars()).collect::<BTreeSet<char>>().into_iter().collect()
}

#[derive(Clone)]
struct Windows {
    tokens: Arc<[u16]>,
    start: usize,
    len: usize,
    block: usize,
    stride: usize,
    /// By token.
    vocabulary: Arc<[char]>,
    content: Content,
    /// See [`SplitTexts::file`].
    file: Option<Arc<str>>,
}

impl Windows {
    /// The windows in a range of the tokens, `stride` apart, at most `max` of them.
    fn part(&self, place: &str, range: Range<usize>, stride: usize, max: Option<usize>) -> Result<Self> {
        let starts = range.len().checked_sub(self.block).filter(|&n| n > 0);
        let len = starts.map(|n| n.div_ceil(stride)).ok_or_else(|| {
            let (n, block) = (count(self.tokens.len(), "character"), self.block);
            Error::data(format!("{place} has {n}: too few for `block_size = {block}`"))
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
        FieldFacts { shape: vec![self.block], kind: FieldKind::Index(self.vocabulary.len()) }
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
        let before = self.tokens.get(..self.first(index))?;
        let ends = before.iter().filter(|token| self.vocabulary[usize::from(**token)] == '\n').count();
        Some(in_line(self.file.as_ref()?, ends + 1))
    }
    fn encoding(&self) -> Option<Encoding> {
        let vocabulary = self.vocabulary.iter().collect();
        Some(Encoding::Text(TextEncoding { vocabulary, block_size: self.block }))
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Index(input), FieldMut::Index(target)) = (to.input, to.target) else {
            return Err(wrong_buffers("tokens"));
        };
        let window = &self.tokens[self.first(key.sample)..][..self.block + 1];
        input.iter_mut().zip(window).for_each(|(o, &t)| *o = i64::from(t));
        target.iter_mut().zip(&window[1..]).for_each(|(o, &t)| *o = i64::from(t));
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
