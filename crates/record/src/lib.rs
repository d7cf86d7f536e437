//! Everything that a run records and reports: its folder and its history, metrics, progress, provenance, TensorBoard
//! and the report page.
//!
//! Events flow in one direction, from the trainer to this crate; nothing here calls back. `metrics.jsonl`
//! ([`MetricsWriter`], [`Event`]) is the stable interface for scripts; the other outputs are for people and are
//! produced from the same events.

#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
extern crate base;

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod appender;
mod assertion;
mod bar;
mod build_id;
pub mod chart;
mod clock;
pub mod comparable;
mod conclude;
mod config;
mod digests;
mod epoch_summary;
mod epochs;
pub mod evaluations;
mod event_file;
mod events;
pub mod history;
mod host;
mod hparams;
mod lines;
mod observed;
mod observers;
pub mod prediction;
pub mod profile;
mod progress;
pub mod provenance;
mod rank_times;
mod relation;
pub mod report;
mod run_id;
#[doc(hidden)]
pub mod samples;
mod sinks;
mod summary;
#[cfg(feature = "board")]
mod tail;
mod tensorboard;
mod writer;

pub use assertion::Assertion;
pub use build_id::build_id;
pub use clock::rfc3339;
pub use conclude::MetricsBaseline;
pub use config::{MetricsConfig, Top5};
#[doc(hidden)]
pub use digests::read_digests;
pub use digests::{DifferentTensor, Digest, DigestGroup, DigestLine, DigestWriter, Digests, cut_digests};
pub use epoch_summary::epoch_summary;
pub use epochs::{PerSample, rate_of};
pub use events::{
    CheckpointEvent, DivergenceEvent, EndEvent, EpochEvent, Event, Metrics, RestartEvent, ResumeEvent,
    RunEnd, Stamped, StepEvent, nan_if_null,
};
pub use host::{Host, host_name, memory_of};
pub use observed::ObservedRun;
pub use observers::{EventObserver, ObserverKind, ObserverPlan, Observers};
pub use prediction::{PredictedRow, Prediction};
pub use profile::{Profile, ProfileSteps};
pub use progress::{EpochLine, Progress, ProgressMode, StepLine, Totals, tutorial_line};
pub use provenance::Provenance;
pub use rank_times::RankTimes;
pub use relation::Relation;
pub use run_id::RunId;
pub use sinks::{SinksConfig, short_form, standard_kinds};
pub use summary::{SummaryFacts, summary};
#[cfg(feature = "board")]
pub use tail::{FileStamp, PollResult, Tail, file_stamp};
pub use tensorboard::{StartOfRun, TensorBoardWriter};
pub use writer::{ExistingMetrics, MetricsWriter, for_each_event, read_events};
