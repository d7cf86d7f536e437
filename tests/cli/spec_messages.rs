//! What users see when a spec is wrong: a table of broken specs, each with a snapshot of its whole message.
//!
//! After a deliberate change: `INSTA_UPDATE=always cargo test --test cli spec_messages`, and read the diff.

use ddp_run::testing::{JobTree, Override, Plan, WorldRequest};
use ddp_run::{Error, ErrorKind, Registry};
use std::path::Path;

/// A good spec, which each case breaks in its own way.
const GOOD: &str = r#"name = "job"
epochs = 2
batch_size = 32

[model]
name = "linear"

[dataset]
name = "random"

[optimizer]
name = "sgd"
lr = 0.1
"#;

/// A good spec with class targets and images.
const IMAGES: &str = r#"name = "images"
batch_size = 32

[model]
name = "resnet18"

[dataset]
name = "cifar10"
val_split = 0.1

[optimizer]
name = "adamw"
"#;

/// `GOOD` with one text replaced by another.
fn with(find: &str, replace: &str) -> String {
    assert!(GOOD.contains(find), "{find}");
    GOOD.replacen(find, replace, 1)
}

/// `GOOD` with more tables.
fn plus(text: &str) -> String {
    format!("{GOOD}\n{text}")
}

fn images(text: &str) -> String {
    format!("{IMAGES}\n{text}")
}

fn message(spec: &str, edits: &[Override]) -> Option<String> {
    let tree = JobTree::parse("job.toml", spec, edits);
    Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2)).err().map(|d| d.to_string())
}

