//! Divides samples into training and validation: `val_split` as in PyTorch's `random_split`, and limits for quick trials.

use super::mt19937::random_split;
use crate::spec::Fields;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::ops::Range;
use std::sync::Arc;

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
    /// Part of the rows that becomes the validation split. With 0 there is none. Above 0.5 is a warning.
    #[default = 0.1]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    val_split: f64,
}

// Read only where samples are drawn.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Splits"))]
struct Seed {
    /// Seed of the split, which equals PyTorch's `random_split` with this seed.
    #[default = 42]
    split_seed: u64,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("x-section" = "Splits"))]
struct Limits {
    /// Use at most this many training samples, the first of the split.
    #[schemars(range(min = 1))]
    max_train: Option<usize>,
    /// Use at most this many validation samples, the first of the split.
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

    /// `random_split(range(n), [n - val, val])`. Without validation, training is all samples in order.
    pub fn split(&self, n: usize) -> (Part, Part) {
        let val = self.val_of(n);
        if val == 0 {
            return (Part::all(n).limited(self.max_train), Part::all(0));
        }
        let parts = random_split(n, &[n - val, val], self.split_seed);
        let part = |i: usize| Part { len: parts[i].len(), indices: Some(parts[i].as_slice().into()) };
        (part(0).limited(self.max_train), part(1).limited(self.max_val))
    }
}

fn limit(n: usize, max: Option<usize>) -> usize {
    max.map_or(n, |max| n.min(max))
}

/// An ordered subset of a stored data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    len: usize,
    /// `None`: in stored order.
    indices: Option<Arc<[u64]>>,
}

impl Part {
    pub fn all(n: usize) -> Self {
        Self { len: n, indices: None }
    }

    /// Consecutive samples.
    pub fn range(range: Range<usize>) -> Self {
        Self { len: range.len(), indices: Some(range.map(|i| i as u64).collect()) }
    }

    /// The first `max` samples.
    pub fn limited(self, max: Option<usize>) -> Self {
        Self { len: limit(self.len, max), ..self }
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
        let (train, val) = options.split(50_000);
        assert_eq!((train.len(), val.len()), (45_000, 30));
        assert_eq!(options.sizes(50_000, Some(10_000)), (45_000, Some(30)));
        // The first indices of torch for [45000, 5000], seed 42.
        assert_eq!([train.get(0), train.get(1), train.get(2)], [37542, 44491, 216]);
        assert_eq!([val.get(0), val.get(1), val.get(2)], [17408, 40845, 3378]);
        assert_eq!(SplitOptions::default().sizes(50_000, Some(10_000)), (50_000, Some(10_000)));
        assert_eq!(SplitOptions::default().sizes(50_000, None), (50_000, None));
        let (train, val) = SplitOptions { max_train: Some(3), ..SplitOptions::default() }.split(7);
        assert_eq!((train.len(), train.get(2), val.len()), (3, 2, 0));
    }
}
