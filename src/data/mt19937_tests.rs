use super::*;
use crate::data::testing::{sha256_of_indices, torch_ref};

#[test]
fn small_vectors_of_torch() {
    assert_eq!(randperm(3, 0), [2, 0, 1]);
    assert_eq!(randperm(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
    let mut generator = Mt19937::new(42);
    assert_eq!(generator.rand().to_bits(), 1_063_378_022);
    assert_eq!(generator.rand().to_bits(), 1_063_927_219);
    let parts = random_split(10, &split_lengths(10, &[0.34, 0.33, 0.33]), 0).unwrap();
    assert_eq!(parts, [vec![4, 1, 7, 5], vec![3, 9, 0], vec![8, 6, 2]]);
    assert!(random_split(10, &[4, 4], 0).is_none());
}

#[test]
fn both_paths_of_randperm_are_permutations() {
    for n in [0usize, 1, 2, 1000] {
        let mut perm = randperm(n, 7);
        perm.sort_unstable();
        assert!(perm.iter().copied().eq(0..n as u64));
    }
    assert_eq!(
        Mt19937::new(5).randperm_u32(100),
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

#[test]
fn random_split_equals_torch() {
    let Some(reference) = torch_ref("random_split.json") else { return };
    for case in reference["cases"].as_array().unwrap() {
        let (seed, n) = (case["seed"].as_u64().unwrap(), case["n"].as_u64().unwrap() as usize);
        let given = case["lengths"].as_array().unwrap();
        let lengths: Vec<usize> = if given.iter().all(|l| l.is_u64()) {
            given.iter().map(|l| l.as_u64().unwrap() as usize).collect()
        } else {
            split_lengths(n, &given.iter().map(|l| l.as_f64().unwrap()).collect::<Vec<_>>())
        };
        let parts = random_split(n, &lengths, seed).unwrap();
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
        assert_eq!(&serde_json::to_value(generator.randperm(11)).unwrap(), expected);
    }
}

fn bits(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn to_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn streams_equal_torch_bit_for_bit() {
    let Some(reference) = torch_ref("rng_streams.json") else { return };
    for case in reference["cases"].as_array().unwrap() {
        let seed = case["seed"].as_u64().unwrap();
        let fresh = || Mt19937::new(seed);
        let mut out = vec![0.0; 20];
        fresh().uniform(&mut out, 0.0, 1.0);
        assert_eq!(to_bits(&out), bits(&case["rand20_bits"]), "rand, seed {seed}");
        let mut generator = fresh();
        for expected in case["rand64_f64"].as_array().unwrap() {
            assert_eq!(generator.rand_f64(), expected.as_f64().unwrap());
        }
        fresh().uniform(&mut out, -1.0, 1.0);
        let expected: Vec<f32> =
            case["uniform_m1_1"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        assert_eq!(to_bits(&out), to_bits(&expected), "uniform, seed {seed}");
        for n in [15usize, 16, 17] {
            let mut out = vec![0.0; n];
            fresh().randn(&mut out);
            assert_eq!(to_bits(&out), bits(&case[format!("randn{n}_bits")]), "randn{n}, seed {seed}");
        }
        let mut out = vec![0.0; 100];
        fresh().randn(&mut out);
        let expected: Vec<f32> =
            case["randn100"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
        assert_eq!(to_bits(&out), to_bits(&expected), "randn100, seed {seed}");
        let mut coins = vec![false; 32];
        fresh().bernoulli(&mut coins, 0.3);
        let expected: Vec<bool> =
            case["bernoulli_p3"].as_array().unwrap().iter().map(|v| v.as_f64() == Some(1.0)).collect();
        assert_eq!(coins, expected, "bernoulli, seed {seed}");
        let (weight, bias) = fresh().linear_default(20, 1);
        assert_eq!(to_bits(&weight), bits(&case["linear_20_1"]["weight_bits"][0]), "weight, seed {seed}");
        assert_eq!(to_bits(&bias), bits(&case["linear_20_1"]["bias_bits"]), "bias, seed {seed}");
    }
}
