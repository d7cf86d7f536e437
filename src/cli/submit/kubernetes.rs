//! `ddp-run submit kubernetes SPEC`: the manifest of an Indexed Job.

use super::{Command, JobArgs, one_line};
use base::error::{Error, Result};
use ddp::device::DeviceSpec;
use job::registry::Registry;
use launch::clusters::{IndexedJob, OF_NAME};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// The image, with ddp-run in its PATH
    #[arg(long, value_name = "IMAGE", default_value = concat!("ddp-run:", env!("CARGO_PKG_VERSION")), value_parser = word)]
    image: String,
    /// The volume claim for runs and data, which all nodes can write to
    #[arg(long, value_name = "NAME", default_value = "ddp-run", value_parser = word)]
    claim: String,
    /// The Kubernetes secret whose key `secret` the nodes prove to each other
    #[arg(long, value_name = "NAME", default_value = "ddp-run", value_parser = word)]
    secret: String,
    /// The namespace [default: that of kubectl's context]
    #[arg(long, value_name = "NAME", value_parser = word)]
    namespace: Option<String>,
    /// CPUs of each rank [default: the spec's `launch.threads`, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus_per_rank: Option<u32>,
    /// Memory of each node, as in 16Gi [default: not limited]
    #[arg(long, value_name = "SIZE", value_parser = word)]
    memory: Option<String>,
    /// The run's folder on the volume, which is mounted at /runs [default: /runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const KUBECTL: Command = Command {
    words: &["kubectl", "apply", "-f"],
    standard_input: Some("-"),
    place: "a machine with kubectl and a context",
};

/// Validates a text that the manifest contains: it must not contain another line or the end of a quoted text.
fn word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@".contains(c);
    let good = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain);
    good.then(|| text.to_owned())
        .ok_or_else(|| "expected letters, digits, `_`, `-`, `.`, `:`, `/` and `@`".to_owned())
}

/// Prints, writes or submits the manifest.
///
/// # Errors
/// Exit 78: the spec is invalid. Exit 2: it leaves open what Kubernetes has to know. Exit 69: no kubectl, or it refuses the job.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let manifest = args.manifest(registry)?.to_string();
    args.job.deliver(&manifest, &KUBECTL)
}

impl Args {
    fn manifest(&self, registry: &Registry) -> Result<IndexedJob> {
        let plan = self.job.plan(&self.job.spec, registry)?;
        let ranks = self.job.ranks(&plan, "Kubernetes")?;
        let cuda = matches!(plan.device, DeviceSpec::Cuda(_)).then_some(ranks);
        let cpus = self.cpus_per_rank.map(|n| n as usize).or(plan.launch.threads).unwrap_or(1);
        let out = self.out.clone().unwrap_or_else(|| Path::new("/runs").join(&plan.name));
        let name = IndexedJob::name_of(&plan.name).ok_or_else(|| {
            Error::usage(format!("`name = \"{}\"` has no letter or digit for {OF_NAME}", plan.name))
                .hint("choose another with `--set name=NAME`")
        })?;
        Ok(IndexedJob {
            name,
            namespace: self.namespace.clone(),
            spec: plan.to_toml(),
            nodes: self.job.count_nodes(&plan, "Kubernetes")?,
            ranks,
            image: self.image.clone(),
            claim: self.claim.clone(),
            secret: self.secret.clone(),
            cpus: cpus * ranks,
            memory: self.memory.clone(),
            gpus: self.job.gpus_per_node.map(|n| n as usize).or(cuda),
            out: one_line(&out)?,
            grace: *plan.checkpoint.grace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn manifest(spec: &str, line: &str) -> Result<String> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("job.toml");
        std::fs::write(&path, spec).expect("write");
        let words = ["kubernetes", path.to_str().expect("UTF-8")];
        let line = Line::try_parse_from(words.into_iter().chain(line.split_whitespace()));
        let args = line.map_err(|e| Error::usage(e.to_string()))?.args;
        Ok(args.manifest(&Registry::standard())?.to_string())
    }

    const SPEC: &str = "name = \"My_Job.1\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\n\
                        [optimizer]\nname = \"sgd\"\nlr = 0.1\n";

    fn documents(text: &str) -> Vec<serde_json::Value> {
        serde_saphyr::from_multiple(text).expect("YAML")
    }

    #[test]
    fn a_spec_becomes_an_indexed_job() {
        let line = "--nodes 3 --nproc-per-node 2 --set device=cuda --memory 16Gi --image reg/ddp:1 --namespace ml --set checkpoint.grace=50";
        let text = manifest(SPEC, line).expect("good");
        let documents = documents(&text);
        let [map, service, job] = documents.as_slice() else { panic!("{text}") };
        for document in &documents {
            assert_eq!(document["metadata"]["namespace"], "ml");
            assert_eq!(document["metadata"]["name"], "my-job-1");
        }
        assert_eq!(
            (&map["kind"], &service["kind"], &job["kind"]),
            (&"ConfigMap".into(), &"Service".into(), &"Job".into())
        );
        assert_eq!((&job["spec"]["completions"], &job["spec"]["parallelism"]), (&3.into(), &3.into()));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], 60);
        let container = &pod["containers"][0];
        assert_eq!(container["image"], "reg/ddp:1");
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], 2);
        assert_eq!(container["resources"]["limits"]["memory"], "16Gi");
        assert_eq!(container["resources"]["requests"]["cpu"], 2);
        let arguments = serde_json::json!([
            "train",
            "/etc/ddp-run/job.toml",
            "--nproc-per-node",
            "2",
            "--out",
            "/runs/My_Job.1",
            "--progress",
            "plain"
        ]);
        assert_eq!(container["args"], arguments);
        // The spec is carried whole, with its edits.
        let spec: toml::Table = map["data"]["job.toml"].as_str().expect("a text").parse().expect("TOML");
        assert_eq!((spec["name"].as_str(), spec["device"].as_str()), (Some("My_Job.1"), Some("cuda")));
    }

    #[test]
    fn what_kubernetes_has_to_know_is_asked_for() {
        for (spec, line, part) in [
            (SPEC.to_owned() + "[launch]\nnnodes = \"2:4\"\n", "", "--nodes N"),
            (SPEC.to_owned(), "--nproc-per-node auto", "--nproc-per-node N"),
            (SPEC.to_owned(), "--image a\"b", "expected letters"),
            (SPEC.replace("My_Job.1", "___"), "", "--set name=NAME"),
        ] {
            let error = manifest(&spec, line).expect_err(line);
            assert_eq!(error.kind, ErrorKind::Usage, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(manifest(&SPEC.replace("sgd", "sgdd"), "").expect_err("wrong").kind, ErrorKind::Spec);
    }
}
