//! Parse, dispatch, print one error, exit.

use ddp_run::registry::Registry;

/// Keeps freed blocks instead of giving them back to the kernel after each step, as glibc's allocator does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    Registry::standard().run()
}
