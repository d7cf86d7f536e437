//! Sinks: what they write is what happened, and no sink, whatever it does, changes a run.

use crate::common::server::{Answer, Request, Server};
use crate::common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two epochs of 8 steps on two ranks.
const SPEC: &str = "name = \"sinks\"\nseed = 3\nepochs = 2\nbatch_size = 8\n\
    [model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 160\nfeatures = 4\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 0.05\n\
    [launch]\nnproc_per_node = 2\nthreads = 1\n";
const METRICS: &str = "[metrics]\nlog_every = 2\n";

/// Trains with these sinks.
fn train_with(sinks: &str, out: &Path, flags: &[&str]) -> Output {
    let spec = write_spec(out.parent().expect("a folder"), &format!("{SPEC}{sinks}"));
    output_of(&mut without_proxies(train_command(&spec, out, flags)))
}

fn without_proxies(mut command: Command) -> Command {
    for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    for variable in ["URI", "TOKEN", "USERNAME", "PASSWORD"] {
        command.env_remove(format!("MLFLOW_TRACKING_{variable}"));
    }
    command.env_remove("MLFLOW_EXPERIMENT_NAME");
    command
}

/// What an MLflow server answers.
fn tracking_server() -> Server {
    let json = |value: Value| Answer::Json(200, value.to_string());
    Server::start(move |request: &Request, _| {
        let path = request.path.strip_prefix("/api/2.0/mlflow/").expect("a path of the API");
        match path.split('?').next() {
            Some("experiments/get-by-name") => json(json!({ "experiment": { "experiment_id": "1" } })),
            Some("runs/create") => json(json!({ "run": { "info": { "run_id": "r" } } })),
            Some("runs/get") => json(json!({ "run": { "info": {}, "data": {} } })),
            _ => json(json!({})),
        }
    })
}

fn bodies(server: &Server, path: &str) -> Vec<Value> {
    let requests = server.requests().into_iter().filter(|request| request.path.ends_with(path));
    requests.map(|request| serde_json::from_slice(&request.body).expect("JSON")).collect()
}

fn mlflow(server: &Server) -> String {
    format!("[[observer]]\nname = \"mlflow\"\nuri = \"{}\"\n", server.url("").trim_end_matches('/'))
}

fn exec(script: &str, argument: &Path) -> String {
    format!("[[observer]]\nname = \"exec\"\ncommand = ['sh', '-c', '{script}', 'sh', {argument:?}]\n")
}

/// The rows of a table, without its columns of times.
fn rows(out: &Path, name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(out.join("metrics").join(name)).expect("the table");
    let mut rows = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let columns = rows.next().expect("a header");
    let timing =
        ["time", "seconds", "samples_per_s", "tokens_per_s", "flops_per_s", "mfu", "data_wait", "overlap"];
    let kept: Vec<usize> = (0..columns.len()).filter(|i| !timing.contains(&columns[*i].as_str())).collect();
    rows.map(|row| kept.iter().map(|i| row[*i].clone()).collect()).collect()
}

/// A server of a machine that is busy may not answer in time, and is asked again.
#[track_caller]
fn assert_no_warning(output: &Output) {
    let said = stderr(output);
    let warns = |line: &str| line.starts_with("warning: observer") && !line.contains("it is tried again");
    assert!(!said.lines().any(warns), "{said}");
}

