//! Divides samples into training and validation: `val_split` as in PyTorch's `random_split`, and limits for quick trials.

use super::Content;
use super::fingerprint::digest_of_parts;
use base::error::Result;
use sampler::mt19937::{random_split, randperm};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use smart_default::SmartDefault;
use spec::Fields;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The class of a stored sample.
pub type ClassOf<'a> = &'a dyn Fn(usize) -> Result<usize>;

/// The training and the validation split.
#[derive(Clone, Copy, Debug, PartialEq, SmartDefault)]
pub struct SplitOptions {
    pub val_split: f64,
    #[default(Seed::default().split_seed)]
    pub split_seed: u64,
    pub max_train: Option<usize>,
    pub max_val: Option<usize>,
}

/// The size of the validation split. Tables have a different default.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("x-section" = "Validation split"))]
struct PartOfSamples {
    /// Part of the training samples that becomes the validation split. With 0 the official test set is the validation split where
    /// there is one. Above 0.5 is a warning.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    val_split: f64,
}

// Tables have no official test set.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct PartOfRows {
    /// Part of the training rows that becomes the validation split. With 0 it is the test table where there is one (`test` of `csv`), or
    /// there is none. Above 0.5 is a warning.
    #[default = 0.1]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    val_split: f64,
}

// Read only where samples are drawn.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Splits"))]
struct Seed {
    /// Seed of the split, which equals PyTorch's `random_split` with this seed, and of the draw of `max_train` and `max_val`.
    #[default = 42]
    split_seed: u64,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("x-section" = "Splits"))]
struct Limits {
    /// Use at most this many training samples, drawn with `split_seed`, with each class in proportion. Of a text: its first.
    #[schemars(range(min = 1))]
    max_train: Option<usize>,
    /// Use at most this many validation samples, drawn in the same way.
    #[schemars(range(min = 1))]
    max_val: Option<usize>,
}

