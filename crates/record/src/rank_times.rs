//! How the time of training steps divides, on each rank.

use serde::{Deserialize, Serialize};

/// Mean seconds per step, by rank, since the previous step event: from the exchange of that step's sums to the exchange of
/// this step's, so the update and the save after a step count in the next event. The parts add up to the time between. On a
/// device they are the host's time, which enqueues work and waits for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// Waiting for batches.
    pub data: Vec<f64>,
    /// Forward pass and loss.
    pub forward: Vec<f64>,
    /// Backward pass, with the communication that runs beside it.
    pub backward: Vec<f64>,
    /// Exposed communication: waiting for buckets after the backward pass, and the exchange of the step's sums. Waiting for
    /// a slower rank is part of it.
    pub comm: Vec<f64>,
    /// Clipping and update.
    pub optimizer: Vec<f64>,
    /// For which steps were held up by saves.
    pub checkpoint: Vec<f64>,
    /// The rest: events, evaluations, the beginning of epochs.
    pub other: Vec<f64>,
}

impl RankTimes {
    /// The name of each part, with its values.
    pub fn parts(&self) -> [(&'static str, &[f64]); 7] {
        let Self { data, forward, backward, comm, optimizer, checkpoint, other } = self;
        [
            ("data", data),
            ("forward", forward),
            ("backward", backward),
            ("comm", comm),
            ("optimizer", optimizer),
            ("checkpoint", checkpoint),
            ("other", other),
        ]
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.data.len()
    }
}
