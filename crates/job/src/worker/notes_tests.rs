//! The notes of a run's evaluations, and that nothing else depends on them.

use super::evaluate::loaded;
use super::testing::{SPEC, TestRun, plan};
use super::{Evaluation, EvaluationHandoff, EvaluationScope, RankParts, Split, evaluate};
use checkpoint::load;
use collectives::{ProcessGroup, SoloGroup, spawn};
use ddp::device::ComputeDevice;
use record::evaluations::{EvaluationRecord, read};
use std::path::{Path, PathBuf};
use train::training::TrainingEnd;

const SHAPES: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 8\n\
    [model]\nname = \"linear\"\n\
    [dataset]\nname = \"shapes\"\ntrain = 64\nval = 50\nsize = 16\nclasses = 4\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n\
    [checkpoint]\nbest = \"val.accuracy\"\n\
    [metrics]\nsamples = 5\n";

const OFF: [&str; 2] = ["metrics.samples=0", "metrics.per_class=false"];

fn notes(run: &TestRun) -> Vec<EvaluationRecord> {
    read(run.out())
}

/// A run whose data is a table with the classes `sold`.
fn of_table(file: &Path, more: &str) -> TestRun {
    let table = format!(
        "name = \"csv\"\npath = {file:?}\ntarget = \"sold\"\ntask = \"classification\"\nval_split = 0.4\n{more}\n"
    );
    let shapes = "name = \"shapes\"\ntrain = 64\nval = 50\nsize = 16\nclasses = 4\n";
    TestRun::new(&SHAPES.replace(shapes, &table))
}

#[test]
fn evaluations_note_classes_and_the_worst_samples() {
    let run = TestRun::new(SHAPES);
    run.train(2, &[]).unwrap();
    let (notes, accuracies) = (notes(&run), run.measured("accuracy"));
    assert_eq!(
        notes.iter().map(|note| (note.step, note.epoch)).collect::<Vec<_>>(),
        [(4, 0), (8, 1), (12, 2)]
    );
    let mut best = (f64::MIN, f64::MIN);
    for (note, [_, accuracy]) in notes.iter().zip(accuracies) {
        let score = (accuracy, -note.val_loss.unwrap());
        assert_eq!((note.metric.as_str(), note.value, note.best), ("val.accuracy", accuracy, score >= best));
        best = if score >= best { score } else { best };
        let classes = note.classes.as_ref().unwrap();
        let named: Vec<&str> = classes.rows.iter().map(|row| row.class.as_str()).collect();
        assert_eq!(named, ["circle", "square", "triangle", "cross"]);
        let matrix = classes.matrix.as_ref().unwrap();
        assert_eq!(matrix.iter().flatten().sum::<u64>(), 50);
        let right: u64 = (0..4).map(|class| matrix[class][class]).sum();
        assert_eq!(right as f64 / 50.0, accuracy);
        assert_eq!(note.worst.len(), 5);
        assert!(note.worst.windows(2).all(|pair| pair[0].loss >= pair[1].loss));
        for sample in &note.worst {
            let picture = sample.picture.as_ref().expect("an image");
            assert_eq!((picture.width, picture.height), (16, 16));
            assert!(picture.png.starts_with("iVBORw0KGgo"), "{}", picture.png);
            assert!(sample.index < 50 && named.contains(&sample.class.as_str()));
        }
    }
}

