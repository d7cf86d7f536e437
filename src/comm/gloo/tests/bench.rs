//! Measurements, run by hand: `cargo test --release gloo::tests::bench -- --ignored --nocapture --test-threads=1`.

use super::*;
use crate::comm::{ProcessGroup, ReduceOp};
use std::time::Instant;

/// Seconds of CPU time of this thread: on a busy machine the better measure of the work done.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

#[test]
#[ignore = "a measurement, not a test"]
fn all_reduce_speed() {
    let world = std::env::var("WORLD").ok().and_then(|w| w.parse().ok()).unwrap_or(2);
    let transport = std::env::var("TRANSPORT").ok().and_then(|t| Transport::parse(&t)).unwrap_or_default();
    let groups = form(transport, world, AMPLE);
    for (bytes, rounds) in [
        (4usize, 5000),
        (1 << 10, 5000),
        (64 << 10, 2000),
        (1 << 20, 300),
        (2_700_000, 200),
        (45_000_000, 15),
        (64 << 20, 12),
    ] {
        let mut times = on_ranks(&groups, |g| {
            let mut v = vec![1f32; bytes / 4];
            let before = cpu();
            let mut times: Vec<f64> = (0..rounds + rounds / 5 + 2)
                .map(|_| {
                    let start = Instant::now();
                    g.all_reduce((&mut v).into(), ReduceOp::Mean).unwrap();
                    start.elapsed().as_secs_f64()
                })
                .skip(rounds / 5 + 2)
                .collect();
            times.sort_by(f64::total_cmp);
            times.push((cpu() - before) / (rounds + rounds / 5 + 2) as f64);
            times
        });
        let mut t = times.swap_remove(0);
        let cpu = t.pop().unwrap_or(f64::NAN) * 1e6;
        let median = t[t.len() / 2];
        let bus = bytes as f64 * 2.0 * (world - 1) as f64 / world as f64 / median / 1e9;
        let [median, best] = [median, t[0]].map(|seconds| seconds * 1e6);
        println!(
            "{bytes:>9} B: median {median:>9.1} us, best {best:>9.1} us, CPU {cpu:>9.1} us, bus {bus:.2} GB/s"
        );
    }
}
