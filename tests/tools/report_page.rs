//! `ddp-run report`: its pages in a headless Chromium. Skipped with a printed line where none is installed.
//! `REPORT_SCREENSHOTS=DIR cargo test --test tools report_page` writes what they look like.

use crate::common::browser::Browser;
use crate::common::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const WINDOWS: [[u32; 2]; 2] = [[400, 900], [1200, 1000]];

/// The folder of a run of 600 steps in 6 epochs on 2 ranks, which was killed once and resumed on 4.
fn made_up(root: &Path, name: &str, lr: f64) -> PathBuf {
    let folder = root.join(name);
    std::fs::create_dir(&folder).unwrap();
    let mut lines = Vec::new();
    let mut time = 1.7e9;
    for step in 1..=600u64 {
        time += 0.5;
        let x = step as f64 / 600.0;
        let loss = 2.0 * (-3.0 * x / lr).exp() + 0.2 + 0.2 * (((step * 7919) % 101) as f64 / 101.0 - 0.5);
        let world = if step <= 300 { 2 } else { 4 };
        let ranks =
            |mean: f64| (0..world).map(|rank| mean * (1.0 + 0.1 * f64::from(rank))).collect::<Vec<_>>();
        lines.push(json!({
            "event": "step", "step": step, "epoch": (step - 1) / 100, "loss": loss, "lr": lr * (1.0 - x),
            "samples_per_s": 900.0, "grad_norm": 1.0 + x, "data_wait": 0.01,
            "times": {
                "data": ranks(1e-3), "forward": ranks(2e-2), "backward": ranks(4e-2), "comm": ranks(5e-3),
                "optimizer": ranks(3e-3), "checkpoint": ranks(1e-4), "other": ranks(1e-4),
            },
            "overlap": 0.8, "time": time,
        }));
        if step % 100 == 0 {
            let metrics = |loss: f64| json!({ "loss": loss, "accuracy": 1.0 - loss / 4.0, "n": 500 });
            lines.push(json!({
                "event": "epoch", "epoch": step / 100 - 1, "train": metrics(loss), "val": metrics(loss + 0.1),
                "seconds": 50.0, "step": step, "lr": 0.1, "samples_per_s": 900.0, "data_wait": 0.01, "time": time,
            }));
            lines.push(json!({
                "event": "checkpoint", "step": step, "epoch": step / 100, "path": format!("checkpoints/step-{step:08}"),
                "bytes": 1_000_000, "seconds": 0.1, "held_up_s": 0.01, "time": time,
            }));
        }
        if step == 300 {
            lines.push(json!({
                "event": "end", "step": 300, "epoch": 3, "reason": "rank 1 was <killed>", "exit_code": 90,
                "seconds": 150.0, "time": time,
            }));
            time += 86_400.0;
            lines.push(json!({
                "event": "resume", "step": 300, "epoch": 3, "path": "checkpoints/step-00000300", "world": 4,
                "global_batch": 32, "accumulate": 1, "time": time,
            }));
        }
    }
    lines.push(json!({
        "event": "end", "step": 600, "epoch": 6, "reason": "done", "exit_code": 0, "seconds": 300.0, "time": time,
    }));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(folder.join("metrics.jsonl"), text).unwrap();
    let spec = format!(
        "name = \"{name}\"\nseed = 1\n\n[optimizer]\nname = \"sgd\"\nlr = {lr}\nbetas = [\n    0.9,\n]\n"
    );
    std::fs::write(folder.join("job.toml"), spec).unwrap();
    let start = |world: usize| {
        json!({
            "started": "2026-11-23T05:03:55Z", "name": name, "spec_hash": "abc", "argv": ["ddp-run", "job.toml"],
            "world": world, "devices": vec!["cpu"; world], "backend": "gloo", "launcher": "ddp-run",
            "run": { "job": "a", "attempt": 1, "start": "a" }, "git": null,
            "versions": { "ddp_run": "0.1.0", "burn": "0.22.1", "rustc": null },
            "host": { "name": "vm", "os": "Debian", "kernel": "Linux 6", "arch": "x86_64", "cpu": "AMD EPYC", "cores": 2 },
            "set": { "name": "spec", "optimizer.lr": "--set" },
        })
    };
    let mut file = start(4);
    file["earlier"] = json!([start(2)]);
    std::fs::write(folder.join("run.json"), file.to_string()).unwrap();
    folder
}

