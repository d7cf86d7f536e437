//! What the best and the last evaluation found: confusion matrix, figures by class, the samples with the largest losses, generated texts.

use super::escape;
use super::records::RunRecords;
use crate::evaluations::{ClassRow, Classes, EvaluationRecord, Figures, GeneratedText, WorstSample};
use base::display;
use base::numbers::metric_words;
use base::numbers::significant;
use std::fmt::Write;

pub(super) fn section(out: &mut String, run: &RunRecords) {
    let Some(last) = run.evaluations.last() else { return };
    match run.evaluations.iter().rev().find(|one| one.best) {
        Some(best) if best.step != last.step => {
            evaluation(out, best, "Best evaluation");
            evaluation(out, last, "Last evaluation");
        }
        Some(best) => evaluation(out, best, "Best and last evaluation"),
        None => evaluation(out, last, "Last evaluation"),
    }
}

fn evaluation(out: &mut String, record: &EvaluationRecord, title: &str) {
    let _ = write!(out, "<section class=\"evaluation\"><h2>{title}</h2><p>epoch {}", record.epoch + 1);
    let _ = write!(out, ", step {}", record.step);
    if record.value.is_finite() {
        let _ = write!(out, ", {} {}", shown(&record.metric), metric_words(&record.metric, record.value));
    }
    out.push_str("</p>");
    if let Some(classes) = &record.classes {
        super::matrix::matrix(out, classes);
        confused(out, classes);
        figures(out, classes);
    }
    worst(out, &record.worst);
    texts(out, &record.texts);
    out.push_str("</section>");
}

fn confused(out: &mut String, classes: &Classes) {
    if classes.confused.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Most confused classes</h3><div class=\"wide tall\" tabindex=\"0\"><table><thead><tr><th>class</th>\
         <th>predicted</th><th>samples</th></tr></thead><tbody>",
    );
    for (class, predicted, count) in &classes.confused {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{count}</td></tr>",
            shown(class),
            shown(predicted)
        );
    }
    out.push_str("</tbody></table></div>");
}

/// Precision, recall and F1.
fn figures(out: &mut String, classes: &Classes) {
    let Classes { count, mean, rows, .. } = classes;
    out.push_str("<h3>By class</h3>");
    if rows.len() < *count {
        let _ = write!(out, "<p>Of {count} classes the {} with the smallest F1.</p>", rows.len());
    }
    out.push_str(
        "<div class=\"wide tall\" tabindex=\"0\"><table><thead><tr><th>class</th><th>precision</th><th>recall</th><th>F1</th>\
         <th>samples</th></tr></thead><tbody>",
    );
    let mut line = |name: &str, figures: Figures, support: String| {
        let cell = |value: Option<f64>| {
            value.map_or("<td>–</td>".to_owned(), |value| format!("<td>{:.2} %</td>", 100.0 * value))
        };
        let Figures { precision, recall, f1 } = figures;
        let cells = [precision, recall, f1].map(cell).concat();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>{cells}<td>{support}</td></tr>", shown(name));
    };
    rows.iter().for_each(|row: &ClassRow| line(&row.class, row.figures(), row.support.to_string()));
    line("mean of all classes", *mean, String::new());
    out.push_str("</tbody></table></div>");
}

/// Pictures are in the page itself; its policy loads no others.
fn worst(out: &mut String, samples: &[WorstSample]) {
    if samples.is_empty() {
        return;
    }
    let places: Vec<&str> = samples.iter().filter_map(|sample| sample.place.as_deref()).collect();
    let all = common(&places);
    let files = match (all.strip_suffix(", "), all.strip_suffix('/')) {
        (Some(file), _) => format!(" All are in {}.", shown(file)),
        (_, Some(folder)) => format!(" Files are in {}.", shown(folder)),
        _ => String::new(),
    };
    let rows = samples.iter().any(|sample| !sample.cells.is_empty() || sample.text.is_some());
    let _ = write!(
        out,
        "<h3>Largest losses</h3><p>Samples of the validation split: class, and the predicted class with its probability.{files}</p>\
         <ul class=\"samples{}\">",
        if rows { " rows" } else { "" }
    );
    samples.iter().for_each(|sample| worst_sample(out, sample, all));
    out.push_str("</ul>");
}

