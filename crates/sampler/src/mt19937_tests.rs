use super::*;
use crate::testing::sha256_of_indices;
use base::testing::torch_ref;

#[test]
fn small_vectors_of_torch() {
    assert_eq!(randperm(3, 0), [2, 0, 1]);
    assert_eq!(randperm(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
    let parts = random_split(10, &lengths_of(10, &[0.34, 0.33, 0.33]), 0);
    assert_eq!(parts, [vec![4, 1, 7, 5], vec![3, 9, 0], vec![8, 6, 2]]);
}

#[test]
fn both_paths_of_randperm_are_permutations() {
    for n in [0usize, 1, 2, 1000] {
        let mut perm = randperm(n, 7);
        perm.sort_unstable();
        assert!(perm.iter().copied().eq(0..n as u64));
    }
    assert_eq!(
        Mt19937::new(5).randperm(100, |i| i as u32),
        randperm(100, 5).iter().map(|&i| i as u32).collect::<Vec<_>>()
    );
}

#[test]
fn randperm_equals_torch() {
    let Some(reference) = torch_ref("randperm.json") else { return };
    let cases = reference["cases"].as_array().unwrap();
    assert!(cases.len() >= 23);
    for case in cases {
        let (seed, n) = (case["seed"].as_u64().unwrap(), case["n"].as_u64().unwrap() as usize);
        let perm = randperm(n, seed);
        assert_eq!(
            sha256_of_indices(perm.iter().copied()),
            case["sha256"].as_str().unwrap(),
            "seed {seed}, n {n}"
        );
        if let Some(expected) = case["perm"].as_array() {
            assert!(expected.iter().map(|v| v.as_u64().unwrap()).eq(perm));
        }
    }
}

/// The lengths that torch's `random_split` uses for fractions: rounded down, then one more for each part in turn until
/// all samples are used.
fn lengths_of(n: usize, fractions: &[f64]) -> Vec<usize> {
    let mut lengths: Vec<usize> = fractions.iter().map(|f| (n as f64 * f) as usize).collect();
    let (left, parts) = (n - lengths.iter().sum::<usize>(), lengths.len());
    (0..left).for_each(|i| lengths[i % parts] += 1);
    lengths
}

#[test]
fn random_split_equals_torch() {
    let Some(reference) = torch_ref("random_split.json") else { return };
    for case in reference["cases"].as_array().unwrap() {
        let (seed, n) = (case["seed"].as_u64().unwrap(), case["n"].as_u64().unwrap() as usize);
        let given: Vec<f64> =
            case["lengths"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect();
        let lengths = match given.iter().sum::<f64>() > 1.5 {
            true => given.iter().map(|l| *l as usize).collect(),
            false => lengths_of(n, &given),
        };
        let parts = random_split(n, &lengths, seed);
        if let Some(expected) = case["parts"].as_array() {
            assert_eq!(serde_json::to_value(&parts).unwrap(), serde_json::Value::Array(expected.clone()));
            continue;
        }
        for (part, name) in parts.iter().zip(["train", "val"]) {
            assert_eq!(part.len() as u64, case[name]["len"].as_u64().unwrap());
            assert_eq!(
                sha256_of_indices(part.iter().copied()),
                case[name]["sha256"].as_str().unwrap(),
                "{name}"
            );
        }
    }
    let mut generator = Mt19937::new(42);
    for expected in reference["consecutive_randperm11_seed42"].as_array().unwrap() {
        assert_eq!(&serde_json::to_value(generator.randperm(11, |i| i)).unwrap(), expected);
    }
}
