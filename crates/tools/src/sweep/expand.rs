//! The points of a sweep: combinations of a grid, and samples. Pure functions of the settings and the seed.

use base::error::{Error, Result};
use job::plan::sweep::{Distribution, Range, SweepConfig, as_toml};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Keys with their values, as `--set` takes them.
pub type Point = Vec<(String, String)>;

/// More runs are taken for a mistake.
const MOST: usize = 10_000;
/// Largest number of combinations from which some are chosen.
const MOST_COMBINATIONS: usize = 1_000_000;
/// Longest part of a child's name that shows its values.
const NAME: usize = 48;
/// Keys that the sweep sets itself, or that are not part of a run.
const RESERVED: [&str; 5] = ["name", "extends", "checkpoint.best", "train.stop_after", "launch.nnodes"];

/// The points, without repetitions: each sample with every combination of the grid, of which the last key changes fastest.
///
/// # Errors
/// Settings that contradict each other, that have no points, or too many (exit code 2).
pub fn points(config: &SweepConfig) -> Result<Vec<Point>> {
    let grid = config.grid.as_ref().map_or(&[][..], |grid| &grid.0);
    let sample = config.sample.as_ref().map_or(&[][..], |space| &space.0);
    check(config, grid, sample)?;
    let combinations = grid.iter().try_fold(1usize, |all, (_, values)| all.checked_mul(values.len()));
    let draws = if sample.is_empty() { 1 } else { config.random.unwrap_or(1) as usize };
    let chosen_of_grid = config.random.filter(|_| sample.is_empty());
    let most = if chosen_of_grid.is_some() { MOST_COMBINATIONS } else { MOST };
    let all = combinations.and_then(|all| all.checked_mul(draws)).filter(|all| *all <= most);
    let Some(all) = all else {
        let (what, hint) = match chosen_of_grid {
            None => ("runs", "`--random N` with `--grid` alone chooses N of its combinations"),
            Some(_) => ("combinations to choose from", "`--sample KEY=DISTRIBUTION` draws values instead"),
        };
        return Err(
            Error::usage(format!("a sweep has at most {most} {what}, and this one has more")).hint(hint)
        );
    };
    let per_draw = all / draws;
    let point = |at: usize| -> Point {
        let drawn = sample.iter().map(|(key, of)| (key.clone(), draw(of, config.seed, key, at / per_draw)));
        combination(grid, at % per_draw).into_iter().chain(drawn).collect()
    };
    let places = match chosen_of_grid {
        Some(most) => chosen(all, most as usize, config.seed),
        None => (0..all).collect(),
    };
    let mut points: Vec<Point> = places.into_iter().map(point).collect();
    let mut seen = BTreeSet::new();
    points.retain(|point| seen.insert(point.iter().map(|(_, value)| meant(value)).collect::<Vec<_>>()));
    Ok(points)
}

/// The same text for values that are the same: `1e-3` and `0.001`, `a` and `"a"`.
fn meant(value: &str) -> String {
    as_toml(value).to_string()
}

fn check(
    config: &SweepConfig,
    grid: &[(String, Vec<String>)],
    sample: &[(String, Distribution)],
) -> Result<()> {
    let keys: Vec<&str> =
        grid.iter().map(|(key, _)| key.as_str()).chain(sample.iter().map(|(key, _)| key.as_str())).collect();
    if keys.is_empty() {
        return Err(Error::usage("the sweep varies nothing")
            .hint("`--grid optimizer.lr=1e-3,3e-4`, or `[sweep.grid]` in the spec; `--sample KEY=DISTRIBUTION` with `--random N`"));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = keys.iter().find(|key| !seen.insert(**key)) {
        return Err(Error::usage(format!("the sweep varies `{twice}` twice")));
    }
    let reserved = |key: &&&str| RESERVED.contains(key) || key.split('.').next() == Some("sweep");
    if let Some(key) = keys.iter().find(reserved) {
        let hint = "`--metric` sets `checkpoint.best`, and each run has its own name";
        return Err(Error::usage(format!("a sweep can't vary `{key}`")).hint(hint));
    }
    match (sample.is_empty(), config.random) {
        (false, None) => Err(Error::usage("how many samples are to be drawn is missing")
            .hint("`--random N`, or `random` in `[sweep]`")),
        _ if config.min_epochs.is_some() && config.min_steps.is_some() => Err(Error::usage(
            "the first runs of successive halving have a number of epochs, or of steps, not both",
        )
        .hint("leave out `--min-epochs` or `--min-steps` (`min_epochs`, `min_steps` in `[sweep]`)")),
        _ => Ok(()),
    }
}

/// Combination number `at` of the grid.
fn combination(grid: &[(String, Vec<String>)], mut at: usize) -> Point {
    let mut point: Point = grid
        .iter()
        .rev()
        .map(|(key, values)| {
            let value = &values[at % values.len()];
            at /= values.len();
            (key.clone(), value.clone())
        })
        .collect();
    point.reverse();
    point
}

/// `most` of the numbers below `all`, each with the same probability, in their order.
fn chosen(all: usize, most: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all).collect();
    order.sort_by_cached_key(|at| random(seed, "", *at));
    order.truncate(most);
    order.sort_unstable();
    order
}