/// The page that `ddp-run report` writes with these arguments.
fn reported(arguments: &[&Path], in_folder: &Path) -> PathBuf {
    in_folder.join(stdout_of(ddp_run().arg("report").args(arguments).current_dir(in_folder)).trim())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Opens the page in every window and scheme, and checks what holds for all pages.
fn is_sound_everywhere(browser: &mut Browser, page: &Path, name: &str) {
    for (window, dark) in [(WINDOWS[0], false), (WINDOWS[0], true), (WINDOWS[1], false), (WINDOWS[1], true)] {
        browser.open(page, window, dark);
        let place = format!("{name} {} px, {}", window[0], if dark { "dark" } else { "light" });
        assert_eq!(browser.complaints, [""; 0], "{place}");
        assert_eq!(browser.eval("document.documentElement.className"), "scripted", "{place}");
        let sizes = browser.eval("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)");
        assert!(number(&sizes[0]) <= number(&sizes[1]), "{place}: it scrolls sideways: {sizes}");
        if window[0] >= 1200 {
            let cut = "[...document.querySelectorAll('.wide')].filter(t => t.scrollWidth > t.clientWidth).map(t => t.textContent.slice(0, 99))";
            assert_eq!(browser.eval(cut), json!([]), "{place}: tables with columns that are cut");
        }
        let empty = "[...document.querySelectorAll('figure.chart')].filter(f => ![...f.querySelectorAll('svg svg path')]\
                     .some(p => p.getAttribute('d').length > 20)).map(f => f.textContent)";
        assert_eq!(browser.eval(empty), json!([]), "{place}: charts without a line");
        let colour = browser.eval("getComputedStyle(document.body).backgroundColor");
        assert_eq!(colour == "rgb(20, 22, 26)", dark, "{place}: {colour}");
        let small = "[...document.querySelectorAll('figure svg text')].filter(t => t.getBoundingClientRect().height < 9).length";
        assert_eq!(browser.eval(small), 0, "{place}: illegible labels");
        browser.screenshot(&format!("{name}-{}-{}", window[0], if dark { "dark" } else { "light" }));
    }
}

#[test]
fn the_page_of_a_run() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let page = reported(&[&made_up(root.path(), "toy", 1.0)], root.path());
    is_sound_everywhere(&mut browser, &page, "run");
    let titles =
        browser.eval("[...document.querySelectorAll('figure.chart .title')].map(t => t.textContent)");
    assert_eq!(
        titles,
        json!([
            "Loss",
            "Accuracy",
            "Learning rate",
            "Gradient norm",
            "Samples per second",
            "Waiting for data",
            "Time per step",
            "Communication beside the backward pass"
        ])
    );
    // The pause of a day is not on the axis: 600 steps of half a second.
    browser.eval("document.querySelector('input[value=time]').click()");
    browser.eval("document.querySelector('figure.chart > svg').focus()");
    browser.press("End");
    let said = browser.eval("document.querySelector('[role=status]').textContent");
    assert!(said.as_str().unwrap().starts_with("step 600 · epoch 6 · 5m00s, training "), "{said}");
}

