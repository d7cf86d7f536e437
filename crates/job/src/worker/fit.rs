//! Checks that data, model, loss and batches fit together, before anything is written or any rank waits for another.

use super::parts::RankParts;
use base::error::{Error, Result};
use base::panics::catch_model_panic;
use burn::tensor::Tensor;
use collectives::SoloGroup;
use data::{Dataset, FieldData, FieldFacts, FieldKind, HostField, POSITIONS, Splits, UNTRAINED};
use ddp::device::drawn;
use std::collections::BTreeMap;
use train::models::{Input, Model};
use train::tasks::{Batch, StepContext};
use train::training::{BatchAlgebra, Position};

/// The data set has samples, they are not empty, and all splits have the same further fields.
pub(super) fn samples(name: &str, splits: &Splits) -> Result<()> {
    let (train, further) = (&splits.train, splits.train.fields());
    if train.is_empty() {
        return Err(Error::data(format!("data set `{name}` has no training samples")));
    }
    let standard = [("inputs".to_owned(), train.input()), ("targets".to_owned(), train.target())];
    let further_facts = further.iter().map(|(name, facts)| (format!("fields `{name}`"), facts.clone()));
    for (what, field) in standard.into_iter().chain(further_facts) {
        if values(&field) == 0 {
            let shape = field.shape;
            return Err(Error::data(format!("the {what} of data set `{name}` are empty (shape {shape:?})")));
        }
    }
    if let Some(reserved) = further.keys().find(|name| ["", "input", "target"].contains(&name.as_str())) {
        let what = format!("data set `{name}` has a further field `{reserved}`, which is a reserved name");
        return Err(Error::data(what).hint("any name but `input`, `target` and the empty one"));
    }
    for (what, split) in [("validation", &splits.val), ("test", &splits.test)] {
        let Some(other) = split.as_ref().map(|split| split.fields()).filter(|other| *other != further) else {
            continue;
        };
        let (training, other) = (listed(&further), listed(&other));
        return Err(Error::data(format!(
            "the {what} samples of data set `{name}` have the further fields {other}, those of training {training}"
        )));
    }
    Ok(())
}

/// A text about further fields.
fn listed(fields: &BTreeMap<String, FieldFacts>) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, facts)| format!("`{name}` of shape {}", shape(facts))).collect();
    if fields.is_empty() { "(none)".to_owned() } else { fields.join(", ") }
}

/// The model and the task accept a batch of the data's shape, and what a standard loss compares with the targets has
/// their shape. This runs the evaluator, and does not cover what only a training pass does.
///
/// # Errors
/// The model's own error or panic, the task's, and outputs of another shape (exit 78).
pub(super) fn model(parts: &RankParts<'_>, dataset: &dyn Dataset, model: &dyn Model) -> Result<()> {
    // A pass may draw, from the stream that another model of this process may be drawing its values from.
    drawn(model.device(), parts.seed, || accepts(parts, dataset, model))
}

/// The task and the mixing of samples are for inputs and targets as the data set has them.
///
/// # Errors
/// They are for others (exit 78).
pub(super) fn fields(parts: &RankParts<'_>, dataset: &dyn Dataset) -> Result<()> {
    let (input, target) = (dataset.input(), dataset.target());
    parts.task.fits(&input, &target)?;
    parts.train.mixing().map_or(Ok(()), |mixing| mixing.fits(&input, &target))
}

fn accepts(parts: &RankParts<'_>, dataset: &dyn Dataset, model: &dyn Model) -> Result<()> {
    let (name, input, target) = (&parts.model.name, dataset.input(), dataset.target());
    fields(parts, dataset)?;
    let samples = parts.batch_size.min(dataset.len());
    let evaluator = model.evaluator();
    let device = evaluator.device();
    let on_device = |field| Input::from_host(&zeros(field, samples), samples, &device);
    let further = dataset.fields();
    // Of one document each: the largest positions.
    let documents = further.get(POSITIONS).map(|positions| HostField {
        shape: positions.shape.clone(),
        data: FieldData::Index((0..samples).flat_map(|_| 0..values(positions) as i64).collect()),
    });
    let mut given = Input::from_host(&with_largest(&input, samples), samples, &device);
    if let Some(documents) = &documents {
        given = given.with_positions(documents)?;
    }
    if parts.task.own().is_none() {
        let outputs = catch_model_panic(|| evaluator.forward(given.clone())).map_err(|why| {
            let what = format!("model `{name}` does not accept {}", described(samples, &input));
            Error::spec(format!("{what} from data set `{}`: {why}", parts.data.name))
        })?;
        given.given_documents().map_or(Ok(()), |documents| documents.require_use())?;
        evaluated(name, &outputs)?;
        compares(outputs.dims(), samples, &input, &target).map_err(|why| {
            let e = Error::spec(format!("model `{name}` {why}"));
            match parts.task.standard() {
                Some(_) => e,
                None => e.hint("a user-defined `[task]` may compare other outputs (docs/extending.md)"),
            }
        })?;
    }
    if parts.task.standard().is_some() && parts.task.metrics().is_empty() {
        return Ok(());
    }
    // The first of several is not trained, where that is possible.
    let mut host = zeros(&target, samples);
    if let (true, FieldData::Index(labels)) = (dataset.has_untrained(), &mut host.data)
        && labels.len() > 1
    {
        labels[0] = UNTRAINED;
    }
    let mut targets = Input::from_host(&host, samples, &device);
    if dataset.has_untrained() {
        targets = targets.with_untrained(&host);
    }
    let fields = further.iter().map(|(name, facts)| (name.clone(), on_device(facts))).collect();
    let batch = Batch { input: given.clone(), target: targets.clone(), fields };
    if dataset.has_untrained() && parts.task.build().runs_backward() {
        return Err(Error::spec(
            "a model of Burn's `Learner` can't leave targets out, as this data set does",
        )
        .hint("a task of your own (docs/extending.md) can, by `StepOutput::weigh_by_count`"));
    }
    let alone = SoloGroup::default();
    let step = || {
        let output = parts.task.build().step(evaluator.net(), batch, &StepContext::new(false, &alone))?;
        output.check()?;
        targets.require_trained()?;
        given.given_documents().map_or(Ok(()), |documents| documents.require_use())?;
        evaluated(name, &output.loss)
    };
    catch_model_panic(step).unwrap_or_else(|why| {
        let (inputs, targets) = (described(samples, &input), described(samples, &target));
        let mut what = format!("the task does not accept {inputs} with targets of {targets}");
        if !further.is_empty() {
            what.push_str(&format!(" and {}", listed(&further)));
        }
        Err(Error::spec(format!("{what} from data set `{}`: {why}", parts.data.name)))
    })
}

