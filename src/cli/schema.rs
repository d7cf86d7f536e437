//! `ddp-run schema`: the JSON Schema of specs.

use crate::error::{Error, Result};
use crate::reference::{Reference, json_schema};
use crate::registry::Registry;

/// Prints the schema, with the components of this program, to standard output.
pub fn run(registry: &Registry) -> Result<()> {
    let schema = json_schema(&Reference::of(registry));
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|e| Error::internal(format!("cannot write the schema: {e}")))?;
    super::print(&(text + "\n"))
}
