//! Specs that `Plan::resolve` rejects, besides those whose messages are snapshots of tests/cli/spec_messages.rs.

use super::{refused, resolve};
use crate::plan::{Plan, Purpose, WorldRequest};
use crate::registry::Registry;
use spec::{JobTree, Override};

#[test]
fn rejects_impossible_combinations() {
    let one = |sets: &[&str], part: &str| {
        let found = refused(sets);
        assert!(found.len() == 1 && found[0].contains(part), "{sets:?}: {found:#?}");
    };
    one(
        &["backend=nccl", "device=cuda:1", "launch.nproc_per_node=2"],
        "a CUDA device for each of 2 processes",
    );
    one(&["metrics.top5=true", "dataset.classes=5"], "top-5 accuracy of 5 classes is always 1");
    one(&["checkpoint.keep_best=1", "dataset.val=10", "train.eval_every=0"], "`train.eval_every = 0`");
    one(
        &["checkpoint.best=val.accuracy", "dataset.val=10", "dataset.classes=0"],
        "`val.accuracy` needs class targets",
    );
    one(
        &["checkpoint.best=val.top5", "dataset.val=10", "dataset.classes=5"],
        "`val.top5` of 5 classes is always 1",
    );
    one(
        &["checkpoint.best=val.perplexity", "dataset.val=10"],
        "`val.perplexity` is measured for tokens only",
    );
    one(&["model.pretrained_strict=true"], "no effect without `pretrained`");
    one(&["distributed.sockets=17"], "expected an integer from 1 to 16");
    one(&["distributed.interface=\"eth 0\""], "the name of a network interface");
    one(&["distributed.transport=shm", "distributed.sockets=2"], "counts TCP connections");
    one(&["ema.every=2"], "no effect without `decay`");
    one(&["ema.warmup_power=0.5"], "no effect without `decay`");
    one(&["ema.decay=1.0"], "below 1");
    one(&["ema.decay=0.9", "ema.warmup_power=0.0"], "above 0 and at most 1");
    let plateau = "scheduler.name=reduce-on-plateau";
    one(&[plateau], "`val.loss`, which is never measured");
    one(&[plateau, "scheduler.metric=val.r2", "dataset.val=10"], "`val.r2` needs numbers");
    one(&["early_stop.metric=val.loss"], "no effect without `patience`");
    one(&["early_stop.patience=0"], "expected an integer of at least 1");
    one(
        &["early_stop.patience=2"],
        "`val.loss`, which is never measured: the data set has no validation split",
    );
    one(&["early_stop.patience=2", "early_stop.metric=val.r2", "dataset.val=10"], "`val.r2` needs numbers");
    one(&["dataset.samples=0"], "no training samples");
    one(&["tokenizer.kind=bytes"], "has no effect: the data set `");
    let text = ["dataset={ name = 'text', path = 'a.txt' }", "model.name=gpt"];
    let text = |more: &'static str| [text[0], text[1], more];
    one(&text("tokenizer.kind=huggingface"), "a tokenizer of Hugging Face needs the key `path`");
    one(&text("tokenizer={ kind = 'bytes', path = 'a' }"), "where tokens are characters or bytes");
    one(&text("tokenizer.path=Cargo.toml"), "Cargo.toml: it is no tokenizer of Hugging Face");
    one(&["name=.."], "a name consists of letters");
    one(&["name=\"\""], "a name can't be empty");
    assert_eq!(refused(&["checkpoint.keep_best=1", "checkpoint.best=train.loss"]), [""; 0]);
    assert_eq!(resolve(&[]).checkpoint.keep_best, Some(0), "no validation split, so nothing to rank by");
    assert_eq!(resolve(&["dataset.val=10"]).checkpoint.keep_best, Some(1));
}

#[test]
fn rejects_a_date_as_rendezvous_endpoint() {
    let message = "expected HOST:PORT, tcp://HOST:PORT or file:///ABSOLUTE/PATH, found the date 1979-05-27";
    assert_eq!(refused(&["launch.rdzv_endpoint=1979-05-27"]), [message]);
}

#[test]
fn a_wrong_augmentation_has_a_replacement() {
    let spec = "name = 'a'\nbatch_size = 8\n[model]\nname = 'cnn'\n[dataset]\nname = 'shapes'\naugment = ['flip', 'crp']\n[optimizer]\nname = 'sgd'\n";
    let tree = JobTree::parse("job.toml", spec, &[]);
    let found = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(1)).unwrap_err();
    let [only] = found.problems() else { panic!("{found}") };
    assert_eq!(
        (only.message.as_str(), only.meant.as_deref()),
        ("unknown augmentation; did you mean `crop`?", Some("\"crop\""))
    );
    assert_eq!(&spec[only.span.start..only.span.end], "'crp'");
}

/// Maps of one pixel in the last stage.
#[test]
fn a_batch_norm_of_one_value_per_channel_is_reported_at_the_batch_size() {
    let spec = "name = 'a'\nbatch_size = 8\nmodel.name = 'resnet18'\noptimizer.name = 'sgd'\n\
                [dataset]\nname = 'shapes'\ntrain = 33\n";
    let registry = Registry::standard();
    let found = |sets: &[&str]| {
        let sets: Vec<Override> = sets.iter().map(|set| Override::Set((*set).to_owned())).collect();
        let tree = JobTree::parse("job.toml", spec, &sets);
        let plan = Plan::resolve(&tree, &registry, WorldRequest::new(1).to(Purpose::Start));
        plan.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let last = found(&[]);
    assert!(
        last.contains("batch_size = 8\n") && last.contains("the last micro-batch of an epoch has"),
        "{last}"
    );
    assert!(last.contains("leave it out with `drop_last = true`"), "{last}");
    for way_out in ["dataset.drop_last=true", "batch_size=7", "model.stem=cifar", "train.max_steps=3"] {
        assert_eq!(found(&[way_out]), "", "{way_out}");
    }
    let each = found(&["batch_size=1"]);
    assert!(each.contains("a micro-batch has one") && each.contains("use a larger `batch_size`"), "{each}");
}
