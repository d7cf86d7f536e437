//! The rank side: the cases.

use super::super::MpiGroup;
use super::super::control_messages::GracePeriods;
use super::launch::said;
use crate::reference::{check_all, check_type, order_dependent};
use crate::testing::HANG;
use crate::{CommError, DType, FlightRecorder, MpiConfig, Phase, ProcessGroup, ReduceOp, StepPhase, Wait};
use half::bf16;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Done = Result<String, CommError>;

/// For calls that are meant to reach their deadline.
const SHORT: Duration = Duration::from_secs(1);

fn variable<T: std::str::FromStr>(names: &[&str]) -> Option<T> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

fn config() -> MpiConfig {
    MpiConfig {
        rank: variable(&["OMPI_COMM_WORLD_RANK", "PMI_RANK"]).expect("started by mpirun"),
        world_size: variable(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]).expect("started by mpirun"),
        plan_hash: "a".into(),
        init_timeout: HANG,
        timeout: HANG,
    }
}

/// One rank of the case that the environment names. Exits with 91 if the group fails, as a worker would.
#[test]
#[ignore = "a rank, started under mpirun by the tests beside it"]
fn rank() {
    let Some(case) = variable::<String>(&["DDP_RUN_MPI_CASE"]) else { return };
    let folder: PathBuf = variable(&["DDP_RUN_MPI_FOLDER"]).expect("set with the case");
    let mut config = config();
    let rank = config.rank;
    prepare(&case, &mut config);
    let (group, done) = match MpiGroup::connect(&config) {
        Ok(mut group) => {
            group.set_grace_periods(grace_periods(&case, group.world_size()));
            let done = act(&case, &mut group);
            (Some(group), done)
        }
        Err(e) => (None, Err(e)),
    };
    let (text, code) = match done {
        Ok(text) => (text, 0),
        Err(e) => (format!("{:?}, peer {}: {e}", e.kind, e.peer.map_or(-1, |p| p as i64)), 91),
    };
    say(&folder, rank, &text);
    if case == "crossed" {
        // Each is late for the other, so neither stays for it; and when the first one ends, mpirun kills one that has
        // not reported yet.
        let begun = Instant::now();
        while !(0..2).all(|rank| said(&folder, rank).exists()) {
            assert!(begun.elapsed() < HANG, "the other rank says nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(group);
    if code != 0 {
        std::process::exit(code);
    }
}

/// Writes the file atomically.
fn say(folder: &Path, rank: usize, text: &str) {
    let scratch = folder.join(format!("{rank}.part"));
    std::fs::write(&scratch, text).expect("the folder is writable");
    std::fs::rename(scratch, said(folder, rank)).expect("the folder is writable");
}

/// No live rank is taken for lost because it is slow: answers are counted, and last messages are waited for.
fn grace_periods(case: &str, world: usize) -> GracePeriods {
    let answers = match case {
        "stopped" => Some(world - 2),
        "crossed" => Some(world - 1),
        _ => None,
    };
    // Only then is rank 1 needed after its goodbye.
    let goodbye = if case == "left" { GracePeriods::default().goodbye } else { HANG };
    GracePeriods { goodbye, linger: HANG, precedence: HANG, answers }
}

fn prepare(case: &str, config: &mut MpiConfig) {
    match case {
        "other-plan" if config.rank == 1 => config.plan_hash = "b".into(),
        "other-rank" => config.rank = 1 - config.rank,
        _ => {}
    }
}

fn act(case: &str, g: &mut MpiGroup) -> Done {
    let (me, world) = (g.rank(), g.world_size());
    match case {
        "reference" => {
            // 48 f32 are the most that fit into a notice.
            for n in [0, 1, 7, 48, 49, 1023, 70_003] {
                DType::ALL.into_iter().for_each(|dtype| check_type(g, dtype, n));
            }
        }
        "large" => {
            check_all::<f32>(g, 2_400_001);
            check_all::<bf16>(g, 700_001);
            check_all::<u8>(g, 3_000_001);
        }
        "arithmetic" => arithmetic(g),
        "order" => return Ok(order(g)),
        "record" => record(g),
        "threads" => threads(g),
        "late" => {
            g.barrier(Wait::Deadline)?;
            if me == 1 {
                std::thread::sleep(Duration::from_millis(700));
            }
        }
        _ => return fail(case, g, me, world),
    }
    Ok("done".into())
}

/// Cases in which the second call fails; the group stays failed afterwards.
fn fail(case: &str, g: &mut MpiGroup, me: usize, world: usize) -> Done {
    let last = me == world - 1;
    let mut v = vec![1f32; 1000];
    g.all_reduce((&mut v).into(), ReduceOp::Sum)?;
    match case {
        "stopped" | "crossed" => g.set_timeout(SHORT),
        "stopped-within" => return stopped_within(g, me),
        _ => {}
    }
    let g = &*g;
    let failed = match case {
        "other-count" if last => g.all_reduce((&mut vec![1f32; 999]).into(), ReduceOp::Sum),
        "other-operation" if last => g.broadcast((&mut v).into(), 0),
        "other-message" if me == 0 => {
            g.send((&vec![1f32; 4]).into(), 1, 9).and_then(|()| g.barrier(Wait::Deadline))
        }
        "other-message" => g.recv((&mut vec![1f32; 5]).into(), 0, 9),
        "misuse" if me == 1 => g.all_reduce((&mut vec![1i32; 3]).into(), ReduceOp::Mean),
        "abort" if me == 1 => {
            g.abort("disk full");
            g.barrier(Wait::Deadline)
        }
        "abort-beside" => std::thread::scope(|scope| {
            if me == 0 {
                scope.spawn(|| {
                    // Rank 1 makes no call, so rank 0 stays in its own.
                    while g.history().len() < 2 {
                        std::thread::yield_now();
                    }
                    g.abort("from beside");
                });
                return g.barrier(Wait::WhilePeersLive);
            }
            g.recv((&mut v).into(), 0, 0)
        }),
        "left" if me == 1 => return Ok("done".into()),
        "stopped" if last => stop(),
        "crossed" if me == 0 => g.recv((&mut v).into(), 1, 0),
        "crossed" => g.barrier(Wait::Deadline),
        "killed" if last => kill(),
        _ => g.all_reduce((&mut v).into(), ReduceOp::Sum),
    };
    let error = failed.expect_err("the second call fails");
    assert_eq!(g.barrier(Wait::Deadline), Err(error.clone()), "the group stays failed");
    Err(error)
}

fn stop() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    unreachable!("mpirun kills what is stopped")
}

fn kill() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    unreachable!("killed")
}

/// Rank 1 stops during a large transfer.
fn stopped_within(g: &mut MpiGroup, me: usize) -> Done {
    let mut v = vec![1f32; 1 << 24];
    g.barrier(Wait::Deadline)?;
    // The transfer begins, and rank 1 stops, long before this.
    g.set_timeout(10 * SHORT);
    let g = &*g;
    std::thread::scope(|scope| {
        if me == 1 {
            scope.spawn(|| {
                while g.history().len() < 3 {
                    std::thread::yield_now();
                }
                stop()
            });
        }
        // 64 MiB take tens of milliseconds; the other thread sees the call begin.
        loop {
            g.all_reduce((&mut v).into(), ReduceOp::Mean)?;
        }
    })
}

fn arithmetic(g: &MpiGroup) {
    let (me, world) = (g.rank(), g.world_size());
    for n in [3usize, 40_000] {
        // (a + a) / 2 is a, to the bit.
        let v: Vec<f32> = (0..n).map(|i| (i as f32 + 0.1).sqrt() * 1e-3).collect();
        let mut mean = v.clone();
        g.all_reduce((&mut mean).into(), ReduceOp::Mean).unwrap();
        assert!(v == mean, "mean of {n}");
        // 256 + 1 is 256 in bf16: rounded at each step, the ones would be lost.
        let mut v = vec![bf16::from_f32(if me == 0 { 256.0 } else { 1.0 }); n];
        g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
        assert_eq!(v, vec![bf16::from_f32(255.0 + world as f32); n]);
        for (op, want) in [(ReduceOp::Max, world as f32 - 1.0), (ReduceOp::Min, 0.0)] {
            let mut v = vec![me as f32; n];
            if me == 1 {
                v[1] = f32::NAN;
            }
            g.all_reduce((&mut v).into(), op).unwrap();
            assert!(v[0] == want && v[1].is_nan(), "{op:?}");
        }
        let mut v = vec![i32::MAX; n];
        g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
        assert_eq!(v, vec![i32::MAX.wrapping_mul(world as i32); n]);
    }
}

/// Digest of results that depend on the order of operands.
fn order(g: &MpiGroup) -> String {
    let mut digest = Sha256::new();
    for n in [5usize, 1000, 50_000, 1_000_003] {
        for _ in 0..2 {
            digest.update(order_dependent(g, n));
        }
    }
    data_encoding::HEXLOWER.encode(&digest.finalize())
}

fn record(g: &MpiGroup) {
    g.note(StepPhase { step: 3, phase: Phase::Sync });
    for _ in 0..70 {
        g.barrier(Wait::Deadline).unwrap();
    }
    g.all_reduce((&mut vec![0f32; 10]).into(), ReduceOp::Max).unwrap();
    let history = g.history();
    let last = history.last().unwrap();
    assert_eq!(last.call, "all_reduce #71 (max of 10 f32)");
    assert_eq!((last.sequence, last.count, last.algorithm, last.place.step), (71, 10, "library", 3));
    assert!(last.took.is_some());
    assert_eq!((history.len(), history[0].sequence), (64, 8));
    assert_eq!(g.place(), StepPhase { step: 3, phase: Phase::Sync });
}

fn threads(g: &MpiGroup) {
    // The order is the same on all ranks because all calls are alike.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut v = vec![1i32; 30_000];
                    g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
                    assert_eq!(v, vec![2; 30_000]);
                }
            });
        }
    });
}
