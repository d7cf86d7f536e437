//! What evaluations find besides the metrics, with the real binary: `evaluations/` and the report of a run, and `ddp-run eval` on several
//! ranks.

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

const SPEC: &str = "name = \"shapes\"\nseed = 1\nepochs = 2\nbatch_size = 8\ndevice = \"cpu\"\n\
    [model]\nname = \"linear\"\n\
    [dataset]\nname = \"shapes\"\ntrain = 64\nval = 50\nsize = 16\nclasses = 3\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n\
    [checkpoint]\nbest = \"val.accuracy\"\n\
    [launch]\nnproc_per_node = 2\nthreads = 1\n";

fn evaluation(out: &Path, name: &str) -> Value {
    read_json(out.join("evaluations").join(name))
}

fn matrix(evaluation: &Value) -> Vec<Vec<u64>> {
    serde_json::from_value(evaluation["classes"]["matrix"].clone()).unwrap()
}

#[test]
fn a_run_and_its_report_show_classes_and_pictures() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = trained(dir.path(), SPEC);
    let mut names: Vec<String> = std::fs::read_dir(out.join("evaluations"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["step-00000004.json", "step-00000008.json"]);
    let last = evaluation(&out, &names[1]);
    let metrics = results(&out).into_iter().rfind(|event| event["event"] == "epoch").unwrap();
    let matrix = matrix(&last);
    let right: u64 = (0..3).map(|class| matrix[class][class]).sum();
    assert_eq!(right as f64 / 50.0, metrics["val"]["accuracy"].as_f64().unwrap());
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    let worst = &last["worst"][0];
    let picture = format!("<img src=\"data:image/png;base64,{}\"", worst["picture"]["png"].as_str().unwrap());
    for part in ["<h3>Confusion matrix</h3>", "img-src data:;", "<th scope=\"row\">triangle</th>", &picture] {
        assert!(page.contains(part), "{part} is missing");
    }
    // A start from the beginning archives them with the run.
    assert_code(
        &train(&dir.path().join("job.toml"), &out, &["--resume", "never", "--set", "metrics.samples=0"]),
        0,
    );
    assert!(dir.path().join("run.1/evaluations").join(&names[1]).is_file());
    assert!(evaluation(&out, &names[1]).get("worst").is_none());
}

#[test]
fn eval_prints_the_same_on_any_number_of_ranks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = trained(dir.path(), SPEC);
    let before = std::fs::read_dir(&out).unwrap().count();
    let eval = |flags: &[&str]| stdout_of(ddp_run().arg("eval").arg(&out).args(flags));
    let alone = eval(&["--json", "--per-class", "--nproc-per-node", "1"]);
    let json = parse_json(&alone);
    assert_eq!(json["n"], 50);
    assert_eq!(matrix(&json), matrix(&evaluation(&out, "step-00000008.json")));
    // A spec from standard input, which can be read once only, and the run's own spec, in its folder.
    let input = std::fs::File::open(dir.path().join("job.toml")).unwrap();
    let mut of_input = ddp_run();
    of_input.args(["eval", "-", "--json", "--per-class", "--checkpoint"]).arg(&out).stdin(input);
    let of_input = output_of(&mut of_input);
    assert_eq!(String::from_utf8_lossy(&of_input.stdout), alone, "{}", stderr(&of_input));
    let here = output_of(ddp_run().args(["eval", "job.toml", "--json"]).current_dir(&out));
    assert_code(&here, 0);
    // The spec's number, and more.
    assert_eq!(eval(&["--json", "--per-class"]), alone);
    assert_eq!(eval(&["--json", "--per-class", "--nproc-per-node", "3"]), alone);
    let table = eval(&["--per-class", "--split", "train", "--checkpoint", "best"]);
    for part in ["on 64 samples of `train`", "precision", "\n  circle ", "confusion matrix: rows are classes"]
    {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    assert_eq!(
        std::fs::read_dir(&out).unwrap().count(),
        before,
        "an evaluation writes nothing to the folder"
    );
    // What fails on the ranks has its own exit code. Its folder is kept.
    let mut failing = ddp_run();
    failing.arg("eval").arg(&out).args(["--split", "test"]).env("TMPDIR", dir.path());
    let output = output_of(&mut failing);
    assert!(stderr(&output).contains("data set `shapes` has no split `test`"), "{}", stderr(&output));
    assert!(!output.status.success() && output.stdout.is_empty());
    let unmet = output_of(ddp_run().arg("eval").arg(&out).args(["--assert", "accuracy > 1"]));
    assert_code(&unmet, 1);
}

