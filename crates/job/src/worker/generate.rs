//! Continues a sequence of tokens; of a built-in decoder, the keys and values of earlier ones are kept.

use base::error::{Error, Result};
use base::panics::catch_model_panic;
use data::rng::{CounterRng, Stream};
use data::{FieldData, HostField, SampleKey};
use ddp::device::read;
use std::collections::BTreeSet;
use train::models::{Decoder, Evaluator, Input, KvCache, decoder};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the most probable token.
    pub temperature: f64,
    /// Draws among this many most probable tokens; `None`: among all.
    pub top_k: Option<usize>,
    /// Draws among the fewest tokens that have this probability together; `None`: among all.
    pub top_p: Option<f64>,
    /// Draws among tokens with at least this part of the largest probability; `None`: among all.
    pub min_p: Option<f64>,
    /// Divides the logits of tokens that are in the text so far, or multiplies negative ones (Keskar et al. 2019); 1 changes nothing.
    pub repetition_penalty: f64,
    /// Seed of the random draws.
    pub seed: u64,
}

impl Sampling {
    /// As the model's probabilities are.
    pub const UNCHANGED: Self =
        Self { temperature: 1.0, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0, seed: 0 };
}

/// A sequence that grows.
pub struct Generator<'a> {
    evaluator: &'a Evaluator,
    /// The last tokens, at most `context` of them.
    window: Vec<i64>,
    /// All tokens of the sequence.
    seen: BTreeSet<i64>,
    context: usize,
    /// Tokens that may be drawn: a model may have more outputs.
    vocabulary: usize,
    decoder: Option<&'a dyn Decoder>,
    /// What the decoder has already computed for the window.
    cache: KvCache,
    sampling: Sampling,
    /// Number of the sequence, so that each draws others.
    sequence: u64,
    drawn: u64,
}

impl<'a> Generator<'a> {
    /// Continues `prompt`, which has at least one token. The model sees the last `context` tokens.
    pub fn new(
        evaluator: &'a Evaluator,
        mut prompt: Vec<i64>,
        context: usize,
        vocabulary: usize,
        sampling: Sampling,
        sequence: u64,
    ) -> Self {
        let seen = prompt.iter().copied().collect();
        prompt.drain(..prompt.len().saturating_sub(context));
        let (decoder, cache) = (decoder(evaluator.net()), KvCache::default());
        Self {
            evaluator,
            window: prompt,
            seen,
            context,
            vocabulary,
            decoder,
            cache,
            sampling,
            sequence,
            drawn: 0,
        }
    }

    /// The next token, which becomes part of the sequence.
    ///
    /// # Errors
    /// The model does not take tokens (78), or the device fails (69).
    pub fn next_token(&mut self) -> Result<usize> {
        let mut logits = self.logits()?;
        logits.truncate(self.vocabulary);
        penalise(&mut logits, &self.seen, self.sampling.repetition_penalty);
        let key = SampleKey { seed: self.sampling.seed, epoch: self.sequence, sample: self.drawn };
        let token = choose(&logits, self.sampling, CounterRng::new(key, Stream::Token).uniform());
        self.drawn += 1;
        self.window.push(token as i64);
        self.seen.insert(token as i64);
        if self.window.len() > self.context {
            // Every token gets another position, so nothing that was computed remains valid.
            self.window.remove(0);
            self.cache = KvCache::default();
        }
        Ok(token)
    }

    /// The scores of the tokens that may follow the window.
    fn logits(&mut self) -> Result<Vec<f32>> {
        let evaluator = self.evaluator;
        let device = evaluator.device();
        let input = |tokens: &[i64]| {
            let field = HostField { shape: vec![tokens.len()], data: FieldData::Index(tokens.to_vec()) };
            Input::from_host(&field, 1, &device)
        };
        let refused =
            |why: String| Error::spec(format!("the model does not continue a sequence of tokens: {why}"));
        if let Some(decoder) = self.decoder {
            let new = input(&self.window[self.cache.tokens()..]).index::<2>();
            return read(decoder.extend(new, &mut self.cache));
        }
        let outputs = catch_model_panic(|| evaluator.forward(input(&self.window))).map_err(refused)?;
        let [rows, width] = outputs.dims();
        if rows != self.window.len() {
            return Err(refused(format!("it returns {rows} rows for {} tokens", self.window.len())));
        }
        read(outputs.slice([rows - 1..rows, 0..width]))
    }
}

/// Makes the tokens in `seen` less probable.
fn penalise(logits: &mut [f32], seen: &BTreeSet<i64>, penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let penalty = penalty as f32;
    for token in seen {
        let Some(logit) = usize::try_from(*token).ok().and_then(|token| logits.get_mut(token)) else {
            continue;
        };
        *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
    }
}

