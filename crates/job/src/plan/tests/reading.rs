//! `Plan::resolve` of valid specs.

use super::{JOB, refused, resolve, resolve_for};
use crate::plan::{Plan, WorldRequest};
use base::testing::HANG;
use burn::tensor::Tensor;
use checkpoint::{Every, OnPreempt};
use collectives::gloo::{AlgorithmChoice, Transport};
use ddp::device::DeviceSpec;
use launch::Nproc;
use record::Top5;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::time::Duration;
use train::optim::{Optimizer, OptimizerConfig};

#[test]
fn reads_values_with_their_own_syntax() {
    let plan = resolve(&[
        "save_every=10 min",
        "device=cuda:1",
        "distributed.timeout=90",
        "distributed.init_timeout=2 min",
        "launch.nproc_per_node=cpu",
        "launch.requeue=true",
        "checkpoint.on_preempt=exit",
        "checkpoint.grace=90 s",
        "launch.bind=\"::1\"",
        "metrics.top5=false",
        "checkpoint.map_location={\"cuda:0\"=\"cuda:2\"}",
    ]);
    assert_eq!(plan.save_every, Every::Time(Duration::from_secs(600)));
    assert_eq!(plan.device, DeviceSpec::Cuda(Some(1)));
    assert_eq!(*plan.distributed.timeout, Duration::from_secs(90));
    assert_eq!(*plan.distributed.init_timeout, Duration::from_secs(120));
    assert_eq!(plan.launch.nproc_per_node, Nproc::Cpu);
    assert!(plan.slurm.requeue);
    assert_eq!(plan.checkpoint.on_preempt, OnPreempt::Exit);
    assert_eq!(*plan.checkpoint.grace, Duration::from_secs(90));
    assert!(plan.nodes.bind.is_ipv6());
    assert_eq!(plan.metrics.top5, Top5(Some(false)));
    assert_eq!(plan.checkpoint.map_location.unwrap()["cuda:0"], "cuda:2");
}

/// Their format follows from the content, and a run's folder may have any name.
#[test]
fn pretrained_weights_may_have_any_name_but_those_of_other_programs() {
    for path in ["w.ckpt", "model.pth.tar", "pytorch_model.bin", "runs/lr-0.1", "runs/toy"] {
        let plan = resolve(&[&format!("model.pretrained={path:?}")]);
        assert_eq!(plan.model.pretrained, Some(path.into()));
    }
}

#[test]
fn passes_distributed_keys_to_the_engine() {
    for transport in Transport::ALL {
        let set = format!("distributed.transport={transport}");
        assert_eq!(resolve(&[&set]).gloo.transport, transport);
    }
    for algorithm in AlgorithmChoice::ALL {
        let set = format!("distributed.algorithm={algorithm}");
        assert_eq!(resolve(&[&set]).gloo.algorithm, algorithm);
    }
    let plan = resolve(&["distributed.interface=eth0", "distributed.sockets=16"]);
    let options = &plan.gloo;
    assert_eq!((options.interface.as_deref(), options.sockets), (Some("eth0"), Some(16)));
    assert!(plan.text().contains("sockets"));
}

#[test]
fn resolves_communication_hooks_by_name() {
    assert!(resolve(&[]).comm_hook.is_none());
    assert!(resolve(&["distributed.comm_hook=none"]).comm_hook.is_none());
    let plan = resolve_for(JOB, &["distributed.comm_hook=mine"], WorldRequest::new(2)).unwrap();
    assert_eq!(plan.comm_hook.as_ref().unwrap().name(), "mine");
    assert!(plan.text().contains("in 1 bucket, before the hook `mine`"));
    assert_eq!(refused(&["distributed.comm_hook=mine2"]), ["unknown value; did you mean \"mine\"?"]);
    assert_eq!(
        refused(&["distributed.comm_hook=powersgd"]),
        ["expected \"none\", \"bf16\", \"f16\", \"keyed\" or \"mine\", found the string \"powersgd\""]
    );
    for name in ["bf16", "f16"] {
        let plan = resolve(&[&format!("distributed.comm_hook={name}")]);
        assert_eq!(plan.comm_hook.unwrap().name(), name);
    }
}

