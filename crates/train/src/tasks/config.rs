//! `[task]`, `[loss]` and `[[metric]]`: a standard task by name, or components of a program of one's own, in place of `train.loss`
//! or beside it.

use super::erased;
use super::rows::Rows;
use super::{AnyTask, Loss, Metric, MetricFacts, StandardLoss, StandardTask, Task};
use base::error::{Error, Result};
use data::FieldFacts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spec::Fields;
use std::fmt;
use std::sync::Arc;

/// What the name of a `[task]` table stands for.
#[derive(Clone, Copy)]
pub enum TaskKind {
    /// A task of ddp-run's own, which has no further components.
    Standard(StandardTask),
    /// Reads the table of a task of one's own; `None` after a problem.
    Own(fn(&str, &mut Fields<'_>) -> Option<Arc<dyn AnyTask>>),
}

/// The task that a spec names.
enum SpecTask {
    Standard(StandardTask),
    Own(Arc<dyn AnyTask>),
}

impl TaskKind {
    fn read(self, name: &str, fields: &mut Fields<'_>) -> Option<SpecTask> {
        match self {
            Self::Standard(task) => {
                task.read(fields);
                Some(SpecTask::Standard(task))
            }
            Self::Own(read) => read(name, fields).map(SpecTask::Own),
        }
    }
}

/// Reads the `[loss]` table of one loss; `None` after a problem.
pub type LossKind = fn(&mut Fields<'_>) -> Option<Arc<dyn Loss>>;
/// Reads a `[[metric]]` table of one metric; `None` after a problem.
pub type MetricKind = fn(&mut Fields<'_>) -> Option<Arc<dyn Metric>>;

/// Reads the `[task]` table of `T`.
pub fn task<T: Task + DeserializeOwned + JsonSchema>(
    name: &str,
    fields: &mut Fields<'_>,
) -> Option<Arc<dyn AnyTask>> {
    Some(Arc::new(erased::NamedTask::new(name, fields.parse::<T>()?)))
}

/// The [`LossKind`] of `L`.
pub fn loss<L: Loss + DeserializeOwned + JsonSchema>(fields: &mut Fields<'_>) -> Option<Arc<dyn Loss>> {
    Some(Arc::new(fields.parse::<L>()?))
}

/// The [`MetricKind`] of `M`.
pub fn metric<M: Metric + DeserializeOwned + JsonSchema>(fields: &mut Fields<'_>) -> Option<Arc<dyn Metric>> {
    Some(Arc::new(fields.parse::<M>()?))
}

/// The metrics that the targets' kind brings, and the keys beside them.
const STANDARD: [&str; 8] = ["loss", "n", "accuracy", "top5", "perplexity", "mae", "mse", "r2"];

/// What a spec names of tasks, losses and metrics.
#[derive(Default)]
pub struct Own {
    task: Option<(String, Option<SpecTask>)>,
    loss: Option<(String, Option<Arc<dyn Loss>>)>,
    metrics: Vec<(String, Arc<dyn Metric>)>,
}

impl Own {
    /// Reads the three tables, given the kinds by name.
    pub fn read<'k>(
        root: &mut Fields<'_>,
        tasks: impl Iterator<Item = (&'k str, TaskKind)>,
        losses: impl Iterator<Item = (&'k str, LossKind)>,
        metrics: impl Iterator<Item = (&'k str, MetricKind)>,
    ) -> Self {
        let task = one(root, "task", tasks.collect(), |kind, name, fields| kind.read(name, fields));
        let loss = one(root, "loss", losses.collect(), |kind, _, fields| kind(fields));
        let mut names = Vec::new();
        let metrics = root.own_tables("metric", metrics, |name, kind, fields| {
            if STANDARD.contains(&name) {
                fields.problem("name", format!("`{name}` is the name of a standard metric"));
            } else if names.contains(&name) {
                fields.problem("name", format!("the metric `{name}` is listed twice"));
            }
            let metric = kind(fields)?;
            names.push(name);
            Some((name.to_owned(), metric))
        });
        if let Some((_, Some(SpecTask::Own(task)))) = &task {
            let names: Vec<String> = task.metrics().into_iter().map(|metric| metric.name).collect();
            for (i, name) in names.iter().enumerate() {
                if ["", "loss", "n"].contains(&name.as_str()) || names[..i].contains(name) {
                    let why = format!(
                        "the task has a metric `{name}`, which is empty, twice, or a name of ddp-run's"
                    );
                    root.problem_at(&["task", "name"], why);
                }
            }
        }
        let own = Self { task, loss, metrics };
        if own.has_own_task() {
            root.misplaced(&["loss", "metric"], "with `[task]`: the task has its own loss and metrics");
        }
        own
    }

    /// Whether the task is one of a user's program.
    fn has_own_task(&self) -> bool {
        matches!(self.task, Some((_, None | Some(SpecTask::Own(_)))))
    }

    /// The standard task, if the spec names it.
    pub fn standard_task(&self) -> Option<StandardTask> {
        match self.task {
            Some((_, Some(SpecTask::Standard(task)))) => Some(task),
            _ => None,
        }
    }

    /// The table in place of `train.loss`, if there is one.
    pub fn replaces_loss(&self) -> Option<&'static str> {
        match (self.has_own_task(), &self.loss) {
            (true, _) => Some("[task]"),
            (_, Some(_)) => Some("[loss]"),
            _ => None,
        }
    }

    /// With the loss of `train.loss`. `None` after a problem.
    pub fn plan(self, standard: Option<StandardLoss>) -> Option<TaskPlan> {
        let named = self.standard_task();
        if let (None, Some((name, task))) = (named, self.task) {
            let SpecTask::Own(task) = task? else { return None };
            return Some(TaskPlan { objective: Objective::Task(name), named, loss: None, task });
        }
        let (objective, loss): (_, Arc<dyn Loss>) = match self.loss {
            Some((name, loss)) => (Objective::Loss(name), loss?),
            None => (Objective::Standard(standard?), Arc::new(standard?)),
        };
        let smoothing = match objective {
            Objective::Standard(StandardLoss::CrossEntropy { label_smoothing }) => Some(label_smoothing),
            _ => None,
        };
        let task = Arc::new(Rows { loss: loss.clone(), smoothing, metrics: self.metrics });
        Some(TaskPlan { objective, named, loss: Some(loss), task })
    }
}

/// Reads the table `key`, if it is there: the name in it, and what `read` makes of its kind.
fn one<K, T>(
    root: &mut Fields<'_>,
    key: &'static str,
    kinds: Vec<(&str, K)>,
    read: impl FnOnce(K, &str, &mut Fields<'_>) -> Option<T>,
) -> Option<(String, Option<T>)> {
    let mut fields = root.table(key)?;
    let (name, kind) = fields.own_kind(key, kinds)?;
    Some((name.to_owned(), read(kind, name, &mut fields)))
}

/// What the run minimises and measures.
#[derive(Clone)]
pub struct TaskPlan {
    objective: Objective,
    /// The standard task, if the spec names it.
    named: Option<StandardTask>,
    /// Of the standard task.
    loss: Option<Arc<dyn Loss>>,
    task: Arc<dyn AnyTask>,
}

#[derive(Clone, Debug)]
enum Objective {
    Standard(StandardLoss),
    /// A loss of one's own, by name.
    Loss(String),
    /// A task of one's own, by name.
    Task(String),
}

impl fmt::Debug for TaskPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskPlan").field(&self.objective).finish()
    }
}

/// For the plan.
impl fmt::Display for TaskPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.objective {
            Objective::Standard(loss) => loss.fmt(f),
            Objective::Loss(name) => f.write_str(name),
            Objective::Task(name) => write!(f, "that of the task {name}"),
        }
    }
}

impl TaskPlan {
    /// The task to run.
    pub fn build(&self) -> Arc<dyn AnyTask> {
        self.task.clone()
    }

    /// The metrics besides the loss and those that the targets' kind brings.
    pub fn metrics(&self) -> Vec<MetricFacts> {
        self.task.metrics()
    }

    /// For programs: the loss with its keys, or the name of the task.
    pub fn json(&self) -> Value {
        match &self.objective {
            Objective::Standard(loss) => json!(loss),
            Objective::Loss(name) => json!({ "name": name }),
            Objective::Task(name) => json!({ "task": name }),
        }
    }

    /// Whether the task's training step runs the backward pass, too.
    pub fn runs_backward(&self) -> bool {
        self.task.runs_backward()
    }

    /// The name of a task of one's own.
    pub fn own(&self) -> Option<&str> {
        match &self.objective {
            Objective::Task(name) => Some(name),
            _ => None,
        }
    }

    /// The loss, if it is one of `train.loss`.
    pub fn standard(&self) -> Option<StandardLoss> {
        match &self.objective {
            Objective::Standard(loss) => Some(*loss),
            _ => None,
        }
    }

    /// As [`Loss::fits`], and as [`StandardTask::fits`] if the spec names one.
    pub fn fits(&self, input: &FieldFacts, target: &FieldFacts) -> Result<()> {
        if let Some(Err(why)) = self.named.map(|task| task.fits(Some(input), Some(target))) {
            return Err(Error::spec(format!("`task.name`: {why}")));
        }
        self.loss.as_ref().map_or(Ok(()), |loss| loss.fits(target))
    }
}
