//! Jobs with the real binary: what they print, write and exit with.

use crate::common::*;
use rustix::process::Signal;
use std::path::Path;

const SMOKE: &str = "configs/ci/smoke.toml";

#[test]
fn a_job_writes_the_documented_files() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("smoke");
    let output = train(Path::new(SMOKE), &out, &[]);
    assert_code(&output, 0);
    for file in ["job.toml", "run.json", "metrics.jsonl", "report.html", "logs/rank-0.log", "logs/rank-1.log"]
    {
        assert!(out.join(file).is_file(), "{file} is missing");
    }
    assert!(std::fs::read_dir(out.join("tensorboard")).unwrap().count() > 0);
    let events = events(&out);
    let steps: Vec<u64> =
        events.iter().filter(|e| e["event"] == "step").filter_map(|e| e["step"].as_u64()).collect();
    assert!(steps.windows(2).all(|w| w[0] < w[1]), "a step appears twice: {steps:?}");
    assert_eq!(events.last().unwrap()["reason"], "done");
    let log = std::fs::read_to_string(out.join("logs/rank-1.log")).unwrap();
    assert!(log.contains("[GPU: 1 Epoch: 0, Batch size: 8 | Steps 8]"), "{log}");
    // The resolved spec is valid and gives the same plan.
    let check = output_of(ddp_run().arg("check").arg(out.join("job.toml")));
    assert_code(&check, 0);
    // A completed run is not repeated.
    let again = train(Path::new(SMOKE), &out, &[]);
    assert_code(&again, 0);
    assert!(stderr(&again).contains("the run is complete"), "{}", stderr(&again));
    assert_eq!(
        results(&out).len(),
        events.iter().filter(|e| e["event"] == "step" || e["event"] == "epoch").count()
    );
}

/// The standard task by its name is the standard task.
#[test]
fn a_spec_that_names_its_task_trains_to_the_same_bits() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    std::fs::write(&text, "to be or not to be, that is the question. ".repeat(40)).unwrap();
    let language = format!("[dataset]\nname = \"text\"\npath = {text:?}\nblock_size = 16\n");
    let model = "[model]\nname = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 16\n";
    let cases = [
        (
            "classification",
            "[model]\nname = \"linear\"\n",
            "[dataset]\nname = \"shapes\"\ntrain = 64\nval = 16\n",
            "accuracy",
        ),
        (
            "regression",
            "[model]\nname = \"linear\"\n",
            "[dataset]\nname = \"random\"\nsamples = 64\nfeatures = 3\nval_split = 0.2\n",
            "r2",
        ),
        ("language-modelling", model, &language, "perplexity"),
    ];
    for (task, model, dataset, metric) in cases {
        let spec = format!(
            "name = \"x\"\nseed = 1\nepochs = 2\nbatch_size = 8\n{model}{dataset}[optimizer]\nname = \"adamw\"\n\
             [metrics]\nlog_every = 1\n[launch]\nnproc_per_node = 2\n"
        );
        let run = |name: &str, text: &str| {
            let out = dir.path().join(format!("{task}-{name}"));
            let output = train(&write_spec(dir.path(), text), &out, &[]);
            assert_code(&output, 0);
            out
        };
        let without = run("without", &spec);
        let named = run("named", &format!("{spec}[task]\nname = \"{task}\"\n"));
        assert!(results(&without).iter().any(|event| event["val"][metric].is_number()), "{task}");
        assert_eq!(results(&named), results(&without), "{task}");
        assert!(bits(&named) == bits(&without), "{task}: the weights differ");
        // The same run: its spec may leave out the name, or name it.
        let again = train(&write_spec(dir.path(), &spec), &named, &[]);
        assert_code(&again, 0);
        assert!(stderr(&again).contains("the run is complete"), "{}", stderr(&again));
        let other = if task == "regression" { "classification" } else { "regression" };
        let wrong = write_spec(dir.path(), &format!("{spec}[task]\nname = \"{other}\"\n"));
        let output = train(&wrong, &dir.path().join("wrong"), &[]);
        assert_code(&output, 78);
        let fits = format!("`name = \"{task}\"` fits");
        assert!(stderr(&output).contains(&fits), "{}", stderr(&output));
    }
}

