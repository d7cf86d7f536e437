//! A Burn `Dataset` and its `Batcher` as a data set. The loader requests batches of one sample and assembles batches
//! itself, so sharding, seeking and resumption work as for every other data set. A batcher that compares the samples of
//! a batch (for example to pad to the longest) is not supported.

use super::{Dataset, DatasetSource, FieldFacts, FieldKind, FieldMut, SampleKey, Splits};
use crate::error::{Error, Result};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset as BurnDataset;
use burn::tensor::{Device, TensorData};
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
        Ok(Self { train: Arc::new(BurnSet::new(train, batcher, classes)?), val: None, classes })
    }

    /// The validation split.
    pub fn val<I, O>(
        mut self,
        val: impl BurnDataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
    ) -> Result<Self>
    where
        I: Send + Sync + 'static,
        O: Into<BurnBatch> + 'static,
    {
        self.val = Some(Arc::new(BurnSet::new(val, batcher, self.classes)?));
        Ok(self)
    }
}

/// The data set that `open` returns for the keys of the `[dataset]` table.
pub struct BurnSource<C, F> {
    pub config: C,
    pub open: Arc<F>,
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
        let data = (self.open)(&self.config)?;
        Ok(Splits { train: data.train, val: data.val, test: None })
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
