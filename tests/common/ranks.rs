//! Ranks as threads of one process, by the library.

use ddp_run::hook::ProcessGroup;
use ddp_run::testing::{
    gloo::{GlooGroup, GlooOptions},
    rendezvous::{Endpoint, RendezvousConfig, Secret},
};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// Runs `f` on each rank's thread; results by rank.
pub fn on_ranks<R: Send>(
    world: usize,
    options: &GlooOptions,
    f: impl Fn(Arc<dyn ProcessGroup>) -> R + Sync,
) -> Vec<R> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret = Secret::generate().unwrap();
    let mut endpoint = Some(Endpoint::Listener(listener));
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                let config = RendezvousConfig {
                    rank,
                    world_size: world,
                    endpoint: endpoint.take().unwrap_or_else(|| Endpoint::Connect(address.clone())),
                    secret: secret.clone(),
                    run_id: "threads".into(),
                    generation: 0,
                    plan_hash: String::new(),
                    plan_keys: Default::default(),
                    init_timeout: Duration::from_secs(30),
                    timeout: Duration::from_secs(60),
                };
                let (f, options) = (&f, options.clone());
                scope.spawn(move || f(Arc::new(GlooGroup::connect(config, options).unwrap())))
            })
            .collect();
        ranks.into_iter().map(|r| r.join().unwrap()).collect()
    })
}