#[test]
fn every_sink_gets_the_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (plain, out, server) = (dir.path().join("plain"), dir.path().join("run"), tracking_server());
    assert_code(&train_with(METRICS, &plain, &[]), 0);
    let got = dir.path().join("got");
    let sinks = format!("{METRICS}sinks = [\"csv\", \"prometheus\", \"mlflow\"]\n{}", mlflow(&server));
    let output = train_with(&(sinks + &exec("cat > $1", &got)), &out, &["--set", "dataset.prefetch=3"]);
    assert_code(&output, 0);
    assert_no_warning(&output);
    assert!(bits(&out) == bits(&plain), "sinks changed the result");
    let lines: Vec<Value> = fs::read_to_string(&got).unwrap().lines().map(parse_json).collect();
    assert_eq!((&lines[0]["event"], &lines[0]["spec"]["optimizer.lr"]), (&json!("start"), &json!(0.05)));
    assert_eq!((&lines[0]["run"]["world"], &lines[0]["set"]), (&json!(2), &json!(["dataset.prefetch=3"])));
    assert_eq!(lines[1..], events(&out));
    assert_eq!((rows(&out, "steps.csv").len(), rows(&out, "epochs.csv").len()), (8, 2));
    let page = fs::read_to_string(out.join("metrics/ddp_run.prom")).unwrap();
    for line in ["up{run=\"sinks\"} 0", "step_total{run=\"sinks\"} 16", "exit_code{run=\"sinks\"} 0"] {
        assert!(page.contains(&format!("\nddp_run_{line}\n")), "{page}");
    }
    // Named in both forms, it is there once.
    assert_eq!(bodies(&server, "runs/create").len(), 1);
    let metrics = bodies(&server, "runs/log-batch");
    let metrics = metrics.iter().flat_map(|body| body["metrics"].as_array().unwrap());
    let losses: Vec<&Value> = metrics.filter(|m| m["key"] == "step/loss").map(|m| &m["value"]).collect();
    let expected: Vec<Value> = step_events(&out).iter().map(|e| e["loss"].clone()).collect();
    assert!(losses.into_iter().eq(&expected));
    assert_eq!(bodies(&server, "runs/update").pop().unwrap()["status"], "FINISHED");
}

#[test]
fn a_resumed_run_continues_its_sinks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (whole, out, server) = (dir.path().join("whole"), dir.path().join("run"), tracking_server());
    let sinks = format!("{METRICS}sinks = [\"csv\"]\n{}", mlflow(&server));
    assert_code(&train_with(&sinks, &whole, &[]), 0);
    // In the middle of an epoch, whose row is then another one.
    assert_code(&train_with(&sinks, &out, &["--set", "train.max_steps=11"]), 0);
    let before = rows(&out, "steps.csv").len();
    assert_code(&train_with(&sinks, &out, &[]), 0);
    assert!(before < 8, "{before}");
    for table in ["steps.csv", "epochs.csv"] {
        assert_eq!(rows(&out, table), rows(&whole, table), "{table}");
    }
    let runs = bodies(&server, "runs/create");
    assert_eq!(runs.len(), 2, "one each: {runs:?}");
    // A run from the beginning has files of its own.
    assert_code(&train_with(&sinks, &out, &["--resume", "never"]), 0);
    assert_eq!(bodies(&server, "runs/create").len(), 3);
    assert_eq!(rows(&out, "steps.csv"), rows(&dir.path().join("run.1"), "steps.csv"));
}

#[test]
fn sinks_that_fail_or_stall_do_not_change_the_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (plain, out) = (dir.path().join("plain"), dir.path().join("run"));
    assert_code(&train_with(METRICS, &plain, &[]), 0);
    let silent = Server::script(vec![Answer::Silent]);
    let refusing = Server::script(vec![Answer::Status(404)]);
    let sinks = [
        METRICS.to_owned(),
        mlflow(&silent),
        mlflow(&refusing),
        exec("sleep 1000", dir.path()),
        exec("exit 1", dir.path()),
        "[[observer]]\nname = \"exec\"\ncommand = [\"no-such-program\"]\n".to_owned(),
        "[[observer]]\nname = \"csv\"\nfolder = \"/dev/null/x\"\n".to_owned(),
        "[[observer]]\nname = \"prometheus\"\npath = \"/dev/null/x.prom\"\n".to_owned(),
    ];
    let output = train_with(&sinks.concat(), &out, &[]);
    assert_code(&output, 0);
    assert!(bits(&out) == bits(&plain) && results(&out) == results(&plain), "sinks changed the result");
    let said = stderr(&output);
    for warning in [
        " does not answer within 5.0 s",
        "answers 404 Not Found; this run is not logged there",
        "exit status: 1",
        "`exec`: cannot start no-such-program: ",
        "`csv`: cannot create /dev/null/x: ",
        "`prometheus`: cannot write /dev/null/x.prom: ",
    ] {
        assert!(said.contains(warning), "{warning}\n{said}");
    }
    // A machine that is busy may not kill it in time; the run does not wait for that.
    let asleep =
        ["was killed; logs/rank-0.log has its output", "`exec`: it has not returned from its last event"];
    assert!(asleep.iter().any(|warning| said.contains(warning)), "{said}");
}