#[test]
fn reads_the_keys_of_a_communication_hook() {
    let plan = resolve(&["distributed={comm_hook=\"keyed\",hook={bits=3}}"]);
    assert_eq!(plan.comm_hook.as_ref().unwrap().name(), "keyed");
    let hook = |plan: &Plan| {
        let keys = plan.table("distributed.hook");
        keys.into_iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>()
    };
    assert_eq!(hook(&plan), ["bits = 3", "share = 0.5"]);
    // The keys belong to the results, also one at its default, and workers get them all.
    let other = resolve(&["distributed={comm_hook=\"keyed\",hook={bits=4}}"]);
    let share = resolve(&["distributed={comm_hook=\"keyed\",hook={bits=3,share=0.5}}"]);
    assert!(plan.hash != other.hash && plan.hash == share.hash);
    let again = resolve_for(&plan.to_toml(), &[], WorldRequest::default()).unwrap();
    assert_eq!((again.hash == plan.hash, hook(&again)), (true, hook(&plan)));
    assert!(plan.to_toml().contains("[distributed.hook]\nbits = 3\nshare = 0.5\n"), "{}", plan.to_toml());

    for (table, problem) in [
        ("comm_hook=\"keyed\",hook={bits=0}", "expected an integer from 1 to 8, found 0"),
        ("comm_hook=\"keyed\",hook={bits=1,shar=0}", "unknown key; did you mean `share`?"),
        ("comm_hook=\"keyed\"", "missing key `distributed.hook.bits`"),
        ("comm_hook=\"keyed\",hook={}", "missing key `bits`"),
        ("comm_hook=\"keyed\",hook=3", "expected a table, `[distributed.hook]`, found 3"),
        ("comm_hook=\"keyd\",hook={bits=0,x=1}", "unknown value; did you mean \"keyed\"?"),
        ("comm_hook=\"mine\",hook={bits=1}", "unknown key; none is expected here"),
        ("comm_hook=\"bf16\",hook={bits=1}", "unknown key; none is expected here"),
        ("comm_hook=\"none\",hook={bits=1}", "has no effect without a hook in `comm_hook`"),
        ("hook={}", "has no effect without a hook in `comm_hook`"),
    ] {
        assert_eq!(refused(&[&format!("distributed={{{table}}}")]), [problem], "{table}");
    }
}

/// The keys of a hook.
#[derive(Deserialize, JsonSchema)]
pub(super) struct KeyedHook {
    #[schemars(range(min = 1, max = 8))]
    #[allow(dead_code, reason = "nothing is averaged")]
    bits: usize,
    #[serde(default = "half")]
    #[allow(dead_code, reason = "nothing is averaged")]
    share: f64,
}

fn half() -> f64 {
    0.5
}

/// A custom optimizer that changes nothing.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Still {
    #[default = 0.5]
    lr: f64,
    #[default = 2]
    #[schemars(range(min = 1))]
    often: usize,
}

impl OptimizerConfig for Still {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        match self.often > 100 && self.lr > 1.0 {
            true => Err(("often", format!("{} is too often for such a rate", self.often))),
            false => Ok(()),
        }
    }
}

impl Optimizer for Still {
    fn slots(&self) -> &'static [&'static str] {
        &[]
    }
    fn update(&self, _: u64, _: f64, _: f32, _: &[usize], _: &mut [f32], _: &[f32], _: &mut [&mut [f32]]) {}
    fn update_on_device(
        &self,
        _: u64,
        _: f64,
        _: Tensor<1>,
        _: &[usize],
        param: Tensor<1>,
        _: Tensor<1>,
        _: &mut [Tensor<1>],
    ) -> Tensor<1> {
        param
    }
}

#[test]
fn accepts_a_registered_optimizer() {
    let plan = resolve(&["optimizer={name=\"still\",often=3}"]);
    assert_eq!((plan.optimizer.name.as_str(), plan.optimizer.lr), ("still", 0.5));
    assert_eq!(plan.json()["optimizer"], serde_json::json!({ "name": "still", "lr": 0.5, "often": 3 }));
    assert_eq!(
        refused(&["optimizer={name=\"still\",often=0,ofen=1}"]),
        ["expected an integer of at least 1, found 0", "unknown key; did you mean `often`?"]
    );
    assert_eq!(refused(&["optimizer.name=stil"]), ["unknown value; did you mean \"still\"?"]);
    // A group has its keys, and the table's values.
    let plan = resolve(&["optimizer={name=\"still\",often=3,group=[{match=\"b\",lr=2}]}"]);
    let rules = plan.optimizer.rules();
    assert_eq!([rules[0].lr, rules[1].lr], [0.5, 2.0]);
    assert_eq!(format!("{:?}", rules[1].optimizer), "Still { lr: 2.0, often: 3 }");
    assert_eq!(
        refused(&["optimizer={name=\"still\",group=[{match=\"b\",often=0}, {match=\"c\",lr=1}]}"]),
        ["expected an integer of at least 1, found 0"]
    );
    assert_eq!(
        refused(&["optimizer={name=\"still\",group=[{match=\"c\",lr=1}]}"]),
        ["`c` matches no parameter of the model; it has `w`, `b`"]
    );
}

