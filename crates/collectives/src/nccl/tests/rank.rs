//! The rank side: the cases.

use super::super::{NcclGroup, gpu_uuid, status};
use super::gpu::{Gpu, Memory};
use super::launch::{play_rank, variable};
use crate::gloo::{GlooGroup, GlooOptions};
use crate::rendezvous::{Endpoint, Secret};
use crate::testing::{HANG, config};
use crate::{
    CommError, DeviceCollectives, DistributedConfig, Element, FlightRecorder, Phase, ProcessGroup, ReduceOp,
    SoloGroup, StepPhase, Wait,
};
use half::bf16;
use rustix::process::{Signal, getpid, kill_process};
use spec::Period;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

type Done = Result<(), CommError>;

/// For calls that are meant to reach their deadline, after their ranks have met in the call before.
const SHORT: Duration = Duration::from_secs(5);

/// One rank of the case that the environment names.
#[test]
#[ignore = "a rank, started by the tests beside it"]
fn rank() {
    play_rank(|case, rank, folder| match case {
        "status" => format!("{:?}", status()),
        "uuid" => gpu_uuid(0).map_or_else(|why| why, |uuid| uuid.to_string()),
        _ => play(case, rank, variable("DDP_RUN_NCCL_DEVICE").unwrap_or(0), folder),
    });
}

/// At a deadline, waits for the answers of all live ranks, however long they take.
fn control(case: &str, rank: usize, folder: &Path) -> Arc<dyn ProcessGroup> {
    let world_size: usize = variable("DDP_RUN_NCCL_WORLD").expect("set with the case");
    if world_size == 1 {
        return Arc::new(SoloGroup::default());
    }
    let file = folder.join("address");
    let endpoint = match rank {
        0 => Endpoint::Publish { address: [127, 0, 0, 1].into(), host: "127.0.0.1".into(), file },
        _ => Endpoint::Lookup(file),
    };
    let config = config(rank, world_size, endpoint, &Secret::derive(b"key", "a test"));
    let control = GlooGroup::connect(config, GlooOptions::default()).expect("the control group forms");
    control.count_answers(world_size - 1 - usize::from(case == "stopped"));
    Arc::new(control)
}

/// What the rank reports: `done`, or how it failed.
fn play(case: &str, rank: usize, device: usize, folder: &Path) -> String {
    let short = matches!(case, "hang" | "late" | "stopped");
    let timeout = if short { SHORT } else { HANG };
    let init_timeout = if case == "join" { Duration::from_secs(1) } else { HANG };
    let limits = DistributedConfig { timeout: Period(timeout), init_timeout: Period(init_timeout) };
    let control = control(case, rank, folder);
    let group = match NcclGroup::connect(control, device, &limits) {
        Ok(group) => group,
        Err(e) => {
            let error = base::error::Error::from(e);
            return format!("{:?}: {error}", error.kind);
        }
    };
    assert_eq!((group.backend(), group.rank()), ("nccl", rank));
    let done = act(case, &group, &Gpu::new(device));
    match done {
        Ok(()) => "done".to_owned(),
        Err(e) => {
            let device = group.device_collectives().expect("it has some");
            assert_eq!(device.check(), Err(e.clone()), "the group stays failed");
            assert_eq!(group.barrier(Wait::Deadline), Err(e.clone()), "for all calls");
            format!("{:?}, peer {}: {e}", e.kind, e.peer.map_or(-1, |p| p as i64))
        }
    }
}

fn act(case: &str, group: &NcclGroup, gpu: &Gpu) -> Done {
    match case {
        "sums" => sums(group, gpu),
        "order" => order(group, gpu),
        "guard" => guard(group, gpu),
        "history" => history(group, gpu),
        _ => fail(case, group, gpu),
    }
}

fn device(group: &NcclGroup) -> &dyn DeviceCollectives {
    group.device_collectives().expect("this group has them")
}

fn sum(group: &NcclGroup, gpu: &Gpu, memory: Memory) -> Done {
    device(group).all_reduce(gpu.lend(memory, Box::new(())), ReduceOp::Sum)
}

