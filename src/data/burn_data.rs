//! A Burn `Dataset` and its `Batcher` as a data set. The loader requests batches of one sample and assembles batches
//! itself, so sharding, seeking and resumption work as for every other data set. A batcher that compares the samples of
//! a batch (for example to pad to the longest) is not supported.

use super::split::{Part, SplitOptions};
use super::{
    Content, Dataset, DatasetKind, DatasetSource, FieldFacts, FieldKind, FieldMut, SampleKey, Splits,
};
use crate::error::{Error, Result};
use crate::spec::Fields;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset as BurnDataset;
use burn::tensor::{Device, TensorData};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A batch from a Burn batcher: implement `From<MyBatch> for BurnBatch`.
pub struct BurnBatch {
    /// `[batch, …]`, floats or integers.
    pub input: TensorData,
    /// `[batch]` or `[batch, …]`, floats or integers.
    pub target: TensorData,
}

/// The splits of a Burn data set, with their batcher.
pub struct BurnData {
    train: Arc<dyn Dataset>,
    val: Option<Arc<dyn Dataset>>,
    test: Option<Arc<dyn Dataset>>,
    classes: usize,
}

impl BurnData {
    /// `classes` is the upper bound of integer targets, and of integer inputs (the vocabulary); 0 if there are none.
    pub fn new<I, O>(
        train: impl BurnDataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
        classes: usize,
    ) -> Result<Self>
    where
        I: Send + Sync + 'static,
        O: Into<BurnBatch> + 'static,
    {
        Ok(Self { train: Arc::new(BurnSet::new(train, batcher, classes)?), val: None, test: None, classes })
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

    /// A further split, if its samples are like those of training.
    fn alike(&self, what: &str, split: impl Dataset + 'static) -> Result<Arc<dyn Dataset>> {
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
        let Self { train, val, test, .. } = self;
        if val.is_some() && options.val_split > 0.0 {
            return Err(Error::spec("the data set has a validation split of its own")
                .hint("remove `val_split` from `[dataset]`"));
        }
        let (of_train, of_val) = options.split(train.len());
        let val = match val {
            Some(val) => Some((Part::all(val.len()).limited(options.max_val), val)),
            None => Some((of_val, train.clone())).filter(|(part, _)| part.len() > 0),
        };
        let val = val.map(|(part, of)| -> Arc<dyn Dataset> { Arc::new(Subset { of, part }) });
        Ok(Splits { train: Arc::new(Subset { of: train, part: of_train }), val, test })
    }
}

/// Some samples of a data set.
struct Subset {
    of: Arc<dyn Dataset>,
    part: Part,
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.part.len()
    }
    fn input(&self) -> FieldFacts {
        self.of.input()
    }
    fn target(&self) -> FieldFacts {
        self.of.target()
    }
    fn write(&self, key: SampleKey, input: FieldMut<'_>, target: FieldMut<'_>) -> Result<()> {
        let sample = self.part.get(key.sample as usize) as u64;
        self.of.write(SampleKey { sample, ..key }, input, target)
    }
    fn content(&self) -> Option<Content> {
        self.of.content()
    }
    fn remarks(&self) -> Vec<String> {
        self.of.remarks()
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
        let (open, options): (_, SplitOptions) = (open.clone(), fields.config());
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
    item: PhantomData<fn(I) -> O>,
}

impl<I, O: Into<BurnBatch>, D: BurnDataset<I>, B: Batcher<I, O>> BurnSet<I, O, D, B> {
    fn new(dataset: D, batcher: B, classes: usize) -> Result<Self> {
        if dataset.is_empty() {
            return Err(Error::data("the Burn data set is empty"));
        }
        let first = single_batch(&dataset, &batcher, 0)?;
        let facts = |data: &TensorData| {
            let shape = data.shape().to_vec().split_off(1);
            let kind = if data.dtype().is_float() { FieldKind::Float } else { FieldKind::Index(classes) };
            FieldFacts { shape, kind }
        };
        let (input, target) = (facts(&first.input), facts(&first.target));
        Ok(Self { dataset, batcher, input, target, item: PhantomData })
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
    fn write(&self, key: SampleKey, input: FieldMut<'_>, target: FieldMut<'_>) -> Result<()> {
        let batch = single_batch(&self.dataset, &self.batcher, key.sample as usize)?;
        fill(batch.input, input, key)?;
        fill(batch.target, target, key)
    }
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
mod tests {
    use super::*;
    use crate::plan::{Plan, WorldRequest};
    use crate::registry::Registry;
    use crate::spec::JobTree;
    use burn::data::dataset::InMemDataset;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Keys {
        /// With a validation split of its own.
        own_val: bool,
    }

    #[derive(Clone)]
    struct Doubling;

    struct Doubled(Vec<f32>);

    impl Batcher<f32, Doubled> for Doubling {
        fn batch(&self, items: Vec<f32>, _: &Device) -> Doubled {
            Doubled(items)
        }
    }

    impl From<Doubled> for BurnBatch {
        fn from(Doubled(items): Doubled) -> Self {
            let shape = [items.len(), 1];
            let twice = items.iter().map(|x| 2.0 * x).collect::<Vec<f32>>();
            Self { input: TensorData::new(items, shape), target: TensorData::new(twice, shape) }
        }
    }

    fn numbers(from: u8, to: u8) -> InMemDataset<f32> {
        InMemDataset::new((from..to).map(f32::from).collect())
    }

    fn splits(keys: &str) -> Result<Splits> {
        let registry = Registry::standard().burn_dataset("numbers", |keys: &Keys| {
            let data = BurnData::new(numbers(0, 10), Doubling, 0)?.test(numbers(20, 23), Doubling)?;
            if keys.own_val { data.val(numbers(10, 14), Doubling) } else { Ok(data) }
        });
        let spec = format!(
            "name = \"x\"\nbatch_size = 1\n[model]\nname = \"linear\"\n[dataset]\nname = \"numbers\"\n{keys}\n\
             [optimizer]\nname = \"sgd\"\nlr = 0.1\n"
        );
        let tree = JobTree::parse("job.toml", &spec, &[]).unwrap();
        let plan = Plan::resolve(&tree, &registry, WorldRequest::of(1)).unwrap_or_else(|e| panic!("{e}"));
        plan.dataset.source.open()
    }

    /// Inputs, after a look at the targets.
    fn values(of: &Arc<dyn Dataset>) -> Vec<f32> {
        let value = |sample| {
            let (mut input, mut target) = ([0.0], [0.0]);
            let key = SampleKey { seed: 0, epoch: 0, sample };
            of.write(key, FieldMut::Float(&mut input), FieldMut::Float(&mut target)).unwrap();
            assert_eq!(target[0], 2.0 * input[0]);
            input[0]
        };
        (0..of.len() as u64).map(value).collect()
    }

    #[test]
    fn splits_are_those_of_the_spec() {
        let own = splits("own_val = true\nmax_val = 3").unwrap();
        assert_eq!(values(&own.train), (0..10).map(|i| i as f32).collect::<Vec<_>>());
        assert_eq!(values(&own.val.unwrap()), [10.0, 11.0, 12.0]);
        assert_eq!(values(&own.test.unwrap()), [20.0, 21.0, 22.0]);
        let off = splits("own_val = false\nval_split = 0.3\nmax_train = 5").unwrap();
        let (train, val) = (values(&off.train), values(&off.val.unwrap()));
        assert_eq!((train.len(), val.len()), (5, 3));
        assert!(val.iter().all(|v| !train.contains(v)), "{train:?} {val:?}");
        assert!(splits("own_val = false").unwrap().val.is_none());
        let e = splits("own_val = true\nval_split = 0.3").err().unwrap();
        assert!(e.message.contains("a validation split of its own"), "{}", e.message);
    }
}
