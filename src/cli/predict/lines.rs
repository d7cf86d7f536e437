//! A line per input: its class with probabilities, or its value in the target's own units.

use super::Args;
use super::inputs::{self, Read};
use super::out::{Column, Lines, place, unusable};
use base::error::Result;
use data::{Encoding, in_units};
use job::worker::Predictor;
use serde_json::{Map, Value, json};

/// Longer names of classes are not aligned.
const MAX_WIDTH: usize = 24;

pub(super) fn run(args: &Args, encoding: &Encoding, predictor: &Predictor, batch: usize) -> Result<()> {
    let widest = encoding.classes().into_iter().flatten().map(|name| name.chars().count()).max();
    let width = widest.unwrap_or(0).min(MAX_WIDTH);
    let mut lines = Lines::new(args.out.as_deref(), || columns(args, encoding), width)?;
    let mut left = inputs::list(encoding, &args.inputs).into_iter();
    let (mut count, mut failed, mut first) = (0, 0, String::new());
    'all: loop {
        let these: Vec<_> = left.by_ref().take(batch).collect();
        if these.is_empty() {
            break;
        }
        let (mut heads, mut values) = (Vec::new(), Vec::new());
        for Read { head, values: read } in inputs::read(encoding, these) {
            heads.push((head, read.map(|read| values.push(read))));
        }
        let mut outputs = predictor.outputs(count, values)?.into_iter();
        for (mut line, read) in heads {
            count += 1;
            let answered =
                read.and_then(|()| answer(&mut line, encoding, &outputs.next().unwrap_or_default(), args));
            if let Err(why) = answered {
                if failed == 0 {
                    first = format!("{}: {why}", place(&line));
                }
                failed += 1;
                line.insert("error".to_owned(), json!(why));
            }
            if !lines.write(line)? {
                break 'all;
            }
        }
    }
    lines.finish()?;
    unusable(failed, count as usize, &first, true)
}

/// The columns of a CSV file.
fn columns(args: &Args, encoding: &Encoding) -> Vec<Column> {
    let mut columns = vec![Column::new("input")];
    if matches!(encoding, Encoding::Table(_)) {
        columns.extend(["row", "line"].map(Column::new));
    }
    match encoding.classes() {
        Some(classes) => {
            columns.extend(["class", "index", "probability"].map(Column::new));
            let logit = |(at, name)| Column { name: format!("logit {name}"), key: "logits", at: Some(at) };
            columns.extend(classes.iter().enumerate().filter(|_| args.logits).map(logit));
        }
        None => columns.push(Column::new("value")),
    }
    columns.push(Column::new("error"));
    columns
}

/// Adds what the outputs say.
///
/// # Errors
/// In words: they say nothing.
fn answer(
    line: &mut Map<String, Value>,
    encoding: &Encoding,
    outputs: &[f32],
    args: &Args,
) -> Result<(), String> {
    let nothing =
        || Err("the model's outputs are not numbers: the input is too far from those of training".to_owned());
    if let Some(classes) = encoding.classes() {
        let found = ranked(outputs);
        if found.iter().any(|(_, probability)| probability.is_nan()) {
            return nothing();
        }
        let entry = |(index, probability): &(usize, f64)| {
            let name = classes.get(*index).cloned().unwrap_or_else(|| index.to_string());
            json!({ "class": name, "index": index, "probability": rounded(*probability) })
        };
        if let Some(Value::Object(best)) = found.first().map(entry) {
            line.extend(best);
        }
        if args.top > 0 {
            line.insert("top".to_owned(), found.iter().take(args.top).map(entry).collect());
        }
        if args.logits {
            let logits = outputs.iter().map(|y| json!(in_units(*y, 0.0, 1.0)));
            line.insert("logits".to_owned(), logits.collect());
        }
        return Ok(());
    }
    let (mean, std) = encoding.number().map_or((0.0, 1.0), |number| (number.mean, number.std));
    let values: Vec<f64> = outputs.iter().map(|y| in_units(*y, mean, std)).collect();
    if !values.iter().all(|value| (*value as f32).is_finite()) {
        return nothing();
    }
    match values[..] {
        [value] => line.insert("value".to_owned(), json!(value)),
        _ => line.insert("values".to_owned(), json!(values)),
    };
    Ok(())
}

