//! Every kind of damage to a checkpoint's files is detected and named, and the previous checkpoint is used.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::testing::{same, scratch, snapshot, snapshot_with_ema, snapshot_with_hook, snapshot_with_usage};
use super::{CheckpointStore, load, read_state, verify};
use base::error::ErrorKind;

const FILES: [&str; 3] = ["model.safetensors", "optimizer.safetensors", "state.json"];

fn two_checkpoints() -> (tempfile::TempDir, CheckpointStore) {
    let dir = scratch();
    let store = CheckpointStore::open(dir.path()).unwrap();
    store.save(&snapshot(240, 0)).unwrap();
    store.save(&snapshot(480, 0)).unwrap();
    (dir, store)
}

fn flip(path: &Path, bit: usize) {
    let mut bytes = fs::read(path).unwrap();
    let bit = bit % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path, len: usize) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..len % bytes.len()]).unwrap();
}

#[test]
fn hook_state_has_a_file_that_is_verified() {
    let dir = scratch();
    let store = CheckpointStore::open(dir.path()).unwrap();
    let plain = store.save(&snapshot(240, 0)).unwrap().path;
    let hooked = store.save(&snapshot_with_hook(480, 3)).unwrap().path;
    let file = hooked.join("comm_hook.safetensors");
    assert!(file.exists() && !plain.join("comm_hook.safetensors").exists());
    assert!(same(&load(&hooked).unwrap(), &snapshot_with_hook(480, 3)));
    assert!(super::inspect(&hooked).unwrap().to_string().contains("rank.1.bucket.0"));
    flip(&file, fs::read(&file).unwrap().len() * 8 - 1);
    assert!(load(&hooked).unwrap_err().message.contains("comm_hook.safetensors is altered"));
    assert!(verify(&hooked).unwrap_err().to_string().contains("comm_hook.safetensors is altered"));
    let loaded = store.latest_verified().unwrap().unwrap();
    assert!(same(&loaded, &snapshot(240, 0)) && loaded.warnings.len() == 1);
}

#[test]
fn what_a_use_needs_has_a_file_that_is_verified() {
    let dir = scratch();
    let store = CheckpointStore::open(dir.path()).unwrap();
    let plain = store.save(&snapshot(240, 0)).unwrap().path;
    let usable = store.save(&snapshot_with_usage(480, 3)).unwrap().path;
    let file = usable.join("usage.json");
    assert!(file.exists() && !plain.join("usage.json").exists());
    let loaded = load(&usable).unwrap();
    assert!(same(&loaded, &snapshot_with_usage(480, 3)));
    assert_eq!(loaded.usage.as_deref(), Some("{\"salt\":3}\n"));
    assert_eq!(load(&plain).unwrap().usage, None);
    flip(&file, 12);
    assert!(load(&usable).unwrap_err().message.contains("usage.json is altered"));
    assert!(verify(&usable).unwrap_err().to_string().contains("usage.json is altered"));
    fs::remove_file(&file).unwrap();
    assert!(load(&usable).unwrap_err().message.contains("usage.json is missing"));
}

#[test]
fn averaged_weights_have_a_file_that_is_verified() {
    let dir = scratch();
    let store = CheckpointStore::open(dir.path()).unwrap();
    let plain = store.save(&snapshot(240, 0)).unwrap().path;
    let averaged = store.save(&snapshot_with_ema(480, 3)).unwrap().path;
    let file = averaged.join("ema.safetensors");
    assert!(file.exists() && !plain.join("ema.safetensors").exists());
    let loaded = load(&averaged).unwrap();
    assert!(same(&loaded, &snapshot_with_ema(480, 3)));
    assert_eq!((loaded.weights(true), loaded.weights(false)), (&loaded.ema, &loaded.model));
    assert_eq!(load(&plain).unwrap().weights(true), &snapshot(240, 0).model);
    assert!(super::inspect(&averaged).unwrap().to_string().contains("ema.safetensors"));
    flip(&file, fs::read(&file).unwrap().len() * 8 - 1);
    assert!(verify(&averaged).unwrap_err().to_string().contains("ema.safetensors is altered"));
    let loaded = store.latest_verified().unwrap().unwrap();
    assert!(same(&loaded, &snapshot(240, 0)) && loaded.warnings.len() == 1);
}