/// Two ranks, started as a launcher starts them.
#[test]
fn eval_under_a_launcher_prints_on_rank_0() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = trained(dir.path(), SPEC);
    let alone = output_of(ddp_run().arg("eval").arg(&out).args(["--json", "--nproc-per-node", "1"]));
    assert_code(&alone, 0);
    let meeting = dir.path().join("meeting");
    let rank = |rank: usize| {
        let mut command = ddp_run();
        command.arg("eval").arg(&out).arg("--json");
        command
            .env("DDP_RUN_SECRET", "of-this-test-alone-0123456789")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("LOCAL_RANK", rank.to_string());
        command
            .env("LOCAL_WORLD_SIZE", "2")
            .env("DDP_RUN_RDZV_ENDPOINT", format!("file://{}", meeting.display()));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let ranks: Vec<_> = [rank(0), rank(1)].into_iter().map(|child| finish_within(RUN_HUNG, child)).collect();
    ranks.iter().for_each(|output| assert_code(output, 0));
    assert_eq!(ranks[0].stdout, alone.stdout);
    assert!(ranks[1].stdout.is_empty());
}

/// Dropout draws after an evaluation what it draws without one.
#[test]
fn generated_texts_leave_the_random_streams_alone() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("t.txt");
    std::fs::write(&text, "abcd bcda cdab dabc ".repeat(20)).unwrap();
    let spec = format!(
        "name = \"text\"\nepochs = 2\nbatch_size = 16\ndevice = \"cpu\"\n\
         [model]\nname = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 16\ndropout = 0.2\n\
         [dataset]\nname = \"text\"\npath = '{}'\nblock_size = 16\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n\
         [launch]\nnproc_per_node = 2\nthreads = 1\n",
        text.display()
    );
    let spec = write_spec(dir.path(), &spec);
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    assert_code(&train(&spec, &with, &[]), 0);
    assert_code(
        &train(&spec, &without, &["--set", "metrics.samples=0", "--set", "metrics.per_class=false"]),
        0,
    );
    assert!(bits(&with) == bits(&without), "other results");
    assert!(!without.join("evaluations").exists());
    let page = std::fs::read_to_string(with.join("report.html")).unwrap();
    let place = format!("<blockquote><cite>{}, line 1</cite><b>", text.display());
    assert!(page.contains("<h3>Generated texts</h3>") && page.contains(&place), "{page}");
    // What has no classes says so, beside its metrics.
    let output = output_of(ddp_run().arg("eval").arg(&with).args(["--per-class", "--json"]));
    assert_code(&output, 0);
    let found = parse_json(&output.stdout);
    assert!(found["perplexity"].is_number() && found.get("classes").is_none(), "{found}");
    assert!(stderr(&output).contains("no figures by class"), "{}", stderr(&output));
}

#[test]
fn an_evaluation_whose_rank_dies_or_does_not_stop_ends() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = trained(dir.path(), SPEC);
    let eval = |fault: &str| {
        let mut command = ddp_run();
        command.arg("eval").arg(&out).args(["--json", "--nproc-per-node", "3"]);
        // Its folder is kept.
        command.env("DDP_RUN_FAULT", fault).env(TAG, &out).env("TMPDIR", dir.path());
        command
    };
    let output = output_of(&mut eval("kill:rank=1,phase=evaluate"));
    assert_code(&output, 90);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(stderr(&output).contains("rank 1 of 3"), "{}", stderr(&output));
    // A rank that can't hear a stop signal is killed soon: there is nothing that it could save.
    let mut command = eval("stop:rank=2,phase=evaluate");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    held(&out);
    kill(child.id(), Signal::TERM);
    let output = finish(child);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(stderr(&output).contains("the workers stop;"), "{}", stderr(&output));
}
