//! The specs that the starts of a run had, as its folder has them.

use super::job::EditedSpec;
use base::error::{IoContext, Result};
use base::files;
use record::Provenance;
use record::history::spec_of;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Keys that results do not depend on, but which steps there are, and what is recorded of them: how far a start trains, what a resize
/// keeps, the steps that have a line (its loss is the mean since the line before), and those that are saved.
const COURSE: [&str; 4] = ["train.stop_after", "train.on_resize", "metrics.log_every", "save_every"];

/// A spec that steps were trained with.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// As `run.json` has it.
    pub hash: String,
    /// A file with a spec of this hash, and its text.
    pub file: PathBuf,
    pub text: String,
    /// What is run again.
    pub job: EditedSpec,
}

/// The specs of some starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Specs {
    pub all: Vec<Spec>,
    /// By start: its index in `all`; `None` if the folder does not have it.
    pub of_starts: Vec<Option<usize>>,
}

impl Specs {
    /// Those of `starts`, oldest first, of the run in `folder`.
    ///
    /// # Errors
    /// A file can't be read (74), or is not TOML (78).
    pub fn read(folder: &Path, starts: &[&Provenance]) -> Result<Self> {
        let Some(last) = starts.last() else { return Ok(Self::default()) };
        let own: Vec<Option<PathBuf>> = starts.iter().map(|start| file_of(folder, start, last)).collect();
        let mut texts = BTreeMap::new();
        for file in own.iter().flatten() {
            if !texts.contains_key(file) {
                let text = files::read_text(file).doing("read", file)?;
                let job = EditedSpec::parse(file, &text)?;
                texts.insert(file, (text, job));
            }
        }
        // By hash: the spec of the last start that has it. Where data is, and how a run is started, may have changed since, and no earlier
        // values have to be right any more.
        let latest: BTreeMap<&str, &PathBuf> = starts
            .iter()
            .zip(&own)
            .filter_map(|(start, file)| Some((start.spec_hash.as_str(), file.as_ref()?)))
            .collect();
        let mut specs = Self::default();
        for (start, own) in starts.iter().zip(&own) {
            let known = own.as_ref().map(|own| {
                let hash = start.spec_hash.as_str();
                let file = latest[hash];
                let (text, job) = &texts[file];
                let job = job.with(&texts[own].1, &COURSE);
                specs.number_of(Spec { hash: hash.to_owned(), file: file.clone(), text: text.clone(), job })
            });
            specs.of_starts.push(known);
        }
        Ok(specs)
    }

    fn number_of(&mut self, spec: Spec) -> usize {
        self.all.iter().position(|known| *known == spec).unwrap_or_else(|| {
            self.all.push(spec);
            self.all.len() - 1
        })
    }
}

/// The file with the spec of a start.
fn file_of(folder: &Path, start: &Provenance, last: &Provenance) -> Option<PathBuf> {
    let is_last = (&start.spec_hash, &start.spec_digest) == (&last.spec_hash, &last.spec_digest);
    // Early versions kept the first text of a hash only.
    let kept = spec_of(folder, start).filter(|_| !is_last || start.spec_digest.is_some());
    kept.filter(|file| file.is_file()).or_else(|| is_last.then(|| folder.join("job.toml")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::provenance;
    use std::fs;

    /// The folder of a run, whose starts have these hashes and specs; the last one is `job.toml`, too.
    fn run(starts: &[(&str, &str)]) -> (tempfile::TempDir, Vec<Provenance>) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("specs")).unwrap();
        let mut all = Vec::new();
        for (number, (hash, text)) in starts.iter().enumerate() {
            let digest = format!("d{number}");
            fs::write(dir.path().join(format!("specs/{digest}.toml")), text).unwrap();
            fs::write(dir.path().join("job.toml"), text).unwrap();
            let (spec_hash, spec_digest) = ((*hash).to_owned(), Some(digest));
            all.push(Provenance { spec_hash, spec_digest, ..provenance::sample(dir.path()) });
        }
        (dir, all)
    }

    fn specs(folder: &Path, starts: &[Provenance]) -> (Vec<Option<usize>>, Vec<String>) {
        let specs = Specs::read(folder, &starts.iter().collect::<Vec<_>>()).unwrap();
        let text = |spec: &Spec| spec.job.text().replace('\n', " ").trim().to_owned();
        (specs.of_starts, specs.all.iter().map(text).collect())
    }

    #[test]
    fn starts_with_the_same_results_may_have_had_another_course() {
        let long = "root = \"/old\"\n[train]\nstop_after = 1\n";
        let (dir, starts) = run(&[
            ("a", long),
            ("a", "root = \"/new\"\n[metrics]\nlog_every = 5\n"),
            ("a", "root = \"/new\"\n[launch]\nthreads = 2\n[metrics]\nlog_every = 5\n"),
            ("b", "root = \"/b\"\n"),
        ]);
        let (of_starts, all) = specs(dir.path(), &starts);
        assert_eq!(of_starts, [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(
            all,
            [
                "root = \"/new\"  [launch] threads = 2  [metrics]  [train] stop_after = 1",
                "root = \"/new\"  [launch] threads = 2  [metrics] log_every = 5",
                "root = \"/b\"",
            ]
        );
        fs::remove_dir_all(dir.path().join("specs")).unwrap();
        assert_eq!(specs(dir.path(), &starts).0, [None, None, None, Some(0)]);
        assert_eq!(specs(dir.path(), &starts[..2]).0, [None, Some(0)]);
    }

    #[test]
    fn folders_of_early_versions_have_a_spec_by_its_hash() {
        let (dir, mut starts) = run(&[("a", "n = 1\n"), ("b", "n = 2\n"), ("a", "n = 3\n")]);
        for (start, digest) in starts.iter_mut().zip(["d0", "d1", "d0"]) {
            start.spec_digest = None;
            let hash = &start.spec_hash;
            fs::copy(
                dir.path().join(format!("specs/{digest}.toml")),
                dir.path().join(format!("specs/{hash}.toml")),
            )
            .unwrap();
        }
        let expected = (vec![Some(0), Some(1), Some(0)], vec!["n = 3".to_owned(), "n = 2".to_owned()]);
        assert_eq!(specs(dir.path(), &starts), expected);
        fs::remove_dir_all(dir.path().join("specs")).unwrap();
        assert_eq!(specs(dir.path(), &starts), (vec![Some(0), None, Some(0)], vec!["n = 3".to_owned()]));
    }

    /// A kill between `job.toml` and `run.json`.
    #[test]
    fn the_recorded_spec_is_not_that_of_a_start_that_was_not_accepted() {
        let (dir, starts) = run(&[("a", "n = 1\n")]);
        fs::write(dir.path().join("job.toml"), "n = 2\n").unwrap();
        assert_eq!(specs(dir.path(), &starts).1, ["n = 1"]);
        fs::write(dir.path().join("specs/d0.toml"), "[").unwrap();
        let error = Specs::read(dir.path(), &[&starts[0]]).unwrap_err();
        assert!(error.message.contains("specs/d0.toml is not TOML"), "{error}");
    }
}