/// The file of all these places, with `, ` at its end, or their folder, with `/`; `""` without places.
fn common<'a>(places: &[&'a str]) -> &'a str {
    let Some(first) = places.first() else { return "" };
    let equal = |other: &&str| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let count = places.iter().map(equal).min().unwrap_or(0);
    let shared = first.char_indices().nth(count).map_or(*first, |(end, _)| &first[..end]);
    let upto = |mark: &str| shared.rfind(mark).map(|at| &first[..at + mark.len()]);
    // Also a folder may have `, ` in its name.
    let is_file = |file: &&str| places.iter().all(|place| !place[file.len()..].contains('/'));
    upto(", ").filter(is_file).or_else(|| upto("/")).unwrap_or_default()
}

/// `all` is what all places begin with.
fn worst_sample(out: &mut String, sample: &WorstSample, all: &str) {
    let name = match &sample.place {
        Some(place) => shown(place.strip_prefix(all).unwrap_or(place)),
        None => format!("sample {}", sample.index),
    };
    out.push_str("<li>");
    // Base64 as this program writes it: anything else in the file is not a picture.
    let is_base64 = |png: &str| png.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
    if let Some(picture) = sample.picture.as_ref().filter(|picture| is_base64(&picture.png)) {
        let _ = write!(
            out,
            "<img src=\"data:image/png;base64,{}\" width=\"{}\" height=\"{}\" alt=\"{name}\">",
            picture.png, picture.width, picture.height
        );
    }
    let probability = match sample.probability.is_finite() {
        true => format!(" {:.1} %", 100.0 * sample.probability),
        false => String::new(),
    };
    let right = if sample.class == sample.predicted { " class=\"right\"" } else { "" };
    let _ = write!(
        out,
        "<b>{}</b><span{right}>{}{probability}</span><small>loss {}, {name}</small>",
        shown(&sample.class),
        shown(&sample.predicted),
        significant(sample.loss)
    );
    if let Some(text) = &sample.text {
        let _ = write!(out, "<q>{}</q>", shown(text));
    }
    if !sample.cells.is_empty() {
        out.push_str("<dl>");
        for (column, cell) in &sample.cells {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", shown(column), shown(cell));
        }
        out.push_str("</dl>");
    }
    if sample.more_cells > 0 {
        let _ = write!(out, "<small>and {}</small>", display::count(sample.more_cells, "more column"));
    }
    out.push_str("</li>");
}

fn texts(out: &mut String, texts: &[GeneratedText]) {
    if texts.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Generated texts</h3><p>The model continues the first part, the beginning of a validation sample.</p>",
    );
    for GeneratedText { prompt, text, cut, place } in texts {
        let cut = if *cut { " <i>(its time was over)</i>" } else { "" };
        let place = place.as_ref().map_or(String::new(), |place| format!("<cite>{}</cite>", shown(place)));
        let _ = write!(out, "<blockquote>{place}<b>{}</b>{}{cut}</blockquote>", shown(prompt), shown(text));
    }
}

