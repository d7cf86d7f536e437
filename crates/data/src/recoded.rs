//! The data that a checkpoint is evaluated on, in the checkpoint's encoding: another data set may number the same classes or
//! characters otherwise, or normalise images by other means.

use super::images::class_facts;
use super::{
    Content, Dataset, Encoding, FieldFacts, FieldKind, FieldMut, ImageEncoding, NumberEncoding, SampleKey,
    SampleMut, Splits, StoredImages, TableEncoding, TargetEncoding, UNTRAINED,
};
use base::display;
use base::error::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Names in a message.
const LISTED: usize = 20;

/// The splits of data set `data` as `known` encodes them. A data set that does not say its encoding is left as it is.
///
/// # Errors
/// It has what the checkpoint does not know, or can't be encoded so (`ErrorKind::Spec`).
pub fn recoded(data: &str, splits: Splits, known: &Encoding) -> Result<Splits> {
    let Some(own) = splits.train.encoding().filter(|own| own != known) else { return Ok(splits) };
    let changes = changes(&own, known).map_err(|why| {
        Error::data(format!("data set `{data}` does not fit the checkpoint: {why}"))
            .hint("a checkpoint is evaluated with the classes, columns and scales that it was trained with")
    })?;
    let changes = Arc::new(changes);
    let of = |of| -> Arc<dyn Dataset> {
        Arc::new(Recoded { of, changes: changes.clone(), encoding: known.clone() })
    };
    Ok(Splits { train: of(splits.train), val: splits.val.map(of), test: splits.test.map(of) })
}

/// The indices of the checkpoint for those of a data set.
#[derive(Clone, Debug, Default, PartialEq)]
struct Indices {
    to: Vec<i64>,
    /// How many there are in the checkpoint.
    known: usize,
}

#[derive(Debug, Default, PartialEq)]
struct Changes {
    /// Inputs that are indices.
    input: Option<Indices>,
    /// `x * factor + summand` for each channel of an image.
    pixels: Option<Vec<[f64; 2]>>,
    target: Option<Indices>,
}

/// # Errors
/// In words: what does not fit.
fn changes(own: &Encoding, known: &Encoding) -> Result<Changes, String> {
    match (own, known) {
        (Encoding::Images(own), Encoding::Images(known)) => Ok(Changes {
            pixels: pixels(own, known)?,
            target: match (own.number, known.number) {
                (None, None) => indices("class", &own.classes, &known.classes)?,
                (own, known) => same_scale(own, known)?,
            },
            ..Changes::default()
        }),
        (Encoding::Text(own), Encoding::Text(known)) => {
            let [own, known] = [own, known].map(|encoding| &encoding.tokenizer);
            let (Some(own), Some(known)) = (own.characters(), known.characters()) else {
                return match own == known {
                    true => Ok(Changes::default()),
                    false => Err("its text is tokenised otherwise".to_owned()),
                };
            };
            let characters = |of: &[char]| of.iter().map(char::to_string).collect::<Vec<_>>();
            let of_both = mapped("character", &characters(own), &characters(known))?;
            Ok(Changes { input: Some(of_both.clone()), target: Some(of_both), ..Changes::default() })
        }
        (Encoding::Table(own), Encoding::Table(known)) => table(own, known),
        _ => Err(format!("it has {}, and the checkpoint was trained with {}", kind(own), kind(known))),
    }
}

fn kind(of: &Encoding) -> &'static str {
    match of {
        Encoding::Images(_) => "images",
        Encoding::Table(_) => "rows of a table",
        Encoding::Text(_) => "texts",
    }
}

/// Tables are opened in the encoding of the checkpoint (`DatasetSource::open_encoded`), unless a user-defined data set measures its columns.
fn table(own: &TableEncoding, known: &TableEncoding) -> Result<Changes, String> {
    let target = match (&own.target, &known.target) {
        (TargetEncoding::Class { classes: own, .. }, TargetEncoding::Class { classes: known, .. }) => {
            indices("class", own, known)?
        }
        (own, known) => same_scale(number(own), number(known))?,
    };
    match own.columns == known.columns {
        true => Ok(Changes { target, ..Changes::default() }),
        false => Err("its columns are encoded otherwise".to_owned()),
    }
}

fn number(target: &TargetEncoding) -> Option<NumberEncoding> {
    match target {
        TargetEncoding::Number { mean, std, .. } => Some(NumberEncoding { mean: *mean, std: *std }),
        TargetEncoding::Class { .. } => None,
    }
}

/// Nothing is to be changed in targets of this scale; `None`: they are classes.
fn same_scale(own: Option<NumberEncoding>, known: Option<NumberEncoding>) -> Result<Option<Indices>, String> {
    match (own, known) {
        (Some(own), Some(known)) if own == known => Ok(None),
        (Some(_), Some(_)) => Err("its target is scaled otherwise".to_owned()),
        (None, _) => Err("its targets are classes, not numbers".to_owned()),
        (Some(_), None) => Err("its targets are numbers, not classes".to_owned()),
    }
}

