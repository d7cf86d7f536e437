//! Evaluates a checkpoint's model on one split of the data, over all ranks: `ddp-run eval`.

use super::compute::compute;
use super::data::{facts_of, lacking, open_data};
use super::exchange::share_json;
use super::handoff::EvaluationHandoff;
use super::metrics::{self, Reported};
use super::parts::RankParts;
use super::spec_changes::EvaluatedAs;
use super::{Usage, fit, same_data, state};
use base::error::{Error, IoContext, Result};
use base::files;
use base::named;
use checkpoint::{CheckpointStore, Loaded, RankBy, load};
use collectives::{Phase, ProcessGroup, StepPhase, Wait};
use data::{Dataset, Encoding, Fingerprint, Splits};
use ddp::device::ComputeDevice;
use record::evaluations::Classes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::training::{Details, evaluate_by_batches, share_model};

named! {
    /// The split to evaluate.
    #[derive(clap::ValueEnum)]
    pub enum Split {
        Train = "train",
        Val = "val",
        Test = "test",
    }
}

impl Split {
    fn dataset(self, splits: &Splits) -> Option<&Arc<dyn Dataset>> {
        match self {
            Split::Train => Some(&splits.train),
            Split::Val => splits.val.as_ref(),
            Split::Test => splits.test.as_ref(),
        }
    }
}

fn no_split(data: &str, split: Split, splits: &Splits) -> Error {
    let there = Split::ALL.into_iter().filter(|split| split.dataset(splits).is_some());
    let there: Vec<String> = there.map(|split| format!("`{split}`")).collect();
    let more = match split {
        Split::Val => "; `[dataset] val_split` splits one off the training samples",
        _ => "",
    };
    Error::data(format!("data set `{data}` has no split `{split}`"))
        .hint(format!("it has {}{more}", there.join(" and ")))
}

/// A mean over no samples is not a number.
fn no_samples(data: &str, split: Split) -> Error {
    let error = Error::data(format!("split `{split}` of data set `{data}` has no samples"));
    match split {
        Split::Val => error.hint(
            "a larger `[dataset] val_split` gives it some; `--split train` evaluates the training samples",
        ),
        Split::Train | Split::Test => error,
    }
}

/// How often the search for a checkpoint is repeated while checkpoints are written and removed.
const LOOKS: usize = 10;

/// The checkpoint that was evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluatedCheckpoint {
    /// Folder of the checkpoint.
    pub path: PathBuf,
    /// Optimizer steps completed.
    pub step: u64,
    /// Epochs completed.
    pub epochs: usize,
    /// Optimizer steps completed in the epoch after them.
    pub steps_in_epoch: usize,
}

impl EvaluatedCheckpoint {
    /// Without its tensors.
    pub fn new(loaded: &Loaded) -> Self {
        let state = &loaded.state;
        let (step, epochs, steps_in_epoch) = (state.global_step, state.epochs_completed, state.step_in_epoch);
        Self { path: loaded.path.clone(), step, epochs, steps_in_epoch }
    }
}

/// The `best` checkpoint in `dir` (`by` is `checkpoint.best`), or the newest. A running training may remove it while it is read:
/// then another one is read.
///
/// # Errors
/// Exit code 74: there is none, or none can be read.
pub fn chosen(by: RankBy, dir: &Path, best: bool) -> Result<Loaded> {
    let store = CheckpointStore::read_only(dir);
    let steps = || Some(store.list().ok()?.iter().map(|entry| entry.step).collect::<Vec<_>>());
    let one = || match best {
        true => store.best(by),
        false => store
            .latest_verified()?
            .ok_or_else(|| Error::checkpoint(format!("there is no checkpoint in {}", dir.display()))),
    };
    for _ in 1..LOOKS {
        let before = steps();
        let found = one();
        if found.is_ok() || before == steps() {
            return found;
        }
    }
    one()
}

/// The metrics of an evaluation, by name. Rank 0 writes it to a file, and the supervisor reads it.
#[derive(Serialize, Deserialize)]
pub struct Evaluation {
    /// Names, as in `loss`, and values, which may be NaN or infinite.
    #[serde(with = "bits")]
    pub metrics: Vec<(String, f64)>,
    /// Number of samples evaluated.
    pub samples: u64,
    /// Predictions by class, if they were requested and samples have one class each.
    pub classes: Option<Classes>,
    /// On rank 0.
    pub of: Option<EvaluatedCheckpoint>,
    /// How the data and the spec differ from those of the checkpoint.
    pub warnings: Vec<String>,
}

impl Evaluation {
    /// The metrics by name, and `n`, the number of samples.
    pub fn json(&self) -> Map<String, Value> {
        let metrics = self.metrics.iter().map(|(name, value)| (name.clone(), json!(value)));
        metrics.chain([("n".to_owned(), json!(self.samples))]).collect()
    }

    /// What rank 0 wrote.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(path: &Path) -> Result<Self> {
        let text = base::files::read(path).doing("read", path)?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::internal(format!("{} is not an evaluation: {e}", path.display())))
    }
}

