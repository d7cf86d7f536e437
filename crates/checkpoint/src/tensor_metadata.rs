//! Finds tensors of a PyTorch file whose values are not those of their storage. `tensor.imag` of a conjugate, for example, is saved
//! as the numbers of the storage and `{"neg": True}`, the last argument of `_rebuild_tensor_v2`, which `pytorch-reader` ignores: the
//! weight would be loaded with the wrong sign.

use pytorch_reader::{FileFormat, MAX_PICKLE_SIZE, OpCode};
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;
use zip::ZipArchive;
use zip::read::ZipReadOptions;

use base::files;

/// The name of a tensor that was saved with such metadata; an empty one if it is in no dictionary. `pytorch-reader` has read the file.
///
/// # Errors
/// In words: a pickle can't be read.
pub fn tensor_with_metadata(path: &Path, format: &FileFormat) -> Result<Option<String>, String> {
    let file = files::open(path).map_err(|e| e.to_string())?;
    let (pickles, each) = match format {
        FileFormat::Zip => (zipped_pickles(file).map_err(|e| e.to_string())?, 1),
        // A magic number, a version, facts of the system, and the object; tensors follow.
        FileFormat::Legacy => {
            let mut start = Vec::new();
            file.take(MAX_PICKLE_SIZE).read_to_end(&mut start).map_err(|e| e.to_string())?;
            (vec![start], 4)
        }
        // Older than this metadata, or without tensors.
        FileFormat::Tar | FileFormat::Pickle => return Ok(None),
    };
    let scan = |pickle: &Vec<u8>| {
        let mut scan = Scan { rest: pickle, stack: Vec::new(), memo: HashMap::new(), found: None };
        (0..each).try_for_each(|_| scan.pickle()).map(|()| scan.found)
    };
    let found = pickles.iter().map(scan).collect::<Option<Vec<_>>>().ok_or("its pickle is malformed")?;
    Ok(found.into_iter().flatten().next())
}

fn zipped_pickles(file: std::fs::File) -> zip::result::ZipResult<Vec<Vec<u8>>> {
    let mut archive = ZipArchive::new(BufReader::new(file))?;
    let names = archive.file_names().map(|name| name.map(|name| name.to_string()));
    let names = names.collect::<zip::result::ZipResult<Vec<String>>>()?;
    let mut pickles = Vec::new();
    for name in names.iter().filter(|name| name.ends_with("data.pkl")) {
        let Some(index) = archive.index_for_name(name) else { continue };
        let mut pickle = Vec::new();
        let entry = archive.by_index_with_options(index, ZipReadOptions::new().ignore_crc32(true))?;
        entry.take(MAX_PICKLE_SIZE).read_to_end(&mut pickle)?;
        pickles.push(pickle);
    }
    Ok(pickles)
}

/// What matters of a value on the stack of a pickle. Values in lists and dictionaries don't: a tensor with metadata is noticed when it
/// is built, and named when it becomes an entry.
#[derive(Clone, Copy)]
enum PickleItem<'a> {
    Mark,
    /// A string, or the name of a function without its module.
    Name(&'a [u8]),
    Tuple {
        len: usize,
        marked: bool,
    },
    /// A tensor with metadata, or what is built of one.
    Marked,
    Other,
}

impl PickleItem<'_> {
    fn is_marked(self) -> bool {
        matches!(self, PickleItem::Marked | PickleItem::Tuple { marked: true, .. })
    }
}

/// Executes the opcodes that move values, and nothing else.
struct Scan<'a> {
    rest: &'a [u8],
    stack: Vec<PickleItem<'a>>,
    memo: HashMap<u64, PickleItem<'a>>,
    found: Option<String>,
}

impl<'a> Scan<'a> {
    /// One pickle, up to its `STOP`. `None` if it is malformed.
    fn pickle(&mut self) -> Option<()> {
        self.stack.clear();
        self.memo.clear();
        loop {
            match OpCode::try_from(self.take(1)?[0]).ok()? {
                OpCode::Stop => return Some(()),
                op => self.step(op)?,
            }
        }
    }

