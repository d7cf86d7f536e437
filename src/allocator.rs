//! The allocator of the program, and what of it is set for training.

#![allow(unsafe_code)]

pub use mimalloc::MiMalloc as Allocator;
use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay`: milliseconds until freed memory is given back to the system; never, if negative.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Keeps freed memory: a step of training needs again what the one before has freed, and the system would set every page of it to zero.
/// `MIMALLOC_PURGE_DELAY` of the environment decides otherwise.
pub(crate) fn keep_freed_memory() {
    // SAFETY: a function of mimalloc's API that may be called at any time, with an option that it has and a value of that option.
    unsafe { mi_option_set_default(PURGE_DELAY, -1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    fn delay() -> c_long {
        // SAFETY: as above; it only reads.
        unsafe { mi_option_get(PURGE_DELAY) }
    }

    /// The number is that of the option which the environment calls so, and the environment's value stays.
    #[test]
    fn freed_memory_is_kept_unless_the_environment_says_otherwise() {
        const KEY: &str = "MIMALLOC_PURGE_DELAY";
        const NAME: &str = "allocator::tests::freed_memory_is_kept_unless_the_environment_says_otherwise";
        if std::env::var_os("DDP_RUN_ALLOCATOR_TEST").is_some() {
            keep_freed_memory();
            println!("delay {}.", delay());
            return;
        }
        let child = |value: Option<&str>| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([NAME, "--exact", "--nocapture"]).env("DDP_RUN_ALLOCATOR_TEST", "1").env_remove(KEY);
            command.envs(value.map(|value| (KEY, value)));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        for (value, expected) in [(Some("4321"), "delay 4321."), (None, "delay -1.")] {
            let said = child(value);
            assert!(said.contains(expected), "{value:?}: {said}");
        }
    }
}
