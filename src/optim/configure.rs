//! Reads the `[optimizer]` table. Every optimizer has `name`, `lr`, `weight_decay` and `decay`; the rest is its own.

use super::plan::{OptimizerKind, OptimizerPlan};
use super::{DecayOn, WeightDecay};
use super::{
    adadelta, adafactor, adagrad, adam, adamax, adan, lamb, lars, lion, muon, nadam, radam, rmsprop, sgd,
};
use crate::spec::Fields;
use std::ops::Bound;

type Read = fn(&mut Fields<'_>) -> OptimizerPlan;

/// Name and reader of every optimizer; the order is that of messages.
const KINDS: [(&str, Read); 15] = [
    ("sgd", read_sgd),
    ("adam", read_adam),
    ("adamw", read_adamw),
    ("rmsprop", read_rmsprop),
    ("adagrad", read_adagrad),
    ("adadelta", read_adadelta),
    ("adamax", read_adamax),
    ("nadam", read_nadam),
    ("radam", read_radam),
    ("adafactor", read_adafactor),
    ("lion", read_lion),
    ("adan", read_adan),
    ("lamb", read_lamb),
    ("lars", read_lars),
    ("muon", read_muon),
];

impl OptimizerPlan {
    /// Reads `[optimizer]`. Problems go into `fields`; the value returned after one must not be run.
    pub fn configure(fields: &mut Fields<'_>) -> OptimizerPlan {
        match fields.opt_choice("name", &KINDS) {
            Some(read) => read(fields),
            None => {
                if !fields.has("name") {
                    fields.req_str("name");
                }
                // Which keys belong here depends on the name.
                fields.ignore_rest();
                let decay = WeightDecay { value: 0.0, on: DecayOn::All };
                let sgd = sgd::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false, decay };
                OptimizerPlan { kind: OptimizerKind::Sgd(sgd), lr: 1e-3 }
            }
        }
    }

    /// The names that `optimizer.name` accepts.
    pub fn names() -> Vec<&'static str> {
        KINDS.iter().map(|(name, _)| *name).collect()
    }
}

fn lr(fields: &mut Fields<'_>, default: f64) -> f64 {
    fields.f64("lr", 0.0.., default)
}

fn decay(fields: &mut Fields<'_>, default: f64) -> WeightDecay {
    let value = fields.f64("weight_decay", 0.0.., default);
    let on = fields.choice("decay", &[("all", DecayOn::All), ("matrices", DecayOn::Matrices)], "all");
    WeightDecay { value, on }
}

fn eps(fields: &mut Fields<'_>, default: f64) -> f64 {
    fields.f64("eps", 0.0.., default)
}

fn betas<const N: usize>(fields: &mut Fields<'_>, default: [f64; N]) -> [f64; N] {
    let betas = fields.f64s("betas", 0.0..1.0, &default);
    betas.try_into().unwrap_or_else(|betas: Vec<f64>| {
        fields.problem("betas", format!("expected {N} numbers, found {}", betas.len()));
        default
    })
}

fn read_sgd(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-3);
    let momentum = fields.f64("momentum", 0.0.., 0.0);
    let dampening = fields.f64("dampening", 0.0..=1.0, 0.0);
    let nesterov = fields.bool("nesterov", false);
    if nesterov && (momentum == 0.0 || dampening != 0.0) {
        fields.problem("nesterov", "Nesterov momentum needs `momentum` above 0 and no `dampening`");
    }
    let sgd = sgd::Sgd { momentum, dampening, nesterov, decay: decay(fields, 0.0) };
    OptimizerPlan { kind: OptimizerKind::Sgd(sgd), lr }
}

fn read_either_adam(fields: &mut Fields<'_>, decoupled: bool) -> (adam::Adam, f64) {
    let lr = lr(fields, 1e-3);
    let adam = adam::Adam {
        betas: betas(fields, [0.9, 0.999]),
        eps: eps(fields, 1e-8),
        amsgrad: fields.bool("amsgrad", false),
        decoupled,
        decay: decay(fields, if decoupled { 1e-2 } else { 0.0 }),
    };
    (adam, lr)
}

fn read_adam(fields: &mut Fields<'_>) -> OptimizerPlan {
    let (adam, lr) = read_either_adam(fields, false);
    OptimizerPlan { kind: OptimizerKind::Adam(adam), lr }
}

fn read_adamw(fields: &mut Fields<'_>) -> OptimizerPlan {
    let (adam, lr) = read_either_adam(fields, true);
    OptimizerPlan { kind: OptimizerKind::AdamW(adam), lr }
}

fn read_rmsprop(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-2);
    let rmsprop = rmsprop::RmsProp {
        alpha: fields.f64("alpha", 0.0..=1.0, 0.99),
        eps: eps(fields, 1e-8),
        momentum: fields.f64("momentum", 0.0.., 0.0),
        centered: fields.bool("centered", false),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::RmsProp(rmsprop), lr }
}

fn read_adagrad(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-2);
    let adagrad = adagrad::Adagrad {
        lr_decay: fields.f64("lr_decay", 0.0.., 0.0),
        initial_accumulator_value: fields.f64("initial_accumulator_value", 0.0.., 0.0),
        eps: eps(fields, 1e-10),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Adagrad(adagrad), lr }
}

fn read_adadelta(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1.0);
    let adadelta = adadelta::Adadelta {
        rho: fields.f64("rho", 0.0..=1.0, 0.9),
        eps: eps(fields, 1e-6),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Adadelta(adadelta), lr }
}

