//! A start of a run that is complete: does what the run was killed before, between its last line and its end.

use super::messages::warn;
use base::error::Result;
use base::files;
use checkpoint::{CheckpointConfig, CheckpointStore};
use record::history::{Start, checkpoints};
use record::{evaluations, report};

/// Removes what is left of files that were being written, and checkpoints that are not to be kept, and writes the report if it is missing or
/// older than the metrics. What fails is a warning: the run is complete.
pub(super) fn tidy(start: &Start<'_>, config: &CheckpointConfig) {
    for done in [prune(start, config), report::refresh(start.out_dir)] {
        done.unwrap_or_else(|e| warn(&e.message));
    }
    evaluations::remove_unfinished(start.out_dir);
    start.remove_unfinished();
}

fn prune(start: &Start<'_>, config: &CheckpointConfig) -> Result<()> {
    let folder = checkpoints(start.out_dir);
    if !folder.is_dir() {
        return Ok(());
    }
    let store = CheckpointStore::open(folder)?;
    // With another spec the run may have been told to keep more.
    let own = files::read(&start.out_dir.join("job.toml")).is_ok_and(|own| own == start.job_toml.as_bytes());
    if own { store.retain(config).map(drop) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::worker::testing::{SPEC, TestRun};
    use std::fs;

    #[test]
    fn the_next_start_of_a_complete_run_finishes_what_a_kill_left() {
        let run = TestRun::new(SPEC);
        let sets = ["checkpoint.keep_last=2", "checkpoint.keep_best=0"];
        run.train(1, &sets).unwrap();
        let (out, kept) = (run.out(), run.kept());
        let path = |name: &str| out.join(name);
        // As killed before the last removal and before the report.
        let copy = |from: u64, to: u64| {
            let [from, to] = [from, to].map(|step| path(&format!("checkpoints/step-{step:08}")));
            fs::create_dir(&to).unwrap();
            for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        };
        copy(kept[0], 1);
        fs::remove_file(path("report.html")).unwrap();
        fs::create_dir_all(path("evaluations")).unwrap();
        let begun =
            ["evaluations/.step-00000004.json.part-0123456789abcdef", ".profile.json.part-0123456789abcdef"];
        begun.iter().for_each(|name| fs::write(path(name), "").unwrap());
        fs::write(path(".mine.part-0123456789abcdef"), "").unwrap();
        let metrics = fs::read(path("metrics.jsonl")).unwrap();
        let own = fs::read(path("job.toml")).unwrap();
        fs::write(path("job.toml"), "# another spec, which may keep more").unwrap();
        run.train(1, &sets).unwrap();
        assert_eq!(run.kept().len(), 3);
        fs::write(path("job.toml"), own).unwrap();
        fs::remove_file(path("report.html")).unwrap();
        run.train(1, &sets).unwrap();
        assert_eq!(run.kept(), kept);
        assert!(path("report.html").is_file() && begun.iter().all(|name| !path(name).exists()));
        assert!(path(".mine.part-0123456789abcdef").is_file());
        assert_eq!(fs::read(path("metrics.jsonl")).unwrap(), metrics);
    }
}
