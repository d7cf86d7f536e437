#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../../tests/common/server.rs"]
mod server;

use super::super::testing::{end, epoch, run, step};
use super::*;
use collectives::testing::Port;
use serde_json::json;
use server::{Answer, Request, Server as Http};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What ends a test that hangs.
const HUNG: Duration = Duration::from_secs(60);
const API: &str = "/api/2.0/mlflow/";

fn nothing(_: &str) -> Option<String> {
    None
}

/// A batch with every event; a request that is not answered ends after a short time.
fn quick() -> Pace {
    Pace { request: HUNG, every: Duration::ZERO, pause: Duration::ZERO, most: Duration::ZERO }
}

fn sink(uri: &str, pace: Pace) -> Tracking {
    Tracking::new(MlFlow { uri: Some(uri.to_owned()), experiment: None }, nothing, pace)
}

fn at(server: &Http) -> String {
    server.url("").trim_end_matches('/').to_owned()
}

fn json_of(status: u16, body: &Value) -> Answer {
    Answer::Json(status, body.to_string())
}

/// An MLflow server with the experiment `toy`, or without it, and runs `run-0` and so on.
fn tracking_server(has_experiment: bool) -> Http {
    let runs: Arc<Mutex<Vec<Value>>> = Arc::default();
    Http::start(move |request, _| {
        let mut runs = runs.lock().unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match path.strip_prefix(API).unwrap() {
            "experiments/get-by-name" if has_experiment => {
                assert_eq!(query, "experiment_name=toy");
                json_of(200, &json!({ "experiment": { "experiment_id": "7" } }))
            }
            "experiments/get-by-name" => json_of(404, &json!({ "error_code": "RESOURCE_DOES_NOT_EXIST" })),
            "experiments/create" => json_of(200, &json!({ "experiment_id": "7" })),
            "runs/create" => {
                runs.push(json!([]));
                json_of(200, &json!({ "run": { "info": { "run_id": format!("run-{}", runs.len() - 1) } } }))
            }
            "runs/get" => match query
                .strip_prefix("run_id=run-")
                .and_then(|n| runs.get(n.parse::<usize>().ok()?))
            {
                Some(params) => json_of(200, &json!({ "run": { "info": {}, "data": { "params": params } } })),
                None => json_of(404, &json!({ "error_code": "RESOURCE_DOES_NOT_EXIST" })),
            },
            "runs/log-batch" => {
                let run: usize =
                    body["run_id"].as_str().unwrap().strip_prefix("run-").unwrap().parse().unwrap();
                let new = body["params"].as_array().unwrap().clone();
                runs[run].as_array_mut().unwrap().extend(new);
                json_of(200, &json!({}))
            }
            _ => json_of(200, &json!({})),
        }
    })
}

/// Requests without the parts that every one has.
fn asked(server: &Http) -> Vec<(String, Value)> {
    let short = |r: Request| {
        let path = r.path.strip_prefix(API).unwrap().to_owned();
        (path, serde_json::from_slice(&r.body).unwrap_or_default())
    };
    server.requests().into_iter().map(short).collect()
}

/// The bodies of requests of one kind.
fn bodies(server: &Http, path: &str) -> Vec<Value> {
    asked(server).into_iter().filter(|(asked, _)| asked == path).map(|(_, body)| body).collect()
}

/// The metrics that arrived: name, value and step.
fn logged(server: &Http) -> Vec<(String, Value, u64)> {
    let batches = bodies(server, "runs/log-batch");
    let all = batches.iter().flat_map(|body| body["metrics"].as_array().unwrap());
    all.map(|m| (m["key"].as_str().unwrap().to_owned(), m["value"].clone(), m["step"].as_u64().unwrap()))
        .collect()
}

/// A whole run with these events.
fn whole(uri: &str, folder: &Path, pace: Pace, events: &[Value]) -> Vec<Result<()>> {
    let (mut sink, run) = (sink(uri, pace), run(folder, 0, 0));
    let mut done = vec![sink.start(&run)];
    done.extend(events.iter().map(|event| sink.event(event)));
    run.end(Instant::now() + HUNG);
    done.push(sink.end());
    done
}

fn errors(done: Vec<Result<()>>) -> Vec<String> {
    done.into_iter().filter_map(Result::err).map(|e| e.message).collect()
}

