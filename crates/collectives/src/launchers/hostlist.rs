//! Slurm's compact notation for lists of hosts (`n[01-03,7],m1`) and of tasks per node (`2(x3),1`).

/// No cluster has longer lists.
const MAX_HOSTS: usize = 1 << 16;
/// The maximum length of a host name.
const MAX_NAME: usize = 255;

/// The hosts of a list, in order. `None` if it is malformed or has more than 65536 hosts.
pub fn hosts(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for item in split(list)? {
        expand(item, MAX_HOSTS - all.len(), &mut all)?;
    }
    (!all.is_empty()).then_some(all)
}

/// Splits at commas outside brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            ',' if !inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    (!inside && items.iter().all(|item| !item.is_empty())).then_some(items)
}

/// All names of one item; with several brackets, the last one varies fastest.
fn expand(item: &str, limit: usize, all: &mut Vec<String>) -> Option<()> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while !rest.is_empty() {
        let (plain, bracket) = rest.split_once('[').map_or((rest, None), |(p, b)| (p, Some(b)));
        if plain.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        names.iter_mut().for_each(|name| name.push_str(plain));
        rest = "";
        if let Some((ranges, after)) = bracket.and_then(|b| b.split_once(']')) {
            let numbers = numbers(ranges, limit)?;
            if names.len().checked_mul(numbers.len())? > limit {
                return None;
            }
            names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{n}"))).collect();
            rest = after;
        }
        if names.first()?.len() > MAX_NAME {
            return None;
        }
    }
    if names.len() > limit {
        return None;
    }
    all.append(&mut names);
    Some(())
}

/// `01-03,7`: the numbers as written, with leading zeros.
fn numbers(ranges: &str, limit: usize) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| digits)
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        let more = to.checked_sub(from)?;
        if more >= (limit - all.len().min(limit)) as u64 {
            return None;
        }
        let width = first.len();
        all.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Some(all)
}

/// `2(x3),1`: the number of tasks on each node.
pub fn tasks_per_node(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for item in text.split(',') {
        let (tasks, times) = match item.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (item, 1),
        };
        let tasks: usize = tasks.parse().ok()?;
        if times > MAX_HOSTS - all.len() {
            return None;
        }
        all.extend(std::iter::repeat_n(tasks, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_expanded_in_order() {
        let cases: [(&str, &[&str]); 6] = [
            ("vm", &["vm"]),
            ("n[01-03,7],m1", &["n01", "n02", "n03", "n7", "m1"]),
            ("n[9-11]", &["n9", "n10", "n11"]),
            ("n[098-101].cluster", &["n098.cluster", "n099.cluster", "n100.cluster", "n101.cluster"]),
            ("r[1-2]n[0,5]", &["r1n0", "r1n5", "r2n0", "r2n5"]),
            ("b,a", &["b", "a"]),
        ];
        for (list, expected) in cases {
            assert_eq!(hosts(list).unwrap_or_default(), expected, "{list}");
        }
    }

    #[test]
    fn rejects_malformed_and_too_long_lists() {
        for wrong in [
            "", ",", "a,", "a[", "a]", "a[1", "a[]", "a[x]", "a[2-1]", "a[1-]", "a[[1]]", "a b", "a[1-2-3]",
            "a[-1]",
        ] {
            assert_eq!(hosts(wrong), None, "{wrong}");
        }
        assert_eq!(hosts("n[0-99999999999999999]"), None);
        assert_eq!(hosts("n[0-65535]").map(|n| n.len()), Some(65536));
        assert_eq!(hosts("n[0-65535],m"), None);
        assert_eq!(hosts("n[0-999]m[0-999]"), None);
        assert_eq!(hosts(&"x".repeat(1000)), None);
    }

    #[test]
    fn tasks_on_each_node_are_read() {
        assert_eq!(tasks_per_node("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(tasks_per_node("4"), Some(vec![4]));
        for wrong in ["", "2(x3", "(x2)", "2(x-1)", "a", "1,,2", "1(x99999999)"] {
            assert_eq!(tasks_per_node(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// Every compact list expands to the original hosts.
        #[test]
        fn compact_lists_expand_to_their_hosts(
            groups in prop::collection::vec(("[a-z]{1,5}", 1usize..5, prop::collection::vec((0u32..9000, 0u32..5), 1..4)), 1..4),
        ) {
            let mut expected = Vec::new();
            let mut items = Vec::new();
            for (prefix, width, ranges) in &groups {
                let mut texts = Vec::new();
                for (from, more) in ranges {
                    texts.push(match more {
                        0 => format!("{from:0width$}"),
                        _ => format!("{from:0width$}-{:0width$}", from + more),
                    });
                    // Slurm pads the numbers of a range to the width of the first one.
                    let width = format!("{from:0width$}").len();
                    expected.extend((0..=*more).map(|n| format!("{prefix}{:0width$}", from + n)));
                }
                items.push(format!("{prefix}[{}]", texts.join(",")));
            }
            prop_assert_eq!(hosts(&items.join(",")), Some(expected));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[a-c0-9,\\[\\]()x-]{0,40}") {
            if let Some(names) = hosts(&text) {
                prop_assert!(!names.is_empty() && names.len() <= MAX_HOSTS);
            }
            let _ = tasks_per_node(&text);
        }
    }
}
