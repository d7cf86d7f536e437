//! Rows of named columns as a data set: what their columns hold, and which of them is what.

use super::columns::{CellKind, Column, RowSet, RowStore, Stored, TOKENS, column, listed};
use super::columns_images::{ImageSplits, in_words, open_images};
use super::columns_table::open_table;
use super::columns_text::{RowTexts, RowTokens, open_text};
use super::image_pixels::Pixels;
use super::image_source::DEFAULT_STATS;
use super::table::TableKeys;
use super::text::{TokenSplits, Windowing};
use crate::images::ImageSetBuilder;
use crate::split::{SplitOptions, Subset};
use crate::tokens::{Pack, Texts, TokenFiles, tokens};
use crate::transforms::TransformOptions;
use crate::{
    DataFacts, DatasetSource, Encoding, FieldFacts, FieldKind, Splits, TableEncoding, Tokenizer,
    TokenizerPlan,
};
use base::display;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::path::PathBuf;
use std::sync::Arc;

/// Names of columns of classes, of images and of texts, in order of preference.
const LABELS: [&str; 6] = ["label", "labels", "class", "target", "fine_label", "category"];
const IMAGES: [&str; 6] = ["image", "img", "image_bytes", "img_bytes", "picture", "jpg"];
const TEXTS: [&str; 3] = ["text", "content", "sentence"];
const TOKEN_LISTS: [&str; 4] = ["input_ids", "tokens", "token_ids", "ids"];
/// The column beside the tokens that has -100 for those that are no targets.
const TARGETS: &str = "labels";

choice! {
    /// What the columns hold.
    Contents:
    /// A column of images (PNG or JPEG files as bytes) and one of classes.
    Images = "images",
    /// Numbers and texts, read as in `csv`; `target` is required.
    Table = "table",
    /// A column of texts, read as in `text`: without `[tokenizer]` joined with line ends between them, else each row a document.
    Text = "text",
    /// A column of lists of tokens that `[tokenizer]` has made, each row a document. Tokens for which a column `attention_mask` has 0
    /// are padding, which is left out. Only in Parquet.
    Tokens = "tokens",
}

/// What the columns of `parquet` and `sqlite` hold. The validation split is that of the data set; without one, `val_split` of the
/// training samples, or with `val_split = 0` the test split. A test split of images or of a table in which no row has a label
/// (none, or -1) is left out.
#[derive(Clone, Debug, Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("x-section" = "Columns"))]
struct ContentKeys {
    /// What the columns hold.
    content: Contents,
    /// The column of the classes, or what the model predicts of a table. Default with images: the column that the file says has
    /// class labels, or one that is called so (`label`, `class`, `target`, …). A class is a whole number from 0, or a text.
    target: Option<String>,
}

// Read only for images.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Columns"))]
struct ImageKeys {
    /// The column of the images. Default: the one that the file says has images, or the one of bytes. Only for images.
    image: Option<String>,
    /// Width and height of the samples, to which images are scaled (`resize`). Only for images.
    #[default = 224]
    #[schemars(range(min = 8, max = 1024))]
    image_size: usize,
    /// 1 for grey (brightness by ITU-R 601, as Pillow's mode `L`), 3 for colour. Only for images.
    #[default = 3]
    #[schemars(range(min = 1, max = 3))]
    channels: usize,
}

// Read only for text.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Columns"))]
struct TextKeys {
    /// The column of the texts. Default: `text`, or the only column of texts. Only for text.
    text: Option<String>,
}

// Read only for tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Columns"))]
struct TokenKeys {
    /// The column of the tokens. Default: `input_ids`, or the only column of lists of whole numbers. Only for tokens.
    tokens: Option<String>,
    /// Put the tokenizer's end token behind each row that does not end with it. Not for rows that are cut out of longer documents. Only
    /// for tokens.
    #[default = true]
    add_end_token: bool,
}

// Read only for text and tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Columns"))]
struct SampleKeys {
    /// Tokens per sample. Only for text and tokens.
    #[default = 64]
    #[schemars(range(min = 1, max = 1_048_576))]
    block_size: usize,
    /// How tokens become samples of `block_size`; with a tokenizer. As in `text`. Default: `stream`. Only for text and tokens.
    pack: Option<Pack>,
}

/// A data set of columns.
#[derive(Clone, Debug)]
pub(super) struct ColumnsSource<S> {
    store: S,
    roles: Roles,
    split: SplitOptions,
}

#[derive(Clone, Debug)]
enum Roles {
    Images { keys: ImageKeys, target: Option<String>, transform: TransformOptions },
    Table { keys: TableKeys, target: String },
    Text { from: Documents, keys: SampleKeys, tokenizer: TokenizerPlan },
}

