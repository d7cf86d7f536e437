use super::cluster::{Cluster, Measured};
use super::fit::Fit;
use super::measured::{Allreduce, AllreduceRow, Step, Steps};
use super::predict::Forecast;
use super::*;
use ::job::plan::testing::resolved;
use collectives::DType;
use collectives::gloo::{AlgorithmChoice, Transport};
use proptest::prelude::*;

/// One bucket of 256 KiB and more of gradients; 8 samples in a step.
const SPEC: &str = "name = \"a\"\nbatch_size = 8\nepochs = 2\nsave_every = 1\n[model]\nname = \"mlp\"\nhidden = [64]\n[dataset]\n\
                    name = \"shapes\"\ntrain = 64\nval = 32\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n[launch]\nthreads = 1\n";

fn plan(sets: &[&str], world: usize) -> Plan {
    resolved(&::job::Registry::standard(), SPEC, sets, world).unwrap()
}

/// A step of 100 ms: 10 of data, 20 forward, 60 backward, 10 update.
fn step(world: usize) -> Step {
    Step {
        world,
        threads: 1,
        samples: 8.0,
        data: 0.01,
        forward: 0.02,
        backward: 0.06,
        update: 0.01,
        spread: None,
    }
}

fn cluster(nodes: usize, each: usize, cores: Option<usize>) -> Cluster {
    let link = |alpha| Measured { files: Vec::new(), given: Some(Fit { alpha, per_byte: 1e-9 }) };
    Cluster {
        name: "test".into(),
        nodes,
        processes_per_node: each,
        cores,
        communication_cores: 1.0,
        slowdown: None,
        spread: None,
        price_per_hour: Some(36.0),
        currency: "EUR".into(),
        within: link(1e-3),
        between: link(2e-3),
        steps: Steps {
            rows: vec![step(1)],
            device: "cpu".into(),
            undivided: false,
            saves: None,
            of_run: false,
            source: "a.toml".into(),
            warnings: Vec::new(),
            cores: None,
        },
        write: Some(1e7),
        copy: Some(1e8),
    }
}