/// Reduces `values(rank, index)` and compares each element with `expected` of all ranks' values for it.
fn check<T: Element + PartialEq + std::fmt::Debug>(
    group: &NcclGroup,
    gpu: &Gpu,
    op: ReduceOp,
    values: impl Fn(usize, usize) -> T,
    expected: impl Fn(&[T]) -> T,
) -> Done {
    for len in [1, 1000, 70_001] {
        let memory = gpu.memory::<T>(len);
        gpu.write(memory, &(0..len).map(|i| values(group.rank(), i)).collect::<Vec<_>>());
        device(group).all_reduce(gpu.lend(memory, Box::new(())), op)?;
        device(group).fence()?;
        let got = gpu.read::<T>(memory);
        device(group).check()?;
        for (i, got) in got.into_iter().enumerate() {
            let all: Vec<T> = (0..group.world_size()).map(|rank| values(rank, i)).collect();
            assert_eq!(got, expected(&all), "{op:?} of {all:?} at {i}");
        }
    }
    Ok(())
}

fn sums(group: &NcclGroup, gpu: &Gpu) -> Done {
    let mixed = |rank: usize, i: usize| ((i * 7 + rank * 13) % 64) as f32 - 20.0;
    check(group, gpu, ReduceOp::Sum, mixed, |all| all.iter().sum())?;
    check(group, gpu, ReduceOp::Max, mixed, |all| all.iter().copied().fold(f32::MIN, f32::max))?;
    check(group, gpu, ReduceOp::Min, mixed, |all| all.iter().copied().fold(f32::MAX, f32::min))?;
    // Whole numbers, so that every order of operations gives the same result.
    let world = group.world_size();
    let multiple = |rank: usize, i: usize| (i % 10 + rank) as f32 * world as f32;
    check(group, gpu, ReduceOp::Mean, multiple, |all| all.iter().sum::<f32>() / all.len() as f32)?;
    let halves = |rank: usize, i: usize| bf16::from_f32((i % 16 + rank) as f32);
    check(group, gpu, ReduceOp::Sum, halves, |all| bf16::from_f32(all.iter().map(|v| v.to_f32()).sum()))?;
    check(group, gpu, ReduceOp::Sum, |rank, i| (rank + i) as i32, |all| all.iter().sum())?;
    // Many in flight at a time, with calls of the control group in between.
    let memory = gpu.memory::<f32>(100);
    gpu.write(memory, &[1.0f32; 100]);
    for round in 0..12 {
        sum(group, gpu, memory)?;
        if round % 5 == 0 {
            group.barrier(Wait::Deadline)?;
        }
    }
    device(group).fence()?;
    assert_eq!(gpu.read::<f32>(memory), vec![(world as f32).powi(12); 100]);
    device(group).check()
}

/// The first write is held until the collective and the fence have been called; the collective, until rank 1 arrives.
fn order(group: &NcclGroup, gpu: &Gpu) -> Done {
    let (memory, len) = (gpu.memory::<f32>(1000), 1000);
    gpu.write(memory, &vec![-1.0f32; len]);
    let gate = gpu.hold();
    gpu.write(memory, &vec![1.0 + group.rank() as f32; len]);
    sum(group, gpu, memory)?;
    device(group).fence()?;
    // Neither call has waited: the gate is still closed.
    assert!(!gate.load(Ordering::Acquire));
    let second = gpu.memory::<f32>(len);
    group.barrier(Wait::Deadline)?;
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_millis(30));
    }
    gate.store(true, Ordering::Release);
    // This read is launched after the fence, so it finds the sum.
    assert_eq!(gpu.read::<f32>(memory), vec![3.0; len]);
    gpu.write(second, &vec![5.0f32; len]);
    sum(group, gpu, second)?;
    device(group).fence()?;
    assert_eq!(gpu.read::<f32>(second), vec![10.0; len]);
    device(group).check()
}

fn guard(group: &NcclGroup, gpu: &Gpu) -> Done {
    let memory = gpu.memory::<f32>(1000);
    let gate = gpu.hold();
    gpu.write(memory, &[1.0f32; 1000]);
    let keep = Arc::new(());
    device(group).all_reduce(gpu.lend(memory, Box::new(keep.clone())), ReduceOp::Sum)?;
    device(group).fence()?;
    // The watchdog has checked many times by then.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(Arc::strong_count(&keep), 2, "lent");
    gate.store(true, Ordering::Release);
    assert_eq!(gpu.read::<f32>(memory), vec![2.0; 1000]);
    let begun = Instant::now();
    while Arc::strong_count(&keep) > 1 {
        assert!(begun.elapsed() < HANG, "never given back");
        std::thread::yield_now();
    }
    device(group).check()
}