/// What the documents are read from.
#[derive(Clone, Debug)]
enum Documents {
    Texts(TextKeys),
    Tokens(TokenKeys),
}

impl<S: RowStore> ColumnsSource<S> {
    /// Reads what the columns hold; `store` has read its own keys.
    pub fn read(fields: &mut Fields<'_>, store: S) -> Self {
        let ContentKeys { content, target } = fields.config();
        let images = fields.config_if(content == Contents::Images);
        let scaling = fields.config_if(content == Contents::Images).unwrap_or_default();
        let wanted = target.clone().unwrap_or_default();
        let table = TableKeys::read(fields, content == Contents::Table, &wanted);
        let texts = fields.config_if(content == Contents::Text);
        let tokens = fields.config_if(content == Contents::Tokens);
        let samples = fields.config_if(matches!(content, Contents::Text | Contents::Tokens));
        if table.is_some() && !fields.has("target") {
            fields.problem_with_hint(
                "content",
                "a table needs the key `target`",
                "it names the column that the model predicts",
            );
        }
        let with_content = format!("with `content = \"{content}\"`");
        let split = match content {
            Contents::Text | Contents::Tokens => SplitOptions::of_texts(fields, &with_content),
            Contents::Images | Contents::Table => SplitOptions::read(fields),
        };
        let roles = match (images, table, tokens) {
            (Some(keys), ..) => {
                let keys: ImageKeys = keys;
                let transform = TransformOptions {
                    scaling,
                    ..TransformOptions::read(fields, keys.channels, DEFAULT_STATS)
                };
                Roles::Images { keys, target, transform }
            }
            (_, Some(keys), _) => Roles::Table { keys, target: wanted },
            (.., tokens) => {
                fields.misplaced(&["target"], &with_content);
                let from = match tokens {
                    Some(keys) => Documents::Tokens(keys),
                    None => Documents::Texts(texts.unwrap_or_default()),
                };
                let keys = samples.unwrap_or_default();
                Roles::Text { from, keys, tokenizer: TokenizerPlan::default() }
            }
        };
        Self { store, roles, split }
    }
}

impl<S: RowStore + Clone + 'static> DatasetSource for ColumnsSource<S> {
    fn facts(&self) -> DataFacts {
        match &self.roles {
            Roles::Images { keys, .. } => {
                let shape = vec![keys.channels, keys.image_size, keys.image_size];
                let input = Some(FieldFacts { shape, kind: FieldKind::Float });
                DataFacts { input, ..DataFacts::default() }
            }
            Roles::Table { keys, target } => keys.facts(target),
            Roles::Text { keys, tokenizer, .. } => {
                let facts = tokenizer.known().map(|tokenizer| FieldFacts {
                    shape: vec![keys.block_size],
                    kind: FieldKind::Index(tokenizer.vocabulary_size()),
                });
                DataFacts { input: facts.clone(), target: facts, ..DataFacts::default() }
            }
        }
    }

    fn tokenized(&self, tokenizer: &TokenizerPlan) -> Option<Arc<dyn DatasetSource>> {
        let Roles::Text { from, keys, .. } = &self.roles else { return None };
        let roles = Roles::Text { from: from.clone(), keys: keys.clone(), tokenizer: tokenizer.clone() };
        Some(Arc::new(Self { roles, ..self.clone() }))
    }

    fn needs_documents(&self) -> Option<&'static str> {
        let packs = |keys: &SampleKeys| keys.pack.is_some_and(|pack| pack != Pack::Stream);
        matches!(&self.roles, Roles::Text { keys, .. } if packs(keys)).then_some("pack")
    }

    fn check_files(&self) -> Result<()> {
        self.store.check_files()?;
        match &self.roles {
            Roles::Text { from, tokenizer, .. } => self.tokenizer(from, tokenizer).map(drop),
            Roles::Images { .. } | Roles::Table { .. } => Ok(()),
        }
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let stored = self.store.open(say)?;
        match &self.roles {
            Roles::Images { keys, target, .. } => {
                let (image, target) = image_roles(&stored, keys.image.as_deref(), target.as_deref())?;
                let opened = self.images(&stored, (&image, &target), say)?;
                let [image, target] = [&image, &target].map(|name| display::name(name));
                say(&format!(
                    "{}: {} training images in `{image}`, {} in `{target}`",
                    stored.place,
                    opened.train.len(),
                    in_words(&opened.classes)
                ));
                Ok(())
            }
            // The rest is read by `open`, and checked there.
            Roles::Table { target, .. } => column(&*stored.train, target, "target").map(drop),
            Roles::Text { from, keys, tokenizer } => {
                let column = from.column(&*stored.train)?;
                from.say_unused(&*stored.train, &column, say);
                match self.tokenizer(from, tokenizer)? {
                    Some(tokenizer) => {
                        self.of_tokens(&stored, (from, &column), keys, tokenizer, say).map(drop)
                    }
                    None => Ok(()),
                }
            }
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.store.files()
    }

    fn open(&self) -> Result<Splits> {
        self.open_as(None)
    }

    fn open_encoded(&self, known: &Encoding) -> Result<Splits> {
        self.open_as(known.table())
    }
}