fn read_adamax(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 2e-3);
    let adamax = adamax::Adamax {
        betas: betas(fields, [0.9, 0.999]),
        eps: eps(fields, 1e-8),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Adamax(adamax), lr }
}

fn read_nadam(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 2e-3);
    let nadam = nadam::NAdam {
        betas: betas(fields, [0.9, 0.999]),
        eps: eps(fields, 1e-8),
        momentum_decay: fields.f64("momentum_decay", 0.0.., 4e-3),
        decoupled_weight_decay: fields.bool("decoupled_weight_decay", false),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::NAdam(nadam), lr }
}

fn read_radam(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-3);
    let radam = radam::RAdam {
        betas: betas(fields, [0.9, 0.999]),
        eps: eps(fields, 1e-8),
        decoupled_weight_decay: fields.bool("decoupled_weight_decay", false),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::RAdam(radam), lr }
}

fn read_adafactor(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-2);
    let above_zero = (Bound::Excluded(0.0), Bound::Unbounded);
    let adafactor = adafactor::Adafactor {
        beta2_decay: fields.f64("beta2_decay", ..=0.0, -0.8),
        eps1: fields.f64("eps1", above_zero, f64::from(f32::EPSILON)),
        eps2: fields.f64("eps2", 0.0.., 1e-3),
        d: fields.f64("d", above_zero, 1.0),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Adafactor(adafactor), lr }
}

fn read_lion(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-4);
    let lion = lion::Lion { betas: betas(fields, [0.9, 0.99]), decay: decay(fields, 0.0) };
    OptimizerPlan { kind: OptimizerKind::Lion(lion), lr }
}

fn read_adan(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-3);
    let adan = adan::Adan {
        betas: betas(fields, [0.98, 0.92, 0.99]),
        eps: eps(fields, 1e-8),
        no_prox: fields.bool("no_prox", false),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Adan(adan), lr }
}

fn read_lamb(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 1e-3);
    let lamb = lamb::Lamb {
        betas: betas(fields, [0.9, 0.999]),
        eps: eps(fields, 1e-6),
        trust_ratio: fields.bool("trust_ratio", true),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Lamb(lamb), lr }
}

fn read_lars(fields: &mut Fields<'_>) -> OptimizerPlan {
    let lr = lr(fields, 0.1);
    let lars = lars::Lars {
        momentum: fields.f64("momentum", 0.0.., 0.9),
        trust_coefficient: fields.f64("trust_coefficient", 0.0.., 1e-3),
        eps: eps(fields, 1e-8),
        decay: decay(fields, 0.0),
    };
    OptimizerPlan { kind: OptimizerKind::Lars(lars), lr }
}

fn read_muon(fields: &mut Fields<'_>) -> OptimizerPlan {
    use muon::AdjustLr::{MatchRmsAdamw, Original};
    let lr = lr(fields, 1e-3);
    let adjust = [("match-rms-adamw", MatchRmsAdamw), ("original", Original)];
    let muon = muon::Muon {
        momentum: fields.f64("momentum", 0.0..1.0, 0.95),
        nesterov: fields.bool("nesterov", true),
        ns_steps: fields.usize("ns_steps", 1..=100, 5),
        adjust_lr: fields.choice("adjust_lr", &adjust, "match-rms-adamw"),
        decay: decay(fields, 0.1),
    };
    OptimizerPlan { kind: OptimizerKind::Muon(muon), lr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::testing::read;

    #[test]
    fn every_name_has_pytorchs_defaults_and_builds() {
        for name in OptimizerPlan::names() {
            let (plan, problems) = read(&format!("name = \"{name}\""), OptimizerPlan::configure);
            assert_eq!(problems, "", "{name}");
            assert_eq!(plan.name(), name);
            let json = serde_json::to_value(&plan).unwrap();
            assert_eq!(json["name"], name, "the plan prints the name that specs use");
            assert_eq!(plan.state_slots(), plan.build().slots());
        }
        let (adamw, _) = read("name = \"adamw\"\nlr = 5e-4\nweight_decay = 1e-4", OptimizerPlan::configure);
        let json = serde_json::to_string(&adamw).unwrap();
        let expected = r#"{"name":"adamw","betas":[0.9,0.999],"eps":1e-8,"amsgrad":false,"weight_decay":0.0001,"decay":"all","lr":0.0005}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn mistakes_are_all_reported_with_what_was_expected() {
        let text = "name = \"sgd\"\nlr = -1\nnesterov = true\nmomentun = 0.9\ndecay = \"matrix\"";
        let (_, problems) = read(text, OptimizerPlan::configure);
        for part in ["at least 0", "Nesterov", "did you mean `momentum`", "did you mean \"matrices\""] {
            assert!(problems.contains(part), "{part} is missing in:\n{problems}");
        }
        let (_, problems) = read("name = \"adamw2\"\nbetas = [0.9]", OptimizerPlan::configure);
        assert!(problems.contains("did you mean \"adamw\"?"), "{problems}");
        let (_, problems) = read("lr = 0.1\nbetas = [0.9]", OptimizerPlan::configure);
        assert!(problems.contains("missing key `name`"), "{problems}");
        let (_, problems) = read("name = \"adam\"\nbetas = [0.9]", OptimizerPlan::configure);
        assert!(problems.contains("expected 2 numbers, found 1"), "{problems}");
    }
}
