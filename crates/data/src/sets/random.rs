//! `random`: like the data set of PyTorch's DDP tutorials (2048 samples, 20 numbers in, 1 out), but learnable: the target is
//! a linear function of the input plus noise. Each sample is a pure function of (seed, index).

use super::table::Blanks;
use crate::images::wrong_buffers;
use crate::rng::{CounterRng, Stream};
use crate::split::{SplitOptions, Subset};
use crate::{
    ColumnEncoding, ColumnKind, DataFacts, Dataset, DatasetSource, Encoding, FieldFacts, FieldKind, FieldMut,
    SampleKey, SampleMut, Splits, TableEncoding, TargetEncoding,
};
use base::error::Result;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

/// A linear function of normal features, with noise; generated from `seed`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct RandomSource {
    /// Samples before the split.
    #[default = 2048]
    #[schemars(range(min = 1, max = 268_435_456))]
    samples: usize,
    /// Numbers per sample.
    #[default = 20]
    #[schemars(range(min = 1, max = 1_048_576))]
    features: usize,
    /// Numbers of the target.
    #[default = 1]
    #[schemars(range(min = 1, max = 1_048_576))]
    outputs: usize,
    /// Standard deviation of the noise on the target.
    #[default = 0.01]
    #[schemars(range(min = 0.0))]
    noise: f64,
    /// Seed of the data.
    seed: u64,
    #[serde(skip)]
    split: SplitOptions,
}

/// Most numbers of the generating function, which every rank keeps in memory.
const MAX_TRUTH: usize = 1 << 28;

/// Reads the `[dataset]` table.
pub fn random(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let own: RandomSource = fields.config();
    if own.outputs * (own.features + 1) > MAX_TRUTH {
        let message = format!("`features` times `outputs` is too large: {} x {}", own.features, own.outputs);
        fields.problem("outputs", message);
    }
    Arc::new(RandomSource { split: SplitOptions::read(fields), ..own })
}

impl DatasetSource for RandomSource {
    fn facts(&self) -> DataFacts {
        let (train, val) = self.split.sizes(self.samples, None);
        let field = |n| Some(FieldFacts { shape: vec![n], kind: FieldKind::Float });
        DataFacts {
            input: field(self.features),
            target: field(self.outputs),
            train: Some(train),
            val,
            ..DataFacts::default()
        }
    }

    fn open(&self) -> Result<Splits> {
        // The generating function: per output, one weight per feature and a bias.
        let mut truth = CounterRng::new(SampleKey { seed: self.seed, epoch: 0, sample: 0 }, Stream::Truth);
        let truth: Arc<[f32]> = (0..self.outputs * (self.features + 1)).map(|_| truth.normal()).collect();
        let (train, val) = self.split.split(self.samples, None)?;
        let set =
            |part| Arc::new(RandomSet { source: *self, truth: truth.clone(), part }) as Arc<dyn Dataset>;
        Ok(Splits { train: set(train), val: (self.split.val_split > 0.0).then(|| set(val)), test: None })
    }
}

struct RandomSet {
    source: RandomSource,
    truth: Arc<[f32]>,
    part: Subset,
}

impl Dataset for RandomSet {
    fn len(&self) -> usize {
        self.part.len()
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.source.features], kind: FieldKind::Float }
    }
    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.source.outputs], kind: FieldKind::Float }
    }
    /// Columns `x1`, `x2` and so on.
    fn encoding(&self) -> Option<Encoding> {
        let kind = ColumnKind::Number { mean: 0.0, std: 1.0, fill: 0.0 };
        let column = |i: usize| ColumnEncoding { name: format!("x{i}"), kind: kind.clone() };
        Some(Encoding::Table(TableEncoding {
            delimiter: ',',
            columns: (1..=self.source.features).map(column).collect(),
            blanks: Blanks::Error,
            blank_marks: vec![String::new()],
            target: TargetEncoding::Number { name: "y".to_owned(), mean: 0.0, std: 1.0 },
        }))
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Float(input), FieldMut::Float(target)) = (to.input, to.target) else {
            return Err(wrong_buffers("numbers"));
        };
        let sample = self.part.get(key.sample as usize) as u64;
        let own = SampleKey { seed: self.source.seed, epoch: 0, sample };
        let mut rng = CounterRng::new(own, Stream::Input);
        input.iter_mut().for_each(|x| *x = rng.uniform());
        let mut noise = CounterRng::new(own, Stream::Noise);
        for (y, truth) in target.iter_mut().zip(self.truth.chunks_exact(input.len() + 1)) {
            let exact: f32 = truth.iter().zip(input.iter()).map(|(w, x)| w * x).sum();
            *y = exact + truth[input.len()] + self.source.noise as f32 * noise.normal();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{configure, sample};

    #[test]
    fn defaults_are_those_of_the_tutorials() {
        let source = configure(&random, "").unwrap();
        let facts = source.facts();
        assert_eq!((facts.input.unwrap().shape, facts.target.unwrap().shape), (vec![20], vec![1]));
        assert_eq!((facts.train, facts.val), (Some(2048), None));
        let splits = source.open().unwrap();
        assert_eq!(splits.train.len(), 2048);
        assert!(splits.val.is_none());
        let all: Vec<f64> = (0..2048).flat_map(|i| sample(&*splits.train, i, 0).0).collect();
        assert!(all.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        // The same in every epoch and whenever the set is opened.
        let fifth =
            |table, epoch| sample(&*configure(&random, table).unwrap().open().unwrap().train, 5, epoch);
        assert_eq!(sample(&*splits.train, 5, 0), fifth("", 9));
        assert_ne!(sample(&*splits.train, 5, 0), fifth("seed = 1", 0));
    }

    #[test]
    fn refuses_sizes_that_no_memory_holds() {
        let problem = |table| configure(&random, table).err().unwrap_or_default();
        let most = problem("samples = 9223372036854775807");
        assert!(
            most.contains("expected an integer from 1 to 268435456, found 9223372036854775807"),
            "{most}"
        );
        assert_eq!(problem("samples = 268435456"), "");
        let product = problem("features = 1048576\noutputs = 1048576");
        assert!(product.contains("`features` times `outputs` is too large"), "{product}");
        assert_eq!(problem("features = 1048576\noutputs = 100"), "");
    }

    /// Stochastic gradient descent recovers the generating function.
    #[test]
    fn the_target_is_learnable() {
        let splits =
            configure(&random, "features = 3\nnoise = 0.0\nval_split = 0.25").unwrap().open().unwrap();
        let mut weights = [0.0f64; 4];
        let predict = |w: &[f64; 4], x: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() + w[3];
        for _ in 0..60 {
            for i in 0..splits.train.len() {
                let (x, y) = sample(&*splits.train, i, 0);
                let error = predict(&weights, &x) - y[0];
                (0..4).for_each(|k| weights[k] -= 0.2 * error * x.get(k).unwrap_or(&1.0));
            }
        }
        let val = splits.val.unwrap();
        assert_eq!(val.len(), 512);
        for i in 0..val.len() {
            let (x, y) = sample(&*val, i, 0);
            assert!((predict(&weights, &x) - y[0]).abs() < 1e-3);
        }
    }
}
