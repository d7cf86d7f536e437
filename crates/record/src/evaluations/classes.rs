//! Figures by class, from the counts of predictions. A run's notes keep a part whose size does not grow with the number of classes.

use serde::{Deserialize, Serialize};

/// With more classes, there are pairs in place of a matrix.
const LARGEST_MATRIX: usize = 32;

/// Rows and pairs that are kept of more classes, where not all are.
const MOST: usize = 64;

/// Predictions by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classes {
    /// Number of classes.
    pub count: usize,
    /// The means over classes that occur, among samples or predictions.
    pub mean: Figures,
    /// All classes in their order; if it is [shortened](Self::shortened), of more than 64 those with the smallest F1, worst first.
    pub rows: Vec<ClassRow>,
    /// Predictions of each class's samples, by class, and last the outputs that are not a class. `None` with more than 32 classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Vec<Vec<u64>>>,
    /// Class, another class that is predicted for it, and how often, most often first; where there is no matrix. All pairs that occur, or
    /// the first 64 of them if it is [shortened](Self::shortened).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confused: Vec<(String, String, u64)>,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    /// Its name, or its number.
    pub class: String,
    /// Samples.
    pub support: u64,
    /// Samples that it is predicted for.
    pub predicted: u64,
    /// Samples of the class that are predicted correctly.
    pub right: u64,
}

/// The metrics of a class, 0 to 1; `None` where the denominator is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The right ones among its predictions.
    pub precision: Option<f64>,
    /// The right ones among its samples.
    pub recall: Option<f64>,
    /// Their harmonic mean.
    pub f1: Option<f64>,
}

impl ClassRow {
    /// Precision, recall and F1.
    pub fn figures(&self) -> Figures {
        let part = |of: u64| (of > 0).then(|| self.right as f64 / of as f64);
        let both = self.support + self.predicted;
        let f1 = (both > 0).then(|| 2.0 * self.right as f64 / both as f64);
        Figures { precision: part(self.predicted), recall: part(self.support), f1 }
    }
}

impl Classes {
    /// From the samples, the predictions and the right predictions of each class, and the matrix if it was counted. A class without a
    /// name has its number.
    pub fn new<'m>(
        [support, predicted, right]: [&[i64]; 3],
        matrix: Option<impl Iterator<Item = &'m [i64]>>,
        names: &[String],
    ) -> Self {
        let count = support.len();
        let name = |class: usize| class_name(names, class);
        let number = |of: &[i64], class: usize| of.get(class).map_or(0, |n| n.unsigned_abs());
        let rows: Vec<ClassRow> = (0..count)
            .map(|class| ClassRow {
                class: name(class),
                support: number(support, class),
                predicted: number(predicted, class),
                right: number(right, class),
            })
            .collect();
        let mean = mean(&rows);
        let mut classes = Self { count, mean, rows, matrix: None, confused: Vec::new() };
        let Some(matrix) = matrix else { return classes };
        if count <= LARGEST_MATRIX {
            let of = |row: &[i64]| row.iter().map(|n| n.unsigned_abs()).collect();
            classes.matrix = Some(matrix.map(of).collect());
            return classes;
        }
        let pairs = matrix.enumerate().flat_map(|(class, row)| {
            let others = row.iter().enumerate().filter(move |(other, n)| *other != class && **n > 0);
            others.map(move |(other, n)| (class, other, n.unsigned_abs()))
        });
        let mut pairs: Vec<(usize, usize, u64)> = pairs.collect();
        pairs.sort_by_key(|(class, other, n)| (std::cmp::Reverse(*n), *class, *other));
        classes.confused = pairs
            .into_iter()
            .map(|(class, other, n)| {
                (name(class), if other < count { name(other) } else { "no class".to_owned() }, n)
            })
            .collect();
        classes
    }

    /// The part that is shown, and kept by a run: of more than 64 classes those with the smallest F1, and as many pairs.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        if self.count > MOST {
            let f1 = |row: &ClassRow| row.figures().f1;
            self.rows.retain(|row| f1(row).is_some());
            // Stable: of equal ones the first class comes first.
            self.rows.sort_by(|a, b| f1(a).unwrap_or(0.0).total_cmp(&f1(b).unwrap_or(0.0)));
            self.rows.truncate(MOST);
        }
        self.confused.truncate(MOST);
        self
    }
}