impl<S: RowStore> ColumnsSource<S> {
    /// A table is encoded as `known`, if that is given.
    fn open_as(&self, known: Option<&TableEncoding>) -> Result<Splits> {
        let mut stored = self.store.open(&mut |_| ())?;
        if stored.val.is_some() && self.split.val_split > 0.0 {
            let message = format!("{} has a validation split, but `val_split` is set too", stored.place);
            return Err(Error::data(message).hint("remove `val_split`, or set it to 0"));
        }
        match &self.roles {
            Roles::Images { keys, target, transform } => {
                let (image, target) = image_roles(&stored, keys.image.as_deref(), target.as_deref())?;
                let opened = self.images(&stored, (&image, &target), &mut |_| ())?;
                let ImageKeys { channels, image_size, .. } = *keys;
                let builder = ImageSetBuilder::new(channels, image_size, opened.classes, transform.clone());
                let val = opened.val.or_else(|| opened.test.clone());
                let mut splits = builder.splits(opened.train, val, &self.split)?;
                splits.test = opened.test.map(|test| builder.set(&test, Subset::all(test.len()), false));
                Ok(splits)
            }
            Roles::Table { keys, target } => open_table(&mut stored, keys, target, &self.split, known),
            Roles::Text { from, keys, tokenizer } => {
                let column = from.column(&*stored.train)?;
                match self.tokenizer(from, tokenizer)? {
                    Some(tokenizer) => self.of_tokens(&stored, (from, &column), keys, tokenizer, &mut |_| ()),
                    None => open_text(&stored, &column, self.windows(keys)),
                }
            }
        }
    }

    /// The tokenizer, unless the tokens are characters.
    ///
    /// # Errors
    /// It can't be read, or the documents are tokens and nothing says what these are.
    fn tokenizer<'a>(&self, from: &Documents, plan: &'a TokenizerPlan) -> Result<Option<&'a Tokenizer>> {
        match (from, plan.get()?) {
            (Documents::Tokens(_), None) => {
                let files = self.store.files();
                let place = files.first().map(|path| path.display().to_string()).unwrap_or_default();
                Err(Error::data(format!("{place} has tokens, and nothing says what they are"))
                    .hint("`[tokenizer] path` names the tokenizer that they are from"))
            }
            (_, tokenizer) => Ok(tokenizer),
        }
    }

    fn windows(&self, keys: &SampleKeys) -> Windowing {
        let (block_size, pack) = (keys.block_size, keys.pack.unwrap_or_default());
        let SplitOptions { val_split, max_train, max_val, .. } = self.split;
        Windowing { block_size, pack, val_split, max_train, max_val }
    }

    /// The samples of the column's rows, each a document.
    fn of_tokens(
        &self,
        stored: &Stored,
        (from, column): (&Documents, &str),
        keys: &SampleKeys,
        tokenizer: &Tokenizer,
        say: &mut dyn FnMut(&str),
    ) -> Result<Splits> {
        let mut of = |set: &Arc<dyn RowSet>| {
            let (set, name, files) = (set.clone(), column.to_owned(), self.store.files());
            let texts: Box<dyn Texts> = match from {
                Documents::Texts(_) => Box::new(RowTexts { set, name, files }),
                Documents::Tokens(TokenKeys { add_end_token, .. }) => {
                    let vocabulary = tokenizer.vocabulary_size();
                    let end = tokenizer.end().filter(|_| *add_end_token);
                    Box::new(RowTokens { set, name, files, vocabulary, end })
                }
            };
            tokens(self.store.cache(), &*texts, tokenizer, say).map(TokenFiles::from)
        };
        let splits = TokenSplits {
            train: of(&stored.train)?,
            val: stored.val.as_ref().map(&mut of).transpose()?,
            test: stored.test.as_ref().map(&mut of).transpose()?,
        };
        self.windows(keys).of_tokens(&stored.place, self.store.cache(), tokenizer, splits, say)
    }

    fn images(
        &self,
        stored: &Stored,
        (image, target): (&str, &str),
        say: &mut dyn FnMut(&str),
    ) -> Result<ImageSplits> {
        let Roles::Images { keys, transform, .. } = &self.roles else {
            return Err(Error::internal("the data set has no images"));
        };
        let scaling = transform.scaling;
        let pixels = Pixels { size: keys.image_size, channels: keys.channels, scaling };
        open_images(stored, image, target, pixels, say)
    }
}

