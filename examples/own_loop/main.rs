//! A training loop of one's own on several processes: no registry, no spec, only `ddp`, `collectives` and Burn.
//!
//! ```text
//! cargo build --release --example own_loop
//! ddp-run launch --nproc-per-node 2 -- target/release/examples/own_loop FOLDER
//! ```
//!
//! torchrun starts it as well (`torchrun --no-python --nproc-per-node 2 …`). Started again after a kill, it continues after the last
//! epoch that is saved in FOLDER. examples/own_loop/own_loop.toml is the same job for ddp-run; both end in the same bits.

mod model;

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_optim::{ModuleOptimizer, SgdConfig};
use collectives::{Options, ProcessGroup, ReduceOp, Wait};
use ddp::{
    DdpOptions, DdpState, DistributedDataParallel, DistributedSampler, Error, EvalShard, Order, Result,
};
use model::{Sample, SampleBatch, SampleBatcher, Waves, samples};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

const SEED: u64 = 7;
const SAMPLES: usize = 512;
const EPOCHS: u64 = 4;
const BATCH_SIZE: usize = 16;
const LEARNING_RATE: f64 = 0.1;

/// Of the squares of the differences to the heights.
fn losses(model: &Waves, batch: SampleBatch) -> Tensor<2> {
    let difference = model.forward(batch.points) - batch.heights;
    difference.clone() * difference
}

fn main() -> ExitCode {
    // The crates report what does not end the training, such as a parameter without a gradient, by `tracing`.
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(std::io::stderr).init();
    match train() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With its hint. Supervisors tell by the code whether a restart may help.
            eprintln!("error: {error}");
            ExitCode::from(launch::ExitCode::from(error.kind) as u8)
        }
    }
}

fn train() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or_else(|| Error::usage("usage: own_loop FOLDER"))?;
    let folder = PathBuf::from(folder);
    let device = Device::flex().autodiff();
    device.seed(SEED);

    let group = collectives::init(Options::from_env()?)?;
    let (model, mut optimizer) = (Waves::new(&device), SgdConfig::new().init());
    let first_epoch = newest(&folder);
    same_on_all_ranks(first_epoch, &folder, &*group)?;
    let (model, state) = match first_epoch {
        0 => (model, None),
        epoch => {
            // On every rank: optimizers know parameters by ids, which are in the model's file.
            let saved = checkpoint(&folder, epoch);
            let model = model.try_load_file(saved.join("model.bpk")).map_err(failed("read", &saved))?;
            optimizer = optimizer.load(saved.join("optimizer.bpk")).map_err(failed("read", &saved))?;
            let state = fs::read(saved.join("state.json")).map_err(failed("read", &saved))?;
            let state: DdpState = serde_json::from_slice(&state).map_err(failed("read", &saved))?;
            (model, Some(state))
        }
    };
    let options = DdpOptions { state, ..Default::default() };
    let mut ddp = DistributedDataParallel::new(model, group.clone(), options)?;

    let train = samples(SAMPLES);
    let sampler = DistributedSampler::new(train.len(), group.world_size(), group.rank(), SEED);
    let batch = |indices: Vec<usize>, device: &Device| {
        let items: Vec<Sample> = indices.into_iter().map(|i| train[i].clone()).collect();
        SampleBatcher.batch(items, device)
    };
    for epoch in first_epoch..EPOCHS {
        for indices in sampler.epoch(epoch).batches(BATCH_SIZE) {
            let batch = batch(indices, &device);
            let loss = ddp.forward(|model| losses(model, batch).mean());
            let gradients = ddp.backward(loss)?;
            ddp.step(&mut optimizer, LEARNING_RATE, gradients);
        }

        // Each sample once, whatever the number of ranks.
        let valid = ddp.valid()?;
        let mut sum = [0.0f64];
        for indices in EvalShard::new(train.len(), group.world_size(), group.rank()).batches(BATCH_SIZE) {
            let batch = batch(indices, &device.clone().without_autodiff());
            sum[0] += f64::from(losses(&valid, batch).sum().into_scalar::<f32>());
        }
        group.all_reduce((&mut sum[..]).into(), ReduceOp::Sum)?;

        if let Some(state) = ddp.state()? {
            println!("epoch {}/{EPOCHS}  loss {:.6}", epoch + 1, sum[0] / train.len() as f64);
            save(&folder, epoch + 1, ddp.module(), &optimizer, &state)?;
        }
    }
    // No rank ends before rank 0 has saved.
    group.barrier(Wait::Deadline)?;
    Ok(())
}

/// The epochs that the newest checkpoint has done; 0 without one.
fn newest(folder: &Path) -> u64 {
    (1..=EPOCHS).rev().find(|epoch| checkpoint(folder, *epoch).is_dir()).unwrap_or(0)
}

fn checkpoint(folder: &Path, epoch: u64) -> PathBuf {
    folder.join(format!("epoch-{epoch}"))
}

/// Checks that all ranks start at the same epoch: they do not if each node has a folder of its own. A collective.
fn same_on_all_ranks(first_epoch: u64, folder: &Path, group: &dyn ProcessGroup) -> Result<()> {
    let mut range = [first_epoch as i64, -(first_epoch as i64)];
    group.all_reduce((&mut range[..]).into(), ReduceOp::Max)?;
    let (least, most) = (-range[1], range[0]);
    if least == most {
        return Ok(());
    }
    let folder = folder.display();
    Err(Error::checkpoint(format!(
        "the ranks found different checkpoints in {folder}: of epoch {least} (0: none) to epoch {most}"
    ))
    .hint("FOLDER must be the same folder for all ranks, on a file system that the nodes share"))
}

/// The error for a file of a checkpoint.
fn failed<E: Display>(verb: &str, checkpoint: &Path) -> impl Fn(E) -> Error {
    let what = format!("cannot {verb} {}", checkpoint.display());
    move |error| Error::checkpoint(format!("{what}: {error}"))
}

/// The folder gets its name last, so a process that is killed leaves no part of a checkpoint. Nothing is synced to the disk: after a
/// power failure, files may be incomplete.
fn save(
    folder: &Path,
    epoch: u64,
    model: &Waves,
    optimizer: &ModuleOptimizer,
    state: &DdpState,
) -> Result<()> {
    let part = folder.join("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).map_err(failed("create", &part))?;
    model.clone().save_file(part.join("model.bpk")).map_err(failed("write", &part))?;
    optimizer.save(part.join("optimizer.bpk")).map_err(failed("write", &part))?;
    let state = serde_json::to_vec(state).map_err(failed("write", &part))?;
    fs::write(part.join("state.json"), state).map_err(failed("write", &part))?;
    fs::rename(&part, checkpoint(folder, epoch)).map_err(failed("rename", &part))?;
    Ok(())
}
