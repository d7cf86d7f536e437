use super::*;

#[test]
fn thinning_keeps_the_mean_and_the_limit() {
    let points: Vec<(f64, f64)> = (0..6000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
    let thin = thinned(points);
    assert_eq!(thin.len(), 600);
    assert!(thin.iter().all(|p| p.1 == 0.5));
}

#[test]
fn smoothing_keeps_a_straight_line_and_removes_noise() {
    let line: Vec<(f64, f64)> = (0..800).map(|i| (f64::from(i), f64::from(i) * 0.5)).collect();
    assert!(smoothed(&line).iter().zip(&line).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9));
    let noise: Vec<(f64, f64)> = (0..800).map(|i| (f64::from(i), f64::from(i % 2))).collect();
    assert!(smoothed(&noise)[100..700].iter().all(|p| (p.1 - 0.5).abs() < 0.03));
    let spike: Vec<(f64, f64)> = (0..800).map(|i| (f64::from(i), f64::from(i / 799))).collect();
    assert!(smoothed(&spike)[799].1 < 0.25, "the last point counts as one of many");
    assert!(smoothed(&[]).is_empty());
}

#[test]
fn a_layer_of_one_point_has_a_width_and_a_flat_line_no_noise() {
    let axis = Axis { log: false, unit: "step", tick: label, text: |v| v.to_string() };
    let drawn = |look, points: Vec<Point>| {
        let mut out = String::new();
        Chart::new("t", axis, axis, vec![Series::new("a", look, points)]).figure(&mut out);
        out
    };
    let bar = drawn(Look::Layer(1), vec![(5.0, 2.0)]);
    let path = bar.split("class=\"layer s1\" d=\"M").nth(1).unwrap();
    let xs: Vec<&str> = path.split(['M', 'L']).map(|p| p.split(' ').next().unwrap()).take(2).collect();
    assert_ne!(xs[0], xs[1], "{path}");
    // 0.8 as a sum of many numbers divided by their count.
    let flat =
        drawn(Look::Line(9), (0..50).map(|i| (f64::from(i), 0.8 + f64::from(i % 3) * 1e-16)).collect());
    assert!(flat.contains("class=\"line s1 dashed\""), "a line beyond the colours: {flat}");
    let ys: Vec<f64> = flat
        .split("<path class=\"line")
        .nth(1)
        .unwrap()
        .split(['M', 'L'])
        .skip(1)
        .map(|p| p.split([' ', '"']).nth(1).unwrap().parse().unwrap())
        .collect();
    assert!(ys.iter().all(|y| *y == ys[0]), "{ys:?}");
}

#[test]
fn rules_are_drawn_within_the_range_of_the_series() {
    let axis = Axis { log: false, unit: "step", tick: label, text: |v| v.to_string() };
    let rule = |x, through| Rule { x, class: "resume", glyph: "M0 0z", through, text: "at <10>".into() };
    let series = vec![Series::new("a", Look::Layer(1), vec![(0.0, 1.0), (20.0, 2.0)])];
    let rules = vec![rule(10.0, true), rule(20.0, false), rule(30.0, true)];
    let mut out = String::new();
    Chart::new("t", axis, axis, series).with_rules(rules).figure(&mut out);
    assert_eq!(out.matches("class=\"mark resume\"").count(), 2);
    assert_eq!(out.matches("class=\"rule resume\"").count(), 1);
    assert!(out.contains("<title>at &lt;10&gt;</title>") && out.contains("Z\"/>"), "{out}");
}

#[test]
fn flat_single_and_empty_lines_draw_without_nan() {
    for points in [vec![(1.0, 0.0)], vec![(0.0, 5.0), (1.0, 5.0)], vec![(0.0, f64::NAN)], vec![]] {
        for log in [false, true] {
            let axis = Axis { log, unit: "step", tick: label, text: |v| v.to_string() };
            let mut out = String::new();
            let chart = Chart::new("t", axis, axis, vec![Series::new("a", Look::Line(0), points.clone())]);
            chart.figure(&mut out);
            chart.card(&mut out, [0.0, 0.0, 300.0, 200.0]);
            assert!(!out.contains("NaN") && !out.contains("inf"), "{points:?}: {out}");
        }
    }
}
