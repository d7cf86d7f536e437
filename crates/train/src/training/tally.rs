//! What an evaluation finds in addition to its sums: how often each class is predicted for each, and the samples with the largest losses. Counts are
//! integers, and the samples are ordered by loss and index: both are the same with any number of ranks that get the same outputs.

use super::judged::Judged;
use base::error::Result;
use collectives::{ProcessGroup, ReduceOp};
use data::{FieldFacts, FieldKind};

/// With more classes, only the figures of each class are counted: the matrix of all pairs would have more than 8 MiB.
const LARGEST_MATRIX: usize = 1023;

/// Numbers that describe a sample to other ranks.
const NUMBERS: usize = 5;

/// What evaluations collect in addition to the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Count predictions by class.
    pub per_class: bool,
    /// Keep this many samples with the largest losses.
    pub samples: usize,
}

impl Details {
    /// Whether rank 0 may generate texts after an evaluation of samples with this input and target.
    pub fn has_texts(&self, input: &FieldFacts, target: &FieldFacts) -> bool {
        let is_index = |field: &FieldFacts| matches!(field.kind, FieldKind::Index(_));
        self.samples > 0 && !target.shape.is_empty() && is_index(input) && is_index(target)
    }
}

/// The predictions for a split whose samples have one class each.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    details: Details,
    classes: usize,
    /// Samples of each class, predictions of each class, right predictions of each class; and for each class (if there is a matrix) the
    /// predictions of its samples by class, and at last those of no class.
    counts: Vec<i64>,
    worst: Vec<Judged>,
}

impl Tally {
    /// An empty one, for a split with these targets; `None` if there is nothing to collect, on all ranks alike.
    pub fn new(details: Details, target: &FieldFacts) -> Option<Self> {
        let FieldKind::Index(classes) = target.kind else { return None };
        if !target.shape.is_empty() || classes == 0 || details == Details::default() {
            return None;
        }
        let pairs = if classes <= LARGEST_MATRIX { classes * (classes + 1) } else { 0 };
        let counts = if details.per_class { vec![0; 3 * classes + pairs] } else { Vec::new() };
        Some(Self { details, classes, counts, worst: Vec::new() })
    }

    /// Adds the samples of a batch.
    pub(super) fn add(&mut self, samples: &[Judged]) {
        if self.details.per_class {
            samples.iter().for_each(|sample| self.count(sample));
        }
        if self.details.samples > 0 {
            self.worst.extend(samples);
            // Not at every batch: sorting costs more than keeping a few.
            if self.worst.len() >= self.details.samples + 1024 {
                self.keep_worst();
            }
        }
    }

    fn count(&mut self, &Judged { label, predicted, .. }: &Judged) {
        let classes = self.classes;
        if label >= classes {
            return;
        }
        self.counts[label] += 1;
        // A model may have more outputs than there are classes.
        if predicted < classes {
            self.counts[classes + predicted] += 1;
        }
        if predicted == label {
            self.counts[2 * classes + label] += 1;
        }
        if classes <= LARGEST_MATRIX {
            self.counts[3 * classes + label * (classes + 1) + predicted.min(classes)] += 1;
        }
    }

    fn keep_worst(&mut self) {
        self.worst.sort_by(Judged::worse);
        self.worst.truncate(self.details.samples);
    }

    /// Adds those of all ranks. Collective, with one result on all ranks.
    pub(super) fn all_reduce(&mut self, group: &dyn ProcessGroup) -> Result<()> {
        if !self.counts.is_empty() {
            group.all_reduce(self.counts.as_mut_slice().into(), ReduceOp::Sum)?;
        }
        self.keep_worst();
        if self.details.samples > 0 {
            // As many from each rank; NaN in place of a sample that it does not have.
            let mut own: Vec<f64> = self.worst.iter().flat_map(numbers).collect();
            own.resize(NUMBERS * self.details.samples, f64::NAN);
            let mut all = vec![0.0; own.len() * group.world_size()];
            group.all_gather(own.as_slice().into(), all.as_mut_slice().into())?;
            self.worst = all.chunks_exact(NUMBERS).filter_map(sample).collect();
            self.keep_worst();
        }
        Ok(())
    }

    /// Samples of each class, predictions of each class, and right predictions of each class; `None` if they were not counted.
    pub fn per_class(&self) -> Option<[&[i64]; 3]> {
        let of = |part: usize| &self.counts[part * self.classes..(part + 1) * self.classes];
        self.details.per_class.then(|| [of(0), of(1), of(2)])
    }

    /// For each class, the predictions of its samples by class, and last the outputs that are not a class. `None` with more than
    /// 1023 classes.
    pub fn matrix(&self) -> Option<impl Iterator<Item = &[i64]>> {
        let pairs = self.counts.get(3 * self.classes..).filter(|pairs| !pairs.is_empty())?;
        Some(pairs.chunks_exact(self.classes + 1))
    }

    /// The samples with the largest losses, in this order; of equal losses the first sample comes first.
    pub fn worst(&self) -> &[Judged] {
        &self.worst
    }

    /// Whether the outputs could be judged.
    pub(super) fn has_samples(&self) -> bool {
        !self.worst.is_empty() || self.counts.iter().any(|count| *count > 0)
    }
}

