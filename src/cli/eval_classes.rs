//! The classes of `ddp-run eval --per-class`, as text and as JSON.

use base::display;
use record::evaluations::{Classes, Figures};
use serde_json::{Value, json};

/// All classes with their figures.
pub(super) fn json(classes: &Classes) -> Value {
    let mut all = json!(classes);
    for (row, class) in all["rows"].as_array_mut().into_iter().flatten().zip(&classes.rows) {
        let Figures { precision, recall, f1 } = class.figures();
        for (name, value) in [("precision", precision), ("recall", recall), ("f1", f1)] {
            row[name] = json!(value);
        }
    }
    all
}

/// A table of the classes, and the confusion matrix if there is one; of many classes the part that is shown.
pub(super) fn table(classes: &Classes) -> String {
    let classes = &classes.clone().shortened();
    let name = display::name;
    let width = classes.rows.iter().map(|row| name(&row.class).chars().count()).max().unwrap_or(0).max(5);
    let mut out = String::new();
    if classes.rows.len() < classes.count {
        out += &format!("of {} classes those with the smallest F1\n", classes.count);
    }
    out += &format!("  {:width$}  precision    recall        F1  samples\n", "class");
    let cell = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{:.2} %", 100.0 * value));
    let mut line = |name: &str, Figures { precision, recall, f1 }: Figures, samples: String| {
        let [precision, recall, f1] = [precision, recall, f1].map(cell);
        out += format!("  {name:width$}  {precision:>9}  {recall:>8}  {f1:>8}  {samples:>7}").trim_end();
        out.push('\n');
    };
    classes.rows.iter().for_each(|row| line(&name(&row.class), row.figures(), row.support.to_string()));
    line("mean", classes.mean, String::new());
    let Some(matrix) = &classes.matrix else {
        for (class, predicted, count) in &classes.confused {
            out += &format!("  {} predicted as {}: {count}\n", name(class), name(predicted));
        }
        return out;
    };
    // The last column, outputs that are not a class, only if it occurs.
    let beyond = matrix.iter().any(|row| row.last().is_some_and(|n| *n > 0));
    let columns = classes.count + usize::from(beyond);
    let cells = matrix.iter().flatten().map(|n| n.to_string().len()).max().unwrap_or(1);
    out += "confusion matrix: rows are classes, columns predictions\n";
    for (row, counts) in classes.rows.iter().zip(matrix) {
        let counts: Vec<String> = counts.iter().take(columns).map(|n| format!("{n:>cells$}")).collect();
        out += &format!("  {:width$}  {}\n", name(&row.class), counts.join(" "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_a_table_and_a_matrix() {
        let matrix = [[8_i64, 2, 0], [1, 13, 0]];
        let names = ["cat".to_owned(), "a\ndog".to_owned()];
        let rows = matrix.iter().map(|row| &row[..]);
        let of = Classes::new([&[10, 14], &[9, 15], &[8, 13]], Some(rows), &names);
        let expected = [
            "  class  precision    recall        F1  samples",
            "  cat      88.89 %   80.00 %   84.21 %       10",
            "  a·dog    86.67 %   92.86 %   89.66 %       14",
            "  mean     87.78 %   86.43 %   86.93 %",
            "confusion matrix: rows are classes, columns predictions",
            "  cat     8  2",
            "  a·dog   1 13",
            "",
        ];
        assert_eq!(table(&of), expected.join("\n"));
    }

    #[test]
    fn json_has_the_figures_of_each_class() {
        let rows = [[8_i64, 2, 0], [0, 0, 0]];
        let of = Classes::new([&[10, 0], &[8, 2], &[8, 0]], Some(rows.iter().map(|row| &row[..])), &[]);
        let all = json(&of);
        assert_eq!(all["rows"][0]["recall"], 0.8);
        assert_eq!(all["rows"][0]["predicted"], 8);
        assert_eq!((&all["rows"][1]["recall"], &all["rows"][1]["f1"]), (&Value::Null, &json!(0.0)));
        assert_eq!(all["matrix"][0], json!([8, 2, 0]));
    }

    #[test]
    fn of_many_classes_the_most_confused_are_listed() {
        let mut matrix = vec![vec![0_i64; 41]; 40];
        for (class, row) in matrix.iter_mut().enumerate() {
            row[class] = 5;
        }
        matrix[3][7] = 4;
        let support: Vec<i64> = matrix.iter().map(|row| row.iter().sum()).collect();
        let predicted: Vec<i64> = (0..40).map(|class| matrix.iter().map(|row| row[class]).sum()).collect();
        let rows = matrix.iter().map(Vec::as_slice);
        let of = table(&Classes::new([&support, &predicted, &[5; 40]], Some(rows), &[]));
        assert!(of.ends_with("\n  3 predicted as 7: 4\n") && !of.contains("confusion matrix"), "{of}");
    }
}
