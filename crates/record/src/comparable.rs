//! Which runs' losses and metrics compare: those of the same task on the same data, and losses of the same loss function.
//! It is told by the specs, which name the data; a folder that was moved has the same name.

use base::display;
use spec::Values;

/// Keys of `[dataset]` that say which samples and targets a run has.
const DATA: [&str; 16] = [
    "name", "path", "root", "config", "table", "val", "train", "content", "text", "target", "task",
    "outputs", "classes", "features", "noise", "seed",
];
/// Data sets whose samples are the same in every place.
const PUBLISHED: [&str; 5] = ["mnist", "fashion-mnist", "cifar10", "california-housing", "tinyshakespeare"];
/// Names of `[task]` that say no more than no `[task]`.
const STANDARD_TASKS: [&str; 3] = ["classification", "regression", "language-modelling"];
/// Names in a sentence.
const LISTED: usize = 3;

/// A key and its value.
type Parts = Vec<(String, String)>;

/// Runs whose values compare have the same number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparable {
    metrics: Vec<usize>,
    losses: Vec<usize>,
    why: Vec<String>,
}

impl Comparable {
    /// Of runs with their names. A run whose spec is not known counts as one of the first run's kind.
    pub fn new(runs: &[(&str, Option<&Values>)]) -> Self {
        let of = |part: fn(&Values) -> Parts| runs.iter().map(|(_, spec)| spec.map(part)).collect::<Vec<_>>();
        let names: Vec<&str> = runs.iter().map(|(name, _)| *name).collect();
        let (metrics, other_data) = grouped(&of(data), &names);
        let (functions, other_loss) = grouped(&of(loss), &names);
        let pairs: Vec<(usize, usize)> = metrics.iter().copied().zip(functions).collect();
        let first = |pair: &(usize, usize)| pairs.iter().position(|other| other == pair).unwrap_or(0);
        let why = [
            ("values of different tasks or data", other_data),
            ("losses of different loss functions", other_loss),
        ];
        let sentence = |(what, because): (&str, Option<String>)| {
            because.map(|because| format!("{what} do not compare: {because}"))
        };
        Self {
            losses: pairs.iter().map(first).collect(),
            metrics,
            why: why.into_iter().filter_map(sentence).collect(),
        }
    }

    /// For each run, the number of the first one whose values of this metric compare with its own.
    pub fn groups(&self, metric: &str) -> &[usize] {
        let is_loss = metric == "loss" || metric.ends_with(".loss");
        if is_loss { &self.losses } else { &self.metrics }
    }

    /// Those runs together, in the order of the runs.
    pub fn members(&self, metric: &str) -> Vec<Vec<usize>> {
        let of = self.groups(metric);
        let members = |first: usize| (0..of.len()).filter(|run| of[*run] == first).collect();
        (0..of.len()).filter(|run| of[*run] == *run).map(members).collect()
    }

    /// Why runs do not compare, in words.
    pub fn why(&self) -> &[String] {
        &self.why
    }
}

/// The number of the first run with the same parts, and what makes one another.
fn grouped(runs: &[Option<Parts>], names: &[&str]) -> (Vec<usize>, Option<String>) {
    let Some(known) = runs.iter().position(Option::is_some) else { return (vec![0; runs.len()], None) };
    let of = |run: usize| runs[run].as_ref().or(runs[known].as_ref());
    let first = |run: usize| (0..run).find(|earlier| of(*earlier) == of(run)).unwrap_or(run);
    let groups: Vec<usize> = (0..runs.len()).map(first).collect();
    let other = groups.iter().position(|group| *group != 0);
    let because = other.and_then(|other| difference([of(0)?, of(other)?], [names[0], names[other]]));
    (groups, because)
}

