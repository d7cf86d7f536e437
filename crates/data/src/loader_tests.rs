use super::*;
use crate::{FieldData, FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut};
use base::error::{ErrorKind, is_transient};
use base::testing::HANG;
use sampler::DistributedSampler;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Sample i is [i, seed, epoch] -> i. A chosen sample fails, panics, blocks or has another target.
struct Counting {
    len: usize,
    target: Option<(u64, i64)>,
    fails: Option<u64>,
    panics: Option<u64>,
    writes: AtomicUsize,
    /// A worker that reaches this sample blocks until the sender is dropped.
    gate: Option<(u64, Mutex<std::sync::mpsc::Receiver<()>>)>,
}

impl Counting {
    fn new(len: usize) -> Self {
        Self { len, target: None, fails: None, panics: None, writes: AtomicUsize::new(0), gate: None }
    }
}

impl Dataset for Counting {
    fn len(&self) -> usize {
        self.len
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![3], kind: FieldKind::Float }
    }
    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![], kind: FieldKind::Index(self.len) }
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        self.writes.fetch_add(1, Relaxed);
        if let Some((sample, gate)) = &self.gate
            && *sample == key.sample
        {
            let _ = gate.lock().unwrap().recv();
        }
        if self.fails == Some(key.sample) {
            return Err(Error::data(format!("sample {} is damaged", key.sample)));
        }
        assert!(self.panics != Some(key.sample), "boom at {}", key.sample);
        let (FieldMut::Float(input), FieldMut::Index(target)) = (to.input, to.target) else { unreachable!() };
        input.copy_from_slice(&[key.sample as f32, key.seed as f32, key.epoch as f32]);
        target[0] = match self.target {
            Some((sample, target)) if sample == key.sample => target,
            _ => key.sample as i64,
        };
        Ok(())
    }
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions { batch_size: 4, seed: 7, epoch: 2, start_batch: 0, workers, prefetch: 3 }
}

fn order(n: u64) -> Vec<u64> {
    (0..n).rev().collect()
}

fn load(data: impl Into<Arc<Counting>>, order: Vec<u64>, options: LoaderOptions) -> Loader {
    Loader::new(data.into(), order, options, false).unwrap()
}

fn all(loader: Loader) -> Vec<HostBatch> {
    loader.map(|b| b.unwrap()).collect()
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    let run = |workers| all(load(Counting::new(50), order(50), options(workers)));
    let inline = run(0);
    assert_eq!(inline.len(), 13);
    assert_eq!(inline[0].indices, [49, 48, 47, 46]);
    assert_eq!(
        inline[0].input.data,
        FieldData::Float(vec![49., 7., 2., 48., 7., 2., 47., 7., 2., 46., 7., 2.])
    );
    assert_eq!(inline[12].len, 2);
    assert_eq!(inline[12].target.data, FieldData::Index(vec![1, 0]));
    assert_eq!(run(1), inline);
    assert_eq!(run(4), inline);
}

#[test]
fn a_loader_starts_at_any_batch() {
    let data = Arc::new(Counting::new(50));
    let full = all(load(data.clone(), order(50), options(2)));
    for start_batch in 0..=13 {
        data.writes.store(0, Relaxed);
        let tail = all(load(data.clone(), order(50), LoaderOptions { start_batch, ..options(2) }));
        assert_eq!(tail, full[start_batch..]);
        // O(1): nothing before the start was read.
        assert_eq!(data.writes.load(Relaxed), 50usize.saturating_sub(start_batch * 4));
    }
    // The data set has shrunk since the checkpoint.
    let beyond = Loader::new(data, order(50), LoaderOptions { start_batch: 14, ..options(2) }, false);
    assert_eq!(beyond.err().map(|e| e.kind), Some(base::error::ErrorKind::Spec));
}

#[test]
fn recycled_buffers_are_reused_and_hold_no_old_samples() {
    let mut loader = load(Counting::new(40), order(40), options(1));
    let mut addresses = std::collections::BTreeSet::new();
    let mut seen = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        let FieldData::Float(values) = &batch.input.data else { unreachable!() };
        addresses.insert(values.as_ptr() as usize);
        seen.extend(values.chunks(3).map(|s| s[0] as u64));
        loader.recycle(batch);
    }
    assert_eq!(seen, order(40));
    // Three prefetched, one held by the consumer.
    assert!(addresses.len() <= 4, "{} buffers for 10 batches", addresses.len());
}

