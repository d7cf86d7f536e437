//! `ddp-run export RUN --gguf FILE`: a file that llama.cpp and Ollama run: weights, hyperparameters, tokenizer and chat template.

mod element;
mod file;
mod model;
mod pre;
mod rope;
mod vocabulary;

use super::export::ExportArgs;
use super::outputs::destroys_nothing;
use super::used::Used;
use base::error::{IoContext, Result};
use base::files::AtomicFile;
use checkpoint::{TensorData, TensorMap};
use data::Encoding;
use element::BLOCK;
pub(super) use element::Element;
use file::{ALIGNMENT, Metadata, TensorInfo, Value};
use job::registry::Registry;
use model::{Architecture, Arrangement, refused};
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use vocabulary::Vocabulary;

/// Elements that are converted at once.
const CHUNK: usize = BLOCK << 15;

/// Writes the file: it appears when it is whole.
///
/// # Errors
/// Exit 2: the file is one of a run. 74: the checkpoint can't be read or the file can't be written. 78: llama.cpp does not compute the model
/// or its tokens, or its job names what this program lacks.
pub(super) fn run(args: &ExportArgs, path: &Path, element: Element, registry: &Registry) -> Result<()> {
    destroys_nothing(path, &[&args.checkpoint])?;
    let used = Used::open(&args.checkpoint, args.of_run.as_deref(), registry)?;
    let Used { loaded, plan, usage } = &used;
    loaded.warnings.iter().for_each(|warning| status!("warning: {warning}"));
    let Some(config) = plan.model.source.config_json(&usage.facts) else {
        let why =
            format!("llama.cpp has no counterpart of the model `{}` as ddp-run trains it", plan.model.name);
        return Err(refused(why));
    };
    let architecture = Architecture::of(&config)?;
    let Some(Encoding::Text(text)) = &usage.encoding else {
        return Err(refused("the checkpoint has no tokenizer"));
    };
    let vocabulary = Vocabulary::of(&text.tokenizer, architecture.vocab_size)?;
    vocabulary.warnings.iter().for_each(|warning| status!("warning: {warning}"));
    let averaged = !args.no_ema && !loaded.ema.is_empty();
    let tensors = tensors(&architecture, loaded.weights(averaged), element)?;
    let others =
        tensors.iter().filter(|tensor| element == Element::Q8_0 && tensor.info.element == Element::F16);
    if let Some(first) = others.clone().next() {
        status!(
            "{} matrices are f16: their rows are no multiples of {BLOCK} ({}, …)",
            others.count(),
            first.info.name
        );
    }
    let mut metadata = general(&architecture, &plan.name, element);
    metadata.extend(architecture.metadata);
    metadata.extend(vocabulary.metadata(text.tokenizer.chat_template()));
    let bytes = write(path, &metadata, &tensors)?;
    status!(
        "wrote {} ({} tensors, {bytes} bytes) from {} (step {}{})",
        base::display::path(path),
        tensors.len(),
        base::display::path(&loaded.path),
        loaded.state.global_step,
        if averaged { ", averaged weights" } else { "" }
    );
    Ok(())
}

/// The keys that all architectures have.
fn general(architecture: &Architecture, name: &str, element: Element) -> Metadata {
    let mut keys = vec![
        ("general.architecture".to_owned(), architecture.name.into()),
        ("general.type".to_owned(), "model".into()),
        ("general.name".to_owned(), name.into()),
        ("general.file_type".to_owned(), element.file_type().into()),
    ];
    if element == Element::Q8_0 {
        // GGML_QNT_VERSION
        keys.push(("general.quantization_version".to_owned(), Value::U32(2)));
    }
    keys
}

/// A tensor of the file.
struct Stored<'a> {
    info: TensorInfo,
    source: Cow<'a, TensorData>,
    arrangement: Arrangement,
}

