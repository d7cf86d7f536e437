//! The optional tables: training, checkpoints, metrics, launch and communication.

use super::checks;
use super::resolve::or_default;
use super::sections::{CheckpointPlan, DistributedPlan, LaunchPlan, MetricsPlan, OnPreempt, TrainPlan};
use super::units::{DURATION, read_duration};
use crate::checkpoint::Direction;
use crate::comm::gloo::{AlgorithmChoice, Transport};
use crate::data::{DataFacts, FieldKind};
use crate::ddp::HookSource;
use crate::launch::Nproc;
use crate::nodes::{NodeRange, RdzvEndpoint};
use crate::registry::Registry;
use crate::spec::Fields;
use crate::train::{BufferSync, Loss, OnResize};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Above zero.
const POSITIVE: (std::ops::Bound<f64>, std::ops::Bound<f64>) =
    (std::ops::Bound::Excluded(0.0), std::ops::Bound::Unbounded);

#[derive(Clone, Copy)]
enum LossChoice {
    Auto,
    CrossEntropy,
    Mse,
}

pub(super) fn train(root: &mut Fields<'_>, facts: &DataFacts) -> (Option<Loss>, TrainPlan) {
    let mut fields = root.section("train");
    let choices =
        [("auto", LossChoice::Auto), ("cross-entropy", LossChoice::CrossEntropy), ("mse", LossChoice::Mse)];
    let choice = fields.choice("loss", &choices, "auto");
    let label_smoothing = fields.opt_f64("label_smoothing", 0.0..1.0);
    let loss = loss(&mut fields, choice, label_smoothing, facts);
    let buffers = [("broadcast", BufferSync::Broadcast), ("mean", BufferSync::Mean)];
    let on_resize =
        [("keep-global-batch", OnResize::KeepGlobalBatch), ("keep-local-batch", OnResize::KeepLocalBatch)];
    let train = TrainPlan {
        accumulate: fields.usize("accumulate", 1..=1 << 20, 1),
        clip_norm: fields.opt_f64("clip_norm", POSITIVE),
        max_steps: fields.opt_u64("max_steps", 1..),
        eval_every: fields.u64("eval_every", 0.., 1),
        buffers: fields.choice("buffers", &buffers, "broadcast"),
        on_resize: fields.choice("on_resize", &on_resize, "keep-global-batch"),
    };
    (loss, train)
}

fn loss(
    fields: &mut Fields<'_>,
    choice: LossChoice,
    label_smoothing: Option<f64>,
    facts: &DataFacts,
) -> Option<Loss> {
    let target = facts.target.as_ref().map(|t| t.kind);
    let cross_entropy = Loss::CrossEntropy { label_smoothing: label_smoothing.unwrap_or(0.0) };
    let loss = match (choice, target) {
        (LossChoice::CrossEntropy, Some(FieldKind::Float)) => {
            fields.problem(
                "loss",
                "cross-entropy needs class targets; the data set's are numbers: \"mse\" fits them",
            );
            return None;
        }
        (LossChoice::Mse, Some(FieldKind::Index(classes))) => {
            let message = format!(
                "mse needs numbers as targets; the data set has {classes} classes: \"cross-entropy\" fits them"
            );
            fields.problem("loss", message);
            return None;
        }
        // Targets that only the data can tell of are classes, whose number it has; `Loss::fits` checks that then.
        (LossChoice::Auto, Some(FieldKind::Index(_)) | None) | (LossChoice::CrossEntropy, _) => cross_entropy,
        (LossChoice::Auto, Some(FieldKind::Float)) | (LossChoice::Mse, _) => Loss::Mse,
    };
    match loss {
        Loss::Mse if label_smoothing.is_some() => {
            fields.problem_with_key(
                "label_smoothing",
                "label smoothing belongs to cross-entropy; the loss here is mse",
            );
        }
        Loss::Mse => {}
        Loss::CrossEntropy { label_smoothing: smoothing } => {
            if label_smoothing.is_none() && !fields.has("label_smoothing") {
                fields.note_resolved("label_smoothing", smoothing);
            }
        }
    }
    Some(loss)
}

