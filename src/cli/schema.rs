//! `ddp-run schema`: the JSON Schema of specs.

use base::error::Result;
use job::reference::{Reference, json_schema};
use job::registry::Registry;

/// Prints the schema, with the components of this program, to standard output.
pub fn run(registry: &Registry) -> Result<()> {
    super::print(&json_schema_text(registry))
}

/// The schema as a file.
pub fn json_schema_text(registry: &Registry) -> String {
    format!("{:#}\n", json_schema(&Reference::new(registry)))
}
