//! A pod that is one node of a run: of a Kubernetes Indexed Job, or of a Kubeflow job, which sets torchrun's own
//! variables. Kubernetes gives a pod of an Indexed Job only its index. The number of pods and the endpoint come from
//! DDP_RUN_NNODES and DDP_RUN_RDZV_ENDPOINT in the job's manifest (`JOB-0.SERVICE:29400` with a headless service), or
//! from the spec. torchrun reads every flag from the variable PET_ plus its name; Kubeflow sets PET_NNODES,
//! PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT and PET_NPROC_PER_NODE.

use super::vars::{Vars, inconsistent};
use super::{Launcher, NodeEnv, Settings};
use crate::nodes::NodeRange;
use base::error::{Error, Result};

/// This pod's index within its job.
pub(super) fn index(vars: &Vars<'_>) -> Result<Option<usize>> {
    Ok(vars.number("PET_NODE_RANK")?.or(vars.number("JOB_COMPLETION_INDEX")?))
}

/// `None` outside such a pod, and if each pod is a separate run (one node). `settings` comes from
/// [`completed`](super::completed).
pub(super) fn node(vars: &Vars<'_>, settings: Settings) -> Result<Option<NodeEnv>> {
    let alone = settings.nnodes == Some(NodeRange::ONE);
    // Each pod of an Indexed Job may be a separate run; torchrun's variables are only set for nodes of one run.
    if alone && vars.text("PET_NODE_RANK").is_none() {
        return Ok(None);
    }
    let Some(node_rank) = index(vars)? else {
        let said = |name| Some((name, vars.text(name)?));
        // No other node can reach an address of this machine alone.
        let elsewhere = settings.rdzv_endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_loopback());
        let endpoint = || said("PET_RDZV_ENDPOINT").or_else(|| said("PET_MASTER_ADDR"));
        return match said("PET_NNODES").or_else(|| endpoint().filter(|_| elsewhere)) {
            None => Ok(None),
            Some((name, value)) => Err(inconsistent(format!(
                "{name} is {value}, but the rank of this node is unknown: PET_NODE_RANK is not set"
            ))),
        };
    };
    if let Some(nodes) = settings.nnodes.filter(|n| node_rank >= n.max) {
        let name =
            if vars.text("PET_NODE_RANK").is_some() { "PET_NODE_RANK" } else { "JOB_COMPLETION_INDEX" };
        return Err(Error::usage(format!(
            "{name} is {node_rank}, but the run has {nodes} nodes (--nnodes, DDP_RUN_NNODES or PET_NNODES)"
        ))
        .hint("set the job's `completions` and `parallelism` to the number of nodes"));
    }
    if alone {
        return Ok(None);
    }
    let (nnodes, endpoint) = (settings.nnodes, settings.rdzv_endpoint);
    Ok(Some(NodeEnv { launcher: Launcher::Kubernetes, node_rank, nnodes, endpoint }))
}
