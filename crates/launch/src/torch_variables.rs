//! The variables that torchrun sets for its workers, as a form of [`Handoff`] for programs other than this one.

use super::error_file;
use super::handoff::{Endpoint, Handoff};
use base::error::{Error, Result};
use std::ffi::OsString;

/// What the variables say besides the handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchVariables {
    /// `TORCHELASTIC_MAX_RESTARTS`.
    pub max_restarts: u32,
    /// `--rdzv-id`; the run's own identifier if not given.
    pub run_id: Option<String>,
}

impl TorchVariables {
    /// The environment of the worker that gets `handoff`.
    pub(super) fn values<J>(&self, handoff: &Handoff<J>) -> Result<Vec<(&'static str, OsString)>> {
        let place = &handoff.place;
        let Endpoint::Connect { host, port } = &handoff.endpoint else {
            return Err(Error::internal(format!("rank {} has no address of rank 0", place.rank)));
        };
        let nccl = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
        Ok(vec![
            ("RANK", place.rank.to_string().into()),
            ("LOCAL_RANK", place.local_rank.to_string().into()),
            ("WORLD_SIZE", place.world_size.to_string().into()),
            ("LOCAL_WORLD_SIZE", place.local_world_size.to_string().into()),
            ("GROUP_RANK", place.node_rank.to_string().into()),
            ("GROUP_WORLD_SIZE", place.nnodes.to_string().into()),
            ("ROLE_NAME", "default".into()),
            ("ROLE_RANK", place.rank.to_string().into()),
            ("ROLE_WORLD_SIZE", place.world_size.to_string().into()),
            ("MASTER_ADDR", host.into()),
            ("MASTER_PORT", port.to_string().into()),
            ("TORCHELASTIC_RUN_ID", self.run_id.as_ref().unwrap_or(&handoff.run_id).into()),
            ("TORCHELASTIC_RESTART_COUNT", handoff.attempt.saturating_sub(1).to_string().into()),
            ("TORCHELASTIC_MAX_RESTARTS", self.max_restarts.to_string().into()),
            // Rank 0 itself listens at MASTER_PORT.
            ("TORCHELASTIC_USE_AGENT_STORE", "False".into()),
            (error_file::VARIABLE, error_file::path(&handoff.log_dir, place.rank).into()),
            (nccl, std::env::var_os(nccl).unwrap_or_else(|| "1".into())),
            // Derived for each generation: workers left over from an earlier one are refused.
            ("DDP_RUN_SECRET", handoff.secret.to_hex().to_string().into()),
        ])
    }
}
