use super::*;
use crate::provenance::{self, Provenance};
use crate::rank_times::RankTimes;
use crate::samples::{self, resume, step};
use crate::{EndEvent, EpochEvent, Event, Metrics};
use records::{Anatomy, Record};
use serde_json::Value;

pub(super) fn epoch(epoch: u64, step: u64, loss: f64) -> Event {
    Event::Epoch(EpochEvent {
        step,
        train: Metrics::new(loss).with("accuracy", 1.0 - loss / 3.0),
        val: Some(Metrics::new(loss + 0.1).with("accuracy", 0.95 - loss / 3.0).samples(5000)),
        ..samples::epoch(epoch, 0.5)
    })
}

pub(super) fn end(step: u64, exit_code: u8, reason: &str) -> Event {
    Event::End(EndEvent { step, epoch: 0, reason: reason.into(), exit_code, seconds: 1.0 })
}

pub(super) fn run(events: Vec<Event>) -> RunRecords {
    let record = |event| Record { event, time: None };
    RunRecords {
        name: "toy".into(),
        records: events.into_iter().map(record).collect(),
        ..RunRecords::default()
    }
}

/// A run of 20 epochs of 100 steps, resumed once.
pub(super) fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for number in 1..=2000u64 {
        let x = number as f64 / 2000.0;
        let noise = ((number * 7919) % 1009) as f64 / 1009.0 - 0.5;
        let loss = 2.3 * (-3.0 * x).exp() + 0.25;
        events.push(step(number, loss + 0.3 * noise * (1.0 - 0.6 * x)));
        if number % 100 == 0 {
            events.push(epoch(number / 100 - 1, number, loss));
        }
        if number == 1200 {
            events.push(resume(number, 1));
        }
    }
    events.push(end(2000, 0, "done"));
    events
}

/// A run's folder with `lines` as its metrics.
fn folder(lines: &str, name: &str, spec: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metrics.jsonl"), lines).unwrap();
    let set = [("optimizer.lr".to_owned(), "--set".to_owned())].into();
    let start = Provenance { name: name.into(), set, ..provenance::sample(dir.path()) };
    provenance::write(&dir.path().join("run.json"), start).unwrap();
    std::fs::write(dir.path().join("job.toml"), spec).unwrap();
    dir
}

fn lines(events: &[Event]) -> String {
    events.iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect()
}

