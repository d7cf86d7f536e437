//! `ddp-run plan SPEC --cluster FILE`: predicts step time, efficiency, checkpoints and cost of a job on a cluster, from measured
//! steps and all-reduces.
//!
//! `cluster` reads the description with its measurements (`measured`, `run`). `fit` finds alpha and beta of a link, `cost` counts the
//! messages and bytes of each algorithm, `links` joins both into the time of an all-reduce. `pipeline` lets the all-reduces of the
//! buckets run beside the backward pass, `slowest` tells how long ranks wait for one another, `predict` puts a step and a whole job (`job`) together, and `table` shows them.

mod cluster;
mod cost;
mod fit;
mod job;
mod links;
mod measured;
mod pipeline;
mod predict;
mod run;
mod slowest;
mod table;

pub use cluster::Cluster;
pub use table::text;

use ::job::plan::Plan;
use base::display::count;
use base::error::{Error, Result};
use job::ForecastJob;
use predict::Forecast;
use record::Prediction;

/// Predicts a job for each of `worlds`, whose plans `plan` resolves.
///
/// # Errors
/// Those of `plan`; a number of processes that the cluster has no room for (exit code 2).
pub fn predict(
    cluster: &Cluster,
    worlds: &[usize],
    plan: &dyn Fn(usize) -> Result<Plan>,
) -> Result<Prediction> {
    let alone = plan(1)?;
    let one = ForecastJob::from_plan(&alone)?;
    let forecast = Forecast::new(cluster, &one);
    let base = forecast.step(&one, &[1]).samples_per_s;
    let (mut rows, mut assumptions) = (Vec::new(), forecast.assumptions(&one));
    for world in worlds {
        let nodes = cluster.placed(*world)?;
        let job = ForecastJob::from_plan(&plan(*world)?)?;
        rows.push(forecast.row(&job, &nodes, base));
        for assumption in forecast.assumptions_of(&job, &nodes) {
            if !assumptions.contains(&assumption) {
                assumptions.push(assumption);
            }
        }
    }
    Ok(Prediction {
        job: alone.name.clone(),
        spec_hash: alone.hash.clone(),
        cluster: cluster.name.clone(),
        currency: cluster.currency.clone(),
        rows,
        assumptions,
    })
}

impl Cluster {
    /// The numbers of processes that are predicted if none is named: powers of two, and the whole cluster.
    pub fn worlds(&self) -> Vec<usize> {
        let all = self.nodes * self.processes_per_node;
        let powers = std::iter::successors(Some(1_usize), |n| n.checked_mul(2)).take_while(|n| *n < all);
        powers.filter(|n| self.placed(*n).is_ok()).chain([all]).collect()
    }

    /// The processes of each node: as few nodes as possible, with equal numbers.
    ///
    /// # Errors
    /// There is no room for them (exit code 2).
    pub fn placed(&self, world: usize) -> Result<Vec<usize>> {
        let fewest = world.div_ceil(self.processes_per_node).max(1);
        if let Some(nodes) = (fewest..=self.nodes).find(|nodes| world.is_multiple_of(*nodes)) {
            return Ok(vec![world / nodes; nodes]);
        }
        let (nodes, each) = (self.nodes, count(self.processes_per_node, "process"));
        let what = format!("--world {world}: {} has {} of {each}", self.name, count(nodes, "node"));
        Err(Error::usage(what).hint(match fewest <= nodes {
            true => "nodes have equal numbers of processes: name a number that can be divided among them",
            false => "`nodes` and `processes_per_node` of the cluster's file say what there is",
        }))
    }
}

#[cfg(test)]
mod tests;