/// Exact: an index has fewer than 53 bits.
fn numbers(sample: &Judged) -> [f64; NUMBERS] {
    let Judged { index, label, predicted, probability, loss } = *sample;
    [index as f64, label as f64, predicted as f64, probability.into(), loss.into()]
}

fn sample(numbers: &[f64]) -> Option<Judged> {
    let [index, label, predicted, probability, loss] = *numbers else { return None };
    let (probability, loss) = (probability as f32, loss as f32);
    (!index.is_nan()).then_some(Judged {
        index: index as u64,
        label: label as usize,
        predicted: predicted as usize,
        probability,
        loss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::{SoloGroup, spawn};
    use proptest::prelude::*;

    fn facts(classes: usize) -> FieldFacts {
        FieldFacts { shape: Vec::new(), kind: FieldKind::Index(classes) }
    }

    /// Every rank's result, with the samples distributed as in an evaluation, in batches of three.
    fn tallies(samples: &[Judged], classes: usize, details: Details, world: usize) -> Vec<Tally> {
        let of = |rank: usize, group: &dyn ProcessGroup| {
            let mut tally = Tally::new(details, &facts(classes)).unwrap();
            let own: Vec<Judged> = samples.iter().skip(rank).step_by(world).copied().collect();
            own.chunks(3).for_each(|batch| tally.add(batch));
            tally.all_reduce(group).unwrap();
            tally
        };
        if world == 1 {
            return vec![of(0, &SoloGroup::default())];
        }
        spawn(world, |group| Ok(of(group.rank(), &*group))).unwrap()
    }

    fn samples(classes: usize) -> impl Strategy<Value = Vec<Judged>> {
        // Few losses, so that there are ties; one output more than classes.
        let losses = prop_oneof![Just(0.5_f32), Just(1.0), Just(f32::INFINITY), Just(f32::NAN)];
        let one = (0..classes, 0..classes + 1, losses);
        proptest::collection::vec(one, 0..40).prop_map(|all| {
            let judged = |(index, (label, predicted, loss)): (usize, (usize, usize, f32))| Judged {
                index: index as u64,
                label,
                predicted,
                probability: 0.25,
                loss,
            };
            all.into_iter().enumerate().map(judged).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn counts_and_samples_are_those_of_a_direct_count_at_every_world_size(all in samples(4)) {
            let mut matrix = vec![vec![0; 5]; 4];
            all.iter().for_each(|one| matrix[one.label][one.predicted] += 1);
            let mut worst = all.clone();
            worst.sort_by(Judged::worse);
            worst.truncate(3);
            let worst: Vec<u64> = worst.iter().map(|one| one.index).collect();
            for world in 1..=4 {
                for tally in tallies(&all, 4, Details { per_class: true, samples: 3 }, world) {
                    prop_assert_eq!(tally.matrix().unwrap().map(<[i64]>::to_vec).collect::<Vec<_>>(), matrix.clone());
                    let support: Vec<i64> = matrix.iter().map(|row| row.iter().sum()).collect();
                    let predicted: Vec<i64> = (0..4).map(|class| matrix.iter().map(|row| row[class]).sum()).collect();
                    let right: Vec<i64> = (0..4).map(|class| matrix[class][class]).collect();
                    let expected = [support, predicted, right];
                    prop_assert_eq!(tally.per_class().unwrap().map(<[i64]>::to_vec), expected);
                    let found: Vec<u64> = tally.worst().iter().map(|one| one.index).collect();
                    prop_assert_eq!(&found, &worst);
                }
            }
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_kept() {
        let one = Judged { index: 0, label: 1, predicted: 2, probability: 0.5, loss: 1.0 };
        for world in [1, 2] {
            let counted = &tallies(&[one], 3, Details { per_class: true, samples: 0 }, world)[0];
            assert!(counted.worst().is_empty() && counted.per_class().is_some());
            let kept = &tallies(&[one], 3, Details { per_class: false, samples: 2 }, world)[0];
            assert_eq!((kept.worst(), kept.per_class(), kept.matrix().is_none()), (&[one][..], None, true));
            // Without a matrix.
            let many = &tallies(&[one], 5000, Details { per_class: true, samples: 0 }, world)[0];
            assert!(many.matrix().is_none() && many.per_class().unwrap()[1][2] == 1);
        }
        let all = Details { per_class: true, samples: 1 };
        assert!(Tally::new(Details::default(), &facts(3)).is_none());
        assert!(Tally::new(all, &FieldFacts { shape: vec![8], kind: FieldKind::Index(3) }).is_none());
        assert!(Tally::new(all, &FieldFacts { shape: vec![], kind: FieldKind::Float }).is_none());
    }

    #[test]
    fn only_the_worst_of_many_are_kept() {
        let of = |index: u64| Judged {
            index,
            label: 0,
            predicted: 0,
            probability: 0.5,
            loss: ((index * 7919) % 5003) as f32,
        };
        let all: Vec<Judged> = (0..5003).map(of).collect();
        let tally = &tallies(&all, 2, Details { per_class: false, samples: 4 }, 3)[0];
        assert_eq!(
            tally.worst().iter().map(|one| one.loss).collect::<Vec<_>>(),
            [5002.0, 5001.0, 5000.0, 4999.0]
        );
    }
}