#[test]
fn a_run_begins_with_a_short_plan_and_ends_with_a_summary_whose_command_works() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a run");
    let mut command = ddp_run();
    command.args(["train", SMOKE, "--progress", "plain", "--set", "model.hidden=[6]", "--out"]).arg(&out);
    let output = output_of(command.env(TAG, &out));
    assert_code(&output, 0);
    let said = stderr(&output);
    let (plan, rest) = said.split_once("\n\n").unwrap_or_else(|| panic!("no plan in front:\n{said}"));
    assert!(plan.lines().count() <= 15 && plan.contains("model.hidden = [6]"), "{said}");
    assert!(rest.contains("\nepoch 1/") && !rest.contains("epoch 0"), "{said}");
    let (_, summary) =
        rest.split_once("\ndone: ").unwrap_or_else(|| panic!("no summary at the end:\n{said}"));
    assert!(summary.contains("  best ") && summary.contains("report.html"), "{said}");
    // What was set is recorded, and marked in the report.
    let run = read_json(out.join("run.json"));
    assert_eq!((&run["set"]["model.hidden"], &run["set"]["train.accumulate"]), (&"--set".into(), &().into()));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<mark class=\"override\">hidden = ["), "{run}");
    let next = summary.lines().find_map(|line| line.strip_prefix("  next    ddp-run ")).expect("a command");
    let script = format!("exec \"$0\" {next}");
    let mut shell = program(Path::new("sh"));
    assert_code(&output_of(shell.args(["-c", &script, env!("CARGO_BIN_EXE_ddp-run")])), 0);
    // Not where progress is not asked for.
    let quiet = train(Path::new(SMOKE), &dir.path().join("quiet"), &[]);
    assert!(!stderr(&quiet).contains("done: "), "{}", stderr(&quiet));
}

#[test]
fn equal_runs_give_equal_bits_at_every_world_size() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for world in ["1", "2", "3"] {
        let runs: Vec<_> = ["a", "b"]
            .iter()
            .map(|name| {
                let out = dir.path().join(format!("{name}{world}"));
                assert_code(
                    &train(Path::new("configs/ci/images.toml"), &out, &["--nproc-per-node", world]),
                    0,
                );
                let model = std::fs::read(newest_checkpoint(&out).join("model.safetensors")).unwrap();
                (model, results(&out))
            })
            .collect();
        assert!(runs[0] == runs[1], "world {world}");
        for epoch in runs[0].1.iter().filter(|e| e["event"] == "epoch") {
            assert_eq!(epoch["val"]["n"], 32, "every validation sample counts once at world {world}");
        }
    }
}

#[test]
fn saves_rank_0s_batch_norm_statistics_in_a_pytorch_state_dict() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("bn");
    assert_code(&train(Path::new("configs/ci/bn.toml"), &out, &[]), 0);
    let file = ddp_run::testing::read_weights(&newest_checkpoint(&out).join("model.safetensors")).unwrap();
    assert_eq!(file.len(), 122, "torchvision's ResNet-18 has 122 entries");
    assert_eq!(file.get("layer2.0.downsample.1.num_batches_tracked").unwrap().shape, Vec::<usize>::new());
    assert_eq!(file.get("layer4.1.bn2.running_var").unwrap().shape, vec![512]);
    assert_eq!(file.get("conv1.weight").unwrap().shape, vec![64, 1, 3, 3]);
}