fn files() -> Vec<(&'static str, String)> {
    vec![
        ("empty", String::new()),
        ("unknown_key_at_the_top", with("batch_size", "batchsize")),
        ("unknown_key_in_a_table", with("lr = 0.1", "lr = 0.1\nmomentun = 0.9")),
        ("unknown_key_far_from_all", with("lr = 0.1", "lr = 0.1\nwarp_factor = 9")),
        ("unknown_table", plus("[lunch]\nnproc_per_node = 2")),
        ("unknown_key_in_an_inline_table", with("[model]\nname = \"linear\"", "model = { name = \"linear\", in_feature = 20 }")),
        ("unknown_key_in_a_dotted_key", with("epochs = 2", "epochs = 2\ntrain.clipnorm = 1.0")),
        ("unknown_key_in_a_list_of_tables", plus("[[scheduler]]\nname = \"warmup\"\nsteps = 5\n\n[[scheduler]]\nname = \"cosine\"\netamin = 0.0")),
        ("top_level_key_below_a_table", plus("seed = 3")),
        ("key_of_another_table", plus("[train]\nweight_decay = 0.1")),
        ("duplicate_key", with("epochs = 2", "epochs = 2\nepochs = 3")),
        ("duplicate_table", plus("[model]\nname = \"mlp\"")),
        ("wrong_type_string", with("epochs = 2", "epochs = \"two\"")),
        ("wrong_type_float", with("batch_size = 32", "batch_size = 32.0")),
        ("wrong_type_table", with("[model]\nname = \"linear\"", "[[model]]\nname = \"linear\"")),
        ("wrong_type_in_a_list", with("name = \"sgd\"", "name = \"adam\"\nbetas = [0.9, \"0.999\"]")),
        ("out_of_range", with("epochs = 2", "epochs = 0")),
        ("out_of_range_float", plus("[train]\nclip_norm = -1.0\nlabel_smoothing = 1.0")),
        ("integer_too_large", with("epochs = 2", "epochs = 99999999999999999999")),
        ("unknown_model", with("\"linear\"", "\"linaer\"")),
        ("unknown_dataset", with("\"random\"", "\"randon\"")),
        ("unknown_optimizer", with("\"sgd\"", "\"adamw2\"")),
        ("unknown_choice_without_a_near_one", with("epochs = 2", "epochs = 2\nbackend = \"smoke signals\"")),
        ("missing_keys", with("name = \"sgd\"\n", "").replace("batch_size = 32\n", "")),
        ("missing_tables", "name = \"job\"\nbatch_size = 1\n".to_owned()),
        ("bad_name", with("\"job\"", "\"my job/1\"")),
        ("bad_save_every", with("epochs = 2", "epochs = 2\nsave_every = \"10 parsecs\"")),
        ("bad_device", with("epochs = 2", "epochs = 2\ndevice = \"gpu:0\"")),
        ("bad_timeout", plus("[distributed]\ntimeout = \"soon\"\ninit_timeout = 0")),
        ("unknown_algorithm", plus("[distributed]\nalgorithm = \"halving-dubling\"")),
        ("unknown_transport", plus("[distributed]\ntransport = \"carrier pigeon\"")),
        ("unknown_comm_hook", plus("[distributed]\ncomm_hook = \"powersgd\"")),
        ("bad_bind", plus("[launch]\nbind = \"localhost\"\nnproc_per_node = \"all\"")),
        ("bad_grace", plus("[checkpoint]\non_preempt = \"sav\"\ngrace = \"a while\"\n[launch]\nrequeue = \"yes\"")),
        ("requeue_without_any_save", with("epochs = 2", "epochs = 2\nsave_every = \"never\"") + "[checkpoint]\non_preempt = \"exit\"\n[launch]\nrequeue = true\n"),
        ("groups_with_mistakes", plus("[[optimizer.group]]\nmatch = \"weight\"\n[[optimizer.group]]\nmatch = \"*.**\"\nlr = -1\nmomentun = 0.9\n[[optimizer.group]]\nlr = 1\n[[optimizer.group]]\nmatch = [\"bias\"]\nfrozen = true\nweight_decay = 0.1")),
        ("groups_that_match_nothing", images("[[optimizer.group]]\nmatch = [\"layer4.*\", \"layer5.*\"]\nlr = 1e-4\n[[optimizer.group]]\nmatch = \"layer4.0.*\"\nlr = 1e-5")),
        ("everything_is_frozen", images("[optimizer.group]\nmatch = \"*\"\nfrozen = true")),
        ("bad_map_location", plus("[checkpoint]\nmap_location = { \"cuda:0\" = \"cuda:two\", \"gpu\" = \"cpu\" }")),
        ("nccl_on_the_cpu", with("epochs = 2", "epochs = 2\nbackend = \"nccl\"\ndevice = \"cpu\"")),
        ("no_batch_left", with("batch_size = 32", "batch_size = 4096").replace("\"random\"", "\"random\"\ndrop_last = true")),
        ("more_accumulation_than_batches", plus("[train]\naccumulate = 100")),
        ("label_smoothing_of_numbers", plus("[train]\nlabel_smoothing = 0.1")),
        ("cross_entropy_of_numbers", plus("[train]\nloss = \"cross-entropy\"")),
        ("mse_of_classes", images("[train]\nloss = \"mse\"")),
        ("augmentations_that_do_not_fit", images("").replace("val_split = 0.1", "augment = [\"random-resized-crop\", \"color-jitter\", \"crop\"]\ncrop_scale = [0.5, 0.2]\ncutout = 4")),
        ("keys_of_augmentations_that_are_not_listed", images("").replace("val_split = 0.1", "augment = [\"crop\"]\ncrop_ratio = [1.0, 1.0]\nhue = 0.7\nbrightness = \"much\"")),
        ("mixing_of_numbers", plus("[train]\nmixup = 0.2\ncutmix = 1")),
        ("mixing_by_nothing", images("[train]\nmixup = 0.0")),
        ("best_without_validation", plus("[checkpoint]\nkeep_best = 2")),
        ("best_of_the_wrong_kind", images("[checkpoint]\nbest = \"val.mae\"")),
        ("top5_of_numbers", plus("[metrics]\ntop5 = true")),
        ("pretrained_of_another_kind", images("").replace("\"resnet18\"", "\"resnet18\"\npretrained = \"resnet.onnx\"")),
        ("syntax_errors", "name = job\nepochs 3\nbatch_size = \n= 4\n[model\nname = \"linear\"\n[dataset]\nname = \"random\n".to_owned()),
        ("unclosed_list", with("name = \"sgd\"", "name = \"adam\"\nbetas = [0.9, 0.99")),
        ("wide_characters", with("\"job\"", "\"作業\"  # 名前").replace("lr = 0.1", "note = { \"説明\" = \"学習\", lr = 1 }")),
        ("many_problems_at_once", images("[train]\naccumulate = 0\nloss = \"mse\"\n[metrics]\nlogevery = 1\n").replace("val_split = 0.1", "val_split = 1.5\naugment = [\"flp\"]")),
    ]
}

