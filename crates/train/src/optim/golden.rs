//! Twenty steps of every optimizer against references: PyTorch 2.15 in f64 for those that it has (parameters `cos(i)`,
//! gradients of `testing::gradient`, both rounded to f32 first), and scalar f64 code from the papers' formulas for the
//! others.

use super::testing::{gradient, plan, start, twenty_steps};

fn check(spec: &str, shape: &[usize], expected: &[f64]) {
    let plan = plan(spec);
    let got = twenty_steps(&*plan.optimizer, plan.lr, shape);
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(*got) - expected).abs();
        assert!(off < 3e-6, "{spec}\n{shape:?}: element {i} is {got}, expected {expected}");
    }
}

#[test]
fn optimizers_match_pytorch_for_twenty_steps() {
    #[rustfmt::skip]
    let cases: [(&str, &[usize], [f64; 6]); 22] = [
        ("name = \"sgd\"\nlr = 0.1", &[2, 3],
         [1.000793920, 0.607887343, -0.304317234, -0.884546383, -0.610404591, 0.232860068]),
        ("name = \"sgd\"\nlr = 0.1\nmomentum = 0.9\ndampening = 0.1\nweight_decay = 0.01", &[2, 3],
         [-1.306149449, -0.517980007, 0.597791973, 1.904884875, 2.879852697, 2.711947680]),
        ("name = \"sgd\"\nlr = 0.1\nmomentum = 0.9\nnesterov = true\nweight_decay = 0.01", &[2, 3],
         [-1.216588879, -0.311962841, 0.836162409, 2.050533588, 2.833118365, 2.463590013]),
        ("name = \"adam\"\nlr = 0.05\nweight_decay = 0.02", &[2, 3],
         [0.509059441, 0.233929838, -0.502095866, -0.822694614, -0.228387946, 0.673829483]),
        ("name = \"adam\"\nlr = 0.05\namsgrad = true", &[2, 3],
         [0.517107728, 0.237041424, -0.511793092, -0.840557685, -0.234339073, 0.679836872]),
        ("name = \"adamw\"\nlr = 0.05\nweight_decay = 0.1\nbetas = [0.8, 0.95]", &[2, 3],
         [0.611314667, 0.370441853, -0.359394358, -0.760151307, -0.322609993, 0.456673647]),
        ("name = \"rmsprop\"\nlr = 0.02\nweight_decay = 0.01", &[2, 3],
         [0.411806625, 0.267560969, -0.499716765, -0.849865641, -0.220938225, 0.675031695]),
        ("name = \"rmsprop\"\nlr = 0.02\nmomentum = 0.5\ncentered = true", &[2, 3],
         [-0.273626222, -0.004823002, -0.512662828, -0.606269923, 0.338487856, 1.128803681]),
        ("name = \"rmsprop\"\nlr = 0.02\nmomentum = 0.5", &[2, 3],
         [-0.243632675, 0.011356643, -0.505690294, -0.610951892, 0.311380064, 1.106345676]),
        ("name = \"rmsprop\"\nlr = 0.02\ncentered = true", &[2, 3],
         [0.395561480, 0.259245419, -0.511958685, -0.862162413, -0.205949809, 0.693969303]),
        ("name = \"adagrad\"\nlr = 0.05\nlr_decay = 0.01\ninitial_accumulator_value = 0.1\nweight_decay = 0.01", &[2, 3],
         [0.863612030, 0.463972942, -0.442317596, -0.953097004, -0.511707465, 0.390104017]),
        ("name = \"adadelta\"\nweight_decay = 0.01", &[2, 3],
         [0.997562145, 0.543850070, -0.411412843, -0.985277024, -0.649320162, 0.281137836]),
        ("name = \"adamax\"\nlr = 0.02\nweight_decay = 0.01", &[2, 3],
         [0.846082549, 0.426201616, -0.456823518, -0.957145846, -0.543027638, 0.420141745]),
        ("name = \"nadam\"\nlr = 0.02\nweight_decay = 0.01", &[2, 3],
         [0.938912923, 0.536242145, -0.390127573, -0.941690537, -0.594719991, 0.307723479]),
        ("name = \"nadam\"\nlr = 0.02\nweight_decay = 0.01\ndecoupled_weight_decay = true", &[2, 3],
         [0.937872471, 0.535792329, -0.389851660, -0.941208578, -0.593646998, 0.307074032]),
        ("name = \"radam\"\nlr = 0.02\nweight_decay = 0.01", &[2, 3],
         [0.941717198, 0.441304882, -0.512020307, -1.031938165, -0.612216855, 0.400411666]),
        ("name = \"radam\"\nlr = 0.02\nweight_decay = 0.01\ndecoupled_weight_decay = true", &[2, 3],
         [0.939077721, 0.440093318, -0.510549565, -1.028994469, -0.610463785, 0.399234999]),
        ("name = \"adafactor\"\nlr = 0.05\nweight_decay = 0.01", &[2, 3],
         [0.922731754, 0.522205729, -0.364605428, -0.986453269, -0.606344606, 0.310516204]),
        ("name = \"adafactor\"\nlr = 0.05\nweight_decay = 0.01", &[6],
         [0.936161252, 0.556123911, -0.379573026, -0.934747329, -0.590824890, 0.284622911]),
        ("name = \"adafactor\"\nlr = 0.05\nweight_decay = 0.01", &[1, 3, 2],
         [0.958429130, 0.541719338, -0.432493638, -0.919078355, -0.606286636, 0.320161037]),
        // PyTorch's Muon with its bf16 iteration computed in f64.
        ("name = \"muon\"\nlr = 0.02\nweight_decay = 0.1", &[2, 3],
         [0.923407823, 0.512751257, -0.365812065, -0.938507477, -0.602473599, 0.300046159]),
        ("name = \"muon\"\nlr = 0.02\nweight_decay = 0.1", &[3, 2],
         [0.934190302, 0.523965795, -0.415720984, -0.912084986, -0.596595293, 0.280399141]),
    ];
    for (spec, shape, expected) in cases {
        check(spec, shape, &expected);
    }
}

