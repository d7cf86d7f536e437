use super::*;
use crate::models::Role;
use collectives::SoloGroup;
use data::HostField;

/// The samples with these numbers; each value is ten times the number.
fn batch(samples: &[u64]) -> HostBatch {
    let values = |factor: u64| samples.iter().map(|i| (factor * i) as f32).collect();
    HostBatch {
        len: samples.len(),
        input: HostField { shape: vec![1], data: FieldData::Float(values(10)) },
        target: HostField {
            shape: vec![],
            data: FieldData::Index(samples.iter().map(|i| *i as i64).collect()),
        },
        fields: std::collections::BTreeMap::default(),
        target_scale: 1.0,
        has_untrained: false,
        indices: samples.to_vec(),
        draws: Vec::new(),
    }
}

/// The sums of ranks whose micro-batches are these.
fn sums(ranks: &[&[&[u64]]]) -> Vec<(String, u128)> {
    let of_rank = |rank: usize| {
        let mut digests = InputDigests::default();
        ranks[rank].iter().for_each(|samples| digests.add(&batch(samples), rank, ranks.len()));
        digests.fields
    };
    let mut all = of_rank(0);
    for rank in 1..ranks.len() {
        for ((_, sum), (_, more)) in all.iter_mut().zip(of_rank(rank)) {
            *sum = sum.wrapping_add(more);
        }
    }
    all
}

#[test]
fn inputs_have_the_same_digest_with_any_number_of_ranks() {
    let one = sums(&[&[&[5, 1, 4, 2]]]);
    assert_eq!(one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["index", "input", "target"]);
    // The sampler gives every second sample to the second of two ranks.
    assert_eq!(sums(&[&[&[5, 4]], &[&[1, 2]]]), one);
    assert_eq!(sums(&[&[&[5], &[4]], &[&[1], &[2]]]), one);
    // The order counts, and so does each value.
    assert_ne!(sums(&[&[&[1, 5, 4, 2]]]), one);
    assert_ne!(sums(&[&[&[5, 1, 4, 3]]]), one);
}

#[test]
fn digests_of_one_rank_are_its_own() {
    let own = [Digest(3), Digest(u128::MAX)];
    assert_eq!(gathered(&own, &SoloGroup::default()).unwrap(), [own.to_vec()]);
    assert_eq!(gathered(&[], &SoloGroup::default()).unwrap(), [vec![]]);
}

#[test]
fn arrays_are_digested_as_the_state_dict_has_them() {
    let entry = |layout| StateEntry {
        name: "fc.weight".to_owned(),
        shape: vec![2, 3],
        role: Role::Parameter,
        layout,
        aliases: Vec::new(),
    };
    let module = [0.0f32, 3.0, 1.0, 4.0, 2.0, 5.0];
    let dict = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    assert_eq!(of_array(&entry(Layout::Transposed), &module), of_array(&entry(Layout::Same), &dict));
    // One bit, and another sign of zero.
    for (at, bits) in [(5, 5.0f32.to_bits() ^ 1), (0, (-0.0f32).to_bits())] {
        let mut other = dict;
        other[at] = f32::from_bits(bits);
        assert_ne!(of_array(&entry(Layout::Same), &other), of_array(&entry(Layout::Same), &dict));
    }
}
