//! The environment, with the errors of the program.

use base::error::Error;
use base::variables::Variables;

/// Looks variables up.
pub(super) type Vars<'a> = Variables<'a, Error>;

/// Those that `get` finds.
pub(super) fn vars<'a>(get: &'a dyn Fn(&str) -> Option<String>) -> Vars<'a> {
    Variables::new(get, inconsistent)
}

/// Variables that contradict each other.
pub(super) fn inconsistent(what: impl Into<String>) -> Error {
    Error::usage(what.into()).hint(
        "torchrun, srun and mpirun set all of their variables (`ddp-run env` lists those that are set); if none is \
         set, ddp-run starts the processes itself",
    )
}
