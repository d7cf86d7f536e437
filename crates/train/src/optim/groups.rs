//! `[[optimizer.group]]`: parameters, chosen by their names, for which the optimizer has other values, or that are
//! frozen. The table is read by the declaration of the optimizer's own, whose values are its defaults.

use super::{Optimizer, OptimizerConfig, OptimizerPlan};
use crate::models::{Role, TensorFacts};
use glob::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spec::{Fields, Syntax, closest, syntax};
use std::sync::Arc;

/// The keys of a group that are not the optimizer's.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["match"]))]
pub(super) struct GroupKeys {
    /// Names of its parameters, as in a checkpoint: a pattern or several. `*` stands for any characters, dots too, `?` for any one, `[0-3]`
    /// for one of these. A parameter belongs to the first group that matches it.
    #[serde(rename = "match")]
    patterns: Patterns,
    /// `true`: its parameters stay unchanged; they have no gradient, no optimizer state and no weight decay. `false`: they
    /// are trained with the optimizer's own values, whatever a later group says.
    frozen: Option<bool>,
}

/// For the description of `[optimizer]`, whose groups are read table by table.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct GroupsKey {
    /// Parameter groups, each a table [`[[optimizer.group]]`](#optimizergroup).
    #[allow(dead_code, reason = "only declared")]
    group: Option<Vec<GroupKeys>>,
}

/// One pattern or several.
#[derive(Clone, Debug, Default, PartialEq)]
struct Patterns(Vec<String>);

impl Syntax for Patterns {
    const EXPECTED: &'static str = "a pattern such as \"layer4.*\", or a list of patterns";
    const TYPES: &'static [&'static str] = &["string", "array"];

    fn read(value: &toml::Value) -> Option<Self> {
        let text = |value: &toml::Value| value.as_str().map(str::to_owned);
        match value {
            toml::Value::Array(all) if !all.is_empty() => {
                Some(Self(all.iter().map(text).collect::<Option<_>>()?))
            }
            one => Some(Self(vec![text(one)?])),
        }
    }

    fn write(&self) -> toml::Value {
        match self.0.as_slice() {
            [one] => one.as_str().into(),
            many => many.to_vec().into(),
        }
    }
}
syntax!(Patterns);

/// How a parameter is updated.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Base learning rate, before the schedule.
    pub lr: f64,
    /// The optimizer with its settings.
    pub optimizer: Arc<dyn Optimizer>,
}

impl Rule {
    pub(super) fn new(optimizer: impl OptimizerConfig) -> Self {
        Self { lr: optimizer.lr(), optimizer: Arc::new(optimizer) }
    }

    /// State elements (f32) of a parameter of this shape, over all slots.
    pub fn state_len(&self, shape: &[usize]) -> usize {
        let slots = 0..self.optimizer.slots().len();
        let len = |shape: Vec<usize>| shape.into_iter().fold(1, usize::saturating_mul);
        slots.map(|slot| len(self.optimizer.slot_shape(slot, shape))).fold(0, usize::saturating_add)
    }
}

/// One `[[optimizer.group]]`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Group {
    #[serde(rename = "match")]
    texts: Patterns,
    /// Its other keys.
    #[serde(flatten)]
    set: Map<String, Value>,
    #[serde(skip)]
    patterns: Vec<Pattern>,
    /// `None`: its parameters are frozen.
    #[serde(skip)]
    rule: Option<Rule>,
    /// Its dotted path in the spec.
    #[serde(skip)]
    path: String,
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        (&self.texts, &self.set) == (&other.texts, &other.set)
    }
}

impl Group {
    /// Reads the groups in the table of an optimizer `T` with the values `base`.
    pub fn read_all<T: OptimizerConfig>(fields: &mut Fields<'_>, base: &Map<String, Value>) -> Vec<Self> {
        let mut groups = Vec::new();
        fields.tables("group", &mut |fields, _| groups.extend(Self::read::<T>(fields, base)));
        groups
    }

    /// `None` after a problem.
    fn read<T: OptimizerConfig>(fields: &mut Fields<'_>, base: &Map<String, Value>) -> Option<Self> {
        let GroupKeys { patterns: texts, frozen } = fields.config();
        let optimizer = fields.over::<T>(base);
        let own = |key: &&str| !["match", "frozen"].contains(key) && fields.knows(key);
        let own: Vec<&str> = fields.keys().into_iter().filter(own).collect();
        if frozen == Some(true) {
            fields.misplaced(&own, "on parameters that are frozen");
        } else if fields.keys() == ["match"] {
            let message = "the group sets nothing; give it a key of the optimizer, such as `lr`, or `frozen`";
            fields.problem("", message);
        } else if let Some(optimizer) = optimizer.as_ref().filter(|_| !own.is_empty()) {
            super::plan::check(optimizer, fields);
        }
        let mut patterns = Vec::new();
        for (index, text) in texts.0.iter().enumerate() {
            match pattern(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(why) => {
                    fields.problem_at(&["match", &index.to_string()], format!("not a pattern: {why}"))
                }
            }
        }
        let optimizer = optimizer?;
        let now = super::values(&optimizer);
        let mut set: Map<String, Value> =
            own.into_iter().filter_map(|key| Some((key.to_owned(), now.get(key)?.clone()))).collect();
        set.extend(frozen.map(|frozen| ("frozen".to_owned(), frozen.into())));
        let rule = (frozen != Some(true)).then(|| Rule::new(optimizer));
        Some(Self { texts, set, patterns, rule, path: fields.path().to_owned() })
    }