fn history(group: &NcclGroup, gpu: &Gpu) -> Done {
    group.note(StepPhase { step: 3, phase: Phase::Sync });
    group.barrier(Wait::Deadline)?;
    let memory = gpu.memory::<f32>(10);
    gpu.write(memory, &[0.0f32; 10]);
    sum(group, gpu, memory)?;
    device(group).fence()?;
    gpu.read::<f32>(memory);
    let begun = Instant::now();
    let took = || group.history().iter().all(|call| call.took.is_some());
    while !took() && begun.elapsed() < HANG {
        std::thread::yield_now();
    }
    group.barrier(Wait::Deadline)?;
    let calls = group.history();
    let last: Vec<(&str, &str, u64)> =
        calls.iter().rev().take(3).map(|c| (c.call.as_str(), c.algorithm, c.place.step)).collect();
    assert_eq!(last[1], ("all_reduce #1 (sum of 10 f32)", "library", 3));
    assert!(last[0].0.starts_with("barrier #") && last[2].0.starts_with("barrier #"), "{last:?}");
    assert!(took(), "{calls:?}");
    assert_eq!(group.place(), StepPhase { step: 3, phase: Phase::Sync });
    Ok(())
}

/// Cases in which the second collective fails: the thread that waits for the device returns, and then gets the error.
fn fail(case: &str, group: &NcclGroup, gpu: &Gpu) -> Done {
    let me = group.rank();
    let memory = gpu.memory::<f32>(1000);
    gpu.write(memory, &[1.0f32; 1000]);
    sum(group, gpu, memory)?;
    device(group).fence()?;
    gpu.read::<f32>(memory);
    group.barrier(Wait::Deadline)?;
    group.note(StepPhase { step: 7, phase: if me == 1 { Phase::Data } else { Phase::Sync } });
    match case {
        "late" if me == 1 => return wait_for_failure(group),
        "stopped" if me == 1 => signal(Signal::STOP, group.world_size()),
        "killed" | "missed" if me == 1 => signal(Signal::KILL, group.world_size()),
        "control" => {
            sum(group, gpu, memory)?;
            // What is read below is read after the collective.
            device(group).fence()?;
            let mut one = [1.0f32; 2];
            let failed = group.all_reduce((&mut one[..me + 1]).into(), ReduceOp::Sum);
            return failed
                .and_then(|()| wait_for_failure(group))
                .inspect_err(|_| drop(gpu.read::<f32>(memory)));
        }
        "misuse" if me == 1 => {
            let wrong = gpu.memory::<i32>(1);
            return device(group).all_reduce(gpu.lend(wrong, Box::new(())), ReduceOp::Mean);
        }
        "abort" if me == 0 => {
            group.abort("disk full");
            return device(group).check();
        }
        // NCCL fails during the launch, and rank 1 is to be gone soon after.
        "missed" => {
            mark(me);
            wait_for_marks(group.world_size());
        }
        _ => {}
    }
    sum(group, gpu, memory)?;
    mark(me);
    device(group).fence()?;
    // Returns although the collective never ends by itself.
    gpu.read::<f32>(memory);
    device(group).check()
}

fn wait_for_failure(group: &NcclGroup) -> Done {
    let begun = Instant::now();
    while begun.elapsed() < HANG {
        device(group).check()?;
        std::thread::yield_now();
    }
    Ok(())
}

/// The file that shows that a rank has launched the second collective, or is about to.
fn launched(rank: usize) -> PathBuf {
    let folder: PathBuf = variable("DDP_RUN_NCCL_FOLDER").expect("set with the case");
    folder.join(format!("launched-{rank}"))
}

fn mark(rank: usize) {
    std::fs::write(launched(rank), "").expect("the folder is writable");
}

/// Waits for all ranks but rank 1.
fn wait_for_marks(world: usize) {
    let begun = Instant::now();
    while (0..world).any(|rank| rank != 1 && !launched(rank).exists()) {
        assert!(begun.elapsed() < HANG, "the others don't come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends itself `signal` once the other ranks wait for it.
fn signal(signal: Signal, world: usize) -> ! {
    wait_for_marks(world);
    let _ = kill_process(getpid(), signal);
    loop {
        std::thread::park();
    }
}