#[test]
fn a_killed_worker_ends_the_run_and_is_reported() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let flags = ["--set", "epochs=100000", "--set", "save_every=\"never\""];
    let run = start(Path::new(SMOKE), &out, &flags);
    let training = || !step_events(&out).is_empty();
    wait_for("the first step", HUNG, training);
    let workers = children(run.id());
    assert_eq!(workers.len(), 2);
    let rank_1 = workers.iter().copied().find(|pid| is_rank(&out, *pid, 1)).unwrap_or(workers[1]);
    kill(rank_1, Signal::KILL);
    let output = finish(run);
    assert_code(&output, 90);
    let told = stderr(&output);
    assert!(told.contains("rank 1") && told.contains("SIGKILL"), "{told}");
    assert!(workers.iter().all(|pid| !alive(*pid)));
}

/// Workers are started in the order of their ranks, so the second child is rank 1 unless process ids wrapped around.
fn is_rank(_: &Path, pid: u32, rank: usize) -> bool {
    let parent = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ppid = parent.lines().find_map(|l| l.strip_prefix("PPid:")).and_then(|p| p.trim().parse().ok());
    ppid.is_some_and(|ppid: u32| children(ppid).get(rank) == Some(&pid))
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_before_any_rank_starts() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let logs = dir.path().join("logs");
    std::fs::create_dir_all(logs.join("ci-smoke/rank-1.log")).expect("a folder in its place");
    let flags = ["--nproc-per-node", "2", "--log-dir", logs.to_str().expect("UTF-8")];
    let output = train(Path::new("configs/ci/smoke.toml"), &dir.path().join("out"), &flags);
    assert_code(&output, 74);
    let told = stderr(&output);
    assert!(told.contains("cannot open the log ") && told.contains("`--log-dir DIR`"), "{told}");
    assert!(!told.contains("rank 0"), "{told}");
}

#[test]
fn invalid_specs_and_missing_files_have_their_exit_codes() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let bad = write_spec(dir.path(), "name = \"x\"\nbatchsize = 3\n");
    assert_code(&output_of(ddp_run().arg("check").arg(&bad)), 78);
    assert_code(&train(&bad, &out, &[]), 78);
    assert_code(&train(Path::new(SMOKE), &out, &["--device", "cuda"]), 69);
    // With the feature, the error is the missing mpirun.
    let mpi = if cfg!(feature = "mpi") { 2 } else { 69 };
    assert_code(&train(Path::new(SMOKE), &out, &["--set", "backend=mpi"]), mpi);
    assert_code(&output_of(ddp_run().arg("trian")), 2);
    assert_code(&output_of(ddp_run().args(["inspect", "/nonexistent"])), 74);
    assert!(!out.exists(), "nothing is left behind by a job that could not start");
    let cache = format!("dataset.cache={:?}", dir.path().join("cache").display().to_string());
    let missing = ["--set", "dataset.root=/nonexistent", "--set", &cache];
    let output = train(Path::new("configs/cifar.toml"), &out, &missing);
    assert_code(&output, 78);
    assert!(stderr(&output).contains("/nonexistent"), "{}", stderr(&output));
}

/// No machine has terabytes for it, and nothing of it is allocated.
#[test]
fn a_model_larger_than_the_memory_is_a_warning_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("missing.csv");
    let text = format!(
        "name = \"x\"\nbatch_size = 2\ndevice = \"cpu\"\n[model]\nname = \"mlp\"\nin_features = 2\nnum_classes = 2\n\
         hidden = [1048576, 1048576]\n[dataset]\nname = \"csv\"\npath = {rows:?}\ntarget = \"y\"\ntask = \"classification\"\n\
         [optimizer]\nname = \"adamw\"\n[launch]\nnproc_per_node = 2\n"
    );
    let spec = write_spec(dir.path(), &text);
    let needs = "`model`: needs at least 44.0 TiB of memory for weights, gradients, the state of `adamw` and the copy that a save writes on 2 \
                 ranks; ";
    let checked = output_of(ddp_run().arg("check").arg(&spec));
    assert_code(&checked, 0);
    assert!(stderr(&checked).contains(needs), "{}", stderr(&checked));
    let trained = train(&spec, &dir.path().join("run"), &[]);
    assert_code(&trained, 78);
    assert!(stderr(&trained).starts_with(&format!("warning: {needs}")), "{}", stderr(&trained));
    // What is missing is the same for a plan that opens the data.
    let planned = output_of(ddp_run().args(["plan", "--data"]).arg(&spec));
    assert_code(&planned, 78);
    let error = |output| stderr(output).split_once("error: ").map(|(_, error)| error.to_owned());
    assert_eq!(error(&planned), error(&trained));
}

