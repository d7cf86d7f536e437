//! Output about runs with fixed values.

use super::facts::FACTS;
use super::filter::{Filter, SortBy};
use super::folder::RunStatus;
use super::list::Listing;
use super::testing::{provenance, run, two};
use super::*;
use checkpoint::format::step_dir_name;
use record::{RestartEvent, ResumeEvent};
use std::fs;
use std::path::PathBuf;

fn listing(filters: &[&str], sort: &str) -> Listing {
    let filters = filters.iter().map(|filter| filter.parse().expect("a filter")).collect();
    Listing { filters, sort: sort.parse().expect("a key"), limit: None }
}

fn names(filters: &[&str], sort: &str) -> Vec<String> {
    listing(filters, sort).select(two()).0.into_iter().map(|run| run.name).collect()
}

#[test]
fn the_list_fits_the_terminal() {
    let listing = listing(&[], "-started");
    let (runs, unknown) = listing.select(two());
    assert_eq!(unknown, [""; 0]);
    assert_eq!(
        list_text(&runs, &listing, None),
        "RUN  STATE        EPOCHS  BEST                   LAST  STARTED            TIME  STEPS  SAMPLES/S  RANKS     SIZE\n\
         b    failed (92)     1/3  val.accuracy 50.0 %  50.0 %  2026-11-22 03:35  7.5 s     10       1000      2  2.0 KiB\n\
         a    done            3/3  val.accuracy 87.5 %  50.0 %  2026-11-21 03:35  7.5 s     30       1000      2  2.0 KiB\n"
    );
    assert_eq!(
        list_text(&runs, &listing, Some(80)),
        "RUN  STATE        EPOCHS  BEST                   LAST  STARTED            TIME\n\
         b    failed (92)     1/3  val.accuracy 50.0 %  50.0 %  2026-11-22 03:35  7.5 s\n\
         a    done            3/3  val.accuracy 87.5 %  50.0 %  2026-11-21 03:35  7.5 s\n"
    );
    assert_eq!(
        list_text(&runs, &listing, Some(40)),
        "RUN  STATE        BEST\n\
         b    failed (92)  val.accuracy 50.0 %\n\
         a    done         val.accuracy 87.5 %\n"
    );
    let mut long = two();
    long[0].folder = format!("runs/{}", "x".repeat(60)).into();
    let text = list_text(&long, &listing, Some(40));
    assert!(text.lines().all(|line| line.chars().count() <= 40) && text.contains("xxx…  done"), "{text}");
    assert_eq!(list_text(&[], &listing, None), "no runs\n");
}

#[test]
fn a_run_that_goes_on_shows_the_time_left() {
    let mut runs = two();
    let running = runs.iter_mut().find(|run| run.name == "b").expect("it failed in its second epoch");
    (running.state, running.course.end) = (RunStatus::Running, None);
    let of = |runs: &[RunFolder]| list_text(runs, &listing(&["name=b"], "name"), None);
    // Two seconds for 10 steps.
    assert!(of(&runs[..]).contains("  2.0 s, 4.0 s left     10  "), "{}", of(&runs[..]));
}

/// A filter's key and that of the order are shown, as the spec has them.
#[test]
fn keys_that_are_asked_for_have_a_column() {
    let listing = listing(&["optimizer.lr<1"], "-val.loss");
    let text = list_text(&two(), &listing, Some(44));
    assert_eq!(
        text,
        "RUN  STATE        optimizer.lr  val.loss\n\
         a    done                  0.1    0.2500\n\
         b    failed (92)           0.2    0.2500\n"
    );
}

#[test]
fn filters_compare_numbers_texts_and_parts_of_texts() {
    for (filters, expected) in [
        (&["state=done"][..], &["a"][..]),
        (&["state != done"], &["b"]),
        (&["val.accuracy >= 0.5"], &["a", "b"]),
        (&["best>0.8"], &["a"]),
        (&["optimizer.lr<=0.1", "epochs==3"], &["a"]),
        (&["optimizer.lr=0.2"], &["b"]),
        (&["optimizer.name='sgd'", "name~b"], &["b"]),
        (&["started>=2026-11-22"], &["b"]),
        (&["name!~b"], &["a"]),
        (&["device=cpu", "world=2", "commit=c0ffee", "step<30"], &["b"]),
        (&["bytes>1e9"], &[]),
        // No run has it.
        (&["model.dropout=0.1"], &[]),
        (&["model.dropout!=0.1"], &["a", "b"]),
    ] {
        assert_eq!(names(filters, "name"), expected, "{filters:?}");
    }
    let refused = |typed: &str| typed.parse::<Filter>().expect_err(typed);
    assert!(refused("state").starts_with("there is no comparison; expected KEY=VALUE"));
    assert!(refused("!x").starts_with("`!` alone compares nothing"));
    assert!(refused("= 1").starts_with("`` is not a key"));
    assert!(refused("the loss < 1").starts_with("`the loss` is not a key"));
    for typed in ["val.loss=<1", "val.loss=>1", "val.loss<>1", "name~=a", "state=", "val.loss< "] {
        assert!(refused(typed).contains(" is not a comparison and a value; expected KEY=VALUE"), "{typed}");
    }
    assert!(refused("state=don").starts_with("`don` is not a state: a run is running, done, "));
    assert_eq!(names(&["name!~'=x'", "state~on"], "name"), ["a"]);
}

