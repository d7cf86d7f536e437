//! The program with the components that ship with it.

use ddp_run::Registry;
use ddp_run::prelude::{Allocator, Program};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() {
    Registry::standard().run()
}