    fn matches<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        names.any(|name| self.patterns.iter().any(|pattern| pattern.matches(name)))
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    if text.contains("**") {
        return Err("one `*` stands for any characters, dots too".to_owned());
    }
    Pattern::new(text).map_err(|e| e.msg.to_owned())
}

/// A key of a group that does not fit the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Of the key in the spec; a number is an index in a list.
    pub path: Vec<String>,
    pub message: String,
}

impl OptimizerPlan {
    /// All rules; [`OptimizerPlan::rule_of`] says which one a parameter has.
    pub fn rules(&self) -> Vec<Rule> {
        let own = Rule { lr: self.lr, optimizer: self.optimizer.clone() };
        let groups = self.groups.iter().map(|group| group.rule.clone().unwrap_or_else(|| own.clone()));
        std::iter::once(own.clone()).chain(groups).collect()
    }

    /// The number of the rule of a parameter with these names: 0 is that of `[optimizer]` itself. `None`: it is frozen.
    pub fn rule_of<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Option<usize> {
        match self.groups.iter().position(|group| group.matches(names.clone())) {
            Some(at) => self.groups[at].rule.as_ref().map(|_| at + 1),
            None => Some(0),
        }
    }

    /// What of the groups does not fit a model with these tensors.
    pub fn misfits(&self, tensors: &[TensorFacts]) -> Vec<Misfit> {
        let parameters: Vec<&TensorFacts> = tensors.iter().filter(|t| !t.role.is_buffer()).collect();
        let mut misfits = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let before = misfits.len();
            for (index, pattern) in group.patterns.iter().enumerate() {
                if let Some(message) = group.unused(pattern, &parameters) {
                    let index = (group.patterns.len() > 1).then(|| index.to_string());
                    let path: Vec<&str> = std::iter::once("match").chain(index.as_deref()).collect();
                    misfits.push(group.misfit(&path, message));
                }
            }
            let first =
                |t: &&TensorFacts| self.groups.iter().position(|g| g.matches(t.names())) == Some(number);
            if misfits.len() == before && !parameters.iter().any(first) {
                let message =
                    "matches only parameters of the groups before it; the first group that matches counts";
                misfits.push(group.misfit(&["match"], message));
            }
        }
        let mut trained = parameters.iter().filter(|t| t.role == Role::Parameter).peekable();
        if let Some(last) = self.groups.iter().rfind(|group| group.rule.is_none())
            && trained.peek().is_some()
            && trained.all(|t| self.rule_of(t.names()).is_none())
        {
            misfits.push(
                last.misfit(&["frozen"], "with this group every parameter is frozen: nothing is trained"),
            );
        }
        misfits
    }
}

impl Group {
    fn misfit(&self, key: &[&str], message: impl Into<String>) -> Misfit {
        let path = self.path.split('.').chain(key.iter().copied()).map(str::to_owned).collect();
        Misfit { path, message: message.into() }
    }

    /// Why one of its patterns has no effect.
    fn unused(&self, pattern: &Pattern, parameters: &[&TensorFacts]) -> Option<String> {
        let mut matched =
            parameters.iter().filter(|t| t.names().any(|name| pattern.matches(name))).peekable();
        if matched.peek().is_none() {
            let names: Vec<&str> = parameters.iter().flat_map(|t| t.names()).collect();
            let meant = suggestion(pattern.as_str(), &names);
            return Some(format!("`{pattern}` matches no parameter of the model{meant}"));
        }
        let idle = self.rule.is_some() && matched.all(|t| t.role == Role::Frozen);
        idle.then(|| format!("`{pattern}` matches only parameters that the model itself freezes"))
    }
}

/// Names in a list of all modules.
const LISTED: usize = 16;

/// The closest parameter or module, or the modules that there are.
fn suggestion(pattern: &str, names: &[&str]) -> String {
    let mut modules: Vec<&str> = Vec::new();
    for name in names {
        modules.extend(name.match_indices('.').map(|(at, _)| &name[..at]));
    }
    let in_words =
        |name: &str| if names.contains(&name) { format!("`{name}`") } else { format!("`{name}.*`") };
    let (stem, whole) = match pattern.strip_suffix(".*") {
        Some(stem) => (stem, &[][..]),
        None => (pattern, names),
    };
    if let Some(best) = closest(stem, whole.iter().chain(&modules).copied()) {
        return format!("; did you mean {}?", in_words(best));
    }
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        let first = name.split('.').next().unwrap_or(name);
        if !all.contains(&first) {
            all.push(first);
        }
    }
    let more = if all.len() > LISTED { ", …" } else { "" };
    let all: Vec<String> = all.into_iter().take(LISTED).map(in_words).collect();
    format!("; it has {}{more}", all.join(", "))
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
