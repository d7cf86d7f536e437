use super::*;
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::spec::JobTree;

/// `ddp-run init WORDS`.
fn init(words: &[&str]) -> Result<()> {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("init"));
    let words = ["init"].iter().chain(words);
    let matches = command.try_get_matches_from(words).unwrap();
    run(&<Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap())
}

#[test]
fn the_template_is_a_valid_spec() {
    let tree = JobTree::parse("shapes.toml", SHAPES, &[]).unwrap();
    let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::of(2)).unwrap();
    assert_eq!(plan.world.world_size, 2);
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = init(&[file.path().to_str().unwrap()]).unwrap_err();
    assert_eq!(error.code, ExitCode::Usage);
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 0);
}

#[test]
fn an_unknown_template_is_named_with_the_nearest_one() {
    for words in [&["costum"][..], &["costum", "dir"]] {
        let error = init(words).unwrap_err();
        assert_eq!(error.code, ExitCode::Usage);
        assert_eq!(error.message, "there is no template `costum`; did you mean `custom`?");
    }
    let error = init(&["no/where.toml", "more"]).unwrap_err();
    assert!(error.message.contains("unexpected argument `more`"), "{error}");
}
