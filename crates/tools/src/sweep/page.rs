//! `sweep.html`: a self-contained page in the style of reports, with a heat map (`heat`), parallel coordinates (an axis for each key that the sweep
//! varies, and one for the metric; a line for each run) and the table of runs. It has no script.

use super::heat;
use super::outcome::{keys, word};
use super::scale::{Scale, number, ordered};
use super::state::{File, Record};
use base::display;
use base::numbers::metric_words;
use record::report::{Cell, Wide, escape, page};
use std::fmt::Write;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 420.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 386.0;
const SIDE: f64 = 90.0;
/// Below this width the plot is scrolled, because its text would not be readable.
const NARROWEST: f64 = 760.0;
/// Least distance of two values that are written beside an axis.
const LINE: f64 = 17.0;

/// The page; `ranking` has the children from the best to the worst, and `warnings` say why their values do not compare.
pub fn render(file: &File, ranking: &[usize], warnings: &[String]) -> String {
    let runs = display::count(file.children.len(), "run");
    let better = if file.prefers_larger { "larger is better" } else { "smaller is better" };
    let mut body = format!(
        "<header><h1>sweep of {}</h1><p>{runs}, ranked by {} ({better})</p>",
        escape(&file.spec),
        escape(&file.metric)
    );
    warnings.iter().for_each(|warning| {
        let _ = write!(body, "<p>Warning: {}.</p>", escape(warning));
    });
    body.push_str("</header>");
    heat::write(&mut body, file, ranking);
    coordinates(&mut body, file, ranking);
    table(&mut body, file, ranking);
    page(&format!("sweep of {}", file.spec), &body)
}

/// The positions of the values of a key, or of the metric, on an axis.
struct Axis<'a> {
    title: &'a str,
    /// The place of each child, from 0 (bottom) to 1; `None` without a value.
    places: Vec<Option<f64>>,
    ticks: Vec<(f64, String)>,
}

impl<'a> Axis<'a> {
    /// Numbers by their size, words in their order.
    fn of_texts(title: &'a str, texts: &[Option<&'a str>]) -> Self {
        let values = ordered(texts.iter().copied().flatten());
        if values.iter().all(|text| number(text).is_some()) {
            let numbers: Vec<Option<f64>> = texts.iter().map(|text| text.and_then(number)).collect();
            let typed = |value: f64| numbers.iter().position(|number| *number == Some(value));
            let text = |value: f64| typed(value).and_then(|at| texts[at]).unwrap_or_default().to_owned();
            return Self::of_numbers(title, &numbers, &text);
        }
        let place = |at: usize| if values.len() > 1 { at as f64 / (values.len() - 1) as f64 } else { 0.5 };
        let places =
            texts.iter().map(|text| values.iter().position(|word| Some(*word) == *text).map(place)).collect();
        let ticks = values.iter().enumerate().map(|(at, word)| (place(at), (*word).to_owned())).collect();
        Self { title, places, ticks: apart(ticks) }
    }

    fn of_numbers(title: &'a str, numbers: &[Option<f64>], text: &dyn Fn(f64) -> String) -> Self {
        let scale = Scale::new(numbers);
        let mut distinct: Vec<f64> = numbers.iter().copied().flatten().filter(|x| x.is_finite()).collect();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        Self {
            title,
            places: numbers
                .iter()
                .map(|number| number.filter(|x| x.is_finite()).map(|x| scale.place(x)))
                .collect(),
            ticks: apart(distinct.into_iter().map(|x| (scale.place(x), text(x))).collect()),
        }
    }
}

/// The ticks that are legible, from ticks in the order of their places: the first, the last, and those between that have space.
fn apart(ticks: Vec<(f64, String)>) -> Vec<(f64, String)> {
    let Some(last) = ticks.last().cloned() else { return ticks };
    let far = |one: f64, other: f64| y(one) - y(other) >= LINE;
    let mut kept: Vec<(f64, String)> = Vec::new();
    for tick in ticks {
        let first = kept.is_empty();
        let space = kept.last().is_none_or(|before| far(before.0, tick.0)) && far(tick.0, last.0);
        if first || space || tick == last {
            kept.push(tick);
        }
    }
    kept
}

