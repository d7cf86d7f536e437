//! Catches panics of users' model code on input that it does not accept.

use crate::error::Error;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The result of `work`, or its panic message and location. Nothing is printed.
pub fn catch_model_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| match expected() {
            true => PLACE.set(info.location().map(|at| format!(" (at {at})")).unwrap_or_default()),
            false => before(info),
        }));
    });
    let outer = EXPECTED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(outer);
    done.map_err(|panic| message(&*panic) + &PLACE.take())
}

/// Ends a forward pass, which returns no errors, with an error that is no bug.
pub fn end_with(error: Error) -> ! {
    resume_unwind(Box::new(error))
}

/// Whether a panic of this thread will be caught here.
pub fn expected() -> bool {
    EXPECTED.get()
}

/// The message of a panic.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let error = panic.downcast_ref::<Error>().map(|error| &error.message);
    let text = panic.downcast_ref::<String>().or(error).map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_returned_with_its_message_and_location() {
        assert_eq!(catch_model_panic(|| 7), Ok(7));
        let (number, here) = (3, file!());
        let why = catch_model_panic(|| -> u8 { panic!("there are {number}") }).unwrap_err();
        assert!(why.starts_with(&format!("there are 3 (at {here}:")), "{why}");
        assert!(!expected());
    }
}
