//! The checkpoint directory: its name, its files, and `state.json`, which holds the digests of all of them.
//!
//! `step-00000480/` contains `model.safetensors`, `optimizer.safetensors`, `ema.safetensors` if the weights are averaged,
//! `comm_hook.safetensors` if communication hooks have state, `usage.json` with what the model's use needs besides its weights,
//! and `state.json`, written last: the run's [`RunState`], with
//! size and SHA-256 of the other files and, as its last entry, the SHA-256 of all of its own bytes before that entry. The digest is over bytes, not over JSON
//! values, so any change is detected.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::digest::sha256_hex;

/// The version that this program writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// The model's parameters and buffers, under PyTorch's names.
pub const MODEL_FILE: &str = "model.safetensors";
/// The optimizer's state, by parameter.
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// The model with averaged weights, if there are some.
pub const EMA_FILE: &str = "ema.safetensors";
/// Only if communication hooks have state.
pub const HOOK_FILE: &str = "comm_hook.safetensors";
/// What the model's use needs besides its weights, as JSON; checkpoints of earlier versions lack it.
pub const USAGE_FILE: &str = "usage.json";
/// Written last: a directory without it is not a checkpoint.
pub const STATE_FILE: &str = "state.json";

/// A larger `state.json` is treated as damaged.
pub(crate) const MAX_STATE_BYTES: u64 = 64 << 20;

/// The state of a run apart from its tensors. Finite floats round-trip bit for bit. JSON has no NaN or infinity, so
/// sums that may contain one are stored as bits (`f64::to_bits`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Set by the store when it saves.
    pub format_version: u32,
    /// Hash of the resolved plan.
    pub spec_hash: String,
    /// The run's name.
    pub name: String,
    /// Number of ranks in the last step.
    pub world: usize,
    /// The run's seed.
    pub seed: u64,
    /// Complete epochs; `step_in_epoch` optimizer steps of the next one are done as well.
    pub epochs_completed: usize,
    /// Optimizer steps done in the epoch that has begun.
    pub step_in_epoch: usize,
    /// Optimizer steps since the start; also the number in the directory's name.
    pub global_step: u64,
    /// Samples trained on by all ranks, padding included.
    pub samples_seen: u64,
    /// Training time so far, over all restarts.
    pub wall_seconds: f64,
    /// Running sums and the best value so far. The result of an evaluation at exactly this step is at the path that
    /// [`RankBy`](super::RankBy) names (`val.accuracy` is `metrics["val"]["accuracy"]`).
    pub metrics: Value,
    /// The spec's `[optimizer]`, as key and value.
    pub optimizer: Value,
    /// Additional values of the caller.
    pub extra: Value,
    /// Size and digest of every other file. Set by the store when it saves.
    pub files: BTreeMap<String, FileDigest>,
}

/// Size and digest of another file, as recorded in `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Size of the file.
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// Why a checkpoint or one of its files is rejected. The reason of a file follows its name.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Rejected {
    why: String,
    /// If the system could not read it.
    #[source]
    pub cause: Option<io::Error>,
}

impl Rejected {
    /// With the file's name.
    pub fn of(self, name: &str) -> Self {
        Self { why: format!("{name} {}", self.why), ..self }
    }
}

impl From<String> for Rejected {
    fn from(why: String) -> Self {
        Self { why, cause: None }
    }
}

impl From<io::Error> for Rejected {
    fn from(e: io::Error) -> Self {
        Self { why: format!("cannot be read: {e}"), cause: Some(e) }
    }
}

impl RunState {
    /// The value at a dotted path in `metrics`, if it is a finite number.
    pub fn metric(&self, path: &str) -> Option<f64> {
        let (split, name) = path.split_once('.')?;
        self.metrics.get(split)?.get(name)?.as_f64().filter(|v| v.is_finite())
    }

