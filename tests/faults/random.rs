//! SIGKILL to anyone at any moment: a worker, the supervisor, or the whole group. What ends by itself ends well, what does not is
//! started again, and all of it ends in the bits of a run that nothing happened to.
//!
//! `DDP_RUN_ROUNDS=1000 cargo test --test faults random -- --nocapture` plays more rounds than usual.

use crate::common::*;
use crate::trial::*;
use rustix::process::Signal;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A tenth of a second each.
const ROUNDS: u64 = 100;

const STEPS: u64 = 40;

/// splitmix64 (Steele et al. 2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn a_kill_at_a_random_moment_costs_no_bit() {
    let _alone = alone();
    let rounds = std::env::var("DDP_RUN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let shared = shared_memory();
    let long = ["--set", &format!("train.max_steps={STEPS}"), "--set", "epochs=20", "--max-restarts", "3"];
    // What nothing happened to, by world.
    let whole = [1, 2, 3].map(|world| {
        let trial = Trial::new(world);
        assert_eq!(trial.run("", &long).code, Some(0));
        trial
    });
    let mut killed = [0, 0, 0];
    let mut restarted = 0;
    for round in 0..rounds {
        let mut seed = round;
        let whole = &whole[(random(&mut seed) % 3) as usize];
        let trial = Trial::new(whole.world);
        let victim = (round % 3) as usize;
        // Some milliseconds after a step, or after the start.
        let (step, after) = (random(&mut seed) % STEPS, Duration::from_micros(random(&mut seed) % 20_000));
        let what =
            format!("round {round}: world {}, victim {victim}, {after:?} after step {step}", trial.world);
        let mut command = trial.command();
        command.args(["--nproc-per-node", &trial.world.to_string()]).args(long);
        let told = trial.out.with_file_name("stderr-first");
        command.stdout(Stdio::null()).stderr(File::create(&told).expect("the scratch folder is writable"));
        let mut child = command.spawn().expect("the binary starts");
        let steps = || events(&trial.out).iter().filter(|e| e["event"] == "step").count() as u64;
        let mut over = false;
        let came = within(HUNG, || {
            over = child.try_wait().expect("it is our child").is_some();
            over || step == 0 || steps() >= step
        });
        assert!(came, "{what}: hangs");
        let begun = Instant::now();
        while begun.elapsed() < after {
            std::thread::park_timeout(after.saturating_sub(begun.elapsed()));
        }
        let workers = children(child.id());
        match victim {
            0 => workers
                .get(random(&mut seed) as usize % workers.len().max(1))
                .into_iter()
                .for_each(|w| kill(*w, Signal::KILL)),
            1 => kill(child.id(), Signal::KILL),
            _ => workers.iter().chain([&child.id()]).for_each(|p| kill(*p, Signal::KILL)),
        }
        let mut status = None;
        let ended = within(HUNG, || {
            status = child.try_wait().expect("it is our child");
            status.is_some()
        });
        let told = std::fs::read_to_string(told).unwrap_or_default();
        assert!(ended, "{what}: hangs\n{told}");
        killed[victim] += 1;
        restarted += crate::restarted::restarts(&told);
        let code = status.and_then(|s| s.code());
        // A supervisor's workers die with it, which the kernel may take a moment for.
        assert!(
            within(Duration::from_secs(5), || processes(&trial.out).is_empty()),
            "{what}: processes are left"
        );
        if victim == 0 {
            assert_eq!(code, Some(0), "{what}: {told}");
        } else if code != Some(0) {
            let ended = trial.run("", &long);
            assert_eq!(ended.code, Some(0), "{what}, started again: {}", ended.told);
        }
        assert!(trial.bits() == whole.bits(), "{what}: model or optimizer differ");
        assert_eq!(results(&trial.out), results(&whole.out), "{what}");
        trial.assert_nothing_is_left(&what);
    }
    assert_no_new_shared_memory(&shared);
    println!(
        "{rounds} rounds: killed {killed:?} (worker, supervisor, group), {restarted} restarts by the supervisor"
    );
}