#[test]
fn broken_specs_say_what_and_where() {
    assert_eq!(message(GOOD, &[]), None);
    assert_eq!(message(IMAGES, &[]), None);
    for (name, spec) in files() {
        let shown = message(&spec, &[]).unwrap_or_else(|| panic!("{name} was accepted:\n{spec}"));
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, shown) });
    }
}

#[test]
fn broken_overrides_say_what_and_where() {
    let set = |text: &str| Override::Set(text.to_owned());
    let unset = |text: &str| Override::Unset(text.to_owned());
    let cases = [
        ("override_wrong_type", vec![set("optimizer.lr=abc")]),
        ("override_unknown_key", vec![set("optimizer.learning_rate=0.1"), set("modle.name=mlp")]),
        ("override_without_a_value", vec![set("epochs"), set("epochs="), set("=3")]),
        ("override_with_an_open_quote", vec![set("name=\"job"), set("dataset.root='data")]),
        ("override_through_a_value", vec![set("epochs.x=1")]),
        ("unset_what_is_not_set", vec![unset("optimizer.lrr"), unset("scheduler")]),
        ("unset_what_is_needed", vec![unset("batch_size"), unset("optimizer")]),
        ("overrides_and_file", vec![set("seed=-1"), set("epoch=3")]),
    ];
    for (name, edits) in cases {
        let spec =
            if name == "overrides_and_file" { with("lr = 0.1", "lr = \"high\"") } else { GOOD.to_owned() };
        let shown = message(&spec, &edits).unwrap_or_else(|| panic!("{name} was accepted"));
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, shown) });
    }
}

/// The message for `job.toml` in a folder of these files, which is shown as DIR.
fn loaded(files: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let resolve = |path: &Path| {
        let tree = JobTree::load(path, &[])?;
        Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2))
    };
    let shown = resolve(&dir.path().join("job.toml")).expect_err("a broken spec").to_string();
    shown.replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn broken_bases_say_what_and_where() {
    let base = GOOD.replace("lr = 0.1", "lr = true");
    let cases = [
        (
            "problems_in_two_files",
            vec![("job.toml", "extends = \"base.toml\"\nepoch = 3\n"), ("base.toml", base.as_str())],
        ),
        (
            "extends_in_a_circle",
            vec![
                ("job.toml", "extends = \"a.toml\"\n"),
                ("a.toml", "seed = 1\nextends = \"b.toml\"\n"),
                ("b.toml", "extends = \"a.toml\"\n"),
            ],
        ),
        ("extends_nothing", vec![("job.toml", "extends = \"gone.toml\"\n")]),
        ("extends_a_list", vec![("job.toml", "extends = [\"a.toml\"]\n")]),
        ("no_such_spec", vec![]),
    ];
    for (name, files) in cases {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, loaded(&files)) });
    }
}

#[test]
fn a_broken_spec_is_exit_code_78_and_main_adds_its_error_prefix() {
    let tree = JobTree::parse("job.toml", &with("epochs", "epoch"), &[]);
    let diagnostics = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(2)).expect_err("broken");
    let rendered = diagnostics.to_string();
    let error = Error::from(diagnostics);
    assert_eq!(error.kind, ErrorKind::Spec);
    // Where the tests run in a terminal, the message has colours.
    assert!(error.message.contains("1 problem in job.toml"), "{}", error.message);
    assert!(rendered.starts_with("error: 1 problem in job.toml\n"), "{rendered}");
}
