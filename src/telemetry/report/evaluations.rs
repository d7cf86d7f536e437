//! What the best and the last evaluation found: confusion matrix, figures by class, the samples with the largest losses, generated texts.

use super::escape;
use super::records::Run;
use crate::show;
use crate::telemetry::evaluations::{
    ClassRow, Classes, EvaluationRecord, Figures, GeneratedText, WorstSample,
};
use crate::telemetry::metric_words;
use crate::telemetry::numbers::significant;
use std::fmt::Write;

pub(super) fn section(out: &mut String, run: &Run) {
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
    out.push_str(
        "<h3>Largest losses</h3><p>Samples of the validation split: class, and the predicted class with its probability.</p>\
         <ul class=\"samples\">",
    );
    for sample in samples {
        out.push_str("<li>");
        // Base64 as this program writes it: anything else in the file is not a picture.
        let is_base64 = |png: &str| png.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        if let Some(picture) = sample.picture.as_ref().filter(|picture| is_base64(&picture.png)) {
            let _ = write!(
                out,
                "<img src=\"data:image/png;base64,{}\" width=\"{}\" height=\"{}\" alt=\"sample {}\">",
                picture.png, picture.width, picture.height, sample.index
            );
        }
        let probability = match sample.probability.is_finite() {
            true => format!(" {:.1} %", 100.0 * sample.probability),
            false => String::new(),
        };
        let right = if sample.class == sample.predicted { " class=\"right\"" } else { "" };
        let _ = write!(
            out,
            "<b>{}</b><span{right}>{}{probability}</span><small>loss {}, sample {}</small></li>",
            shown(&sample.class),
            shown(&sample.predicted),
            significant(sample.loss),
            sample.index
        );
    }
    out.push_str("</ul>");
}

fn texts(out: &mut String, texts: &[GeneratedText]) {
    if texts.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Generated texts</h3><p>The model continues the first part, the beginning of a validation sample.</p>",
    );
    for GeneratedText { prompt, text, cut } in texts {
        let cut = if *cut { " <i>(its time was over)</i>" } else { "" };
        let _ = write!(out, "<blockquote><b>{}</b>{}{cut}</blockquote>", shown(prompt), shown(text));
    }
}

/// Text of users' data: escaped, without characters that no page may have or that change the order of others.
pub(super) fn shown(text: &str) -> String {
    let odd = |c: char| show::is_control(c) && c != '\n' && c != '\t';
    escape(&text.chars().map(|c| if odd(c) { '\u{fffd}' } else { c }).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::evaluations::RecordedPicture;
    use crate::telemetry::report::render;
    use crate::telemetry::report::tests::{epoch, run};

    fn record(step: u64, best: bool) -> EvaluationRecord {
        let matrix = [[8_i64, 2, 0], [1, 3, 0]];
        let classes = Classes::new(
            [&[10, 4], &[9, 5], &[8, 3]],
            Some(matrix.iter().map(|row| &row[..])),
            &["<cat>".to_owned(), "d&g".to_owned()],
        );
        let sample = |index, picture| WorstSample {
            index,
            class: "<cat>".into(),
            predicted: "d&g".into(),
            probability: 0.875,
            loss: 2.5,
            picture,
        };
        let picture = |png: &str| Some(RecordedPicture { width: 28, height: 20, png: png.into() });
        let worst = vec![sample(41, picture("AA+/=")), sample(7, None), sample(8, picture("\"onload=x"))];
        let text = GeneratedText { prompt: "a<b".into(), text: "c\n\u{202e}d\0".into(), cut: false };
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
            "<img src=\"data:image/png;base64,AA+/=\" width=\"28\" height=\"20\" alt=\"sample 41\">",
            "<b>&lt;cat&gt;</b><span>d&amp;g 87.5 %</span><small>loss 2.500, sample 7</small>",
            "<blockquote><b>a&lt;b</b>c\n\u{fffd}d\u{fffd}</blockquote>",
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
    fn pages_without_pictures_allow_none() {
        let mut run = run(vec![epoch(0, 10, 1.0)]);
        run.evaluations = vec![EvaluationRecord { worst: Vec::new(), ..record(10, false) }];
        assert!(!render(&run).contains("img-src"));
    }
}
