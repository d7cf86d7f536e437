use super::*;
use base::error::ErrorKind;

const SPEC: &str = "name = \"run\"\nepochs = 9\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n[optimizer]\nname = \"sgd\"\n\
    [launch]\nnproc_per_node = 1\n";

fn prepared(more: &str, flags: &Flags) -> Result<Prepared> {
    prepared_from(&format!("{SPEC}{more}"), flags)
}

fn prepared_from(text: &str, flags: &Flags) -> Result<Prepared> {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("job.toml");
    std::fs::write(&spec, text).unwrap();
    prepare(&spec, &[], flags, None, &Registry::standard())
}

fn grid(values: &[&str]) -> Flags {
    Flags { grid: values.iter().map(|text| (*text).to_owned()).collect(), ..Flags::default() }
}

fn refused(more: &str, flags: &Flags) -> (ErrorKind, String) {
    let error = prepared(more, flags).err().expect("it is refused");
    (error.kind, error.to_string())
}

#[test]
fn children_are_complete_runs_whose_spec_needs_no_value_that_the_sweep_gives() {
    // `lr` has no default, and is only in the grid.
    let sweep = prepared("", &grid(&["optimizer.lr=0.1,0.2"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sweep.folder, Path::new("runs/run-sweep"));
    let names: Vec<&str> = sweep.children.iter().map(|child| child.plan.name.as_str()).collect();
    assert_eq!(names, ["run.01_lr-0.1", "run.02_lr-0.2"]);
    assert_ne!(sweep.children[0].plan.hash, sweep.children[1].plan.hash);
    let arguments = sweep.arguments(1, 0).join(" ");
    assert!(
        arguments
            .starts_with("train runs/run-sweep/spec.toml --set optimizer.lr=0.2 --set name=run.02_lr-0.2"),
        "{arguments}"
    );
    assert!(
        arguments.contains("--out runs/run-sweep/02_lr-0.2 ") && arguments.contains("--nproc-per-node 1"),
        "{arguments}"
    );
    assert!(!arguments.contains("stop_after"), "{arguments}");
    assert!(sweep.listing().contains("02_lr-0.2  optimizer.lr=0.2\n"), "{}", sweep.listing());
}

#[test]
fn flags_win_over_the_table_of_the_spec() {
    let table = "[sweep]\nmetric = \"train.loss\"\n[sweep.grid]\nseed = [1, 2]\noptimizer.lr = [0.1]\n";
    let sweep = prepared(table, &grid(&["seed=3,4,5"])).unwrap_or_else(|e| panic!("{e}"));
    let sets: Vec<&str> = sweep.children.iter().map(|child| child.point[0].1.as_str()).collect();
    assert_eq!(sets, ["3", "4", "5"]);
    assert!(
        !sweep.spec_toml.contains("sweep") && sweep.spec_toml.contains("best = \"train.loss\""),
        "{}",
        sweep.spec_toml
    );
    assert_eq!(sweep.file().metric, "train.loss");
    assert!(!sweep.file().prefers_larger);
}

/// A key is in the grid or drawn, as the command line says.
#[test]
fn a_flag_moves_a_key_between_grid_and_samples() {
    let flags = |grid: &[&str], sample: &[&str], random| {
        let [grid, sample] = [grid, sample].map(|all| all.iter().map(|text| (*text).to_owned()).collect());
        Flags { grid, sample, random, ..Flags::default() }
    };
    let keys = |table: &str, flags: Flags| {
        let sweep = prepared(table, &flags).unwrap_or_else(|e| panic!("{e}"));
        let keys: Vec<String> = sweep.children[0].point.iter().map(|(key, _)| key.clone()).collect();
        (sweep.children.len(), keys.join(" "))
    };
    let drawn = "optimizer.lr=uniform(0.1, 0.9)";
    let grid = "[sweep.grid]\nseed = [1, 2]\noptimizer.lr = [0.1, 0.2, 0.3]\n";
    let (runs, varied) = keys(grid, flags(&[], &[drawn], Some(3)));
    assert_eq!((runs, varied.contains("seed") && varied.contains("optimizer.lr")), (6, true), "{varied}");
    // It was the only key of the grid.
    let alone = "[sweep.grid]\noptimizer.lr = [0.1, 0.2]\n";
    assert_eq!(keys(alone, flags(&[], &[drawn], Some(3))), (3, "optimizer.lr".to_owned()));
    let sample = "[sweep]\nrandom = 2\n[sweep.sample]\noptimizer.lr = \"uniform(0.1, 0.9)\"\n";
    assert_eq!(keys(sample, flags(&["optimizer.lr=0.1,0.2"], &[], None)), (2, "optimizer.lr".to_owned()));
}

#[test]
fn a_child_that_is_no_run_is_refused_before_any_starts() {
    let (code, message) = refused("", &grid(&["optimizer.lr=0.1", "model.name=linear,lineer"]));
    assert_eq!(code, ErrorKind::Spec);
    assert!(message.contains("--set model.name=lineer"), "{message}");
    let flags = Flags { metric: Some("val.acuracy".to_owned()), ..grid(&["optimizer.lr=0.1"]) };
    assert!(refused("", &flags).1.contains("--metric val.acuracy"));
    assert_eq!(refused("", &grid(&["optimizer.lr"])).0, ErrorKind::Usage);
    assert_eq!(refused("", &grid(&["optimizer.lr=0.1,,"])).0, ErrorKind::Usage);
    assert_eq!(refused("[sweep]\npralel = 2\n", &grid(&["optimizer.lr=0.1"])).0, ErrorKind::Spec);
}

#[test]
fn rungs_end_at_epochs_with_any_schedule_and_at_steps_only_with_one_that_is_free_of_the_length() {
    let values = ["optimizer.lr=0.1,0.2,0.3"];
    let by_epochs = Flags { min_epochs: Some(1), ..grid(&values) };
    let cosine = "[scheduler]\nname = \"cosine\"\n";
    for schedule in ["", cosine] {
        let sweep = prepared(schedule, &by_epochs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            (sweep.rules.rungs, sweep.lengths.join(" ").as_str()),
            (3, "train.stop_after=1 train.stop_after=3")
        );
        assert!(sweep.arguments(0, 1).contains(&"train.stop_after=3".to_owned()));
        assert!(
            sweep.arguments(0, 2).iter().all(|it| !it.contains("stop_after")),
            "the last rung is the whole run"
        );
        assert_eq!(sweep.behind(), [None; 3]);
    }
    let by_steps = Flags { min_steps: Some(20), ..grid(&values) };
    // 64 samples are 8 steps an epoch.
    assert_eq!(
        prepared("", &by_steps).unwrap_or_else(|e| panic!("{e}")).lengths,
        ["train.max_steps=20", "train.max_steps=60"]
    );
    let (code, message) = refused(cosine, &by_steps);
    assert!(code == ErrorKind::Spec && message.contains("`cosine` depends on the length"), "{message}");
    let (code, message) = refused("", &Flags { min_epochs: Some(9), ..grid(&values) });
    assert!(
        code == ErrorKind::Spec && message.contains("begins with 9 epochs, and the longest run has 9"),
        "{message}"
    );
    let (_, message) = refused("", &Flags { min_steps: Some(72), ..grid(&values) });
    assert!(message.contains("begins with 72 optimizer steps, and the longest run has 72"), "{message}");
    let rare = refused("[train]\neval_every = 2\n", &by_epochs).1;
    assert!(rare.contains("nothing is measured"), "{rare}");
}

#[test]
fn longer_runs_continue_shorter_ones_without_rungs() {
    let sweep = prepared("", &grid(&["optimizer.lr=0.1", "epochs=9,3"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sweep.behind(), [Some(1), None]);
    assert!(sweep.listing().contains("(continues 02_"), "{}", sweep.listing());
}

#[test]
fn a_key_has_one_name_and_one_flag() {
    let sweep =
        prepared("", &grid(&["\"optimizer\" . lr=0.1", "\"seed\"=1,2"])).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = sweep.children.iter().map(|child| child.name.as_str()).collect();
    assert_eq!(names, ["01_lr-0.1_seed-1", "02_lr-0.1_seed-2"]);
    let (code, message) = refused("", &grid(&["optimizer.lr=0.1", "\"name\"=a,b"]));
    assert!(code == ErrorKind::Usage && message.contains("can't vary `name`"), "{message}");
    let (code, message) = refused("", &grid(&["optimizer.lr=0.1", "optimizer.lr=0.2"]));
    assert!(code == ErrorKind::Usage && message.contains("`optimizer.lr` is given twice"), "{message}");
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let eta = Flags { eta: Some(2), ..grid(&["optimizer.lr=0.1,0.2"]) };
    let (code, message) = refused("", &eta);
    assert!(code == ErrorKind::Usage && message.contains("--min-epochs"), "{message}");
    let unmeasured = Flags { min_epochs: Some(1), ..grid(&["optimizer.lr=0.1,0.2", "dataset.val_split=0"]) };
    let (code, message) = refused("", &unmeasured);
    assert!(code == ErrorKind::Spec && message.contains("`val.loss` is never measured"), "{message}");
    assert!(
        prepared("", &Flags { min_epochs: None, ..unmeasured }).is_ok(),
        "the runs are of use without a rank"
    );
    let two = grid(&["optimizer.lr=0.1", "checkpoint={best=\"val.mae\"},{best=\"val.r2\"}"]);
    let (code, message) = refused("", &two);
    assert!(code == ErrorKind::Usage && message.contains("ranked by one metric"), "{message}");
}

/// The loss with smoothed labels is larger, whatever the model has learnt.
#[test]
fn runs_that_do_not_compare_are_named() {
    let classes = SPEC.replace(
        "\"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2",
        "\"shapes\"\ntrain = 64\nval = 16\nsize = 16",
    );
    let prepared_from = |flags: &Flags| prepared_from(&classes, flags).unwrap_or_else(|e| panic!("{e}"));
    let warnings = prepared_from(&grid(&["train.label_smoothing=0,0.1"])).warnings();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.starts_with("the runs are ranked by `val.loss`, and losses of different loss functions do not compare: `train.label_smoothing` is"),
        "{warning}"
    );
    let by = Flags { metric: Some("val.accuracy".to_owned()), ..grid(&["train.label_smoothing=0,0.1"]) };
    assert_eq!(prepared_from(&by).warnings(), [""; 0]);
    assert_eq!(prepared("", &grid(&["optimizer.lr=0.1,0.2"])).unwrap().warnings(), [""; 0]);
}

#[test]
fn an_error_names_the_run_that_it_is_about() {
    let message = refused("", &grid(&["optimizer.lr=0.1", "model.name=linear,lineer"])).1;
    assert!(
        message.contains("run 02_lr-0.1_name-lineer of the sweep, with optimizer.lr=0.1 model.name=lineer"),
        "{message}"
    );
}

#[test]
fn more_at_a_time_than_there_are_runs_are_as_many_as_there_are() {
    let flags = Flags { parallel: Some(4096), ..grid(&["optimizer.lr=0.1"]) };
    let sweep = prepared("", &flags).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((sweep.rules.parallel, sweep.children[0].share.threads), (1, usable_cores()));
}
