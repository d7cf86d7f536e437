//! `digests.jsonl`: digests of the tensors of some steps, by which two runs are compared tensor by tensor. A digest is
//! XXH3 with 128 bits of the exact bits: it detects accidental differences, and does not protect against deliberate ones.

use super::appender::Appender;
use base::error::{IoContext, Result};
use base::files::{self, AtomicFile};
use base::named;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// The file in a run's folder.
const DIGESTS: &str = "digests.jsonl";

/// A digest of bits. `Display` is 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// XXH3 of the bytes, 128 bits.
    pub fn new(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// Another function of the bytes for each `seed`.
    pub fn seeded(bytes: &[u8], seed: u64) -> Self {
        Self(xxh3_128_with_seed(bytes, seed))
    }

    /// The digest of digests, in order.
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let bytes: Vec<u8> = all.into_iter().flat_map(|digest| digest.0.to_le_bytes()).collect();
        Self::new(&bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

named! {
    /// The role of a tensor in its step, in order of dependence: of the first group that differs between two
    /// runs, a tensor is the first one that does.
    pub enum DigestGroup {
        /// The samples of the step, over all ranks.
        Input = "input",
        /// Running state of the model after the step, such as batch-norm statistics, on rank 0.
        Buffer = "buffer",
        /// Averaged over the ranks, before clipping.
        Gradient = "gradient",
        /// The optimizer's state after the step.
        Optimizer = "optimizer",
        /// After the step.
        Parameter = "parameter",
        /// Averaged weights after the step, with `[ema]`.
        Average = "average",
    }
}

/// Digests by the name of the tensor, in the order of the state dict.
pub type NamedDigests = Map<String, Value>;

/// The digests of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DigestLine {
    /// Completed optimizer steps.
    pub step: u64,
    /// Completed epochs before the step.
    pub epoch: u64,
    /// Number of ranks.
    pub world: usize,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    input: NamedDigests,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    buffer: NamedDigests,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    gradient: NamedDigests,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    optimizer: NamedDigests,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameter: NamedDigests,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    average: NamedDigests,
}

/// A tensor of one step that is not the same in two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentTensor {
    /// What the tensor is in the step.
    pub group: DigestGroup,
    /// The tensor's name.
    pub name: String,
    /// `None` if the run has no such tensor.
    pub a: Option<String>,
    /// As `a`, of the other run.
    pub b: Option<String>,
}

impl DigestLine {
    /// A line without digests. `step`: optimizer steps done; `epoch`: from 0; `world`: number of ranks.
    pub fn new(step: u64, epoch: u64, world: usize) -> Self {
        Self { step, epoch, world, ..Self::default() }
    }

    /// The digests of a group by tensor name, in order.
    pub fn group(&self, group: DigestGroup) -> &NamedDigests {
        match group {
            DigestGroup::Input => &self.input,
            DigestGroup::Buffer => &self.buffer,
            DigestGroup::Gradient => &self.gradient,
            DigestGroup::Optimizer => &self.optimizer,
            DigestGroup::Parameter => &self.parameter,
            DigestGroup::Average => &self.average,
        }
    }

    fn group_mut(&mut self, group: DigestGroup) -> &mut NamedDigests {
        match group {
            DigestGroup::Input => &mut self.input,
            DigestGroup::Buffer => &mut self.buffer,
            DigestGroup::Gradient => &mut self.gradient,
            DigestGroup::Optimizer => &mut self.optimizer,
            DigestGroup::Parameter => &mut self.parameter,
            DigestGroup::Average => &mut self.average,
        }
    }

    /// Sets the digest of a tensor.
    pub fn add(&mut self, group: DigestGroup, name: &str, digest: Digest) {
        self.group_mut(group).insert(name.to_owned(), Value::String(digest.to_string()));
    }

    /// The tensors that are not the same in `other`, the first one first.
    pub fn differences(&self, other: &Self) -> Vec<DifferentTensor> {
        let mut all = Vec::new();
        for group in DigestGroup::ALL {
            let (own, others) = (self.group(group), other.group(group));
            let names = own.keys().chain(others.keys().filter(|name| !own.contains_key(*name)));
            let text =
                |of: &NamedDigests, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
            all.extend(names.filter_map(|name| {
                let (a, b) = (text(own, name), text(others, name));
                (a != b).then(|| DifferentTensor { group, name: name.clone(), a, b })
            }));
        }
        all
    }

    /// Equal for lines without differences, and only for these.
    fn mark(&self) -> u128 {
        let of = |group: DigestGroup, seed: u64| {
            let digest = |(name, value): (&String, &Value)| {
                xxh3_128_with_seed(format!("{name}={}", value.as_str().unwrap_or_default()).as_bytes(), seed)
            };
            self.group(group).iter().map(digest).fold(0u128, u128::wrapping_add)
        };
        (0..).zip(DigestGroup::ALL).fold(0, |all: u128, (seed, group)| all.wrapping_add(of(group, seed)))
    }
}

/// Appends lines; there is one writer per run, on rank 0.
#[derive(Debug)]
pub struct DigestWriter {
    lines: Appender,
}

