//! A pod that is one node of a run: of a Kubernetes Indexed Job, or of a Kubeflow job, which sets torchrun's own
//! variables. Kubernetes gives a pod of an Indexed Job only its index. The number of pods and the endpoint come from
//! DDP_RUN_NNODES and DDP_RUN_RDZV_ENDPOINT in the job's manifest (`JOB-0.SERVICE:29400` with a headless service), or
//! from the spec. torchrun reads every flag from the variable PET_ plus its name; Kubeflow sets PET_NNODES,
//! PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT and PET_NPROC_PER_NODE.

use super::vars::{Vars, inconsistent};
use super::{Launcher, NodeEnv, Settings};
use crate::error::{Error, Result};
use crate::launch::Nproc;
use crate::nodes::{NodeRange, RdzvEndpoint};
use std::fmt::Display;
use std::str::FromStr;

/// torchrun's default port.
const MASTER_PORT: u16 = 29500;

/// This pod's index within its job.
pub(super) fn index(vars: &Vars<'_>) -> Result<Option<usize>> {
    Ok(vars.number("PET_NODE_RANK")?.or(vars.number("JOB_COMPLETION_INDEX")?))
}

/// `PET_NPROC_PER_NODE`.
pub(super) fn nproc(vars: &Vars<'_>) -> Result<Option<Nproc>> {
    parsed(vars, "PET_NPROC_PER_NODE")
}

/// The requested settings; those not given are taken from PET_*.
pub(super) fn completed(vars: &Vars<'_>, settings: &Settings) -> Result<Settings> {
    let mut settings = settings.clone();
    settings.nnodes = settings.nnodes.or(parsed(vars, "PET_NNODES")?);
    if settings.rdzv_endpoint.is_none() {
        settings.rdzv_endpoint = match (parsed(vars, "PET_RDZV_ENDPOINT")?, vars.text("PET_MASTER_ADDR")) {
            (None, Some(host)) => Some(RdzvEndpoint::Tcp { host, port: port(vars)? }),
            (endpoint, _) => endpoint,
        };
    }
    Ok(settings)
}

fn port(vars: &Vars<'_>) -> Result<u16> {
    match vars.number("PET_MASTER_PORT")? {
        Some(0) => Err(inconsistent("PET_MASTER_PORT is 0; every node must know the port in advance")),
        port => Ok(port.unwrap_or(MASTER_PORT)),
    }
}

fn parsed<T: FromStr<Err: Display>>(vars: &Vars<'_>, name: &str) -> Result<Option<T>> {
    let Some(text) = vars.text(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|why| inconsistent(format!("{name} is `{text}`: {why}")))
}

/// `None` outside such a pod, and if each pod is a run of its own (one node). `settings` comes from [`completed`].
pub(super) fn node(vars: &Vars<'_>, settings: Settings) -> Result<Option<NodeEnv>> {
    let alone = settings.nnodes == Some(NodeRange::ONE);
    // Each pod of an Indexed Job may be a separate run; torchrun's variables are only set for nodes of one run.
    if alone && vars.text("PET_NODE_RANK").is_none() {
        return Ok(None);
    }
    let Some(node_rank) = index(vars)? else {
        let said = |name| Some((name, vars.text(name)?));
        return match said("PET_NNODES")
            .or_else(|| said("PET_RDZV_ENDPOINT"))
            .or_else(|| said("PET_MASTER_ADDR"))
        {
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
