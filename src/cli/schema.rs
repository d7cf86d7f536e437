//! `ddp-run schema`: the JSON Schema of specs.

use crate::reference::{Reference, json_schema};
use crate::registry::Registry;
use base::error::Result;

/// Prints the schema, with the components of this program, to standard output.
pub fn run(registry: &Registry) -> Result<()> {
    super::print(&json_schema_text(registry))
}

/// The schema as a file.
pub fn json_schema_text(registry: &Registry) -> String {
    format!("{:#}\n", json_schema(&Reference::of(registry)))
}
