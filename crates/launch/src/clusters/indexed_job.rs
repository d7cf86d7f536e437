//! Generates the manifest of a Kubernetes Indexed Job. Submits nothing.

use std::fmt::{self, Write};
use std::time::Duration;

/// What a name has to be.
pub const OF_NAME: &str = "the name of a Kubernetes Job";
/// Longest name of a job: its pods are called NAME-INDEX, which is a host name of at most 63 characters.
const LONGEST_NAME: usize = 52;
/// Kubernetes kills a pod this much later than a run gives up its save.
const MARGIN: Duration = Duration::from_secs(10);
const TEMPLATE: &str = include_str!("indexed_job.yaml");

/// A job of one pod per node; [`Display`](fmt::Display) generates its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedJob {
    /// From [`IndexedJob::name_of`].
    pub name: String,
    /// `None`: that of `kubectl`'s context.
    pub namespace: Option<String>,
    /// The resolved spec, in TOML.
    pub spec: String,
    /// Pods, one per node.
    pub nodes: usize,
    /// Ranks of each node.
    pub ranks: usize,
    /// The container image, which has the program.
    pub image: String,
    /// The persistent volume claim that holds data and runs.
    pub claim: String,
    /// The Kubernetes secret that has the run's secret.
    pub secret: String,
    /// CPUs of each node.
    pub cpus: usize,
    /// Memory of each node.
    pub memory: Option<String>,
    /// GPUs of each node.
    pub gpus: Option<usize>,
    /// The run's folder.
    pub out: String,
    /// The spec's `checkpoint.grace`.
    pub grace: Duration,
}

impl IndexedJob {
    /// The name of a run as a label of DNS (RFC 1123); `None` if no character of it can be in one.
    pub fn name_of(run: &str) -> Option<String> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = run.chars().map(plain).take(LONGEST_NAME).collect();
        let name = name.trim_matches('-');
        // A service, which has the same name, begins with a letter.
        match name.starts_with(|c: char| c.is_ascii_digit()) {
            _ if name.is_empty() => None,
            true => Some(format!("run-{name}")),
            false => Some(name.to_owned()),
        }
    }

    /// The lines of the container's `resources`.
    fn resources(&self) -> String {
        let mut requests = vec![format!("cpu: {}", self.cpus)];
        let mut limits = Vec::new();
        if let Some(memory) = &self.memory {
            requests.push(format!("memory: {memory}"));
            limits.push(format!("memory: {memory}"));
        }
        limits.extend(self.gpus.map(|n| format!("nvidia.com/gpu: {n}")));
        let mut lines = String::new();
        for (title, entries) in [("requests", requests), ("limits", limits)] {
            if !entries.is_empty() {
                // Writing to a string can't fail.
                let _ = write!(lines, "\n            {title}:");
                entries.iter().for_each(|entry| lines += &format!("\n              {entry}"));
            }
        }
        lines
    }
}

impl fmt::Display for IndexedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_ref().map(|name| format!("\n  namespace: {name}"));
        let spec: String =
            self.spec.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
        let out = serde_json::Value::from(self.out.as_str()).to_string();
        let text = TEMPLATE
            .replace("@NAMESPACE@", namespace.as_deref().unwrap_or_default())
            .replace("@NAME@", &self.name)
            .replace("@NODES@", &self.nodes.to_string())
            .replace("@RANKS@", &self.ranks.to_string())
            .replace("@IMAGE@", &self.image)
            .replace("@CLAIM@", &self.claim)
            .replace("@SECRET@", &self.secret)
            .replace("@RESOURCES@", &self.resources())
            .replace("@OUT@", &out)
            .replace("@GRACE@", &(self.grace + MARGIN).as_secs().to_string())
            // The last one: it is the user's text.
            .replace("@SPEC@", spec.trim_end());
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_of_dns() {
        for (run, name) in [
            ("cifar10-resnet18", Some("cifar10-resnet18")),
            ("My_Run.2", Some("my-run-2")),
            ("2024", Some("run-2024")),
            ("_.", None),
            (&"a".repeat(80), Some(&*"a".repeat(52))),
        ] {
            assert_eq!(IndexedJob::name_of(run).as_deref(), name, "{run}");
        }
    }
}