fn described(samples: usize, field: &FieldFacts) -> String {
    format!("{samples} samples of shape {}", shape(field))
}

fn shape(field: &FieldFacts) -> String {
    let kind = if matches!(field.kind, FieldKind::Float) { "floats" } else { "indices" };
    format!("{:?} ({kind})", field.shape)
}

/// A batch of zeros, which requires no reading.
fn zeros(field: &FieldFacts, samples: usize) -> HostField {
    let count = samples * values(field);
    let data = match field.kind {
        FieldKind::Float => FieldData::Float(vec![0.0; count]),
        FieldKind::Index(_) => FieldData::Index(vec![0; count]),
    };
    HostField { shape: field.shape.clone(), data }
}

/// The same with the largest index at its end: a table of the model with fewer rows is then found before the run. Only in host memory: on a
/// device, no operation compares indices.
fn with_largest(field: &FieldFacts, samples: usize) -> HostField {
    let mut host = zeros(field, samples);
    if let (FieldKind::Index(bound), FieldData::Index(values)) = (field.kind, &mut host.data)
        && let (Some(last), Ok(largest)) = (values.last_mut(), i64::try_from(bound.saturating_sub(1)))
    {
        *last = largest;
    }
    host
}

/// Checks that an evaluation computed this value with parameters of the module alone: those require no gradient then. Others would be
/// neither trained nor saved.
fn evaluated<const D: usize>(model: &str, value: &Tensor<D>) -> Result<()> {
    if !value.is_tracked() {
        return Ok(());
    }
    let what = format!(
        "what model `{model}` computes in an evaluation requires gradients: it has parameters that are not part of its module, which would be neither trained nor saved"
    );
    Err(Error::spec(what).hint(
        "a module does not contain fields with `#[module(skip)]`; the activation of Burn's `PositionWiseFeedForward`, and so of its transformers, \
         is one: choose one without parameters there; a task that calls `require_grad` in an evaluation returns `.inner()` of its results",
    ))
}

/// The number of values per sample.
fn values(field: &FieldFacts) -> usize {
    field.shape.iter().product()
}

/// Checks for one row of outputs per class index, or one output per number. Only the outputs for tokens may be more than there are: a
/// vocabulary is often padded.
fn compares(
    [rows, width]: [usize; 2],
    samples: usize,
    input: &FieldFacts,
    target: &FieldFacts,
) -> Result<(), String> {
    let (expected, each) = match target.kind {
        FieldKind::Float => (samples, "sample"),
        FieldKind::Index(_) => (samples * values(target), "target"),
    };
    if rows != expected {
        return Err(format!(
            "returns {rows} rows of outputs for {samples} samples; expected one per {each}, {expected}"
        ));
    }
    match target.kind {
        FieldKind::Float if width != values(target) => {
            let numbers = values(target);
            Err(format!("returns {width} outputs per sample; the data set's targets have {numbers}"))
        }
        FieldKind::Index(classes)
            if width < classes || width > classes && matches!(input.kind, FieldKind::Float) =>
        {
            Err(format!("returns {width} outputs per target; the data set has {classes} classes"))
        }
        _ => Ok(()),
    }
}

/// An epoch has at least one optimizer step with this number of ranks.
pub(super) fn batches(drop_last: bool, position: &Position, samples: usize) -> Result<()> {
    let BatchAlgebra { samples_per_rank, steps_per_epoch, .. } =
        position.batching.algebra(samples, drop_last);
    if steps_per_epoch != Some(0) {
        return Ok(());
    }
    let (world, batch) = (position.batching.world, position.batching.batch_size);
    let share = samples_per_rank.unwrap_or(0);
    Err(Error::data(format!(
        "an epoch has no optimizer step: with `drop_last` each of {world} ranks has {share} of the {samples} training samples, less \
         than a batch of {batch}"
    ))
    .hint("use a smaller `batch_size`, fewer processes, or `drop_last = false` in `[dataset]`"))
}