/// The metrics that can rank checkpoints.
const RANKING: [(&str, (&str, Direction)); 7] = [
    ("val.loss", ("val.loss", Direction::Min)),
    ("val.accuracy", ("val.accuracy", Direction::Max)),
    ("val.top5", ("val.top5", Direction::Max)),
    ("val.mae", ("val.mae", Direction::Min)),
    ("val.r2", ("val.r2", Direction::Max)),
    ("val.perplexity", ("val.perplexity", Direction::Min)),
    ("train.loss", ("train.loss", Direction::Min)),
];

pub(super) fn checkpoint(root: &mut Fields<'_>, facts: &DataFacts, train: &TrainPlan) -> CheckpointPlan {
    let mut fields = root.section("checkpoint");
    let keep_last = fields.usize("keep_last", 0..=1 << 20, 3);
    let (best, direction) = fields.choice("best", &RANKING, "val.loss");
    // A data set that knows its size and has no validation split says `None`, or 0.
    let none = facts.val == Some(0) || facts.val.is_none() && facts.train.is_some();
    let unranked = match (best.starts_with("val."), none, train.eval_every) {
        (true, true, _) => Some("the data set has no validation split (`dataset.val_split`)"),
        (true, _, 0) => Some("`train.eval_every = 0` turns evaluation off"),
        _ => None,
    };
    let keep_best = fields.usize("keep_best", 0..=1 << 20, usize::from(unranked.is_none()));
    if let Some(why) = unranked.filter(|_| keep_best > 0 && fields.has("keep_best")) {
        fields.problem("keep_best", format!("needs `{best}`, which is never measured: {why}"));
    } else if let Some(why) = facts.target.as_ref().and_then(|target| checks::unmeasured(best, target)) {
        fields.problem("best", why);
    }
    let map_location = fields.opt_map_str("map_location").unwrap_or_default();
    checks::map_location(&mut fields, &map_location);
    let preempt = [("save", OnPreempt::Save), ("exit", OnPreempt::Exit)];
    CheckpointPlan {
        keep_last,
        keep_best,
        best: best.to_owned(),
        direction,
        map_location,
        asynchronous: fields.bool("async", true),
        on_preempt: fields.choice("on_preempt", &preempt, "save"),
        grace: or_default(&mut fields, "grace", DURATION, read_duration, 600, Duration::from_secs(600)),
    }
}

pub(super) fn metrics(root: &mut Fields<'_>, facts: &DataFacts) -> MetricsPlan {
    let mut fields = root.section("metrics");
    let log_every = fields.u64("log_every", 1.., 10);
    let read = |value: &toml::Value| match value {
        toml::Value::Boolean(b) => Some(Some(*b)),
        toml::Value::String(s) if s == "auto" => Some(None),
        _ => None,
    };
    let mut top5 = or_default(&mut fields, "top5", "true, false or \"auto\"", read, "auto", None);
    match facts.target.as_ref().map(|t| t.kind) {
        Some(FieldKind::Index(classes)) => {
            if top5 == Some(true) && classes < 5 {
                fields.problem("top5", format!("top-5 accuracy of {classes} classes is always 1"));
            }
            top5 = top5.or(Some(classes > 5));
        }
        Some(FieldKind::Float) => {
            if top5 == Some(true) {
                fields.problem("top5", "top-5 accuracy needs class targets; the data set's are numbers");
            }
            top5 = Some(false);
        }
        None => {}
    }
    MetricsPlan { log_every, top5 }
}

