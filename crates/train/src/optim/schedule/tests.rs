//! Golden values from PyTorch 2.15 (base rate 0.1, ten calls), and tests of units and lengths, which PyTorch does not have.

use super::*;
use crate::optim::testing::{read, schedule, scheduler};

/// The rates of steps `0..n` with `per_epoch` steps per epoch and base rate 0.1.
fn rates(text: &str, n: u64, per_epoch: u64, total: u64) -> Vec<f64> {
    let schedule = schedule(text);
    (0..n).map(|step| schedule.lr(0.1, step, per_epoch, total)).collect()
}

fn close(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() < 1e-11, "{what}: {got} at {i}, expected {expected}");
    }
}

#[rustfmt::skip]
const GOLDEN: [(&str, [f64; 10]); 10] = [
    ("name = \"step\"\nstep_size = 3\ngamma = 0.5",
     [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125]),
    ("name = \"multistep\"\nmilestones = [2, 5, 5]",
     [0.1, 0.1, 0.01, 0.01, 0.01, 0.0001, 0.0001, 0.0001, 0.0001, 0.0001]),
    ("name = \"exponential\"\ngamma = 0.9",
     [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721, 0.0387420489]),
    ("name = \"cosine\"\nt_max = 6\neta_min = 0.01",
     [0.1, 0.09397114317, 0.0775, 0.055, 0.0325, 0.01602885683, 0.01, 0.01602885683, 0.0325, 0.055]),
    ("name = \"cosine-restarts\"\nt_0 = 2\nt_mult = 2\neta_min = 0.01",
     [0.1, 0.055, 0.1, 0.086819805153, 0.055, 0.023180194847, 0.1, 0.096574578963, 0.086819805153, 0.072220754456]),
    ("name = \"linear\"\nstart_factor = 0.25\ntotal_iters = 4",
     [0.025, 0.04375, 0.0625, 0.08125, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
    ("name = \"polynomial\"\ntotal_iters = 5\npower = 2",
     [0.1, 0.064, 0.036, 0.016, 0.004, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("name = \"one-cycle\"\nunit = \"step\"",
     [0.004, 0.052, 0.1, 0.095048463201, 0.081174565395, 0.061126202194, 0.038874197806, 0.018825834605, 0.004951936799, 4e-07]),
    ("name = \"one-cycle\"\nmax_lr = 0.4\npct_start = 0.25\nanneal = \"linear\"\ndiv_factor = 10\nfinal_div_factor = 100",
     [0.04, 0.28, 0.37336, 0.32008, 0.2668, 0.21352, 0.16024, 0.10696, 0.05368, 0.0004]),
    ("name = \"constant\"", [0.1; 10]),
];

#[test]
fn every_schedule_matches_pytorch_per_epoch_and_per_step() {
    for (table, expected) in GOLDEN {
        let unit = if table.contains("unit") { "" } else { "unit = \"step\"" };
        let per_step = rates(&format!("[scheduler]\n{table}\n{unit}"), 10, 4, 10);
        close(&per_step, &expected, table);

        let unit = "unit = \"epoch\"";
        let table = table.replace("unit = \"step\"", "");
        let per_epoch = rates(&format!("[scheduler]\n{table}\n{unit}"), 40, 4, 40);
        let stretched: Vec<f64> = expected.iter().flat_map(|x| [*x; 4]).collect();
        close(&per_epoch, &stretched, &table);
    }
}

#[test]
fn a_chain_matches_sequential_lr() {
    let text = "[[scheduler]]\nname = \"warmup\"\nunit = \"epoch\"\nepochs = 3\n\
                [[scheduler]]\nname = \"step\"\nstep_size = 2\ngamma = 0.5\nepochs = 4\n\
                [[scheduler]]\nname = \"exponential\"\ngamma = 0.9";
    let expected = [0.001, 0.034, 0.067, 0.1, 0.1, 0.05, 0.05, 0.1, 0.09, 0.081];
    close(&rates(text, 10, 1, 10), &expected, "one step an epoch");
    let stretched: Vec<f64> = expected.iter().flat_map(|x| [*x; 7]).collect();
    close(&rates(text, 70, 7, 70), &stretched, "seven steps an epoch");
}

#[test]
fn cosine_spans_the_rest_of_the_run_after_its_warmup() {
    let text =
        "[scheduler]\nname = \"cosine\"\nunit = \"step\"\nwarmup_steps = 10\nwarmup_start_factor = 0.1";
    let got = rates(text, 100, 10, 100);
    assert!((got[0] - 0.01).abs() < 1e-12 && (got[5] - 0.055).abs() < 1e-12);
    assert_eq!(got[10], 0.1);
    assert!((got[55] - 0.05).abs() < 1e-12, "half way down at {}", got[55]);
    assert!(got[99] > 0.0 && got[99] < 1e-4);
}

#[test]
fn an_epoch_schedule_changes_at_epoch_boundaries_even_after_a_warmup_in_steps() {
    let text = "[scheduler]\nname = \"exponential\"\ngamma = 0.5\nwarmup_steps = 15";
    let got = rates(text, 40, 10, 40);
    assert_eq!(&got[15..20], &[0.1; 5]);
    assert_eq!(&got[20..30], &[0.05; 10]);
    assert_eq!(&got[30..40], &[0.025; 10]);
}

#[test]
fn noam_and_inverse_sqrt_peak_at_the_end_of_their_warmup() {
    let noam = rates("[scheduler]\nname = \"noam\"\nd_model = 256\nwarmup_steps = 4", 17, 5, 17);
    assert!((noam[0] - 0.1 / 16.0 / 8.0).abs() < 1e-12);
    assert!((noam[3] - 0.1 / 16.0 / 2.0).abs() < 1e-12);
    assert!((noam[15] - 0.1 / 16.0 / 4.0).abs() < 1e-12);
    let inverse = rates("[scheduler]\nname = \"inverse-sqrt\"\nwarmup_steps = 4", 17, 5, 17);
    assert!((inverse[0] - 0.025).abs() < 1e-12 && inverse[3] == 0.1 && (inverse[15] - 0.05).abs() < 1e-12);
}

#[test]
fn unusual_lengths_give_finite_rates() {
    for (table, _) in GOLDEN {
        let schedule = schedule(&format!("[scheduler]\n{table}"));
        for (step, per_epoch, total) in [(0, 0, 0), (0, 1, 1), (5, 1, 1), (u64::MAX, 1, 10), (7, 100, 3)] {
            let lr = schedule.lr(0.1, step, per_epoch, total);
            assert!(lr.is_finite() && lr >= 0.0, "{table}: {lr} at {step} of {total}");
        }
    }
}

#[test]
fn is_constant_by_default_and_reports_mistakes() {
    assert_eq!(schedule(""), Schedule::constant());
    for (text, part) in [
        ("[scheduler]\nname = \"cosin\"", "did you mean \"cosine\""),
        ("[scheduler]\ngamma = 0.1", "missing key `name`"),
        ("[scheduler]\nname = \"step\"", "missing key `step_size`"),
        ("[scheduler]\nname = \"warmup\"", "needs its length"),
        ("[scheduler]\nname = \"cosine\"\nepochs = 1\nsteps = 2", "not both"),
        ("[scheduler]\nname = \"cosine\"\nwarmup_start_factor = 0.1", "has no effect"),
        ("[scheduler]\nname = \"cosine\"\ntmax = 3", "did you mean `t_max`"),
        ("[[scheduler]]\nname = \"cosine\"\n[[scheduler]]\nname = \"constant\"", "unreachable"),
    ] {
        let (_, problems) = read(text, scheduler);
        assert!(problems.contains(part), "{text}\n{part} is missing in:\n{problems}");
    }
}

#[test]
fn serialises_with_the_keys_of_the_spec() {
    let schedule = schedule("[scheduler]\nname = \"cosine\"\nwarmup_epochs = 2");
    assert_eq!(
        serde_json::to_string(&schedule).unwrap(),
        r#"[{"name":"warmup","start_factor":0.01,"unit":"step","length":{"epochs":2}},{"name":"cosine","t_max":null,"eta_min":0.0,"unit":"epoch"}]"#
    );
}

#[test]
fn a_schedule_that_does_not_depend_on_the_length_has_the_same_rates_in_a_longer_run() {
    let free = [
        "[scheduler]\nname = \"constant\"",
        "[scheduler]\nname = \"step\"\nstep_size = 3\ngamma = 0.5",
        "[scheduler]\nname = \"multistep\"\nmilestones = [2, 5]",
        "[scheduler]\nname = \"exponential\"\ngamma = 0.9",
        "[scheduler]\nname = \"cosine-restarts\"\nt_0 = 2\nt_mult = 2",
        "[scheduler]\nname = \"noam\"\nd_model = 8\nwarmup_steps = 4",
        "[scheduler]\nname = \"inverse-sqrt\"\nwarmup_steps = 4",
        "[[scheduler]]\nname = \"warmup\"\nsteps = 5\n[[scheduler]]\nname = \"constant\"",
        "[[scheduler]]\nname = \"cosine\"\nsteps = 7\n[[scheduler]]\nname = \"constant\"",
    ];
    for text in free {
        assert_eq!(schedule(text).depends_on_length(), None, "{text}");
        assert_eq!(rates(text, 20, 4, 20), rates(text, 20, 4, 100), "{text}");
    }
    for name in ["cosine", "linear", "polynomial", "one-cycle"] {
        let text = format!("[scheduler]\nname = \"{name}\"\nunit = \"step\"");
        assert_eq!(schedule(&text).depends_on_length(), Some(name));
    }
}

#[test]
fn schedules_of_a_chain_have_their_steps() {
    let chain = schedule(
        "[[scheduler]]\nname = \"warmup\"\nepochs = 2\n[[scheduler]]\nname = \"constant\"\nsteps = 5\n[[scheduler]]\nname = \"cosine\"",
    );
    let of =
        |per_epoch, total| chain.lengths(per_epoch, total).into_iter().map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!(chain.lengths(Some(4), Some(40))[0], ("warmup", Some(8)));
    assert_eq!(of(Some(4), Some(40)), [Some(8), Some(5), Some(27)]);
    assert_eq!(of(Some(4), Some(10)), [Some(8), Some(2), Some(0)], "the run is shorter");
    assert_eq!(of(None, None), [None, Some(5), None]);
    assert_eq!(Schedule::constant().lengths(Some(4), Some(40)), [("constant", Some(40))]);
}