/// Of a table whose rows are partly left out: each sample has the line and the cells of the file.
#[test]
fn a_sample_is_named_by_its_line_and_its_cells() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    let cell = |i: usize| {
        if i.is_multiple_of(5) { String::new() } else { format!("{}.{}", 100 + i * 37 % 50, i % 10) }
    };
    let row = |i: usize| {
        format!("{},{},{}\n", cell(i), ["red", "blue", "green"][i % 3], ["no", "yes"][usize::from(i % 7 < 3)])
    };
    let text: String = (0..60).map(row).collect();
    std::fs::write(&file, format!("size,colour,sold\n{text}")).unwrap();
    let lines: Vec<String> = format!("size,colour,sold\n{text}").lines().map(str::to_owned).collect();
    let run = of_table(&file, "blanks = \"drop\"");
    run.train(1, &["epochs=1"]).unwrap();
    let worst = &notes(&run)[0].worst;
    assert_eq!(worst.len(), 5);
    for sample in worst {
        let (path, line) = sample.place.as_ref().unwrap().rsplit_once(", line ").unwrap();
        assert_eq!(path, file.display().to_string());
        let cells: Vec<&str> = sample.cells.iter().map(|(_, cell)| cell.as_str()).collect();
        let expected = &lines[line.parse::<usize>().unwrap() - 1];
        assert_eq!(format!("{},{}", cells.join(","), sample.class), *expected);
        assert_eq!(sample.cells[1].0, "colour");
        assert!(sample.picture.is_none() && sample.text.is_none() && sample.more_cells == 0);
    }
}

#[test]
fn long_cells_and_names_are_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    let long = "é".repeat(5000);
    let row = |i: usize| format!("{i},{long}{},{long}{}\n", i % 3, ["no", "yes"][usize::from(i % 7 < 3)]);
    let text: String = (0..60).map(row).collect();
    std::fs::write(&file, format!("size,{long}x,sold\n{text}")).unwrap();
    let run = of_table(&file, "");
    run.train(1, &["epochs=1"]).unwrap();
    let note = &notes(&run)[0];
    let is_short = |text: &str| text.chars().count() == 120 && text.contains("é…é");
    for sample in &note.worst {
        assert!(is_short(&sample.cells[1].0) && sample.cells[1].0.ends_with('x'), "{sample:?}");
        assert!(is_short(&sample.cells[1].1) && is_short(&sample.class), "{sample:?}");
    }
    let names: Vec<&str> = note.classes.as_ref().unwrap().rows.iter().map(|row| row.class.as_str()).collect();
    assert!(names.iter().all(|name| is_short(name)) && names[0] != names[1], "{names:?}");
}

#[test]
fn results_do_not_depend_on_the_notes() {
    let (noted, silent) = (TestRun::new(SHAPES), TestRun::new(SHAPES));
    noted.train(1, &[]).unwrap();
    silent.train(1, &OFF).unwrap();
    noted.assert_same(&silent);
    assert!(!silent.out().join("evaluations").exists());
    // Pictures are left out alone.
    let counted = TestRun::new(SHAPES);
    counted.train(1, &OFF[..1]).unwrap();
    assert!(notes(&counted).iter().all(|note| note.worst.is_empty() && note.classes.is_some()));
    // Numbers have no classes.
    let numbers = TestRun::new(SPEC);
    numbers.train(1, &[]).unwrap();
    assert!(!numbers.out().join("evaluations").exists());
}

#[test]
fn a_resumed_run_has_the_notes_of_one_without_interruption() {
    let (whole, parts) = (TestRun::new(SHAPES), TestRun::new(SHAPES));
    whole.train(1, &[]).unwrap();
    parts.in_parts(1, &["save_every=\"3 steps\""], &[5, 9]);
    assert_eq!(notes(&whole), notes(&parts));
    assert_eq!(notes(&whole).len(), 3);
}

#[test]
fn a_language_model_generates_texts_from_the_seed_alone() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("t.txt");
    std::fs::write(&text, "abcd bcda cdab dabc ".repeat(40)).unwrap();
    let spec = format!(
        "name = \"run\"\nepochs = 2\nbatch_size = 8\n[model]\nname = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 16\n\
         [dataset]\nname = \"text\"\npath = '{}'\nblock_size = 8\nworkers = 0\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n\
         [train]\nmax_steps = 6\n",
        text.display()
    );
    let (first, second, silent) = (TestRun::new(&spec), TestRun::new(&spec), TestRun::new(&spec));
    first.train(1, &[]).unwrap();
    second.train(1, &[]).unwrap();
    silent.train(1, &OFF).unwrap();
    first.assert_same(&silent);
    let noted = notes(&first);
    let texts = &noted.last().unwrap().texts;
    assert_eq!(texts.len(), 2);
    for text in texts {
        assert!(
            text.place.as_ref().is_some_and(|place| place.contains(".txt, line "))
                && text.prompt.len() == 4
                && "abcd bcda cdab dabc ".repeat(3).contains(&text.prompt),
            "{text:?}"
        );
        // 200 characters, or fewer if the machine is slow.
        let count = text.text.chars().count();
        assert!(text.text.chars().all(|c| " abcd".contains(c)) && (count == 200 || text.cut && count > 0));
    }
    let of_both = notes(&second);
    for (a, b) in texts.iter().zip(&of_both.last().unwrap().texts) {
        let shorter = a.text.len().min(b.text.len());
        assert_eq!((&a.prompt, &a.text[..shorter]), (&b.prompt, &b.text[..shorter]));
    }
}

