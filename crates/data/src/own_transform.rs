//! Transforms of users' crates: they change samples as they are read.

use super::rng::CounterRng;
use super::split::Subset;
use super::{
    Content, Dataset, Encoding, FieldFacts, FieldMut, FieldsMut, SampleKey, SampleMut, Splits, StoredImages,
};
use base::error::Result;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use spec::Fields;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Changes samples, `[[transform]] name = "…"`. It is its own config: its fields are the keys of the table.
pub trait Transform: Send + Sync + 'static {
    /// Changes a sample in place. It is called on any thread and in any order, and must depend on nothing but its
    /// argument.
    fn apply(&self, sample: Sample<'_>) -> Result<()>;
}

/// A sample as its data set wrote it.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Whether it is of the training split.
    pub training: bool,
    /// The shape of the input.
    pub shape: &'a [usize],
    /// The input's values, row-major.
    pub input: FieldMut<'a>,
    /// The target's values, row-major.
    pub target: FieldMut<'a>,
    /// The values of the further fields, each row-major.
    pub fields: FieldsMut<'a>,
    /// Draws for this sample, epoch and transform: the same on any rank, and after a resume.
    pub random: SampleRng,
}

/// A sequence of draws.
#[derive(Clone, Debug)]
pub struct SampleRng(CounterRng);

impl SampleRng {
    /// Uniform in `[from, to]`: `to` only by rounding.
    pub fn between(&mut self, from: f32, to: f32) -> f32 {
        self.0.between(from, to)
    }

    /// Uniform among 0, 1, …, `n - 1`; `n` is at least 1.
    pub fn below(&mut self, n: u32) -> u32 {
        self.0.below(n)
    }

    /// Standard normal.
    pub fn normal(&mut self) -> f32 {
        self.0.normal()
    }
}

/// Reads a `[[transform]]` table of one transform; `None` after a problem.
pub type TransformKind = fn(&str, &mut Fields<'_>) -> Option<TransformPlan>;

/// A resolved `[[transform]]`.
#[derive(Clone)]
pub struct TransformPlan {
    name: String,
    transform: Arc<dyn Transform>,
}

impl fmt::Debug for TransformPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransformPlan").field(&self.name).finish()
    }
}

impl TransformPlan {
    /// The [`TransformKind`] of `T`.
    pub fn read<T: Transform + DeserializeOwned + JsonSchema>(
        name: &str,
        fields: &mut Fields<'_>,
    ) -> Option<Self> {
        Some(Self { name: name.to_owned(), transform: Arc::new(fields.parse::<T>()?) })
    }
}

/// The splits with the transforms applied, in order.
pub fn transformed(splits: Splits, transforms: &[TransformPlan]) -> Splits {
    if transforms.is_empty() {
        return splits;
    }
    let of = |of: Arc<dyn Dataset>, training| -> Arc<dyn Dataset> {
        let (input, part) = (of.input(), Subset::all(of.len()));
        Arc::new(View { of, part, input, transforms: transforms.to_vec(), training })
    };
    Splits {
        train: of(splits.train, true),
        val: splits.val.map(|val| of(val, false)),
        test: splits.test.map(|test| of(test, false)),
    }
}

/// Some samples of a data set, with transforms. Images are transformed on the host, before they are sent to a device.
pub(super) struct View {
    of: Arc<dyn Dataset>,
    part: Subset,
    input: FieldFacts,
    transforms: Vec<TransformPlan>,
    training: bool,
}

#[cfg(feature = "burn")]
impl View {
    /// A part of a data set, without transforms. Its inputs may have another bound than the data set declares.
    pub(super) fn part(of: Arc<dyn Dataset>, part: Subset, input: FieldFacts) -> Arc<dyn Dataset> {
        Arc::new(Self { of, part, input, transforms: Vec::new(), training: false })
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default would hide what the wrapped data set says")]
impl Dataset for View {
    fn len(&self) -> usize {
        self.part.len()
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn input(&self) -> FieldFacts {
        self.input.clone()
    }
    fn target(&self) -> FieldFacts {
        self.of.target()
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        self.of.fields()
    }
    fn content(&self) -> Option<Content> {
        self.of.content().map(|content| self.part.content(content))
    }
    fn class_counts(&self) -> Option<Vec<usize>> {
        self.of.class_counts().filter(|_| self.part.len() == self.of.len())
    }
    fn place(&self, index: u64) -> Option<String> {
        self.of.place(self.part.get(index as usize) as u64)
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
        // Of all samples; which ones a part has is chosen at random.
        self.of.bytes_per_target()
    }
    fn encoding(&self) -> Option<Encoding> {
        self.of.encoding()
    }
    fn stored(&self) -> Option<&dyn StoredImages> {
        // Transforms are applied on the host.
        None
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let sample = self.part.get(key.sample as usize) as u64;
        self.of.write(SampleKey { sample, ..key }, to.again())?;
        for (number, plan) in (0..).zip(&self.transforms) {
            let SampleMut { input, target, fields } = to.again();
            plan.transform.apply(Sample {
                training: self.training,
                shape: &self.input.shape,
                input,
                target,
                fields,
                random: SampleRng(CounterRng::of_transform(key, number)),
            })?;
        }
        Ok(())
    }
}