    fn step(&mut self, op: OpCode) -> Option<()> {
        match op {
            OpCode::Proto => drop(self.take(1)?),
            OpCode::Frame => drop(self.take(8)?),
            OpCode::Mark => self.stack.push(PickleItem::Mark),
            OpCode::None | OpCode::NewTrue | OpCode::NewFalse => self.stack.push(PickleItem::Other),
            OpCode::EmptyList | OpCode::EmptyDict | OpCode::EmptySet => self.stack.push(PickleItem::Other),
            OpCode::BinInt1 => self.skip(1)?,
            OpCode::BinInt2 => self.skip(2)?,
            OpCode::BinInt => self.skip(4)?,
            OpCode::BinFloat => self.skip(8)?,
            OpCode::Int | OpCode::Long | OpCode::Float | OpCode::PersId => {
                self.line()?;
                self.stack.push(PickleItem::Other);
            }
            OpCode::Unicode => self.line().map(|text| self.stack.push(PickleItem::Name(text)))?,
            OpCode::ShortBinString | OpCode::ShortBinUnicode => self.name(1)?,
            OpCode::BinString | OpCode::BinUnicode => self.name(4)?,
            OpCode::BinUnicode8 => self.name(8)?,
            OpCode::ShortBinBytes | OpCode::Long1 => self.bytes(1)?,
            OpCode::BinBytes | OpCode::Long4 => self.bytes(4)?,
            OpCode::BinBytes8 | OpCode::ByteArray8 => self.bytes(8)?,
            OpCode::Global => {
                self.line()?;
                self.line().map(|name| self.stack.push(PickleItem::Name(name)))?;
            }
            OpCode::StackGlobal => {
                let name = self.stack.pop()?;
                *self.stack.last_mut()? = name;
            }
            OpCode::Get | OpCode::BinGet | OpCode::LongBinGet => {
                let slot = self.slot(op)?;
                self.stack.push(*self.memo.get(&slot)?);
            }
            OpCode::Put | OpCode::BinPut | OpCode::LongBinPut | OpCode::Memoize => {
                let slot = self.slot(op)?;
                self.memo.insert(slot, *self.stack.last()?);
            }
            OpCode::Pop | OpCode::Append => drop(self.stack.pop()?),
            OpCode::PopMark | OpCode::Appends | OpCode::AddItems => drop(self.above_mark()?),
            OpCode::Dup => self.stack.push(*self.stack.last()?),
            OpCode::EmptyTuple => self.tuple(&[]),
            OpCode::Tuple1 => self.last(1).map(|items| self.tuple(&items))?,
            OpCode::Tuple2 => self.last(2).map(|items| self.tuple(&items))?,
            OpCode::Tuple3 => self.last(3).map(|items| self.tuple(&items))?,
            OpCode::Tuple => self.above_mark().map(|items| self.tuple(&items))?,
            OpCode::List | OpCode::FrozenSet => {
                self.above_mark()?;
                self.stack.push(PickleItem::Other);
            }
            OpCode::Dict => {
                let items = self.above_mark()?;
                self.entries(&items);
                self.stack.push(PickleItem::Other);
            }
            OpCode::SetItem => self.last(2).map(|items| self.entries(&items))?,
            OpCode::SetItems => self.above_mark().map(|items| self.entries(&items))?,
            OpCode::Reduce | OpCode::NewObj => self.last(2).map(|call| self.call(call[0], call[1]))?,
            OpCode::NewObjEx => self.last(3).map(|call| self.call(call[0], call[1]))?,
            OpCode::Build => drop(self.stack.pop()?),
            OpCode::BinPersId => *self.stack.last_mut()? = PickleItem::Other,
            // `pytorch-reader` refuses them.
            _ => return None,
        }
        Some(())
    }

    /// Notices a tensor with metadata: `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])`, and
    /// `_v3`, which has a type before it.
    fn call(&mut self, function: PickleItem<'a>, arguments: PickleItem<'a>) {
        let most = match function {
            PickleItem::Name(b"_rebuild_tensor_v2") => 6,
            PickleItem::Name(b"_rebuild_tensor_v3") => 7,
            _ => usize::MAX,
        };
        let marked =
            arguments.is_marked() || matches!(arguments, PickleItem::Tuple { len, .. } if len > most);
        if marked {
            self.found.get_or_insert_default();
        }
        self.stack.push(if marked { PickleItem::Marked } else { PickleItem::Other });
    }

    /// Names a tensor with metadata that becomes an entry of a dictionary.
    fn entries(&mut self, items: &[PickleItem<'a>]) {
        let named = items.chunks_exact(2).find_map(|pair| match pair {
            [PickleItem::Name(name), value] if value.is_marked() => Some(name),
            _ => None,
        });
        if let (Some(name), Some("")) = (named, self.found.as_deref()) {
            self.found = Some(String::from_utf8_lossy(name).into_owned());
        }
    }

    fn tuple(&mut self, items: &[PickleItem<'a>]) {
        let marked = items.iter().any(|item| item.is_marked());
        self.stack.push(PickleItem::Tuple { len: items.len(), marked });
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    /// A value whose bytes don't matter.
    fn skip(&mut self, n: usize) -> Option<()> {
        self.take(n)?;
        self.stack.push(PickleItem::Other);
        Some(())
    }

    /// An unsigned little-endian number.
    fn number(&mut self, width: usize) -> Option<u64> {
        Some(self.take(width)?.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    /// Bytes with their length before them.
    fn counted(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(usize::try_from(length).ok()?)
    }

    fn bytes(&mut self, width: usize) -> Option<()> {
        self.counted(width).map(|_| self.stack.push(PickleItem::Other))
    }

    fn name(&mut self, width: usize) -> Option<()> {
        self.counted(width).map(|text| self.stack.push(PickleItem::Name(text)))
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = self.take(length)?;
        self.take(1)?;
        Some(line)
    }

    fn slot(&mut self, op: OpCode) -> Option<u64> {
        match op {
            OpCode::BinGet | OpCode::BinPut => self.number(1),
            OpCode::LongBinGet | OpCode::LongBinPut => self.number(4),
            OpCode::Memoize => Some(self.memo.len() as u64),
            _ => std::str::from_utf8(self.line()?).ok()?.trim().parse().ok(),
        }
    }

    fn last(&mut self, n: usize) -> Option<Vec<PickleItem<'a>>> {
        let start = self.stack.len().checked_sub(n)?;
        Some(self.stack.split_off(start))
    }

    fn above_mark(&mut self) -> Option<Vec<PickleItem<'a>>> {
        let mark = self.stack.iter().rposition(|item| matches!(item, PickleItem::Mark))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(items)
    }
}
