//! The job of examples/own_loop/main.rs as a spec: ddp-run with the same model and data.
//! `cargo run --release --example own_loop_by_spec -- examples/own_loop/own_loop.toml`

mod model;

use burn::data::dataset::InMemDataset;
use burn::tensor::{Device, Tensor};
use ddp_run::ExitCode;
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use model::{SampleBatch, SampleBatcher, Waves, samples};
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

impl Net for Waves {
    fn forward(&self, input: Input) -> Tensor<2> {
        Waves::forward(self, input.rows())
    }
}

impl From<SampleBatch> for BurnBatch {
    fn from(batch: SampleBatch) -> Self {
        BurnBatch::new(batch.points.into_data(), batch.heights.into_data())
    }
}

/// The `[model]` table has no further keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct NoKeys {}

/// The `[dataset]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct SamplesConfig {
    /// Number of samples.
    #[schemars(range(min = 1))]
    samples: usize,
}

fn main() -> std::process::ExitCode {
    let registry = Registry::standard()
        .model("waves", |_: &NoKeys, _, device: &Device| Waves::new(device))
        .burn_dataset("waves", |c: &SamplesConfig| {
            BurnData::new(InMemDataset::new(samples(c.samples)), SampleBatcher, 0)
        });
    // `registry.run()` does the same, and handles stop signals from its first moment.
    match registry.run_with(std::env::args_os()) {
        Ok(code) => (code as u8).into(),
        Err(error) => {
            eprintln!("error: {error}");
            (ExitCode::from(error.kind) as u8).into()
        }
    }
}
