//! Groups whose ranks are threads of this process, and ports reserved for one test, for the tests of every crate that communicates.

use super::gloo::{GlooGroup, GlooOptions};
use super::rendezvous::{Endpoint, RendezvousConfig, Secret};
use super::threads::configs;
use std::thread;
use std::time::Duration;

// The tests of the real binary use the same file.
#[allow(dead_code, reason = "each of them uses a part of it")]
mod port;

pub use base::testing::HANG;
pub use port::Port;

pub fn config(rank: usize, world_size: usize, endpoint: Endpoint, secret: &Secret) -> RendezvousConfig {
    RendezvousConfig {
        rank,
        world_size,
        endpoint,
        secret: secret.clone(),
        run_id: "test".into(),
        generation: 0,
        plan_hash: "same".into(),
        plan_keys: Default::default(),
        init_timeout: HANG,
        timeout: HANG,
    }
}

/// A group of `world` ranks, by rank; options are by rank, too.
pub fn form(world: usize, timeout: Duration, options: impl Fn(usize) -> GlooOptions) -> Vec<GlooGroup> {
    let ranks: Vec<_> = configs(world, timeout)
        .unwrap()
        .into_iter()
        .map(|config| {
            let options = options(config.rank);
            let config = RendezvousConfig { init_timeout: HANG, ..config };
            thread::spawn(move || GlooGroup::connect(config, options).unwrap())
        })
        .collect();
    ranks.into_iter().map(|t| t.join().unwrap()).collect()
}