#[test]
fn the_page_by_keyboard_and_mouse() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let page = reported(&[&made_up(root.path(), "toy", 1.0)], root.path());
    browser.open(&page, WINDOWS[1], false);
    let status = "document.querySelector('[role=status]').textContent";
    let crosses = "document.querySelectorAll('figure.chart .cross').length";
    browser.eval("document.querySelector('figure.chart > svg').focus()");
    browser.press("Home");
    browser.press("ArrowRight");
    let second = browser.eval(status);
    assert!(second.as_str().unwrap().starts_with("step 2 · "), "{second}");
    assert_eq!(browser.eval(crosses), browser.eval("document.querySelectorAll('figure.chart').length"));
    let tips = "[...document.querySelectorAll('.tip')].filter(tip => !tip.hidden).length";
    assert_eq!(browser.eval(tips), 1, "one tooltip, in the chart that has the focus");
    // Zoom by keys, back by Escape.
    let reset = "document.querySelector('.zoom button:last-child').disabled";
    assert_eq!(browser.eval(reset), true);
    browser.press("+");
    assert_eq!(browser.eval(reset), false);
    browser.press("Escape");
    assert_eq!((browser.eval(reset), browser.eval(crosses)), (json!(true), json!(0)));
    // Zoom by a drag over the middle third of the first chart.
    let area = browser.eval("(r => [r.left, r.top, r.width])(document.querySelector('figure.chart > svg').getBoundingClientRect())");
    let at = |share: f64| [number(&area[0]) + share * number(&area[2]), number(&area[1]) + 100.0];
    browser.drag(at(0.4), at(0.7));
    assert_eq!(browser.eval(reset), false);
    let labels = browser.eval(
        "[...document.querySelectorAll('figure.chart > svg > text[text-anchor=middle]')].map(t => +t.textContent)",
    );
    assert!(
        labels.as_array().unwrap().iter().all(|label| (100.0..500.0).contains(&number(label))),
        "{labels}"
    );
    browser.eval("document.querySelector('.zoom button:last-child').click()");
    // A series that is hidden has no line; the rest stays.
    let lines = "document.querySelector('figure.chart').querySelectorAll('path.line').length";
    assert_eq!(browser.eval(lines), 2);
    browser.eval("document.querySelector('figure.chart button.key').click()");
    assert_eq!(
        (browser.eval(lines), browser.eval("document.querySelector('button.key').ariaPressed")),
        (json!(1), json!("false"))
    );
    browser.eval("document.querySelector('figure.chart button.key').click()");
    // Logarithmic: other labels on the y axis.
    let levels = "[...document.querySelector('figure.chart > svg').querySelectorAll('text[text-anchor=end]')].map(t => t.textContent).join()";
    let linear = browser.eval(levels);
    browser.eval("document.querySelector('.check input').click()");
    assert_ne!(browser.eval(levels), linear);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn labels_of_a_narrow_zoom_differ() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let page = reported(&[&made_up(root.path(), "toy", 1.0)], root.path());
    browser.open(&page, WINDOWS[1], false);
    for axis in ["step", "epoch", "time"] {
        browser.eval(&format!("document.querySelector('input[value={axis}]').click()"));
        browser.eval("document.querySelector('figure.chart > svg').focus()");
        (0..7).for_each(|_| browser.press("+"));
        let labels = browser.eval(
            "[...document.querySelectorAll('figure.chart > svg')[0].querySelectorAll(':scope > text[text-anchor=middle]')].map(t => t.textContent)",
        );
        let all: Vec<&str> = labels.as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
        assert!(axis != "step" || all.iter().all(|label| label.parse::<u64>().is_ok()), "{labels}");
        let different: std::collections::HashSet<&str> = all.iter().copied().collect();
        assert!(!all.is_empty() && different.len() == all.len(), "{axis}: {labels}");
        browser.press("Escape");
    }
}

/// The page of a run with these losses.
fn with_losses(root: &Path, name: &str, of: impl Fn(f64) -> f64) -> PathBuf {
    let folder = made_up(root, name, 1.0);
    let metrics = folder.join("metrics.jsonl");
    let changed = |line: &str| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        for at in ["/loss", "/train/loss", "/val/loss"] {
            if let Some(loss) = event.pointer_mut(at) {
                *loss = json!(of(number(loss)));
            }
        }
        format!("{event}\n")
    };
    let lines: String = std::fs::read_to_string(&metrics).unwrap().lines().map(changed).collect();
    std::fs::write(&metrics, lines).unwrap();
    reported(&[&folder], root)
}

#[test]
fn charts_of_huge_values_have_short_labels_and_those_of_no_positive_values_say_so() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let huge = with_losses(root.path(), "huge", |loss| loss * 5e34);
    let drawn = huge.with_file_name("drawn.html");
    let text = std::fs::read_to_string(&huge).unwrap();
    std::fs::write(&drawn, text.replace("script-src 'sha256-", "script-src 'sha256-AAAA")).unwrap();
    for page in [&drawn, &huge] {
        browser.open(page, WINDOWS[1], false);
        let labels = "[...document.querySelector('figure.chart > svg').querySelectorAll(':scope > text[text-anchor=end]')].filter(t => !/[a-z]{2}/.test(t.textContent))";
        let all = browser.eval(&format!("{labels}.map(t => t.textContent).join()"));
        assert!(all.as_str().unwrap().contains("e34"), "{all}");
        assert_eq!(browser.eval(&format!("{labels}.every(t => t.getBBox().x >= 0)")), true, "{all}");
    }
    // That the policy has forbidden the script.
    browser.complaints.clear();
    let none = "document.querySelector('figure.chart > svg').textContent.includes('no positive values')";
    browser.eval("document.querySelector('.check input').click()");
    assert_eq!(browser.eval(none), false);
    let zeros = with_losses(root.path(), "zeros", |_| 0.0);
    browser.open(&zeros, WINDOWS[1], false);
    assert_eq!(browser.eval(none), false);
    browser.eval("document.querySelector('.check input').click()");
    assert_eq!(browser.eval(none), true);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_single_step_shows_where_its_time_goes() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = made_up(root.path(), "toy", 1.0);
    let metrics = folder.join("metrics.jsonl");
    let first = std::fs::read_to_string(&metrics).unwrap().lines().next().unwrap().to_owned();
    std::fs::write(&metrics, first + "\n").unwrap();
    let page = reported(&[&folder], root.path());
    let text = std::fs::read_to_string(&page).unwrap();
    let drawn = page.with_file_name("drawn.html");
    std::fs::write(&drawn, text.replace("script-src 'sha256-", "script-src 'sha256-AAAA")).unwrap();
    for (page, scripted) in [(page, true), (drawn, false)] {
        browser.open(&page, WINDOWS[1], false);
        assert_eq!(browser.eval("document.documentElement.className === 'scripted'"), scripted);
        let widths = browser.eval("[...document.querySelectorAll('path.layer')].map(p => p.getBBox().width)");
        let widths = widths.as_array().unwrap();
        assert!(
            !widths.is_empty() && widths.iter().all(|width| number(width) > 5.0),
            "{scripted}: {widths:?}"
        );
    }
}