/// The best value of the metric so far.
pub(super) fn value(record: &Record) -> Option<f64> {
    record.values.last().copied().flatten()
}

fn coordinates(out: &mut String, file: &File, ranking: &[usize]) {
    let keys = keys(file);
    let mut axes: Vec<Axis<'_>> = keys
        .iter()
        .map(|key| {
            let texts: Vec<Option<&str>> =
                file.children.iter().map(|record| record.set.get(*key).map(String::as_str)).collect();
            Axis::of_texts(key, &texts)
        })
        .collect();
    let measured: Vec<Option<f64>> = file.children.iter().map(value).collect();
    if measured.iter().all(Option::is_none) {
        out.push_str("<section><p>No run has a value of the metric yet.</p></section>");
        return;
    }
    axes.push(Axis::of_numbers(&file.metric, &measured, &|value| metric_words(&file.metric, value)));
    let step = (WIDTH - 2.0 * SIDE) / (axes.len() - 1).max(1) as f64;
    let _ = write!(
        out,
        "<section class=\"plot\"><div class=\"charts\"><figure><figcaption><span class=\"title\">Runs by their values</span>\
         <span class=\"key s1\">best</span><span class=\"key s0\">others, the better the stronger</span></figcaption>\
         <div class=\"scrolled\" tabindex=\"0\"><svg style=\"min-width:{NARROWEST}px\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"parallel coordinates of {} runs\">",
        file.children.len()
    );
    let place = AxisLayout { step, axes: &axes };
    lines(out, file, ranking, &place);
    place.draw(out);
    out.push_str("</svg></div></figure></div></section>");
}

/// The axes beside each other.
struct AxisLayout<'a> {
    /// Between two axes.
    step: f64,
    axes: &'a [Axis<'a>],
}

/// The height of a place on an axis.
fn y(place: f64) -> f64 {
    BOTTOM - place * (BOTTOM - TOP)
}

impl AxisLayout<'_> {
    fn x(&self, axis: usize) -> f64 {
        SIDE + axis as f64 * self.step
    }

    /// The axes with their values.
    fn draw(&self, out: &mut String) {
        for (axis, of) in self.axes.iter().enumerate() {
            let _ = write!(
                out,
                "<path class=\"axis\" d=\"M{0:.1} {TOP}V{BOTTOM}\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
                self.x(axis),
                TOP - 20.0,
                escape(&display::cut_middle(of.title, 28))
            );
            for (place, text) in &of.ticks {
                let _ = write!(
                    out,
                    "<text class=\"over\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    self.x(axis) + 6.0,
                    y(*place) + 4.0,
                    escape(&display::cut_middle(text, 14))
                );
            }
        }
    }
}

/// A line for each run that has a value.
fn lines(out: &mut String, file: &File, ranking: &[usize], place: &AxisLayout<'_>) {
    // The best above all others.
    let ranked: Vec<usize> =
        ranking.iter().copied().filter(|at| value(&file.children[*at]).is_some()).collect();
    for (rank, at) in ranked.iter().enumerate().rev() {
        let points: Vec<String> = place
            .axes
            .iter()
            .enumerate()
            .filter_map(|(axis, of)| Some(format!("{:.1} {:.1}", place.x(axis), y(of.places[*at]?))))
            .collect();
        let share = 1.0 - rank as f64 / ranked.len() as f64;
        let (class, opacity) =
            if rank == 0 { ("line s1", 1.0) } else { ("line s0", 0.12 + 0.7 * share * share) };
        let record = &file.children[*at];
        let _ = write!(
            out,
            "<path class=\"{class}\" stroke-opacity=\"{opacity:.2}\" d=\"M{}\"><title>{}: {}</title></path>",
            points.join("L"),
            escape(&record.name),
            value(record).map(|value| metric_words(&file.metric, value)).unwrap_or_default()
        );
    }
}

