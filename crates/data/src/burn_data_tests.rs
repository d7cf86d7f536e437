//! Burn data sets as splits of the spec, with and without further fields.

use super::*;
use crate::testing::configure;
use crate::{FieldData, FieldsMut, Loader, LoaderOptions};
use burn::data::dataset::InMemDataset;

#[derive(serde::Deserialize, JsonSchema)]
struct Keys {
    /// With a validation split in the data set itself.
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
        Self::new(TensorData::new(items, shape), TensorData::new(twice, shape))
    }
}

fn numbers(from: u8, to: u8) -> InMemDataset<f32> {
    InMemDataset::new((from..to).map(f32::from).collect())
}

fn splits(keys: &str) -> Result<Splits> {
    let numbers = from_burn(|keys: &Keys| {
        let data = BurnData::new(numbers(0, 10), Doubling, 0)?.test(numbers(20, 23), Doubling)?;
        if keys.own_val { data.val(numbers(10, 14), Doubling) } else { Ok(data) }
    });
    configure(&numbers, keys).unwrap_or_else(|e| panic!("{e}")).open()
}

/// Inputs, after a look at the targets.
fn values(of: &Arc<dyn Dataset>) -> Vec<f32> {
    let value = |sample| {
        let (mut input, mut target) = ([0.0], [0.0]);
        let key = SampleKey { seed: 0, epoch: 0, sample };
        let to = SampleMut::new(FieldMut::Float(&mut input), FieldMut::Float(&mut target));
        of.write(key, to).unwrap();
        assert_eq!(target[0], 2.0 * input[0]);
        input[0]
    };
    (0..of.len() as u64).map(value).collect()
}

/// Numbers of 90 and more are of class 1.
#[derive(Clone)]
struct Classing;

struct Classed(Vec<f32>);

impl Batcher<f32, Classed> for Classing {
    fn batch(&self, items: Vec<f32>, _: &Device) -> Classed {
        Classed(items)
    }
}

impl From<Classed> for BurnBatch {
    fn from(Classed(items): Classed) -> Self {
        let n = items.len();
        let classes = items.iter().map(|x| i64::from(*x >= 90.0)).collect::<Vec<i64>>();
        Self::new(TensorData::new(items, [n, 1]), TensorData::new(classes, [n]))
    }
}

/// The data is sorted by class, 90 and 10 samples.
#[test]
fn a_limit_draws_from_each_class_its_share() {
    let data = BurnData::new(numbers(0, 100), Classing, 2).unwrap();
    let data = data.val(numbers(80, 100), Classing).unwrap();
    let limits = SplitOptions { max_train: Some(20), max_val: Some(2), ..SplitOptions::default() };
    let splits = data.splits(&limits).unwrap();
    let counts = |of: &Arc<dyn Dataset>| {
        let mut counts = [0; 2];
        for sample in 0..of.len() as u64 {
            let (mut input, mut target) = ([0.0], [0]);
            let to = SampleMut::new(FieldMut::Float(&mut input), FieldMut::Index(&mut target));
            of.write(SampleKey { seed: 0, epoch: 0, sample }, to).unwrap();
            counts[target[0] as usize] += 1;
        }
        counts
    };
    assert_eq!((counts(&splits.train), counts(&splits.val.unwrap())), ([18, 2], [1, 1]));
}

#[test]
fn splits_are_those_of_the_spec() {
    let own = splits("own_val = true\nmax_val = 3").unwrap();
    assert_eq!(values(&own.train), (0..10).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(values(&own.val.unwrap()), [10.0, 12.0, 13.0], "drawn by `split_seed`");
    assert_eq!(values(&own.test.unwrap()), [20.0, 21.0, 22.0]);
    let off = splits("own_val = false\nval_split = 0.3\nmax_train = 5").unwrap();
    let (train, val) = (values(&off.train), values(&off.val.unwrap()));
    assert_eq!((train.len(), val.len()), (5, 3));
    assert!(val.iter().all(|v| !train.contains(v)), "{train:?} {val:?}");
    assert!(splits("own_val = false").unwrap().val.is_none());
    let e = splits("own_val = true\nval_split = 0.3").err().unwrap();
    assert!(e.message.contains("already has a validation split"), "{}", e.message);
}

/// Padded to four numbers; the mask is of booleans, the length an integer. From a number on there is another field.
struct Padding {
    other_from: usize,
}

struct Padded(Vec<usize>, usize);

impl Batcher<f32, Padded> for Padding {
    fn batch(&self, items: Vec<f32>, _: &Device) -> Padded {
        Padded(items.into_iter().map(|x| x as usize).collect(), self.other_from)
    }
}

impl From<Padded> for BurnBatch {
    fn from(Padded(lengths, other_from): Padded) -> Self {
        let n = lengths.len();
        let mask: Vec<bool> = lengths.iter().flat_map(|len| (0..4).map(move |i| i < *len)).collect();
        let values: Vec<f32> = mask.iter().map(|there| f32::from(u8::from(*there))).collect();
        let sums: Vec<f32> = lengths.iter().map(|len| *len as f32).collect();
        let name = if lengths[0] < other_from { "mask" } else { "masks" };
        let lengths: Vec<i32> = lengths.into_iter().map(|len| len as i32).collect();
        BurnBatch::new(TensorData::new(values, [n, 4]), TensorData::new(sums, [n, 1]))
            .with(name, TensorData::new(mask, [n, 4]))
            .with("length", TensorData::new(lengths, [n]))
    }
}

fn padded(from: u8, to: u8, other_from: usize) -> Result<Splits> {
    let padding = || Padding { other_from };
    BurnData::new(numbers(1, 4), padding(), 0)?
        .val(numbers(from, to), padding())?
        .splits(&SplitOptions::default())
}

#[test]
fn batches_have_further_fields() {
    let splits = padded(2, 5, 9).unwrap();
    let facts = |shape: &[usize]| FieldFacts { shape: shape.to_vec(), kind: FieldKind::Index(usize::MAX) };
    let expected = [("length".to_owned(), facts(&[])), ("mask".to_owned(), facts(&[4]))];
    for split in [&splits.train, splits.val.as_ref().unwrap()] {
        assert!(split.fields().into_iter().eq(expected.clone()), "{:?}", split.fields());
    }
    let options = LoaderOptions { batch_size: 2, seed: 0, epoch: 0, start_batch: 0, workers: 0, prefetch: 1 };
    let mut loader = Loader::new(splits.val.unwrap(), vec![0u64, 2], options, false).unwrap();
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(batch.fields["mask"].data, FieldData::Index(vec![1, 1, 0, 0, 1, 1, 1, 1]));
    assert_eq!(batch.fields["length"].data, FieldData::Index(vec![2, 4]));
    assert_eq!(batch.target.data, FieldData::Float(vec![2.0, 4.0]));
}

#[test]
fn a_sample_with_other_fields_than_the_first_is_an_error() {
    let splits = padded(1, 4, 3).unwrap();
    let write = |sample| {
        let (mut input, mut target, mut mask, mut length) = ([0.0; 4], [0.0], [0; 4], [0]);
        let fields =
            FieldsMut::new([("mask", FieldMut::Index(&mut mask)), ("length", FieldMut::Index(&mut length))]);
        let (input, target) = (FieldMut::Float(&mut input), FieldMut::Float(&mut target));
        splits.train.write(SampleKey { seed: 0, epoch: 0, sample }, SampleMut { input, target, fields })
    };
    write(1).unwrap();
    assert_eq!(
        write(2).unwrap_err().message,
        "sample 2 has the further fields `length`, `masks`, the first sample `length`, `mask`"
    );
}
