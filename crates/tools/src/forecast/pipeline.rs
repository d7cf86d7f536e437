//! The backward pass and the all-reduces that run beside it: buckets become full one after the other, and the communication
//! thread averages them in this order. Where processes have no core left for that thread, both go on more slowly.

/// A gradient bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The part of the backward pass after which it is full, 0 to 1; not below that of the bucket before.
    pub ready: f64,
    /// Of its all-reduce alone.
    pub seconds: f64,
}

/// How fast computation and communication go on while both run, 1 being as fast as alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    pub compute: f64,
    pub comm: f64,
}

impl Sharing {
    /// Neither slows the other.
    pub const NONE: Self = Self { compute: 1.0, comm: 1.0 };

    /// Of a process that may use `cores`, computes with `threads`, and whose communication keeps `comm_cores` busy where there
    /// are as many. What both do in a second is what the cores can.
    pub fn new(cores: f64, threads: f64, comm_cores: f64) -> Self {
        let comm = comm_cores * cores.min(1.0);
        let demand = threads + comm;
        if demand <= cores || comm <= 0.0 {
            return Self::NONE;
        }
        Self { compute: threads * cores / demand / threads.min(cores), comm: (cores / demand).min(1.0) }
    }
}

/// When both have ended, from the beginning of the backward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    pub backward: f64,
    /// The last bucket is averaged.
    pub end: f64,
}

/// The course of a backward pass that takes `backward` seconds alone.
pub fn course(backward: f64, buckets: &[Bucket], sharing: Sharing) -> Course {
    // Since the beginning, and how much of the backward pass is done, in seconds that it takes alone.
    let (mut now, mut done, mut ended) = (0.0_f64, 0.0_f64, None);
    for bucket in buckets {
        let ready = bucket.ready * backward;
        if done < ready {
            now += ready - done;
            done = ready;
        }
        let mut left = bucket.seconds;
        let rest = backward - done;
        if rest > 0.0 {
            // Both run, until the first of them ends.
            let (compute, comm) = (rest / sharing.compute, left / sharing.comm);
            now += compute.min(comm);
            if compute <= comm {
                (done, ended) = (backward, Some(now));
                left -= compute * sharing.comm;
            } else {
                done += comm * sharing.compute;
                left = 0.0;
            }
        } else {
            ended = ended.or(Some(now));
        }
        now += left.max(0.0);
    }
    let backward = ended.unwrap_or(now + backward - done);
    Course { backward, end: now.max(backward) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buckets(seconds: &[f64]) -> Vec<Bucket> {
        let n = seconds.len() as f64;
        let bucket = |(i, s): (usize, &f64)| Bucket { ready: (i + 1) as f64 / n, seconds: *s };
        seconds.iter().enumerate().map(bucket).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * (1.0 + a.abs())
    }

    #[test]
    fn one_bucket_follows_the_backward_pass() {
        assert_eq!(course(2.0, &buckets(&[0.5]), Sharing::NONE), Course { backward: 2.0, end: 2.5 });
        assert_eq!(course(2.0, &[], Sharing::NONE), Course { backward: 2.0, end: 2.0 });
        assert_eq!(course(0.0, &buckets(&[0.5, 0.5]), Sharing::NONE), Course { backward: 0.0, end: 1.0 });
    }

    #[test]
    fn short_all_reduces_are_hidden_up_to_the_last() {
        let course = course(4.0, &buckets(&[0.5, 0.5, 0.5, 0.5]), Sharing::NONE);
        assert!(close(course.backward, 4.0) && close(course.end, 4.5), "{course:?}");
    }

    #[test]
    fn long_all_reduces_follow_one_another_from_the_first_full_bucket() {
        let course = course(4.0, &buckets(&[2.0, 2.0, 2.0, 2.0]), Sharing::NONE);
        assert!(close(course.backward, 4.0) && close(course.end, 1.0 + 8.0), "{course:?}");
    }

    #[test]
    fn shared_cores_leave_no_gain() {
        let half = Sharing::new(1.0, 1.0, 1.0);
        assert_eq!(half, Sharing { compute: 0.5, comm: 0.5 });
        let course = course(4.0, &buckets(&[0.5, 0.5, 0.5, 0.5]), half);
        // Three of the four all-reduces run beside the backward pass, and delay it by as long as they take.
        assert!(close(course.backward, 5.5) && close(course.end, 6.0), "{course:?}");
    }

    #[test]
    fn cores_are_shared_where_there_are_too_few() {
        assert_eq!(Sharing::new(2.0, 1.0, 1.0), Sharing::NONE);
        assert_eq!(Sharing::new(1.0, 1.0, 0.0), Sharing::NONE);
        let crowded = Sharing::new(0.5, 1.0, 1.0);
        assert!(close(crowded.compute, 1.0 / 1.5) && close(crowded.comm, 0.5 / 1.5), "{crowded:?}");
        // Two threads and a communication thread on two cores.
        let three = Sharing::new(2.0, 2.0, 1.0);
        assert!(close(three.compute, 2.0 / 3.0) && close(three.comm, 2.0 / 3.0), "{three:?}");
    }

    proptest! {
        /// Without sharing, a bucket ends its own time after it is full and after the bucket before.
        #[test]
        fn the_course_is_that_of_the_recurrence(
            backward in 0.0..10.0_f64, seconds in proptest::collection::vec(0.0..3.0_f64, 1..9),
        ) {
            let buckets = buckets(&seconds);
            let end = buckets.iter().fold(0.0, |end: f64, b| end.max(b.ready * backward) + b.seconds);
            let course = course(backward, &buckets, Sharing::NONE);
            prop_assert!(close(course.end, end.max(backward)), "{course:?} {end}");
            prop_assert!(close(course.backward, backward));
        }

        #[test]
        fn more_of_anything_takes_longer(
            backward in 0.0..10.0_f64, seconds in proptest::collection::vec(0.0..3.0_f64, 1..9),
            cores in 0.1..4.0_f64, threads in 1.0..4.0_f64, which in 0_usize..8, more in 0.0..2.0_f64,
        ) {
            let sharing = Sharing::new(cores, threads, 1.0);
            let before = course(backward, &buckets(&seconds), sharing);
            prop_assert!(before.end >= before.backward - 1e-9 && before.backward >= backward - 1e-9);
            prop_assert!(before.end <= (backward / sharing.compute) + seconds.iter().sum::<f64>() / sharing.comm + 1e-6);
            let mut longer = seconds.clone();
            let at = which % longer.len();
            longer[at] += more;
            prop_assert!(course(backward, &buckets(&longer), sharing).end >= before.end - 1e-9);
            prop_assert!(course(backward + more, &buckets(&seconds), sharing).end >= before.end - 1e-9);
        }
    }
}