fn pixels(own: &ImageEncoding, known: &ImageEncoding) -> Result<Option<Vec<[f64; 2]>>, String> {
    if own.channels != known.channels {
        let (own, known) = (own.channels, known.channels);
        return Err(format!("its images have channels = {own}, and those of the checkpoint {known}"));
    }
    let scaling = |of: &ImageEncoding| {
        let ImageEncoding { size, resize, interpolation, .. } = of;
        format!("image_size = {size}, resize = \"{resize}\" and interpolation = \"{interpolation}\"")
    };
    if scaling(own) != scaling(known) {
        let (own, known) = (scaling(own), scaling(known));
        return Err(format!("its images have {own}, and those of the checkpoint {known}"));
    }
    if (&own.mean, &own.std) == (&known.mean, &known.std) {
        return Ok(None);
    }
    let channel = |c: usize| {
        let (mean, std) = (known.mean.get(c)?, known.std.get(c)?);
        Some([own.std.get(c)? / std, (own.mean.get(c)? - mean) / std])
    };
    let channels: Option<Vec<[f64; 2]>> = (0..own.channels).map(channel).collect();
    channels.map(Some).ok_or_else(|| "its normalisation lacks a channel".to_owned())
}

/// `None` if all are the same. Otherwise by name; where that fails, names that only number the classes stand for no others, and the
/// numbers count: those of a data set without names, or of a checkpoint without, which has as many.
fn indices(what: &str, own: &[String], known: &[String]) -> Result<Option<Indices>, String> {
    if own == known {
        return Ok(None);
    }
    let numbers = |names: &[String]| names.iter().enumerate().all(|(i, name)| *name == i.to_string());
    mapped(what, own, known).map(Some).or_else(|why| match own.len() {
        n if numbers(own) && n <= known.len() || numbers(known) && n == known.len() => {
            Ok(Some(Indices { to: (0..n as i64).collect(), known: known.len() }))
        }
        _ => Err(why),
    })
}

fn mapped(what: &str, own: &[String], known: &[String]) -> Result<Indices, String> {
    let places: HashMap<&String, i64> = known.iter().zip(0..).collect();
    let place = |name: &String| {
        places.get(name).copied().ok_or_else(|| {
            let more = known.len().saturating_sub(LISTED);
            let listed: Vec<String> =
                known.iter().take(LISTED).map(|name| format!("`{}`", display::name(name))).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let name = display::name(name);
            format!("its {what} `{name}` is unknown to the checkpoint, which has {}{more}", listed.join(", "))
        })
    };
    Ok(Indices { to: own.iter().map(place).collect::<Result<_, _>>()?, known: known.len() })
}

impl Indices {
    /// Counts by the data set's indices as counts by the checkpoint's.
    fn counts(&self, own: &[usize]) -> Vec<usize> {
        let mut counts = vec![0; self.known];
        for (to, n) in self.to.iter().zip(own) {
            counts[*to as usize] += n;
        }
        counts
    }

    fn apply(&self, values: FieldMut<'_>) -> Result<()> {
        let FieldMut::Index(values) = values else { return Ok(()) };
        // An untrained target has no class; the loader refuses such an input.
        for value in values.iter_mut().filter(|value| **value != UNTRAINED) {
            let place = usize::try_from(*value).ok().and_then(|at| self.to.get(at));
            *value = *place.ok_or_else(|| {
                Error::data(format!("a sample has the index {value}, and the data set has {}", self.to.len()))
            })?;
        }
        Ok(())
    }
}

struct Recoded {
    of: Arc<dyn Dataset>,
    changes: Arc<Changes>,
    encoding: Encoding,
}