/// The classes by probability, the softmax of their scores. Of equal scores the lower index comes first, as in an
/// evaluation, and NaN before all.
fn ranked(scores: &[f32]) -> Vec<(usize, f64)> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> =
        scores.iter().map(|score| (f64::from(*score) - f64::from(largest)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let key = |i: usize| if scores[i].is_nan() { f32::INFINITY } else { scores[i] };
    // Stable; +0 and -0 are equal.
    order.sort_by(|a, b| {
        let nan = scores[*b].is_nan().cmp(&scores[*a].is_nan());
        nan.then(key(*b).partial_cmp(&key(*a)).unwrap_or(std::cmp::Ordering::Equal))
    });
    order.into_iter().map(|i| (i, weights[i] / sum)).collect()
}

/// To six decimals.
fn rounded(probability: f64) -> f64 {
    (probability * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::{Blanks, ImageEncoding, TableEncoding, TargetEncoding, transforms::TransformOptions};

    fn args(top: usize, logits: bool) -> Args {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        Args { top, logits, ..<Line as clap::Parser>::parse_from(["predict", "run"]).args }
    }

    fn line(encoding: &Encoding, outputs: &[f32], top: usize) -> String {
        let mut line = Map::new();
        answer(&mut line, encoding, outputs, &args(top, false)).unwrap();
        Value::Object(line).to_string()
    }

    fn images(classes: &[&str]) -> Encoding {
        let classes = classes.iter().map(|name| (*name).to_owned()).collect();
        Encoding::Images(ImageEncoding::new(1, 8, &TransformOptions::default(), classes))
    }

    #[test]
    fn classes_are_ranked_with_their_probabilities() {
        let found = line(&images(&["cat", "dog"]), &[0.0, 3.0_f32.ln(), f32::NEG_INFINITY], 2);
        let expected = r#"{"class":"dog","index":1,"probability":0.75,"top":[{"class":"dog","index":1,"probability":0.75},{"class":"cat","index":0,"probability":0.25}]}"#;
        assert_eq!(found, expected);
        // A model with more outputs than the data has classes.
        assert_eq!(
            line(&images(&["cat", "dog"]), &[0.0, 0.0, 100.0], 0),
            r#"{"class":"2","index":2,"probability":1.0}"#
        );
    }

    #[test]
    fn logits_are_the_outputs_in_the_order_of_the_classes() {
        let (mut line, encoding) = (Map::new(), images(&["cat", "dog"]));
        answer(&mut line, &encoding, &[0.1, -1.25], &args(0, true)).unwrap();
        assert_eq!(line["logits"], json!([0.1, -1.25]), "with the digits of f32");
        let names: Vec<String> = columns(&args(0, true), &encoding).into_iter().map(|it| it.name).collect();
        let expected = ["input", "class", "index", "probability", "logit cat", "logit dog", "error"];
        assert_eq!(names, expected);
    }

    #[test]
    fn equal_scores_are_ranked_as_in_an_evaluation() {
        let first = |scores: &[f32]| ranked(scores)[0].0;
        assert_eq!(first(&[3.0, 3.0, 1.0]), 0);
        assert_eq!(first(&[-0.0, 0.0]), 0);
        assert_eq!(first(&[f32::INFINITY, f32::NAN, f32::NAN]), 1);
    }

    #[test]
    fn outputs_that_are_no_numbers_are_an_error_and_not_null() {
        for outputs in [[0.0, f32::NAN], [f32::INFINITY, 0.0]] {
            let mut line = Map::new();
            let why = answer(&mut line, &images(&["cat", "dog"]), &outputs, &args(5, true)).unwrap_err();
            assert!(why.contains("not numbers") && line.is_empty(), "{why}, {line:?}");
        }
    }

    #[test]
    fn values_are_in_the_units_of_the_table() {
        let table = |std, mean| {
            Encoding::Table(TableEncoding {
                delimiter: ',',
                columns: Vec::new(),
                blanks: Blanks::Error,
                blank_marks: Vec::new(),
                target: TargetEncoding::Number { name: "y".to_owned(), mean, std },
            })
        };
        assert_eq!(line(&table(2.0, 100.0), &[0.5], 5), r#"{"value":101.0}"#);
        assert_eq!(line(&table(1.0, 0.0), &[0.1, -2.5], 5), r#"{"values":[0.1,-2.5]}"#);
        // Unix seconds, which f32 holds to 128 s.
        assert_eq!(line(&table(300.0, 1.7e9), &[0.25], 5), r#"{"value":1700000075.0}"#);
        assert_eq!(line(&table(300.0, 1.7e9), &[1.0 / 3.0], 5), r#"{"value":1700000100.0}"#);
        assert_eq!(line(&table(0.1, 1.7e9), &[-1.2345], 5), r#"{"value":1699999999.87655}"#);
        assert!(answer(&mut Map::new(), &table(1e30, 0.0), &[1e30], &args(5, false)).is_err());
    }
}
