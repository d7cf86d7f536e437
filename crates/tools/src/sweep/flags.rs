//! The settings of a sweep on the command line, which override `[sweep]` of the spec.

use base::error::{Error, Result};
use job::plan::sweep::{Distribution, Grid, Space, SweepConfig, list};
use std::collections::BTreeSet;

/// The settings of `[sweep]` on the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `KEY=VALUE,VALUE…`
    pub grid: Vec<String>,
    /// `KEY=DISTRIBUTION`
    pub sample: Vec<String>,
    /// Samples to draw; without `sample`, combinations to choose from the grid. `None`: the spec's.
    pub random: Option<u64>,
    /// Seed of the random samples; `None`: the spec's.
    pub seed: Option<u64>,
    /// Metric that ranks the runs, as in `val.accuracy`; `None`: the spec's.
    pub metric: Option<String>,
    /// Successive halving: epochs that all runs begin with. If set, the spec's `min_steps` is ignored.
    pub min_epochs: Option<u64>,
    /// Successive halving: optimizer steps that all runs begin with; the spec's `min_epochs` is then ignored.
    pub min_steps: Option<u64>,
    /// Successive halving: one of `eta` runs continues, for `eta` times as long; `None`: the spec's.
    pub eta: Option<u64>,
    /// Maximum number of runs at the same time; `None`: the spec's.
    pub parallel: Option<usize>,
    /// Stop all runs when one fails; `false` leaves the spec's setting.
    pub fail_fast: bool,
}

impl Flags {
    /// The settings. A flag wins over the spec, also for a single key, whether the spec has it in its grid or among its samples.
    pub(super) fn over(&self, mut config: SweepConfig) -> Result<SweepConfig> {
        let wrong = |flag: &str, text: &str, why: String| Error::usage(format!("{flag} {text}: {why}"));
        let mut typed = BTreeSet::new();
        for text in &self.grid {
            let (key, values) = assignment("--grid", text, &mut typed)?;
            let values = list(values).map_err(|why| wrong("--grid", text, why))?;
            config.sample = config.sample.take().and_then(|space| without(space.0, &key).map(Space));
            set(&mut config.grid.get_or_insert_with(Grid::default).0, &key, values);
        }
        for text in &self.sample {
            let (key, of) = assignment("--sample", text, &mut typed)?;
            let of = Distribution::parse(of).map_err(|why| wrong("--sample", text, why))?;
            config.grid = config.grid.take().and_then(|grid| without(grid.0, &key).map(Grid));
            set(&mut config.sample.get_or_insert_with(Space::default).0, &key, of);
        }
        config.random = self.random.or(config.random);
        config.seed = self.seed.unwrap_or(config.seed);
        config.metric = self.metric.clone().or(config.metric);
        if self.min_epochs.is_some() || self.min_steps.is_some() {
            (config.min_epochs, config.min_steps) = (self.min_epochs, self.min_steps);
        }
        if self.eta.is_some() && config.min_epochs.is_none() && config.min_steps.is_none() {
            return Err(Error::usage("--eta is part of successive halving, and how it begins is missing")
                .hint("`--min-epochs N`, or `--min-steps N`"));
        }
        config.eta = self.eta.unwrap_or(config.eta);
        config.parallel = self.parallel.unwrap_or(config.parallel);
        config.fail_fast |= self.fail_fast;
        Ok(config)
    }
}

/// `KEY=VALUE` of a flag; `typed` are the keys of those before.
fn assignment<'a>(flag: &str, text: &'a str, typed: &mut BTreeSet<String>) -> Result<(String, &'a str)> {
    let parts = text.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
    let (key, value) =
        parts.filter(|(key, value)| !key.is_empty() && !value.is_empty()).ok_or_else(|| {
            Error::usage(format!("{flag} {text}: expected KEY=…, as in `--grid optimizer.lr=1e-3,3e-4`"))
        })?;
    let key = dotted(key);
    match typed.insert(key.clone()) {
        true => Ok((key, value)),
        false => Err(Error::usage(format!("{flag} {text}: `{key}` is given twice"))
            .hint("one flag takes all values of a key, as in `--grid optimizer.lr=1e-3,3e-4`")),
    }
}

/// A key without unnecessary quotes and spaces: `"seed"` is `seed`. Text that is not a key is returned unchanged, and reported later.
fn dotted(typed: &str) -> String {
    let bare = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if !part.is_empty() && part.chars().all(plain) { part.to_owned() } else { format!("{part:?}") }
    };
    let mut parts = Vec::new();
    let mut table =
        format!("{typed}=0").parse::<toml::Table>().ok().filter(|_| !typed.contains(['\n', '\r', '#']));
    while let Some((part, value)) = table.take().and_then(|table| table.into_iter().next()) {
        parts.push(bare(&part));
        table = value.as_table().cloned();
    }
    if parts.is_empty() { typed.to_owned() } else { parts.join(".") }
}

/// All but this key; `None` if nothing is left.
fn without<T>(mut of: Vec<(String, T)>, key: &str) -> Option<Vec<(String, T)>> {
    of.retain(|(known, _)| known != key);
    (!of.is_empty()).then_some(of)
}

/// Replaces the value of a key, or adds one.
fn set<T>(of: &mut Vec<(String, T)>, key: &str, value: T) {
    match of.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => *known = value,
        None => of.push((key.to_owned(), value)),
    }
}
