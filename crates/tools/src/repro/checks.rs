//! What a run recorded of its spec, program, data and machine, against the present ones.

use base::display;
use base::named;
use data::Fingerprint;
use record::Provenance;
use serde_json::{Value as Json, json};

named! {
    /// Whether results depend on it.
    pub enum Effect {
        Changes = "changes results",
        May = "may change results",
        Nothing = "does not change results",
    }
}

/// One fact of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub what: &'static str,
    /// Of all starts of the run; `None` if it is not recorded.
    pub recorded: Option<String>,
    /// `None` if it can't be determined.
    pub present: Option<String>,
    pub effect: Effect,
    /// Why it has this effect.
    pub why: &'static str,
}

impl Check {
    pub fn differs(&self) -> bool {
        self.recorded.is_some() && self.recorded != self.present
    }

    /// It differs, and results may depend on it.
    pub fn matters(&self) -> bool {
        self.differs() && self.effect != Effect::Nothing
    }

    pub fn json(&self) -> Json {
        json!({
            "what": self.what,
            "recorded": self.recorded,
            "present": self.present,
            "differs": self.differs(),
            "effect": self.effect.name(),
            "why": self.why,
        })
    }
}

/// What depends on the number of processes.
const OF_LAST: [&str; 3] = ["devices", "backend", "nodes"];

/// How a fact is read, and what it means.
type Row = (&'static str, fn(&Provenance) -> Option<String>, Effect, &'static str);

const ROWS: [Row; 14] = [
    ("ddp-run", |s| Some(s.versions.ddp_run.clone()), Effect::May, "another version may compute otherwise"),
    (
        "build",
        |s| s.versions.build.clone(),
        Effect::May,
        "the program was built from other sources, or in another way",
    ),
    ("burn", |s| Some(s.versions.burn.clone()), Effect::May, "operations may be computed in another order"),
    ("rustc", |s| s.versions.rustc.clone(), Effect::May, "another compiler may order sums otherwise"),
    ("commit", commit, Effect::May, "only if the program is built from there; the spec is the recorded one"),
    ("arch", |s| Some(s.host.arch.clone()), Effect::Changes, "the kernels are other ones"),
    ("cpu", |s| Some(s.host.cpu.clone()), Effect::May, "matrix products depend on the instruction set"),
    ("devices", |s| Some(s.devices.join(", ")), Effect::May, "each kind of device has its own kernels"),
    ("backend", |s| Some(s.backend.clone()), Effect::May, "gradients are summed in another order"),
    (
        "nodes",
        |s| Some(nodes(s).to_string()),
        Effect::May,
        "between nodes gradients are summed in another order",
    ),
    ("os", |s| Some(s.host.os.clone()), Effect::May, "functions such as exp may be the system's"),
    ("kernel", |s| Some(s.host.kernel.clone()), Effect::Nothing, "nothing is computed by it"),
    (
        "cores",
        |s| Some(s.host.cores.to_string()),
        Effect::Nothing,
        "results do not depend on the number of threads",
    ),
    ("host", |s| Some(s.host.name.clone()), Effect::Nothing, "it is a name"),
];

/// All facts. `starts` are those that led to the run's results, `present` is what a start would record now, and `specs` are the hashes
/// of the starts' specs as this program reads them.
pub fn all(starts: &[&Provenance], present: &Provenance, specs: Vec<String>) -> Vec<Check> {
    let spec = Check {
        what: "spec",
        recorded: distinct(starts.iter().map(|start| start.spec_hash.clone())),
        present: distinct(specs.into_iter()),
        effect: Effect::May,
        why: "an earlier start had another one that is not kept, a file was edited, or this program reads it otherwise",
    };
    let row = |&(what, of, effect, why): &Row| {
        // Those of the last start belong to its number of processes.
        let counted =
            if OF_LAST.contains(&what) { &starts[starts.len().saturating_sub(1)..] } else { starts };
        let recorded = distinct(counted.iter().filter_map(|start| of(start)));
        Check { what, recorded, present: of(present), effect, why }
    };
    std::iter::once(spec).chain(ROWS.iter().map(row)).collect()
}

/// The data set by its fingerprint.
pub fn data(recorded: Option<&Fingerprint>, present: Option<&Fingerprint>) -> Check {
    Check {
        what: "data",
        recorded: recorded.map(words),
        present: present.map(words),
        effect: Effect::Changes,
        why: "the run was trained on it",
    }
}

fn words(data: &Fingerprint) -> String {
    let val = data.val.map_or_else(String::new, |val| format!(", {val} validation samples"));
    format!("{} training samples{val}, {}", data.train, data.content)
}

fn distinct(values: impl Iterator<Item = String>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    (!all.is_empty()).then(|| all.join(" and "))
}

fn commit(start: &Provenance) -> Option<String> {
    let git = start.git.as_ref()?;
    let changed = if git.dirty == Some(true) { " with changed files" } else { "" };
    Some(format!("{}{changed}", git.commit))
}

/// Each of them has as many devices as `devices` names.
pub fn nodes(start: &Provenance) -> usize {
    start.world.div_ceil(start.devices.len().max(1))
}

