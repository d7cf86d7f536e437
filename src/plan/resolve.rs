//! Reads a job's tables in order, so that each component sees what those before it settled.

use super::checks;
use super::sections::{DatasetPlan, LoaderPlan, ModelPlan};
use super::tables;
use super::{Backend, BatchAlgebra, Every, Plan, Sizes, WorldRequest};
use crate::data::{DataFacts, DatasetSource};
use crate::device::{DeviceSpec, Precision};
use crate::models::ModelSource;
use crate::optim::{OptimizerPlan, Schedule};
use crate::registry::Registry;
use crate::spec::Fields;
use std::path::PathBuf;
use std::sync::Arc;

/// Nothing is known of data whose table is wrong.
const NO_FACTS: DataFacts = DataFacts { input: None, target: None, train: None, val: None, test: None };

/// Reads everything, whatever is wrong on the way. `None` only after a problem.
pub(super) fn plan(root: &mut Fields<'_>, registry: &Registry, request: WorldRequest) -> Option<Plan> {
    let name = name(root);
    let seed = root.u64("seed", 0.., 0);
    let epochs = root.u64("epochs", 1.., 1);
    let batch_size = root.req_usize("batch_size", 1..=1 << 30);
    let save_every = or_default(root, "save_every", Every::EXPECTED, Every::read, 1, Every::Epochs(1));
    let backend = root.choice("backend", &Backend::CHOICES, "auto");
    let device = or_default(root, "device", DeviceSpec::EXPECTED, device, "auto", DeviceSpec::Auto);
    let precision = root.choice("precision", &Precision::CHOICES, "f32");
    let (dataset_name, dataset, loader) = dataset(root, registry);
    let facts = dataset.as_ref().map_or(NO_FACTS, |d| d.facts());
    let (model_name, model, pretrained) = model(root, registry, &facts);
    let (loss, train) = tables::train(root, &facts);
    let optimizer = OptimizerPlan::configure(&mut root.req_section("optimizer"));
    let schedule = Schedule::configure(root);
    let checkpoint = tables::checkpoint(root, &facts, &train);
    let metrics = tables::metrics(root, &facts);
    let launch = tables::launch(root);
    let distributed = tables::distributed(root, registry);

    let world = request.resolve(launch.nnodes.max, launch.nproc_per_node, device);
    let batch = match facts.train {
        Some(n) => BatchAlgebra::of(n, world.world_size, batch_size, train.accumulate, loader.drop_last),
        None => BatchAlgebra::unknown(world.world_size, batch_size, train.accumulate),
    };
    checks::backend_and_device(root, backend, device, &world);
    checks::precision_and_device(root, precision, device);
    checks::requeue(root, launch.requeue, save_every, checkpoint.on_preempt);
    checks::batches(root, &batch, &world, batch_size, train.accumulate, loader.drop_last);
    let (dataset, model) = (dataset?, model?);
    // After a problem the model may be one that can't be built.
    let tensors = if root.is_sound() { model.tensors() } else { None };
    let sizes = tensors.map(|t| Sizes::of(&t, &optimizer, &distributed, &world));
    Some(Plan {
        name,
        seed,
        epochs,
        batch_size,
        save_every,
        backend,
        device,
        precision,
        world,
        model: ModelPlan {
            name: model_name,
            source: model,
            pretrained: pretrained.0,
            pretrained_strict: pretrained.1,
        },
        dataset: DatasetPlan { name: dataset_name, source: dataset, facts },
        loader,
        loss: loss?,
        train,
        optimizer,
        schedule,
        checkpoint,
        metrics,
        launch,
        distributed,
        batch,
        going_on: None,
        sizes,
        values: Vec::new(),
        hash: String::new(),
    })
}

/// The name of a run is that of its folder.
fn name(root: &mut Fields<'_>) -> String {
    let name = root.req_str("name");
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if root.has("name") && !name.is_empty() && (!name.chars().all(plain) || name.starts_with(['.', '-'])) {
        root.problem(
            "name",
            "a name is made of letters, digits, `.`, `_` and `-`, and starts with none of the last",
        );
    } else if root.has("name") && name.is_empty() && root.is_str("name") {
        root.problem("name", "a name can't be empty");
    }
    name
}

fn device(value: &toml::Value) -> Option<DeviceSpec> {
    value.as_str().and_then(DeviceSpec::parse)
}

pub(super) fn or_default<T>(
    fields: &mut Fields<'_>,
    key: &'static str,
    expected: &str,
    read: impl Fn(&toml::Value) -> Option<T>,
    written: impl Into<toml::Value>,
    default: T,
) -> T {
    let value = fields.opt_as(key, expected, read);
    if value.is_none() && !fields.has(key) {
        fields.note_resolved(key, written);
    }
    value.unwrap_or(default)
}

fn dataset(
    root: &mut Fields<'_>,
    registry: &Registry,
) -> (String, Option<Arc<dyn DatasetSource>>, LoaderPlan) {
    let mut fields = root.req_section("dataset");
    let name = fields.req_str("name");
    let loader = LoaderPlan {
        shuffle: fields.bool("shuffle", true),
        drop_last: fields.bool("drop_last", false),
        workers: fields.usize("workers", 0..=256, 1),
        prefetch: fields.usize("prefetch", 1..=1024, 2),
    };
    let source = match registry.dataset_kind(&name) {
        Some(kind) => Some(kind.configure(&mut fields)),
        None => {
            if fields.is_str("name") {
                fields.unknown_name("name", &registry.dataset_names());
            }
            // Which keys belong here depends on the name.
            fields.ignore_rest();
            None
        }
    };
    (name, source, loader)
}

type Pretrained = (Option<PathBuf>, bool);

fn model(
    root: &mut Fields<'_>,
    registry: &Registry,
    facts: &DataFacts,
) -> (String, Option<Arc<dyn ModelSource>>, Pretrained) {
    let mut fields = root.req_section("model");
    let name = fields.req_str("name");
    let pretrained = fields.opt_str("pretrained").map(PathBuf::from);
    let strict = if pretrained.is_some() {
        fields.bool("pretrained_strict", true)
    } else {
        if fields.opt_bool("pretrained_strict").is_some() && !fields.has("pretrained") {
            fields.problem_with_key("pretrained_strict", "has no effect without `pretrained`");
        }
        true
    };
    if let Some(path) = &pretrained {
        let known = ["safetensors", "pt", "pth", "bin"];
        if !path.extension().is_some_and(|e| known.iter().any(|k| e.eq_ignore_ascii_case(k))) {
            fields.problem("pretrained", "expected a `.safetensors`, `.pt` or `.pth` file");
        }
    }
    let source = match registry.model_kind(&name) {
        Some(kind) => Some(kind.configure(&mut fields, facts)),
        None => {
            if fields.is_str("name") {
                fields.unknown_name("name", &registry.model_names());
            }
            fields.ignore_rest();
            None
        }
    };
    (name, source, (pretrained, strict))
}
