//! The disk fills or the process dies at each operation of a save in turn. Afterwards the previous checkpoint or the
//! new one is found, complete.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::fault::{Fault, FaultyFs};
use super::snapshot::Snapshot;
use super::testing::{same, scratch, snapshot, steps};
use super::{CheckpointConfig, CheckpointStore, TensorData, TensorMap};
use base::error::{ErrorKind, is_transient};

fn hidden(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with(".tmp-") || n.starts_with(".old-")).collect()
}

/// Runs `act` on a store that contains `first`, crashing at each operation in turn until it succeeds. After each crash
/// a reader and then a new writer open the store, and `check` judges the result.
fn at_every_crash_point(
    fault: fn(usize) -> Fault,
    first: &[Snapshot],
    act: impl Fn(&CheckpointStore) -> bool,
    check: impl Fn(&CheckpointStore, usize),
) -> usize {
    for point in 0..200 {
        let dir = scratch();
        let store = CheckpointStore::open(dir.path()).unwrap();
        first.iter().for_each(|s| drop(store.save(s).unwrap()));
        let fs = FaultyFs::new(fault(point));
        let finished = act(&CheckpointStore::open_with(dir.path(), Arc::new(fs)).unwrap());
        check(&CheckpointStore::read_only(dir.path()), point);
        let reopened = CheckpointStore::open(dir.path()).unwrap();
        check(&reopened, point);
        assert_eq!(hidden(dir.path()), [] as [&str; 0], "left behind after a crash at operation {point}");
        // Training can continue from here.
        reopened.save(&snapshot(900, 9)).unwrap();
        assert!(same(&reopened.latest_verified().unwrap().unwrap(), &snapshot(900, 9)));
        if finished {
            return point;
        }
    }
    panic!("never got through");
}

#[test]
fn a_crash_during_a_save_leaves_the_previous_or_the_new_checkpoint() {
    let points = at_every_crash_point(
        Fault::CrashAt,
        &[snapshot(240, 0)],
        |store| store.save(&snapshot(480, 0)).is_ok(),
        |store, point| {
            let found = store.latest_verified().unwrap().unwrap();
            assert!(same(&found, &snapshot(found.state.global_step, 0)), "operation {point}");
            assert_eq!(found.warnings, [] as [&str; 0], "operation {point}");
        },
    );
    assert!(points >= 12, "only {points} operations: the fault injector is not in the way");
}

#[test]
fn a_crash_during_replacement_leaves_the_old_or_the_new_checkpoint() {
    for fault in [Fault::CrashAt, Fault::CrashWithoutExchangeAt] {
        at_every_crash_point(
            fault,
            &[snapshot(480, 0)],
            |store| store.save(&snapshot(480, 1)).is_ok(),
            |store, point| {
                let found = store.latest_verified().unwrap().unwrap();
                let whole = same(&found, &snapshot(480, 0)) || same(&found, &snapshot(480, 1));
                assert!(whole && found.warnings.is_empty(), "operation {point}");
            },
        );
    }
}

#[test]
fn a_crash_during_removal_leaves_complete_checkpoints() {
    at_every_crash_point(
        Fault::CrashAt,
        &[1, 2, 3].map(|step| snapshot(step, 0)),
        |store| store.retain(&CheckpointConfig { keep_last: 1, ..CheckpointConfig::default() }).is_ok(),
        |store, point| {
            for entry in store.list().unwrap() {
                assert!(
                    same(&super::load(&entry.path).unwrap(), &snapshot(entry.step, 0)),
                    "operation {point}"
                );
            }
            assert_eq!(steps(store).last(), Some(&3));
        },
    );
}

