//! `ddp-run sweep`: its runs are those that `train` would have made, whatever interrupts it.
#![cfg(target_os = "linux")]

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// 8 steps an epoch.
const SPEC: &str = "name = \"swept\"\nseed = 5\nepochs = 4\nbatch_size = 8\n\
    [model]\nname = \"mlp\"\nhidden = [8]\n[dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[metrics]\nlog_every = 1\n[launch]\nnproc_per_node = 1\nthreads = 1\n";

struct Trial {
    folder: tempfile::TempDir,
    spec: PathBuf,
    out: PathBuf,
}

impl Trial {
    fn of(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        Self {
            spec: write_spec(folder.path(), &format!("{SPEC}{more}")),
            out: folder.path().join("sweep"),
            folder,
        }
    }

    fn command(&self, flags: &[&str]) -> Command {
        // Shells start what runs behind them without SIGINT, and nohup without SIGHUP.
        let mut command = program(Path::new("env"));
        command
            .args(["--default-signal=HUP,INT", env!("CARGO_BIN_EXE_ddp-run"), "sweep"])
            .arg(&self.spec)
            .arg("--out")
            .arg(&self.out)
            .args(flags)
            .env(TAG, &self.out);
        command
    }

    #[track_caller]
    fn sweep(&self, flags: &[&str], code: i32) -> Output {
        let output = output_of(&mut self.command(flags));
        assert_eq!(output.status.code(), Some(code), "{}\n{}", stderr(&output), self.logs());
        output
    }

    fn start(&self, flags: &[&str]) -> Child {
        let mut command = self.command(flags);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    }

    /// What the children said, for messages.
    fn logs(&self) -> String {
        let logs = fs::read_dir(self.out.join("logs")).into_iter().flatten().flatten();
        logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default()).collect()
    }

    fn state(&self) -> Value {
        read_json(self.out.join("sweep.json"))
    }

    /// The folder of child number `number`, from 1.
    fn child(&self, number: usize) -> PathBuf {
        let name = self.state()["children"][number - 1]["name"].as_str().expect("a name").to_owned();
        self.out.join(name)
    }

    /// How often child number `number` was started.
    fn starts(&self, number: usize) -> usize {
        let name = self.child(number).file_name().expect("a name").to_string_lossy().into_owned();
        let log = fs::read_to_string(self.out.join("logs").join(format!("{name}.log"))).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("$ ddp-run train ")).count()
    }

    /// The same run, made by `train` alone.
    #[track_caller]
    fn assert_is_the_run_of(&self, number: usize, sets: &[&str]) {
        let out = self.folder.path().join("alone");
        let flags: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        assert_code(&train(&self.spec, &out, &flags), 0);
        let child = self.child(number);
        assert!(bits(&child) == bits(&out), "{} has other bits than the run of {sets:?}", child.display());
        assert_eq!(results(&child), results(&out));
        fs::remove_dir_all(out).expect("it is removed");
    }
}

fn has_step(out: &Path) -> bool {
    !step_events(out).is_empty()
}

#[test]
fn a_grid_is_run_ranked_and_listed() {
    let _alone = alone();
    let trial = Trial::of("[sweep.grid]\noptimizer.lr = [1e-2, 1e-5]\nseed = [1, 2]\n");
    let output = trial.sweep(&["--parallel", "2", "--format", "json"], 0);
    let json = parse_json(output.stdout);
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &json["metric"]), (4, &Value::from("val.loss")));
    let values: Vec<f64> = runs.iter().map(|run| run["value"].as_f64().expect("measured")).collect();
    assert!(values.is_sorted(), "{values:?}");
    assert_eq!(runs[0]["set"]["optimizer.lr"], "0.01");
    trial.assert_is_the_run_of(4, &["optimizer.lr=1e-5", "seed=2"]);
    let page = fs::read_to_string(trial.out.join("sweep.html")).expect("a page");
    assert_eq!(page.matches("class=\"line").count(), 4);
    assert!(page.contains("<span class=\"title\">val.loss by optimizer.lr and seed</span>"), "{page}");
    assert_eq!(page.matches("style=\"--share:").count(), 4, "the cells of the heat map");
    // They are runs as others are.
    let mut list = ddp_run();
    list.args(["runs", "list", "--format", "json"]).arg(trial.folder.path());
    let listed = parse_json(stdout_of(&mut list));
    let states: Vec<&Value> = listed.as_array().expect("a list").iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["done"; 4]);
    // The same command has nothing left to do.
    trial.sweep(&[], 0);
    assert_eq!((1..=4).map(|number| trial.starts(number)).collect::<Vec<_>>(), [1; 4]);
}

