//! `inspect`: the content of a checkpoint, a run folder or a single weight file, as a table or as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::format::{self, EMA_FILE, HOOK_FILE, MODEL_FILE, OPTIMIZER_FILE, RunState};
use super::stats::{Stats, number, size, table};
use super::store::CheckpointStore;
use super::tensor::{Dtype, TensorMap};
use super::tensor_file::read_tensor_file;
use super::{find_store, pretrained, read_state, verify};
use base::display;
use base::error::{Error, Result};
use base::numbers::metric_words;

/// The result of [`inspect`]; `Display` prints it as a table.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection(Content);

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Content {
    Checkpoint(Box<CheckpointInfo>),
    /// A run folder or a `checkpoints/` folder.
    Run(RunInfo),
    /// A weight file.
    File(FileInfo),
}

#[derive(Clone, Debug, Serialize)]
pub struct CheckpointInfo {
    pub path: PathBuf,
    /// All files match the digests in `state.json`.
    pub verified: bool,
    /// The reason if not verified.
    pub problem: Option<String>,
    /// `None` if `state.json` is missing or damaged.
    pub state: Option<RunState>,
    pub files: Vec<FileInfo>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    pub path: PathBuf,
    /// Oldest first.
    pub checkpoints: Vec<CheckpointSummary>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CheckpointSummary {
    pub path: PathBuf,
    /// As in the directory's name.
    pub step: u64,
    pub verified: bool,
    pub problem: Option<String>,
    pub epochs_completed: Option<usize>,
    pub step_in_epoch: Option<usize>,
    pub world: Option<usize>,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FileInfo {
    pub name: String,
    pub bytes: u64,
    /// Why the file can't be read, if it can't.
    pub problem: Option<String>,
    /// Total elements of all tensors.
    pub elements: usize,
    pub tensors: Vec<TensorSummary>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TensorSummary {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    #[serde(flatten)]
    pub stats: Stats,
}

/// Inspects a checkpoint directory, a run folder (verifying all of its checkpoints) or a weight file.
///
/// # Errors
/// `ErrorKind::Io` if there is none of these at `path`. Damage is not an error; it is reported in
/// the result.
pub fn inspect(path: &Path) -> Result<Inspection> {
    let nothing = |why: String| Error::checkpoint(format!("cannot inspect {}: {why}", path.display()));
    if let Some(store) = find_store(path) {
        return Ok(Inspection(Content::Run(inspect_run(&store)?)));
    }
    if path.is_file() {
        let tensors = pretrained::read_weights(path).map_err(|e| Error::checkpoint(e.message))?;
        let bytes = std::fs::metadata(path).map_err(|e| nothing(e.to_string()))?.len();
        let file = FileInfo::new(&path.display().to_string(), bytes, Ok(tensors));
        return Ok(Inspection(Content::File(file)));
    }
    if !path.is_dir() {
        return Err(nothing("there is no such file or folder".into()));
    }
    let problem = verify(path).err().map(|why| why.to_string());
    let files: Vec<FileInfo> = [MODEL_FILE, OPTIMIZER_FILE, EMA_FILE, HOOK_FILE]
        .into_iter()
        .filter_map(|name| {
            let bytes = std::fs::metadata(path.join(name)).ok()?.len();
            let tensors = read_tensor_file(&path.join(name)).map(|(t, _)| t).map_err(|e| e.to_string());
            Some(FileInfo::new(name, bytes, tensors))
        })
        .collect();
    let state = read_state(path).ok();
    if state.is_none() && files.is_empty() {
        return Err(nothing("it contains no checkpoint".into()).hint(
            "pass a checkpoint (`runs/<name>/checkpoints/step-…`), a run folder or a .safetensors file",
        ));
    }
    let path = path.to_owned();
    let verified = problem.is_none();
    let checkpoint = CheckpointInfo { path, verified, problem, state, files };
    Ok(Inspection(Content::Checkpoint(Box::new(checkpoint))))
}

fn inspect_run(store: &CheckpointStore) -> Result<RunInfo> {
    let summary = |entry: super::Entry| {
        let found = verify(&entry.path);
        let state = found.as_ref().ok().cloned().or_else(|| read_state(&entry.path).ok());
        let folder = std::fs::read_dir(&entry.path).into_iter().flatten().flatten();
        let bytes = folder.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
        CheckpointSummary {
            path: entry.path,
            step: entry.step,
            verified: found.is_ok(),
            problem: found.err().map(|why| why.to_string()),
            epochs_completed: state.as_ref().map(|s| s.epochs_completed),
            step_in_epoch: state.as_ref().map(|s| s.step_in_epoch),
            world: state.as_ref().map(|s| s.world),
            bytes,
        }
    };
    let checkpoints = store.list()?.into_iter().map(summary).collect();
    Ok(RunInfo { path: store.dir().to_owned(), checkpoints })
}

impl FileInfo {
    fn new(name: &str, bytes: u64, tensors: Result<TensorMap, String>) -> Self {
        let name = name.to_owned();
        match tensors {
            Err(why) => Self { name, bytes, problem: Some(why), elements: 0, tensors: Vec::new() },
            Ok(map) => {
                let summary = |t: &super::TensorData| TensorSummary {
                    name: t.name.clone(),
                    dtype: t.dtype,
                    shape: t.shape.clone(),
                    stats: Stats::new(t),
                };
                let elements = map.iter().map(super::TensorData::len).sum();
                Self { name, bytes, problem: None, elements, tensors: map.iter().map(summary).collect() }
            }
        }
    }
}

impl Inspection {
    /// The path of a single checkpoint that is not verified, and the reason.
    pub fn problem(&self) -> Option<(&Path, &str)> {
        match &self.0 {
            Content::Checkpoint(c) => Some((&c.path, c.problem.as_deref()?)),
            Content::Run(_) | Content::File(_) => None,
        }
    }

    /// One JSON object; `kind` is `checkpoint`, `run` or `file`.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| Error::internal(format!("cannot write JSON: {e}")))
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Checkpoint(c) => c.fmt(f),
            Content::Run(r) => r.fmt(f),
            Content::File(file) => file.fmt(f),
        }
    }
}

/// `2 epochs`, or `step 5 of epoch 3`: people count from 1.
fn trained(epochs: usize, step_in_epoch: usize) -> String {
    match step_in_epoch {
        0 => display::count(epochs, "epoch"),
        step => format!("step {step} of epoch {}", epochs + 1),
    }
}

/// `loss 0.2500, accuracy 91.2 %`
fn metrics(values: &serde_json::Value) -> Option<String> {
    let words = |(name, value): (&String, &serde_json::Value)| match value.as_u64() {
        Some(whole) => format!("{} {whole}", display::name(name)),
        None => format!("{} {}", display::name(name), metric_words(name, value.as_f64().unwrap_or(f64::NAN))),
    };
    Some(values.as_object()?.iter().map(words).collect::<Vec<_>>().join(", "))
}

fn verdict(problem: Option<&str>) -> String {
    problem.map_or_else(|| "verified".into(), |why| format!("NOT VERIFIED: {why}"))
}

impl fmt::Display for CheckpointInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n", self.path.display(), verdict(self.problem.as_deref()))?;
        if let Some(s) = &self.state {
            let mut rows = vec![
                vec!["run".into(), s.name.clone()],
                vec!["step".into(), s.global_step.to_string()],
                vec!["trained".into(), trained(s.epochs_completed, s.step_in_epoch)],
                vec!["processes".into(), s.world.to_string()],
                vec!["seed".into(), s.seed.to_string()],
                vec!["samples seen".into(), s.samples_seen.to_string()],
                vec!["training time".into(), format!("{:.1} s", s.wall_seconds)],
                vec!["spec hash".into(), s.spec_hash.clone()],
                vec!["format".into(), s.format_version.to_string()],
            ];
            let splits = s.metrics.as_object().into_iter().flatten();
            rows.extend(
                splits.filter_map(|(split, values)| Some(vec![display::name(split), metrics(values)?])),
            );
            writeln!(f, "{}", table(&rows, &[]))?;
        }
        for (i, file) in self.files.iter().enumerate() {
            write!(f, "{}{file}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for FileInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.problem {
            return writeln!(f, "{}  {}  {why}", self.name, size(self.bytes));
        }
        let n = self.tensors.len();
        writeln!(f, "{}  {}  {n} tensors  {} elements", self.name, size(self.bytes), self.elements)?;
        let heads = ["tensor", "type", "shape", "mean", "std", "min", "max", "non-finite"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for t in &self.tensors {
            let mut row = vec![display::name(&t.name), t.dtype.to_string(), display::shape(&t.shape)];
            row.extend([t.stats.mean, t.stats.std, t.stats.min, t.stats.max].map(number));
            row.push(t.stats.non_finite.to_string());
            rows.push(row);
        }
        f.write_str(&table(&rows, &[3, 4, 5, 6, 7]))
    }
}

impl fmt::Display for RunInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.checkpoints.is_empty() {
            return writeln!(f, "{}\nno checkpoints", self.path.display());
        }
        writeln!(f, "{}\n", self.path.display())?;
        let heads = ["checkpoint", "trained", "processes", "size", ""];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        let or_dash = |v: Option<usize>| v.map_or_else(|| "-".into(), |v| v.to_string());
        for c in &self.checkpoints {
            rows.push(vec![
                format::step_dir_name(c.step),
                c.epochs_completed.zip(c.step_in_epoch).map_or_else(|| "-".into(), |(e, s)| trained(e, s)),
                or_dash(c.world),
                size(c.bytes),
                verdict(c.problem.as_deref()),
            ]);
        }
        f.write_str(&table(&rows, &[2, 3]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;
    use base::testing::HANG;

    fn run() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = dir.path().join("checkpoints");
        let store = CheckpointStore::open(&checkpoints).unwrap();
        for step in [7, 14] {
            store.save(&snapshot(step, 0)).unwrap();
        }
        (dir, checkpoints)
    }

    #[test]
    fn shows_every_tensor_of_a_checkpoint() {
        let (_dir, checkpoints) = run();
        let seen = inspect(&checkpoints.join("step-00000007")).unwrap();
        let text = seen.to_string();
        for part in [
            "\nverified\n",
            "step           7\n",
            "layer1.0.conv1.weight    f32   [2, 3]  3.500  1.708  1.000  6.000           0\n",
            "bn1.num_batches_tracked  i64   []      7.000",
            "exp_avg.layer1.0.conv1.weight",
        ] {
            assert!(text.contains(part), "{part:?} not in\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&seen.to_json().unwrap()).unwrap();
        assert_eq!((&json["kind"], &json["verified"]), (&"checkpoint".into(), &true.into()));
        assert_eq!(json["files"][0]["tensors"][0]["mean"], 3.5);
    }

    #[test]
    fn epochs_and_metrics_are_in_words() {
        assert_eq!(
            [(0, 5), (1, 0), (2, 7)].map(|(e, s)| trained(e, s)),
            ["step 5 of epoch 1", "1 epoch", "step 7 of epoch 3"]
        );
        let val = serde_json::json!({ "loss": 0.25, "accuracy": 0.912, "dice": null, "n": 500 });
        assert_eq!(metrics(&val).unwrap(), "loss 0.2500, accuracy 91.2 %, dice NaN, n 500");
    }

    #[test]
    fn lists_checkpoints_and_their_problems() {
        let (dir, checkpoints) = run();
        std::fs::remove_file(checkpoints.join("step-00000014/model.safetensors")).unwrap();
        let text = inspect(dir.path()).unwrap().to_string();
        assert!(text.contains("step-00000007  0 epochs          2"), "{text}");
        assert!(text.contains("NOT VERIFIED: model.safetensors is missing"), "{text}");
        let damaged = inspect(&checkpoints.join("step-00000014")).unwrap().to_string();
        assert!(damaged.contains("NOT VERIFIED") && damaged.contains("exp_avg."), "{damaged}");
    }

    /// Nobody writes to the pipe.
    #[test]
    fn a_pipe_in_place_of_a_file_is_not_waited_for() {
        let (_dir, checkpoints) = run();
        let checkpoint = checkpoints.join("step-00000014");
        let model = checkpoint.join(MODEL_FILE);
        std::fs::remove_file(&model).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &model, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        let (sender, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(inspect(&checkpoint).unwrap().to_string()));
        let text = told.recv_timeout(HANG).expect("it waits for the pipe");
        assert!(
            text.contains("NOT VERIFIED: model.safetensors") && text.contains("no regular file"),
            "{text}"
        );
        assert!(text.contains("exp_avg."), "{text}");
    }

    #[test]
    fn shows_a_weight_file() {
        let (_dir, checkpoints) = run();
        let seen = inspect(&checkpoints.join("step-00000007/model.safetensors")).unwrap();
        assert!(matches!(&seen.0, Content::File(f) if f.elements == 7));
    }

    /// A file from elsewhere: names with terminal control sequences, and more dimensions than fit on a line.
    #[test]
    fn hostile_names_and_shapes_are_shown_safely() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.safetensors");
        let name = "w\u{1b}]0;title\u{7}\n\u{9b}2J";
        let mut map = TensorMap::new();
        map.push(super::super::TensorData::from_f32(name, vec![1; 100_000], &[1.0]).unwrap()).unwrap();
        map.push(super::super::TensorData::from_f32("n".repeat(100_000), vec![1], &[1.0]).unwrap()).unwrap();
        let mut file = std::fs::File::create(&path).unwrap();
        super::super::tensor_file::write_tensors(&map, &mut file).unwrap();
        let seen = inspect(&path).unwrap();
        let text = seen.to_string();
        assert!(text.contains("w·]0;title···2J ") && text.contains("… (100000 dimensions)]"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 400 && !line.contains(char::is_control)));
        let json: serde_json::Value = serde_json::from_str(&seen.to_json().unwrap()).unwrap();
        assert_eq!(json["tensors"][0]["shape"].as_array().map(Vec::len), Some(100_000));
    }

    #[test]
    fn rejects_a_path_without_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        assert!(inspect(dir.path()).unwrap_err().message.contains("it contains no checkpoint"));
        assert!(inspect(&dir.path().join("x")).unwrap_err().message.contains("no such file or folder"));
    }
}
