//! Which gradient goes where: parameters in reverse order of registration (the order in which a backward pass
//! finishes them), packed into buckets. The layout is a pure function of the model and the caps: it must not
//! change between a run and its resumption, because the order of summation inside an all-reduce depends on it.

/// Bucket sizes in bytes. PyTorch's defaults are 1 MiB for the first bucket and 25 MiB for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCaps {
    pub first: usize,
    pub rest: usize,
}

/// Where one parameter's gradient lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub bucket: usize,
    /// In elements.
    pub offset: usize,
    pub len: usize,
}

/// The packing of all gradients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLayout {
    /// By parameter number; `None` for buffers and frozen parameters.
    pub slots: Vec<Option<Slot>>,
    /// Elements in each bucket.
    pub buckets: Vec<usize>,
}

impl BucketLayout {
    /// `sizes`: elements of each tensor of the model in registration order, `None` where it has no gradient.
    pub fn new(sizes: &[Option<usize>], caps: BucketCaps) -> Self {
        let mut slots = vec![None; sizes.len()];
        let mut buckets: Vec<usize> = Vec::new();
        for (parameter, len) in sizes.iter().enumerate().rev() {
            let Some(len) = *len else { continue };
            let cap = if buckets.len() <= 1 { caps.first } else { caps.rest } / size_of::<f32>();
            let full = buckets.last().is_none_or(|used| *used > 0 && used + len > cap);
            if full {
                buckets.push(0);
            }
            let bucket = buckets.len() - 1;
            slots[parameter] = Some(Slot { bucket, offset: buckets[bucket], len });
            buckets[bucket] += len;
        }
        Self { slots, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: BucketCaps = BucketCaps { first: 40, rest: 400 };

    #[test]
    fn the_last_parameters_fill_the_first_bucket() {
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
}
