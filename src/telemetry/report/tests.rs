use super::*;
use crate::telemetry::{Metrics, ResumeEvent};

/// A run of 20 epochs of 100 steps, resumed once.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for step in 1..=2000u64 {
        let x = step as f64 / 2000.0;
        let noise = ((step * 7919) % 1009) as f64 / 1009.0 - 0.5;
        events.push(Event::Step(StepEvent {
            step,
            epoch: (step - 1) / 100,
            loss: 2.3 * (-3.0 * x).exp() + 0.25 + 0.3 * noise * (1.0 - 0.6 * x),
            lr: 5e-4 * (1.0 + (std::f64::consts::PI * x).cos()) / 2.0,
            samples_per_s: 3600.0 + 300.0 * noise,
            grad_norm: None,
            data_wait: 0.0,
            times: None,
            overlap: None,
        }));
        if step % 100 == 0 {
            let loss = 2.3 * (-3.0 * x).exp() + 0.25;
            events.push(Event::Epoch(EpochEvent {
                epoch: step / 100 - 1,
                train: Metrics::new(loss).with("accuracy", 1.0 - loss / 3.0),
                val: Some(Metrics::new(loss + 0.15 * x).with("accuracy", 0.95 - loss / 3.0).samples(5000)),
                seconds: 12.5,
                step,
                lr: 5e-4 * (1.0 - x),
                samples_per_s: 3600.0,
                data_wait: 0.001,
            }));
        }
        if step == 1200 {
            events.push(Event::Resume(ResumeEvent {
                step,
                epoch: 12,
                path: "checkpoints/step-00001200".into(),
                world: 1,
                global_batch: 8,
                accumulate: 1,
            }));
        }
    }
    events.push(Event::End(EndEvent {
        step: 2000,
        epoch: 20,
        reason: "done".into(),
        exit_code: 0,
        seconds: 260.0,
    }));
    events
}

#[test]
fn the_page_is_complete_and_self_contained() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = events().iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect();
    std::fs::write(dir.path().join("metrics.jsonl"), lines).unwrap();
    let start = Provenance { name: "cifar10-<resnet18>".into(), ..provenance::sample(dir.path()) };
    provenance::write(&dir.path().join("run.json"), start).unwrap();
    std::fs::write(dir.path().join("job.toml"), "name = \"cifar10\"\n[model]\nname = \"a<b\"\n").unwrap();
    let page = std::fs::read_to_string(write(dir.path()).unwrap()).unwrap();
    for part in [
        "Training loss",
        "Learning rate",
        "Accuracy per epoch",
        "Loss per epoch",
        "<h2>Epochs</h2>",
        "<li>resumed at step 1200 from checkpoints/step-00001200 on 1 process</li>",
        "<h2>Provenance</h2>",
        "cifar10-&lt;resnet18&gt;",
        "&quot;a&lt;b&quot;",
        "state good",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<tr><td>").count(), 20, "one row an epoch");
    for bad in ["<script", "http://", "https://", "NaN", "src=", "href="] {
        assert!(!page.contains(bad), "{bad} in the page");
    }
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

#[test]
fn renders_a_run_without_events() {
    let page = render("empty", &[], None, None);
    assert!(page.contains("not ended") && page.contains("<h1>empty</h1>"));
    assert!(!page.contains("<svg"));
}

#[test]
fn shows_the_reason_of_a_failed_run() {
    let end = EndEvent { step: 317, epoch: 0, reason: "rank 1 <died>".into(), exit_code: 90, seconds: 1.0 };
    let page = render("x", &[Event::End(end)], None, None);
    assert!(page.contains("rank 1 &lt;died&gt; (exit code 90)"));
    // Not every step has an event.
    assert!(page.contains("<dt>steps</dt><dd>317</dd>"), "{page}");
}
