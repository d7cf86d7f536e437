//! A pod of a Kubernetes Indexed Job: one supervisor a pod. Kubernetes tells the pod its index and nothing else; how
//! many pods there are and where they meet come from DDP_RUN_NNODES and DDP_RUN_RDZV_ENDPOINT in the job's manifest
//! (`JOB-0.SERVICE:29400` with a headless service), or from the spec.

use super::vars::Vars;
use super::{Asked, Launcher, NodeEnv};
use crate::error::{Error, Result};
use crate::launch::NodeRange;

pub(super) fn index(vars: &Vars<'_>) -> Result<Option<usize>> {
    vars.number("JOB_COMPLETION_INDEX")
}

/// `None` outside of an Indexed Job, and where each pod is a run of its own (DDP_RUN_NNODES=1).
pub(super) fn node(vars: &Vars<'_>, asked: &Asked) -> Result<Option<NodeEnv>> {
    let Some(node_rank) = index(vars)? else { return Ok(None) };
    if asked.nnodes == Some(NodeRange::ONE) {
        return Ok(None);
    }
    if let Some(nodes) = asked.nnodes.filter(|n| node_rank >= n.max) {
        return Err(Error::usage(format!(
            "JOB_COMPLETION_INDEX is {node_rank}, but the run has {nodes} nodes (--nnodes or DDP_RUN_NNODES)"
        ))
        .hint("set the job's `completions` and `parallelism` to the number of nodes"));
    }
    let endpoint = asked.rdzv_endpoint.clone();
    Ok(Some(NodeEnv { launcher: Launcher::Kubernetes, node_rank, nnodes: asked.nnodes, endpoint }))
}
