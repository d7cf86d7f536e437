//! Rank 0's notes of evaluations, for the report: predictions by class, the samples with the largest losses, and texts that a language
//! model generates. They are made from what evaluations compute anyway, and draw nothing from the run's random streams.

use super::{Generator, Sampling};
use base::display;
use base::error::Result;
use checkpoint::RankBy;
use data::{
    Dataset, Encoding, FieldData, SampleKey, SampleWords, TextEncoding, input_of, picture_of, words_of,
};
use data_encoding::BASE64;
use record::EpochEvent;
use record::evaluations::{
    Classes, EvaluationRecord, Evaluations, GeneratedText, RecordedPicture, WorstSample, class_name,
};
use std::path::Path;
use std::time::Instant;
use train::models::{Evaluator, Model};
use train::training::{Details, Judged, Position, TEXT_TIME, Tally, TrainSettings};

/// Texts of an evaluation.
const TEXTS: u64 = 2;

/// Tokens of the validation split that a text continues.
const PROMPT: usize = 32;

/// Tokens that are generated of each text.
const TOKENS: usize = 200;

/// Sharper than the model's own probabilities, as texts of small models are usually shown.
const TEMPERATURE: f64 = 0.8;

/// Columns of a sample that are noted.
const CELLS: usize = 40;

/// Characters of a sample's text that are noted.
const CHARACTERS: usize = 240;

/// Characters of a cell, a column's or a class's name, and a sample's place that are noted.
const NAME: usize = 120;

/// The notes of a run.
pub struct Notes {
    evaluations: Evaluations,
    details: Details,
    seed: u64,
    best: RankBy,
    /// The names of classes, shortened.
    names: Vec<String>,
    /// The encoding of a language model's data.
    text: Option<TextEncoding>,
    /// The record of the evaluation whose metrics have not been reported yet.
    pending: Option<EvaluationRecord>,
}

impl Notes {
    /// Removes the notes after `step`. `tokens`: outputs are of the tokens that follow. `encoding` is that of the data.
    pub fn open(
        out_dir: &Path,
        step: u64,
        best: RankBy,
        settings: &TrainSettings,
        tokens: bool,
        encoding: Option<Encoding>,
    ) -> Self {
        let names = encoding.as_ref().and_then(Encoding::classes).unwrap_or_default();
        let names = names.iter().map(|name| short_name(name)).collect();
        let text = match encoding {
            Some(Encoding::Text(text)) if tokens => Some(text),
            _ => None,
        };
        let evaluations = Evaluations::open(out_dir, step, best.name(), best.prefers_larger());
        let (details, seed) = (settings.details, settings.seed);
        Self { evaluations, details, seed, best, names, text, pending: None }
    }

    /// Takes down an evaluation of `dataset`.
    ///
    /// # Errors
    /// A sample can't be read, or the device fails.
    pub fn evaluated(
        &mut self,
        position: &Position,
        model: &dyn Model,
        dataset: &dyn Dataset,
        tally: Option<&Tally>,
    ) -> Result<()> {
        let mut record = EvaluationRecord::new(position.step, position.epoch);
        if let Some(tally) = tally {
            record.classes =
                tally.per_class().map(|counts| Classes::new(counts, tally.matrix(), &self.names).shortened());
            record.worst = self.worst(dataset, tally)?;
        }
        if let Some(text) = self.text.as_ref().filter(|_| self.details.samples > 0) {
            record.texts = texts(text, model, dataset, self.seed)?;
        }
        self.pending = Some(record).filter(|record| !record.is_empty());
        Ok(())
    }

    /// Writes the notes, with the metrics of their epoch.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn measured(&mut self, event: &EpochEvent) -> Result<()> {
        let Some(mut record) = self.pending.take() else { return Ok(()) };
        record.val_loss = event.value("val.loss");
        self.evaluations.write(record, event.value(self.best.name()))
    }

    fn worst(&self, dataset: &dyn Dataset, tally: &Tally) -> Result<Vec<WorstSample>> {
        let sample = |judged: &Judged| {
            let key = SampleKey { seed: self.seed, epoch: 0, sample: judged.index };
            let picture = picture_of(dataset, key)?.map(|picture| RecordedPicture {
                width: picture.width,
                height: picture.height,
                png: BASE64.encode(&picture.png),
            });
            let SampleWords { place, mut cells, text } = words_of(dataset, key)?;
            let more_cells = cells.len().saturating_sub(CELLS);
            cells.truncate(CELLS);
            let cells =
                cells.into_iter().map(|(column, cell)| (short_name(&column), short_name(&cell))).collect();
            Ok(WorstSample {
                index: judged.index,
                class: class_name(&self.names, judged.label),
                predicted: class_name(&self.names, judged.predicted),
                probability: judged.probability.into(),
                loss: judged.loss.into(),
                picture,
                place: place.map(|place| short_name(&place)),
                cells,
                more_cells,
                text: text.map(|text| shortened(&text)),
            })
        };
        tally.worst().iter().map(sample).collect()
    }
}

