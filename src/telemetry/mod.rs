//! Everything that a run reports: metrics, progress, logs, provenance, TensorBoard and the report page.
//!
//! Events flow in one direction, from the trainer to this module; nothing here calls back. `metrics.jsonl`
//! ([`MetricsWriter`], [`Event`]) is the stable interface for scripts; the other outputs are for people and are
//! produced from the same events.

mod appender;
mod assertion;
mod bar;
mod build_id;
pub(crate) mod chart;
mod clock;
pub(crate) mod comparable;
mod conclude;
mod config;
mod digests;
mod epoch_summary;
mod epochs;
pub mod evaluations;
mod event_file;
mod events;
mod host;
mod hparams;
mod lines;
mod numbers;
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
mod score;
mod screen;
mod sinks;
mod summary;
#[cfg(feature = "board")]
mod tail;
mod tensorboard;
mod writer;

pub use assertion::Assertion;
pub use clock::rfc3339;
pub use conclude::Before;
pub use config::{MetricsConfig, Top5};
#[cfg(test)]
pub use digests::read_digests;
pub use digests::{DifferentTensor, Digest, DigestGroup, DigestLine, DigestWriter, Digests, cut_digests};
pub use epoch_summary::epoch_summary;
pub use epochs::rate_of;
pub use events::{
    CheckpointEvent, DivergenceEvent, EndEvent, EpochEvent, Event, Metrics, RestartEvent, ResumeEvent,
    Stamped, StepEvent, nan_if_null,
};
pub use host::{Host, host_name, memory_of};
pub use numbers::{of_all, rate, seconds, significant};
pub use observed::ObservedRun;
pub use observers::{EventObserver, ObserverKind, ObserverPlan, Observers};
pub use prediction::{PredictedRow, Prediction};
pub use profile::{Profile, ProfileSteps};
pub use progress::{EpochLine, Progress, ProgressMode, StepLine, Totals, metric_words, tutorial_line};
pub use provenance::Provenance;
pub use rank_times::RankTimes;
pub use relation::Relation;
pub use run_id::RunId;
pub use score::Score;
pub use screen::{bar_target, columns_of_errors, columns_of_output, forbid_bars};
pub use sinks::{SinksConfig, short_form, standard_kinds};
pub use summary::{Run as SummaryOf, summary};
#[cfg(feature = "board")]
pub use tail::{Found, Tail};
pub use tensorboard::{StartOfRun, TensorBoardWriter};
pub use writer::{Found as MetricsFound, MetricsWriter, for_each_event, read_events};