impl DigestWriter {
    /// Opens the file of a run that continues at `step`, and removes the lines of later steps, which are repeated.
    pub fn open(out_dir: &Path, step: u64) -> Result<Self> {
        cut_digests(out_dir, step)?;
        Ok(Self { lines: Appender::open(&out_dir.join(DIGESTS))? })
    }

    /// Writes one line; see `Appender::write`.
    pub fn write(&mut self, line: &DigestLine) -> Result<()> {
        self.lines.write(line)
    }

    /// See `Appender::syncing`.
    pub fn syncing(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        self.lines.syncing()
    }
}

/// Removes the lines of steps after `step`, and invalid lines. A file that needs no change is not touched.
pub fn cut_digests(out_dir: &Path, step: u64) -> Result<()> {
    let path = out_dir.join(DIGESTS);
    if !path.exists() {
        return Ok(());
    }
    let (mut kept, mut length) = (Vec::new(), 0u64);
    // Lines are found twice, because all of a long run's need not fit in memory.
    for_each_line(&path, |number, line, text| {
        if line.is_some_and(|line| line.step <= step) {
            kept.push(number);
            length += text.len() as u64 + 1;
        }
        Ok(())
    })?;
    if fs::metadata(&path).doing("read", &path)?.len() == length {
        return Ok(());
    }
    let mut kept = kept.into_iter().peekable();
    let mut out = AtomicFile::under(path.with_extension("jsonl.partial"), &path).doing("write", &path)?;
    for_each_line(&path, |number, _, text| {
        if kept.next_if_eq(&number).is_none() {
            return Ok(());
        }
        out.write_all(text).and_then(|()| out.write_all(b"\n")).doing("write", &path)
    })?;
    out.put_synced().doing("write", &path)
}

/// The digests of a run by step. Marks that distinguish lines are in memory; a line is read on request, because the lines of a long run
/// are many.
#[derive(Debug, Default)]
pub struct Digests {
    file: Option<File>,
    path: PathBuf,
    /// The mark of each line, and where it begins.
    lines: BTreeMap<u64, (u128, u64)>,
}

impl Digests {
    /// The digests in a run's folder; none without the file. Invalid lines are left out.
    pub fn read(out_dir: &Path) -> Result<Self> {
        let path = out_dir.join(DIGESTS);
        if !path.exists() {
            return Ok(Self::default());
        }
        let (mut lines, mut begin) = (BTreeMap::new(), 0);
        for_each_line(&path, |_, line, text| {
            lines.extend(line.map(|line| (line.step, (line.mark(), begin))));
            begin += text.len() as u64 + 1;
            Ok(())
        })?;
        let file = Some(files::open(&path).doing("read", &path)?);
        Ok(Self { file, path, lines })
    }

    /// Drops the other steps.
    pub fn within(mut self, steps: RangeInclusive<u64>) -> Self {
        self.lines.retain(|step, _| steps.contains(step));
        self
    }

    /// Whether no step is left.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The largest step number.
    pub fn last_step(&self) -> Option<u64> {
        self.lines.keys().next_back().copied()
    }

    /// The steps that both have, and whether they are the same.
    pub fn in_common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (u64, bool)> + 'a {
        self.lines
            .iter()
            .filter_map(move |(step, (mark, _))| Some((*step, *mark == other.lines.get(step)?.0)))
    }

    /// The first step up to `last` that both have and that differs.
    pub fn first_difference(&self, other: &Self, last: u64) -> Option<u64> {
        let mut all = self.in_common(other).take_while(|(step, _)| *step <= last);
        all.find(|(_, same)| !same).map(|(step, _)| step)
    }

    /// The tensors of a step that differ, the first one first; none if one of both has no digests of it.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn differences(&self, other: &Self, step: u64) -> Result<Vec<DifferentTensor>> {
        let lines = self.line(step)?.zip(other.line(step)?);
        Ok(lines.map_or_else(Vec::new, |(own, other)| own.differences(&other)))
    }

    fn line(&self, step: u64) -> Result<Option<DigestLine>> {
        let (Some(file), Some((_, begin))) = (&self.file, self.lines.get(&step)) else { return Ok(None) };
        let mut reader = BufReader::new(file);
        let mut bytes = Vec::new();
        reader.seek(SeekFrom::Start(*begin)).doing("read", &self.path)?;
        reader.read_until(b'\n', &mut bytes).doing("read", &self.path)?;
        Ok(serde_json::from_slice(&bytes).ok())
    }
}

/// The digests of a run's folder by step, for tests.
#[doc(hidden)]
pub fn read_digests(out_dir: &Path) -> Result<BTreeMap<u64, DigestLine>> {
    let all = Digests::read(out_dir)?;
    let line = |step: &u64| all.line(*step).map(|line| (*step, line.unwrap()));
    all.lines.keys().map(line).collect()
}

/// Calls `see` with each line's number, its contents if it is valid, and its bytes without the newline.
fn for_each_line(
    path: &Path,
    mut see: impl FnMut(usize, Option<DigestLine>, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut reader = BufReader::new(files::open(path).doing("read", path)?);
    let mut bytes = Vec::new();
    for number in 0.. {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).doing("read", path)? == 0 {
            break;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        see(number, serde_json::from_slice(text).ok(), text)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "digests_tests.rs"]
mod tests;
