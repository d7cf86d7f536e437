//! Reads variables of the environment; the errors name them.

use crate::named::switch;
use std::str::FromStr;

/// Looks variables up; an empty variable counts as not set.
pub struct Variables<'a, E> {
    /// The value of a variable that is set.
    pub get: &'a dyn Fn(&str) -> Option<String>,
    inconsistent: fn(String) -> E,
}

impl<'a, E> Variables<'a, E> {
    /// `inconsistent` makes the error of variables that cannot be read, or contradict each other.
    pub fn new(get: &'a dyn Fn(&str) -> Option<String>, inconsistent: fn(String) -> E) -> Self {
        Self { get, inconsistent }
    }

    /// The error of variables that contradict each other.
    pub fn inconsistent(&self, what: impl Into<String>) -> E {
        (self.inconsistent)(what.into())
    }

    /// The value, without white space around it.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The value as a number.
    ///
    /// # Errors
    /// It is none in the range of `T`.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, E> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.inconsistent(format!("{name} is `{text}`, which is not a number in range"))),
        }
    }

    /// Whether the variable is on; not if it is not set.
    ///
    /// # Errors
    /// It is neither on nor off.
    pub fn switch(&self, name: &str) -> Result<bool, E> {
        let Some(text) = self.text(name) else { return Ok(false) };
        switch(&text).ok_or_else(|| self.inconsistent(format!("{name} is `{text}`; expected 1 or 0")))
    }

    /// The first variable of several alternative names that is set.
    pub fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    /// The same as a number.
    ///
    /// # Errors
    /// As [`Self::number`].
    pub fn first_number<T: FromStr>(&self, names: &[&str]) -> Result<Option<T>, E> {
        match names.iter().find(|name| self.text(name).is_some()) {
            Some(name) => self.number(name),
            None => Ok(None),
        }
    }

    /// Two variables of which both or neither must be set.
    ///
    /// # Errors
    /// One of them is set, or one is not a number.
    pub fn pair(&self, first: &str, second: &str) -> Result<Option<(usize, usize)>, E> {
        match (self.number(first)?, self.number(second)?) {
            (None, None) => Ok(None),
            (Some(a), Some(b)) => Ok(Some((a, b))),
            (Some(_), None) => Err(self.inconsistent(format!("{first} is set, but {second} is not"))),
            (None, Some(_)) => Err(self.inconsistent(format!("{second} is set, but {first} is not"))),
        }
    }
}