/// With the beginnings of the digests in it.
fn short(text: &str) -> String {
    let is_digest = |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split(' ').map(|word| if is_digest(word) { &word[..12] } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// A line for each fact that differs, and which are the same, or not recorded.
pub fn text(checks: &[Check]) -> String {
    let mut out = String::new();
    let (differing, others): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(|check| check.differs());
    let width = differing.iter().map(|check| check.what.len()).max().unwrap_or(0);
    for check in differing {
        let shown = |of: &Option<String>| {
            of.as_deref().map_or_else(|| "unknown".to_owned(), |of| display::name(&short(of)))
        };
        let (recorded, present) = (shown(&check.recorded), shown(&check.present));
        let (what, effect, why) = (check.what, check.effect.name(), check.why);
        out += &format!("  {what:width$}  {recorded}, now {present}; {effect}: {why}\n");
    }
    let names = |of: &[&&Check]| of.iter().map(|check| check.what).collect::<Vec<_>>().join(", ");
    let (same, unknown): (Vec<&&Check>, Vec<&&Check>) =
        others.iter().partition(|check| check.recorded.is_some());
    for (words, of) in [("the same", same), ("not recorded", unknown)] {
        if !of.is_empty() {
            out += &format!("  {words}: {}\n", names(&of));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::plan::Plan;
    use job::plan::testing::resolved;
    use job::registry::Registry;
    use record::provenance;
    use std::path::Path;

    const SPEC: &str = "name = \"a\"\nbatch_size = 8\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\n\
        [optimizer]\nname = \"sgd\"\n";

    fn plan() -> Plan {
        resolved(&Registry::standard(), SPEC, &[], 2).unwrap_or_else(|e| panic!("{e}"))
    }

    fn start() -> Provenance {
        let mut start = provenance::sample(Path::new("."));
        start.host.cpu = "EPYC".to_owned();
        start.versions.build = None;
        // On a machine that is busy, Git may not answer in time.
        start.git = None;
        start
    }

    fn differing(starts: &[&Provenance], present: &Provenance) -> Vec<&'static str> {
        let plan = plan();
        all(starts, present, vec![plan.hash])
            .iter()
            .filter(|check| check.differs())
            .map(|check| check.what)
            .collect()
    }

    #[test]
    fn what_differs_is_told_with_its_effect() {
        let (plan, mut recorded, mut present) = (plan(), start(), start());
        recorded.spec_hash.clone_from(&plan.hash);
        assert_eq!(differing(&[&recorded], &present), [""; 0]);
        present.host.cpu = "Xeon".to_owned();
        present.host.kernel = "Linux 7".to_owned();
        present.versions.build = Some("abcd".to_owned());
        let checks = all(&[&recorded], &present, vec![plan.hash]);
        let found: Vec<_> =
            checks.iter().filter(|check| check.differs()).map(|c| (c.what, c.matters())).collect();
        assert_eq!(found, [("cpu", true), ("kernel", false)]);
        let text = text(&checks);
        assert!(
            text.contains("  cpu     EPYC, now Xeon; may change results: matrix products depend on the instruction set\n"),
            "{text}"
        );
        assert!(
            text.contains("  not recorded: build") && text.contains("the same: spec, ddp-run, burn"),
            "{text}"
        );
        recorded.spec_hash = "other".to_owned();
        assert_eq!(differing(&[&recorded], &start()), ["spec"]);
    }

    /// A part of the run may have been trained on another machine than the last one.
    #[test]
    fn all_starts_count() {
        let (mut first, mut second) = (start(), start());
        second.spec_hash.clone_from(&plan().hash);
        first.spec_hash.clone_from(&second.spec_hash);
        first.host.cpu = "Xeon".to_owned();
        assert_eq!(differing(&[&first, &second], &start()), ["cpu"]);
        assert_eq!(differing(&[&second], &start()), [""; 0]);
        first.world = 8;
        assert_eq!((nodes(&first), nodes(&second)), (4, 1));
        // It had other processes than the last one.
        assert_eq!(differing(&[&first, &second], &start()), ["cpu"]);
        // Its spec is not in the folder any more.
        first.spec_hash = "other".to_owned();
        assert_eq!(differing(&[&first, &second], &start()), ["spec", "cpu"]);
        // It is there, and is read as it was.
        let specs = vec![first.spec_hash.clone(), second.spec_hash.clone()];
        assert!(!all(&[&first, &second], &start(), specs)[0].differs());
    }

    #[test]
    fn data_is_told_by_its_fingerprint() {
        let print = |content: &str| Fingerprint { train: 9, val: Some(2), content: content.to_owned() };
        assert!(!data(Some(&print("a")), Some(&print("a"))).differs());
        assert!(
            data(Some(&print("a")), Some(&print("b"))).matters() && data(Some(&print("a")), None).matters()
        );
        assert!(!data(None, Some(&print("b"))).differs());
        let digest = "0123456789abcdef".repeat(4);
        assert_eq!(
            short(&format!("9 samples, {digest} and {digest}")),
            "9 samples, 0123456789ab and 0123456789ab"
        );
    }
}
