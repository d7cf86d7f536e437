//! The scripts of `jobs/` say what `ddp-run submit` writes and what the binary knows.

use crate::common::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn jobs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(jobs(file)).expect("a file of jobs/")
}

fn submit(flags: &[&str]) -> String {
    stdout_of(ddp_run().args(["submit", "slurm", "configs/quickstart.toml"]).args(flags))
}

/// What a script does: its options less the place of the output, and its commands.
fn essence(script: &str) -> (BTreeSet<String>, Vec<String>) {
    let directives = script.lines().filter_map(|l| l.strip_prefix("#SBATCH "));
    let commands = script.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    (
        directives.filter(|d| !d.starts_with("--output=")).map(str::to_owned).collect(),
        commands.map(|c| c.replace("\"${@:-configs/quickstart.toml}\"", "configs/quickstart.toml")).collect(),
    )
}

#[test]
fn submit_generates_the_batch_scripts() {
    let _alone = alone();
    for (file, flags) in [
        ("slurm/single-node.sbatch", &["--launcher", "supervisor", "--cpus-per-rank", "1"][..]),
        ("slurm/multi-node.sbatch", &["--nodes", "2", "--cpus-per-rank", "1"]),
        ("slurm/preemptible.sbatch", &["--cpus-per-rank", "1", "--requeue"]),
    ] {
        assert_eq!(essence(&read(file)), essence(&submit(flags)), "{file}");
        let how = format!("`ddp-run submit slurm configs/quickstart.toml {}`", flags.join(" "));
        assert!(read(file).contains(&how), "{file} does not say {how}");
    }
}

#[test]
fn submit_writes_a_file_and_the_folder_of_its_output() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("tempdir");
    let (file, out) = (folder.path().join("job.sbatch"), folder.path().join("out"));
    let mut command = ddp_run();
    command.args(["submit", "slurm", "configs/quickstart.toml", "-o"]).arg(&file).arg("--out").arg(&out);
    assert_code(&output_of(&mut command), 0);
    assert!(out.is_dir(), "Slurm fails a job whose output has no folder");
    let script = std::fs::read_to_string(file).expect("written");
    assert!(script.contains(&format!("--output={}/slurm-%j.out", out.display())), "{script}");
}

#[test]
fn every_script_passes_bash_and_shellcheck() {
    let _alone = alone();
    let listed = |folder: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("readable").path());
        entries.filter(|p| p.extension().is_some_and(|e| e == "sh" || e == "sbatch")).collect()
    };
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string();
    let scripts =
        [listed(&folder("jobs")), listed(&folder("jobs/slurm")), listed(&folder("scripts"))].concat();
    assert!(scripts.len() >= 7, "{scripts:?}");
    for script in &scripts {
        assert!(Command::new("bash").arg("-n").arg(script).status().expect("bash").success(), "{script:?}");
    }
    match Command::new("shellcheck").args(&scripts).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(_) => eprintln!("skipped: shellcheck is not installed"),
    }
}

#[test]
fn environment_variables_start_any_number_of_ranks() {
    let _alone = alone();
    for (number, ranks) in [(&[][..], 2), (&["3"], 3)] {
        let (dir, port) = (tempfile::tempdir().expect("tempdir"), Port::on_loopback());
        let mut script = program(&jobs("env.sh"));
        script.arg("configs/ci/smoke.toml").args(number).arg("--out").arg(dir.path());
        script.env("DDP_RUN", env!("CARGO_BIN_EXE_ddp-run")).env("MASTER_PORT", port.to_string());
        assert_code(&output_of(script.env(TAG, dir.path())), 0);
        let run = read_json(dir.path().join("run.json"));
        assert_eq!(run["world"], ranks, "{run}");
    }
}

/// The commands of a pull-request check that are ddp-run's.
fn checks(file: &str) -> Vec<String> {
    fn strings(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => found.push(text.clone()),
            serde_json::Value::Array(all) => all.iter().for_each(|value| strings(value, found)),
            serde_json::Value::Object(all) => all.values().for_each(|value| strings(value, found)),
            _ => {}
        }
    }
    let (mut found, yaml) = (Vec::new(), read(file));
    strings(&serde_saphyr::from_str(&yaml).expect("YAML"), &mut found);
    found.retain(|text| text.starts_with("ddp-run ") && text.contains(".toml"));
    found
}

#[test]
fn the_pull_request_checks_pass_and_fail_as_they_should() {
    let _alone = alone();
    let commands = checks("ci/github.yml");
    assert_eq!(commands, checks("ci/gitlab.yml"));
    let [check, train] = &commands[..] else { panic!("{commands:?}") };
    let out = tempfile::tempdir().expect("tempdir");
    let run = |command: &str| {
        let command = command.replace("--out ci-run", &format!("--out {}/run", out.path().display()));
        let path = Path::new(env!("CARGO_BIN_EXE_ddp-run")).parent().expect("a folder");
        let mut shell = program(Path::new("sh"));
        let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
        output_of(shell.args(["-c", &command]).env("PATH", path).env(TAG, out.path()))
    };
    assert_code(&run(check), 0);
    let trained = run(train);
    assert_code(&trained, 0);
    assert!(stderr(&trained).contains("val.accuracy >= 0.9 holds: 9"), "{}", stderr(&trained));
    let missed = run(&train.replace("val.accuracy >= 0.9", "val.accuracy > 1"));
    assert_code(&missed, 1);
    assert!(stderr(&missed).contains("error: val.accuracy > 1 does not hold: 9"), "{}", stderr(&missed));
}