#[test]
fn a_failing_sample_is_an_error_at_its_batch() {
    for workers in [0, 3] {
        let data = Counting { fails: Some(9), ..Counting::new(40) };
        let results: Vec<_> = load(data, (0..40).collect(), options(workers)).collect();
        assert_eq!(results.len(), 3);
        assert!(results[0].is_ok() && results[1].is_ok());
        assert_eq!(results[2].as_ref().unwrap_err().message, "sample 9 is damaged");
        let data = Counting { panics: Some(5), ..Counting::new(40) };
        let results: Vec<_> = load(data, (0..40).collect(), options(workers)).collect();
        assert_eq!(results.len(), 2);
        let message = &results[1].as_ref().unwrap_err().message;
        assert_eq!(message, "the data set panicked in batch 1: boom at 5");
    }
    let short = load(Counting::new(3), order(10), options(1)).next().unwrap();
    assert_eq!(short.unwrap_err().message, "sample 9 is out of range: the data set has 3 samples");
}

#[test]
fn a_target_that_is_not_a_class_is_an_error_at_its_batch() {
    for target in [-1, 40, i64::MIN, 1 << 32] {
        let data = Counting { target: Some((6, target)), ..Counting::new(40) };
        let mut loader = load(data, (0..40).collect(), options(1));
        assert!(loader.next().unwrap().is_ok());
        let error = loader.next().unwrap().unwrap_err();
        let expected =
            format!("sample 6 has target {target}, but the data set declares 40 classes, counted from 0");
        assert_eq!((error.kind, error.message), (base::error::ErrorKind::Spec, expected));
    }
    let data = Counting { target: Some((6, 39)), ..Counting::new(40) };
    assert_eq!(all(load(data, order(40), options(1))).len(), 10);
}

/// Sequences of two tokens below 5.
struct Tokens([i64; 2]);

impl Dataset for Tokens {
    fn len(&self) -> usize {
        8
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![2], kind: FieldKind::Index(5) }
    }
    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![], kind: FieldKind::Float }
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let FieldMut::Index(input) = to.input else { unreachable!() };
        input.copy_from_slice(if key.sample == 6 { &self.0 } else { &[0, 4] });
        Ok(())
    }
}

#[test]
fn an_input_outside_of_the_vocabulary_is_an_error_at_its_batch() {
    let batches = |tokens| -> Vec<_> {
        Loader::new(Arc::new(Tokens(tokens)), order(8), options(1), false).unwrap().collect()
    };
    for (tokens, wrong) in [([0, 5], 5), ([-1, 5], -1)] {
        // The order is descending.
        let error = batches(tokens).swap_remove(0).unwrap_err();
        let expected =
            format!("sample 6 has index {wrong} in its input, but the data set declares indices below 5");
        assert_eq!((error.kind, error.message), (base::error::ErrorKind::Spec, expected));
    }
    assert!(batches([4, 0]).iter().all(Result::is_ok));
}

#[test]
fn dropping_the_loader_stops_its_threads() {
    let (open, gate) = std::sync::mpsc::channel();
    let data = Arc::new(Counting { gate: Some((6, Mutex::new(gate))), ..Counting::new(100_000) });
    let wide = LoaderOptions { prefetch: 1000, ..options(1) };
    let mut loader = load(data.clone(), (0..100_000).collect(), wide);
    loader.pool.as_mut().unwrap().leave = HANG;
    assert_eq!(loader.next().unwrap().unwrap().indices, [0, 1, 2, 3]);
    // The worker blocks at sample 6 at the latest. The gate opens only after the stop flag is set, so it reads no further.
    let (assembler, opener) = (
        loader.assembler.clone(),
        std::thread::spawn({
            let stopped = loader.assembler.clone();
            move || {
                while !stopped.stop.load(Relaxed) {
                    std::thread::yield_now();
                }
                drop(open);
            }
        }),
    );
    drop(loader);
    opener.join().unwrap();
    assert!(data.writes.load(Relaxed) <= 7, "{} samples were read", data.writes.load(Relaxed));
    assert_eq!(Arc::strong_count(&assembler), 1, "a thread outlived its loader");
}

