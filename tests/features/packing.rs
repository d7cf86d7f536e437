//! Documents are trained alike however they are laid out: alone in padded rows, or several in a row; on any number of ranks, in any
//! micro-batches.

use crate::common::ranks::on_ranks;
use crate::golden::NoKeys;
use crate::training::train_steps;
use ddp_run::Registry;
use ddp_run::dataset::{
    DataFacts, Dataset, DatasetSource, FieldFacts, FieldKind, FieldMut, POSITIONS, SampleKey, SampleMut,
    Splits, UNTRAINED,
};
use ddp_run::prelude::Result;
use ddp_run::testing::{
    Compute, JobTree, Plan, Position, SoloGroup, StepReport, WorldRequest, gloo::GlooOptions,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const VOCABULARY: usize = 11;
const BLOCK: usize = 12;
const STEPS: usize = 3;

/// Inputs, targets and positions of a row.
type Row = [Vec<i64>; 3];

/// Rows that each hold these documents, of whose tokens each but the last one is an input.
fn row(documents: &[Vec<i64>]) -> Row {
    let [mut inputs, mut targets, mut positions] = [const { Vec::new() }; 3];
    for document in documents {
        inputs.extend(&document[..document.len() - 1]);
        targets.extend(&document[1..]);
        positions.extend(0..document.len() as i64 - 1);
    }
    // In the padding each token is a document.
    positions.resize(BLOCK, 0);
    inputs.resize(BLOCK, 3);
    targets.resize(BLOCK, UNTRAINED);
    [inputs, targets, positions]
}

#[derive(Clone, Debug)]
struct Rows(Vec<Row>);

impl Dataset for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(VOCABULARY) }
    }
    fn target(&self) -> FieldFacts {
        self.input()
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        let facts = FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(BLOCK) };
        [(POSITIONS.to_owned(), facts)].into()
    }
    fn has_untrained(&self) -> bool {
        true
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let all = [to.input, to.target, to.fields.take(POSITIONS)?];
        for (values, to) in self.0[key.sample as usize].iter().zip(all) {
            let FieldMut::Index(to) = to else { unreachable!() };
            to.copy_from_slice(values);
        }
        Ok(())
    }
}

impl DatasetSource for Rows {
    fn facts(&self) -> DataFacts {
        DataFacts {
            input: Some(self.input()),
            target: Some(self.target()),
            fields: self.fields(),
            train: Some(self.len()),
            ..DataFacts::default()
        }
    }
    fn open(&self) -> Result<Splits> {
        Ok(Splits { train: Arc::new(self.clone()), val: None, test: None })
    }
}

/// Loss, gradient norm and trained tokens of steps that each have all rows.
fn train(model: &str, rows: &[Row], [world, accumulate]: [usize; 2], on: &Compute) -> Vec<[f64; 3]> {
    // Rows of padding alone, so that the ranks have equally many in all micro-batches.
    let mut rows = rows.to_vec();
    rows.resize(rows.len().next_multiple_of(world * accumulate), row(&[]));
    let batch = rows.len() / world / accumulate;
    let spec = format!(
        "name = \"packing\"\nepochs = {STEPS}\nbatch_size = {batch}\nsave_every = \"never\"\n[model]\n{model}\n\
         [dataset]\nname = \"rows\"\nshuffle = false\nworkers = 0\n[checkpoint]\nkeep_best = 0\n\
         [train]\naccumulate = {accumulate}\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n"
    );
    let registry = Registry::standard().dataset("rows", move |NoKeys {}| Rows(rows.clone()));
    let tree = JobTree::parse("packing.toml", &spec, &[]);
    let plan = Plan::resolve(&tree, &registry, WorldRequest::new(world)).unwrap_or_else(|e| panic!("{e}"));
    let run = |group| {
        let mut steps = Vec::new();
        let each = |_: &Position, report: &StepReport| {
            steps.push([report.sums.mean_loss(), report.grad_norm, report.sums.rows]);
        };
        train_steps(&plan, group, on, None, |_| (), each);
        steps
    };
    let mut steps = match world {
        1 => vec![run(Arc::new(SoloGroup::default()))],
        _ => on_ranks(world, &GlooOptions::default(), run),
    };
    assert!(steps.iter().all(|of_rank| *of_rank == steps[0]), "{steps:?}");
    assert_eq!(steps[0].len(), STEPS);
    steps.swap_remove(0)
}

/// Weights that are larger than usual, so that attention is not uniform.
const LLAMA: &str = "name = 'llama'\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 2\n\
                     num_attention_heads = 4\nnum_key_value_heads = 2\nhead_dim = 4\ninitializer_range = 0.4";
