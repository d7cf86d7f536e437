//! Programs with a training loop of their own, or with Burn's: examples/own_loop and examples/burn_learner.

#[allow(dead_code)]
#[path = "../../examples/own_loop/model.rs"]
mod model;

use crate::common::*;
use burn::module::Module;
use burn::tensor::Device;
use ddp::module::{Cursor, ModuleState, ReadVisitor};
use model::Waves;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Output, Stdio};

/// Tensors by name in the state dict's layout, as bytes.
type Tensors = BTreeMap<String, Vec<u8>>;

/// Runs an example on `world_size` processes, as torchrun and `ddp-run launch` start them.
fn processes(name: &str, folder: &Path, world_size: usize) -> Vec<Output> {
    let ended = processes_in(name, &vec![folder; world_size]);
    ended.iter().for_each(|output| assert_code(output, 0));
    ended
}

/// As [`processes`], with a folder for each rank, and however they end.
fn processes_in(name: &str, folders: &[&Path]) -> Vec<Output> {
    let (port, world_size) = (Port::on_loopback(), folders.len());
    let started = |rank: usize| {
        let mut command = program(&example(name));
        command.arg(folders[rank]).env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", world_size.to_string()).env("LOCAL_WORLD_SIZE", world_size.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("DDP_RUN_SECRET", "a key of this test alone");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the example starts")
    };
    let ranks: Vec<Child> = (0..world_size).map(started).collect();
    ranks.into_iter().map(finish).collect()
}

/// The tensors of a model that Burn has saved.
fn saved(model: impl Module, file: &Path) -> Tensors {
    let model = model.try_load_file(file).expect("the model is saved");
    let state = ModuleState::from_module(&model, str::to_owned);
    let mut tensors = Tensors::new();
    let mut see = |number: usize, values: &[f32]| {
        let entry = &state.entries[number];
        let bytes = entry.to_dict(values).iter().flat_map(|value| value.to_le_bytes()).collect();
        tensors.insert(entry.name.clone(), bytes);
    };
    let (cursor, result) = (Cursor::new(&state), Ok(()));
    let mut visitor = ReadVisitor { cursor, which: &|_| true, see: &mut see, result };
    model.visit(&mut visitor);
    visitor.result.expect("host memory can be read");
    tensors
}

fn of_own_loop(folder: &Path) -> Tensors {
    saved(Waves::new(&Device::flex().autodiff()), &folder.join("epoch-4/model.bpk"))
}

fn of_spec(out: &Path) -> Tensors {
    let file =
        std::fs::read(newest_checkpoint(out).join("model.safetensors")).expect("a checkpoint has a model");
    let tensors = SafeTensors::deserialize(&file).expect("it is whole");
    tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect()
}

#[test]
fn a_loop_of_ones_own_ends_in_the_bits_of_the_spec() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [own, continued, spec] = ["own", "continued", "spec"].map(|name| dir.path().join(name));

    let ranks = processes("own_loop", &own, 2);
    let losses: Vec<f64> =
        stdout(&ranks[0]).lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(losses.len() == 4 && losses.is_sorted_by(|a, b| a > b), "{losses:?}");
    assert_eq!(stdout(&ranks[1]), "", "rank 0 prints for all");

    let job = Path::new("examples/own_loop/own_loop.toml");
    assert_code(&output_of(&mut trains(program(&example("own_loop_by_spec")), job, &spec, &[])), 0);
    let tensors = of_own_loop(&own);
    assert_eq!(tensors.len(), 4);
    assert_eq!(tensors, of_spec(&spec));

    // A loop that has been killed after its second epoch.
    let half = continued.join("epoch-2");
    std::fs::create_dir_all(&half).unwrap();
    for file in ["model.bpk", "optimizer.bpk", "state.json"] {
        std::fs::copy(own.join("epoch-2").join(file), half.join(file)).unwrap();
    }
    assert_eq!(stdout(&processes("own_loop", &continued, 2)[0]).lines().count(), 2);
    assert_eq!(of_own_loop(&continued), tensors);
}

#[test]
fn ranks_with_different_checkpoints_do_not_train() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    std::fs::create_dir_all(first.join("epoch-2")).unwrap();

    for (output, folder) in processes_in("own_loop", &[&first, &second]).iter().zip([&first, &second]) {
        assert_code(output, 74);
        let expected = format!(
            "error: the ranks found different checkpoints in {}: of epoch 0 (0: none) to epoch 2\n\nhint: FOLDER must be",
            folder.display()
        );
        assert!(stderr(output).starts_with(&expected), "{}", stderr(output));
    }
    assert!(!second.exists(), "nothing has been saved");
}

/// As in examples/burn_learner.
#[cfg(feature = "learner")]
#[derive(Module, Debug)]
struct Rings {
    inner: burn::nn::Linear,
    outer: burn::nn::Linear,
}

/// `.ci/run` builds the example with the feature.
#[cfg(feature = "learner")]
#[test]
fn burns_learner_on_two_processes_learns_what_it_does_on_one() {
    use burn::nn::LinearConfig;

    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let model = |folder: &str| {
        let device = Device::flex().autodiff();
        let model = Rings {
            inner: LinearConfig::new(2, 32).init(&device),
            outer: LinearConfig::new(32, 2).init(&device),
        };
        saved(model, &dir.path().join(folder).join("model.bpk"))
    };
    for world_size in [1, 2] {
        processes("burn_learner", &dir.path().join(world_size.to_string()), world_size);
    }
    let [one, first, second] = ["1/rank-0", "2/rank-0", "2/rank-1"].map(model);
    assert_eq!(first, second, "the ranks have one model");
    let floats = |tensors: &Tensors| -> Vec<f32> {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        tensors.values().flat_map(|bytes| bytes.chunks(4).map(number)).collect()
    };
    // A batch of one process has the samples of both ranks, which are summed in another order.
    let differences = floats(&one).into_iter().zip(floats(&first)).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, f32::max);
    assert!(largest < 1e-3, "the parameters differ by up to {largest}");

    let accuracy = dir.path().join("2/rank-0/valid/epoch-8/Accuracy.log");
    let accuracy = std::fs::read_to_string(accuracy).expect("Burn's metrics are written");
    let last = accuracy.lines().last().and_then(|line| line.split(',').next()?.parse::<f64>().ok());
    assert!(last.is_some_and(|percent| percent > 75.0), "{accuracy}");
}
