//! `ddp-run init PATH`: writes a commented spec as a template.

use crate::error::{Error, ExitCode, Result};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The file to write; it must not exist
    #[arg(value_name = "PATH", default_value = "job.toml")]
    pub path: PathBuf,
}

const TEMPLATE: &str = include_str!("init.toml");

pub fn run(args: &Args) -> Result<()> {
    let cannot =
        |e: std::io::Error| Error::new(ExitCode::Usage, format!("cannot write {}: {e}", args.path.display()));
    let mut file = std::fs::File::create_new(&args.path).map_err(cannot)?;
    file.write_all(TEMPLATE.as_bytes()).map_err(cannot)?;
    super::print(&format!(
        "wrote {0}; `ddp-run plan {0}` shows the resolved plan, `ddp-run {0}` runs it\n",
        args.path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, WorldRequest};
    use crate::registry::Registry;
    use crate::spec::JobTree;

    #[test]
    fn the_template_is_a_valid_spec() {
        let tree = JobTree::parse("init.toml", TEMPLATE, &[]).unwrap();
        let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::of(2)).unwrap();
        assert_eq!(plan.world.world_size, 2);
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = run(&Args { path: file.path().into() }).unwrap_err();
        assert_eq!(error.code, ExitCode::Usage);
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 0);
    }
}
