//! Which child runs next, and which continue: a state machine without I/O. Without successive halving there is one rung, and
//! every child is done after it. With it (Jamieson & Talwalkar 2016; Li et al. 2018), all children of a rung end before the
//! best of them continue to the next one.

use serde::{Deserialize, Serialize};

/// Where a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildState {
    /// To be started, or to be continued.
    Waiting,
    Running,
    /// With its rung.
    Done,
    Failed,
    /// Others were better.
    Dropped,
}

impl ChildState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// A child of the sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub state: ChildState,
    /// The rung that it is on, from 0.
    pub rung: usize,
    /// The best value of the metric so far, at the end of each rung; `None` where it was not measured.
    pub values: Vec<Option<f64>>,
    /// The exit code of a child that failed.
    pub exit_code: Option<i32>,
    /// The child whose end is a point of this one's course: this one starts after it.
    pub behind: Option<usize>,
}

impl Child {
    #[cfg(test)]
    pub fn new(behind: Option<usize>) -> Self {
        Self { state: ChildState::Waiting, rung: 0, values: Vec::new(), exit_code: None, behind }
    }

    /// The best value so far.
    pub fn value(&self) -> Option<f64> {
        self.values.last().copied().flatten()
    }
}

/// How a child's process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// With the best value of the metric.
    Done(Option<f64>),
    /// With this exit code, if it has one.
    Failed(Option<i32>),
    /// On request, saved.
    Stopped,
}

/// The rules of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// 1 without successive halving.
    pub rungs: usize,
    pub eta: usize,
    pub prefers_larger: bool,
    /// Children at the same time.
    pub parallel: usize,
    pub fail_fast: bool,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    rules: Rules,
    children: Vec<Child>,
    /// The child on each slot.
    slots: Vec<Option<usize>>,
    stopping: bool,
}

impl Schedule {
    /// Continues with `children` as they were when the sweep ended, however it ended. Those that failed are tried again, unless the
    /// others have gone on without them.
    pub fn new(rules: Rules, mut children: Vec<Child>) -> Self {
        let highest = children.iter().map(|child| child.rung).max().unwrap_or(0);
        for child in &mut children {
            match child.state {
                ChildState::Running => child.state = ChildState::Waiting,
                ChildState::Failed if child.rung == highest => {
                    (child.state, child.exit_code) = (ChildState::Waiting, None);
                }
                _ => {}
            }
        }
        let mut new = Self { rules, children, slots: vec![None; rules.parallel.max(1)], stopping: false };
        new.promote();
        new
    }

    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// The next child to start and its slot, which is its own until it has ended; `None` if none can start now.
    pub fn start(&mut self) -> Option<(usize, usize)> {
        if self.stopping {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        let open = |at: usize| matches!(self.children[at].state, ChildState::Waiting | ChildState::Running);
        let ready = |child: &Child| {
            child.state == ChildState::Waiting && !(child.rung == 0 && child.behind.is_some_and(open))
        };
        let next = self.children.iter().position(ready)?;
        self.children[next].state = ChildState::Running;
        self.slots[slot] = Some(next);
        Some((next, slot))
    }

    /// A running child has ended.
    pub fn ended(&mut self, at: usize, ended: Ended) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| **slot == Some(at)) {
            *slot = None;
        }
        let child = &mut self.children[at];
        match ended {
            Ended::Done(value) => {
                child.state = ChildState::Done;
                child.values.resize(child.rung, None);
                child.values.push(value.filter(|value| value.is_finite()));
            }
            Ended::Stopped if self.stopping => child.state = ChildState::Waiting,
            // This sweep did not ask for it: started again at once, it might never end.
            Ended::Stopped => {
                (child.state, child.exit_code) = (ChildState::Failed, Some(launch::ExitCode::Stopped as i32))
            }
            Ended::Failed(code) => {
                (child.state, child.exit_code) = (ChildState::Failed, code);
                self.stopping |= self.rules.fail_fast;
            }
        }
        self.promote();
    }

    /// No child starts any more; those that run are to be stopped.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn stopping(&self) -> bool {
        self.stopping
    }

    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().copied().flatten()
    }

    /// Nothing runs, and nothing will start.
    pub fn is_over(&self) -> bool {
        self.running().next().is_none() && (self.stopping || !self.has(ChildState::Waiting))
    }

    /// Whether the same sweep, started again, has more to do than to try again what failed.
    pub fn is_unfinished(&self) -> bool {
        let continues = |child: &Child| match child.state {
            ChildState::Waiting => true,
            ChildState::Done => child.rung + 1 < self.rules.rungs,
            _ => false,
        };
        self.children.iter().any(continues)
    }

    /// Whether a child is in this state.
    pub fn has(&self, state: ChildState) -> bool {
        self.children.iter().any(|child| child.state == state)
    }

    /// The children from the best to the worst: those that came further first, then by the metric, then by number.
    pub fn ranking(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.children.len()).collect();
        let key = |child: &Child| (child.state == ChildState::Failed, child.value().is_none());
        order.sort_by(|a, b| {
            let (one, other) = (&self.children[*a], &self.children[*b]);
            let further = other.values.len().cmp(&one.values.len());
            key(one)
                .cmp(&key(other))
                .then(further)
                .then(self.compare(one.value(), other.value()))
                .then(a.cmp(b))
        });
        order
    }

    /// `Less` if the first value is better.
    fn compare(&self, one: Option<f64>, other: Option<f64>) -> std::cmp::Ordering {
        let signed = |value: Option<f64>| match value {
            None => f64::INFINITY,
            Some(value) if self.rules.prefers_larger => -value,
            Some(value) => value,
        };
        signed(one).total_cmp(&signed(other))
    }

    /// If a rung is complete, the best of its children continue, and the others do not. Not while the sweep stops: what failed
    /// is tried again first when it continues.
    fn promote(&mut self) {
        loop {
            if self.stopping {
                return;
            }
            if self.has(ChildState::Waiting) || self.has(ChildState::Running) {
                return;
            }
            let Some(rung) = self.children.iter().map(|child| child.rung).max() else { return };
            if rung + 1 >= self.rules.rungs {
                return;
            }
            let on_it = |child: &Child| child.rung == rung && child.state == ChildState::Done;
            let mut best: Vec<usize> =
                (0..self.children.len()).filter(|at| on_it(&self.children[*at])).collect();
            if best.is_empty() {
                return;
            }
            best.sort_by(|a, b| {
                let value = |at: &usize| self.children[*at].value();
                self.compare(value(a), value(b)).then(a.cmp(b))
            });
            let kept = kept(self.children.len(), self.rules.eta, rung + 1);
            for (place, at) in best.into_iter().enumerate() {
                let child = &mut self.children[at];
                match place < kept {
                    true => (child.state, child.rung) = (ChildState::Waiting, rung + 1),
                    false => child.state = ChildState::Dropped,
                }
            }
        }
    }
}

/// How many of `children` are on a rung.
pub fn kept(children: usize, eta: usize, rung: usize) -> usize {
    let mut left = children;
    for _ in 0..rung {
        left /= eta.max(2);
    }
    left.max(1)
}

/// The lengths of the rungs of successive halving, up to a run of `whole`: each is `eta` times the one before.
pub fn rungs(least: u64, eta: u64, whole: u64) -> Vec<u64> {
    let mut lengths = Vec::new();
    let mut next = least.max(1);
    while next < whole {
        lengths.push(next);
        next = next.saturating_mul(eta.max(2));
    }
    lengths.push(whole);
    lengths
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