#[test]
fn a_registered_optimizer_refuses_keys_that_exclude_each_other() {
    let too_often = ["200 is too often for such a rate"];
    assert_eq!(refused(&["optimizer={name=\"still\",often=200}"]), [] as [&str; 0]);
    let text = format!("{}often = 200\nlr = 2\n", JOB.replace("adamw", "still"));
    let problems = resolve_for(&text, &[], WorldRequest::default()).unwrap_err();
    assert_eq!(problems.problems()[0].message, too_often[0]);
    assert!(problems.to_string().contains("line 10, column 9"), "{problems}");
    // With the keys of a group, too.
    let group = "optimizer={name=\"still\",often=200,group=[{match=\"b\",lr=2}, {match=\"w\",lr=0.5}]}";
    assert_eq!(refused(&[group]), too_often);
}

#[test]
fn computes_steps_and_sizes_from_the_world_size() {
    let plan = resolve_for(JOB, &["epochs=3"], WorldRequest::new(4)).unwrap();
    assert_eq!(
        (plan.batch.steps_per_epoch, plan.batch.global_batch, plan.total_steps()),
        (Some(32), 32, Some(96))
    );
    let sizes = plan.sizes.unwrap();
    assert_eq!((sizes.parameters, sizes.buffers, sizes.buckets), (50, 3, 1));
    assert_eq!((sizes.gradient_bytes, sizes.optimizer_bytes), (200, 400));
    assert_eq!(sizes.all_reduce_bytes_per_step, 300, "a ring of 4 sends 2 x 3/4 of the gradients");
    assert_eq!(sizes.checkpoint_bytes, 53 * 4 + 400);
    assert_eq!(resolve(&["train.max_steps=5"]).total_steps(), Some(5));
    assert_eq!(resolve(&["dataset.known=false"]).total_steps(), None);
}

/// 125 steps per epoch.
#[test]
fn epochs_follow_from_max_steps_where_only_that_is_given() {
    let of = |sets: &[&str]| {
        let plan = resolve(sets);
        (plan.epochs, plan.total_epochs(), plan.total_steps())
    };
    assert_eq!(of(&[]), (Some(1), Some(1), Some(125)));
    assert_eq!(of(&["train.max_steps=300"]), (None, Some(3), Some(300)));
    assert_eq!(of(&["train.max_steps=300", "epochs=2"]), (Some(2), Some(2), Some(250)));
    assert_eq!(of(&["train.max_steps=300", "epochs=9"]), (Some(9), Some(9), Some(300)));
    assert_eq!(of(&["train.max_steps=300", "dataset.known=false"]), (None, None, Some(300)));
    let text = resolve(&["train.max_steps=300"]).text();
    assert!(text.contains("  epochs            3, by `train.max_steps`\n"), "{text}");
    // The number of processes is no part of what a run is.
    let two = resolve_for(JOB, &["train.max_steps=300"], WorldRequest::new(2)).unwrap();
    assert_eq!((two.total_epochs(), two.hash), (Some(5), resolve(&["train.max_steps=300"]).hash));
}

/// Anything done or stored per process would take forever or exhaust memory.
#[test]
fn resolves_a_huge_world_without_work_per_process() {
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let samples = format!("dataset.samples={}", 1u64 << 60);
        let plan = resolve_for(JOB, &[&samples], WorldRequest::new(1 << 40));
        done.send(plan.map(|plan| (plan.world.world_size, plan.text())).map_err(|e| e.to_string()))
    });
    let (world_size, text) = end.recv_timeout(HANG).expect("it ends").expect("a plan");
    assert_eq!(world_size, 1 << 40);
    assert!(text.contains("1,099,511,627,776"), "{text}");
}

