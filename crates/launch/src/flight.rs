//! The flight record of a rank whose collective failed: `logs/collectives-rank-N.json`, with its last collectives,
//! step and phase. Ranks that did not fail and ranks killed by a signal write none.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::failure::write_atomically;
use collectives::{CallRecord, CommError, ProcessGroup, StepPhase};

/// The last collectives of a rank whose group failed, in `collectives-rank-N.json` in the folder of the logs.
#[derive(Clone, Debug, Serialize)]
pub struct FlightRecord {
    /// The rank that writes it.
    pub rank: usize,
    /// Number of ranks of the group.
    pub world_size: usize,
    /// Its process id.
    pub pid: u32,
    /// The engine's name.
    pub backend: &'static str,
    /// The rank's step and phase.
    #[serde(flatten)]
    pub place: StepPhase,
    /// The same on every rank of the group.
    pub error: CommError,
    /// Oldest first. The last one failed, unless the failure occurred between two collectives.
    pub collectives: Vec<CallRecord>,
}

impl FlightRecord {
    /// This rank's record of the failure of `group`.
    pub fn new(group: &dyn ProcessGroup, error: &CommError) -> Self {
        Self {
            rank: group.rank(),
            world_size: group.world_size(),
            pid: std::process::id(),
            backend: group.backend(),
            place: group.place(),
            error: error.clone(),
            collectives: group.history(),
        }
    }

    /// Writes the record atomically.
    pub fn write(&self, log_dir: &Path) -> io::Result<()> {
        write_atomically(&Self::path(log_dir, self.rank), self)
    }

    /// The file of a rank.
    pub fn path(log_dir: &Path, rank: usize) -> PathBuf {
        log_dir.join(format!("collectives-rank-{rank}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::{CommErrorKind, Phase, SoloGroup};

    #[test]
    fn a_flight_record_has_rank_place_and_error() {
        let folder = tempfile::tempdir().expect("tempdir");
        let group = SoloGroup::default();
        let error = CommError::new(CommErrorKind::Timeout, Some(3), "rank 3 did not respond");
        let mut record = FlightRecord::new(&group, &error);
        record.place = StepPhase { step: 7, phase: Phase::Sync };
        record.write(folder.path()).expect("write");
        let path = FlightRecord::path(folder.path(), 0);
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
        assert_eq!(json["step"], 7);
        assert_eq!(json["phase"], "sync");
        assert_eq!(json["world_size"], 1);
        assert_eq!(json["error"]["kind"], "timeout");
        assert_eq!(json["error"]["peer"], 3);
        assert!(json["collectives"].as_array().is_some_and(Vec::is_empty), "{json}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "no scratch file is left");
        crate::failure::clear(folder.path(), 0);
        assert!(!path.exists());
    }
}