    /// The bytes of `state.json`.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_string_pretty(self)?;
        // `{ … }` becomes `{ …,` and the digest's line. The digest covers everything before that line.
        text.truncate(text.trim_end_matches('}').trim_end().len());
        text.push_str(",\n");
        let digest = sha256_hex(text.as_bytes());
        text.push_str(&digest_line(&digest));
        Ok(text.into_bytes())
    }

    /// Parses a `state.json` and verifies its digest.
    ///
    /// # Errors
    /// A reason to append to the file's name: `is truncated or altered …`.
    pub(crate) fn from_json(bytes: &[u8]) -> Result<RunState, String> {
        const DAMAGED: &str = "is truncated or altered: its own digest does not match";
        let body = bytes.len().checked_sub(digest_line(&"0".repeat(64)).len()).ok_or(DAMAGED)?;
        let (body, last) = bytes.split_at(body);
        if last != digest_line(&sha256_hex(body)).as_bytes() {
            return Err(DAMAGED.into());
        }
        let version: Version = serde_json::from_slice(bytes).map_err(|e| format!("is invalid: {e}"))?;
        if version.format_version > FORMAT_VERSION {
            return Err(format!(
                "has format {}, from a newer ddp-run; this one reads up to format {FORMAT_VERSION}",
                version.format_version
            ));
        }
        let state: RunState = serde_json::from_slice(bytes).map_err(|e| format!("is invalid: {e}"))?;
        // Names are joined to the directory's path, so a name that leaves the directory is rejected.
        match state.files.keys().find(|name| !is_plain_name(name)) {
            Some(name) => Err(format!("lists a file with the name {name:?}")),
            None => Ok(state),
        }
    }
}

#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

fn digest_line(hex: &str) -> String {
    format!("  \"digest\": \"{hex}\"\n}}\n")
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

/// `step-00000480`
pub fn step_dir_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step in a checkpoint directory's name; `None` for any other name.
pub fn parse_step_dir(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (step_dir_name(step) == name).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn sample() -> RunState {
        RunState {
            format_version: FORMAT_VERSION,
            spec_hash: "abc".into(),
            name: "toy".into(),
            world: 2,
            seed: u64::MAX,
            global_step: 480,
            wall_seconds: 0.1 + 0.2,
            metrics: json!({ "val": { "accuracy": 0.5, "n": 5000 }, "sums": [1e-300, 0.1] }),
            files: [("model.safetensors".to_owned(), FileDigest { bytes: 3, sha256: "00".into() })].into(),
            ..RunState::default()
        }
    }

    #[test]
    fn state_round_trips_as_json_with_its_digest_last() {
        let bytes = sample().to_json().unwrap();
        assert_eq!(RunState::from_json(&bytes).unwrap(), sample());
        let value: serde_json::Map<String, Value> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["global_step"], 480);
        assert_eq!(value.keys().next_back().unwrap(), "digest");
    }

    #[test]
    fn detects_every_bit_flip_in_state_json() {
        let good = sample().to_json().unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RunState::from_json(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(RunState::from_json(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(RunState::from_json(&[good.as_slice(), b"\n"].concat()).is_err());
    }

    #[test]
    fn rejects_a_newer_format() {
        let bytes = RunState { format_version: 2, ..sample() }.to_json().unwrap();
        let e = RunState::from_json(&bytes).unwrap_err();
        assert_eq!(e, "has format 2, from a newer ddp-run; this one reads up to format 1");
    }

    #[test]
    fn rejects_file_names_outside_the_directory() {
        let mut state = sample();
        state.files.insert("../../etc/passwd".into(), FileDigest { bytes: 0, sha256: String::new() });
        assert!(RunState::from_json(&state.to_json().unwrap()).unwrap_err().contains("../../etc/passwd"));
    }

    #[test]
    fn metrics_are_found_by_dotted_path() {
        assert_eq!(sample().metric("val.accuracy"), Some(0.5));
        assert_eq!(sample().metric("val.loss"), None);
        assert_eq!(sample().metric("sums"), None);
    }

    #[test]
    fn directory_names() {
        assert_eq!(step_dir_name(480), "step-00000480");
        assert_eq!(parse_step_dir("step-00000480"), Some(480));
        assert_eq!(parse_step_dir("step-123456789"), Some(123_456_789));
        for other in ["step-480", "step-+0000480", ".tmp-step-00000480-7", "step-", "step-0000048x", "best"] {
            assert_eq!(parse_step_dir(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(RunState::from_json(&bytes).is_err());
        }
        #[test]
        fn random_json_with_a_valid_digest_never_panics(text in "[ -~]{0,80}") {
            let body = format!("{text}\n");
            let file = format!("{body}{}", digest_line(&sha256_hex(body.as_bytes())));
            prop_assert!(RunState::from_json(file.as_bytes()).is_err());
        }
        #[test]
        fn finite_floats_keep_their_bits(bits in any::<u64>()) {
            let v = f64::from_bits(bits);
            prop_assume!(v.is_finite());
            let state = RunState { wall_seconds: v, metrics: json!({ "v": v }), ..sample() };
            let back = RunState::from_json(&state.to_json().unwrap()).unwrap();
            prop_assert_eq!(back.wall_seconds.to_bits(), bits);
            prop_assert_eq!(back.metrics["v"].as_f64().unwrap().to_bits(), bits);
        }
    }
}
