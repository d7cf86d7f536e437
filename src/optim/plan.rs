//! The optimizer as a spec resolves to it: a value that can be printed, compared and built.

use super::adadelta::Adadelta;
use super::adafactor::Adafactor;
use super::adagrad::Adagrad;
use super::adam::Adam;
use super::adamax::Adamax;
use super::adan::Adan;
use super::lamb::Lamb;
use super::lars::Lars;
use super::lion::Lion;
use super::muon::Muon;
use super::nadam::NAdam;
use super::radam::RAdam;
use super::rmsprop::RmsProp;
use super::sgd::Sgd;
use super::{DecayOn, Optimizer};
use serde::Serialize;

/// What `[optimizer]` resolves to. Read by [`OptimizerPlan::configure`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimizerPlan {
    #[serde(flatten)]
    pub kind: OptimizerKind,
    /// Base learning rate, which the schedule scales.
    pub lr: f64,
}

/// The optimizers by name, each with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum OptimizerKind {
    Sgd(Sgd),
    Adam(Adam),
    AdamW(Adam),
    RmsProp(RmsProp),
    Adagrad(Adagrad),
    Adadelta(Adadelta),
    Adamax(Adamax),
    NAdam(NAdam),
    RAdam(RAdam),
    Adafactor(Adafactor),
    Lion(Lion),
    Adan(Adan),
    Lamb(Lamb),
    Lars(Lars),
    Muon(Muon),
}

/// Applies `$do` to the optimizer inside, whichever it is.
macro_rules! inside {
    ($kind:expr, $optimizer:ident => $do:expr) => {
        match $kind {
            OptimizerKind::Sgd($optimizer) => $do,
            OptimizerKind::Adam($optimizer) | OptimizerKind::AdamW($optimizer) => $do,
            OptimizerKind::RmsProp($optimizer) => $do,
            OptimizerKind::Adagrad($optimizer) => $do,
            OptimizerKind::Adadelta($optimizer) => $do,
            OptimizerKind::Adamax($optimizer) => $do,
            OptimizerKind::NAdam($optimizer) => $do,
            OptimizerKind::RAdam($optimizer) => $do,
            OptimizerKind::Adafactor($optimizer) => $do,
            OptimizerKind::Lion($optimizer) => $do,
            OptimizerKind::Adan($optimizer) => $do,
            OptimizerKind::Lamb($optimizer) => $do,
            OptimizerKind::Lars($optimizer) => $do,
            OptimizerKind::Muon($optimizer) => $do,
        }
    };
}

impl OptimizerPlan {
    /// The optimizer's name in specs.
    pub fn name(&self) -> &'static str {
        match self.kind {
            OptimizerKind::Sgd(_) => "sgd",
            OptimizerKind::Adam(_) => "adam",
            OptimizerKind::AdamW(_) => "adamw",
            OptimizerKind::RmsProp(_) => "rmsprop",
            OptimizerKind::Adagrad(_) => "adagrad",
            OptimizerKind::Adadelta(_) => "adadelta",
            OptimizerKind::Adamax(_) => "adamax",
            OptimizerKind::NAdam(_) => "nadam",
            OptimizerKind::RAdam(_) => "radam",
            OptimizerKind::Adafactor(_) => "adafactor",
            OptimizerKind::Lion(_) => "lion",
            OptimizerKind::Adan(_) => "adan",
            OptimizerKind::Lamb(_) => "lamb",
            OptimizerKind::Lars(_) => "lars",
            OptimizerKind::Muon(_) => "muon",
        }
    }

    /// Names of the state tensors of each parameter, in the order that [`Optimizer::update`] takes them.
    pub fn state_slots(&self) -> &'static [&'static str] {
        inside!(&self.kind, optimizer => optimizer.slots())
    }

    /// Shape of state tensor `state_slots()[slot]` for a parameter of this shape; `[0]` where it has none.
    pub fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        inside!(&self.kind, optimizer => optimizer.slot_shape(slot, shape))
    }

    /// State elements (f32) of a parameter of this shape, all slots together.
    pub fn state_len(&self, shape: &[usize]) -> usize {
        (0..self.state_slots().len()).map(|slot| self.slot_shape(slot, shape).iter().product::<usize>()).sum()
    }

    /// Which parameters weight decay applies to.
    pub fn decay_on(&self) -> DecayOn {
        inside!(&self.kind, optimizer => optimizer.decay.on)
    }

    /// The running optimizer. It holds no state; see [`Optimizer`].
    pub fn build(&self) -> Box<dyn Optimizer> {
        inside!(&self.kind, optimizer => Box::new(optimizer.clone()))
    }
}
