//! The environment, with errors of this crate.

use crate::CommError;

/// Looks variables up.
pub(crate) type Variables<'a> = base::variables::Variables<'a, CommError>;

/// Those that `get` finds.
pub(crate) fn variables<'a>(get: &'a dyn Fn(&str) -> Option<String>) -> Variables<'a> {
    Variables::new(get, inconsistent)
}

/// Variables that contradict each other.
fn inconsistent(what: String) -> CommError {
    CommError::configuration(what).hint(
        "torchrun, `ddp-run launch` and srun set all of their variables; a script of your own sets RANK, WORLD_SIZE, \
         LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process",
    )
}