/// The token that `draw`, in `[0, 1)`, falls on; without temperature the first of the most probable ones. As in transformers, each of
/// `top_k`, `top_p` and `min_p` chooses among the tokens that the one before it left.
fn choose(logits: &[f32], sampling: Sampling, draw: f32) -> usize {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Stable: of equal logits the lower index comes first.
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if sampling.temperature == 0.0 {
        return order.first().copied().unwrap_or(0);
    }
    order.truncate(sampling.top_k.unwrap_or(usize::MAX));
    let Some(&largest) = order.first() else { return 0 };
    let weight = |token: &usize| (f64::from(logits[*token] - logits[largest]) / sampling.temperature).exp();
    let mut weights: Vec<f64> = order.iter().map(weight).collect();
    if let Some(top_p) = sampling.top_p {
        let all: f64 = weights.iter().sum();
        let mut together = 0.0;
        let enough = weights.iter().position(|weight| {
            together += weight;
            together >= top_p * all
        });
        weights.truncate(enough.map_or(usize::MAX, |last| last + 1));
    }
    if let Some(min_p) = sampling.min_p {
        // The largest weight is 1.
        weights.truncate(weights.partition_point(|weight| *weight >= min_p).max(1));
    }
    let mut left = f64::from(draw) * weights.iter().sum::<f64>();
    for (token, weight) in order.iter().zip(weights) {
        left -= weight;
        if left < 0.0 {
            return *token;
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::worker::testing::TestRun;
    use crate::worker::{Predictor, RankParts, Usage};
    use data::Encoding;
    use ddp::device::ComputeDevice;

    const ALL: Sampling = Sampling::UNCHANGED;

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        // 1/7, 4/7, 2/7.
        let logits = [1.0_f32.ln(), 4.0_f32.ln(), 2.0_f32.ln()];
        let drawn = |sampling| -> Vec<usize> {
            let mut counts = vec![0; 3];
            (0..700).for_each(|i| counts[choose(&logits, sampling, (i as f32 + 0.5) / 700.0)] += 1);
            counts
        };
        assert_eq!(drawn(ALL), [100, 400, 200]);
        // The square of the probabilities: 1/21, 16/21, 4/21.
        let cold = drawn(Sampling { temperature: 0.5, ..ALL });
        assert!((cold[0] as i32 - 33).abs() <= 1 && (cold[1] as i32 - 533).abs() <= 1, "{cold:?}");
        let two = drawn(Sampling { top_k: Some(2), ..ALL });
        assert!(two[0] == 0 && (two[1] as i32 - 467).abs() <= 1, "{two:?}");
        let two_of_three = two;
        assert_eq!(drawn(Sampling { top_k: Some(1), ..ALL }), [0, 700, 0]);
        assert_eq!(drawn(Sampling { temperature: 0.0, ..ALL }), [0, 700, 0]);
        // 4/7 and 2/7 have more than 0.6 together, and 4/7 has not.
        assert_eq!(drawn(Sampling { top_p: Some(0.6), ..ALL }), two_of_three);
        assert_eq!(drawn(Sampling { top_p: Some(0.5), ..ALL }), [0, 700, 0]);
        assert_eq!(drawn(Sampling { top_p: Some(1.0), ..ALL }), [100, 400, 200]);
        // A quarter of the largest is just enough.
        assert_eq!(drawn(Sampling { min_p: Some(0.249), ..ALL }), [100, 400, 200]);
        assert_eq!(drawn(Sampling { min_p: Some(0.3), ..ALL }), two_of_three);
        assert_eq!(drawn(Sampling { min_p: Some(0.6), ..ALL }), [0, 700, 0]);
    }

    #[test]
    fn tokens_of_the_text_become_less_probable() {
        let mut logits = [2.0, -1.0, 0.5, -3.0];
        penalise(&mut logits, &BTreeSet::from([0, 1, 77]), 2.0);
        assert_eq!(logits, [1.0, -2.0, 0.5, -3.0]);
        penalise(&mut logits, &BTreeSet::from([0]), 1.0);
        assert_eq!(logits, [1.0, -2.0, 0.5, -3.0]);
    }

    /// A GPT that was trained for a moment.
    fn gpt(dir: &std::path::Path) -> (Predictor, usize) {
        let text = dir.join("t.txt");
        std::fs::write(&text, "abcd bcda cdab dabc ".repeat(8)).unwrap();
        let spec = format!(
            "name = \"run\"\nbatch_size = 8\n[model]\nname = \"gpt\"\nn_layer = 2\nn_head = 2\nn_embd = 16\n\
             [dataset]\nname = \"text\"\npath = '{}'\nblock_size = 8\nworkers = 0\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n",
            text.display()
        );
        let run = TestRun::new(&spec);
        run.train(1, &[]).unwrap();
        let loaded = run.loaded();
        let (usage, plan) =
            Usage::read(loaded.usage.as_deref().unwrap(), &loaded, &Registry::standard()).unwrap();
        let Some(Encoding::Text(encoding)) = &usage.encoding else { panic!("it is a text") };
        assert_eq!(
            (encoding.tokenizer.characters().unwrap(), encoding.block_size),
            (&[' ', 'a', 'b', 'c', 'd'][..], 8)
        );
        (Predictor::new(&RankParts::new(&plan), &usage, &loaded, true, ComputeDevice::Cpu).unwrap(), 5)
    }

    #[test]
    fn a_text_is_the_same_with_and_without_a_cache_and_beyond_the_context() {
        let dir = tempfile::tempdir().unwrap();
        let (predictor, vocabulary) = gpt(dir.path());
        for (prompt, temperature) in
            [(vec![1], 0.0), (vec![2, 3], 1.5), (vec![1, 2, 3, 4, 0, 2, 3, 4, 1, 0], 1.5)]
        {
            let written = |cached: bool| -> Vec<usize> {
                let sampling = Sampling { temperature, ..ALL };
                let mut generator =
                    Generator::new(predictor.evaluator(), prompt.clone(), 8, vocabulary, sampling, 0);
                assert!(generator.decoder.is_some());
                generator.decoder = generator.decoder.filter(|_| cached);
                (0..30).map(|_| generator.next_token().unwrap()).collect()
            };
            assert_eq!(written(true), written(false), "{prompt:?}");
        }
    }

    #[test]
    fn the_first_of_equal_tokens_is_the_most_probable() {
        let greedy = Sampling { temperature: 0.0, ..ALL };
        assert_eq!(choose(&[0.0, 2.0, 2.0], greedy, 0.9), 1);
        assert!(choose(&[0.0, 2.0, 2.0], ALL, 0.999_999_9) < 3);
    }
}