/// The documents of the manifest.
fn manifest() -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(&read("kubernetes/indexed-job.yaml")).expect("YAML")
}

fn kind<'a>(documents: &'a [serde_json::Value], kind: &str) -> &'a serde_json::Value {
    documents.iter().find(|d| d["kind"] == kind).expect("a document of this kind")
}

#[test]
fn the_parts_of_the_indexed_job_match() {
    let _alone = alone();
    let documents = manifest();
    let (job, service) = (kind(&documents, "Job"), kind(&documents, "Service"));
    let claim: serde_json::Value =
        serde_saphyr::from_str(&read("kubernetes/volume-claim.yaml")).expect("YAML");
    let name = &job["metadata"]["name"];
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(job["spec"]["completionMode"], "Indexed");
    assert_eq!(job["spec"]["completions"], job["spec"]["parallelism"]);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(&service["spec"]["selector"]["job-name"], name);
    assert_eq!(pod["subdomain"], service["metadata"]["name"]);
    let volume = |name: &str| {
        let volumes = pod["volumes"].as_array().expect("a list");
        volumes.iter().find(|v| v["name"] == name).unwrap_or_else(|| panic!("no volume {name}"))
    };
    assert_eq!(volume("runs")["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
    assert_eq!(volume("spec")["configMap"]["name"], kind(&documents, "ConfigMap")["metadata"]["name"]);
    for mount in container["volumeMounts"].as_array().expect("a list") {
        volume(mount["name"].as_str().expect("a name"));
    }
    // Rules on exit codes hold for pods that are never restarted in place.
    assert_eq!(pod["restartPolicy"], "Never");
    // Required by Kubernetes, and easily left out.
    assert_eq!(job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    for rule in job["spec"]["podFailurePolicy"]["rules"].as_array().expect("rules") {
        if let Some(codes) = rule["onExitCodes"].as_object() {
            assert_eq!(codes["containerName"], container["name"]);
            for code in codes["values"].as_array().expect("a list") {
                let code = code.as_i64().expect("a number") as i32;
                assert!(ddp_run::ExitCode::from_status(code).is_some(), "{code}");
            }
        }
    }
    let variables = container["env"].as_array().expect("a list");
    let value = |name: &str| variables.iter().find(|v| v["name"] == name).map(|v| v["value"].clone());
    assert_eq!(value("DDP_RUN_NNODES"), Some(job["spec"]["completions"].to_string().into()));
    let first = format!("{0}-0.{1}:29400", name.as_str().unwrap(), pod["subdomain"].as_str().unwrap());
    assert_eq!(value("DDP_RUN_RDZV_ENDPOINT"), Some(first.into()));
    let spec: toml::Table = spec(&documents).parse().expect("TOML");
    let grace = spec["checkpoint"]["grace"].as_integer().expect("seconds") as u64;
    assert!(
        grace < pod["terminationGracePeriodSeconds"].as_u64().expect("seconds"),
        "killed before it gives up"
    );
}

#[test]
fn the_binary_knows_every_variable_and_flag_of_the_manifest() {
    let _alone = alone();
    let documents = manifest();
    let container = &kind(&documents, "Job")["spec"]["template"]["spec"]["containers"][0];
    let help = stdout_of(ddp_run().args(["train", "--help"]));
    for variable in container["env"].as_array().expect("a list") {
        let name = variable["name"].as_str().expect("a name");
        // The secret has no flag: it would be in the list of processes. The place of caches is the system's.
        let others = ["DDP_RUN_SECRET", "XDG_CACHE_HOME"];
        assert!(help.contains(name) || others.contains(&name), "{name} is not in\n{help}");
    }
    let words = container["args"].as_array().expect("a list").iter().map(|a| a.as_str().expect("a word"));
    for flag in words.filter(|w| w.starts_with("--")) {
        assert!(help.contains(flag), "{flag} is not in\n{help}");
    }
    let folder = tempfile::tempdir().expect("tempdir");
    let file = folder.path().join("job.toml");
    std::fs::write(&file, spec(&documents)).expect("written");
    assert_code(&output_of(ddp_run().arg("check").arg(&file)), 0);
}

/// The spec that the pods read.
fn spec(documents: &[serde_json::Value]) -> &str {
    kind(documents, "ConfigMap")["data"]["job.toml"].as_str().expect("a text")
}

#[test]
fn submit_generates_the_indexed_job() {
    let _alone = alone();
    let flags = ["--nodes", "2", "--nproc-per-node", "2", "--memory", "2Gi"];
    let mut command = ddp_run();
    let text = stdout_of(command.args(["submit", "kubernetes", "configs/quickstart.toml"]).args(flags));
    let how = format!(
        "written by `ddp-run submit kubernetes configs/quickstart.toml {} -o jobs/kubernetes/indexed-job.yaml`",
        flags.join(" ")
    );
    assert_eq!(read("kubernetes/indexed-job.yaml"), text, "{how}");
}