/// Sample number `at` of a key. It depends on nothing else, so that another key or more samples change none of those before.
fn draw(of: &Distribution, seed: u64, key: &str, at: usize) -> String {
    // 53 bits, as a number of at least 0 and below 1.
    let unit = (random(seed, key, at) >> 11) as f64 / (1u64 << 53) as f64;
    match of {
        Distribution::Uniform(range) if range.whole => {
            (range.low + (unit * (range.high - range.low + 1.0)).floor()).min(range.high).to_string()
        }
        Distribution::Uniform(range) => shown(range.low + unit * (range.high - range.low), range),
        Distribution::LogUniform(range) => {
            let (low, high) = (range.low.ln(), range.high.ln());
            let value = (low + unit * (high - low)).exp();
            match range.whole {
                true => value.round().clamp(range.low, range.high).to_string(),
                false => shown(value, range),
            }
        }
        Distribution::Choice(values) => {
            values[((unit * values.len() as f64) as usize).min(values.len() - 1)].clone()
        }
    }
}

/// Four significant digits, as a TOML number within the range.
fn shown(value: f64, range: &Range) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    let value = rounded.clamp(range.low, range.high);
    let plain = value == 0.0 || (1e-3..1e6).contains(&value.abs());
    if plain { format!("{value:?}") } else { format!("{value:e}") }
}

