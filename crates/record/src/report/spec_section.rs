//! The resolved spec of a run, with set values highlighted, and the differences between the specs of several runs.

use super::escape;
use spec::Values;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Writes `job.toml`. `set` has the origin of each key that was set; it is empty for runs of early versions.
pub(super) fn section(out: &mut String, job_toml: &str, set: &BTreeMap<String, String>) {
    out.push_str("<section><h2>Job</h2>");
    if !set.is_empty() {
        out.push_str(
            "<p>The resolved spec. Marked is what the spec, a file that it extends or the command line sets; all else is a default.</p>",
        );
    }
    out.push_str("<pre tabindex=\"0\"><code>");
    for (line, key) in job_toml.lines().zip(keys(job_toml)) {
        let text = escape(line);
        let origin = key.as_deref().and_then(|key| origin(set, key));
        let _ = match origin {
            // The mark already says that it is the spec.
            Some("spec") => write!(out, "<mark>{text}</mark>"),
            Some(by) if by.starts_with("--") => {
                write!(out, "<mark class=\"override\">{text}<i>{}</i></mark>", escape(by))
            }
            Some(by) => write!(out, "<mark>{text}<i>{}</i></mark>", escape(by)),
            None if line.starts_with('[') => write!(out, "<span class=\"head\">{text}</span>"),
            None => write!(out, "<span>{text}</span>"),
        };
    }
    out.push_str("</code></pre></section>");
}

/// The origin of a key, or of the first one below it.
fn origin<'a>(set: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    let below = |(other, _): &(&String, &String)| {
        other.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    set.iter().find(below).map(|(_, origin)| origin.as_str())
}

/// The dotted key that each line belongs to, `None` for heads of tables, comments and blank lines. It knows the TOML that
/// `Plan::to_toml` writes: a value over several lines is an array that ends with `]`, or a text that ends with `"""`.
fn keys(job_toml: &str) -> Vec<Option<String>> {
    let (mut table, mut lists) = (String::new(), BTreeMap::<String, usize>::new());
    let mut open: Option<(String, &str)> = None;
    let line_key = |line: &str| -> Option<String> {
        if let Some((key, end)) = open.clone() {
            if line.trim_end().ends_with(end) && (end == "\"\"\"" || line.trim_end() == end) {
                open = None;
            }
            return Some(key);
        }
        if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            let number = lists.entry(name.to_owned()).and_modify(|n| *n += 1).or_default();
            table = format!("{name}.{number}.");
            return None;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{}.", plain(name));
            return None;
        }
        let (key, value) = line.split_once(" = ").filter(|_| !line.starts_with('#'))?;
        let key = format!("{table}{}", plain(key));
        let opens = match value {
            "[" => Some("]"),
            text if text.starts_with("\"\"\"") && !text[3..].ends_with("\"\"\"") => Some("\"\"\""),
            _ => None,
        };
        open = opens.map(|end| (key.clone(), end));
        Some(key)
    };
    job_toml.lines().map(line_key).collect()
}

/// A key without its quotes.
fn plain(key: &str) -> String {
    key.replace('"', "")
}

/// The keys whose values are not the same in all of `all`, each with its values.
pub(super) fn differences(all: &[Values]) -> Vec<(String, Vec<Option<String>>)> {
    let mut keys: Vec<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    keys.sort_unstable();
    keys.dedup();
    let row =
        |key: &String| (key.clone(), all.iter().map(|values| values.get(key).cloned()).collect::<Vec<_>>());
    keys.into_iter().map(row).filter(|(_, values)| values.iter().any(|v| *v != values[0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "# Resolved\nname = \"a<b\"\nseed = 1\n\n[optimizer]\nbetas = [\n    0.9,\n    0.999,\n]\nlr = 0.1\n\n\
                       [[scheduler]]\nname = \"step\"\n\n[[scheduler]]\nname = \"linear\"\n";

    #[test]
    fn every_line_of_a_set_value_is_marked() {
        let set =
            [("optimizer.betas", "spec"), ("optimizer.lr", "--set"), ("scheduler.1.name", "base a.toml")];
        let set = set.map(|(key, by)| (key.to_owned(), by.to_owned())).into();
        let mut out = String::new();
        section(&mut out, JOB, &set);
        for part in [
            "<mark>betas = [</mark><mark>    0.9,</mark><mark>    0.999,</mark><mark>]</mark>",
            "<mark class=\"override\">lr = 0.1<i>--set</i></mark>",
            "<span>name = &quot;a&lt;b&quot;</span><span>seed = 1</span>",
            "<span class=\"head\">[[scheduler]]</span><span>name = &quot;step&quot;</span>",
            "<mark>name = &quot;linear&quot;<i>base a.toml</i></mark>",
        ] {
            assert!(out.contains(part), "{part} is missing in {out}");
        }
        let mut plain = String::new();
        section(&mut plain, JOB, &BTreeMap::new());
        assert!(!plain.contains("<mark") && !plain.contains("<p>"), "a run of an early version: {plain}");
    }

    #[test]
    fn differences_have_all_values_of_their_keys() {
        let other = JOB.replace("lr = 0.1\n", "lr = 0.2\nmomentum = 0.9\n");
        let all = [JOB, &other].map(|job| spec::values(job).unwrap());
        let lr = ("optimizer.lr".to_owned(), vec![Some("0.1".to_owned()), Some("0.2".to_owned())]);
        let momentum = ("optimizer.momentum".to_owned(), vec![None, Some("0.9".to_owned())]);
        assert_eq!(differences(&all), [lr, momentum]);
    }
}