fn short_name(name: &str) -> String {
    display::cut_middle(name, NAME).into_owned()
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(CHARACTERS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Continuations of the beginnings of some samples. Their random draws depend only on the seed and the number of the text.
fn texts(
    encoding: &TextEncoding,
    model: &dyn Model,
    dataset: &dyn Dataset,
    seed: u64,
) -> Result<Vec<GeneratedText>> {
    // A user-defined data set may describe its samples wrongly.
    if dataset.is_empty() || encoding.fits(&dataset.input()).is_err() {
        return Ok(Vec::new());
    }
    let evaluator = model.evaluator();
    let tokenizer = &encoding.tokenizer;
    let vocabulary = tokenizer.vocabulary_size();
    let sampling = Sampling { temperature: TEMPERATURE, seed, ..Sampling::UNCHANGED };
    let (begun, count) = (Instant::now(), TEXTS.min(dataset.len() as u64));
    let mut texts = Vec::new();
    for number in 0..count {
        let sample = number * dataset.len() as u64 / count;
        let FieldData::Index(mut prompt) = input_of(dataset, SampleKey { seed, epoch: 0, sample })?.data
        else {
            return Ok(Vec::new());
        };
        prompt.truncate(PROMPT.min(encoding.block_size / 2).max(1));
        // Another document, or padding, is no context.
        let end = tokenizer.end().map(i64::from).filter(|_| dataset.has_untrained());
        if let Some(at) = prompt.iter().position(|token| Some(*token) == end) {
            prompt.truncate(at.max(1));
        }
        let before = tokenizer.decode(&prompt);
        let mut after = tokenizer.stream_after(&prompt);
        let next = Continuation { evaluator: &evaluator, encoding, vocabulary, sampling, number };
        let tokens = next.tokens(prompt, || begun.elapsed() < TEXT_TIME)?;
        let cut = tokens.len() < TOKENS;
        let text: String = tokens.iter().map(|token| after.push(*token)).collect();
        let (text, place) = (text + &after.finish(), dataset.place(sample));
        texts.push(GeneratedText { prompt: before, text, cut, place });
    }
    Ok(texts)
}

/// What continues a prompt.
struct Continuation<'a> {
    evaluator: &'a Evaluator,
    encoding: &'a TextEncoding,
    vocabulary: usize,
    sampling: Sampling,
    /// The number of the text.
    number: u64,
}

impl Continuation<'_> {
    /// [`TOKENS`] tokens, or fewer, but one, if there is no time. When the context is full, it continues with its second half: so nearly every
    /// token is computed once, as beyond the context none of the keys and values would remain valid.
    fn tokens(&self, mut window: Vec<i64>, in_time: impl Fn() -> bool) -> Result<Vec<i64>> {
        let context = self.encoding.block_size;
        let mut tokens = Vec::with_capacity(TOKENS);
        let mut parts = 0;
        let continues = |tokens: &[i64]| tokens.is_empty() || (tokens.len() < TOKENS && in_time());
        while continues(&tokens) {
            let room = context.saturating_sub(window.len()).max(1);
            // Each part draws others.
            let sequence = self.number + TEXTS * parts;
            let mut generator = Generator::new(
                self.evaluator,
                window.clone(),
                context,
                self.vocabulary,
                self.sampling,
                sequence,
            );
            for _ in 0..room {
                if !continues(&tokens) {
                    break;
                }
                let token = generator.next_token()? as i64;
                tokens.push(token);
                window.push(token);
            }
            window.drain(..window.len().saturating_sub((context / 2).max(1)));
            parts += 1;
        }
        Ok(tokens)
    }
}
