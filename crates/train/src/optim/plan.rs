//! The resolved optimizer: a value that can be printed, compared and built.

use super::groups::{Group, GroupKeys, GroupsKey, Rule};
use super::{Optimizer, values};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use spec::Fields;
use std::sync::Arc;

/// An optimizer that declares the keys of its `[optimizer]` table as its fields.
pub trait OptimizerConfig: Optimizer + Serialize + DeserializeOwned + JsonSchema + Default + 'static {
    /// Base learning rate, before the schedule. By default the value of the key `lr`.
    fn lr(&self) -> f64 {
        let lr = values(self).get("lr").and_then(Value::as_f64);
        lr.expect("an optimizer without a key `lr` implements `OptimizerConfig::lr`")
    }

    /// Checks keys that exclude or need each other: those of `[optimizer]`, and those of each `[[optimizer.group]]` that sets one. A
    /// value that is wrong by itself has been reported, and is the default here.
    ///
    /// # Errors
    /// A key and what is wrong with it: a problem of the spec at this key, or at the table if the key is not set.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }
}

/// Adds what `optimizer` finds wrong with its keys to `fields`.
pub(super) fn check(optimizer: &impl OptimizerConfig, fields: &mut Fields<'_>) {
    if let Err((key, message)) = optimizer.check() {
        fields.problem(key, message);
    }
}

/// Reads the `[optimizer]` table of one optimizer: [`OptimizerPlan::read`].
pub type OptimizerKind = fn(&str, &mut Fields<'_>) -> OptimizerPlan;

/// The resolved `[optimizer]`.
#[derive(Clone, Debug, Serialize)]
pub struct OptimizerPlan {
    /// The name in specs.
    pub name: String,
    #[serde(flatten)]
    config: Map<String, Value>,
    #[serde(rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<Group>,
    /// Base learning rate of parameters in no group, before the schedule.
    #[serde(skip)]
    pub lr: f64,
    #[serde(skip)]
    pub(super) optimizer: Arc<dyn Optimizer>,
}

impl PartialEq for OptimizerPlan {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.config, &self.groups) == (&other.name, &other.config, &other.groups)
    }
}

impl OptimizerPlan {
    /// Reads `[optimizer]`, given all optimizers by name. Problems are added to `fields`; `None` if the name is wrong.
    pub fn configure<'k>(
        fields: &mut Fields<'_>,
        kinds: impl Iterator<Item = (&'k str, OptimizerKind)>,
    ) -> Option<Self> {
        fields.config_if::<GroupsKey>(false);
        if !fields.has("group") {
            fields.section("group").config_if::<GroupKeys>(false);
        }
        let (name, read) = fields.kind(kinds)?;
        Some(read(name, fields))
    }

    /// Reads the keys that `T` declares. The result must not be used if there was a problem.
    pub fn read<T: OptimizerConfig>(name: &str, fields: &mut Fields<'_>) -> Self {
        let optimizer: T = fields.config();
        check(&optimizer, fields);
        let config = values(&optimizer);
        let groups = Group::read_all::<T>(fields, &config);
        let Rule { lr, optimizer } = Rule::new(optimizer);
        Self { name: name.to_owned(), config, groups, lr, optimizer }
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::standard_kinds;
    use crate::optim::testing::{optimizer, read};

    #[test]
    fn every_optimizer_has_defaults_and_builds() {
        for (name, _) in standard_kinds() {
            let (plan, problems) = read(&format!("name = \"{name}\""), optimizer);
            let plan = plan.expect("a known name");
            assert_eq!(problems, "", "{name}");
            assert_eq!(plan.name, name);
            let json = serde_json::to_value(&plan).unwrap();
            assert_eq!(json["name"], name, "the plan prints the name that specs use");
            assert_eq!(json["lr"], plan.lr);
        }
        let (adamw, _) = read("name = \"adamw\"\nlr = 5e-4\nweight_decay = 1e-4", optimizer);
        let json = serde_json::to_string(&adamw).unwrap();
        let expected = r#"{"name":"adamw","lr":0.0005,"betas":[0.9,0.999],"eps":1e-8,"amsgrad":false,"weight_decay":0.0001,"decay":"all"}"#;
        assert_eq!(json, expected);
        let (adam, _) = read("name = \"adam\"", optimizer);
        assert_eq!(serde_json::to_value(&adam).unwrap()["weight_decay"], 0.0);
    }

    #[test]
    fn reports_every_mistake_with_the_expected_value() {
        let text = "name = \"sgd\"\nlr = -1\nnesterov = true\nmomentun = 0.9\ndecay = \"matrix\"";
        let (_, problems) = read(text, optimizer);
        for part in ["at least 0", "Nesterov", "did you mean `momentum`", "did you mean \"matrices\""] {
            assert!(problems.contains(part), "{part} is missing in:\n{problems}");
        }
        let (_, problems) = read("name = \"adamw2\"\nbetas = [0.9]", optimizer);
        assert!(problems.contains("did you mean \"adamw\"?"), "{problems}");
        let (_, problems) = read("lr = 0.1\nbetas = [0.9]", optimizer);
        assert!(problems.contains("missing key `name`"), "{problems}");
        let (_, problems) = read("name = \"adam\"\nbetas = [0.9]", optimizer);
        assert!(problems.contains("expected 2 numbers, found 1"), "{problems}");
        let (_, problems) = read("name = \"adan\"\nbetas = [0.9, 1, 0.5]", optimizer);
        assert!(problems.contains("expected a number of at least 0 and below 1, found 1"), "{problems}");
    }
}
