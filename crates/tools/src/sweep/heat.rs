//! The heat map of a sweep's page: the metric by the values of two keys, as a table whose cells link to the reports of runs.

use super::outcome::keys;
use super::page::value;
use super::scale::{Scale, ordered};
use super::schedule::ChildState;
use super::state::{File, Record};
use base::display;
use base::numbers::metric_words;
use record::report::{breakable, escape};
use std::fmt::Write;

/// Above this number of columns, cells are small and show their value as a tip.
const MOST: usize = 12;
/// Characters of a value that heads a row or a column.
const LONGEST: usize = 18;

/// A key and its values, in their order.
struct Key<'a> {
    name: &'a str,
    values: Vec<&'a str>,
}

/// Writes the heat map, if at least two keys have several values and most of their combinations were run.
pub fn write(out: &mut String, file: &File, ranking: &[usize]) {
    let Some((rows, columns, others)) = axes(file, ranking) else { return };
    // The runs from the best to the worst, so that the first of a cell is its best.
    let in_cell = |row: &str, column: &str| {
        let is = |record: &Record, key: &Key<'_>, value: &str| {
            record.set.get(key.name).is_some_and(|v| v == value)
        };
        ranking.iter().copied().find(|at| {
            let record = &file.children[*at];
            is(record, &rows, row) && is(record, &columns, column)
        })
    };
    let cells: Vec<Vec<Option<usize>>> = rows
        .values
        .iter()
        .map(|row| columns.values.iter().map(|column| in_cell(row, column)).collect())
        .collect();
    let shown: Vec<&Record> = cells.iter().flatten().flatten().map(|at| &file.children[*at]).collect();
    let values: Vec<Option<f64>> = shown.iter().map(|record| value(record)).collect();
    // Random samples leave most of the table empty.
    if 2 * shown.len() < rows.values.len() * columns.values.len() || values.iter().flatten().next().is_none()
    {
        return;
    }
    let (scale, far) = Scale::of_most(&values, file.prefers_larger);
    let map = Map { file, scale, far, best: ranking.first().copied(), small: columns.values.len() > MOST };
    out.push_str("<section class=\"plot\"><div class=\"charts\"><figure>");
    map.caption(out, &rows, &columns, &shown);
    if !others.is_empty() {
        let _ = write!(
            out,
            "<p>Each cell has the best of its runs, which differ in {}.</p>",
            escape(&others.join(", "))
        );
    }
    map.table(out, &rows, &columns, &cells);
    out.push_str("</figure></div></section>");
}

/// The keys of rows and columns, and the other keys that have several values. Of more than two, those are chosen whose values make the greatest
/// difference, seeds last; the one with more values has the rows, because a page is longer than wide.
fn axes<'a>(file: &'a File, ranking: &[usize]) -> Option<(Key<'a>, Key<'a>, Vec<&'a str>)> {
    let key = |name: &'a str| {
        let values =
            ordered(file.children.iter().filter_map(|record| record.set.get(name).map(String::as_str)));
        Key { name, values }
    };
    let mut all: Vec<Key<'a>> = keys(file).into_iter().map(key).filter(|key| key.values.len() > 1).collect();
    if all.len() > 2 {
        // Runs of several seeds are repetitions.
        let is_seed = |key: &Key<'_>| key.name.rsplit('.').next() == Some("seed");
        let rank = |key: &Key<'_>| if is_seed(key) { -1.0 } else { difference(file, ranking, key) };
        all.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    }
    let others = all.iter().skip(2).map(|key| key.name).collect();
    let mut two = all.into_iter();
    let (first, second) = (two.next()?, two.next()?);
    Some(match second.values.len() > first.values.len() {
        true => (second, first, others),
        false => (first, second, others),
    })
}

