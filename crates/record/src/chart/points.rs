//! Fewer points, and smoother ones, for lines that have many.

use super::Point;

/// More points on a line are indistinguishable; they are averaged.
const MAX_POINTS: usize = 600;

/// Averages neighbouring points so that at most [`MAX_POINTS`] remain.
pub(super) fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points;
    }
    let size = points.len().div_ceil(MAX_POINTS);
    points
        .chunks(size)
        .map(|c| {
            let n = c.len() as f64;
            (c.iter().map(|p| p.0).sum::<f64>() / n, c.iter().map(|p| p.1).sum::<f64>() / n)
        })
        .collect()
}

/// A centred moving average over about a fortieth of the points; at the ends, where there are no points on one side, the
/// straight line through as many. Points that are not finite are left out.
pub fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|p| p.1.is_finite()).collect();
    let half = points.len() / 80;
    let mut sums = vec![0.0];
    for p in &points {
        sums.push(sums[sums.len() - 1] + p.1);
    }
    if half == 0 {
        return points;
    }
    let ends = [line_through(&points[..=2 * half]), line_through(&points[points.len() - 1 - 2 * half..])];
    let mean = |(i, p): (usize, &Point)| {
        let y = match (i < half, i + half >= points.len()) {
            (true, _) => ends[0](p.0),
            (_, true) => ends[1](p.0),
            _ => (sums[i + half + 1] - sums[i - half]) / (2 * half + 1) as f64,
        };
        (p.0, y)
    };
    points.iter().enumerate().map(mean).collect()
}

/// The line with the least squares through the points.
fn line_through(points: &[Point]) -> impl Fn(f64) -> f64 + use<> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let above: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let slope = if below > 0.0 { above / below } else { 0.0 };
    move |x| mean_y + slope * (x - mean_x)
}
