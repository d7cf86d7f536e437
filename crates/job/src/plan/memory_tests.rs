use super::*;
use crate::plan::WorldRequest;
use crate::registry::Registry;
use spec::{JobTree, Override};

const GIB: u64 = 1 << 30;

fn machine(bytes: u64) -> Option<UsableMemory> {
    Some(UsableMemory { bytes, limited: false })
}

fn resolved(spec: &str, sets: &[&str], request: WorldRequest) -> Plan {
    let sets: Vec<Override> = sets.iter().map(|set| Override::Set((*set).to_owned())).collect();
    let tree = JobTree::parse("job.toml", spec, &sets);
    Plan::resolve(&tree, &Registry::standard(), request).unwrap()
}

/// 20 inputs and one output: 21 parameters.
const LINEAR: &str = "name = 'a'\nbatch_size = 8\nepochs = 2\nmodel.name = 'linear'\ndataset.name = 'random'\ndevice = 'cpu'\n\
                      [optimizer]\nname = 'adamw'\n[launch]\nnproc_per_node = 2\n";

/// About 4 * 2^30 parameters, which are never allocated here.
const LARGE: [&str; 3] = ["model.name='mlp'", "model.hidden=[65536, 65536]", "save_every='never'"];

fn needs(sets: &[&str]) -> MemoryNeeds {
    resolved(LINEAR, sets, WorldRequest::default()).memory().unwrap()
}

#[test]
fn counts_what_a_rank_holds_at_the_same_time() {
    // Weights, gradients and two moments; 20 inputs, a target and an output of 8 samples.
    let (weights, batch) = (21 * 4, 8 * 22 * 4);
    let all = needs(&[]);
    assert_eq!(
        all,
        MemoryNeeds { rank_bytes: 4 * weights + batch, batch_bytes: batch, copy_bytes: 3 * weights }
    );
    assert_eq!(needs(&["optimizer.name='sgd'"]).rank_bytes, 2 * weights + batch);
    assert_eq!(needs(&["ema.decay=0.9"]).rank_bytes, 5 * weights + batch);
    assert_eq!(needs(&["save_every='never'"]).copy_bytes, 0);
    let frozen = needs(&["optimizer.group=[{match='weight', frozen=true}]"]);
    assert_eq!(frozen.rank_bytes, weights + 3 * 4 + batch);
    // A run of one step has no gradients while it has outputs; a rank has at most its share of an epoch as a micro-batch.
    assert_eq!(needs(&["train.max_steps=1"]).batch_bytes, 0);
    assert_eq!(needs(&["batch_size=65536", "dataset.samples=100"]).batch_bytes, 50 * 22 * 4);
}

#[test]
fn there_is_an_output_for_each_class() {
    let spec = LINEAR.replace("'random'", "'shapes'");
    let plan = resolved(&spec, &[], WorldRequest::default());
    let pixels = values(plan.dataset.facts.input.as_ref().unwrap());
    assert_eq!(plan.memory().unwrap().batch_bytes, 8 * (4 * pixels + 8 + 4 * 8));
}

#[test]
fn layers_keep_their_inputs_until_the_backward_pass() {
    let kept = |sets: &[&str]| {
        let shapes = LINEAR.replace("'random'", "'shapes'");
        let batch =
            |sets: &[&str]| resolved(&shapes, sets, WorldRequest::default()).memory().unwrap().batch_bytes;
        // A linear model keeps nothing besides.
        (batch(sets) - batch(&[])) / 8 / 4
    };
    assert_eq!(kept(&["model.name='mlp'", "model.hidden=[3, 5]"]), 8);
    assert_eq!(kept(&["model.name='cnn'"]), 32 * 144 + 64 * 36 + 128);
    let frozen = "optimizer.group=[{match='features.0.*', frozen=true}]";
    assert_eq!(kept(&["model.name='cnn'", frozen]), 0);
    let vit = ["model.name='vit'", "model.preset='cifar'", "model.num_layers=2"];
    assert_eq!(kept(&vit), 2 * (8 * 192 + 2 * 768) * (6 * 6 + 1));
}