#[test]
fn wrong_sinks_are_told_before_the_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (sinks, message) in [
        ("[metrics]\nsinks = [\"mlfow\"]\n", "unknown sink; did you mean `mlflow`?"),
        ("[metrics]\nsinks = [\"csv\", \"csv\"]\n", "listed twice"),
        (
            "[metrics]\nsinks = [\"exec\"]\n",
            "needs a table, `[[observer]]` with `name = \"exec\"`: missing field `command`",
        ),
        ("[[observer]]\nname = \"exec\"\ncommand = []\n", "is empty: expected a program"),
        ("[[observer]]\nname = \"exec\"\n", "missing key `command`"),
        ("[[observer]]\nname = \"csv\"\npath = \"x\"\n", "known here: `folder`, `name`"),
        ("[[observer]]\nname = \"mlflow\"\nuri = \"mlruns\"\n", "expected the address of a server"),
        (
            "[[observer]]\nname = \"mlflow\"\nuri = \"http://a:b@c\"\n",
            "credentials belong in MLFLOW_TRACKING_USERNAME",
        ),
    ] {
        let spec = write_spec(dir.path(), &format!("{SPEC}{sinks}"));
        let output = output_of(ddp_run().arg("check").arg(spec));
        assert_code(&output, 78);
        assert!(stderr(&output).contains(message), "{message}\n{}", stderr(&output));
    }
}

/// jobs/wandb_bridge.py with a module that notes what is asked of it.
#[test]
fn the_bridge_to_weights_and_biases() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    // Its path: what is found by its name may be a script that takes long to find it.
    let own_path = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Some(python) = own_path.ok().filter(|output| output.status.success()) else {
        return println!("skipped: python3 is not there");
    };
    let python = String::from_utf8(python.stdout).expect("a path");
    let python = python.trim_end();
    let (calls, out) = (dir.path().join("calls"), dir.path().join("run"));
    let fake = format!(
        "import json\ndef note(*what):\n    open({calls:?}, 'a').write(json.dumps(what) + '\\n')\n\
         class Run:\n    def log(self, values, step): note('log', values, step)\n    \
         def finish(self, exit_code): note('finish', exit_code)\n\
         def init(**keys):\n    note('init', keys)\n    return Run()\n"
    );
    fs::write(dir.path().join("wandb.py"), fake).unwrap();
    let bridge = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("jobs/wandb_bridge.py");
    let sink = format!("{METRICS}[[observer]]\nname = \"exec\"\ncommand = [{python:?}, {bridge:?}]\n");
    let spec = write_spec(dir.path(), &format!("{SPEC}{sink}"));
    let run = |flags: &[&str]| {
        let mut command = train_command(&spec, &out, flags);
        let output = output_of(command.env("PYTHONPATH", dir.path()).env_remove("WANDB_PROJECT"));
        assert_code(&output, 0);
        assert_no_warning(&output);
    };
    run(&["--set", "epochs=1"]);
    run(&[]);
    let text = fs::read_to_string(&calls).unwrap();
    let calls: Vec<Value> = text.lines().map(parse_json).collect();
    let of = |name: &str| calls.iter().filter(|call| call[0] == name).cloned().collect::<Vec<_>>();
    let [first, second] = &of("init")[..] else { panic!("{text}") };
    assert_eq!((&first[1]["id"], &first[1]["project"]), (&second[1]["id"], &json!("ddp-run")));
    assert_eq!((&second[1]["config"]["epochs"], &second[1]["resume"]), (&json!(2), &json!("allow")));
    let expected = events(&out).iter().filter(|e| e["event"] == "step" || e["event"] == "epoch").count();
    assert_eq!(of("log").len(), expected);
    assert!(of("log").iter().any(|call| call[1]["val/loss"].is_number() && call[2] == 16), "{text}");
    assert_eq!(of("finish"), [json!(["finish", 0]), json!(["finish", 0])]);
}

