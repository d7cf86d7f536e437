//! The places of a tree's keys and values in its texts.

use super::load::JobTree;
use super::source::{Source, Span};
use super::tree::{Node, Table, Value};

/// The positions of a key and of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub key: Span,
    pub value: Span,
}

impl JobTree {
    /// Where the key at a dotted path is set, in the spec or a base; items of lists are given by index (`scheduler.0.name`).
    pub fn place(&self, path: &str) -> Option<Place> {
        self.find(path).map(|(place, _)| place)
    }

    /// The value of the key at a dotted path, if it is a string.
    pub fn string(&self, path: &str) -> Option<&str> {
        match self.find(path)?.1 {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The dotted paths of everything that is set, tables included, in order.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect(&self.root, "", &mut paths);
        paths
    }

    /// The text that a position is in.
    pub fn source(&self, span: Span) -> &Source {
        &self.sources[span.source]
    }

    fn find(&self, path: &str) -> Option<(Place, &Value)> {
        let mut parts = path.split('.');
        let first = self.root.get(parts.next()?)?;
        let mut place = Place { key: first.key_span, value: first.node.span };
        let mut value = &first.node.value;
        for part in parts {
            let node: &Node;
            (place.key, node) = match value {
                Value::Table(table) => table.get(part).map(|entry| (entry.key_span, &entry.node))?,
                Value::Array(items) => {
                    let item = items.get(part.parse::<usize>().ok()?)?;
                    (item.span, item)
                }
                _ => return None,
            };
            place.value = node.span;
            value = &node.value;
        }
        Some((place, value))
    }
}

fn collect(table: &Table, path: &str, paths: &mut Vec<String>) {
    for entry in &table.entries {
        let path = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
        paths.push(path.clone());
        match &entry.node.value {
            Value::Table(inner) => collect(inner, &path, paths),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    if let Value::Table(inner) = &item.value {
                        collect(inner, &format!("{path}.{i}"), paths);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_with_its_value() {
        let text = "seed = 3\n[optimizer]\nname = \"sgd\"\n[[scheduler]]\nname = \"warmup\"\n";
        let tree = JobTree::parse("a.toml", text, &[]);
        let shown = |span: Span| &tree.source(span).text[span.start..span.end];
        let place = |path: &str| tree.place(path).map(|place| (shown(place.key), shown(place.value)));
        assert_eq!(place("optimizer.name"), Some(("name", "\"sgd\"")));
        assert_eq!(place("scheduler.0.name"), Some(("name", "\"warmup\"")));
        assert_eq!(place("scheduler.1.name"), None);
        assert_eq!(place("seed.x"), None);
        assert_eq!((tree.string("optimizer.name"), tree.string("seed")), (Some("sgd"), None));
        let paths = ["seed", "optimizer", "optimizer.name", "scheduler", "scheduler.0.name"];
        assert_eq!(tree.paths(), paths);
    }
}