/// 87.5 % on other data is no better than 50 %.
#[test]
fn runs_on_other_data_are_not_ranked_together() {
    let on = |name: &str, data: &str, accuracy: f64| {
        let mut run = run(name, "0.1", &[accuracy], (0, ""));
        let spec = run.spec.as_mut().unwrap();
        spec.insert("dataset.name".to_owned(), format!("\"{data}\""));
        run
    };
    let runs = vec![on("a", "mnist", 0.5), on("b", "cifar10", 0.75), on("c", "mnist", 0.875)];
    let sorted = |sort: &str| {
        let (runs, warnings) = listing(&[], sort).select(runs.clone());
        (runs.into_iter().map(|run| run.name).collect::<String>(), warnings)
    };
    let why = "values of different tasks or data do not compare: `dataset.name` is \"mnist\" in ";
    for (sort, order, names) in [("-val.accuracy", "cab", ["c", "b"]), ("best", "acb", ["a", "b"])] {
        let (found, warnings) = sorted(sort);
        let key = sort.trim_start_matches('-');
        let [first, other] = names;
        let order_of = format!("some runs are kept apart in the order of `{key}`, because {why}");
        let expected = format!("{order_of}{first}, and is \"cifar10\" in {other}");
        assert_eq!((found.as_str(), warnings), (order, vec![expected]), "{sort}");
    }
    assert_eq!(sorted("optimizer.lr"), ("abc".to_owned(), vec![]));
    assert_eq!(sorted("name"), ("abc".to_owned(), vec![]));
    let text = compare(&runs, None);
    assert!(text.ends_with(&format!("\nnote: {why}a, and is \"cifar10\" in b\n")), "{text}");
    assert_eq!(compare_json(&runs)["not_comparable"].as_array().unwrap().len(), 1);
    assert_eq!(compare_json(&two())["not_comparable"], serde_json::json!([]));
}

#[test]
fn runs_are_sorted_by_any_key_and_those_without_it_come_last() {
    assert_eq!(names(&[], "started"), ["a", "b"]);
    assert_eq!(names(&[], "-started"), ["b", "a"]);
    assert_eq!(names(&[], "-best"), ["a", "b"]);
    assert_eq!(names(&[], "-optimizer.lr"), ["b", "a"]);
    let mut runs = two();
    runs[0].course.measured.clear();
    for sort in ["val.loss", "-val.loss"] {
        let (sorted, _) = listing(&[], sort).select(runs.clone());
        assert_eq!(sorted.last().map(|run| run.name.as_str()), Some("a"), "{sort}");
    }
    let (one, unknown) =
        Listing { limit: Some(1), ..listing(&["optimiser.lr<1", "val.acuracy>0"], "name") }.select(two());
    assert_eq!(one.len(), 0);
    assert_eq!(
        unknown,
        [
            "no run has `optimiser.lr`; did you mean `optimizer.lr`?",
            "no run has `val.acuracy`; did you mean `val.accuracy`?"
        ]
    );
    assert_eq!("-".parse::<SortBy>().ok(), None);
    let (_, unfit) = listing(&["val.accuracy>50%", "name<3", "epochs=2/2"], "name").select(two());
    assert_eq!(
        unfit,
        ["`val.accuracy` is a number, and `50%` is none", "`epochs` is a number, and `2/2` is none"]
    );
}

/// Runs that have no room beside each other stand below each other.
#[test]
fn a_comparison_fits_a_terminal() {
    for width in 26..60 {
        let text = compare(&two(), Some(width));
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
        let tables = text.lines().filter(|line| line.starts_with("state")).count();
        assert_eq!(tables, if width < 40 { 2 } else { 1 }, "{width}\n{text}");
        assert!(text.contains("50.0 %") && text.contains("0.2500"), "{text}");
    }
}

#[test]
fn a_comparison_has_a_column_for_each_run_and_only_the_keys_that_differ() {
    assert_eq!(
        compare(&two(), None),
        "              a                              b
state         done                           failed (92)
started       2026-11-21 03:35               2026-11-22 03:35
epochs        3/3                            1/3
steps         30                             10
time          7.5 s                          7.5 s
samples/s     1000                           1000
restarts      0                              0
best          val.accuracy 87.5 % (epoch 2)  val.accuracy 50.0 % (epoch 1)
train.loss    0.5000                         0.5000
val.loss      0.2500                         0.2500
val.accuracy  50.0 %                         50.0 %
size          2.0 KiB                        2.0 KiB

spec          a    b
name          \"a\"  \"b\"
optimizer.lr  0.1  0.2
"
    );
    let json = compare_json(&two());
    assert_eq!(json["spec"], serde_json::json!({ "name": ["a", "b"], "optimizer.lr": [0.1, 0.2] }));
    assert_eq!(
        (json["runs"][0]["state"].as_str(), json["runs"][1]["exit_code"].as_u64()),
        (Some("done"), Some(92))
    );
}

