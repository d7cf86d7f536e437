//! What a run survives, from the outside: the real binary, with a fault (`DDP_RUN_FAULT`) at each moment of its life, on
//! one machine and on two hosts made of network namespaces. Whatever happens, the run ends, with the documented exit
//! code, blames the right rank, and leaves nothing behind.
#![cfg(target_os = "linux")]

mod asked;
#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod flipped;
mod hosts;
mod killed;
mod nodes;
mod pair;
mod random;
mod restarted;
mod stopped;
mod trial;
