//! A Burn `Dataset` and its `Batcher` as a data set. The loader requests batches of one sample and assembles batches
//! itself, so sharding, seeking and resumption work as for every other data set. A batcher that compares the samples of
//! a batch (for example to pad to the longest) is not supported.

use super::own_transform::View;
use super::split::{SplitOptions, Subset};
use super::{
    Dataset, DatasetKind, DatasetSource, FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits,
};
use base::error::{Error, Result};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset as BurnDataset;
use burn::tensor::{Device, TensorData};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use spec::Fields;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A batch from a Burn batcher: implement `From<MyBatch> for BurnBatch`.
pub struct BurnBatch {
    input: TensorData,
    target: TensorData,
    fields: BTreeMap<String, TensorData>,
}

impl BurnBatch {
    /// `input`: `[batch, …]`, floats or integers. `target`: `[batch]` or `[batch, …]`, floats or integers.
    pub fn new(input: TensorData, target: TensorData) -> Self {
        Self { input, target, fields: BTreeMap::new() }
    }

    /// With a further field, `[batch]` or `[batch, …]`: floats, or integers or booleans, which become indices. All batches
    /// have the same fields. A later one replaces an earlier one of its name.
    pub fn with(mut self, name: &str, data: TensorData) -> Self {
        self.fields.insert(name.to_owned(), data);
        self
    }
}

/// The splits of a Burn data set, with their batcher.
pub struct BurnData {
    train: Arc<dyn BurnSplit>,
    val: Option<Arc<dyn BurnSplit>>,
    test: Option<Arc<dyn BurnSplit>>,
    classes: usize,
    vocabulary: Option<usize>,
}

impl BurnData {
    /// `classes` is the upper bound of integer targets, and of integer inputs unless [`BurnData::vocabulary`] is called; 0 if there are none.
    pub fn new<I, O>(
        train: impl BurnDataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
        classes: usize,
    ) -> Result<Self>
    where
        I: Send + Sync + 'static,
        O: Into<BurnBatch> + 'static,
    {
        let train = Arc::new(BurnSet::new(train, batcher, classes)?);
        Ok(Self { train, val: None, test: None, classes, vocabulary: None })
    }

    /// The upper bound of integer inputs, where it is not that of the targets: tokens, of which a sequence has one class.
    pub fn vocabulary(self, size: usize) -> Self {
        Self { vocabulary: Some(size), ..self }
    }

    /// The validation split. Without it `dataset.val_split` may split one off the training samples.
    pub fn val<I, O>(
        mut self,
        val: impl BurnDataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
    ) -> Result<Self>
    where
        I: Send + Sync + 'static,
        O: Into<BurnBatch> + 'static,
    {
        self.val = Some(self.alike("validation", BurnSet::new(val, batcher, self.classes)?)?);
        Ok(self)
    }

    /// The samples of `ddp-run eval --split test`.
    pub fn test<I, O>(
        mut self,
        test: impl BurnDataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
    ) -> Result<Self>
    where
        I: Send + Sync + 'static,
        O: Into<BurnBatch> + 'static,
    {
        self.test = Some(self.alike("test", BurnSet::new(test, batcher, self.classes)?)?);
        Ok(self)
    }

    /// A further split, if its samples are like those of training. Further fields are compared when the data set is opened.
    fn alike(&self, what: &str, split: impl BurnSplit + 'static) -> Result<Arc<dyn BurnSplit>> {
        for (part, own, other) in
            [("inputs", self.train.input(), split.input()), ("targets", self.train.target(), split.target())]
        {
            if own != other {
                let (own, other) = (own.shape, other.shape);
                return Err(Error::data(format!(
                    "the {what} samples' {part} (shape {other:?}) are not like those of training (shape {own:?}), in shape or type"
                )));
            }
        }
        Ok(Arc::new(split))
    }

    /// The splits as the keys of the spec have them.
    fn splits(self, options: &SplitOptions) -> Result<Splits> {
        let Self { train, val, test, vocabulary, .. } = self;
        if val.is_some() && options.val_split > 0.0 {
            return Err(Error::spec("the data set already has a validation split")
                .hint("remove `val_split` from `[dataset]`"));
        }
        let classes = train.has_classes();
        let class = |sample| train.class(sample);
        let (of_train, of_val) = options.split(train.len(), classes.then_some(&class))?;
        let val = match val {
            Some(val) => {
                let class = |sample| val.class(sample);
                let part = options.validation(Subset::all(val.len()), classes.then_some(&class))?;
                Some((part, val))
            }
            None => Some((of_val, train.clone())).filter(|(part, _)| part.len() > 0),
        };
        let input = match (train.input(), vocabulary) {
            (FieldFacts { shape, kind: FieldKind::Index(_) }, Some(size)) => {
                FieldFacts { shape, kind: FieldKind::Index(size) }
            }
            (input, _) => input,
        };
        let view = |(part, of): (Subset, Arc<dyn BurnSplit>)| View::part(of, part, input.clone());
        let test = test.map(|test| (Subset::all(test.len()), test));
        Ok(Splits { train: view((of_train, train)), val: val.map(view), test: test.map(view) })
    }
}

/// A split of a Burn data set.
trait BurnSplit: Dataset {
    /// The class of a sample; only for splits whose samples have one each.
    fn class(&self, sample: usize) -> Result<usize>;

    fn has_classes(&self) -> bool {
        let FieldFacts { shape, kind } = self.target();
        matches!(kind, FieldKind::Index(_)) && shape.iter().product::<usize>() == 1
    }
}