#[test]
fn the_page_without_scripts() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let page = reported(&[&made_up(root.path(), "toy", 1.0)], root.path());
    let text = std::fs::read_to_string(&page).unwrap();
    // Another hash: the policy forbids the script, as a mail viewer does.
    let forbidden = page.with_file_name("forbidden.html");
    std::fs::write(&forbidden, text.replace("script-src 'sha256-", "script-src 'sha256-AAAA")).unwrap();
    for window in WINDOWS {
        browser.open(&forbidden, window, false);
        assert_eq!(browser.eval("document.documentElement.className"), "");
        let drawn = "[...document.querySelectorAll('figure.chart > svg')].every(svg => svg.querySelector('path.line, path.layer'))";
        assert_eq!(browser.eval(drawn), true);
        let sizes = browser.eval("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)");
        assert!(number(&sizes[0]) <= number(&sizes[1]), "{sizes}");
        browser.screenshot(&format!("static-{}", window[0]));
    }
}

#[test]
fn the_page_of_several_runs() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let runs = [made_up(root.path(), "first", 1.0), made_up(root.path(), "second", 0.5)];
    // As many metrics as a language model has.
    for run in &runs {
        let file = run.join("metrics.jsonl");
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, lines.replace("\"n\":500", "\"top5\":0.5,\"perplexity\":12.5,\"n\":500"))
            .unwrap();
    }
    let page = reported(&[&runs[0], &runs[1]], root.path());
    assert_eq!(page.file_name().unwrap(), "compare.html");
    is_sound_everywhere(&mut browser, &page, "compare");
    let lines = "document.querySelector('figure.chart').querySelectorAll('path.line').length";
    assert_eq!(browser.eval(lines), 2);
    browser.eval("document.querySelector('.runs button').click()");
    assert_eq!(browser.eval(lines), 1);
    let tables = browser.eval(
        "[...document.querySelectorAll('.first table')].map(t => t.tHead.rows[0].lastChild.textContent)",
    );
    assert_eq!(tables, json!(["best val top5", "best val perplexity"]));
    let differs = browser.eval("[...document.querySelectorAll('.words tbody th')].map(t => t.textContent)");
    assert_eq!(differs, json!(["name", "optimizer.lr"]));
}

#[test]
fn a_comparison_never_replaces_the_report_of_a_run() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let runs = [made_up(root.path(), "first", 1.0), made_up(root.path(), "second", 0.5)];
    let out = runs[1].join("report.html");
    let output = output_of(ddp_run().arg("report").args(&runs).arg("--out").arg(&out));
    assert_code(&output, 2);
    assert!(stderr(&output).contains("is the report of"), "{}", stderr(&output));
    assert!(!out.exists());
}

/// A PNG of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Writes an evaluation of classes with long names, and of a text.
fn evaluated(folder: &Path, step: u64, best: bool, classes: usize) {
    let name = |class: usize| format!("class-{class}-of-<a-name-without-any-blanks-that-is-long>");
    let row = |class: usize| json!({ "class": name(class), "support": 110 + class, "predicted": 100 + 2 * class, "right": 90 + class });
    let cell = |class: usize, other: usize| match other {
        _ if other == class => 90 + class,
        0 => 20,
        _ => 0,
    };
    let line = |class: usize| (0..=classes).map(|other| cell(class, other)).collect::<Vec<_>>();
    let sample = |index: usize| {
        json!({
            "index": index, "class": name(index % classes), "predicted": name(0), "probability": 0.75, "loss": 4.0 - 0.1 * index as f64,
            "picture": { "width": 28, "height": 28, "png": PIXEL },
        })
    };
    let mean = json!({ "precision": 0.8, "recall": 0.7, "f1": 0.75 });
    let record = json!({
        "version": 1, "step": step, "epoch": step / 100 - 1, "metric": "val.loss", "value": 0.3, "best": best,
        "classes": {
            "count": classes, "mean": mean, "rows": (0..classes).map(row).collect::<Vec<_>>(),
            "matrix": (0..classes).map(line).collect::<Vec<_>>(),
        },
        "worst": (0..16).map(sample).collect::<Vec<_>>(),
        "texts": [{ "prompt": "ROMEO:\n", "text": format!("<b>\n{}", "o".repeat(300)) }],
    });
    let notes = folder.join("evaluations");
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join(format!("step-{step:08}.json")), record.to_string()).unwrap();
}