/// The greatest difference between the mean places, in the ranking of the measured runs, of a key's values.
fn difference(file: &File, ranking: &[usize], key: &Key<'_>) -> f64 {
    let measured = || ranking.iter().map(|at| &file.children[*at]).filter(|record| value(record).is_some());
    let mean = |wanted: &&str| {
        let of_value = |record: &Record| record.set.get(key.name).is_some_and(|v| v == wanted);
        let places =
            measured().enumerate().filter(|(_, record)| of_value(record)).map(|(place, _)| place as f64);
        let (sum, count) = places.fold((0.0, 0.0), |(sum, count), place| (sum + place, count + 1.0));
        (count > 0.0).then_some(sum / count)
    };
    let means: Vec<f64> = key.values.iter().filter_map(mean).collect();
    means.iter().copied().fold(0.0, f64::max) - means.iter().copied().fold(f64::INFINITY, f64::min)
}

/// A value as the head of a row or a column.
fn head(value: &str) -> String {
    escape(&display::cut_middle(value, LONGEST))
}

/// The whole value, where the head has a part of it.
fn tip(value: &str) -> String {
    match value.chars().count() > LONGEST {
        true => format!(" title=\"{}\"", escape(value)),
        false => String::new(),
    }
}

struct Map<'a> {
    file: &'a File,
    scale: Scale,
    /// Runs are worse than the scale's end.
    far: bool,
    /// The best run.
    best: Option<usize>,
    small: bool,
}