/// For builds in which `auto` is the CPU.
#[test]
#[cfg_attr(feature = "cuda", ignore = "`auto` may be a GPU")]
fn rejects_unsupported_devices_before_changing_the_run_folder() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    assert_code(&train(Path::new(SMOKE), &out, &[]), 0);
    let before = events(&out);
    let refused = |flags: &[&str], words: &str| {
        let anew = ["--resume", "never"];
        let output = train(Path::new(SMOKE), &out, &[&anew, flags].concat());
        assert_code(&output, 69);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(events(&out), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the earlier run was moved");
    };
    for precision in ["tf32", "bf16", "f16"] {
        let set = format!("precision={precision}");
        refused(&["--set", &set], &format!("device `cpu` does not support {precision}"));
    }
    refused(
        &["--nproc-per-node", "gpu"],
        "`gpu` starts one process per device, but this machine has no device",
    );
}

/// RANK and WORLD_SIZE in the environment start a worker, as under torchrun.
#[test]
fn runs_under_a_launcher_that_sets_rank_and_world_size() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let meet = format!("file://{}/meet", dir.path().display());
    let (own, under) = (dir.path().join("own"), dir.path().join("under"));
    assert_code(&train(Path::new(SMOKE), &own, &[]), 0);
    let ranks: Vec<_> = ["0", "1"]
        .iter()
        .map(|rank| {
            let mut command = ddp_run();
            command.args(["train", SMOKE, "--progress", "none", "--out"]).arg(&under);
            command.env("RANK", rank).env("LOCAL_RANK", rank).env("WORLD_SIZE", "2");
            command.env("LOCAL_WORLD_SIZE", "2").args(["--rdzv-endpoint", &meet]);
            command.env("DDP_RUN_SECRET", "a secret of these two processes");
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for rank in ranks {
        assert_code(&finish_within(RUN_HUNG, rank), 0);
    }
    assert_eq!(results(&under), results(&own));
}

#[test]
fn eval_export_and_inspect_read_what_train_wrote() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    assert_code(&train(Path::new(SMOKE), &out, &["--set", "ema.decay=0.9"]), 0);
    let last = results(&out).into_iter().rfind(|e| e["event"] == "epoch").unwrap();
    // The averaged weights unless those of the last step are asked for.
    let gap = |flags: &[&str]| {
        let mut eval = ddp_run();
        eval.args(["eval", SMOKE, "--json", "--checkpoint"]).arg(&out).args(flags);
        let metrics = parse_json(stdout_of(&mut eval));
        (metrics["loss"].as_f64().unwrap() - last["val"]["loss"].as_f64().unwrap()).abs()
    };
    let (averaged, own) = (gap(&[]), gap(&["--no-ema"]));
    assert!(averaged < 1e-6 && own > 1e-6, "{averaged} {own}, against {last}");
    // The same for people, from the run's folder alone.
    let table = |flags: &[&str]| stdout_of(ddp_run().arg("eval").arg(&out).args(flags));
    let newest = table(&[]);
    assert!(newest.starts_with(&format!("{} (step ", newest_checkpoint(&out).display())), "{newest}");
    assert!(newest.contains(" samples of `val`\n  loss  ") && newest.contains("\n  mae   "), "{newest}");
    assert_eq!(newest, table(&["--checkpoint", "last"]));
    let best = table(&["--checkpoint", "best"]);
    assert!(best.contains("/checkpoints/step-"), "{best}");
    let none = output_of(ddp_run().args(["eval", SMOKE, "--checkpoint", "best", "--set", "name=never-run"]));
    assert_code(&none, 74);
    assert!(stderr(&none).contains("there is no run in runs/never-run"), "{}", stderr(&none));
    // A checkpoint of the run by its name alone, and a folder that has none: never another run's.
    let name = newest_checkpoint(&out).file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(newest, table(&["--checkpoint", &name]));
    let bare = dir.path().join("bare");
    std::fs::create_dir(&bare).unwrap();
    for file in ["job.toml", "run.json"] {
        std::fs::copy(out.join(file), bare.join(file)).unwrap();
    }
    let empty = output_of(ddp_run().arg("eval").arg(&bare));
    assert_code(&empty, 74);
    assert!(stderr(&empty).contains(&format!("no checkpoint in {}", bare.display())), "{}", stderr(&empty));
    // Other data are told.
    let other = output_of(ddp_run().arg("eval").arg(&out).args(["--set", "dataset.samples=200"]));
    assert_code(&other, 0);
    let said = stderr(&other);
    assert!(
        said.contains(
            "the data set has changed since this checkpoint was made: 128 training samples, now 160"
        ),
        "{said}"
    );
    assert!(said.contains("dataset.samples = 160, now 200"), "{said}");
    let file = dir.path().join("model.safetensors");
    for (flags, name) in [(&["--no-ema"][..], "model"), (&[], "ema")] {
        assert_code(&output_of(ddp_run().arg("export").arg(&out).arg(&file).args(flags)), 0);
        let saved = newest_checkpoint(&out).join(format!("{name}.safetensors"));
        assert!(std::fs::read(&file).unwrap() == std::fs::read(saved).unwrap(), "{name}");
    }
    assert_code(&output_of(ddp_run().arg("inspect").arg(&file)), 0);
    // Another run starts from exactly the exported weights.
    let next = dir.path().join("next");
    let pretrained = format!("model.pretrained={:?}", file.display().to_string());
    assert_code(
        &train(
            Path::new(SMOKE),
            &next,
            &["--set", &pretrained, "--set", "optimizer.lr=0.0", "--unset", "scheduler"],
        ),
        0,
    );
    let start = results(&next).into_iter().rfind(|e| e["event"] == "epoch").unwrap();
    assert_eq!(start["val"]["loss"], last["val"]["loss"]);
}

