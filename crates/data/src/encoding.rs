//! What a trained model's use needs of its data set: how inputs become numbers, and what outputs stand for. A checkpoint
//! carries it, so that it can be used without the data.

use super::scaling::{Interpolation, Resize, Scaling};
use super::sets::Blanks;
use super::tokenizer::StoredEncoding;
use super::transforms::TransformOptions;
use super::{FieldFacts, FieldKind, Tokenizer};
use serde::{Deserialize, Serialize};

/// How the samples of a data set are made from what users have, and what the model's outputs are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "inputs", rename_all = "kebab-case")]
pub enum Encoding {
    /// Images of classes.
    Images(ImageEncoding),
    /// Rows of a table.
    Table(TableEncoding),
    /// Texts.
    Text(TextEncoding),
}

impl Encoding {
    /// The keys of `[dataset]` that do not count where this encoding is used: it has their values.
    pub fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Images(_) => &["normalize", "mean", "std", "standardise_target"],
            Self::Table(_) => &["features", "categories", "blank_marks", "standardise", "standardise_target"],
            Self::Text(_) => &[],
        }
    }
}

/// Images are scaled to squares (`resize`, `interpolation`) and normalised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageEncoding {
    /// 1 for grey, 3 for colour.
    pub channels: usize,
    /// Height and width.
    pub size: usize,
    /// Subtracted from pixels in 0 to 1, a number per channel.
    pub mean: Vec<f64>,
    /// What the difference is divided by, a number per channel.
    pub std: Vec<f64>,
    /// How the shape of an image is made a square.
    #[serde(default)]
    pub resize: Resize,
    /// How pixels are interpolated.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// By index; none where a number is predicted.
    pub classes: Vec<String>,
    /// The scale of what is predicted, where that is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<NumberEncoding>,
}

/// The scale of a target: `output * std + mean` is in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberEncoding {
    /// The mean of the training samples, or 0 where the target is not scaled.
    pub mean: f64,
    /// The standard deviation of the training samples, or 1.
    pub std: f64,
}

impl ImageEncoding {
    /// The encoding of images that `transform` scales and normalises.
    pub fn new(channels: usize, size: usize, transform: &TransformOptions, classes: Vec<String>) -> Self {
        let none = || (vec![0.0; channels], vec![1.0; channels]);
        let (mean, std) = transform.normalize.clone().unwrap_or_else(none);
        let Scaling { resize, interpolation } = transform.scaling;
        Self { channels, size, mean, std, resize, interpolation, classes, number: None }
    }
}

/// The columns of a table. They are found by name, in any order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEncoding {
    /// Separator of columns in text files.
    pub delimiter: char,
    /// In the order of the inputs.
    pub columns: Vec<ColumnEncoding>,
    /// What is done about an empty cell.
    pub blanks: Blanks,
    /// Texts that count as empty.
    pub blank_marks: Vec<String>,
    /// What the outputs are of.
    pub target: TargetEncoding,
}

impl TableEncoding {
    /// Inputs of a row.
    pub fn width(&self) -> usize {
        self.columns.iter().map(|column| column.kind.width()).sum()
    }
}

/// A column of features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnEncoding {
    /// In the header.
    pub name: String,
    /// What its cells are.
    #[serde(flatten)]
    pub kind: ColumnKind,
}

/// What the cells of a column become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ColumnKind {
    /// `(x - mean) / std`, computed in f64.
    Number {
        /// The mean of the training rows, or 0 where columns are not scaled.
        mean: f64,
        /// The standard deviation of the training rows, or 1.
        std: f64,
        /// In place of an empty cell, before it is scaled.
        fill: f64,
    },
    /// One-hot.
    Category {
        /// By index.
        categories: Vec<String>,
        /// In place of an empty cell, a number per category.
        fill: Vec<f64>,
    },
}

impl ColumnKind {
    /// Inputs of the column.
    pub fn width(&self) -> usize {
        match self {
            Self::Number { .. } => 1,
            Self::Category { categories, .. } => categories.len(),
        }
    }
}

/// The column that the model predicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TargetEncoding {
    /// `output * std + mean`, in the table's units.
    Number {
        /// In the header.
        name: String,
        /// The mean of the training rows, or 0 where the target is not scaled.
        mean: f64,
        /// The standard deviation of the training rows, or 1.
        std: f64,
    },
    /// One score per class.
    Class {
        /// In the header.
        name: String,
        /// By index.
        classes: Vec<String>,
    },
}

/// A text as tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "StoredEncoding", try_from = "StoredEncoding")]
pub struct TextEncoding {
    /// What gives the tokens.
    pub tokenizer: Tokenizer,
    /// The longest context that the model was trained with, in tokens.
    pub block_size: usize,
}

impl TextEncoding {
    /// See [`Encoding::fits`].
    pub fn fits(&self, input: &FieldFacts) -> Result<(), String> {
        let (known, time) = (self.tokenizer.vocabulary_size(), input.shape.first().copied().unwrap_or(0));
        match input.kind {
            FieldKind::Index(n) if known <= n && (1..=time).contains(&self.block_size) => Ok(()),
            FieldKind::Index(n) => Err(format!(
                "it gives up to {} of {known} {}s, and samples are {time} of {n}",
                self.block_size,
                self.tokenizer.unit()
            )),
            FieldKind::Float => Err("it gives indices, and samples are numbers".to_owned()),
        }
    }
}

impl Encoding {
    /// That of a table, if it is one.
    pub fn table(&self) -> Option<&TableEncoding> {
        match self {
            Self::Table(table) => Some(table),
            Self::Images(_) | Self::Text(_) => None,
        }
    }