#[test]
fn an_io_error_at_any_operation_fails_the_save_and_keeps_the_checkpoint() {
    for errno in [libc::ENOSPC, libc::EIO] {
        for existing in [240, 480] {
            for point in 0.. {
                let dir = scratch();
                CheckpointStore::open(dir.path()).unwrap().save(&snapshot(existing, 0)).unwrap();
                let fs = FaultyFs::new(Fault::ErrorAt(point, errno));
                let store = CheckpointStore::open_with(dir.path(), Arc::new(fs.clone())).unwrap();
                let result = store.save(&snapshot(480, 1));
                let found = store.latest_verified().unwrap().unwrap();
                assert!(same(&found, &snapshot(existing, 0)) || same(&found, &snapshot(480, 1)));
                assert!(found.warnings.is_empty());
                match result {
                    Err(e) => {
                        assert_eq!(e.kind, ErrorKind::Io);
                        // EIO may succeed on the next attempt; a full disk will not.
                        assert_eq!(e.caused_by().is_some_and(is_transient), errno == libc::EIO, "{e}");
                        assert!(e.message.contains("step-00000480"), "{e}");
                        assert_eq!(hidden(dir.path()), [] as [&str; 0], "operation {point}");
                    }
                    Ok(_) => assert!(same(&found, &snapshot(480, 1)), "operation {point}"),
                }
                if fs.operations().len() <= point {
                    assert!(point >= 12);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_full_disk_is_reported_with_a_hint() {
    let dir = scratch();
    let fs = FaultyFs::new(Fault::WritesFailFrom(0, libc::ENOSPC));
    let store = CheckpointStore::open_with(dir.path(), Arc::new(fs)).unwrap();
    let e = store.save(&snapshot(1, 0)).unwrap_err();
    assert!(e.message.contains("model.safetensors: No space left on device"), "{e}");
    assert!(e.hint.as_deref().is_some_and(|h| h.contains("keep_last")));
    assert_eq!((hidden(dir.path()).len(), steps(&store).len()), (0, 0));
}

#[test]
fn everything_is_synced_before_the_rename_and_the_folder_after_it() {
    let dir = scratch();
    let fs = FaultyFs::new(Fault::None);
    let store = CheckpointStore::open_with(dir.path(), Arc::new(fs.clone())).unwrap();
    store.save(&snapshot(7, 0)).unwrap();
    let mut ops = fs.operations();
    ops.dedup();
    let temp = format!(".tmp-step-00000007-{}", std::process::id());
    let mut expected = vec![format!("create_dir {temp}")];
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        expected.extend(["create", "write", "sync"].map(|verb| format!("{verb} {file}")));
    }
    expected.push(format!("sync_dir {temp}"));
    expected.push("rename step-00000007".into());
    expected.push(format!("sync_dir {}", dir.path().file_name().unwrap().to_string_lossy()));
    assert_eq!(ops, expected);
}

#[test]
fn does_not_remove_files_of_a_live_writer() {
    let dir = scratch();
    let store = CheckpointStore::open(dir.path()).unwrap();
    let temp = dir.path().join(".tmp-step-00000007-1");
    fs::create_dir(&temp).unwrap();
    let lock = store.lock().unwrap();
    CheckpointStore::open(dir.path()).unwrap();
    assert!(temp.exists());
    drop(lock);
    CheckpointStore::open(dir.path()).unwrap();
    assert!(!temp.exists());
}

/// Unmounts when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().ok()?;
        let options = format!("size={size},mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|o| o.status.success()).then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_keeps_the_last_good_checkpoint() {
    let Some(disk) = Tmpfs::mount("1m") else {
        println!("skipped: mounting a tmpfs is not permitted here");
        return;
    };
    let big = |step: u64| {
        let weights = TensorData::from_f32("w", vec![150_000], &vec![step as f32; 150_000]).unwrap();
        Snapshot { model: TensorMap::from_tensors([weights]).unwrap(), ..snapshot(step, 0) }
    };
    let store = CheckpointStore::open(disk.0.path().join("checkpoints")).unwrap();
    store.save(&big(1)).unwrap();
    let e = store.save(&big(2)).unwrap_err();
    assert_eq!(e.kind, ErrorKind::Io);
    assert!(e.message.contains("No space left on device"), "{e}");
    assert_eq!(hidden(store.dir()), [] as [&str; 0]);
    assert!(same(&store.latest_verified().unwrap().unwrap(), &big(1)));
    fs::remove_dir_all(disk.0.path().join("checkpoints/step-00000001")).unwrap();
    store.save(&big(2)).unwrap();
}