fn table(out: &mut String, file: &File, ranking: &[usize]) {
    let keys = keys(file);
    let mut table = Wide::default();
    table.column("run");
    [file.metric.as_str()].iter().chain(&keys).chain(&["state"]).for_each(|head| table.column(head));
    for (place, at) in ranking.iter().enumerate() {
        let record = &file.children[*at];
        let shown = value(record).map(|value| metric_words(&file.metric, value)).unwrap_or_default();
        // A folder's name has no characters that an address would write otherwise.
        let link = format!("<a href=\"{0}/report.html\">{0}</a>", escape(&record.name));
        let mut row = vec![Cell::html(link, record.name.chars().count()), Cell::text(&shown)];
        row.extend(keys.iter().map(|key| Cell::text(record.set.get(*key).map_or("", String::as_str))));
        row.push(Cell::text(&word(record)));
        table.rows.push((if place == 0 && value(record).is_some() { "best" } else { "" }, row));
    }
    out.push_str("<section><h2>Runs</h2>");
    table.write(out);
    out.push_str("</section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::schedule::ChildState;
    use crate::sweep::state::tests::file;

    #[test]
    fn every_measured_run_is_a_line_and_every_run_a_row() {
        let mut file = file(&[
            ("1e-4", ChildState::Done, Some(0.5)),
            ("<b>", ChildState::Failed, None),
            ("0.1", ChildState::Done, Some(0.25)),
        ]);
        file.spec = "a&b.toml".to_owned();
        let page = render(&file, &[2, 0, 1], &["`a<b` differs".to_owned()]);
        assert!(page.contains("<p>Warning: `a&lt;b` differs.</p></header>"), "{page}");
        assert_eq!(page.matches("class=\"line").count(), 2);
        assert_eq!(page.matches("class=\"line s1\"").count(), 1);
        assert_eq!(page.matches("<tr").count(), 4);
        assert!(page.contains("a&amp;b.toml") && page.contains("&lt;b&gt;") && !page.contains("<b>"));
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
        let nothing =
            render(&super::super::state::tests::file(&[("1", ChildState::Waiting, None)]), &[0], &[]);
        assert!(!nothing.contains("Warning"), "{nothing}");
        assert!(nothing.contains("No run has a value"));
    }

    #[test]
    fn axes_are_of_numbers_of_logarithms_or_of_words() {
        let places = |texts: &[Option<&str>]| Axis::of_texts("k", texts).places;
        assert_eq!(
            places(&[Some("1"), Some("2"), Some("5"), None]),
            [Some(0.0), Some(0.25), Some(1.0), None]
        );
        let log = places(&[Some("1e-4"), Some("1e-3"), Some("1e-1")]);
        assert!((log[1].unwrap() - 1.0 / 3.0).abs() < 1e-12, "{log:?}");
        assert_eq!(places(&[Some("sgd"), Some("adam"), Some("sgd")]), [Some(1.0), Some(0.0), Some(1.0)]);
        assert_eq!(places(&[Some("3"), Some("3")]), [Some(0.5), Some(0.5)]);
    }

    #[test]
    fn values_beside_an_axis_do_not_overlap() {
        for form in [|i: u32| format!("{}e-6", 20 + i * i), |i: u32| format!("word {i:02}")] {
            let values: Vec<String> = (0..100).map(form).collect();
            let texts: Vec<Option<&str>> = values.iter().map(|value| Some(value.as_str())).collect();
            let ticks = Axis::of_texts("k", &texts).ticks;
            assert!(ticks.len() > 5 && ticks[0].0 == 0.0 && ticks[ticks.len() - 1].0 == 1.0, "{ticks:?}");
            assert!(ticks.windows(2).all(|two| y(two[0].0) - y(two[1].0) >= LINE), "{ticks:?}");
        }
        let small = Axis::of_texts("k", &[Some("2.894e-5"), Some("0.1"), Some("123456")]).ticks;
        assert_eq!(
            small.iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(),
            ["2.894e-5", "0.1", "123456"]
        );
    }
}