/// A running MLflow server; killed with its workers when it is dropped.
#[cfg(target_os = "linux")]
struct MlflowServer {
    server: std::process::Child,
    port: Port,
}

#[cfg(target_os = "linux")]
impl MlflowServer {
    /// `None` where `mlflow` is not installed. It answers when this returns.
    fn start(folder: &Path) -> Option<Self> {
        use std::os::unix::process::CommandExt;
        let port = Port::on_loopback();
        let store = format!("sqlite:///{}", folder.join("store.db").display());
        let log = fs::File::create(folder.join("server.log")).expect("writable");
        let server = Command::new("mlflow")
            .args(["server", "--host", "127.0.0.1", "--workers", "1", "--port", &port.to_string()])
            .args(["--backend-store-uri", &store, "--artifacts-destination"])
            .arg(folder)
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .ok()?;
        let mut started = Self { server, port };
        wait_for("MLflow", RUN_HUNG, || {
            assert!(started.server.try_wait().expect("our child").is_none(), "it ended");
            ureq::get(format!("{}/health", started.address())).call().is_ok()
        });
        Some(started)
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks the API.
    fn get(&self, path: &str) -> Value {
        let url = format!("{}/api/2.0/mlflow/{path}", self.address());
        let text = ureq::get(url).call().expect("an answer").body_mut().read_to_string().expect("a text");
        parse_json(text)
    }
}

#[cfg(target_os = "linux")]
impl Drop for MlflowServer {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.server.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_real_mlflow_server() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = MlflowServer::start(dir.path()) else {
        return println!("skipped: mlflow is not there (`pip install mlflow`)");
    };
    let out = dir.path().join("run");
    let sink = format!(
        "{METRICS}[[observer]]\nname = \"mlflow\"\nuri = \"{}\"\nexperiment = \"of tests & more\"\n",
        server.address()
    );
    let changed = ["--accept-changes", "--set", "optimizer.lr=0.01"];
    for flags in [&["--set", "train.max_steps=5"][..], &changed] {
        let output = train_with(&sink, &out, flags);
        assert_code(&output, 0);
        assert!(!stderr(&output).contains("warning: observer"), "{}", stderr(&output));
    }
    let experiment = server.get("experiments/get-by-name?experiment_name=of%20tests%20%26%20more");
    assert_eq!(experiment["experiment"]["lifecycle_stage"], "active");
    let kept = read_json(out.join("metrics/mlflow.json"));
    let id = kept["run_id"].as_str().unwrap();
    let run = server.get(&format!("runs/get?run_id={id}"))["run"].clone();
    assert_eq!((&run["info"]["status"], &run["info"]["run_name"]), (&json!("FINISHED"), &json!("sinks")));
    let of = |kind: &str, key: &str| {
        let all = run["data"][kind].as_array().unwrap();
        all.iter().find(|one| one["key"] == key).map(|one| one["value"].clone())
    };
    // Parameters stay as they were; the change is a tag.
    assert_eq!(
        (of("params", "optimizer.lr"), of("params", "epochs")),
        (Some(json!("0.05")), Some(json!("2")))
    );
    assert_eq!(of("tags", "changed.optimizer.lr"), Some(json!("0.01")));
    let all = events(&out);
    let last = all.iter().rfind(|event| event["event"] == "epoch").unwrap();
    assert_eq!(of("metrics", "val/loss").unwrap().as_f64(), last["val"]["loss"].as_f64());
    let history = server.get(&format!("metrics/get-history?run_id={id}&metric_key=step%2Floss"));
    let mut logged: Vec<(u64, f64)> = Vec::new();
    for metric in history["metrics"].as_array().unwrap() {
        logged.push((metric["step"].as_u64().unwrap_or(0), metric["value"].as_f64().unwrap()));
    }
    logged.sort_by_key(|(step, _)| *step);
    let steps = all.iter().filter(|event| event["event"] == "step");
    let expected: Vec<(u64, f64)> =
        steps.map(|e| (e["step"].as_u64().unwrap(), e["loss"].as_f64().unwrap())).collect();
    assert_eq!(logged, expected);
}
