//! Specs that `Plan::resolve` rejects.

use super::{refused, resolve, resolve_for};
use crate::plan::WorldRequest;

#[test]
fn rejects_impossible_combinations() {
    let one = |sets: &[&str], part: &str| {
        let found = refused(sets);
        assert!(found.len() == 1 && found[0].contains(part), "{sets:?}: {found:#?}");
    };
    one(&["backend=nccl", "device=cpu"], "nccl needs CUDA devices");
    one(
        &["backend=nccl", "device=cuda:1", "launch.nproc_per_node=2"],
        "a CUDA device for each of 2 processes",
    );
    one(&["dataset.drop_last=true", "batch_size=1001"], "larger than the 1000 samples of each of 1 ranks");
    one(&["train.accumulate=126"], "more than the 125 batches");
    one(&["dataset.classes=0", "train.label_smoothing=0.1"], "label smoothing requires cross-entropy");
    one(&["dataset.classes=0", "train.loss=cross-entropy"], "cross-entropy requires class targets");
    one(&["train.loss=mse"], "mse requires numbers as targets, but the data set has 10 classes");
    one(&["train.max_steps=0"], "expected an integer of at least 1, found 0");
    one(&["metrics.top5=true", "dataset.classes=4"], "top-5 accuracy of 4 classes is always 1");
    one(&["metrics.top5=true", "dataset.classes=0"], "top-5 accuracy needs class targets");
    one(
        &["checkpoint.keep_best=1"],
        "`val.loss`, which is never measured: the data set has no validation split",
    );
    one(&["checkpoint.keep_best=1", "dataset.val=10", "train.eval_every=0"], "`train.eval_every = 0`");
    one(&["checkpoint.best=val.r2", "dataset.val=10"], "`val.r2` needs numbers");
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
    one(&["checkpoint.map_location={\"gpu\"=\"cuda:1\"}"], "not a device: `gpu`");
    one(&["checkpoint.map_location={\"cpu\"=\"cuda:x\"}"], "not a device: `cuda:x`");
    one(&["model.pretrained=w.onnx"], "expected a `.safetensors`, `.pt` or `.pth` file");
    one(&["model.pretrained_strict=true"], "no effect without `pretrained`");
    one(&["distributed.sockets=17"], "expected an integer from 1 to 16");
    one(&["distributed.interface=\"eth 0\""], "the name of a network interface");
    one(&["distributed.transport=shm", "distributed.sockets=2"], "counts TCP connections");
    one(&["dataset.samples=0"], "no training samples");
    one(&["name=a b"], "a name consists of letters");
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
fn reports_all_missing_keys_of_an_empty_spec() {
    let d = resolve_for("", &[], WorldRequest::default()).expect_err("empty");
    let found: Vec<&str> = d.problems().iter().map(|p| p.message.as_str()).collect();
    let expected = [
        "missing key `name`",
        "missing key `batch_size`",
        "missing table `[dataset]`",
        "missing table `[model]`",
        "missing table `[optimizer]`",
    ];
    assert_eq!(found, expected);
}