#[test]
fn warns_of_a_machine_with_less_than_is_certainly_needed() {
    let warning = |sets: &[&str], request: WorldRequest| {
        resolved(LINEAR, &[&LARGE, sets].concat(), request).memory_warning()
    };
    let on = |memory| WorldRequest { memory, ..WorldRequest::default() };
    let needed = 2 * needs(&LARGE).rank_bytes;
    assert_eq!(needed, 2 * (4 * 4 * (21 * 65_536 + 65_537 * 65_536 + 65_537) + 8 * (22 + 2 * 65_536) * 4));
    assert_eq!(warning(&[], on(machine(needed))), None, "it may fit");
    let text = warning(&[], on(machine(24 * GIB))).unwrap();
    assert_eq!(
        text,
        "needs at least 128.1 GiB of memory for weights, gradients, the state of `adamw` and a micro-batch on 2 ranks; \
         this machine has 24.0 GiB"
    );
    let limited = Some(UsableMemory { bytes: GIB, limited: true });
    let text = warning(&["optimizer.name='sgd'"], on(limited)).unwrap();
    assert!(text.contains("weights, gradients and a micro-batch on"), "{text}");
    assert!(text.ends_with("; the limit of this process's control group is 1.0 GiB"), "{text}");
    let text = warning(&["save_every=1", "ema.decay=0.9"], on(machine(GIB))).unwrap();
    assert!(
        text.contains("`adamw`, their average, a micro-batch and the copy that a save writes on"),
        "{text}"
    );
    assert_eq!(warning(&[], on(None)), None, "unknown");
    // Parameters are in the memory of devices, which is not known.
    for device in ["device='cuda'", "device='wgpu'"] {
        assert_eq!(warning(&[device], on(machine(GIB))), None, "{device}");
    }
}

#[test]
fn counts_the_ranks_that_are_certainly_on_this_machine() {
    let ranks = |sets: &[&str], request: WorldRequest| resolved(LINEAR, sets, request).machine.ranks;
    assert_eq!(ranks(&[], WorldRequest::default()), 2);
    assert_eq!(ranks(&["launch.nnodes=3"], WorldRequest::default()), 2);
    // `plan --world 1024` does not say where they are.
    assert_eq!(ranks(&[], WorldRequest::new(1024)), 1);
    assert_eq!(ranks(&[], WorldRequest { local: Some(4), ..WorldRequest::new(1024) }), 4);
    let here = |sets: &[&str], request| {
        let plan = resolved(LINEAR, sets, request);
        (plan.memory_here(), plan.memory().unwrap())
    };
    let (bytes, needs) = here(&[], WorldRequest::default());
    assert_eq!(bytes, 2 * needs.rank_bytes + needs.copy_bytes);
    // Rank 0 may be on another one.
    let (bytes, needs) = here(&["launch.nnodes=3"], WorldRequest::default());
    assert_eq!(bytes, 2 * needs.rank_bytes);
}

#[test]
fn sizes_at_the_end_of_their_ranges_do_not_overflow() {
    let gpt = "model.name='gpt' dataset.name='tinyshakespeare' model.vocab_size=16777216 model.block_size=16777216 model.n_layer=512 \
               model.n_embd=65536 model.n_head=512";
    let cnn = "model.name='cnn' dataset.name='shapes' model.channels=[8192,8192] model.hidden=1048576 batch_size=1073741824";
    for (sets, unit) in [(gpt, " PiB"), (cnn, " TiB")] {
        let request = WorldRequest { memory: machine(GIB), ..WorldRequest::default() };
        let plan = resolved(LINEAR, &sets.split_whitespace().collect::<Vec<_>>(), request);
        let text = plan.memory_warning().unwrap();
        assert!(text.starts_with("needs at least ") && text.contains(unit), "{text}");
        assert!(plan.text().contains("\n  memory           at least "), "{}", plan.text());
    }
}

#[test]
fn sizes_that_no_number_holds_are_the_largest_one() {
    use train::models::{Role, TensorFacts};
    let plan = resolved(LINEAR, &["ema.decay=0.9"], WorldRequest::default());
    let tensor = TensorFacts {
        name: "weight".to_owned(),
        shape: vec![usize::MAX, 3],
        role: Role::Parameter,
        aliases: Vec::new(),
    };
    let (facts, batching) = (plan.dataset.facts.clone(), plan.batching(2));
    let plan = plan.with_data(facts, &[tensor.clone(), tensor], &batching);
    assert_eq!(plan.memory().unwrap().rank_bytes, u64::MAX);
    assert!(plan.json()["sizes"]["checkpoint_bytes"] == u64::MAX && plan.text().contains("16384.0 PiB"));
}
