//! The values of a spec, without what declares them: to compare specs of other versions and other starts.

use std::collections::BTreeMap;

/// Values as TOML, by their dotted keys.
pub type Values = BTreeMap<String, String>;

/// All values of a spec by dotted key; `None` if it is no TOML.
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
    Some(out)
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
}
