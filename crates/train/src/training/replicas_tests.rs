use super::*;

fn found(digests: &[u128]) -> Divergence {
    let digests: Vec<Digest> = digests.iter().map(|digest| Digest(*digest)).collect();
    let names = ["parameter a", "parameter b"].map(str::to_owned);
    // The second tensor is the one that differs.
    let tensors: Vec<Vec<Digest>> = digests.iter().map(|digest| vec![Digest(0), *digest]).collect();
    Divergence::new(8, 4, &names, &tensors, digests)
}

#[test]
fn the_majority_names_the_wrong_ranks() {
    let one = found(&[7, 7, 9]);
    assert_eq!((one.ranks.as_slice(), one.tensor.as_str()), ([2].as_slice(), "parameter b"));
    assert_eq!(
        one.message(),
        "silent data corruption on rank 2: after step 8 its state differs from that of the other ranks, parameter b first \
         (all ranks agreed after step 4)"
    );
    assert_eq!(found(&[7, 7, 9, 8, 7]).ranks, [2, 3]);
    // Neither two ranks, nor two pairs, nor three states have one.
    for tied in [&[7, 9][..], &[7, 7, 9, 9], &[7, 8, 9]] {
        let tied = found(tied);
        assert_eq!(tied.ranks, [0usize; 0]);
        assert!(tied.message().contains("no state has a majority"), "{}", tied.message());
    }
}

#[test]
fn only_wrong_ranks_end_by_themselves() {
    let ends = |digests: &[u128]| {
        let found = found(digests);
        assert_eq!(found.error().kind, ErrorKind::Diverged);
        (0..digests.len()).map(|rank| found.concerns(rank)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&[7, 9, 7]), [false, true, false]);
    assert_eq!(ends(&[7, 9]), [true, true]);
}