#[deny(clippy::missing_trait_methods, reason = "a default would hide what the wrapped data set says")]
impl Dataset for Recoded {
    fn len(&self) -> usize {
        self.of.len()
    }
    fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
    fn input(&self) -> FieldFacts {
        let input = self.of.input();
        match &self.changes.input {
            Some(indices) => FieldFacts { kind: FieldKind::Index(indices.known), ..input },
            None => input,
        }
    }
    fn target(&self) -> FieldFacts {
        let target = self.of.target();
        match &self.changes.target {
            Some(indices) => FieldFacts { shape: target.shape, ..class_facts(indices.known) },
            None => target,
        }
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        self.of.fields()
    }
    fn content(&self) -> Option<Content> {
        self.of.content()
    }
    fn class_counts(&self) -> Option<Vec<usize>> {
        let own = self.of.class_counts()?;
        Some(self.changes.target.as_ref().map_or_else(|| own.clone(), |indices| indices.counts(&own)))
    }
    fn place(&self, index: u64) -> Option<String> {
        self.of.place(index)
    }
    fn remarks(&self) -> Vec<String> {
        self.of.remarks()
    }
    fn target_scale(&self) -> f64 {
        self.of.target_scale()
    }
    fn has_untrained(&self) -> bool {
        self.of.has_untrained()
    }
    fn bytes_per_target(&self) -> Result<Option<f64>> {
        self.of.bytes_per_target()
    }
    fn encoding(&self) -> Option<Encoding> {
        Some(self.encoding.clone())
    }
    fn stored(&self) -> Option<&dyn StoredImages> {
        // Pixels and classes are changed on the host.
        None
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        self.of.write(key, to.again())?;
        if let Some(indices) = &self.changes.input {
            indices.apply(to.input.again())?;
        }
        if let (Some(channels), FieldMut::Float(input)) = (&self.changes.pixels, to.input) {
            let plane = input.len() / channels.len().max(1);
            for (pixels, [factor, summand]) in input.chunks_exact_mut(plane.max(1)).zip(channels) {
                pixels.iter_mut().for_each(|x| *x = (f64::from(*x) * factor + summand) as f32);
            }
        }
        self.changes.target.as_ref().map_or(Ok(()), |indices| indices.apply(to.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interpolation, Resize, TextEncoding};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn images(mean: f64, std: f64, classes: &[&str]) -> Encoding {
        Encoding::Images(ImageEncoding {
            channels: 1,
            size: 2,
            mean: vec![mean],
            std: vec![std],
            resize: Resize::default(),
            interpolation: Interpolation::default(),
            classes: names(classes),
            number: None,
        })
    }

    struct One(Encoding);

    impl Dataset for One {
        fn len(&self) -> usize {
            1
        }
        fn input(&self) -> FieldFacts {
            FieldFacts { shape: vec![1, 1, 2], kind: FieldKind::Float }
        }
        fn target(&self) -> FieldFacts {
            class_facts(2)
        }
        fn class_counts(&self) -> Option<Vec<usize>> {
            Some(vec![0, 1])
        }
        fn encoding(&self) -> Option<Encoding> {
            Some(self.0.clone())
        }
        fn write(&self, _: SampleKey, to: SampleMut<'_>) -> Result<()> {
            let (FieldMut::Float(input), FieldMut::Index(target)) = (to.input, to.target) else { panic!() };
            input.copy_from_slice(&[0.0, 1.0]);
            target[0] = 1;
            Ok(())
        }
    }

    /// The hold-out folder lacks a class, and its spec normalises otherwise.
    #[test]
    fn classes_are_found_by_name_and_pixels_normalised_as_in_training() {
        let splits =
            Splits { train: Arc::new(One(images(0.5, 0.5, &["ant", "cat"]))), val: None, test: None };
        let known = images(0.0, 1.0, &["ant", "bee", "cat"]);
        let set = recoded("photos", splits, &known).unwrap().train;
        assert_eq!((set.target(), set.encoding()), (class_facts(3), Some(known)));
        assert_eq!(crate::testing::sample(&*set, 0, 0), (vec![0.5, 1.0], vec![2.0]));
        // `ant` has no sample, and `bee` is no class of the data.
        assert_eq!(set.class_counts(), Some(vec![0, 0, 1]));
    }

    #[test]
    fn what_a_checkpoint_does_not_know_is_an_error() {
        let ask = |own: &[&str], known: &[&str]| indices("class", &names(own), &names(known));
        let why = ask(&["ant", "dog"], &["ant", "bee"]).unwrap_err();
        assert_eq!(why, "its class `dog` is unknown to the checkpoint, which has `ant`, `bee`");
        assert_eq!(ask(&["a"], &["a"]), Ok(None));
        // Numbers may be names; else they stand for none.
        assert_eq!(ask(&["0", "2"], &["0", "1", "2"]).unwrap().unwrap().to, [0, 2]);
        assert_eq!(ask(&["a", "b", "c"], &["0", "1", "2"]).unwrap().unwrap().to, [0, 1, 2]);
        assert!(ask(&["a", "b"], &["0", "1", "2"]).is_err());
        assert_eq!(ask(&["0", "1"], &["a", "b", "c"]).unwrap().unwrap().to, [0, 1]);
        assert!(ask(&["0", "1", "2"], &["a", "b"]).is_err());
        let text = |characters: &str| {
            let tokenizer = crate::Tokenizer::of_characters(characters.chars());
            Encoding::Text(TextEncoding { tokenizer, block_size: 4 })
        };
        let found = changes(&text("bd"), &text("abcd")).unwrap();
        assert_eq!(found.input, Some(Indices { to: vec![1, 3], known: 4 }));
        assert_eq!(found.input, found.target);
        assert!(changes(&text("xb"), &text("abcd")).unwrap_err().contains("character `x`"));
        let why = changes(&text("a"), &images(0.0, 1.0, &[])).unwrap_err();
        assert_eq!(why, "it has texts, and the checkpoint was trained with images");
        let Encoding::Images(image) = images(0.0, 1.0, &[]) else { panic!() };
        let squashed = Encoding::Images(ImageEncoding { resize: Resize::Squash, ..image.clone() });
        let why = changes(&squashed, &Encoding::Images(image)).unwrap_err();
        assert_eq!(
            why,
            "its images have image_size = 2, resize = \"squash\" and interpolation = \"tensor\", and those of the \
             checkpoint image_size = 2, resize = \"crop\" and interpolation = \"tensor\""
        );
    }
}
