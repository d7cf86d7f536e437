//! One rank of a run, from its handoff to its end (`rank`): process group, data, model, optimizer, checkpoint, trainer,
//! in this order.

mod capacity;
mod checkpoints;
mod complete;
mod compute;
mod connect;
mod data;
mod ema;
mod endpoint;
mod evaluate;
mod exchange;
mod failure_report;
mod fault;
#[cfg(test)]
mod fields_tests;
mod fit;
#[cfg(test)]
mod fit_tests;
mod generate;
mod handoff;
mod hook;
mod initial_state;
mod intercepted_group;
mod kernels;
mod messages;
mod metrics;
mod norms;
mod notes;
mod optimizer;
#[cfg(test)]
mod own_models_tests;
#[cfg(test)]
mod own_tasks_tests;
mod parts;
mod predict;
mod pretrained;
mod profile;
mod rank;
mod recorder;
mod replicas;
mod resize;
mod resume;
mod run_folder;
mod same_data;
mod same_devices;
mod snapshot;
mod spec_changes;
mod start_state;
mod state;
mod step_times;
mod stop_at;
mod training;
mod usage;

#[cfg(test)]
mod burn_layers_tests;
#[cfg(test)]
mod digests_tests;
#[cfg(test)]
mod early_stop_tests;
#[cfg(test)]
mod ema_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod hook_tests;
#[cfg(all(test, feature = "learner"))]
mod learner_tests;
#[cfg(test)]
mod max_steps_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod notes_tests;
#[cfg(test)]
mod plateau_tests;
#[cfg(test)]
mod ranking_tests;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod stop_after_tests;
#[cfg(test)]
mod testing;

pub use evaluate::{EvaluatedCheckpoint, Evaluation, EvaluationScope, Split, chosen, evaluate};
pub use fault::{InjectedFault, VARIABLE as FAULT};
pub use generate::{Generator, Sampling};
pub use handoff::{EvaluationHandoff, Handoff, JobHandoff, Received, received};
pub use kernels::keep_kernels;
pub use metrics::measured;
pub use parts::{RankParts, present_data, with_data};
pub use predict::Predictor;
pub use pretrained::{load_pretrained, weights_are_there};
pub use rank::{evaluate_external, requeue_on_stop, run, run_external};
pub use recorder::{Recorder, RecorderOptions};
pub use resume::Resume;
pub use same_data::recorded as recorded_data;
pub use spec_changes::{OwnSpec, continues_the_run};
pub use start_state::{StartState, newest_step, provenance_of};
pub use step_times::{STEP_TIMES, StepTime, StepTimes};
pub use stop_at::STOP_AT;
pub use training::{RankJob, train};
pub use usage::Usage;