#[test]
fn the_page_of_a_run_with_evaluations() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = made_up(root.path(), "toy", 1.0);
    evaluated(&folder, 500, true, 20);
    evaluated(&folder, 600, false, 20);
    let page = reported(&[&folder], root.path());
    // The policy allows the pictures, and nothing overflows.
    is_sound_everywhere(&mut browser, &page, "evaluations");
    let heads = browser.eval("[...document.querySelectorAll('.evaluation h2')].map(h => h.textContent)");
    assert_eq!(heads, json!(["Best evaluation", "Last evaluation"]));
    let shown = browser.eval("[...document.querySelectorAll('.samples img')].filter(i => i.complete && i.naturalWidth === 1).length");
    assert_eq!(shown, 32);
    // Rows of the matrix sum to the samples of the class.
    let cells = browser.eval("[...document.querySelector('.matrix tbody tr:nth-child(3)').querySelectorAll('td')].map(c => +c.textContent)");
    assert_eq!(cells.as_array().unwrap().iter().map(number).sum::<f64>(), 112.0);
    let text = browser.eval("document.querySelector('blockquote').textContent.slice(0, 12)");
    assert_eq!(text, "ROMEO:\n<b>\no");
}

#[test]
fn the_matrix_fits_its_box_at_every_number_of_classes() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = made_up(root.path(), "toy", 1.0);
    for classes in [2, 3, 10, 20, 32] {
        evaluated(&folder, 600, true, classes);
        let page = reported(&[&folder], root.path());
        for window in [WINDOWS[0], [1280, 1000]] {
            browser.open(&page, window, false);
            let sizes = browser.eval(
                "(box => [box.scrollWidth, box.clientWidth, box.querySelector('table').offsetWidth])(document.querySelector('.fit .wide'))",
            );
            let [inside, outside, table] = [0, 1, 2].map(|i| number(&sizes[i]));
            assert!(inside <= outside && table >= outside - 1.0, "{classes} classes, {window:?}: {sizes}");
            browser.eval("document.querySelector('.fit').scrollIntoView()");
            browser.screenshot(&format!("matrix-{classes}-{}", window[0]));
        }
    }
}

#[test]
fn checkpoints_that_are_too_close_are_marked_by_a_zoom() {
    let _alone = alone();
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let folder = made_up(root.path(), "toy", 1.0);
    let marks = "document.querySelector('figure.chart').querySelectorAll('.mark.checkpoint').length";
    let word = "document.querySelector('.marks .checkpoints').textContent";
    browser.open(&reported(&[&folder], root.path()), WINDOWS[1], false);
    assert_eq!((browser.eval(marks), browser.eval(word)), (json!(6), json!("checkpoint")));
    let metrics = folder.join("metrics.jsonl");
    let save = |step: u64| {
        json!({
            "event": "checkpoint", "step": step, "epoch": step / 100, "path": format!("checkpoints/step-{step:08}"),
            "bytes": 1000, "seconds": 0.1, "held_up_s": 0.01, "time": 1.7e9,
        })
    };
    let more: String = (1..=600).map(|step| format!("{}\n", save(step))).collect();
    std::fs::write(&metrics, std::fs::read_to_string(&metrics).unwrap() + &more).unwrap();
    browser.open(&reported(&[&folder], root.path()), WINDOWS[1], false);
    assert_eq!(browser.eval(marks), 0);
    let crowded = browser.eval(word);
    assert!(
        crowded.as_str().unwrap().starts_with("checkpoints: not marked where they are too close; a zoom")
    );
    browser.eval("document.querySelector('figure.chart > svg').focus()");
    (0..4).for_each(|_| browser.press("+"));
    assert!(number(&browser.eval(marks)) >= 30.0 && browser.eval(word) == "checkpoint");
}