#[test]
fn a_difference_has_spec_provenance_and_metrics() {
    let mut runs = two();
    let latest = &mut runs[1].starts.as_mut().expect("it has started").latest;
    (latest.world, latest.devices, latest.git) = (1, vec!["cuda:0".to_owned()], None);
    assert_eq!(
        diff(&runs[0], &runs[1], None),
        "spec          a    b
name          \"a\"  \"b\"
optimizer.lr  0.1  0.2

provenance     a       b
commit         c0ffee  -
changed files  yes     -
devices        cpu     cuda:0
processes      2       1

metrics  a                              b
epochs   3/3                            1/3
steps    30                             10
best     val.accuracy 87.5 % (epoch 2)  val.accuracy 50.0 % (epoch 1)
"
    );
    assert_eq!(diff(&runs[0], &runs[0], None), "a and a do not differ\n");
    let json = diff_json(&runs[0], &runs[1]);
    assert_eq!(json["spec"][1], serde_json::json!({ "key": "optimizer.lr", "a": 0.1, "b": 0.2 }));
    assert_eq!(json["provenance"][0], serde_json::json!({ "key": "commit", "a": "c0ffee", "b": null }));
    assert_eq!(json["metrics"], serde_json::json!([]));
}

#[test]
fn a_run_is_shown_with_its_history_and_the_next_command() {
    let mut shown = run("b", "0.2", &[0.5], (90, "rank 1 was killed"));
    let resume = ResumeEvent {
        step: 10,
        epoch: 1,
        path: "checkpoints/step-00000010".to_owned(),
        world: 1,
        global_batch: 8,
        accumulate: 1,
    };
    shown.course.restarts.push(RestartEvent { attempt: 2, reason: "rank 0 was killed".to_owned() });
    shown.course.resumes.push(resume);
    shown.problems.push("run.json: damaged".to_owned());
    let starts = shown.starts.as_mut().expect("it has started");
    starts.earlier.push(record::Provenance { started: "2026-11-20T00:00:00Z".to_owned(), ..provenance("b") });
    assert_eq!(
        show(&shown, "mynet"),
        "runs/b (b)
  state        failed (90): rank 1 was killed
  started      2026-11-21T03:35:00Z, the last of 2 starts since 2026-11-20T00:00:00Z
  trained      1/3 epochs, 10 steps in 7.5 s, 1000 samples/s, 1 restart
  last         epoch 1/3  train loss 0.5000  val loss 0.2500 acc 50.0 %  2.0 s  1000 samples/s  data wait 0.0 %
  best         epoch 1/3  val.accuracy 50.0 %
  restart      attempt 2: rank 0 was killed
  resume       at step 10 from checkpoints/step-00000010, 1 process
  checkpoints  none
  processes    2 processes on cpu (gloo), started by ddp-run
  host         n1, EPYC
  commit       c0ffee with changed files
  versions     ddp-run 0.1.0, Burn 0.22
  hash         5ca1e
  size         2.0 KiB
  problem      run.json: damaged
"
    );
    let mut done = run("a", "0.1", &[0.75, 0.5], (0, "done"));
    let entry = |step: u64| checkpoint::Entry { step, path: PathBuf::from("c").join(step_dir_name(step)) };
    done.checkpoints = vec![entry(10), entry(20)];
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("checkpoints")).expect("created");
    done.folder = dir.path().to_owned();
    let text = show(&done, "mynet");
    assert!(
        text.contains("  best         epoch 1/3  val.accuracy 75.0 %  checkpoints/step-00000010\n"),
        "{text}"
    );
    let next = format!("  next         mynet eval {} --checkpoint best\n", dir.path().display());
    assert!(text.ends_with(&next), "{text}");
}

#[test]
fn docs_runs_has_all_facts_and_states() {
    let document = include_str!("../../../../docs/runs.md");
    let states = [
        RunStatus::Running,
        RunStatus::Done,
        RunStatus::Stopped,
        RunStatus::Failed { code: None, reason: String::new() },
        RunStatus::Untrained,
        RunStatus::Removing,
    ];
    assert_eq!(states.each_ref().map(RunStatus::word), RunStatus::WORDS);
    for name in FACTS.into_iter().chain(states.iter().map(RunStatus::word)) {
        assert!(document.contains(&format!("`{name}`")), "docs/runs.md lacks `{name}`");
    }
}