#[test]
fn a_run_with_parameters_metrics_tags_and_an_end() {
    let (dir, server) = (tempfile::tempdir().unwrap(), tracking_server(false));
    let done = whole(&at(&server), dir.path(), quick(), &[step(1), step(3), epoch(0, true), end(0)]);
    assert_eq!(errors(done), [""; 0]);
    let paths: Vec<String> = asked(&server).into_iter().map(|(path, _)| path).collect();
    let first = [
        "experiments/get-by-name?experiment_name=toy",
        "experiments/create",
        "runs/create",
        "runs/log-batch",
    ];
    assert_eq!(paths[..4], first);
    assert_eq!(paths.last().unwrap(), "runs/update");
    let created = &bodies(&server, "runs/create")[0];
    assert_eq!((&created["experiment_id"], &created["run_name"]), (&json!("7"), &json!("toy")));
    let tags = created["tags"].as_array().unwrap();
    assert!(tags.contains(&json!({ "key": "mlflow.source.git.commit", "value": "abc123" })), "{tags:?}");
    assert!(tags.contains(&json!({ "key": "host", "value": "here" })), "{tags:?}");
    let params = &bodies(&server, "runs/log-batch")[0]["params"];
    let expected =
        json!([{ "key": "train.accumulate", "value": "2" }, { "key": "optimizer.name", "value": "sgd" }]);
    assert_eq!(*params, expected);
    let metrics = logged(&server);
    let has = |name: &str, value: Value, step: u64| metrics.contains(&(name.to_owned(), value, step));
    assert!(has("step/loss", json!(1.0), 1) && has("step/loss", json!("NaN"), 3), "{metrics:?}");
    assert!(has("step/lr", json!(0.5), 3) && has("val/accuracy", json!(0.75), 4), "{metrics:?}");
    assert!(!metrics.iter().any(|(name, ..)| name == "step/epoch" || name == "val/n"), "{metrics:?}");
    let ended = bodies(&server, "runs/update").pop().unwrap();
    assert_eq!((&ended["run_id"], &ended["status"]), (&json!("run-0"), &json!("FINISHED")));
    assert!(ended["end_time"].as_u64().unwrap() > 1_700_000_000_000);
}

#[test]
fn a_resumed_run_continues_its_run() {
    let (dir, server) = (tempfile::tempdir().unwrap(), tracking_server(true));
    for (code, status) in [(75, "KILLED"), (90, "FAILED"), (0, "FINISHED")] {
        assert_eq!(errors(whole(&at(&server), dir.path(), quick(), &[step(1), end(code)])), [""; 0]);
        assert_eq!(bodies(&server, "runs/update").pop().unwrap()["status"], status);
    }
    assert_eq!(bodies(&server, "runs/create").len(), 1);
    let states: Vec<Value> =
        bodies(&server, "runs/update").into_iter().map(|body| body["status"].clone()).collect();
    assert_eq!(states, ["KILLED", "RUNNING", "FAILED", "RUNNING", "FINISHED"]);
    // Parameters can't be changed there, and are known.
    let with_params = bodies(&server, "runs/log-batch").iter().filter(|b| b["params"] != json!([])).count();
    assert_eq!(with_params, 1);
    // A change is a tag.
    let mut again = run(dir.path(), 4, 1);
    again.spec.insert("train.accumulate".to_owned(), json!(3));
    let mut sink = sink(&at(&server), quick());
    sink.start(&again).unwrap();
    sink.event(&step(5)).unwrap();
    let tags: Vec<Value> =
        bodies(&server, "runs/log-batch").iter().map(|body| body["tags"].clone()).collect();
    let changed = json!({ "key": "changed.train.accumulate", "value": "3" });
    assert!(tags.iter().any(|tags| tags.as_array().unwrap().contains(&changed)), "{tags:?}");
    // The run was removed from the server.
    let file = dir.path().join("metrics/mlflow.json");
    let mut kept: LoggedRun = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept.run_id, "run-0");
    kept.run_id = "run-9".to_owned();
    files::replace_json(&file, &kept).unwrap();
    whole(&at(&server), dir.path(), quick(), &[]);
    assert_eq!(bodies(&server, "runs/create").len(), 2);
}