/// A kind that calls `open` with the data set's own keys of the `[dataset]` table; the keys of splits are read beside
/// them.
pub fn from_burn<C, F>(open: F) -> impl DatasetKind
where
    C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    F: Fn(&C) -> Result<BurnData> + Send + Sync + 'static,
{
    let open = Arc::new(open);
    move |fields: &mut Fields<'_>| -> Arc<dyn DatasetSource> {
        let (open, options) = (open.clone(), SplitOptions::read(fields));
        let make = move |config: C| BurnSource { config, options, open: open.clone() };
        super::from_fn(make).configure(fields)
    }
}

/// The data set that `open` returns for the keys of the `[dataset]` table.
struct BurnSource<C, F> {
    config: C,
    options: SplitOptions,
    open: Arc<F>,
}

impl<C, F> fmt::Debug for BurnSource<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurnSource").finish_non_exhaustive()
    }
}

impl<C, F> DatasetSource for BurnSource<C, F>
where
    C: Send + Sync,
    F: Fn(&C) -> Result<BurnData> + Send + Sync,
{
    fn open(&self) -> Result<Splits> {
        (self.open)(&self.config)?.splits(&self.options)
    }
}

struct BurnSet<I, O, D, B> {
    dataset: D,
    batcher: B,
    input: FieldFacts,
    target: FieldFacts,
    fields: BTreeMap<String, FieldFacts>,
    item: PhantomData<fn(I) -> O>,
}

impl<I, O: Into<BurnBatch>, D: BurnDataset<I>, B: Batcher<I, O>> BurnSet<I, O, D, B> {
    fn new(dataset: D, batcher: B, classes: usize) -> Result<Self> {
        if dataset.is_empty() {
            return Err(Error::data("the Burn data set is empty"));
        }
        let first = single_batch(&dataset, &batcher, 0)?;
        let facts = |data: &TensorData, bound| {
            let shape = data.shape().to_vec().split_off(1);
            let kind = if data.dtype().is_float() { FieldKind::Float } else { FieldKind::Index(bound) };
            FieldFacts { shape, kind }
        };
        let (input, target) = (facts(&first.input, classes), facts(&first.target, classes));
        // What the indices of further fields count is not known.
        let field = |(name, data): (&String, &TensorData)| (name.clone(), facts(data, usize::MAX));
        let fields = first.fields.iter().map(field).collect();
        Ok(Self { dataset, batcher, input, target, fields, item: PhantomData })
    }
}

/// Sample `index` as a batch of one.
fn single_batch<I, O: Into<BurnBatch>>(
    dataset: &impl BurnDataset<I>,
    batcher: &impl Batcher<I, O>,
    index: usize,
) -> Result<BurnBatch> {
    let item = dataset.get(index).map_err(|e| Error::data(format!("sample {index}: {e}")))?;
    Ok(batcher.batch(vec![item], &Device::flex()).into())
}

impl<I, O, D, B> Dataset for BurnSet<I, O, D, B>
where
    I: Send + Sync,
    O: Into<BurnBatch>,
    D: BurnDataset<I>,
    B: Batcher<I, O>,
{
    fn len(&self) -> usize {
        self.dataset.len()
    }
    fn input(&self) -> FieldFacts {
        self.input.clone()
    }
    fn target(&self) -> FieldFacts {
        self.target.clone()
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        self.fields.clone()
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let batch = single_batch(&self.dataset, &self.batcher, key.sample as usize)?;
        fill(batch.input, to.input, key)?;
        fill(batch.target, to.target, key)?;
        if !batch.fields.keys().eq(self.fields.keys()) {
            let (here, first) = (named(batch.fields.keys()), named(self.fields.keys()));
            let what =
                format!("sample {} has the further fields {here}, the first sample {first}", key.sample);
            return Err(Error::data(what));
        }
        batch.fields.into_iter().try_for_each(|(name, data)| fill(data, to.fields.take(&name)?, key))
    }
}

impl<I, O, D, B> BurnSplit for BurnSet<I, O, D, B>
where
    I: Send + Sync,
    O: Into<BurnBatch>,
    D: BurnDataset<I>,
    B: Batcher<I, O>,
{
    fn class(&self, sample: usize) -> Result<usize> {
        let target = single_batch(&self.dataset, &self.batcher, sample)?.target;
        let class = target.iter::<i64>().next().and_then(|class| usize::try_from(class).ok());
        class.ok_or_else(|| Error::data(format!("sample {sample} has no class")))
    }
}

fn named<'n>(fields: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<String> = fields.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn fill(data: TensorData, buffer: FieldMut<'_>, key: SampleKey) -> Result<()> {
    let len = data.shape().num_elements();
    let fits = match &buffer {
        FieldMut::Float(out) => out.len() == len && data.dtype().is_float(),
        FieldMut::Index(out) => out.len() == len && !data.dtype().is_float(),
    };
    if !fits {
        let (sample, shape) = (key.sample, data.shape());
        return Err(Error::data(format!(
            "sample {sample} has shape {shape:?}, which differs from the first sample"
        )));
    }
    match buffer {
        FieldMut::Float(out) => out.iter_mut().zip(data.iter::<f32>()).for_each(|(o, v)| *o = v),
        FieldMut::Index(out) => out.iter_mut().zip(data.iter::<i64>()).for_each(|(o, v)| *o = v),
    }
    Ok(())
}

#[cfg(test)]
#[path = "burn_data_tests.rs"]
mod tests;
