//! Alpha and beta of a link from measured times, by least squares of the relative errors: sizes go over many powers of ten, and
//! absolute errors would let the largest decide alone.

/// A measured time, with what passed on the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Messages, one after the other.
    pub messages: f64,
    /// Bytes on the link.
    pub bytes: f64,
    /// Above 0.
    pub seconds: f64,
}

/// A link: `alpha * messages + per_byte * bytes` seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Seconds of a message of no bytes.
    pub alpha: f64,
    /// Seconds of a byte: 1 / beta.
    pub per_byte: f64,
}

/// One point alone is taken for the time of messages up to this many bytes, and of bytes above.
const SMALL: f64 = 4096.0;

impl Fit {
    pub fn seconds(&self, messages: f64, bytes: f64) -> f64 {
        self.alpha * messages + self.per_byte * bytes
    }

    /// The link that comes closest to all points; neither value is negative. `None` without a point.
    pub fn new(points: &[Point]) -> Option<Self> {
        // With the relative error: alpha * x + per_byte * y should be 1.
        let rows: Vec<(f64, f64)> =
            points.iter().map(|p| (p.messages / p.seconds, p.bytes / p.seconds)).collect();
        let sum = |of: &dyn Fn(f64, f64) -> f64| rows.iter().map(|(x, y)| of(*x, *y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        let (x, y) = (sum(&|x, _| x), sum(&|_, y| y));
        let only_alpha = Self { alpha: if xx > 0.0 { x / xx } else { 0.0 }, per_byte: 0.0 };
        let only_bytes = Self { alpha: 0.0, per_byte: if yy > 0.0 { y / yy } else { 0.0 } };
        if let [one] = points {
            return Some(if one.bytes <= SMALL { only_alpha } else { only_bytes });
        }
        points.first()?;
        let determinant = xx * yy - xy * xy;
        if determinant > 1e-12 * xx * yy {
            let both =
                Self { alpha: (x * yy - y * xy) / determinant, per_byte: (y * xx - x * xy) / determinant };
            if both.alpha >= 0.0 && both.per_byte >= 0.0 {
                return Some(both);
            }
        }
        // The least of a convex function within bounds is on one of them if it is not inside.
        let missed = |fit: &Self| sum(&|x, y| (fit.alpha * x + fit.per_byte * y - 1.0).powi(2));
        Some(if missed(&only_bytes) <= missed(&only_alpha) { only_bytes } else { only_alpha })
    }

    /// The largest relative error over `points`.
    pub fn error(&self, points: &[Point]) -> f64 {
        let of = |p: &Point| (self.seconds(p.messages, p.bytes) / p.seconds - 1.0).abs();
        points.iter().map(of).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(alpha: f64, per_byte: f64, noise: &dyn Fn(usize) -> f64) -> Vec<Point> {
        let sizes = [64.0, 1024.0, 65536.0, 1048576.0, 67108864.0];
        let point = |(i, bytes): (usize, f64)| Point {
            messages: 6.0,
            bytes: 1.5 * bytes,
            seconds: (alpha * 6.0 + per_byte * 1.5 * bytes) * noise(i),
        };
        sizes.into_iter().enumerate().map(point).collect()
    }

    proptest! {
        #[test]
        fn a_link_is_found_again(alpha in 1e-7..1e-3_f64, beta in 1e7..1e11_f64) {
            let fit = Fit::new(&points(alpha, 1.0 / beta, &|_| 1.0)).unwrap();
            prop_assert!((fit.alpha / alpha - 1.0).abs() < 1e-6, "{fit:?}");
            prop_assert!((fit.per_byte * beta - 1.0).abs() < 1e-6, "{fit:?}");
        }

        #[test]
        fn nothing_is_negative_whatever_was_measured(seconds in proptest::collection::vec(1e-7..1.0_f64, 1..7)) {
            let point = |(i, seconds): (usize, &f64)| {
                Point { messages: 2.0, bytes: 4.0 * 10_f64.powi(i as i32), seconds: *seconds }
            };
            let points: Vec<Point> = seconds.iter().enumerate().map(point).collect();
            let fit = Fit::new(&points).unwrap();
            prop_assert!(fit.alpha >= 0.0 && fit.per_byte >= 0.0, "{fit:?}");
            prop_assert!(fit.alpha.is_finite() && fit.per_byte.is_finite(), "{fit:?}");
        }
    }

    #[test]
    fn small_sizes_count_as_much_as_large_ones() {
        // 10 % too long and 10 % too short in turn: neither value is further off than that.
        let fit = Fit::new(&points(5e-6, 1e-9, &|i| if i % 2 == 0 { 1.1 } else { 0.9 })).unwrap();
        assert!((fit.alpha / 5e-6 - 1.0).abs() < 0.1, "{fit:?}");
        assert!((fit.per_byte / 1e-9 - 1.0).abs() < 0.1, "{fit:?}");
    }

    #[test]
    fn one_point_is_of_messages_or_of_bytes() {
        let fit = |bytes| Fit::new(&[Point { messages: 2.0, bytes, seconds: 1e-3 }]).unwrap();
        assert_eq!(fit(8.0), Fit { alpha: 5e-4, per_byte: 0.0 });
        assert_eq!(fit(1e6), Fit { alpha: 0.0, per_byte: 1e-9 });
        assert_eq!(Fit::new(&[]), None);
    }

    #[test]
    fn equal_sizes_do_not_tell_two_values() {
        let point = Point { messages: 2.0, bytes: 1e6, seconds: 1e-3 };
        let fit = Fit::new(&[point, point]).unwrap();
        assert!((fit.seconds(2.0, 1e6) / 1e-3 - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.error(&[point]) < 1e-9);
        assert!((fit.error(&[Point { seconds: 2e-3, ..point }]) - 0.5).abs() < 1e-9);
    }
}