/// Twenty steps in f64; `step(t, params, gradients)` updates the parameters.
fn reference(mut step: impl FnMut(i32, &mut [f64; 6], [f64; 6])) -> [f64; 6] {
    let mut p: [f64; 6] = std::array::from_fn(|i| f64::from(start(i)));
    for t in 1..=20 {
        step(t, &mut p, std::array::from_fn(|i| f64::from(gradient(i, t as u64))));
    }
    p
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn lion_matches_its_paper() {
    let mut m = [0.0; 6];
    let expected = reference(|_, p, g| {
        for i in 0..6 {
            p[i] -= 0.01 * ((0.9 * m[i] + 0.1 * g[i]).signum() + 0.1 * p[i]);
            m[i] = 0.99 * m[i] + 0.01 * g[i];
        }
    });
    check("name = \"lion\"\nlr = 0.01\nweight_decay = 0.1", &[2, 3], &expected);
}

#[test]
fn lion_keeps_a_parameter_without_gradient() {
    let plan = plan("name = \"lion\"");
    let (mut p, mut m) = ([1.0f32, -2.0], [0.0f32; 2]);
    plan.optimizer.update(1, 0.1, 1.0, &[2], &mut p, &[0.0, -0.0], &mut [&mut m]);
    assert_eq!(p, [1.0, -2.0]);
}

#[test]
fn adan_matches_its_paper() {
    for no_prox in [false, true] {
        let [mut m, mut d, mut n, mut last] = [[0.0; 6]; 4];
        let expected = reference(|t, p, g| {
            for i in 0..6 {
                let diff = if t == 1 { 0.0 } else { g[i] - last[i] };
                m[i] = 0.98 * m[i] + 0.02 * g[i];
                d[i] = 0.92 * d[i] + 0.08 * diff;
                n[i] = 0.99 * n[i] + 0.01 * (g[i] + 0.92 * diff).powi(2);
                let (m, d) = (m[i] / (1.0 - 0.98f64.powi(t)), d[i] / (1.0 - 0.92f64.powi(t)));
                let step = 0.02 * (m + 0.92 * d) / ((n[i] / (1.0 - 0.99f64.powi(t))).sqrt() + 1e-8);
                let decay = 0.02 * 0.1;
                p[i] = if no_prox { p[i] * (1.0 - decay) - step } else { (p[i] - step) / (1.0 + decay) };
                last[i] = g[i];
            }
        });
        check(
            &format!("name = \"adan\"\nlr = 0.02\nweight_decay = 0.1\nno_prox = {no_prox}"),
            &[6],
            &expected,
        );
    }
}

#[test]
fn lamb_matches_its_paper() {
    let (mut m, mut v) = ([0.0; 6], [0.0; 6]);
    let expected = reference(|t, p, g| {
        let mut update = [0.0; 6];
        for i in 0..6 {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
            let (m, v) = (m[i] / (1.0 - 0.9f64.powi(t)), v[i] / (1.0 - 0.999f64.powi(t)));
            update[i] = m / (v.sqrt() + 1e-6) + 0.1 * p[i];
        }
        let ratio = norm(p) / norm(&update);
        for i in 0..6 {
            p[i] -= 0.01 * ratio * update[i];
        }
    });
    check("name = \"lamb\"\nlr = 0.01\nweight_decay = 0.1", &[2, 3], &expected);
}

#[test]
fn lars_scales_matrices_by_the_trust_ratio_and_leaves_vectors_alone() {
    for (shape, layered) in [(&[2usize, 3][..], true), (&[6][..], false)] {
        let mut m = [0.0; 6];
        let expected = reference(|_, p, g| {
            let ratio = if layered { 0.02 * norm(p) / (norm(&g) + 0.1 * norm(p) + 1e-8) } else { 1.0 };
            for i in 0..6 {
                m[i] = 0.9 * m[i] + 0.05 * ratio * (g[i] + 0.1 * p[i]);
                p[i] -= m[i];
            }
        });
        check("name = \"lars\"\nlr = 0.05\ntrust_coefficient = 0.02\nweight_decay = 0.1", shape, &expected);
    }
}

#[test]
fn decay_on_matrices_excludes_vectors() {
    let spec = "name = \"adamw\"\nlr = 0.1\nweight_decay = 0.5\ndecay = \"matrices\"";
    let plan = plan(spec);
    let optimizer = &plan.optimizer;
    let after = |shape: &[usize]| {
        let (mut p, mut m, mut v) = ([1.0f32; 4], [0.0f32; 4], [0.0f32; 4]);
        optimizer.update(1, plan.lr, 1.0, shape, &mut p, &[0.0; 4], &mut [&mut m, &mut v]);
        p[0]
    };
    assert_eq!(after(&[4]), 1.0);
    assert_eq!(after(&[2, 2]), 0.95);
}

#[test]
fn adafactor_and_muon_have_only_the_state_they_need() {
    let adafactor = plan("name = \"adafactor\"");
    assert_eq!(adafactor.rules()[0].state_len(&[64, 32]), 96);
    assert_eq!(adafactor.rules()[0].state_len(&[64]), 64);
    assert_eq!(adafactor.optimizer.slot_shape(0, &[8, 4, 3, 5]), [8, 4, 3, 1]);
    assert_eq!(adafactor.optimizer.slot_shape(1, &[8, 4, 3, 5]), [8, 4, 1, 5]);
    let muon = plan("name = \"muon\"");
    assert_eq!(muon.rules()[0].state_len(&[64, 32]), 2048);
    assert_eq!(muon.rules()[0].state_len(&[64]), 128);
    let sgd = plan("name = \"sgd\"");
    assert_eq!(sgd.rules()[0].state_len(&[64]), 0);
}