fn tensors<'a>(
    architecture: &Architecture,
    weights: &'a TensorMap,
    element: Element,
) -> Result<Vec<Stored<'a>>> {
    let mut all = Vec::new();
    if let Some(factors) = &architecture.rope_factors {
        let (name, shape) = ("rope_freqs.weight".to_owned(), vec![factors.len()]);
        let source = Cow::Owned(TensorData::from_f32(&name, shape.clone(), factors)?);
        let info = TensorInfo { name, shape, element: Element::F32 };
        all.push(Stored { info, source, arrangement: Arrangement::Same });
    }
    for tensor in weights {
        let Some((name, arrangement)) = architecture.tensor(&tensor.name)? else { continue };
        let mut shape = tensor.shape.clone();
        if arrangement == Arrangement::Transposed {
            shape.reverse();
        }
        let element = element_of(&name, &shape, element);
        all.push(Stored {
            info: TensorInfo { name, shape, element },
            source: Cow::Borrowed(tensor),
            arrangement,
        });
    }
    Ok(all)
}

/// As llama.cpp's converter chooses it.
fn element_of(name: &str, shape: &[usize], element: Element) -> Element {
    match (shape, element) {
        ([] | [_], _) => Element::F32,
        _ if name == "position_embd.weight" => Element::F32,
        ([.., row], Element::Q8_0) if row % BLOCK != 0 => Element::F16,
        _ => element,
    }
}

impl Stored<'_> {
    fn values(&self) -> Cow<'_, [f32]> {
        match self.arrangement {
            Arrangement::Same => self.source.as_f32(),
            Arrangement::Transposed => self.source.clone().into_owned().transposed().to_f32_vec().into(),
            Arrangement::Pairs(heads) => {
                let rows = self.info.shape.first().copied().unwrap_or_default();
                in_pairs(&self.source.as_f32(), rows, heads).into()
            }
        }
    }

    fn write(&self, out: &mut impl Write, path: &Path) -> Result<()> {
        for chunk in self.values().chunks(CHUNK) {
            let bytes = self.info.element.encode(&self.info.name, chunk)?;
            out.write_all(&bytes).doing("write", path)?;
        }
        let size = self.info.size();
        let padding = [0; ALIGNMENT];
        out.write_all(&padding[..size.next_multiple_of(ALIGNMENT) - size]).doing("write", path)
    }
}

/// The `rows` of a matrix, or the elements of a bias, in the order of [`Arrangement::Pairs`].
fn in_pairs(values: &[f32], rows: usize, heads: usize) -> Vec<f32> {
    let (width, of_head) = (values.len() / rows, rows / heads);
    let order = (0..rows).map(|row| {
        let (head, place) = (row / of_head, row % of_head);
        head * of_head + place % 2 * (of_head / 2) + place / 2
    });
    order.flat_map(|row| &values[row * width..(row + 1) * width]).copied().collect()
}

/// Returns the file's size.
fn write(path: &Path, metadata: &Metadata, tensors: &[Stored<'_>]) -> Result<u64> {
    let infos: Vec<TensorInfo> = tensors.iter().map(|tensor| tensor.info.clone()).collect();
    let mut draft = AtomicFile::new(path).doing("write", path)?;
    draft.write_all(&file::head(metadata, &infos)).doing("write", path)?;
    tensors.iter().try_for_each(|tensor| tensor.write(&mut draft, path))?;
    let put = |draft: AtomicFile| -> io::Result<u64> {
        draft.put_synced()?;
        Ok(std::fs::metadata(path)?.len())
    };
    put(draft).doing("write", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_are_put_in_pairs() {
        // Two heads of four rows, each of two numbers.
        let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let rows = [0, 2, 1, 3, 4, 6, 5, 7];
        let expected: Vec<f32> =
            rows.iter().flat_map(|row| [2.0 * *row as f32, 2.0 * *row as f32 + 1.0]).collect();
        assert_eq!(in_pairs(&values, 8, 2), expected);
        assert_eq!(in_pairs(&values[..4], 4, 1), [0.0, 2.0, 1.0, 3.0]);
    }

    #[test]
    fn only_matrices_are_rounded() {
        let q8 = |name: &str, shape: &[usize]| element_of(name, shape, Element::Q8_0);
        assert_eq!(q8("output_norm.weight", &[64]), Element::F32);
        assert_eq!(q8("position_embd.weight", &[64, 64]), Element::F32);
        assert_eq!(q8("token_embd.weight", &[300, 64]), Element::Q8_0);
        assert_eq!(q8("blk.0.ffn_down.weight", &[64, 172]), Element::F16);
        assert_eq!(element_of("output.weight", &[3, 5], Element::Bf16), Element::Bf16);
    }
}