#[test]
fn a_killed_sweep_leaves_no_process_and_continues_to_the_same_bits() {
    let _alone = alone();
    let trial = Trial::of("");
    let flags = ["--grid", "seed=1,2,3", "--set", "epochs=300", "--set", "save_every=20"];
    let mut sweep = trial.start(&flags);
    wait_for("the second run", RUN_HUNG, || {
        trial.out.join("sweep.json").is_file() && has_step(&trial.child(2))
    });
    kill(sweep.id(), Signal::KILL);
    assert!(!sweep.wait().expect("it is our child").success());
    wait_for("the end of its runs", HUNG, || processes(&trial.out).is_empty());
    assert_eq!(trial.state()["children"][0]["state"], "done");
    trial.sweep(&flags, 0);
    assert_eq!(trial.starts(1), 1);
    // The third may have been begun when the kill came.
    assert!(trial.starts(2) <= 2 && trial.starts(3) <= 2);
    trial.assert_is_the_run_of(2, &["seed=2", "epochs=300", "save_every=20"]);
}

#[test]
fn a_stopped_sweep_saves_its_runs_and_continues() {
    let _alone = alone();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let trial = Trial::of("");
        let flags = ["--grid", "seed=1,2", "--parallel", "2"];
        let endless = [&flags[..], &["--set", "epochs=1000000000"]].concat();
        let sweep = trial.start(&endless);
        wait_for("both runs", RUN_HUNG, || {
            trial.out.join("sweep.json").is_file() && has_step(&trial.child(1)) && has_step(&trial.child(2))
        });
        kill(sweep.id(), signal);
        let output = finish_within(RUN_HUNG, sweep);
        assert_code(&output, 75);
        assert!(processes(&trial.out).is_empty());
        for number in [1, 2] {
            assert_eq!(trial.state()["children"][number - 1]["state"], "waiting");
            let last = events(&trial.child(number)).pop().expect("events");
            assert_eq!(
                (&last["event"], &last["exit_code"]),
                (&Value::from("end"), &Value::from(75)),
                "{last}"
            );
        }
        // Another length is another sweep.
        let refused = trial.sweep(&flags, 78);
        assert!(stderr(&refused).contains("epochs  1000000000, now 4"), "{}", stderr(&refused));
    }
}

#[test]
fn the_runs_of_successive_halving_go_on_with_the_bits_of_whole_runs() {
    let _alone = alone();
    let trial = Trial::of("[scheduler]\nname = \"cosine\"\n");
    let flags =
        ["--grid", "optimizer.lr=1e-6,1e-2,1e-5,1e-4", "--min-epochs", "1", "--eta", "2", "--parallel", "2"];
    trial.sweep(&flags, 0);
    let state = trial.state();
    let children = state["children"].as_array().expect("children");
    let on = |rung: u64| {
        children
            .iter()
            .filter(|child| child["values"].as_array().map(|v| v.len() as u64) == Some(rung))
            .count()
    };
    assert_eq!((on(1), on(2), on(3)), (2, 1, 1), "{state:#}");
    let epochs =
        |number: usize| events(&trial.child(number)).iter().filter(|e| e["event"] == "epoch").count();
    let mut trained: Vec<usize> = (1..=4).map(epochs).collect();
    trained.sort_unstable();
    assert_eq!(trained, [1, 1, 2, 4]);
    let best = children.iter().position(|child| child["state"] == "done").expect("one is done");
    assert_eq!(trial.starts(best + 1), 3);
    let lr = format!("optimizer.lr={}", children[best]["set"]["optimizer.lr"].as_str().expect("a text"));
    trial.assert_is_the_run_of(best + 1, &[&lr]);
}

