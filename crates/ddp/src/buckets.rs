//! Packs gradients into buckets, in the order in which the backward pass produces them. The order is learnt in the
//! first optimizer step (until then it is the reverse of registration) and is part of the run's position: a resumed run
//! must use the same one, because the order of summation in an all-reduce depends on it.

/// Bucket sizes in bytes. PyTorch's defaults are 1 MiB for the first bucket and 25 MiB for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCaps {
    /// Capacity of the first bucket.
    pub first: usize,
    /// Capacity of the others.
    pub rest: usize,
}

/// Position of one parameter's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the bucket that contains it.
    pub bucket: usize,
    /// In elements.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

/// The layout of all gradients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLayout {
    /// By parameter number; `None` for buffers and frozen parameters.
    pub slots: Vec<Option<Slot>>,
    /// Elements in each bucket.
    pub buckets: Vec<usize>,
    caps: BucketCaps,
}

impl BucketLayout {
    /// `sizes`: elements of each tensor of the model in registration order, `None` if it has no gradient. Tensors are
    /// packed in reverse order.
    pub fn new(sizes: &[Option<usize>], caps: BucketCaps) -> Self {
        Self::packed(sizes, (0..sizes.len()).rev(), caps)
    }

    /// Packs the parameters of `order` first, in this order, then the remaining ones in reverse registration order.
    pub fn in_order(sizes: &[Option<usize>], order: &[usize], caps: BucketCaps) -> Self {
        Self::packed(sizes, order.iter().copied().chain((0..sizes.len()).rev()), caps)
    }

    /// The same gradients in another order; see [`BucketLayout::in_order`].
    pub(crate) fn reordered(&self, order: &[usize]) -> Self {
        let sizes: Vec<Option<usize>> = self.slots.iter().map(|slot| slot.map(|s| s.len)).collect();
        Self::in_order(&sizes, order, self.caps)
    }

    /// Each gradient in a bucket of its own, in the same order. (Empty ones share their neighbour's.)
    pub(crate) fn apart(&self) -> Self {
        Self { caps: BucketCaps { first: 0, rest: 0 }, ..self.clone() }.reordered(&self.order())
    }

    /// Packs each parameter at its first occurrence in `order`; unknown numbers are ignored.
    fn packed(sizes: &[Option<usize>], order: impl Iterator<Item = usize>, caps: BucketCaps) -> Self {
        let mut slots = vec![None; sizes.len()];
        let mut buckets: Vec<usize> = Vec::new();
        for parameter in order {
            let Some(len) = sizes.get(parameter).copied().flatten() else { continue };
            if slots[parameter].is_some() {
                continue;
            }
            let cap = if buckets.len() <= 1 { caps.first } else { caps.rest } / size_of::<f32>();
            let full = buckets.last().is_none_or(|used| *used > 0 && used.saturating_add(len) > cap);
            if full {
                buckets.push(0);
            }
            let bucket = buckets.len() - 1;
            slots[parameter] = Some(Slot { bucket, offset: buckets[bucket], len });
            buckets[bucket] += len;
        }
        Self { slots, buckets, caps }
    }

    /// The parameter numbers in packing order.
    pub fn order(&self) -> Vec<usize> {
        let place = |parameter: &usize| self.slots[*parameter].map(|s| (s.bucket, s.offset));
        let mut order: Vec<usize> = (0..self.slots.len()).filter(|p| self.slots[*p].is_some()).collect();
        // Empty parameters have the same position as their neighbour; their number makes the order total.
        order.sort_by_key(|p| (place(p), *p));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: BucketCaps = BucketCaps { first: 40, rest: 400 };

    #[test]
    fn the_last_parameters_are_in_the_first_bucket() {
        let layout = BucketLayout::new(&[Some(50), None, Some(40), Some(6), Some(4)], CAPS);
        assert_eq!(layout.buckets, vec![10, 90]);
        assert_eq!(layout.slots[4], Some(Slot { bucket: 0, offset: 0, len: 4 }));
        assert_eq!(layout.slots[3], Some(Slot { bucket: 0, offset: 4, len: 6 }));
        assert_eq!(layout.slots[0], Some(Slot { bucket: 1, offset: 40, len: 50 }));
        assert_eq!(layout.slots[1], None);
    }

    #[test]
    fn a_parameter_larger_than_the_cap_gets_a_bucket_of_its_own() {
        let layout = BucketLayout::new(&[Some(1), Some(1000), Some(1)], CAPS);
        assert_eq!(layout.buckets, vec![1, 1000, 1]);
    }

    #[test]
    fn gradients_can_have_a_bucket_each() {
        let layout = BucketLayout::in_order(&[Some(5), None, Some(4), Some(6)], &[2, 3], CAPS);
        let apart = layout.apart();
        assert_eq!((layout.buckets.len(), &apart.buckets), (2, &vec![4, 6, 5]));
        assert_eq!(apart.order(), layout.order());
        assert!(apart.slots.iter().flatten().all(|slot| slot.offset == 0));
    }

    #[test]
    fn buckets_follow_the_order_and_other_parameters_come_last() {
        let sizes = [Some(50), None, Some(40), Some(6), Some(4)];
        let layout = BucketLayout::in_order(&sizes, &[3, 0], CAPS);
        assert_eq!((layout.buckets.clone(), layout.order()), (vec![6, 94], vec![3, 0, 4, 2]));
        assert_eq!(layout.slots[0], Some(Slot { bucket: 1, offset: 0, len: 50 }));
        assert_eq!(layout.slots[1], None);
        assert_eq!(layout.reordered(&[4, 3, 2, 0]), BucketLayout::new(&sizes, CAPS));
        assert_eq!(BucketLayout::new(&sizes, CAPS).order(), [4, 3, 2, 0]);
        // An order from another model: every parameter still gets one position.
        let odd = BucketLayout::in_order(&sizes, &[9, 1, 3, 3], CAPS);
        assert_eq!(odd.order(), [3, 4, 2, 0]);
    }
}
