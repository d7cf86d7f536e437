use super::*;
use crate::optim::standard_kinds;
use crate::optim::testing::{optimizer, plan, read};

fn tensor(name: &str, role: Role) -> TensorFacts {
    TensorFacts { name: name.to_owned(), shape: vec![2], role, aliases: Vec::new() }
}

fn tensors() -> Vec<TensorFacts> {
    let names =
        ["conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.0.bn1.bias", "fc.weight"];
    let mut all: Vec<TensorFacts> = names.iter().map(|name| tensor(name, Role::Parameter)).collect();
    all[5].aliases = vec!["head.weight".to_owned()];
    all.push(tensor("bn1.running_mean", Role::Statistic));
    all.push(tensor("teacher.weight", Role::Frozen));
    all
}

fn groups(text: &str) -> OptimizerPlan {
    plan(&format!("name = \"adamw\"\nlr = 0.5\nweight_decay = 0.25\n{text}"))
}

/// The rule of each parameter of [`tensors`].
fn rules(plan: &OptimizerPlan) -> Vec<Option<usize>> {
    let all = tensors();
    all.iter().filter(|t| t.role == Role::Parameter).map(|t| plan.rule_of(t.names())).collect()
}

#[test]
fn a_parameter_belongs_to_the_first_group_that_matches_one_of_its_names() {
    let plan = groups(
        "[[group]]\nmatch = [\"layer?.*.conv[0-9].*\", \"head.*\"]\nlr = 2\n\
         [[group]]\nmatch = \"bn1.bias\"\nfrozen = false\n\
         [[group]]\nmatch = \"*\"\nfrozen = true\n",
    );
    assert_eq!(rules(&plan), [None, None, Some(2), Some(1), None, Some(1)]);
    assert_eq!(plan.rules().iter().map(|rule| rule.lr).collect::<Vec<_>>(), [0.5, 2.0, 0.5, 0.5]);
    assert_eq!(plan.misfits(&tensors()), []);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(
        json["group"][0],
        serde_json::json!({ "match": ["layer?.*.conv[0-9].*", "head.*"], "lr": 2.0 })
    );
    assert_eq!(json["group"][1], serde_json::json!({ "match": "bn1.bias", "frozen": false }));
    assert_eq!(rules(&groups("")), [Some(0); 6]);
}

/// What a group does not set has the value of the table, not its default.
#[test]
fn a_group_inherits_the_values_of_the_table() {
    let plan = groups("decay = \"matrices\"\n[[group]]\nmatch = \"fc.*\"\nbetas = [0.5, 0.5]\n");
    let after = |rule: usize, shape: &[usize]| {
        let (mut p, mut m, mut v) = ([1.0f32; 4], [0.0f32; 4], [0.0f32; 4]);
        let rule = &plan.rules()[rule];
        rule.optimizer.update(1, rule.lr, 1.0, shape, &mut p, &[1.0, 0.0, 0.0, 0.0], &mut [&mut m, &mut v]);
        (p[1], m[0])
    };
    // Decay as in the table, also where it applies to; other betas.
    assert_eq!([after(0, &[2, 2]), after(0, &[4])], [(0.875, 0.1), (1.0, 0.1)]);
    assert_eq!([after(1, &[2, 2]), after(1, &[4])], [(0.875, 0.5), (1.0, 0.5)]);
}

#[test]
fn every_optimizer_has_groups() {
    for (name, _) in standard_kinds() {
        let plan = plan(&format!(
            "name = \"{name}\"\n[[group]]\nmatch = \"*.bias\"\nlr = 0.5\nweight_decay = 0.0\n"
        ));
        let [own, group] = &plan.rules()[..] else { panic!("{name}") };
        assert_eq!((own.lr, group.lr), (plan.lr, 0.5), "{name}");
        assert_eq!(own.optimizer.slots(), group.optimizer.slots(), "{name}");
        let text = format!("{:?}", group.optimizer);
        assert!(text.contains("lr: 0.5") && text.contains("weight_decay: 0.0"), "{text}");
    }
}

