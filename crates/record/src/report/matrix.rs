//! The confusion matrix of an evaluation, in letters that let it fit the width of the page.

use super::evaluations::shown;
use crate::evaluations::Classes;
use std::fmt::Write;

/// Longer names of classes are cut.
const LONGEST: usize = 24;
/// Names of columns up to this length are not turned.
const UPRIGHT: usize = 3;
/// The widths of a letter and of a cell's margins, in the size of letters.
const LETTER: f64 = 0.62;
const MARGINS: f64 = 0.9;
/// The least widths of a column, with a turned name.
const NARROWEST: f64 = 1.9;
/// Wider ones, in the size of letters, are only coloured where the page is narrow.
const DENSE: f64 = 46.0;

/// Rows are true classes, columns predicted ones. A cell is shaded by its share of the row.
pub(super) fn matrix(out: &mut String, classes: &Classes) {
    let Some(matrix) = &classes.matrix else { return };
    // The last column, outputs that are not a class, is shown only if it occurs.
    let known = classes.rows.len();
    let beyond = matrix.iter().any(|row| row.get(known).is_some_and(|n| *n > 0));
    let mut names: Vec<String> = classes.rows.iter().map(|row| shown(&row.class)).collect();
    names.extend(beyond.then(|| "no class".to_owned()));
    let longest = classes.rows.iter().map(|row| row.class.chars().count()).max().unwrap_or(0);
    let turned = beyond || longest > UPRIGHT;
    let width = width(matrix, names.len(), longest, turned);
    let _ = write!(
        out,
        "<h3>Confusion matrix</h3><p>Samples by their class (rows) and the predicted one (columns), shaded by the share of the row.</p>\
         <div class=\"fit\" style=\"--em:{width:.1}\"><div class=\"wide\" tabindex=\"0\"><table class=\"matrix{}\"><thead><tr{}><th></th>",
        if width > DENSE { " dense" } else { "" },
        if turned { " class=\"turned\"" } else { "" },
    );
    names.iter().for_each(|name| {
        let _ = write!(out, "<th scope=\"col\" title=\"{name}\"><span>{name}</span></th>");
    });
    out.push_str("</tr></thead><tbody>");
    for (row, (class, counts)) in classes.rows.iter().zip(matrix).enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{0}\">{0}</th>", names[row]);
        for (column, (count, predicted)) in counts.iter().zip(&names).enumerate() {
            let share = *count as f64 / class.support.max(1) as f64;
            let kind = if row == column { "right" } else { "wrong" };
            if *count == 0 {
                out.push_str("<td class=\"none\">0</td>");
                continue;
            }
            let _ = write!(
                out,
                "<td class=\"{kind}\" style=\"--share:{share:.3}\" title=\"{}, predicted {predicted}: {count}\">{count}</td>",
                names[row]
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></div>");
}

/// The width of the table, in the size of its letters.
fn width(matrix: &[Vec<u64>], columns: usize, longest: usize, turned: bool) -> f64 {
    let most = matrix.iter().flatten().max().copied().unwrap_or(0);
    let letters = |count: usize| count as f64 * LETTER + MARGINS;
    let head = if turned { 0.0 } else { letters(longest) };
    let column = letters(most.to_string().len()).max(head).max(NARROWEST + MARGINS);
    letters(longest.min(LONGEST)) + columns as f64 * column
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `count` classes, whose samples are all predicted correctly.
    fn page(count: usize, samples: i64, name: &str) -> String {
        let row = |class: usize| {
            let mut row = vec![0; count + 1];
            row[class] = samples;
            row
        };
        let rows: Vec<Vec<i64>> = (0..count).map(row).collect();
        let each = vec![samples; count];
        let names: Vec<String> = (0..count).map(|class| format!("{name}{class}")).collect();
        let classes = Classes::new([&each, &each, &each], Some(rows.iter().map(|row| &row[..])), &names);
        let mut out = String::new();
        matrix(&mut out, &classes);
        out
    }

    /// The size of letters in the widest page, 1132 px, in pixels.
    fn letters(page: &str) -> f64 {
        let width = page.split("--em:").nth(1).unwrap().split('"').next().unwrap();
        1128.0 / width.parse::<f64>().unwrap()
    }

    #[test]
    fn the_matrix_fits_at_every_number_of_classes() {
        for count in 2..=32 {
            for (samples, name) in [(9, ""), (1000, "a class with a rather long name "), (99_999, "ab")] {
                let page = page(count, samples, name);
                assert!(letters(&page) >= 7.0, "{count} classes with {samples} samples: {}", letters(&page));
                assert_eq!(page.matches("<th scope=\"col\"").count(), count);
            }
        }
        // Digits need not be turned, and few classes are legible everywhere.
        assert!(!page(10, 98, "").contains("turned") && !page(10, 98, "").contains("dense"));
        let many = page(30, 98, "loggerhead ");
        assert!(many.contains("<tr class=\"turned\">") && many.contains("class=\"matrix dense\""), "{many}");
        assert!(page(2, 5, "<a>").contains("title=\"&lt;a&gt;1, predicted &lt;a&gt;1: 5\">5</td>"));
    }
}
