//! The program with the components that ship with it.

use ddp_run::{Registry, cli};

/// Keeps freed blocks instead of giving them back to the kernel after each step, as glibc's allocator does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    cli::main(&Registry::standard())
}
