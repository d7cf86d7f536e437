//! Reads the environment, and reports inconsistent variables.

use std::str::FromStr;

use base::error::{Error, Result};
use base::named::switch;

/// Reads variables; an empty variable counts as not set.
pub(super) struct Vars<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Vars<'_> {
    pub fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|v| v.trim().to_string()).filter(|v| !v.is_empty())
    }

    /// The first variable of several alternative names that is set.
    pub fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(inconsistent(format!("{name} is `{text}`, which is not a number in range"))),
        }
    }

    /// Whether a variable is on; not if it is not set.
    pub fn switch(&self, name: &str) -> Result<bool> {
        let Some(text) = self.text(name) else { return Ok(false) };
        switch(&text).ok_or_else(|| inconsistent(format!("{name} is `{text}`; expected 1 or 0")))
    }

    pub fn first_number<T: FromStr>(&self, names: &[&str]) -> Result<Option<T>> {
        match names.iter().find(|name| self.text(name).is_some()) {
            Some(name) => self.number(name),
            None => Ok(None),
        }
    }

    /// Two variables of which both or neither must be set.
    pub fn pair(&self, first: &str, second: &str) -> Result<Option<(usize, usize)>> {
        match (self.number(first)?, self.number(second)?) {
            (None, None) => Ok(None),
            (Some(a), Some(b)) => Ok(Some((a, b))),
            (Some(_), None) => Err(inconsistent(format!("{first} is set, but {second} is not"))),
            (None, Some(_)) => Err(inconsistent(format!("{second} is set, but {first} is not"))),
        }
    }
}

pub(super) fn inconsistent(what: impl Into<String>) -> Error {
    Error::usage(what.into()).hint(
        "torchrun, srun and mpirun set all of their variables (`ddp-run env` lists those that are set); if none is \
         set, ddp-run starts the processes itself",
    )
}