/// The data of a page's script.
pub(super) fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn the_page_is_complete_and_self_contained() {
    let spec = "name = \"cifar10\"\n[model]\nname = \"a<b\"\n[optimizer]\nlr = 0.1\n";
    let dir = folder(&lines(&events()), "cifar10-<resnet18></script>", spec);
    let page = std::fs::read_to_string(write(dir.path()).unwrap()).unwrap();
    for part in [
        "<span class=\"title\">Loss</span>",
        "Learning rate",
        "<span class=\"title\">Accuracy</span>",
        "<h2>Epochs</h2>",
        "<li>resumed at step 1200 from checkpoints/step-00001200 on 1 process</li>",
        "<h2>Provenance</h2>",
        "cifar10-&lt;resnet18&gt;",
        "&quot;a&lt;b&quot;",
        "<mark class=\"override\">lr = 0.1<i>--set</i></mark>",
        "state good",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<tr><td>").count(), 20, "one row an epoch");
    for bad in ["http://", "https://", "NaN", "src=", "href="] {
        // The script may ask whether a number is one.
        let found = page.split("<script>").next().unwrap().contains(bad);
        assert!(!found, "{bad} in the page");
    }
    for outside in ["http", "import ", "fetch(", "eval(", "innerHTML"] {
        assert!(!page.split("<script>").nth(1).unwrap().contains(outside), "{outside} in the script");
    }
    assert_eq!(page.matches("</script>").count(), 2, "no name ends a script");
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn the_policy_allows_exactly_the_script_of_the_page() {
    use sha2::Digest;
    let page = render(&run(events()));
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let hash = data_encoding::BASE64.encode(&sha2::Sha256::digest(script));
    assert!(page.contains(&format!("style-src 'unsafe-inline'; script-src 'sha256-{hash}'\">")), "{hash}");
}

#[test]
fn the_script_gets_every_chart_with_its_marks() {
    let page = render(&run(events()));
    let data = data_of(&page);
    let figures = data["figures"].as_array().unwrap();
    assert_eq!(page.matches("<figure class=\"chart\">").count(), figures.len());
    let loss = &figures[0]["series"];
    assert_eq!((loss[0]["y"].as_array().unwrap().len(), loss[1]["y"].as_array().unwrap().len()), (2000, 20));
    assert_eq!((&loss[0]["name"], &loss[1]["name"]), (&"training".into(), &"validation".into()));
    let kinds: Vec<&str> =
        data["marks"].as_array().unwrap().iter().map(|mark| mark["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["resume", "end"]);
    assert_eq!(data["runs"][0]["axis"]["epoch"].as_array().unwrap().last(), Some(&20.0.into()));
    assert!(data["runs"][0]["axis"]["time"].as_array().unwrap().is_empty(), "lines of an early version");
}

#[test]
fn a_million_steps_make_a_page_of_less_than_two_megabytes() {
    let mut events = Vec::new();
    for number in 1..=1_000_000u64 {
        events.push(step(number, 1.0 / number as f64 + (number % 97) as f64 / 100.0));
        if number % 100 == 0 {
            events.push(epoch(number / 100 - 1, number, 0.5));
        }
    }
    let mut run = run(events);
    for (i, record) in run.records.iter_mut().enumerate() {
        record.time = Some(1e9 + i as f64 * 0.0123);
    }
    let names = ["data", "forward", "backward", "comm", "optimizer", "checkpoint", "other"];
    let window = |step: u64| {
        let means = vec![1e-3 + (step % 89) as f64 * 1.2345e-5; names.len()];
        records::Window { step, means, overlap: Some(0.5) }
    };
    run.anatomy = Anatomy {
        phases: names.into(),
        windows: (1..=1_000_000).map(window).collect(),
        sums: vec![vec![1.0; names.len()]; 64],
        summed: 1_000_000,
    };
    let page = render(&run);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(
        page.contains("<td>10000</td>") && page.matches("<tr><td>").count() < 1100,
        "epochs up to the last"
    );
}

#[test]
fn the_slowest_rank_has_the_most_work_of_its_own() {
    let mut run = run(vec![step(10, 1.0), step(20, 1.0)]);
    for step in [10, 20] {
        let (forward, comm) = (vec![0.010, 0.030], vec![0.025, 0.001]);
        let times = RankTimes { forward, comm, ..samples::no_times(2) };
        run.anatomy.add(step, &times, None);
    }
    let page = render(&run);
    let row = "<tr class=\"slow\"><td>1</td><td>0</td><td>30.00</td><td>0</td><td>1.000</td><td>0</td><td>0</td><td>0</td><td>slowest</td></tr>";
    assert!(page.contains(row) && page.matches("slowest</td>").count() == 1, "{page}");
    assert_eq!(data_of(&page)["figures"].as_array().unwrap().last().unwrap()["stacked"], true);
}

#[test]
fn ranks_that_differ_by_little_are_not_marked() {
    let slow = |forward: &[f64]| {
        let mut run = run(vec![step(10, 1.0)]);
        let times = RankTimes { forward: forward.to_vec(), ..samples::no_times(forward.len()) };
        run.anatomy.add(10, &times, None);
        let page = render(&run);
        assert!(page.contains("<h2>Time per step, by rank</h2>"), "{page}");
        page.contains("slowest</td>")
    };
    assert!(!slow(&[0.100, 0.104]) && slow(&[0.100, 0.106]));
    // The median counts, not the fastest rank.
    assert!(!slow(&[0.050, 0.100, 0.104]) && slow(&[0.050, 0.100, 0.100, 0.106]));
    assert!(!slow(&[0.100]));
}

#[test]
fn runs_are_compared_in_results_spec_and_environment() {
    let mut other = events();
    other.iter_mut().for_each(|event| {
        if let Event::Epoch(it) = event {
            it.val = Some(Metrics::new(0.1).with("accuracy", 0.99));
        }
    });
    let first = folder(&lines(&events()), "first", "[optimizer]\nlr = 0.1\nname = \"sgd\"\n");
    let second = folder(&lines(&other), "second", "[optimizer]\nlr = 0.2\nname = \"sgd\"\n");
    let out = first.path().join("compare.html");
    let folders = [first.path(), second.path()];
    write_to(&folders, &out).unwrap();
    let page = std::fs::read_to_string(&out).unwrap();
    for part in [
        "<h1>2 runs</h1>",
        "<td class=\"best\">99.00 %</td>",
        "<tr><th>optimizer.lr</th><td>0.1</td><td>0.2</td></tr>",
        "The environments are the same.",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(!page.contains("<th>optimizer.name</th>"), "what is the same is left out");
    assert_eq!(data_of(&page)["runs"].as_array().unwrap().len(), 2);
    let error = write_to(&folders, &second.path().join("report.html")).unwrap_err();
    assert!(error.message.contains("report.html is the report of"), "{}", error.message);
    assert!(!second.path().join("report.html").exists());
}

#[test]
fn a_run_without_an_epoch_has_no_time_in_epochs() {
    let begun: Vec<Event> = events().into_iter().filter(|event| !matches!(event, Event::Epoch(_))).collect();
    let first = folder(&lines(&events()), "first", "");
    let second = folder(&lines(&begun), "second", "");
    let out = first.path().join("compare.html");
    write_to(&[first.path(), second.path()], &out).unwrap();
    let page = std::fs::read_to_string(&out).unwrap();
    assert!(page.contains("<td>0</td><td>2000</td><td>–</td>") && !page.contains("-0 ms"), "{page}");
}

#[test]
fn tables_of_many_runs_and_metrics_fit_the_page() {
    let metrics = |loss| Metrics::new(loss).with("accuracy", 0.5).with("top5", 0.5).with("perplexity", 1.5);
    let mut events = events();
    events.iter_mut().for_each(|event| {
        if let Event::Epoch(it) = event {
            (it.train, it.val) = (metrics(0.25), Some(metrics(0.5)));
        }
    });
    let spec = |at: usize| format!("[optimizer]\nlr = 0.{at}\n[train]\nclip_norm = {at}.5\n");
    let folders: Vec<_> = (1..8).map(|at| folder(&lines(&events), &format!("run {at}"), &spec(at))).collect();
    let out = folders[0].path().join("compare.html");
    write_to(&folders.iter().map(|folder| folder.path()).collect::<Vec<_>>(), &out).unwrap();
    let page = std::fs::read_to_string(&out).unwrap();
    let section = |title: &str| {
        let all = page.split("<section").find(|section| section.contains(title)).unwrap();
        all.split("<table>").skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let results = section("<h2>Results</h2>");
    assert_eq!(results.len(), 2, "two tables of at most 1130 pixels");
    assert!(results.iter().all(|table| table.matches(">run 7</span></th>").count() == 1), "{results:?}");
    assert!(results[0].contains("<th>best val top5</th>") && !results[0].contains("perplexity"));
    let last = "<th>train perplexity</th><th>val perplexity</th><th>best val perplexity</th>";
    assert!(results[1].contains(last) && !results[1].contains("top5"), "{results:?}");
    let differences = section("<h2>Differences of the specs</h2>");
    assert!(differences[0].contains("<th></th><th>optimizer.<wbr>lr</th>"), "{differences:?}");
    assert!(differences[0].contains("run 7</span></th><td>0.7</td><td>7.5</td>"), "{differences:?}");
}

#[test]
fn runs_of_one_name_are_shown_by_their_folders() {
    let folders = [Path::new("runs/a"), Path::new("runs/b")];
    assert_eq!(names(&folders, &[run(vec![]), run(vec![])]), ["runs/a", "runs/b"]);
}

#[test]
fn renders_a_run_without_events() {
    let page = render(&run(vec![]));
    assert!(page.contains("not ended") && page.contains("<h1>toy</h1>"));
    assert!(!page.contains("<svg") && !page.contains("<script"), "{page}");
}

#[test]
fn shows_the_reason_of_a_failed_run() {
    let page = render(&run(vec![end(317, 90, "rank 1 <died>")]));
    assert!(page.contains("rank 1 &lt;died&gt; (exit code 90)"));
    // Not every step has an event.
    assert!(page.contains("<dt>steps</dt><dd>317</dd>"), "{page}");
}

#[test]
fn a_language_model_has_rates_in_tokens_and_operations() {
    let [tokens_per_s, flops_per_s, mfu] = [64_000.0, 2.5e11, 0.412].map(Some);
    let event = EpochEvent { tokens_per_s, flops_per_s, mfu, ..samples::epoch(0, 0.5) };
    let mut out = String::new();
    sections::tiles(&mut out, &run(vec![Event::Epoch(event)]));
    for tile in [
        "<dt>tokens/s</dt><dd>64000</dd>",
        "<dt>model GFLOP/s</dt><dd>250</dd>",
        "<dt>MFU</dt><dd>41.2 %</dd>",
    ] {
        assert!(out.contains(tile), "{out}");
    }
    out.clear();
    sections::tiles(&mut out, &run(vec![Event::Epoch(samples::epoch(0, 0.5))]));
    assert!(!out.contains("MFU") && !out.contains("tokens"), "{out}");
}