#[test]
fn an_assertion_is_checked_at_the_end_and_its_metric_before_the_start() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let told = |metric: &str| {
        let output = train(Path::new(SMOKE), &out, &["--assert", &format!("{metric} > 0")]);
        assert_code(&output, 2);
        stderr(&output)
    };
    assert!(
        told("val.los").contains("--assert: `val.los` is not a metric of this job; did you mean `val.loss`?")
    );
    let unknown = told("val.zzzzzzzzzz");
    assert!(!out.exists(), "a wrong name ends it before it starts");
    let held = train(Path::new(SMOKE), &out, &["--assert", "val.loss > 0", "--assert", "train.mae>=0"]);
    assert_code(&held, 0);
    assert!(stderr(&held).starts_with("val.loss > 0 holds: "), "{}", stderr(&held));
    // What may be asserted is what the run measures.
    let last = results(&out).into_iter().rfind(|e| e["event"] == "epoch").unwrap();
    let measured = |split: &str| {
        let names = last[split].as_object().unwrap().keys().filter(|name| *name != "n");
        names.map(|name| format!("`{split}.{name}`")).collect::<Vec<_>>()
    };
    let all = [measured("val"), measured("train")].concat().join(", ");
    assert!(unknown.contains(&format!("; known here: {all}\n")), "{unknown}\n{all}");
    // The run is complete, and is checked again.
    let both = ["--assert", "val.loss > 0", "--assert", "val.loss < 0", "--assert", "train.loss < 0"];
    let unmet = train(Path::new(SMOKE), &out, &both);
    assert_code(&unmet, 1);
    let said = stderr(&unmet);
    assert!(said.lines().any(|line| line.starts_with("val.loss > 0 holds: ")), "{said}");
    assert!(said.contains("\nerror: val.loss < 0 does not hold: "), "{said}");
    assert!(said.contains(" after 2 epochs\ntrain.loss < 0 does not hold: "), "{said}");
    assert_eq!(events(&out).last().unwrap()["reason"], "done");
    let eval = |condition: &str| output_of(ddp_run().arg("eval").arg(&out).args(["--assert", condition]));
    assert_code(&eval("val.loss > 0"), 0);
    assert_code(&eval("loss > 0"), 0);
    assert_code(&eval("loss < 0"), 1);
    let other = eval("train.loss > 0");
    assert_code(&other, 1);
    assert!(stderr(&other).contains("`train.loss` is not measured on `val`"), "{}", stderr(&other));
}

