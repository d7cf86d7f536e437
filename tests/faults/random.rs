//! SIGKILL to anyone at any moment: a worker, the supervisor, or the whole group. What ends by itself ends well, what does not is
//! started again, and all of it ends in the bits of a run that nothing happened to.
//!
//! `DDP_RUN_ROUNDS=1000 cargo test --test faults random -- --nocapture` plays more rounds than usual.

use crate::common::*;
use crate::trial::*;
use rustix::process::Signal;
use std::fs::File;
use std::process::Stdio;

/// Each a run, its end and its continuation: up to a second. `DDP_RUN_ROUNDS` is for those who wait for more.
const ROUNDS: u64 = 24;

const STEPS: u64 = 40;

/// splitmix64 (Steele et al. 2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A phase and a step that every rank comes to.
fn moment(seed: &mut u64, world: usize) -> String {
    let step = random(seed) % STEPS;
    match random(seed) % 8 {
        0 => "connect".to_owned(),
        1 => format!("save,step={}", step / 2 * 2 + 2),
        2 if world > 1 => format!("all_reduce,step={step}"),
        n => format!("{},step={step}", ["data", "forward", "backward", "sync", "update"][n as usize % 5]),
    }
}

/// Starts the run, waits until `rank` is held at `moment`, and kills the supervisor, and its workers if it is to be `all`. The other
/// ranks are wherever they get without the one.
fn kill_supervisor(trial: &Trial, flags: &[&str], rank: usize, moment: &str, all: bool, what: &str) {
    let mut command = trial.command();
    command.args(["--nproc-per-node", &trial.world.to_string()]).args(flags);
    command.env("DDP_RUN_FAULT", format!("stop:rank={rank},phase={moment}"));
    let told = trial.out.with_file_name("stderr-first");
    command.stdout(Stdio::null()).stderr(File::create(&told).expect("the scratch folder is writable"));
    let child = command.spawn().expect("the binary starts");
    held(&trial.out);
    let workers = if all { children(child.id()) } else { Vec::new() };
    workers.into_iter().chain([child.id()]).for_each(|p| kill(p, Signal::KILL));
    assert_eq!(
        finish(child).status.code(),
        None,
        "{what}: {}",
        std::fs::read_to_string(told).unwrap_or_default()
    );
    // A supervisor's workers die with it, which the kernel may take a moment for.
    assert!(within(HUNG, || processes(&trial.out).is_empty()), "{what}: processes are left");
}

#[test]
fn a_kill_at_a_random_moment_gives_the_same_bits() {
    let _alone = alone();
    let rounds = std::env::var("DDP_RUN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let long = ["--set", &format!("train.max_steps={STEPS}"), "--set", "epochs=20", "--max-restarts", "3"];
    // What nothing happened to, by world.
    let whole = [1, 2, 3].map(|world| {
        let trial = Trial::new(world);
        assert_eq!(trial.run("", &long).code, Some(0));
        trial
    });
    let play = |round: u64| {
        let mut seed = round;
        let whole = &whole[(random(&mut seed) % 3) as usize];
        let trial = Trial::new(whole.world);
        let rank = random(&mut seed) as usize % trial.world;
        let moment = moment(&mut seed, trial.world);
        let victim = ["worker", "supervisor", "group"][round as usize % 3];
        let what = format!("round {round}: {victim}, with rank {rank} of {} at {moment}", trial.world);
        if victim == "worker" {
            let ended = trial.run(&format!("kill:rank={rank},phase={moment},generation=1"), &long);
            let restarts = crate::restarted::restarts(&ended.told);
            assert_eq!((ended.code, restarts), (Some(0), 1), "{what}: {}", ended.told);
        } else {
            kill_supervisor(&trial, &long, rank, &moment, victim == "group", &what);
            let ended = trial.run("", &long);
            assert_eq!(ended.code, Some(0), "{what}, started again: {}", ended.told);
        }
        assert!(trial.bits() == whole.bits(), "{what}: model or optimizer differ");
        assert_eq!(results(&trial.out), results(&whole.out), "{what}");
        trial.assert_nothing_is_left(&what);
    };
    at_once([0, 1], |first| (first..rounds).step_by(2).for_each(&play));
}