#[test]
fn mistakes_of_a_table_are_reported() {
    for (group, problem) in [
        ("lr = 0.1", "missing key `match`"),
        ("match = \"a\"", "the group sets nothing"),
        ("match = \"a\"\nfrozen = true\nlr = 0.1", "has no effect on parameters that are frozen"),
        ("match = \"a\"\nbetas = [0.9]", "expected 2 numbers, found 1"),
        ("match = \"a\"\nlr = -1", "expected a number of at least 0, found -1"),
        ("match = \"a\"\nlearning_rate = 1", "unknown key"),
        ("match = \"a\"\nname = \"sgd\"", "unknown key"),
        ("match = []\nlr = 1", "or a list of patterns, found an empty list"),
        ("match = [\"a\", 1]\nlr = 1", "or a list of patterns, found a list"),
        ("match = \"a.**\"\nlr = 1", "one `*` stands for any characters"),
        ("match = \"a[\"\nlr = 1", "not a pattern: invalid range pattern"),
    ] {
        let (_, problems) = read(&format!("name = \"adamw\"\n[[group]]\n{group}\n"), optimizer);
        assert!(problems.contains(problem), "{group}:\n{problems}");
        assert!(problems.contains("1 problem in"), "{group}:\n{problems}");
    }
    let text = "name = \"sgd\"\nmomentum = 0.9\n[[group]]\nmatch = \"a\"\nnesterov = true\n";
    assert_eq!(read(text, optimizer).1, "", "with the table's momentum");
    let (_, problems) = read(&text.replace("0.9", "0.0"), optimizer);
    assert!(problems.contains("Nesterov momentum needs"), "{problems}");
}

#[test]
fn groups_without_an_effect_are_reported_where_they_stand() {
    for (text, path, message) in [
        (
            "match = \"layer2.*\"\nlr = 1",
            "group.0.match",
            "`layer2.*` matches no parameter of the model; did you mean `layer1.*`?",
        ),
        (
            "match = [\"fc.*\", \"layer1\"]\nlr = 1",
            "group.0.match.1",
            "`layer1` matches no parameter of the model; did you mean `layer1.*`?",
        ),
        (
            "match = \"bn1.wieght\"\nlr = 1",
            "group.0.match",
            "`bn1.wieght` matches no parameter of the model; did you mean `bn1.weight`?",
        ),
        (
            "match = \"bn1.running_*\"\nlr = 1",
            "group.0.match",
            "`bn1.running_*` matches no parameter of the model",
        ),
        (
            "match = \"encoder.*\"\nlr = 1",
            "group.0.match",
            "`encoder.*` matches no parameter of the model; it has `conv1.*`, `bn1.*`, `layer1.*`, `fc.*`, `head.*`, `teacher.*`",
        ),
        (
            "match = \"teacher.*\"\nlr = 1",
            "group.0.match",
            "`teacher.*` matches only parameters that the model itself freezes",
        ),
        (
            "match = \"*\"\nlr = 1\n[[group]]\nmatch = \"fc.*\"\nlr = 2",
            "group.1.match",
            "matches only parameters of the groups before it; the first group that matches counts",
        ),
        (
            "match = \"f*\"\nfrozen = true\n[[group]]\nmatch = \"*\"\nfrozen = true",
            "group.1.frozen",
            "with this group every parameter is frozen: nothing is trained",
        ),
    ] {
        let found = groups(&format!("[[group]]\n{text}\n")).misfits(&tensors());
        let [one] = &found[..] else { panic!("{text}: {found:?}") };
        assert_eq!(one.path.join("."), path, "{text}");
        assert!(one.message.starts_with(message), "{text}: {}", one.message);
    }
    assert_eq!(groups("[[group]]\nmatch = \"teacher.*\"\nfrozen = true\n").misfits(&tensors()), []);
}