/// As with `| head`.
#[test]
fn commands_ignore_that_standard_output_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new.toml").display().to_string();
    for arguments in [
        &["--help"][..],
        &["env"],
        &["init", &new],
        &["plan", SMOKE],
        &["check", SMOKE],
        &["submit", "slurm", SMOKE],
        &["completions", "bash"],
    ] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let output = ddp_run().args(arguments).stdout(closed).output().unwrap();
        assert_code(&output, 0);
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

/// Mean semantics: two micro-batches of 8 are one batch of 16 (no dropout, no batch norm).
#[test]
fn accumulated_gradients_equal_those_of_the_larger_batch() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let losses = |name: &str, flags: &[&str]| -> Vec<f64> {
        let out = dir.path().join(name);
        assert_code(&train(Path::new(SMOKE), &out, flags), 0);
        let steps = results(&out).into_iter().filter(|e| e["event"] == "step");
        steps.filter_map(|e| e["loss"].as_f64()).collect()
    };
    let whole = losses("whole", &["--set", "batch_size=16"]);
    let halves = losses("halves", &["--set", "train.accumulate=2"]);
    assert_eq!(whole.len(), halves.len());
    assert!(!whole.is_empty());
    for (a, b) in whole.iter().zip(&halves) {
        assert!((a - b).abs() < 1e-6, "{whole:?}\n{halves:?}");
    }
}

#[test]
fn rejects_a_map_location_that_this_machine_lacks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    assert_code(&train(Path::new(SMOKE), &out, &["--set", "epochs=1"]), 0);
    let elsewhere = "checkpoint.map_location={ cpu = \"cuda:2\" }";
    let output = train(Path::new(SMOKE), &out, &["--set", elsewhere]);
    assert_code(&output, 69);
    assert!(stderr(&output).contains("cuda:2"), "{}", stderr(&output));
    // A checkpoint of another device is loaded to this one by default.
    let other = "checkpoint.map_location={ \"cuda:0\" = \"cuda:2\" }";
    assert_code(&train(Path::new(SMOKE), &out, &["--set", other]), 0);
}

/// A panic of the model's constructor is reported as an error in the spec.
#[test]
fn a_model_that_does_not_fit_the_data_is_an_error_without_panic() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.csv");
    std::fs::write(&rows, "a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n").unwrap();
    let spec = write_spec(
        dir.path(),
        &format!(
            "name = \"x\"\nbatch_size = 2\n[model]\nname = \"gpt\"\npreset = \"nano\"\nblock_size = 2\nvocab_size = 9\n\
             [dataset]\nname = \"csv\"\npath = {rows:?}\ntarget = \"y\"\ntask = \"classification\"\n\
             [optimizer]\nname = \"sgd\"\nlr = 0.1\n"
        ),
    );
    let output = train(&spec, &dir.path().join("run"), &["--nproc-per-node", "2"]);
    assert_code(&output, 78);
    let told = stderr(&output);
    assert!(told.contains("model `gpt` does not accept 2 samples of shape [2] (floats)"), "{told}");
    assert!(!told.contains("panicked") && !told.contains("bug"), "{told}");
}
