//! Every spec in `configs/` is good, for any number of processes, and so is what it resolves to.

use ddp_run::Registry;
use ddp_run::testing::plan::{Plan, WorldRequest};
use ddp_run::testing::spec::JobTree;
use std::path::{Path, PathBuf};

fn specs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("configs/ is there").map(|e| e.expect("readable").path());
    let mut found: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    found.sort();
    found
}

fn all() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    [specs(&folder), specs(&folder.join("ci"))].concat()
}

#[test]
fn every_config_resolves_and_its_resolution_resolves_to_itself() {
    let registry = Registry::standard();
    assert!(all().len() >= 8);
    for path in all() {
        let tree = JobTree::load(&path, &[]).unwrap_or_else(|d| panic!("{d}"));
        for world in [1, 2, 3] {
            let plan =
                Plan::resolve(&tree, &registry, WorldRequest::of(world)).unwrap_or_else(|d| panic!("{d}"));
            assert_eq!(plan.world.world_size, world);
            let text = plan.to_toml();
            let again = JobTree::parse("resolved.toml", &text, &[])
                .and_then(|tree| Plan::resolve(&tree, &registry, WorldRequest::of(world)))
                .unwrap_or_else(|d| panic!("{}: {d}\n{text}", path.display()));
            assert_eq!(again.hash, plan.hash, "{}", path.display());
            assert_eq!(again.to_toml(), text, "{}", path.display());
        }
    }
}

#[test]
fn the_names_of_the_configs_are_all_different() {
    let registry = Registry::standard();
    let names: Vec<String> = all()
        .iter()
        .map(|path| JobTree::load(path, &[]).and_then(|t| Plan::resolve(&t, &registry, WorldRequest::of(2))))
        .map(|plan| plan.unwrap_or_else(|d| panic!("{d}")).name)
        .collect();
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "runs would share a folder: {names:?}");
}
