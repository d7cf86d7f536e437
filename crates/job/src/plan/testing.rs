//! Plans in the tests of any room.

use super::{Plan, WorldRequest};
use crate::registry::Registry;
use spec::{JobTree, Override};

/// The plan of a spec with the components of `registry`, or the spec's problems.
pub fn resolved(registry: &Registry, spec: &str, sets: &[&str], world: usize) -> Result<Plan, String> {
    let sets: Vec<Override> = sets.iter().map(|set| Override::Set((*set).to_owned())).collect();
    let tree = JobTree::parse("job.toml", spec, &sets);
    Plan::resolve(&tree, registry, WorldRequest::new(world)).map_err(|e| e.to_string())
}