impl Map<'_> {
    fn words(&self, value: f64) -> String {
        metric_words(&self.file.metric, value)
    }

    /// The title and the legend.
    fn caption(&self, out: &mut String, rows: &Key<'_>, columns: &Key<'_>, shown: &[&Record]) {
        let (low, high) = (self.words(self.scale.low), self.words(self.scale.high));
        let (worst, best) = if self.file.prefers_larger { (low, high) } else { (high, low) };
        let worse = if self.far { " or worse" } else { "" };
        let log = if self.scale.log { ", by the logarithm" } else { "" };
        let title = format!("{} by {} and {}", self.file.metric, rows.name, columns.name);
        let _ = write!(
            out,
            "<figcaption><span class=\"title\">{}</span><span class=\"scale\">{worst}{worse}<i></i>{best}{log}</span>\
             <span class=\"key heat-best\">best run</span>",
            escape(&title)
        );
        for state in [ChildState::Dropped, ChildState::Failed] {
            if shown.iter().any(|record| record.state == state) {
                let _ = write!(out, "<span class=\"key heat-{0}\">{0}</span>", state.word());
            }
        }
        out.push_str("</figcaption>");
    }

    fn table(&self, out: &mut String, rows: &Key<'_>, columns: &Key<'_>, cells: &[Vec<Option<usize>>]) {
        let small = if self.small { " small" } else { "" };
        let _ = write!(
            out,
            "<div class=\"wide\" tabindex=\"0\"><table class=\"heat{small}\"><thead><tr><th rowspan=\"2\">{}</th><th colspan=\"{}\">{}</th></tr><tr>",
            breakable(rows.name),
            columns.values.len(),
            breakable(columns.name)
        );
        for value in &columns.values {
            let _ = write!(out, "<th scope=\"col\"{}><span>{}</span></th>", tip(value), head(value));
        }
        out.push_str("</tr></thead><tbody>");
        for (value, cells) in rows.values.iter().zip(cells) {
            let _ = write!(out, "<tr><th scope=\"row\"{}>{}</th>", tip(value), head(value));
            cells.iter().for_each(|cell| self.cell(out, *cell));
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
    }

    fn cell(&self, out: &mut String, at: Option<usize>) {
        let Some(at) = at else { return out.push_str("<td class=\"none\">–</td>") };
        let record = &self.file.children[at];
        let (value, state) = (value(record), record.state.word());
        let best = value.is_some() && Some(at) == self.best;
        let mut classes = Vec::from_iter(best.then(|| "best".to_owned()));
        if record.state != ChildState::Done {
            classes.push(format!("heat-{state}"));
        }
        let class =
            if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
        let share = value.map(|value| self.scale.place(value));
        let share = share.map(|place| if self.file.prefers_larger { place } else { 1.0 - place });
        let style = share.map_or_else(String::new, |share| format!(" style=\"--share:{share:.3}\""));
        let (text, below) = match (value, record.state) {
            (Some(value), ChildState::Done) => (self.words(value), ""),
            (Some(value), _) => (self.words(value), state),
            (None, ChildState::Done) => ("not measured".to_owned(), ""),
            (None, _) => (state.to_owned(), ""),
        };
        let gap = if below.is_empty() { "" } else { ", " };
        let tip = escape(&format!("{}: {text}{gap}{below}", record.name));
        // A folder's name has no characters that an address would write otherwise.
        let _ = write!(
            out,
            "<td{class}{style}><a href=\"{}/report.html\" title=\"{tip}\"><span>{}<small>{below}</small></span></a></td>",
            escape(&record.name),
            escape(&text)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::state::tests::file;
    use std::collections::BTreeMap;

    /// A sweep over these keys; the value of a run with the numbers `i` of their values is `of(i)`.
    fn swept(
        keys: &[(&str, &[&str])],
        of: impl Fn(&[usize]) -> (ChildState, Option<f64>),
    ) -> (File, Vec<usize>) {
        let runs: usize = keys.iter().map(|(_, values)| values.len()).product();
        let mut file = file(&vec![("0", ChildState::Done, None); runs]);
        for (number, record) in file.children.iter_mut().enumerate() {
            let mut rest = number;
            let mut at = vec![0; keys.len()];
            for (place, (_, values)) in keys.iter().enumerate().rev() {
                at[place] = rest % values.len();
                rest /= values.len();
            }
            let set =
                keys.iter().zip(&at).map(|((key, values), at)| ((*key).to_owned(), values[*at].to_owned()));
            record.set = set.collect::<BTreeMap<_, _>>();
            record.name = format!("{number:02}");
            let (state, value) = of(&at);
            (record.state, record.values) = (state, vec![value]);
        }
        let mut ranking: Vec<usize> = (0..runs).collect();
        let place = |at: &usize| value(&file.children[*at]).unwrap_or(f64::INFINITY);
        ranking.sort_by(|a, b| place(a).total_cmp(&place(b)));
        (file, ranking)
    }

    fn drawn(keys: &[(&str, &[&str])], of: impl Fn(&[usize]) -> (ChildState, Option<f64>)) -> String {
        let (file, ranking) = swept(keys, of);
        let mut out = String::new();
        write(&mut out, &file, &ranking);
        out
    }

    fn done(value: f64) -> (ChildState, Option<f64>) {
        (ChildState::Done, Some(value))
    }

    #[test]
    fn a_grid_of_two_keys_is_a_table_that_marks_the_best_and_tells_failed_and_dropped_runs_apart() {
        let html = drawn(&[("lr", &["0.1", "0.01", "1"]), ("hidden", &["[64]", "[8]"])], |at| match at {
            [0, 0] => done(0.25),
            [1, 0] => (ChildState::Failed, None),
            [2, 0] => (ChildState::Dropped, Some(0.5)),
            [_, column] => done(0.75 + *column as f64 / 4.0),
            _ => unreachable!(),
        });
        let rows: Vec<&str> = html.split("<tr>").skip(3).collect();
        assert!(html.contains("val.loss by lr and hidden"), "{html}");
        assert!(html.contains("<span class=\"scale\">1.000<i></i>0.2500</span>"), "{html}");
        // Values are in their order, not in that of the runs.
        assert!(html.contains("<span>[8]</span></th><th scope=\"col\"><span>[64]</span></th>"), "{html}");
        assert!(rows[0].starts_with("<th scope=\"row\">0.01</th>"), "{rows:?}");
        assert!(
            rows[0].contains(
                "<td class=\"heat-failed\"><a href=\"02/report.html\" title=\"02: failed\"><span>failed<"
            ),
            "{rows:?}"
        );
        assert!(
            rows[1].contains(
                "<td class=\"best\" style=\"--share:1.000\"><a href=\"00/report.html\" title=\"00: 0.2500\">"
            ),
            "{rows:?}"
        );
        assert!(rows[1].contains("<td style=\"--share:0.000\">"), "{rows:?}");
        assert!(rows[2].contains("<td class=\"heat-dropped\" style=\"--share:0.667\">"), "{rows:?}");
        assert_eq!(html.matches("class=\"key heat-failed\"").count(), 1);
        assert!(!html.contains("<p>"), "{html}");
    }

    #[test]
    fn long_values_have_different_heads_and_their_whole_as_a_tip() {
        let (one, two) = ("/data/a-long-folder/one.csv", "/data/a-long-folder/two.csv");
        let html = drawn(&[("path", &[one, two]), ("lr", &["1", "2"])], |at| done(at[0] as f64));
        for (value, cut) in [(one, "/data/a-…r/one.csv"), (two, "/data/a-…r/two.csv")] {
            assert!(html.contains(&format!(" title=\"{value}\"><span>{cut}</span></th>")), "{html}");
        }
        assert!(html.contains("<th scope=\"row\">1</th>"), "{html}");
    }

    #[test]
    fn a_diverged_run_leaves_the_others_their_colours() {
        let html = drawn(&[("a", &["1", "2"]), ("b", &["1", "2", "3"])], |at| match at {
            [1, 2] => done(1e30),
            _ => done(1.0 + (3 * at[0] + at[1]) as f64),
        });
        assert!(html.contains("<span class=\"scale\">5.000 or worse<i></i>1.000</span>"), "{html}");
        for (name, share) in [("00", "1.000"), ("02", "0.500"), ("04", "0.000"), ("05", "0.000")] {
            let cell = format!("--share:{share}\"><a href=\"{name}/report");
            assert!(html.contains(&cell), "{cell} {html}");
        }
    }

    #[test]
    fn of_three_keys_those_that_matter_most_are_shown_with_the_best_run_of_each_cell() {
        let html =
            drawn(&[("batch_size", &["8", "16"]), ("lr", &["1", "2", "3"]), ("seed", &["1", "2"])], |at| {
                done((10 * at[1] + 3 * at[0] + at[2] + 1) as f64)
            });
        assert!(html.contains("val.loss by lr and batch_size"), "{html}");
        assert!(html.contains("which differ in seed"), "{html}");
        assert_eq!(html.matches("<td").count(), 6);
        // Of the seeds 1 and 2, the former.
        assert!(html.contains("title=\"00: 1.000\"") && !html.contains("title=\"01:"), "{html}");
    }

    #[test]
    fn samples_one_key_and_nothing_measured_have_no_heat_map() {
        assert_eq!(drawn(&[("lr", &["1", "2", "3"])], |at| done(at[0] as f64)), "");
        assert_eq!(drawn(&[("lr", &["1", "2"]), ("seed", &["7"])], |at| done(at[0] as f64)), "");
        assert_eq!(drawn(&[("a", &["1", "2"]), ("b", &["1", "2"])], |_| (ChildState::Failed, None)), "");
        let (mut file, ranking) = swept(&[("a", &["1", "2", "3"]), ("b", &["1"])], |at| done(at[0] as f64));
        for (number, record) in file.children.iter_mut().enumerate() {
            record.set.insert("b".to_owned(), number.to_string());
        }
        let mut out = String::new();
        write(&mut out, &file, &ranking);
        assert_eq!(out, "", "3 of 9 cells");
    }

    #[test]
    fn a_large_grid_has_small_cells_and_its_longer_side_below() {
        let numbers: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let values: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let html = drawn(&[("a", &values[..20]), ("b", &values)], |at| done((at[0] + at[1]) as f64));
        assert!(html.contains("class=\"heat small\"") && html.contains("val.loss by b and a"), "{html}");
        assert_eq!(html.matches("<tr>").count(), 2 + 30);
    }
}