/// Text of users' data: escaped, without characters that no page may have or that change the order of others.
pub(super) fn shown(text: &str) -> String {
    let odd = |c: char| display::is_control(c) && c != '\n' && c != '\t';
    escape(&text.chars().map(|c| if odd(c) { '\u{fffd}' } else { c }).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluations::RecordedPicture;
    use crate::report::render;
    use crate::report::tests::{epoch, run};

    fn record(step: u64, best: bool) -> EvaluationRecord {
        let matrix = [[8_i64, 2, 0], [1, 3, 0]];
        let classes = Classes::new(
            [&[10, 4], &[9, 5], &[8, 3]],
            Some(matrix.iter().map(|row| &row[..])),
            &["<cat>".to_owned(), "d&g".to_owned()],
        );
        let sample = |index, picture, place: Option<&str>| WorstSample {
            index,
            class: "<cat>".into(),
            predicted: "d&g".into(),
            probability: 0.875,
            loss: 2.5,
            picture,
            place: place.map(str::to_owned),
            cells: Vec::new(),
            more_cells: 0,
            text: None,
        };
        let picture = |png: &str| Some(RecordedPicture { width: 28, height: 20, png: png.into() });
        let worst = vec![
            sample(41, picture("AA+/="), Some("/data/val/<cat>/1.png")),
            sample(7, None, None),
            WorstSample {
                cells: vec![("x<".into(), "0.5".into()), ("kind".into(), "a&b".into())],
                more_cells: 2,
                text: Some("<p>".into()),
                ..sample(8, picture("\"onload=x"), Some("/data/val/dog/2.csv, line 9"))
            },
        ];
        let text = GeneratedText {
            prompt: "a<b".into(),
            text: "c\n\u{202e}d\0".into(),
            cut: false,
            place: Some("/t.txt, line 3".into()),
        };
        EvaluationRecord {
            value: 0.5,
            metric: "val.accuracy".into(),
            best,
            classes: Some(classes),
            worst,
            texts: vec![text],
            ..EvaluationRecord::new(step, 1)
        }
    }

    #[test]
    fn the_page_shows_the_best_and_the_last_evaluation() {
        let mut run = run(vec![epoch(0, 10, 1.0), epoch(1, 20, 1.0)]);
        run.evaluations = vec![record(10, true), record(15, true), record(20, false)];
        let page = render(&run);
        for part in [
            "<h2>Best evaluation</h2><p>epoch 2, step 15, val.accuracy 50.0 %</p>",
            "<h2>Last evaluation</h2><p>epoch 2, step 20",
            "<td class=\"right\" style=\"--share:0.800\" title=\"&lt;cat&gt;, predicted &lt;cat&gt;: 8\">8</td>",
            "<td class=\"wrong\" style=\"--share:0.200\" title=\"&lt;cat&gt;, predicted d&amp;g: 2\">2</td>",
            "<tr><th scope=\"row\">&lt;cat&gt;</th><td>88.89 %</td><td>80.00 %</td><td>84.21 %</td><td>10</td></tr>",
            "<img src=\"data:image/png;base64,AA+/=\" width=\"28\" height=\"20\" alt=\"&lt;cat&gt;/1.png\">",
            "Files are in /data/val.</p><ul class=\"samples rows\">",
            "<b>&lt;cat&gt;</b><span>d&amp;g 87.5 %</span><small>loss 2.500, sample 7</small>",
            "<small>loss 2.500, dog/2.csv, line 9</small><q>&lt;p&gt;</q>\
             <dl><dt>x&lt;</dt><dd>0.5</dd><dt>kind</dt><dd>a&amp;b</dd></dl><small>and 2 more columns</small></li>",
            "<blockquote><cite>/t.txt, line 3</cite><b>a&lt;b</b>c\n\u{fffd}d\u{fffd}</blockquote>",
            "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline';",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        // One that is not a picture is left out, and no column is shown for predictions of no class.
        assert!(!page.contains("onload=x") && !page.contains("no class"));
        run.evaluations.truncate(1);
        let page = render(&run);
        assert!(page.contains("<h2>Best and last evaluation</h2>") && !page.contains("<h2>Last"));
        // A forged number of classes makes no columns.
        run.evaluations[0].classes.as_mut().expect("classes").count = usize::MAX;
        assert!(render(&run).contains("<h3>Confusion matrix</h3>"));
    }

    #[test]
    fn the_file_or_the_folder_of_all_samples_is_said_once() {
        assert_eq!(common(&[]), "");
        assert_eq!(common(&["/a/b/x.csv, line 1", "/a/b/x.csv, line 12"]), "/a/b/x.csv, ");
        assert_eq!(common(&["/a/b/x.csv, line 1", "/a/b/y.csv, line 1"]), "/a/b/");
        assert_eq!(common(&["/a/b, c/1.png", "/a/b, d/2.png"]), "/a/");
        assert_eq!(common(&["/a/b/é.png", "/a/bc/è.png"]), "/a/");
        assert_eq!(common(&["/a/é.png", "/a/è.png"]), "/a/");
        assert_eq!((common(&["a.png", "b.png"]), common(&["/a/b.png"])), ("", "/a/"));
    }

    #[test]
    fn pages_without_pictures_allow_none() {
        let mut run = run(vec![epoch(0, 10, 1.0)]);
        run.evaluations = vec![EvaluationRecord { worst: Vec::new(), ..record(10, false) }];
        assert!(!render(&run).contains("img-src"));
    }
}