const WINDOW: &str = "name = 'llama'\nmodel_type = 'mistral'\nhidden_size = 16\nintermediate_size = 24\n\
                      num_hidden_layers = 2\nnum_attention_heads = 2\nnum_key_value_heads = 1\nhead_dim = 4\n\
                      sliding_window = 4\ninitializer_range = 0.4";
const GPT2: &str = "name = 'gpt2'\nn_layer = 2\nn_head = 2\nn_embd = 16\nresid_pdrop = 0.0\nembd_pdrop = 0.0\n\
                    attn_pdrop = 0.0\ninitializer_range = 0.4";
const GPT: &str = "name = 'gpt'\nn_layer = 2\nn_head = 2\nn_embd = 16";

/// Lays documents out in rows as they come, several in each that has room.
fn packed(documents: &[Vec<i64>]) -> Vec<Row> {
    let mut rows: Vec<Vec<Vec<i64>>> = Vec::new();
    for document in documents {
        let inputs = |row: &[Vec<i64>]| row.iter().map(|document| document.len() - 1).sum::<usize>();
        match rows.iter_mut().find(|row| inputs(row) + document.len() - 1 <= BLOCK) {
            Some(row) => row.push(document.clone()),
            None => rows.push(vec![document.clone()]),
        }
    }
    rows.iter().map(|documents| row(documents)).collect()
}

fn check(model: &str, documents: &[Vec<i64>], layout: [usize; 2], on: &Compute, tolerance: f64) {
    let alone: Vec<Row> = documents.iter().map(|document| row(std::slice::from_ref(document))).collect();
    let expected = train(model, &alone, [1, 1], on);
    let targets: usize = documents.iter().map(|document| document.len() - 1).sum();
    for (what, rows) in [("alone", alone), ("packed", packed(documents))] {
        for layout in [[1, 1], layout] {
            let found = train(model, &rows, layout, on);
            for (found, expected) in found.iter().zip(&expected) {
                // Relative, but not to a loss that has been learnt.
                let gap = |which: usize| (found[which] - expected[which]).abs() / expected[which].max(1.0);
                assert!(
                    gap(0) < tolerance && gap(1) < 10.0 * tolerance && found[2] == targets as f64,
                    "{model}, {what}, {layout:?}: {found:?}, {expected:?}, {documents:?}"
                );
            }
        }
    }
}

/// Rows of which all logits together are many enough to be computed in parts; those of one row are not.
#[test]
fn a_large_vocabulary_is_trained_alike() {
    let documents = [vec![1, 5, 2, 7, 4, 9, 3, 8, 2], vec![8, 3, 6, 2, 10], vec![0, 9, 2, 3, 4, 5, 6]];
    let model = "name = 'llama'\nhidden_size = 8\nintermediate_size = 8\nnum_hidden_layers = 1\n\
                 num_attention_heads = 2\nnum_key_value_heads = 2\nvocab_size = 690_000\n\
                 initializer_range = 0.4\ntie_word_embeddings = true";
    for layout in [[1, 3], [3, 1]] {
        check(model, &documents, layout, &Compute::host(), 1e-5);
    }
}

fn documents() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let document = prop::collection::vec(0..VOCABULARY as i64, 2..=BLOCK + 1);
    prop::collection::vec(document, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_are_trained_alike_in_any_rows(
        documents in documents(),
        model in prop::sample::select(vec![LLAMA, WINDOW, GPT2, GPT]),
        world in 1_usize..=3,
        accumulate in 1_usize..=3,
    ) {
        check(model, &documents, [world, accumulate], &Compute::host(), 1e-5);
    }
}

/// Two documents that a row holds change each other's loss unless they are kept apart: the comparison above would notice.
#[test]
fn tokens_of_another_document_would_change_the_loss() {
    let documents = [vec![1, 5, 2, 7, 4, 9], vec![8, 3, 6, 2, 10]];
    let apart = row(&documents);
    let [inputs, targets, _] = apart.clone();
    let together = [inputs, targets, (0..BLOCK as i64).collect()];
    for model in [LLAMA, GPT2] {
        let [apart, together] = [&apart, &together]
            .map(|row| train(model, std::slice::from_ref(row), [1, 1], &Compute::host())[0][0]);
        assert!((apart / together - 1.0).abs() > 1e-3, "{model}: {apart}, {together}");
    }
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "in software it takes minutes, most of them to compile and tune kernels"]
fn documents_are_trained_alike_on_wgpu() {
    let Some(on) = crate::golden::on_wgpu::wgpu() else { return };
    let documents = [vec![1, 5, 2, 7, 4, 9], vec![8, 3, 6, 2, 10], vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]];
    for model in [WINDOW, GPT2] {
        check(model, &documents, [1, 2], &on, 1e-4);
    }
}