/// 64 bits that are the same for the same arguments.
fn random(seed: u64, key: &str, at: usize) -> u64 {
    let digest = Sha256::digest(format!("{seed}/{at}/{key}"));
    digest.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// Names of the children and of their folders: a number, and the values.
pub fn names(points: &[Point]) -> Vec<String> {
    let width = points.len().to_string().len().max(2);
    points.iter().zip(1..).map(|(point, number)| format!("{number:0width$}_{}", words(point))).collect()
}

/// `lr-0.001_seed-2`, of characters that names of runs may have.
fn words(point: &Point) -> String {
    let word = |(key, value): &(String, String)| {
        let last = key.rsplit('.').next().unwrap_or(key);
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
        let value: String = value.chars().filter(|c| !"\"' ".contains(*c)).map(plain).collect();
        let last: String = last.chars().map(|c| if c == '_' { c } else { plain(c) }).collect();
        format!("{last}-{}", value.trim_matches('-'))
    };
    let all = point.iter().map(word).collect::<Vec<_>>().join("_");
    let cut: String = all.chars().take(NAME).collect();
    cut.trim_end_matches(['.', '-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::plan::sweep::{Grid, Space};
    use proptest::prelude::*;

    fn config(grid: &[(&str, &[&str])], sample: &[(&str, &str)], random: Option<u64>) -> SweepConfig {
        let values = |list: &[&str]| list.iter().map(|value| (*value).to_owned()).collect();
        let grid: Vec<_> = grid.iter().map(|(key, list)| ((*key).to_owned(), values(list))).collect();
        let of = |text: &str| Distribution::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let sample: Vec<_> = sample.iter().map(|(key, text)| ((*key).to_owned(), of(text))).collect();
        SweepConfig {
            grid: Some(Grid(grid)).filter(|grid| !grid.0.is_empty()),
            sample: Some(Space(sample)).filter(|space| !space.0.is_empty()),
            random,
            ..SweepConfig::default()
        }
    }

    fn sets(config: &SweepConfig) -> Vec<String> {
        let points = points(config).unwrap_or_else(|e| panic!("{e}"));
        let set = |point: &Point| {
            point.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        points.iter().map(set).collect()
    }

    #[test]
    fn a_grid_has_every_combination_and_its_last_key_changes_fastest() {
        let grid = config(&[("optimizer.lr", &["1e-3", "3e-4"]), ("seed", &["1", "2", "3"])], &[], None);
        let expected = ["1e-3 1", "1e-3 2", "1e-3 3", "3e-4 1", "3e-4 2", "3e-4 3"].map(|it| {
            let (lr, seed) = it.split_once(' ').expect("two");
            format!("optimizer.lr={lr} seed={seed}")
        });
        assert_eq!(sets(&grid), expected);
        let repeated = config(&[("seed", &["1", "2", "1"])], &[], None);
        assert_eq!(sets(&repeated), ["seed=1", "seed=2"]);
        let the_same = config(
            &[("optimizer.lr", &["1e-3", "0.001", "1e-2"]), ("loss.name", &["a", "\"a\""])],
            &[],
            None,
        );
        assert_eq!(sets(&the_same), ["optimizer.lr=1e-3 loss.name=a", "optimizer.lr=1e-2 loss.name=a"]);
    }

    #[test]
    fn some_of_a_grid_are_chosen_in_its_order() {
        let values: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let some = sets(&config(&[("seed", &values)], &[], Some(20)));
        assert_eq!(some.len(), 20);
        let number = |set: &String| set.trim_start_matches("seed=").parse::<u32>().expect("a number");
        assert!(some.iter().map(number).is_sorted());
        let other = SweepConfig { seed: 1, ..config(&[("seed", &values)], &[], Some(20)) };
        assert_ne!(sets(&other), some);
        // Also of more combinations than a sweep may have runs.
        let of_many =
            config(&[("seed", &values), ("epochs", &values), ("batch_size", &values)], &[], Some(7));
        assert_eq!(sets(&of_many).len(), 7);
    }

    /// A seed stands for these numbers: they must not change.
    #[test]
    fn each_sample_is_run_with_every_combination_and_depends_on_seed_key_and_number_alone() {
        let sample = [("optimizer.lr", "log-uniform(1e-4, 1e-1)")];
        let two = sets(&config(&[("seed", &["1", "2"])], &sample, Some(2)));
        assert_eq!(two.len(), 4);
        let lr = |set: &str| set.split("optimizer.lr=").nth(1).expect("it is set").to_owned();
        assert!(lr(&two[0]) == lr(&two[1]) && lr(&two[2]) == lr(&two[3]) && lr(&two[0]) != lr(&two[2]));
        let more = [("optimizer.lr", "log-uniform(1e-4, 1e-1)"), ("batch_size", "uniform(4, 16)")];
        let more = sets(&config(&[], &more, Some(5)));
        let first = |set: &String| set.split(' ').next().map(str::to_owned);
        assert_eq!(first(&more[0]), Some(format!("optimizer.lr={}", lr(&two[0]))));
        assert_eq!(first(&more[1]), Some(format!("optimizer.lr={}", lr(&two[2]))));
    }

    #[test]
    fn what_makes_no_sweep_is_refused() {
        let refusal = |config: SweepConfig| points(&config).expect_err("it is refused").message;
        assert!(refusal(config(&[], &[], None)).contains("varies nothing"));
        assert!(refusal(config(&[("name", &["a"])], &[], None)).contains("can't vary `name`"));
        assert!(refusal(config(&[("sweep.seed", &["1"])], &[], None)).contains("can't vary `sweep.seed`"));
        assert!(
            refusal(config(&[("seed", &["1"])], &[("seed", "uniform(1, 2)")], Some(1))).contains("twice")
        );
        assert!(refusal(config(&[], &[("seed", "uniform(1, 2)")], None)).contains("how many"));
        let many: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refusal(config(&[("seed", &many), ("epochs", &many)], &[], None)).contains("at most"));
        let both =
            SweepConfig { min_epochs: Some(1), min_steps: Some(1), ..config(&[("seed", &["1"])], &[], None) };
        assert!(refusal(both).contains("not both"));
    }

    #[test]
    fn names_are_those_of_runs_and_differ() {
        let point = |value: &str| vec![("optimizer.lr".to_owned(), value.to_owned())];
        assert_eq!(names(&[point("1e-3"), point("\"a b/c\"")]), ["01_lr-1e-3", "02_lr-ab-c"]);
        let long =
            vec![("model.hidden".to_owned(), "[128, 128, 128, 128, 128, 128, 128, 128, 128]".to_owned())];
        let name = &names(&[long])[0];
        assert!(
            name.len() <= NAME + 3 && name.starts_with("01_hidden-128-128") && !name.ends_with('-'),
            "{name}"
        );
    }

    proptest! {
        #[test]
        fn samples_are_within_their_range(seed: u64, at in 0usize..1000, low in 1e-6f64..1e3, width in 1e-6f64..1e4) {
            let range = Range { low, high: low + width, whole: false };
            for of in [Distribution::Uniform(range.clone()), Distribution::LogUniform(range)] {
                let value: f64 = draw(&of, seed, "k", at).parse().expect("a number");
                prop_assert!((low..=low + width).contains(&value), "{of}: {value}");
                let text = format!("v = {}", draw(&of, seed, "k", at));
                prop_assert!(text.parse::<toml::Table>().is_ok(), "{}", text);
            }
        }

        #[test]
        fn whole_samples_are_integers_within_their_bounds(seed: u64, at in 0usize..1000, low in 1i64..100, width in 1i64..1000) {
            let range = Range { low: low as f64, high: (low + width) as f64, whole: true };
            for of in [Distribution::Uniform(range.clone()), Distribution::LogUniform(range)] {
                let value: i64 = draw(&of, seed, "k", at).parse().expect("an integer");
                prop_assert!((low..=low + width).contains(&value), "{of}: {value}");
            }
        }
    }

    #[test]
    fn every_integer_is_drawn_about_as_often() {
        let of = Distribution::parse("uniform(1, 4)").expect("it is one");
        let mut counts = [0; 4];
        for at in 0..4000 {
            counts[draw(&of, 7, "k", at).parse::<usize>().expect("an integer") - 1] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