impl Documents {
    /// The column that has them.
    fn column(&self, set: &dyn RowSet) -> Result<String> {
        match self {
            Self::Texts(keys) => text_role(set, keys.text.as_deref()),
            Self::Tokens(TokenKeys { tokens: Some(name), .. }) => {
                Ok(set.columns()[column(set, name, TOKENS)?].name.clone())
            }
            Self::Tokens(_) => {
                choose(set, TOKENS, "of tokens", &TOKEN_LISTS, &[&|column| column.kind == CellKind::Lists])
            }
        }
    }

    /// Says which columns would change what is trained, but are not used.
    fn say_unused(&self, set: &dyn RowSet, column: &str, say: &mut dyn FnMut(&str)) {
        let there = |name: &str| set.columns().iter().any(|column| column.name == name);
        if matches!(self, Self::Tokens(_)) && there(TARGETS) {
            let (place, column) = (set.place(), display::name(column));
            say(&format!("{place}: `{TARGETS}` is not used: each token of `{column}` is a target"));
        }
    }
}

/// The columns of the images and of the classes.
pub(super) fn image_roles(
    stored: &Stored,
    image: Option<&str>,
    target: Option<&str>,
) -> Result<(String, String)> {
    let train = &*stored.train;
    let image = match image {
        Some(name) => train.columns()[column(train, name, "image")?].name.clone(),
        None => {
            let declared = |column: &&Column| column.image;
            let bytes = |column: &&Column| column.kind == CellKind::Bytes;
            choose(train, "image", "of images", &IMAGES, &[&declared, &bytes]).map_err(|e| {
                let hint = "for numbers and texts, set `[dataset] content` to \"table\" or \"text\"";
                let hint = e.hint.as_deref().map_or(hint.to_owned(), |own| format!("{own}; {hint}"));
                e.hint(hint)
            })?
        }
    };
    let target = match target {
        Some(name) => train.columns()[column(train, name, "target")?].name.clone(),
        None => {
            let declared = |column: &&Column| column.classes.is_some();
            choose(train, "target", "of classes", &LABELS, &[&declared])?
        }
    };
    Ok((image, target))
}

/// The column of the texts.
pub(super) fn text_role(set: &dyn RowSet, text: Option<&str>) -> Result<String> {
    match text {
        Some(name) => Ok(set.columns()[column(set, name, "text")?].name.clone()),
        None => choose(set, "text", "of texts", &TEXTS, &[&|column| column.kind == CellKind::Texts]),
    }
}

/// The only column of the first of these kinds that there is; among several, or none, one that is called so.
fn choose(
    set: &dyn RowSet,
    key: &str,
    what: &str,
    names: &[&str],
    kinds: &[&dyn Fn(&&Column) -> bool],
) -> Result<String> {
    let columns = || set.columns().iter();
    let able: Vec<&Column> = kinds
        .iter()
        .map(|kind| columns().filter(kind).collect::<Vec<_>>())
        .find(|able| !able.is_empty())
        .unwrap_or_default();
    if let [only] = able[..] {
        return Ok(only.name.clone());
    }
    // A name alone is enough where the store does not know what its columns hold.
    let among: Vec<&Column> = if able.is_empty() {
        columns().filter(|column| column.kind == CellKind::Values || column.kind == CellKind::Texts).collect()
    } else {
        able.clone()
    };
    let called =
        names.iter().find_map(|name| among.iter().find(|column| column.name.eq_ignore_ascii_case(name)));
    if let Some(column) = called {
        return Ok(column.name.clone());
    }
    let (place, columns) = (set.place(), listed(columns().map(|column| column.name.as_str())));
    Err(match able.is_empty() {
        true => Error::data(format!("{place}: no column is known to be one {what}"))
            .hint(format!("`[dataset] {key}` names it; the columns are {columns}")),
        false => {
            let able = listed(able.iter().map(|column| column.name.as_str()));
            Error::data(format!("{place}: several columns may be the one {what}: {able}"))
                .hint(format!("`[dataset] {key}` names it"))
        }
    })
}