impl SplitOptions {
    /// Reads the keys of a `[dataset]` table.
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let PartOfSamples { val_split } = fields.config();
        Self::with(val_split, fields)
    }

    /// Reads those of a table of rows, some of which are the validation split unless the spec says otherwise.
    pub fn of_rows(fields: &mut Fields<'_>) -> Self {
        let PartOfRows { val_split } = fields.config();
        Self::with(val_split, fields)
    }

    /// As `of_rows`, unless the validation split is known. `why` says so of `val_split` if it is set then (`with …`).
    pub fn of_tables(fields: &mut Fields<'_>, why: Option<&str>) -> Self {
        match why {
            None => Self::of_rows(fields),
            Some(why) => Self::with_known::<PartOfRows>(fields, why),
        }
    }

    /// As `read`, unless the validation split is known.
    pub fn of_samples(fields: &mut Fields<'_>, why: Option<&str>) -> Self {
        match why {
            None => Self::read(fields),
            Some(why) => Self::with_known::<PartOfSamples>(fields, why),
        }
    }

    fn with_known<T: DeserializeOwned + JsonSchema + Default>(fields: &mut Fields<'_>, why: &str) -> Self {
        fields.misplaced(&["val_split"], why);
        // It is read if it is set, so that it is reported as misplaced, not as unknown.
        let is_set = fields.has("val_split");
        fields.config_if::<T>(is_set);
        Self::with(0.0, fields)
    }

    /// Reads those of texts, which are cut: no seed has an effect. `why` says so of one that is set (`with …`).
    pub fn of_texts(fields: &mut Fields<'_>, why: &str) -> Self {
        let PartOfSamples { val_split } = fields.config();
        fields.misplaced(&["split_seed"], why);
        // It is read if it is set, so that it is reported as misplaced, not as unknown.
        let is_set = fields.has("split_seed");
        fields.config_if::<Seed>(is_set);
        let Limits { max_train, max_val } = fields.config();
        Self { val_split, max_train, max_val, ..Self::default() }
    }

    fn with(val_split: f64, fields: &mut Fields<'_>) -> Self {
        let (Seed { split_seed }, Limits { max_train, max_val }) = (fields.config(), fields.config());
        Self { val_split, split_seed, max_train, max_val }
    }

    /// Validation samples out of `n`: `int(n * val_split)`.
    pub fn val_of(&self, n: usize) -> usize {
        (n as f64 * self.val_split) as usize
    }

    /// Sizes of training and validation for `n` samples: validation is split from them, or has `official` samples if
    /// `val_split` is 0.
    pub fn sizes(&self, n: usize, official: Option<usize>) -> (usize, Option<usize>) {
        let split = self.val_of(n);
        let val = if self.val_split > 0.0 { Some(split) } else { official };
        (limit(n - split, self.max_train), val.map(|v| limit(v, self.max_val)))
    }

    /// `random_split(range(n), [n - val, val])`. Without validation, training is all samples in order. `class` is known where samples
    /// have one class each.
    ///
    /// # Errors
    /// `class` fails.
    pub fn split(&self, n: usize, class: Option<ClassOf<'_>>) -> Result<(Subset, Subset)> {
        let val = self.val_of(n);
        if val == 0 {
            return Ok((self.at_most(self.max_train, Subset::all(n), class)?, Subset::all(0)));
        }
        let parts = random_split(n, &[n - val, val], self.split_seed);
        let part = |i: usize, max: Option<usize>| -> Result<Subset> {
            // Already in random order.
            let order: Vec<usize> = parts[i].iter().map(|index| *index as usize).collect();
            match max.filter(|max| *max < order.len()) {
                Some(max) => Ok(Subset { limited: true, ..Subset::new(first_of_each(order, max, class)?) }),
                None => Ok(Subset::new(order)),
            }
        };
        Ok((part(0, self.max_train)?, part(1, self.max_val)?))
    }

    /// At most `max_val` of the samples of `part`, which are in stored order.
    ///
    /// # Errors
    /// `class` fails.
    pub fn validation(&self, part: Subset, class: Option<ClassOf<'_>>) -> Result<Subset> {
        self.at_most(self.max_val, part, class)
    }

    /// The drawn samples remain in stored order.
    fn at_most(&self, max: Option<usize>, part: Subset, class: Option<ClassOf<'_>>) -> Result<Subset> {
        let Some(max) = max.filter(|max| *max < part.len) else { return Ok(part) };
        let order = randperm(part.len, self.split_seed);
        let order = order.into_iter().map(|at| part.get(at as usize)).collect();
        let mut drawn = first_of_each(order, max, class)?;
        drawn.sort_unstable();
        Ok(Subset { limited: true, ..Subset::new(drawn) })
    }
}

/// `max` of the samples: of each class the first ones, as many as its share, and at least one while there is room; in their order.
fn first_of_each(mut order: Vec<usize>, max: usize, class: Option<ClassOf<'_>>) -> Result<Vec<usize>> {
    let Some(class) = class else {
        order.truncate(max);
        return Ok(order);
    };
    let classes = order.iter().map(|sample| class(*sample)).collect::<Result<Vec<usize>>>()?;
    let mut sizes: BTreeMap<usize, u128> = BTreeMap::new();
    let mut taken: Vec<(usize, u128)> = (0..)
        .zip(&classes)
        .map(|(at, class)| {
            let size = sizes.entry(*class).or_default();
            *size += 1;
            (at, *size - 1)
        })
        .collect();
    // Sample i of a class of n has its turn at i / n.
    taken.sort_by(|(a, i), (b, j)| {
        let (n, m) = (sizes[&classes[*a]], sizes[&classes[*b]]);
        (i * m).cmp(&(j * n)).then(a.cmp(b))
    });
    taken.truncate(max);
    taken.sort_unstable();
    Ok(taken.into_iter().map(|(at, _)| order[at]).collect())
}

fn limit(n: usize, max: Option<usize>) -> usize {
    max.map_or(n, |max| n.min(max))
}

/// An ordered subset of a stored data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Subset {
    len: usize,
    /// `None`: in stored order.
    indices: Option<Arc<[u64]>>,
    /// By `max_train` or `max_val`.
    limited: bool,
}

impl Subset {
    pub fn all(n: usize) -> Self {
        Self { len: n, indices: None, limited: false }
    }