#[test]
fn storage_that_hangs_is_reported_and_not_waited_for_again() {
    let (open, gate) = std::sync::mpsc::channel();
    let data = Arc::new(Counting { gate: Some((6, Mutex::new(gate))), ..Counting::new(20) });
    let mut loader = load(data.clone(), (0..20).collect(), options(1));
    // The seventh sample, in batch 1, is sample 6: from here on the thread hangs.
    while data.writes.load(Relaxed) < 7 {
        std::thread::yield_now();
    }
    let pool = loader.pool.as_mut().unwrap();
    (pool.deadline, pool.leave) = (Duration::ZERO, Duration::ZERO);
    let error = loader.find_map(Result::err).unwrap();
    assert_eq!(error.message, "batch 1 was not read within 0 s");
    assert!(error.kind == ErrorKind::Io && error.caused_by().is_some_and(is_transient), "{error:?}");
    assert!(loader.next().is_none(), "the error is the last");
    let (done, dropped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(loader);
        let _ = done.send(());
    });
    dropped.recv_timeout(HANG).expect("it does not wait for the thread");
    drop(open);
}

#[test]
fn an_empty_order_has_no_batches() {
    let mut loader = load(Counting::new(0), order(0), options(2));
    assert!(loader.next().is_none());
}

/// The same samples with two further fields: `twice`, one number, and `parts`, two indices.
struct WithFields(Counting);

impl Dataset for WithFields {
    fn len(&self) -> usize {
        self.0.len
    }
    fn input(&self) -> FieldFacts {
        self.0.input()
    }
    fn target(&self) -> FieldFacts {
        self.0.target()
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        let twice = FieldFacts { shape: vec![], kind: FieldKind::Float };
        // Only inputs and targets are compared with their bounds.
        let parts = FieldFacts { shape: vec![2], kind: FieldKind::Index(1) };
        [("twice".to_owned(), twice), ("parts".to_owned(), parts)].into()
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        assert!(to.fields.names().eq(["parts", "twice"]));
        let (FieldMut::Float(twice), FieldMut::Index(parts)) =
            (to.fields.take("twice")?, to.fields.take("parts")?)
        else {
            unreachable!()
        };
        twice[0] = 2.0 * key.sample as f32;
        parts.copy_from_slice(&[-(key.sample as i64), key.epoch as i64]);
        self.0.write(key, SampleMut::new(to.input, to.target))
    }
}

fn load_with_fields(order: impl Order + 'static, options: LoaderOptions) -> Vec<HostBatch> {
    let data = Arc::new(WithFields(Counting::new(50)));
    let mut loader = Loader::new(data, order, options, true).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        batches.push(batch.clone());
        loader.recycle(batch);
    }
    batches
}

/// Whether the fields of a batch belong to its samples.
fn fields_fit(batch: &HostBatch, epoch: i64) -> bool {
    let twice = batch.indices.iter().map(|i| 2.0 * *i as f32).collect();
    let parts = batch.indices.iter().flat_map(|i| [-(*i as i64), epoch]).collect();
    let field = |name: &str| (batch.fields[name].shape.clone(), batch.fields[name].data.clone());
    batch.fields.len() == 2
        && field("twice") == (vec![], FieldData::Float(twice))
        && field("parts") == (vec![2], FieldData::Index(parts))
}

#[test]
fn further_fields_are_loaded_with_their_samples() {
    let plain = all(load(Counting::new(50), order(50), options(2)));
    for workers in [0, 1, 4] {
        let batches = load_with_fields(order(50), options(workers));
        assert!(batches.iter().all(|batch| fields_fit(batch, 2)));
        // In reused buffers too, after a longer and a shorter batch.
        assert_eq!(batches[12].fields["parts"].data, FieldData::Index(vec![-1, 2, 0, 2]));
        let without = |batch: &HostBatch| HostBatch { fields: BTreeMap::new(), ..batch.clone() };
        assert!(batches.iter().map(without).eq(plain.iter().cloned()));
        for start_batch in [1, 12, 13] {
            let tail = load_with_fields(order(50), LoaderOptions { start_batch, ..options(workers) });
            assert_eq!(tail, batches[start_batch..]);
        }
    }
}

#[test]
fn ranks_share_samples_with_further_fields() {
    let shard = |rank, world| {
        let sampler =
            DistributedSampler { len: 50, world, rank, start: 0, shuffle: true, drop_last: false, seed: 3 };
        load_with_fields(sampler.epoch(2), options(1))
    };
    let indices =
        |batches: &[HostBatch]| batches.iter().flat_map(|b| b.indices.clone()).collect::<Vec<u64>>();
    let (one, both) = (shard(0, 1), [shard(0, 2), shard(1, 2)]);
    assert!(one.iter().chain(both.iter().flatten()).all(|batch| fields_fit(batch, 2)));
    let [even, odd] = both.map(|rank| indices(&rank));
    let dealt: Vec<u64> = even.into_iter().zip(odd).flat_map(|(a, b)| [a, b]).collect();
    assert_eq!(dealt, indices(&one));
}