/// Every rank's evaluation of the run's checkpoint.
fn evaluations(run: &TestRun, world: usize, split: Split) -> Vec<Evaluation> {
    let (plan, newest) = (plan(SHAPES, &[], world), run.newest());
    let wanted = EvaluationScope { split, averaged: true, per_class: true };
    let of = |group: &dyn ProcessGroup| {
        let loaded = (group.rank() == 0).then(|| load(&newest).unwrap());
        evaluate(&RankParts::new(&plan), loaded.as_ref(), wanted, ComputeDevice::Cpu, group.rank(), group)
            .unwrap()
    };
    if world == 1 {
        return vec![of(&SoloGroup::default())];
    }
    spawn(world, |group| Ok(of(&*group))).unwrap()
}

#[test]
fn an_evaluation_is_the_same_at_every_world_size() {
    let run = TestRun::new(SHAPES);
    assert_eq!(run.train(1, &[]).unwrap(), TrainingEnd::Done);
    for split in [Split::Val, Split::Train] {
        let alone = evaluations(&run, 1, split).remove(0);
        let matrix = alone.classes.as_ref().unwrap().matrix.as_ref().unwrap();
        assert_eq!(matrix.iter().flatten().sum::<u64>(), alone.samples);
        // With eight ranks, one has no batch.
        for world in [2, 3, 4, 8] {
            for found in evaluations(&run, world, split) {
                let bits = |of: &Evaluation| of.metrics.iter().map(|(_, v)| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&alone), "{:?} {:?}", found.metrics, alone.metrics);
                assert_eq!((found.samples, &found.classes), (alone.samples, &alone.classes), "{world} ranks");
            }
        }
    }
    let measured = run.measured("accuracy").last().unwrap()[1];
    let alone = evaluations(&run, 1, Split::Val).remove(0);
    assert!(alone.metrics.contains(&("accuracy".to_owned(), measured)), "{:?}", alone.metrics);
}

#[test]
fn rank_0_takes_another_checkpoint_if_a_training_has_removed_the_one_that_was_found() {
    let run = TestRun::new(SHAPES);
    run.train(1, &[]).unwrap();
    let (plan, newest) = (plan(SHAPES, &[], 1), run.newest());
    let all = newest.parent().unwrap().to_owned();
    let handoff = |among: Option<PathBuf>| EvaluationHandoff {
        checkpoint: newest.with_file_name("step-00000001"),
        among,
        best: false,
        split: "val".to_owned(),
        averaged: true,
        per_class: false,
        result: PathBuf::new(),
    };
    assert_eq!(loaded(plan.checkpoint.best, &handoff(Some(all))).unwrap().path, newest);
    // One that a user named is that one.
    assert!(loaded(plan.checkpoint.best, &handoff(None)).is_err());
}

/// Only pages and TensorBoard read them.
#[test]
fn files_that_only_pages_read_end_no_run() {
    let (whole, run) = (TestRun::new(SHAPES), TestRun::new(SHAPES));
    whole.train(1, &[]).unwrap();
    for name in ["evaluations", "tensorboard"] {
        std::fs::create_dir_all(run.out()).unwrap();
        std::fs::write(run.out().join(name), "not a folder").unwrap();
    }
    assert_eq!(run.train(1, &[]).unwrap(), TrainingEnd::Done);
    run.assert_same(&whole);
}