/// Whether a table has a validation split is known when it is read.
#[test]
fn runs_that_measure_nothing_are_not_continued_by_number() {
    let _alone = alone();
    let trial = Trial::of("");
    let path = trial.folder.path().join("table.csv");
    let rows: String = (0..40).map(|i| format!("{i},{}\n", 2 * i)).collect();
    fs::write(&path, format!("x,y\n{rows}")).expect("a file");
    let csv = format!("name = \"csv\"\npath = {path:?}\ntarget = \"y\"\nval_split = 0\n");
    let random = "name = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n";
    fs::write(&trial.spec, SPEC.replace(random, &csv)).expect("a file");
    let sweep = |metric, code| {
        let grid = ["--grid", "optimizer.lr=1e-6,1e-2,1e-5", "--min-epochs", "1", "--metric", metric];
        trial.sweep(&grid, code)
    };
    let refused = sweep("val.loss", 78);
    assert!(
        stderr(&refused).contains("the runs can't be ranked: `val.loss` is never measured"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(trial.state()["children"][1]["state"], "waiting", "the first has told that there is nothing");
    fs::remove_dir_all(&trial.out).expect("removed");
    sweep("train.loss", 0);
    assert_eq!(trial.state()["children"][1]["values"].as_array().map(Vec::len), Some(3), "the best goes on");
}

#[test]
fn a_longer_run_continues_a_copy_of_a_shorter_one() {
    let _alone = alone();
    let trial = Trial::of("");
    trial.sweep(&["--grid", "epochs=4,2", "--parallel", "2"], 0);
    let state = trial.state();
    assert_eq!(state["children"][0]["continues"], state["children"][1]["name"]);
    trial.assert_is_the_run_of(1, &["epochs=4"]);
    trial.assert_is_the_run_of(2, &["epochs=2"]);
    // One that was started before and has only logs, or less, is no place for a copy.
    let longer = trial.child(1);
    fs::remove_dir_all(&longer).expect("it is removed");
    fs::create_dir_all(longer.join("logs")).expect("a folder");
    fs::write(longer.join("logs/rank-0.log"), "").expect("a file");
    let text = fs::read_to_string(trial.out.join("sweep.json")).expect("the sweep has a file");
    let waiting = text.replacen("\"state\": \"done\"", "\"state\": \"running\"", 1);
    fs::write(trial.out.join("sweep.json"), waiting).expect("it is written");
    trial.sweep(&["--grid", "epochs=4,2"], 0);
    trial.assert_is_the_run_of(1, &["epochs=4"]);
}

#[test]
fn a_single_run_of_a_spec_with_a_sweep_says_that_it_is_one() {
    let trial = Trial::of("[sweep.grid]\nseed = [1, 2]\n");
    let mut command = ddp_run();
    command.arg("train").arg(&trial.spec).arg("--out").arg(&trial.out).args(["--progress", "plain"]);
    let output = output_of(&mut command);
    assert_code(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("`ddp-run sweep` starts all of them"), "{told}");
    let brief = format!("{told}{}", stdout(&output));
    assert!(brief.contains("adamw") && !brief.contains("sweep.grid"), "{brief}");
}

#[test]
fn a_log_begins_with_a_command_that_a_shell_reads() {
    let _alone = alone();
    let trial = Trial::of("");
    trial.sweep(&["--grid", "model.hidden=[8, 4]", "--set", "epochs=1"], 0);
    assert!(trial.logs().contains(" --set 'model.hidden=[8, 4]' "), "{}", trial.logs());
}

#[test]
fn a_run_that_fails_does_not_end_the_sweep_unless_it_is_asked_to() {
    let _alone = alone();
    let trial = Trial::of("");
    let flags = ["--grid", "optimizer.lr=1e-2,1e300,1e-3"];
    let output = trial.sweep(&flags, 90);
    assert!(stderr(&output).contains("1 of 3 runs failed: 02_"), "{}", stderr(&output));
    let states = |trial: &Trial| {
        let state = trial.state();
        let children = state["children"].as_array().expect("children").iter();
        children.map(|child| child["state"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&trial), ["done", "failed", "done"]);
    assert_eq!(trial.state()["children"][1]["exit_code"], 92);
    assert!(stdout(&output).contains("failed (92)"), "{}", stdout(&output));
    // Only what failed is tried again.
    trial.sweep(&flags, 90);
    assert_eq!((trial.starts(1), trial.starts(2), trial.starts(3)), (1, 2, 1));

    let fast = Trial::of("");
    fast.sweep(&[&flags[..], &["--fail-fast"]].concat(), 90);
    assert_eq!(states(&fast), ["done", "failed", "waiting"]);
}

#[test]
fn a_dry_run_lists_the_runs_and_a_wrong_one_is_refused_before_any_starts() {
    let trial = Trial::of("");
    let listed = trial.sweep(&["--grid", "seed=1,2", "--dry-run"], 0);
    assert!(stdout(&listed).contains("02_seed-2  seed=2\n"), "{}", stdout(&listed));
    let refused = trial.sweep(&["--grid", "model.name=mlp,mpl"], 78);
    assert!(stderr(&refused).contains("did you mean"), "{}", stderr(&refused));
    trial.sweep(&[], 2);
    assert!(!trial.out.exists());
}