#[test]
fn each_damage_is_reported_and_the_previous_checkpoint_is_used() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 11] = [
        ("state.json", |p| fs::remove_file(p).unwrap()),
        ("state.json", |p| flip(p, 999)),
        ("state.json", |p| cut(p, 100)),
        ("model.safetensors", |p| fs::remove_file(p).unwrap()),
        ("model.safetensors", |p| cut(p, 50)),
        ("model.safetensors", |p| flip(p, fs::read(p).unwrap().len() * 8 - 1)),
        ("model.safetensors", |p| flip(p, 70)),
        ("model.safetensors", |p| fs::write(p, [fs::read(p).unwrap(), vec![0]].concat()).unwrap()),
        ("optimizer.safetensors", |p| flip(p, usize::MAX / 2 - 3)),
        ("optimizer.safetensors", |p| cut(p, 0)),
        ("optimizer.safetensors", |p| fs::remove_file(p).and_then(|()| fs::create_dir(p)).unwrap()),
    ];
    let mut messages = String::new();
    for (file, damage) in cases {
        let (dir, store) = two_checkpoints();
        let newest = store.dir().join("step-00000480");
        damage(&newest.join(file));
        let loaded = store.latest_verified().unwrap().unwrap();
        assert!(same(&loaded, &snapshot(240, 0)));
        let e = load(&newest).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Io);
        assert!(verify(&newest).is_err());
        let shown = format!("{}\n{}\n\n", loaded.warnings.join("\n"), e.message);
        messages += &shown.replace(&*dir.path().to_string_lossy(), "DIR");
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn an_error_lists_every_checkpoint_if_none_can_be_read() {
    let (_dir, store) = two_checkpoints();
    flip(&store.dir().join("step-00000240/state.json"), 5);
    fs::remove_file(store.dir().join("step-00000480/model.safetensors")).unwrap();
    let e = store.latest_verified().unwrap_err();
    assert_eq!(e.kind, ErrorKind::Io);
    assert!(e.message.contains("step-00000240: state.json is truncated or altered"), "{e}");
    assert!(e.message.contains("step-00000480: model.safetensors is missing"), "{e}");
}

#[test]
fn skips_a_renamed_checkpoint_but_loads_it_by_path() {
    let (_dir, store) = two_checkpoints();
    let moved = store.dir().join("step-00000999");
    fs::rename(store.dir().join("step-00000480"), &moved).unwrap();
    let loaded = store.latest_verified().unwrap().unwrap();
    assert!(loaded.warnings[0].contains("step-00000999") && loaded.warnings[0].contains("is of step 480"));
    assert!(same(&load(&moved).unwrap(), &snapshot(480, 0)));
}

#[test]
fn ignores_files_that_are_not_checkpoints() {
    let (_dir, store) = two_checkpoints();
    fs::write(store.dir().join("notes.txt"), "x").unwrap();
    fs::create_dir(store.dir().join("step-old")).unwrap();
    let loaded = store.latest_verified().unwrap().unwrap();
    assert_eq!((loaded.state.global_step, loaded.warnings.len()), (480, 0));
}

#[test]
fn an_empty_or_missing_folder_has_no_checkpoint() {
    let dir = scratch();
    assert_eq!(CheckpointStore::open(dir.path()).unwrap().latest_verified().unwrap(), None);
    assert_eq!(CheckpointStore::read_only(dir.path().join("x")).latest_verified().unwrap(), None);
    assert!(!dir.path().join("x").exists());
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize),
    Truncate(usize),
    Extend(Vec<u8>),
    Overwrite(usize, Vec<u8>),
    Swap(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<usize>().prop_map(Damage::Flip),
        any::<usize>().prop_map(Damage::Truncate),
        prop::collection::vec(any::<u8>(), 1..64).prop_map(Damage::Extend),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, b)| Damage::Overwrite(at, b)),
        any::<usize>().prop_map(Damage::Swap),
    ]
}

fn apply(dir: &Path, file: &str, damage: &Damage) {
    let path = dir.join(file);
    let mut bytes = fs::read(&path).unwrap();
    match damage {
        Damage::Flip(bit) => return flip(&path, bit % (bytes.len() * 8)),
        Damage::Truncate(len) => bytes.truncate(len % bytes.len()),
        Damage::Extend(more) => bytes.extend(more),
        Damage::Overwrite(at, new) => {
            let at = at % bytes.len();
            let end = bytes.len().min(at + new.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        Damage::Swap(other) => bytes = fs::read(dir.join(FILES[other % 3])).unwrap(),
    }
    fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_damage_is_detected_or_harmless(file in 0usize..3, hits in prop::collection::vec(damage(), 1..3)) {
        let (_dir, store) = two_checkpoints();
        let newest = store.dir().join("step-00000480");
        let before: Vec<Vec<u8>> = FILES.iter().map(|f| fs::read(newest.join(f)).unwrap()).collect();
        for hit in &hits {
            if fs::metadata(newest.join(FILES[file])).unwrap().len() > 0 {
                apply(&newest, FILES[file], hit);
            }
        }
        let unchanged = FILES.iter().zip(&before).all(|(f, b)| &fs::read(newest.join(f)).unwrap() == b);
        let loaded = store.latest_verified().unwrap().unwrap();
        let expected = snapshot(if unchanged { 480 } else { 240 }, 0);
        prop_assert!(same(&loaded, &expected));
        prop_assert_eq!(loaded.warnings.len(), usize::from(!unchanged));
        prop_assert_eq!(verify(&newest).is_ok(), unchanged);
        let _ = read_state(&newest);
    }
}