    /// The scale of what is predicted, if that is a number.
    pub fn number(&self) -> Option<NumberEncoding> {
        match self {
            Self::Images(images) => images.number,
            Self::Table(TableEncoding { target: TargetEncoding::Number { mean, std, .. }, .. }) => {
                Some(NumberEncoding { mean: *mean, std: *std })
            }
            Self::Table(_) | Self::Text(_) => None,
        }
    }

    /// The names of the classes, by index, if outputs are scores of classes.
    pub fn classes(&self) -> Option<&[String]> {
        match self {
            Self::Images(images) if images.number.is_some() => None,
            Self::Images(images) => Some(&images.classes),
            Self::Table(TableEncoding { target: TargetEncoding::Class { classes, .. }, .. }) => Some(classes),
            Self::Table(_) | Self::Text(_) => None,
        }
    }

    /// Whether its parts belong together: it may come from a file.
    fn is_sound(&self) -> Result<(), String> {
        match self {
            Self::Images(ImageEncoding { channels, size, mean, std, .. }) => {
                if !matches!(channels, 1 | 3) || *size == 0 {
                    return Err(format!("it gives images of {size}x{size} in {channels} channels"));
                }
                if [mean.len(), std.len()] != [*channels; 2] {
                    let (means, deviations) = (mean.len(), std.len());
                    return Err(format!(
                        "it has {means} means and {deviations} deviations for {channels} channels"
                    ));
                }
            }
            Self::Table(table) if matches!(table.blanks, Blanks::Mean | Blanks::Zero) => {
                for column in &table.columns {
                    match &column.kind {
                        ColumnKind::Category { categories, fill } if fill.len() != categories.len() => {
                            let (numbers, known) = (fill.len(), categories.len());
                            return Err(format!(
                                "it has {numbers} numbers for an empty cell of {known} categories"
                            ));
                        }
                        _ => {}
                    }
                }
            }
            Self::Table(_) | Self::Text(_) => {}
        }
        Ok(())
    }

    /// Whether what is encoded are samples as a data set has them, whose inputs are `input`. A user-defined data set declares both.
    ///
    /// # Errors
    /// In words: what the encoding gives, and what the samples are.
    pub fn fits(&self, input: &FieldFacts) -> Result<(), String> {
        self.is_sound()?;
        let given = match self {
            Self::Images(ImageEncoding { channels, size, .. }) => vec![*channels, *size, *size],
            Self::Table(table) => vec![table.width()],
            Self::Text(text) => return text.fits(input),
        };
        let same = input.kind == FieldKind::Float
            && match self {
                Self::Images(_) => given == input.shape,
                _ => given.iter().product::<usize>() == input.shape.iter().product::<usize>(),
            };
        let kind = if input.kind == FieldKind::Float { "numbers" } else { "indices" };
        same.then_some(())
            .ok_or_else(|| format!("it gives {given:?} numbers, and samples are {:?} {kind}", input.shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_round_trip_as_json_to_the_last_bit() {
        let third = 1.0 / 3.0;
        let number = ColumnKind::Number { mean: third, std: f64::from(0.1_f32), fill: f64::from(0.7_f32) };
        let category =
            ColumnKind::Category { categories: vec!["a".into(), "b".into()], fill: vec![third, 0.0] };
        let column = |name: &str, kind| ColumnEncoding { name: name.to_owned(), kind };
        let table = TableEncoding {
            delimiter: ';',
            columns: vec![column("x", number), column("type", category)],
            blanks: Blanks::Mean,
            blank_marks: vec![String::new(), "NA".into()],
            target: TargetEncoding::Class { name: "y".into(), classes: vec!["no".into(), "yes".into()] },
        };
        let image = ImageEncoding::new(3, 32, &TransformOptions::default(), vec!["cat".into()]);
        assert_eq!((image.mean.as_slice(), image.std.as_slice()), (&[0.0; 3][..], &[1.0; 3][..]));
        let of_text = |tokenizer| Encoding::Text(TextEncoding { tokenizer, block_size: 8 });
        let text = of_text(Tokenizer::of_characters("\0\n\"\\é\u{202e}".chars()));
        let bytes = of_text(Tokenizer::of_bytes());
        for encoding in [Encoding::Table(table), Encoding::Images(image), text, bytes] {
            let json = serde_json::to_string(&encoding).unwrap();
            assert_eq!(serde_json::from_str::<Encoding>(&json).unwrap(), encoding, "{json}");
        }
    }

    #[test]
    fn an_encoding_gives_what_samples_are() {
        let of = |shape: &[usize], kind| FieldFacts { shape: shape.to_vec(), kind };
        let image = Encoding::Images(ImageEncoding::new(3, 8, &TransformOptions::default(), Vec::new()));
        assert_eq!(image.fits(&of(&[3, 8, 8], FieldKind::Float)), Ok(()));
        let why = image.fits(&of(&[1, 8, 8], FieldKind::Float)).unwrap_err();
        assert_eq!(why, "it gives [3, 8, 8] numbers, and samples are [1, 8, 8] numbers");
        let text = Encoding::Text(TextEncoding {
            tokenizer: Tokenizer::of_characters("abé".chars()),
            block_size: 8,
        });
        assert_eq!(text.fits(&of(&[8], FieldKind::Index(3))), Ok(()));
        for (shape, kind) in [(8, FieldKind::Index(2)), (7, FieldKind::Index(3)), (8, FieldKind::Float)] {
            assert!(text.fits(&of(&[shape], kind)).is_err(), "{shape}, {kind:?}");
        }
    }
}