/// What the card of an export knows of a model is what is recorded.
#[test]
fn the_sizes_of_a_preset_are_recorded() {
    let spec = "name = 'x'\nbatch_size = 1\n[model]\nname = 'llama'\npreset = 'smollm2-135m'\n\
                [dataset]\nname = 'text'\npath = 'a.txt'\nblock_size = 8\n[optimizer]\nname = 'sgd'\n";
    let plan = resolve_for(spec, &[], WorldRequest::default()).unwrap_or_else(|d| panic!("{d}"));
    for (key, expected) in [("vocab_size", "49152"), ("max_position_embeddings", "8192"), ("head_dim", "64")]
    {
        let found = plan.values.iter().find(|value| value.key == format!("model.{key}"));
        assert_eq!(found.map(|found| found.value.to_string()).as_deref(), Some(expected), "{key}");
    }
}

/// A folder of Hugging Face gives the sizes; both places of a contradiction are named.
#[test]
fn a_folder_of_hugging_face_has_the_sizes_of_a_llama() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let config = r#"{"model_type": "qwen2", "vocab_size": 90, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": true}"#;
    let spec = format!(
        "name = 'x'\nbatch_size = 1\n[model]\nname = 'llama'\npretrained = {:?}\n\
         [dataset]\nname = 'text'\npath = 'a.txt'\nblock_size = 8\n[optimizer]\nname = 'sgd'\n",
        folder.path()
    );
    let plan = |sets: &[&str]| resolve_for(&spec, sets, WorldRequest::default());
    std::fs::write(&path, config).unwrap();
    let value = |plan: &Plan, key: &str| {
        let found = plan.values.iter().find(|value| value.key == format!("model.{key}"));
        found.map(|found| (found.value.to_string(), found.origin.to_string()))
    };
    let base = format!("base {}", path.display());
    let whole = plan(&[]).unwrap_or_else(|d| panic!("{d}"));
    for (key, expected) in [("hidden_size", "24"), ("head_dim", "6"), ("model_type", "\"qwen2\"")] {
        assert_eq!(value(&whole, key), Some((expected.to_owned(), base.clone())), "{key}");
    }
    let refused = |sets: &[&str]| match plan(sets) {
        Ok(_) => panic!("{sets:?} is accepted"),
        Err(d) => d.problems().iter().map(|p| p.message.clone()).collect::<Vec<_>>(),
    };
    plan(&["model.hidden_size=24"]).unwrap_or_else(|d| panic!("{d}"));
    let expected = format!("contradicts `hidden_size = 24` in {}", path.display());
    assert_eq!(refused(&["model.hidden_size=32"]), [expected]);
    let expected = format!("contradicts the sizes in {}", path.display());
    assert_eq!(refused(&["model.preset=smollm2-135m"]), [expected]);
    let expected = format!("contradicts {}, which has none", path.display());
    assert_eq!(refused(&["model.sliding_window=4"]), [expected]);
    // Numbers are recorded as they will be read from the run's spec.
    std::fs::write(&path, config.replace("true", "true, \"rms_norm_eps\": 1, \"rope_theta\": 10000"))
        .unwrap();
    let whole = plan(&[]).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(value(&whole, "rms_norm_eps").unwrap().0, "1.0");
    assert!(value(&whole, "rope_parameters").unwrap().0.contains("10000.0"));
    // Values that can't be are named with their file, as are those that don't fit each other.
    for (old, new, expected) in [
        (
            "\"hidden_size\": 24",
            "\"hidden_size\": 24.5",
            "`hidden_size` in {}: expected an integer from 1 to 65536, found 24.5",
        ),
        (
            "_heads\": 2",
            "_heads\": 3",
            "`num_key_value_heads` in {}: must divide num_attention_heads = 4, found 3",
        ),
    ] {
        std::fs::write(&path, config.replace(old, new)).unwrap();
        assert_eq!(refused(&[]), [expected.replace("{}", &path.display().to_string())]);
    }
    std::fs::write(&path, b"{\"name\": \"\xe9\"}").unwrap();
    assert!(refused(&[])[0].starts_with(&path.display().to_string()));
    std::fs::write(&path, config.replace("qwen2", "mamba")).unwrap();
    let expected = "expected `model_type` llama, mistral, qwen2 or qwen3, found \"mamba\"";
    assert_eq!(refused(&[]), [format!("{}: {expected}", path.display())]);
}