#[test]
fn many_values_go_in_batches_of_the_servers_size() {
    let (dir, server) = (tempfile::tempdir().unwrap(), tracking_server(true));
    let mut run = run(dir.path(), 0, 0);
    run.spec = (0..250).map(|n| (format!("key.{n}"), json!("x".repeat(7000)))).collect();
    let mut sink = sink(&at(&server), Pace { every: HUNG, ..quick() });
    sink.start(&run).unwrap();
    (0..500).for_each(|n| sink.event(&step(n + 4)).unwrap());
    // Only one so far: the next would be too early.
    assert_eq!(bodies(&server, "runs/log-batch").len(), 1);
    run.end(Instant::now() + HUNG);
    sink.end().unwrap();
    let batches = bodies(&server, "runs/log-batch");
    let count = |key: &str| batches.iter().map(|b| b[key].as_array().unwrap().len()).collect::<Vec<_>>();
    assert_eq!(
        (count("params"), count("metrics")),
        (vec![100, 100, 50, 0, 0, 0], vec![0, 0, 0, 1000, 1000, 500])
    );
    assert_eq!(batches[0]["params"][0]["value"].as_str().unwrap().len(), 500);
    let steps: Vec<u64> = logged(&server).into_iter().map(|(.., step)| step).collect();
    assert!(steps.is_sorted());
}

#[test]
fn what_fails_for_a_while_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let answers = [503, 429, 500].map(Answer::Status).to_vec();
    let server = Http::start(move |request, number| match answers.get(number) {
        Some(answer) => answer.clone(),
        None if request.path.contains("get-by-name") => {
            json_of(200, &json!({ "experiment": { "experiment_id": "7" } }))
        }
        None => json_of(200, &json!({ "run": { "info": { "run_id": "run-0" } } })),
    });
    let events: Vec<Value> = (1..=3).map(step).chain([end(0)]).collect();
    let errors = errors(whole(&at(&server), dir.path(), quick(), &events));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("answers 503 ") && errors[0].contains("tried again"), "{errors:?}");
    let losses = logged(&server).into_iter().filter(|(name, ..)| name == "step/loss").count();
    assert_eq!(losses, 3);
}

#[test]
fn what_is_refused_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    // The address of another server.
    let server = Http::script(vec![Answer::Status(404)]);
    let errors_of = |server: &Http, n: u64| {
        let events: Vec<Value> = (1..=n).map(step).chain([end(0)]).collect();
        errors(whole(&at(server), dir.path(), quick(), &events))
    };
    let all = errors_of(&server, 3);
    assert!(
        all.len() == 1 && all[0].contains("answers 404 ") && all[0].ends_with("not logged there"),
        "{all:?}"
    );
    assert_eq!(server.requests().len(), 1);
    // One that refuses batches only.
    let server = Http::start(|request, _| match request.path.strip_prefix(API).unwrap() {
        "runs/log-batch" => json_of(400, &json!({ "error_code": "INVALID", "message": "too\nmany" })),
        "runs/update" => json_of(200, &json!({})),
        "runs/create" => json_of(200, &json!({ "run": { "info": { "run_id": "run-0" } } })),
        _ => json_of(200, &json!({ "experiment": { "experiment_id": "7" } })),
    });
    let all = errors_of(&server, 2);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].contains("answers 400 ") && all[0].ends_with(": too·many"), "{all:?}");
    assert!(all[1].contains("10 values were not logged to"), "{all:?}");
    assert_eq!(bodies(&server, "runs/update")[0]["status"], "FINISHED");
}

#[test]
fn a_server_that_never_answers_costs_the_limit_of_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let server = Http::script(vec![Answer::Silent]);
    let pace = Pace { request: Duration::from_millis(50), every: HUNG, pause: HUNG, most: HUNG };
    let (mut sink, run) = (sink(&at(&server), pace), run(dir.path(), 0, 0));
    let error = sink.start(&run).unwrap_err();
    assert!(error.message.contains("does not answer within"), "{error}");
    for n in 1..100 {
        sink.event(&step(n)).unwrap();
    }
    // A loaded machine may not even have read that one.
    assert!(server.requests().len() <= 1);
    // The run does not wait at all.
    run.end(Instant::now());
    let error = sink.end().unwrap_err();
    assert!(error.message.ends_with("was never reached; this run is not logged there"), "{error}");
}

#[test]
fn what_is_refused_after_another_warning_is_told_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    // It wants credentials, once it is there.
    let server = Http::script(vec![Answer::Status(503), Answer::Status(401)]);
    let all = errors(whole(&at(&server), dir.path(), quick(), &[step(1), end(0)]));
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].contains("answers 503 "), "{all:?}");
    assert!(all[1].contains("answers 401 ") && all[1].ends_with("this run is not logged there"), "{all:?}");
    // One that refuses parameters.
    let server = Http::start(|request, number| match request.path.strip_prefix(API).unwrap() {
        _ if number == 0 => Answer::Status(503),
        "runs/log-batch" if String::from_utf8_lossy(&request.body).contains("train.accumulate") => {
            json_of(400, &json!({ "message": "not these" }))
        }
        "runs/create" => json_of(200, &json!({ "run": { "info": { "run_id": "run-0" } } })),
        _ => json_of(200, &json!({ "experiment": { "experiment_id": "7" } })),
    });
    let all = errors(whole(&at(&server), dir.path(), quick(), &[step(1), end(0)]));
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].starts_with("2 parameters and tags were not logged to "), "{all:?}");
    assert!(all[1].contains("answers 400 ") && all[1].ends_with(": not these"), "{all:?}");
}