/// As bits, because JSON has no numbers that are not finite.
mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    type Metrics = Vec<(String, f64)>;

    pub fn serialize<S: Serializer>(metrics: &Metrics, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(metrics.iter().map(|(name, value)| (name, value.to_bits())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Metrics, D::Error> {
        let metrics = Vec::<(String, u64)>::deserialize(from)?;
        Ok(metrics.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect())
    }
}

/// What to evaluate.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationScope {
    /// Split of the data to evaluate.
    pub split: Split,
    /// Averaged weights, if there are some.
    pub averaged: bool,
    /// Count predictions by class.
    pub per_class: bool,
}

const NOT_ENCODED: &str = "the checkpoint does not say how its data was encoded: what is measured on the data, such as the scale of \
                           columns, is measured anew";

/// Evaluates rank 0's `loaded`; the other ranks have `None` and get its weights. Every rank returns the same metrics, which do not depend on the
/// number of ranks; warnings are rank 0's.
pub fn evaluate(
    parts: &RankParts<'_>,
    loaded: Option<&Loaded>,
    wanted: EvaluationScope,
    device: ComputeDevice,
    local_rank: usize,
    group: &dyn ProcessGroup,
) -> Result<Evaluation> {
    // Rank 0 may still be reading the checkpoint.
    group.barrier(Wait::WhilePeersLive)?;
    let known = share_json(loaded.map(Usage::encoding_of).transpose()?.flatten(), group)?;
    let splits = open_data(&parts.data, known.as_ref(), group, local_rank)?;
    let (facts, fingerprint) = (facts_of(&splits), Fingerprint::new(&splits));
    group.barrier(Wait::WhilePeersLive)?;
    same_data::check_data_sets(&fingerprint, group)?;
    let on = compute(device, parts.precision)?;
    let mut model = parts.model.source.build(&facts, parts.seed, &on)?;
    fit::model(parts, &*splits.train, &*model)?;
    let dataset =
        wanted.split.dataset(&splits).ok_or_else(|| no_split(parts.data.name, wanted.split, &splits))?;
    if dataset.is_empty() {
        return Err(no_samples(parts.data.name, wanted.split));
    }
    let mut warnings = Vec::from_iter(lacking("the evaluated", &**dataset));
    if let Some(loaded) = loaded {
        let saved = state::saved(loaded)?;
        let spec = EvaluatedAs::new(parts.spec(), loaded, known.as_ref());
        if let Some(what) = saved.data.differs(&fingerprint, ", now ") {
            let said = match spec.on_other_data {
                true => "the data is not that of the checkpoint",
                false => "the data set has changed since this checkpoint was made",
            };
            warnings.push(format!("{said}: {what}"));
            warnings.extend(known.is_none().then(|| NOT_ENCODED.to_owned()));
        }
        warnings.extend(spec.warning);
        let weights = loaded.weights(wanted.averaged);
        state::restore_model(parts.checkpoint, loaded, &saved, device, weights, &mut *model)?;
    }
    if group.world_size() > 1 {
        // Reading and sending have no deadline.
        group.barrier(Wait::WhilePeersLive)?;
        share_model(&mut *model, group)?;
    }
    let options = parts.data.loader.options(parts.batch_size, parts.seed);
    group.note(StepPhase {
        step: loaded.map_or(0, |loaded| loaded.state.global_step),
        phase: Phase::Evaluate,
    });
    let details = Details { per_class: wanted.per_class, samples: 0 };
    let evaluated = evaluate_by_batches(&*model, &*parts.task.build(), dataset, options, group, details)?;
    let reported = Reported::new(parts.task, parts.metrics.top5, &facts).of(&**dataset)?;
    let found = metrics::evaluation(&evaluated.sums, reported);
    let encoding = splits.train.encoding();
    let names = encoding.as_ref().and_then(Encoding::classes).unwrap_or_default();
    let tally = evaluated.tally.as_ref();
    let classes = tally.and_then(|tally| Some(Classes::new(tally.per_class()?, tally.matrix(), names)));
    Ok(Evaluation { warnings, classes, of: loaded.map(EvaluatedCheckpoint::new), ..found })
}

/// The checkpoint that was found before this rank was started, or the present one.
pub(super) fn loaded(by: RankBy, handoff: &EvaluationHandoff) -> Result<Loaded> {
    let found = load(&handoff.checkpoint);
    match &handoff.among {
        Some(dir) if found.is_err() => chosen(by, dir, handoff.best),
        _ => found,
    }
}

/// One rank's part of `ddp-run eval`. Rank 0 writes the result.
pub(super) fn evaluate_rank(
    parts: &RankParts<'_>,
    handoff: &EvaluationHandoff,
    device: ComputeDevice,
    local_rank: usize,
    group: &dyn ProcessGroup,
) -> Result<()> {
    let split = Split::parse(&handoff.split)
        .ok_or_else(|| Error::internal(format!("`{}` is not a split", handoff.split)))?;
    let wanted = EvaluationScope { split, averaged: handoff.averaged, per_class: handoff.per_class };
    let first = group.rank() == 0;
    let loaded = if first { Some(loaded(parts.checkpoint.best, handoff)?) } else { None };
    let found = evaluate(parts, loaded.as_ref(), wanted, device, local_rank, group)?;
    if first {
        files::replace_json(&handoff.result, &found)?;
    }
    // No rank leaves while another one needs it.
    Ok(group.barrier(Wait::WhilePeersLive)?)
}