pub(super) fn launch(root: &mut Fields<'_>) -> LaunchPlan {
    let mut fields = root.section("launch");
    let nproc = |value: &toml::Value| match value {
        toml::Value::Integer(i) => i.to_string().parse::<Nproc>().ok(),
        toml::Value::String(s) if !s.starts_with(|c: char| c.is_ascii_digit()) => s.parse().ok(),
        _ => None,
    };
    let nnodes = |value: &toml::Value| match value {
        toml::Value::Integer(i) => i.to_string().parse::<NodeRange>().ok(),
        toml::Value::String(s) if s.contains(':') => s.parse().ok(),
        _ => None,
    };
    let rdzv_endpoint = |value: &toml::Value| value.as_str().and_then(|s| s.parse::<RdzvEndpoint>().ok());
    let expected = "a number from 1 to 4096, \"devices\", \"auto\", \"gpu\" or \"cpu\"";
    let bind = |value: &toml::Value| value.as_str().and_then(|s| s.parse::<IpAddr>().ok());
    LaunchPlan {
        nproc_per_node: or_default(&mut fields, "nproc_per_node", expected, nproc, "devices", Nproc::Devices),
        nnodes: or_default(&mut fields, "nnodes", NodeRange::EXPECTED, nnodes, 1, NodeRange::ONE),
        rdzv_endpoint: fields.opt_as("rdzv_endpoint", RdzvEndpoint::EXPECTED, rdzv_endpoint),
        max_restarts: fields.u64("max_restarts", 0..=1 << 20, 0) as u32,
        rejoin_timeout: or_default(
            &mut fields,
            "rejoin_timeout",
            DURATION,
            read_duration,
            300,
            Duration::from_secs(300),
        ),
        requeue: fields.bool("requeue", false),
        threads: fields.opt_usize("threads", 1..=4096),
        bind: or_default(
            &mut fields,
            "bind",
            "an IP address, such as \"127.0.0.1\" or \"0.0.0.0\"",
            bind,
            "127.0.0.1",
            IpAddr::V4(Ipv4Addr::LOCALHOST),
        ),
        share_devices: fields.bool("share_devices", false),
    }
}

/// The hook of a name; `none` is the plain all-reduce.
fn comm_hook(fields: &mut Fields<'_>, registry: &Registry) -> Option<HookSource> {
    const NONE: &str = "none";
    let name = fields.str("comm_hook", NONE);
    let hook = registry.comm_hook_source(&name).cloned();
    if hook.is_none() && name != NONE {
        let known: Vec<&str> = [NONE].into_iter().chain(registry.comm_hook_names()).collect();
        fields.unknown_name("comm_hook", &known);
    }
    hook
}

pub(super) fn distributed(root: &mut Fields<'_>, registry: &Registry) -> DistributedPlan {
    let mut fields = root.section("distributed");
    let mut seconds = |key, default: u32| {
        let duration = Duration::from_secs(default.into());
        or_default(&mut fields, key, DURATION, read_duration, i64::from(default), duration)
    };
    let (timeout, init_timeout) = (seconds("timeout", 1800), seconds("init_timeout", 300));
    let mib = (std::ops::Bound::Excluded(0.0), std::ops::Bound::Included(65536.0));
    let transports: Vec<_> = Transport::ALL.iter().map(|t| (t.name(), *t)).collect();
    let algorithms: Vec<_> = AlgorithmChoice::ALL.iter().map(|a| (a.name(), *a)).collect();
    let transport = fields.choice("transport", &transports, Transport::default().name());
    let algorithm = fields.choice("algorithm", &algorithms, AlgorithmChoice::default().name());
    let interface = fields.opt_str("interface");
    if interface.as_ref().is_some_and(|i| i.is_empty() || i.contains(|c: char| c.is_whitespace() || c == '/'))
    {
        fields.problem("interface", "expected the name of a network interface, such as \"eth0\"");
    }
    let sockets = fields.opt_usize("sockets", 1..=16);
    if transport == Transport::Shm && sockets.is_some() {
        fields.problem_with_key("sockets", "counts TCP connections; `transport = \"shm\"` makes none");
    }
    DistributedPlan {
        comm_hook: comm_hook(&mut fields, registry),
        transport,
        algorithm,
        interface,
        sockets,
        bucket_cap_mb: fields.f64("bucket_cap_mb", mib, 25.0),
        first_bucket_mb: fields.f64("first_bucket_mb", mib, 1.0),
        timeout,
        init_timeout,
    }
}
