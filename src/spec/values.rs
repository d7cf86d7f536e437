//! The values of a spec, without what declares them: to compare specs of other versions and other starts.

use std::collections::{BTreeMap, HashSet};

/// Values as TOML, by their dotted keys.
pub type Values = BTreeMap<String, String>;

/// A key by its dotted path, with the same path whether the only table of a list is written as `[[scheduler]]` or as `[scheduler]`: without the
/// index.
pub struct Paths<'k> {
    /// Lists of several tables.
    lists: HashSet<&'k str>,
}

impl<'k> Paths<'k> {
    /// Of a spec with these keys.
    pub fn of(keys: impl IntoIterator<Item = &'k str>) -> Self {
        let second = |key: &'k str| key.match_indices(".1.").map(move |(at, _)| &key[..at]);
        Self { lists: keys.into_iter().flat_map(second).collect() }
    }

    pub fn path(&self, key: &str) -> String {
        let mut path = String::with_capacity(key.len());
        let (mut from, mut at) = (0, 0);
        while let Some(found) = key[at..].find(".0.") {
            at += found;
            if !self.lists.contains(&key[..at]) {
                path.push_str(&key[from..at]);
                from = at + 2;
            }
            at += 2;
        }
        path + &key[from..]
    }
}

/// All values of a spec by dotted path ([`Paths`]); `None` if it is no TOML.
pub fn values(text: &str) -> Option<Values> {
    fn visit(path: &str, value: &toml::Value, out: &mut Values) {
        let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(key, v)| visit(&inner(key), v, out)),
            toml::Value::Array(all) if all.iter().any(toml::Value::is_table) => {
                all.iter().enumerate().for_each(|(i, v)| visit(&inner(&i.to_string()), v, out));
            }
            value => {
                out.insert(path.to_owned(), value.to_string());
            }
        }
    }
    let mut out = Values::new();
    visit("", &toml::Value::Table(text.parse().ok()?), &mut out);
    Some(by_path(out))
}

/// The same values by their paths ([`Paths`]).
pub fn by_path(values: Values) -> Values {
    let paths = Paths::of(values.keys().map(String::as_str));
    let paths: Vec<String> = values.keys().map(|key| paths.path(key)).collect();
    paths.into_iter().zip(values.into_values()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_arrays_of_tables_are_parts_of_keys() {
        let spec = "a = 1\nb = [1, 2]\n[c]\nd = \"e\"\n[[f]]\ng = 2\n[[f]]\ng = 3\n";
        let expected = [("a", "1"), ("b", "[1, 2]"), ("c.d", "\"e\""), ("f.0.g", "2"), ("f.1.g", "3")];
        let expected: Values = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(values(spec), Some(expected));
        assert_eq!(values("no spec"), None);
    }

    #[test]
    fn the_only_table_of_a_list_is_as_a_table_by_itself() {
        let table = "[optimizer]\nlr = 1\n[optimizer.group]\nmatch = \"a\"\n[[f]]\ng = [{ h = 1 }]\n";
        let list = "[optimizer]\nlr = 1\n[[optimizer.group]]\nmatch = \"a\"\n[f.g]\nh = 1\n";
        let expected = [("f.g.h", "1"), ("optimizer.group.match", "\"a\""), ("optimizer.lr", "1")];
        let expected: Values = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!((values(table), values(list)), (Some(expected.clone()), Some(expected)));
        let paths = Paths::of(["a.0.b.0.c", "a.1.b.0.c", "a.10.b.0.c"]);
        let shown = ["a.0.b.0.c", "a.1.b.0.c", "a.0", "x.0.c"].map(|key| paths.path(key));
        assert_eq!(shown, ["a.0.b.c", "a.1.b.c", "a.0", "x.c"]);
    }
}
