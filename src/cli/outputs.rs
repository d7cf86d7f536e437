//! The files that commands write where a user says.

use base::error::{Error, Result};
use record::history::is_of_a_run;
use std::path::Path;

/// Checks that writing `out` destroys neither what the command reads nor a run.
///
/// # Errors
/// Exit code 2: it is one of `inputs`, or a file of a run or of a checkpoint.
pub fn destroys_nothing(out: &Path, inputs: &[&Path]) -> Result<()> {
    let whole = |path: &Path| path.canonicalize().ok();
    let what = match () {
        () if whole(out)
            .is_some_and(|out| inputs.iter().any(|input| whole(input).as_ref() == Some(&out))) =>
        {
            "is one of the inputs"
        }
        () if is_of_a_run(out) => "is a file of a run",
        () => return Ok(()),
    };
    Err(Error::usage(format!("{} {what}: it is not replaced", out.display()))
        .hint("name another file to write"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use record::provenance;
    use std::fs;

    #[test]
    fn inputs_and_files_of_runs_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let input = path("in.csv");
        fs::write(&input, "a\n").unwrap();
        let refused = |name: &str| {
            let done = destroys_nothing(&path(name), &[&input, Path::new("-")]);
            done.inspect_err(|e| assert_eq!(e.kind, ErrorKind::Usage)).is_err()
        };
        let checkpoint = path("checkpoints/step-00000008");
        fs::create_dir_all(&checkpoint).unwrap();
        let names = ["in.csv", "metrics.jsonl", "checkpoints/step-00000008/model.safetensors", "out.csv"];
        assert_eq!(names.map(refused), [true, false, false, false]);
        provenance::write(&path("run.json"), provenance::sample(dir.path())).unwrap();
        fs::write(checkpoint.join("state.json"), "{}").unwrap();
        assert_eq!(names.map(refused), [true, true, true, false]);
        assert!(refused("./checkpoints/../in.csv") && !refused("report.html"));
    }
}