#[test]
fn a_redirect_is_not_followed_but_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Http::script(vec![Answer::Redirect("https://there/login?token=secret".to_owned())]);
    let all = errors(whole(&at(&server), dir.path(), quick(), &[step(1), end(0)]));
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("redirects to https://there/login; `uri` is to be"), "{all:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn no_request_takes_longer_than_the_run_waits() {
    let dir = tempfile::tempdir().unwrap();
    let server = Http::script(vec![Answer::Silent]);
    let (mut sink, run) = (sink(&at(&server), quick()), run(dir.path(), 0, 0));
    run.end(Instant::now());
    // By the pace it has a minute.
    let error = sink.start(&run).unwrap_err();
    assert!(error.message.contains("does not answer within 0.0 s"), "{error}");
}

#[test]
fn names_are_those_that_mlflow_takes() {
    let long = "x".repeat(300);
    for (name, taken) in
        [("a/b c", "a/b c"), ("k@5", "k_5"), ("a//b/./..", "a/_/b/_/_"), (long.as_str(), &long[..250])]
    {
        assert_eq!(facts::name(name), taken);
    }
}

#[test]
fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let port = Port::on_loopback();
    let mut sink = sink(&format!("http://127.0.0.1:{port}"), quick());
    let error = sink.start(&run(dir.path(), 0, 0)).unwrap_err();
    assert!(error.message.contains("cannot be reached"), "{error}");
    (1..=WAITING as u64 / 5 + 100).for_each(|n| {
        sink.metrics.extend(facts::metrics(&step(n)));
    });
    sink.event(&step(1)).unwrap();
    assert_eq!((sink.metrics.len(), sink.lost), (WAITING, 505));
}

#[test]
fn the_environment_names_server_experiment_and_credentials() {
    fn env(name: &str) -> Option<String> {
        let value = match name {
            "MLFLOW_TRACKING_URI" => "http://tracking:5000/",
            "MLFLOW_EXPERIMENT_NAME" => "mine",
            "MLFLOW_TRACKING_USERNAME" => "me",
            // As a file has it.
            "MLFLOW_TRACKING_PASSWORD" => "secret\n",
            _ => return None,
        };
        Some(value.to_owned())
    }
    let run = run(Path::new("."), 0, 0);
    let server = Server::from_config(&MlFlow::default(), &run, env).unwrap();
    assert_eq!((server.uri.as_str(), server.experiment.as_str()), ("http://tracking:5000", "mine"));
    assert_eq!(server.authorization.as_deref(), Some("Basic bWU6c2VjcmV0"));
    let token = |name: &str| (name == "MLFLOW_TRACKING_TOKEN").then(|| "t".to_owned());
    let config = MlFlow { uri: Some("https://x".to_owned()), experiment: Some("own".to_owned()) };
    let server = Server::from_config(&config, &run, token).unwrap();
    assert_eq!((server.experiment.as_str(), server.authorization.as_deref()), ("own", Some("Bearer t")));
    assert!(
        Server::from_config(&MlFlow::default(), &run, nothing).unwrap_err().contains("MLFLOW_TRACKING_URI")
    );
    for (uri, why) in [("file:///x", "expected"), ("http://a:b@host", "credentials"), ("http:///x", "host")] {
        let problem = MlFlow { uri: Some(uri.to_owned()), experiment: None }.problem();
        assert!(problem.is_some_and(|(key, text)| key == "uri" && text.contains(why)), "{uri}");
    }
    // The server gets them.
    let dir = tempfile::tempdir().unwrap();
    let http = Http::script(vec![Answer::Status(401)]);
    let config = MlFlow { uri: Some(at(&http)), experiment: None };
    Tracking::new(config, env, quick()).start(&super::super::testing::run(dir.path(), 0, 0)).unwrap_err();
    assert_eq!(http.requests()[0].header("authorization"), Some("Basic bWU6c2VjcmV0"));
}
