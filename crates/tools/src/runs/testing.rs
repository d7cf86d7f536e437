//! Runs with fixed values.

use super::course::{Course, RankedBy};
use super::folder::{RunFolder, RunStatus};
use record::provenance::{Git, Provenance, RunFile, Versions};
use record::{EndEvent, Event, Host, RunId, samples};
use spec::values;

/// A start on the 21st of November.
pub fn provenance(name: &str) -> Provenance {
    Provenance {
        started: "2026-11-21T03:35:00Z".to_owned(),
        name: name.to_owned(),
        spec_hash: "5ca1e".to_owned(),
        spec_digest: None,
        argv: Vec::new(),
        world: 2,
        devices: vec!["cpu".to_owned(); 2],
        backend: "gloo".to_owned(),
        launcher: "ddp-run".to_owned(),
        run: RunId::default(),
        parent: None,
        git: Some(Git { commit: "c0ffee".to_owned(), dirty: Some(true) }),
        versions: Versions { ddp_run: "0.1.0".to_owned(), burn: "0.22".to_owned(), rustc: None, build: None },
        host: Host {
            name: "n1".to_owned(),
            os: "Debian".to_owned(),
            kernel: "Linux 6".to_owned(),
            arch: "x86_64".to_owned(),
            cpu: "EPYC".to_owned(),
            cores: 2,
        },
        set: Default::default(),
    }
}

pub fn epoch(epoch: u64, accuracy: f64) -> Event {
    Event::Epoch(samples::epoch(epoch, accuracy))
}

/// A run of three epochs, of which these were trained; it ended with `code` for this reason.
pub fn run(name: &str, lr: &str, accuracies: &[f64], (code, reason): (u8, &str)) -> RunFolder {
    let by = RankedBy { metric: "val.accuracy".to_owned(), prefers_larger: true };
    let mut course = Course::default();
    for (number, accuracy) in (0..).zip(accuracies) {
        course.add(epoch(number, *accuracy), Some(&by));
    }
    let (step, epochs) = (course.step, course.epochs);
    let end = EndEvent { step, epoch: epochs, reason: reason.to_owned(), exit_code: code, seconds: 7.5 };
    course.add(Event::End(end), Some(&by));
    let start = provenance(name);
    RunFolder {
        folder: format!("runs/{name}").into(),
        name: name.to_owned(),
        archived: false,
        state: match code {
            0 => RunStatus::Done,
            _ => RunStatus::Failed { code: Some(code), reason: reason.to_owned() },
        },
        started: start.started.clone(),
        problems: Vec::new(),
        starts: Some(RunFile { latest: start, earlier: Vec::new() }),
        spec: values(&format!("name = \"{name}\"\nepochs = 3\n[optimizer]\nname = \"sgd\"\nlr = {lr}\n")),
        by: Some(by),
        course,
        checkpoints: Vec::new(),
        bytes: 2048,
    }
}

/// One that is done, and one that failed a day later.
pub fn two() -> Vec<RunFolder> {
    let first = run("a", "0.1", &[0.75, 0.875, 0.5], (0, "done"));
    let mut second = run("b", "2e-1", &[0.5], (92, "the loss is not finite"));
    second.started = "2026-11-22T03:35:00Z".to_owned();
    vec![first, second]
}
