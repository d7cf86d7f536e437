use super::*;
use serde_json::json;

/// A folder with measurements.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let row = |bytes: usize, us: f64| json!({"bytes": bytes, "dtype": "f32", "algorithm": "auto", "transport": "auto", "median_us": us});
    let rows = json!([row(64, 2.0), row(1 << 20, 200.0)]);
    let limits = json!({"sizes": [{"bytes": 1024, "memcpy_one_gbs": 8.0}]});
    let file = json!({"world": 2, "rows": rows, "limits": limits});
    std::fs::write(dir.path().join("two.json"), file.to_string()).unwrap();
    let phases = json!({"data": 0.0, "forward": 0.25, "backward": 0.5, "sync": 0.0, "update": 0.25});
    let row = json!({"world": 1, "threads": 1, "global_batch": 8, "step_ms": 100.0, "phases": phases});
    let file = json!({"device": "cpu", "rows": [row]});
    std::fs::write(dir.path().join("train.json"), file.to_string()).unwrap();
    dir
}

fn load(text: &str) -> Result<Cluster, String> {
    let dir = folder();
    let path = dir.path().join("box.toml");
    std::fs::write(&path, text).unwrap();
    Cluster::load(&path).map_err(|problems| problems.to_string())
}

const WHOLE: &str = "processes_per_node = 4\ncores_per_node = 2\nprice_per_hour = 3\n\
[within]\nmeasured = [\"two.json\"]\n[step]\ntrain = \"train.json\"\n[storage]\nwrite = 1e9\n";

#[test]
fn a_cluster_has_what_its_file_and_measurements_say() {
    let cluster = load(WHOLE).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.nodes, cluster.processes_per_node), ("box", 1, 4));
    assert_eq!((cluster.cores, cluster.price_per_hour, cluster.write), (Some(2), Some(3.0), Some(1e9)));
    assert_eq!((cluster.copy, cluster.communication_cores), (Some(8e9), 1.0));
    assert_eq!((cluster.within.files.len(), cluster.steps.rows.len()), (1, 1));
    let text = format!("nodes = 3\nname = \"x\"\n{WHOLE}[between]\nalpha = 2e-5\nbeta = 1e9\n");
    let cluster = load(&text).unwrap();
    assert_eq!(cluster.between.given, Some(Fit { alpha: 2e-5, per_byte: 1e-9 }));
    assert_eq!((cluster.name.as_str(), cluster.nodes), ("x", 3));
}

/// A changed file, and what its message must have: the place, the caret and the hint.
fn assert_problem(change: (&str, &str), parts: &[&str]) {
    let text = WHOLE.replace(change.0, change.1);
    assert_ne!(text, WHOLE, "{change:?} changes nothing");
    let said = load(&text).expect_err("a problem");
    for part in parts.iter().chain(&["box.toml"]) {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

#[test]
fn problems_are_at_their_place_with_a_hint() {
    assert_problem(("price_per_hour", "price_per_our"), &["^^^^^^^^^^^^^", "did you mean `price_per_hour`?"]);
    assert_problem(("processes_per_node = 4\n", ""), &["missing key `processes_per_node`"]);
    assert_problem(("= 4", "= 0"), &["line 1", "^ expected an integer from 1 to 4096, found 0"]);
    assert_problem(
        ("measured = [\"two.json\"]", "measured = [\"none.json\"]"),
        &["cannot read", "none.json", "^", "hint: `ddp-run bench allreduce"],
    );
    assert_problem(
        ("measured = [\"two.json\"]", "measured = [\"train.json\"]"),
        &["is not what `ddp-run bench allreduce` writes", "hint:"],
    );
    assert_problem(
        ("measured = [\"two.json\"]", "alpha = 1e-6"),
        &["^^^^ `alpha` needs `beta` too", "hint: or `measured`"],
    );
    assert_problem(
        ("measured = [\"two.json\"]", ""),
        &["`[within]` needs `alpha` and `beta`, or `measured`", "hint:"],
    );
    assert_problem(("[within]\nmeasured = [\"two.json\"]\n", ""), &["missing table `[within]`"]);
    assert_problem(("train = \"train.json\"", ""), &["`[step]` needs `train` or `run`", "hint:"]);
    assert_problem(("train = ", "run = \"r\"\ntrain = "), &["^^^ `train` is set too"]);
    assert_problem(("train.json", "two.json"), &["is not what `ddp-run bench train` writes"]);
    assert_problem(
        ("cores_per_node = 2\n", ""),
        &["missing key `cores_per_node`", "hint: processes that compute"],
    );
    assert_problem(("processes", "nodes = 2\nprocesses"), &["missing table `[between]`"]);
    assert_problem(("write = 1e9", "write = 0"), &["expected a number of at least 1"]);
    assert_problem(("write = 1e9", "run = \"none\""), &["^^^^^^ cannot read", "hint: the folder of a run"]);
    let text = WHOLE.replace("[within]", "").replace("measured = [\"two.json\"]\n", "");
    let said = load(&format!(
        "nodes = 2\n{text}[within]\nalpha = 0\nbeta = 1e9\n[between]\nmeasured = [\"two.json\"]\n"
    ));
    let said = said.expect_err("no network");
    assert!(
        said.contains("two.json was measured in shared memory") && said.contains("--transport tcp"),
        "{said}"
    );
    assert_problem(
        ("processes_per_node = 4", "nodes = 1048576\nprocesses_per_node = 4"),
        &["^^^^^^^ more than 1048576 processes"],
    );
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let problems = Cluster::load(&dir.path().join("none.toml")).unwrap_err();
    assert!(problems.to_string().contains("none.toml"), "{problems}");
}
