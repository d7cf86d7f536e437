//! Every spec in `configs/` is good, for any number of processes, and so is what it resolves to.

use crate::common::configs;
use ddp_run::Registry;
use ddp_run::testing::{JobTree, Plan, WorldRequest};

#[test]
fn every_config_resolves_and_its_resolution_resolves_to_itself() {
    let registry = Registry::standard();
    assert!(configs().len() >= 8);
    for path in configs() {
        let tree = JobTree::load(&path, &[]).unwrap_or_else(|d| panic!("{d}"));
        for world in [1, 2, 3] {
            let plan =
                Plan::resolve(&tree, &registry, WorldRequest::new(world)).unwrap_or_else(|d| panic!("{d}"));
            assert_eq!(plan.world.world_size, world);
            let text = plan.to_toml();
            let again = Plan::resolve(
                &JobTree::parse("resolved.toml", &text, &[]),
                &registry,
                WorldRequest::new(world),
            )
            .unwrap_or_else(|d| panic!("{}: {d}\n{text}", path.display()));
            assert_eq!(again.hash, plan.hash, "{}", path.display());
            assert_eq!(again.to_toml(), text, "{}", path.display());
        }
    }
}

#[test]
fn the_names_of_the_configs_are_all_different() {
    let registry = Registry::standard();
    let names: Vec<String> = configs()
        .iter()
        .map(|path| JobTree::load(path, &[]).and_then(|t| Plan::resolve(&t, &registry, WorldRequest::new(2))))
        .map(|plan| plan.unwrap_or_else(|d| panic!("{d}")).name)
        .collect();
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "runs would share a folder: {names:?}");
}

/// Hashes of the first versions: checkpoints carry them, and a run that continues reports another one.
const HASHES: [(&str, &str); 15] = [
    ("cifar-93.toml", "04781dd46dbec83f449bf1e1a082013c1a44603075a15140acc55029fc138b7d"),
    ("cifar.toml", "56d34e35b21d3111ac4a1ad19d993c98fd81d62c676bd4cac770efb46ee44846"),
    ("gpt.toml", "23e66ba48209dc1843fd338bea6b0460c1eec539c40f691588febcc3a0aab365"),
    ("housing.toml", "15413d3699020accfb236b1aa6e4d7aac1b8459823d4f28cdff99b2e6a673490"),
    ("mlp.toml", "594cbdd86aa9e54e9c0b9a3baa3bccd5ebc619fea15b7313c23d6f1c16b545b9"),
    ("mnist.toml", "136c5885890e527f70ba85800b9c18ab71f0be40612f8cbd7363fc550bb5fab9"),
    ("quickstart.toml", "576e3ae97a7ac72e923e07854583421bf3cfafe71f04e128939a57b00c4ab669"),
    ("smollm2.toml", "1ef1f8101fb1775d85013679ba230dc6fce8d1489851111c31b1cc46ca14f9b1"),
    ("toy.toml", "a87516c19facd246f82752785bc1c2a523cb86b4ff23236711df81e69e8b383c"),
    ("vit.toml", "769953adfa8b42d2466548fc521fa167f7b8b8e2ea6ce78d89beafbdbfcad6d4"),
    ("bn.toml", "851696cc02eeb1d9bbc7a482c42411bb9018c4fbb720574b49eb3d51ab8b0977"),
    ("images.toml", "e0513aa9c7b835e58106242a9e21e01207b184cddbf874ae09066a572a921d7b"),
    ("quality.toml", "d60f008503bbcfa0ce860046efc640a99ba13fa51c1715864829f33a1830db7d"),
    ("resume.toml", "97ef86d52c03033aba37845a54d9cb5cca86b4963983c9451225494b90116891"),
    ("smoke.toml", "1c480860066efbd18fc95901b755060fda63b7684425fe2e3d9c312791de69ac"),
];

/// Every key of the tables that all jobs have, none at its default.
const EVERY_KEY: &str = r#"
name = "all"
seed = 7
epochs = 3
batch_size = 8
save_every = "10 min"
backend = "gloo"
device = "cpu"
precision = "f32"

[model]
name = "resnet18"

[dataset]
name = "cifar10"
root = "elsewhere"
val_split = 0.1
shuffle = false
drop_last = true
workers = 4
prefetch = 8

[train]
loss = "cross-entropy"
label_smoothing = 0
accumulate = 2
clip_norm = 1
max_steps = 50
eval_every = 0
buffers = "mean"
on_resize = "keep-local-batch"

[optimizer]
name = "adamw"
lr = 1
betas = [0, 0.5]

[checkpoint]
keep_last = 0
best = "train.loss"
keep_best = 2
map_location = { "cuda:0" = "cpu" }
async = false
on_preempt = "exit"
grace = 1.5

[metrics]
log_every = 5
top5 = false

[launch]
nproc_per_node = 2
nnodes = "1:2"
rdzv_endpoint = "tcp://node0:29400"
max_restarts = 3
rejoin_timeout = "2 min"
requeue = true
threads = 2
bind = "0.0.0.0"
share_devices = true

[distributed]
timeout = "30 s"
init_timeout = 5
transport = "tcp"
algorithm = "ring"
interface = "lo"
sockets = 2
comm_hook = "bf16"
bucket_cap_mb = 4
first_bucket_mb = 0.5
"#;

#[test]
fn hashes_are_those_of_earlier_versions() {
    let registry = Registry::standard();
    let hash = |tree: JobTree| {
        Plan::resolve(&tree, &registry, WorldRequest::new(2)).unwrap_or_else(|d| panic!("{d}")).hash
    };
    for path in configs() {
        let name = path.file_name().expect("a file").to_string_lossy();
        let known = HASHES.iter().find(|(known, _)| *known == name);
        let (_, known) = known.unwrap_or_else(|| panic!("{name}: its hash is to be listed here"));
        assert_eq!(hash(JobTree::load(&path, &[]).expect("readable")), *known, "{name}");
    }
    let every_key = JobTree::parse("all.toml", EVERY_KEY, &[]);
    assert_eq!(hash(every_key), "0cc5ab1f3f6e8dad6d84679e2f87ea9276d6a054b21e5f6f37496243b78dcb98");
}