fn predicted(cluster: &Cluster, worlds: &[usize], sets: &[&str]) -> Prediction {
    predict(cluster, worlds, &|world| Ok(plan(sets, world))).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

#[test]
fn a_step_is_the_measured_one_and_what_it_waits_for() {
    let cluster = cluster(1, 4, Some(8));
    let bytes = plan(&[], 2).bucket_bytes().unwrap();
    assert_eq!(bytes.len(), 1, "the closed form below is of one bucket");
    let rows = predicted(&cluster, &[1, 2], &[]).rows;
    assert!(
        close(rows[0].step_s, 0.1) && rows[0].exposed_s == 0.0 && close(rows[0].efficiency, 1.0),
        "{rows:?}"
    );
    // In shared memory: one message and each byte twice; the sums of the step are a message of 64 bytes.
    let exposed = 1e-3 + 2.0 * bytes[0] as f64 * 1e-9 + 1e-3 + 2.0 * 64.0 * 1e-9;
    assert!(close(rows[1].exposed_s, exposed) && close(rows[1].communication_s, exposed), "{rows:?}");
    assert!(close(rows[1].step_s, 0.1 + exposed) && close(rows[1].samples_per_s, 16.0 / (0.1 + exposed)));
    assert!(close(rows[1].efficiency, 0.1 / (0.1 + exposed)), "{rows:?}");
}

#[test]
fn small_buckets_hide_behind_the_backward_pass() {
    let cluster = cluster(1, 4, Some(8));
    let whole = predicted(&cluster, &[2], &[]);
    let sets = ["distributed.first_bucket_mb=0.05", "distributed.bucket_cap_mb=0.05"];
    let split = predicted(&cluster, &[2], &sets);
    // More messages, of which some are hidden.
    assert!(split.rows[0].communication_s > whole.rows[0].communication_s, "{split:?}");
    assert!(split.rows[0].exposed_s < split.rows[0].communication_s, "{split:?}");
    let half = predicted(&cluster, &[2], &["distributed.comm_hook=bf16"]);
    assert!(half.rows[0].communication_s < whole.rows[0].communication_s, "{half:?}");
}

#[test]
fn processes_beyond_the_cores_take_turns() {
    let rows = predicted(&cluster(1, 8, Some(2)), &[1, 2, 4, 8], &[]).rows;
    for (row, turns) in rows.iter().zip([1.0, 1.0, 2.0, 4.0]) {
        assert!(close(row.step_s - row.exposed_s, 0.1 * turns), "{row:?}");
        assert!(row.efficiency <= 1.0 / turns + 1e-9, "{row:?}");
    }
    // On devices, cores are nobody's limit.
    let mut devices = cluster(1, 8, Some(2));
    devices.steps.device = "cuda:0".into();
    let rows = predicted(&devices, &[8], &[]).rows;
    assert!(close(rows[0].step_s - rows[0].exposed_s, 0.1), "{rows:?}");
}

#[test]
fn full_nodes_compute_more_slowly() {
    let mut given = cluster(1, 8, Some(4));
    given.slowdown = Some(1.3);
    let compute = |cluster: &Cluster, world: usize| {
        let row = &predicted(cluster, &[world], &[]).rows[0];
        row.step_s - row.exposed_s
    };
    // One of three other cores is busy, then all.
    assert!(
        close(compute(&given, 2), 0.11) && close(compute(&given, 4), 0.13) && close(compute(&given, 8), 0.26)
    );
    // The same from a measurement of more processes.
    let mut measured = cluster(1, 8, Some(4));
    let slow = |seconds: f64| seconds * 1.3;
    let four = step(4);
    measured.steps.rows.push(Step {
        data: slow(four.data),
        forward: slow(four.forward),
        backward: slow(four.backward),
        update: slow(four.update),
        ..four
    });
    assert!(close(compute(&measured, 2), 0.11) && close(compute(&measured, 8), 0.26));
    // How full the cores of another machine were tells nothing.
    measured.steps.cores = Some(2);
    assert!(close(compute(&measured, 2), 0.1));
}

/// All ranks wait for the slowest, and the more there are, the slower that one is.
#[test]
fn a_step_waits_for_its_slowest_rank() {
    let even = cluster(2, 4, Some(8));
    let mut uneven = even.clone();
    uneven.steps.rows[0].spread = Some(0.2);
    // Steps of several processes have waited already.
    uneven.steps.rows.push(Step { spread: None, threads: 2, ..step(2) });
    let worlds = [1, 2, 8];
    let (without, with) = (predicted(&even, &worlds, &[]), predicted(&uneven, &worlds, &[]));
    // 0.1 s of computation; the normal distribution's deviations of the slowest over those of the 90th percentile.
    for ((a, b), deviations) in without.rows.iter().zip(&with.rows).zip([0.0, 0.544_952, 1.385_198]) {
        let wait = 0.1 * 0.2 * deviations / 1.281_552;
        assert!(
            (b.step_s - a.step_s - wait).abs() < 1e-5 && (b.exposed_s - a.exposed_s - wait).abs() < 1e-5,
            "{a:?} {b:?}"
        );
        assert_eq!(a.communication_s, b.communication_s);
    }
    let said = with.assumptions.join("\n");
    assert!(said.contains("over 20.0 % longer than the median: with 8 ranks, a step waits 21.6 %"), "{said}");
    assert!(!said.contains("for want of `spread`"), "{said}");
    let said = without.assumptions.join("\n");
    assert!(said.contains("no rank waits for a slower one, for want of `spread`"), "{said}");
    // The file's value counts first.
    uneven.spread = Some(0.0);
    assert_eq!(predicted(&uneven, &worlds, &[]).rows, without.rows);
}

#[test]
fn a_job_costs_what_its_nodes_cost() {
    let rows = predicted(&cluster(4, 2, Some(8)), &[1, 4], &[]).rows;
    let one = &rows[0];
    let bytes = plan(&[], 1).sizes.unwrap().checkpoint_bytes as f64;
    assert!(close(one.checkpoint_s.unwrap(), bytes / 1e7) && close(one.held_up_s.unwrap(), bytes / 1e8));
    // 16 steps, two evaluations of 4 batches, two saves that hold up; the end waits for the last one.
    let seconds = 16.0 * 0.1 + 2.0 * 4.0 * 0.02 + 2.0 * bytes / 1e8 + bytes / 1e7;
    assert_eq!(one.steps, Some(16));
    assert!(close(one.job_s.unwrap(), seconds), "{} {seconds}", one.job_s.unwrap());
    assert!(close(one.cost.unwrap(), seconds * 0.01), "36 an hour: {one:?}");
    let four = &rows[1];
    assert_eq!((four.nodes, four.steps), (2, Some(4)));
    assert!(close(four.cost.unwrap(), four.job_s.unwrap() * 0.02));
}

#[test]
fn other_batches_and_threads_are_assumed_to_scale() {
    let base = cluster(1, 4, Some(8));
    let double = predicted(&base, &[1], &["batch_size=16"]);
    assert!(close(double.rows[0].step_s, 0.19), "the update does not depend on samples: {double:?}");
    assert!(double.assumptions.iter().any(|a| a.contains("16 samples")), "{double:?}");
    let threads = predicted(&base, &[1], &["launch.threads=2"]);
    assert!(close(threads.rows[0].step_s, 0.05), "{threads:?}");
    assert!(threads.assumptions.iter().any(|a| a.contains("threads scaled perfectly")), "{threads:?}");
}

/// What a reader must know of measurements that are not the job's case.
#[test]
fn other_places_of_measurement_are_told() {
    let told = |cluster: &Cluster, sets: &[&str]| predicted(cluster, &[2], sets).assumptions.join("\n");
    let base = cluster(1, 4, Some(8));
    let usual = told(&base, &[]);
    assert!(
        usual.contains("the step of a.toml was measured on cpu") && usual.contains("for want of `slowdown`"),
        "{usual}"
    );
    for part in ["device =", "gloo's", "hook", "warning"] {
        assert!(!usual.contains(part), "{part}: {usual}");
    }
    assert!(told(&base, &["device=\"cuda\""]).contains("the spec has device = \"cuda\""));
    assert!(told(&base, &["distributed.comm_hook=bf16"]).contains("the hook bf16 sends half the bytes"));
    let row = AllreduceRow {
        bytes: 64,
        algorithm: AlgorithmChoice::Auto,
        transport: Transport::Auto,
        dtype: DType::F32,
        median_us: 1.0,
    };
    let file = Allreduce {
        world: 2,
        rows: vec![row],
        copy: None,
        warnings: vec!["a debug build".into()],
        cores: Some(2),
    };
    let mut measured = cluster(1, 4, Some(8));
    measured.slowdown = Some(1.2);
    measured.within = Measured { files: vec![file.clone(), file], given: None };
    let said = told(&measured, &["backend=mpi"]);
    for part in [
        "a machine with 2 cores; a node has 8",
        "gloo's, and the job has MPI's",
        "beta is unknown",
        "1.20 times as long as alone",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("measured with a warning: a debug build").count(), 1, "{said}");
    assert!(!said.contains("for want of `slowdown`"), "{said}");
}

/// All processes of the benchmark share its machine, however many the cluster's nodes take.
#[test]
fn a_step_that_was_measured_on_full_cores_took_turns() {
    let mut cluster = cluster(1, 4, Some(2));
    cluster.steps.rows = vec![step(8)];
    assert!(close(predicted(&cluster, &[1], &[]).rows[0].step_s, 0.025));
}

#[test]
fn only_the_last_micro_batch_hides_communication() {
    let sets = [
        "train.accumulate=4",
        "batch_size=2",
        "distributed.first_bucket_mb=0.05",
        "distributed.bucket_cap_mb=0.05",
    ];
    let mut cluster = cluster(1, 4, Some(8));
    // Each all-reduce takes longer than the backward pass of a micro-batch, 15 ms.
    cluster.within.given = Some(Fit { alpha: 0.02, per_byte: 1e-9 });
    let whole = predicted(&cluster, &[2], &[sets[2], sets[3]]).rows;
    let parts = predicted(&cluster, &[2], &sets).rows;
    assert!(parts[0].exposed_s > whole[0].exposed_s + 1e-3, "{parts:?} {whole:?}");
    assert!(close(parts[0].communication_s, whole[0].communication_s));
}

#[test]
fn processes_are_spread_equally_over_few_nodes() {
    let cluster = cluster(4, 4, None);
    assert_eq!(cluster.worlds(), [1, 2, 4, 8, 16]);
    assert_eq!(cluster.placed(4).unwrap(), [4]);
    assert_eq!(cluster.placed(6).unwrap(), [3, 3]);
    assert_eq!(cluster.placed(9).unwrap(), [3, 3, 3]);
    for (world, hint) in [(17, "say what there is"), (13, "equal numbers")] {
        let error = cluster.placed(world).unwrap_err();
        assert!(error.message.contains(&format!("--world {world}")), "{error}");
        assert!(error.hint.unwrap().contains(hint));
    }
}

proptest! {
    /// More processes never make a process faster, and what ranks wait for is part of the step.
    #[test]
    fn efficiency_falls_with_the_number_of_processes(
        cores in proptest::option::of(1_usize..9), slowdown in 1.0..2.0_f64, each in 1_usize..5,
        alpha in 1e-6..1e-2_f64, beta in 1e6..1e11_f64,
    ) {
        let mut cluster = cluster(8, each, cores);
        cluster.slowdown = Some(slowdown);
        let link = Measured { files: Vec::new(), given: Some(Fit { alpha, per_byte: 1.0 / beta }) };
        (cluster.within, cluster.between) = (link.clone(), link);
        let job = ForecastJob::from_plan(&plan(&[], 2)).unwrap();
        let forecast = Forecast::new(&cluster, &job);
        let mut last = f64::INFINITY;
        for nodes in [1, 2, 4, 8] {
            let nodes = vec![each; nodes];
            let time = forecast.step(&job, &nodes);
            prop_assert!(time.exposed >= 0.0 && time.exposed <= time.step && time.communication >= 0.0, "{time:?}");
            let each_process = time.samples_per_s / (nodes.len() * each) as f64;
            prop_assert!(each_process <= last * (1.0 + 1e-9), "{nodes:?}: {each_process} after {last}");
            last = each_process;
        }
    }
}