    fn new(samples: Vec<usize>) -> Self {
        let indices = samples.iter().map(|sample| *sample as u64).collect();
        Self { len: samples.len(), indices: Some(indices), limited: false }
    }

    /// Consecutive samples.
    pub fn range(range: Range<usize>) -> Self {
        Self::new(range.collect())
    }

    /// The digest of a data set's samples as that of this part. Without a limit, the sizes of the splits tell parts apart.
    pub fn content(&self, of: Content) -> Content {
        match self.indices.as_ref().filter(|_| self.limited) {
            Some(indices) => {
                let samples: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
                digest_of_parts([&of[..], &samples])
            }
            None => of,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The index in the stored data set of sample `i`.
    pub fn get(&self, i: usize) -> usize {
        assert!(i < self.len, "sample {i} of {}", self.len);
        self.indices.as_ref().map_or(i, |indices| indices[i] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_split() {
        let options = SplitOptions { val_split: 0.1, max_val: Some(30), ..SplitOptions::default() };
        let (train, val) = options.split(50_000, None).unwrap();
        assert_eq!((train.len(), val.len()), (45_000, 30));
        assert_eq!(options.sizes(50_000, Some(10_000)), (45_000, Some(30)));
        // The first indices of torch for [45000, 5000], seed 42.
        assert_eq!([train.get(0), train.get(1), train.get(2)], [37542, 44491, 216]);
        assert_eq!([val.get(0), val.get(1), val.get(2)], [17408, 40845, 3378]);
        assert_eq!(SplitOptions::default().sizes(50_000, Some(10_000)), (50_000, Some(10_000)));
        assert_eq!(SplitOptions::default().sizes(50_000, None), (50_000, None));
        let (train, val) =
            SplitOptions { max_train: Some(3), ..SplitOptions::default() }.split(7, None).unwrap();
        assert_eq!((train.len(), val.len()), (3, 0));
    }

    /// 900 samples of class 0, then 90 of class 1, then 10 of class 2.
    fn sorted(sample: usize) -> Result<usize> {
        Ok(usize::from(sample >= 900) + usize::from(sample >= 990))
    }

    fn counts(part: &Subset) -> [usize; 3] {
        let mut counts = [0; 3];
        (0..part.len()).for_each(|i| counts[sorted(part.get(i)).unwrap()] += 1);
        counts
    }

    #[test]
    fn a_limit_draws_from_each_class_its_share() {
        for (max, expected) in [(3, [1, 1, 1]), (10, [8, 1, 1]), (100, [90, 9, 1]), (1000, [900, 90, 10])] {
            let options =
                SplitOptions { max_train: Some(max), max_val: Some(max), ..SplitOptions::default() };
            let (train, _) = options.split(1000, Some(&sorted)).unwrap();
            assert_eq!(counts(&train), expected, "{max}");
            let val = options.validation(Subset::all(1000), Some(&sorted)).unwrap();
            assert_eq!(counts(&val), expected, "{max}");
            assert!((1..max).all(|i| train.get(i - 1) < train.get(i)), "in stored order");
            // Beside a validation split.
            let options = SplitOptions { val_split: 0.5, ..options };
            let (train, val) = options.split(1000, Some(&sorted)).unwrap();
            let all = max == 1000;
            assert_eq!((train.len(), val.len()), if all { (500, 500) } else { (max, max) });
            assert!(all || counts(&train).iter().zip(expected).all(|(n, e)| n.abs_diff(e) <= 2), "{max}");
        }
    }

    #[test]
    fn a_limit_draws_with_the_seed_and_is_in_the_fingerprint() {
        let of = |split_seed, max| {
            let options = SplitOptions { split_seed, max_train: Some(max), ..SplitOptions::default() };
            options.split(1000, None).unwrap().0
        };
        assert_eq!(of(1, 20), of(1, 20));
        assert_ne!(of(1, 20), of(2, 20));
        assert!((0..20).any(|i| of(1, 20).get(i) > 500), "not the first ones");
        assert_ne!(of(1, 20).content([7; 32]), of(2, 20).content([7; 32]));
        assert_eq!(of(1, 1000).content([7; 32]), [7; 32], "of all samples it is that of the data");
    }
}