/// The name of a class, or its number if it has none.
pub fn class_name(names: &[String], class: usize) -> String {
    names.get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// Unweighted means, as scikit-learn's `macro avg`: a ratio with denominator 0 counts as 0.
fn mean(rows: &[ClassRow]) -> Figures {
    let there: Vec<Figures> =
        rows.iter().map(ClassRow::figures).filter(|figures| figures.f1.is_some()).collect();
    let of = |one: fn(&Figures) -> Option<f64>| {
        let sum: f64 = there.iter().map(|figures| one(figures).unwrap_or(0.0)).sum();
        (!there.is_empty()).then(|| sum / there.len() as f64)
    };
    Figures { precision: of(|f| f.precision), recall: of(|f| f.recall), f1: of(|f| f.f1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From pairs of class and prediction.
    fn classes(count: usize, pairs: &[(usize, usize)], names: &[String]) -> Classes {
        let mut matrix = vec![vec![0_i64; count + 1]; count];
        pairs.iter().for_each(|(class, predicted)| matrix[*class][*predicted] += 1);
        let support: Vec<i64> = matrix.iter().map(|row| row.iter().sum()).collect();
        let predicted: Vec<i64> = (0..count).map(|class| matrix.iter().map(|row| row[class]).sum()).collect();
        let right: Vec<i64> = (0..count).map(|class| matrix[class][class]).collect();
        Classes::new([&support, &predicted, &right], Some(matrix.iter().map(Vec::as_slice)), names)
    }

    /// The numbers are those of `sklearn.metrics.classification_report`.
    #[test]
    fn figures_are_those_of_scikit_learn() {
        let pairs = [(0, 0), (0, 0), (0, 1), (1, 1), (1, 0), (2, 2), (2, 2), (2, 0), (2, 3)];
        let names = ["cat".to_owned(), "dog".to_owned()];
        let classes = classes(4, &pairs, &names);
        let named: Vec<&str> = classes.rows.iter().map(|row| row.class.as_str()).collect();
        assert_eq!(named, ["cat", "dog", "2", "3"]);
        let figures: Vec<Figures> = classes.rows.iter().map(ClassRow::figures).collect();
        let of = |p, r, f| Figures { precision: p, recall: r, f1: f };
        assert_eq!(figures[0], of(Some(0.5), Some(2.0 / 3.0), Some(4.0 / 7.0)));
        assert_eq!(figures[1], of(Some(0.5), Some(0.5), Some(0.5)));
        assert_eq!(figures[2], of(Some(1.0), Some(0.5), Some(2.0 / 3.0)));
        assert_eq!(figures[3], of(Some(0.0), None, Some(0.0)));
        assert_eq!(classes.mean.precision, Some(0.5));
        let f1 = classes.mean.f1.unwrap();
        assert!((f1 - (4.0 / 7.0 + 0.5 + 2.0 / 3.0) / 4.0).abs() < 1e-12, "{f1}");
        assert_eq!(classes.matrix.unwrap()[2], [1, 0, 2, 1, 0]);
        assert!(classes.confused.is_empty());
    }

    #[test]
    fn of_many_classes_the_worst_and_the_most_confused_are_kept() {
        let mut pairs: Vec<(usize, usize)> = (0..1000).map(|class| (class, class)).collect();
        pairs.extend([(7, 900), (7, 900), (7, 900), (500, 3), (500, 3), (499, 2), (8, 1000)]);
        let all = classes(1000, &pairs, &[]);
        // Of all classes, in their order, with all pairs.
        assert_eq!((all.rows.len(), all.rows[999].class.as_str(), all.confused.len()), (1000, "999", 4));
        let classes = all.shortened();
        assert_eq!((classes.count, classes.rows.len(), classes.matrix.is_none()), (1000, 64, true));
        assert_eq!(classes.rows[0].class, "7");
        let confused: Vec<(&str, &str, u64)> =
            classes.confused.iter().map(|(a, b, n)| (a.as_str(), b.as_str(), *n)).collect();
        assert_eq!(confused, [("7", "900", 3), ("500", "3", 2), ("8", "no class", 1), ("499", "2", 1)]);
    }

    #[test]
    fn classes_that_never_occur_have_no_figures() {
        let classes = classes(2, &[(0, 0)], &[]);
        assert_eq!(classes.rows[1].figures(), Figures::default());
        assert_eq!(classes.mean.f1, Some(1.0));
    }
}