/// `dataset.name` is "csv" in a, "mnist" in b
fn difference(parts: [&Parts; 2], names: [&str; 2]) -> Option<String> {
    let value = |parts: &Parts, key: &str| parts.iter().find(|(own, _)| own == key).map(|(_, v)| v.clone());
    let keys = parts.iter().flat_map(|parts| parts.iter().map(|(key, _)| key));
    let key = keys.into_iter().find(|key| value(parts[0], key) != value(parts[1], key))?;
    let word = |at: usize| match value(parts[at], key) {
        Some(text) => format!("is {} in {}", display::name(&text), display::name(names[at])),
        None => format!("is not set in {}", display::name(names[at])),
    };
    Some(format!("`{key}` {}, and {}", word(0), word(1)))
}

fn data(spec: &Values) -> Parts {
    let plain = |key: &str| spec.get(key).map(|text| text.trim_matches(['"', '\'']));
    let published = plain("dataset.name").is_some_and(|name| PUBLISHED.contains(&name));
    let part = |key: &str| {
        let key = format!("dataset.{key}");
        let text = plain(&key)?;
        let value = match key.as_str() {
            "dataset.path" | "dataset.root" if published => return None,
            "dataset.path" | "dataset.root" => {
                format!("…/{}", text.trim_end_matches('/').rsplit('/').next()?)
            }
            // The number of samples of a generated set.
            "dataset.val" | "dataset.train" if is_number(text) => return None,
            // Validation samples come from the training ones only where there is no other place for them.
            "dataset.train" if plain("dataset.val").is_some() => return None,
            // Those of a table are inputs, not samples.
            "dataset.features" if !is_number(text) => return None,
            _ => spec.get(&key)?.clone(),
        };
        Some((key, value))
    };
    let task = plain("task.name").filter(|name| !STANDARD_TASKS.contains(name));
    let task = task.map(|name| ("task.name".to_owned(), name.to_owned()));
    DATA.iter().filter_map(|key| part(key)).chain(task).collect()
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn loss(spec: &Values) -> Parts {
    // The unit of the loss is the deviation of the training targets. Without `val`, `train` is a part of the data.
    let is_scaled = spec.get("dataset.standardise_target").is_some_and(|value| value == "true")
        && spec.contains_key("dataset.val");
    let zero = |value: &str| value.parse() == Ok(0.0);
    let of_target = ["train.label_smoothing", "dataset.standardise_target"];
    let part = |(key, value): (&String, &String)| {
        let own = key.starts_with("loss.") || key.starts_with("task.") && key != "task.name";
        let unit = is_scaled && key == "dataset.train";
        let is_one = own || unit || of_target.contains(&key.as_str()) && !zero(value);
        is_one.then(|| (key.clone(), value.clone()))
    };
    spec.iter().filter_map(part).collect()
}

/// `a, b, c and 2 more`
pub fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::values;

    fn of(specs: &[&str]) -> Comparable {
        let all: Vec<Option<Values>> = specs.iter().map(|spec| values(spec)).collect();
        let names = ["a", "b", "c", "d"];
        let runs: Vec<(&str, Option<&Values>)> =
            names.into_iter().zip(all.iter().map(Option::as_ref)).collect();
        Comparable::new(&runs)
    }

    const CSV: &str = "[dataset]\nname = \"csv\"\npath = \"/home/a/houses.csv\"\ntarget = \"price\"\ntask = \"regression\"\n\
         standardise_target = true\nfeatures = [\"x\"]\n[optimizer]\nlr = 0.1\n";

    #[test]
    fn runs_on_the_same_data_compare() {
        // Elsewhere, with other features and an explicit task.
        let moved =
            CSV.replace("/home/a/", "/scratch/17/").replace("\"x\"", "\"x\", \"y\"").replace("0.1", "0.2");
        let found = of(&[CSV, &moved, &format!("{CSV}[task]\nname = \"regression\"\n"), "no spec"]);
        assert_eq!((found.groups("val.loss"), found.groups("mae")), (&[0; 4][..], &[0; 4][..]));
        assert_eq!((found.why(), found.members("loss")), (&[][..], vec![vec![0, 1, 2, 3]]));
        // A published set is the same in every folder, and a smoothing of 0 is none.
        let mnist = "[dataset]\nname = \"mnist\"\nroot = \"/a/data\"\n";
        let there = "[dataset]\nname = \"mnist\"\nroot = \"/b/sets\"\n[train]\nlabel_smoothing = 0.0\nloss = \"cross-entropy\"\n";
        assert_eq!(of(&[mnist, there]).groups("loss"), [0, 0]);
        assert_eq!(of(&[]).why(), &[] as &[String]);
    }

    #[test]
    fn runs_on_other_data_do_not() {
        let other = [
            CSV.replace("houses.csv", "cars.csv"),
            CSV.replace("\"price\"", "\"rent\""),
            CSV.replace("regression", "classification"),
            format!("{CSV}[task]\nname = \"mine\"\n"),
        ];
        for spec in &other {
            let found = of(&[CSV, spec, CSV]);
            assert_eq!(
                (found.groups("mae"), found.groups("loss")),
                (&[0, 1, 0][..], &[0, 1, 0][..]),
                "{spec}"
            );
        }
        assert_eq!(
            of(&[CSV, &other[0]]).why(),
            [
                "values of different tasks or data do not compare: `dataset.path` is …/houses.csv in a, and is …/cars.csv in b"
            ]
        );
        let found = of(&[CSV, &other[3], &other[3]]);
        assert_eq!(found.members("val.mae"), [vec![0], vec![1, 2]]);
        assert!(
            found.why()[0].ends_with(": `task.name` is not set in a, and is mine in b"),
            "{:?}",
            found.why()
        );
    }

    #[test]
    fn losses_of_other_functions_do_not_but_other_metrics_do() {
        for more in ["[train]\nlabel_smoothing = 0.1\n", "[loss]\nname = \"focal\"\ngamma = 2\n"] {
            let found = of(&[CSV, &format!("{CSV}{more}")]);
            assert_eq!((found.groups("val.loss"), found.groups("mae")), (&[0, 1][..], &[0, 0][..]));
            assert!(found.why()[0].starts_with("losses of different loss functions do not compare"));
        }
        // The loss of a scaled target has another unit.
        let plain = CSV.replace("standardise_target = true", "standardise_target = false");
        assert_eq!(of(&[CSV, &plain]).groups("loss"), [0, 1]);
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }

    #[test]
    fn the_training_table_is_a_part_where_validation_or_the_unit_of_the_loss_come_from_it() {
        let groups = |specs: [&str; 2]| {
            let found = of(&specs);
            (found.groups("val.mae").to_vec(), found.groups("val.loss").to_vec(), found.why().join("; "))
        };
        let table = |train: &str, more: &str| {
            format!("[dataset]\nname = \"csv\"\npath = \"A/d\"\ntarget = \"y\"\ntrain = {train}\n{more}")
        };
        let two = |more: &str| groups([&table("\"a.csv\"", more), &table("\"b.csv\"", more)]);
        let (metrics, losses, why) = two("val_split = 0.3\nstandardise_target = false\n");
        assert_eq!((metrics, losses), (vec![0, 1], vec![0, 1]));
        assert!(why.contains("`dataset.train` is "), "{why}");
        let (metrics, losses, why) = two("val = \"val.csv\"\nstandardise_target = true\n");
        assert_eq!((metrics, losses), (vec![0, 0], vec![0, 1]));
        assert!(why.starts_with("losses of different loss functions"), "{why}");
        let same = (vec![0, 0], vec![0, 0], String::new());
        assert_eq!(two("val = \"val.csv\"\nstandardise_target = false\n"), same);
        // The number of samples of a generated set.
        let shapes = |train: u64| format!("[dataset]\nname = \"shapes\"\ntrain = {train}\nval = 16\n");
        assert_eq!(groups([&shapes(64), &shapes(128)]), same);
        let random = |features: u64| format!("[dataset]\nname = \"random\"\nfeatures = {features}\n");
        assert_eq!(groups([&random(3), &random(3)]), same);
        assert_eq!(groups([&random(3), &random(20)]).0, [0, 1]);
    }
}
