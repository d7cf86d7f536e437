//! A reader for the pickles of CIFAR-10's Python release. A pickle is a program that may call anything. This interpreter
//! implements only the opcodes that build plain values, and accepts only the names of numpy's array and type constructors,
//! which are built in. Anything else is an error: no name from a file is ever looked up or called.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// One batch: labels, and a byte array with one row per label.
#[derive(Debug, PartialEq)]
pub struct PickledBatch {
    pub labels: Vec<u8>,
    pub pixels: Vec<u8>,
}

/// Reads `{"labels": [...], "data": uint8 array [n, row]}`; other keys are ignored. The error says what is wrong and where.
pub fn read_batch(bytes: &[u8], row: usize) -> Result<PickledBatch, String> {
    let value =
        Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), containers: 0 }
            .run()?;
    let Value::Dict(items) = value else { return Err("it does not hold a dictionary".to_owned()) };
    let items = items.borrow();
    let find = |name: &str| {
        let named = |key: &Value| matches!(key, Value::Bytes(b) if **b == *name.as_bytes());
        let found = items.iter().find(|(key, _)| named(key)).map(|(_, value)| value);
        found.ok_or_else(|| format!("it has no `{name}`"))
    };
    let (Value::List(labels), Value::Array(array)) = (find("labels")?, find("data")?) else {
        return Err("`labels` is not a list, or `data` is not an array".to_owned());
    };
    let labels = labels.borrow().iter().map(label).collect::<Result<Vec<u8>, String>>()?;
    let array = array.borrow();
    if array.shape != [labels.len() as i64, row as i64] || array.bytes.len() != labels.len() * row {
        return Err(format!("`data` has shape {:?} instead of [{}, {row}]", array.shape, labels.len()));
    }
    Ok(PickledBatch { labels, pixels: array.bytes.to_vec() })
}

fn label(value: &Value) -> Result<u8, String> {
    match value {
        Value::Int(i) => u8::try_from(*i).map_err(|_| format!("label {i} is out of range")),
        _ => Err("a label is not a number".to_owned()),
    }
}

#[derive(Clone)]
enum Value {
    None,
    /// Also booleans.
    Int(i64),
    /// Also text, in UTF-8.
    Bytes(Rc<[u8]>),
    List(Rc<RefCell<Vec<Value>>>),
    Tuple(Rc<[Value]>),
    Dict(Rc<RefCell<Vec<(Value, Value)>>>),
    Global(Global),
    Array(Rc<RefCell<Array>>),
    /// numpy's `uint8`, the only type accepted.
    ByteType,
}

struct Array {
    shape: Vec<i64>,
    bytes: Rc<[u8]>,
}

#[derive(Clone, Copy, PartialEq)]
enum Global {
    Reconstruct,
    NdArray,
    DType,
    /// `_codecs.encode(text, "latin1")`: Python 3's encoding of bytes in protocol 2.
    Encode,
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Stack heights at the marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    /// Number of lists, tuples and dictionaries so far; bounded to limit nesting depth.
    containers: usize,
}

type PickleResult<T> = Result<T, String>;

impl<'a> Machine<'a> {
    fn run(mut self) -> PickleResult<Value> {
        loop {
            let at = self.at;
            let opcode = self.take(1)?[0];
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode).map_err(|why| format!("{why} (at byte {at})"))?;
        }
    }

    fn step(&mut self, opcode: u8) -> PickleResult<()> {
        match opcode {
            0x80 => drop(self.take(1)?), // PROTO
            0x95 => drop(self.take(8)?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.stack.push(Value::None),
            0x88 | 0x89 => self.stack.push(Value::Int(i64::from(opcode == 0x88))),
            b'J' => self.number(4).map(|n| self.stack.push(Value::Int(i64::from(n as u32 as i32))))?,
            b'K' => self.number(1).map(|n| self.stack.push(Value::Int(n as i64)))?,
            b'M' => self.number(2).map(|n| self.stack.push(Value::Int(n as i64)))?,
            b'U' | b'C' | 0x8c => self.string(1)?,
            b'T' | b'B' | b'X' => self.string(4)?,
            0x8e | 0x8d => self.string(8)?,
            b']' => self.start(Value::List(Rc::default()))?,
            b'}' => self.start(Value::Dict(Rc::default()))?,
            b')' => self.tuple(Vec::new())?,
            b't' => self.above_mark().and_then(|items| self.tuple(items))?,
            0x85..=0x87 => self.last(usize::from(opcode - 0x84)).and_then(|items| self.tuple(items))?,
            b'a' => self.last(1).and_then(|items| self.append(items))?,
            b'e' => self.above_mark().and_then(|items| self.append(items))?,
            b's' => self.last(2).and_then(|items| self.set_items(&items))?,
            b'u' => self.above_mark().and_then(|items| self.set_items(&items))?,
            b'q' => self.number(1).and_then(|slot| self.put(slot))?,
            b'r' => self.number(4).and_then(|slot| self.put(slot))?,
            0x94 => self.put(self.memo.len() as u64)?,
            b'h' => self.number(1).and_then(|slot| self.get(slot))?,
            b'j' => self.number(4).and_then(|slot| self.get(slot))?,
            b'c' => self.global()?,
            0x93 => self.stack_global()?,
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            other => return Err(format!("opcode 0x{other:02x} is not supported")),
        }
        Ok(())
    }

    fn take(&mut self, n: usize) -> PickleResult<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..n).ok_or_else(|| format!("it ends at byte {}", self.at))?;
        self.at += n;
        Ok(taken)
    }

    /// An unsigned little-endian number.
    fn number(&mut self, width: usize) -> PickleResult<u64> {
        Ok(self.take(width)?.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    fn string(&mut self, width: usize) -> PickleResult<()> {
        let length = usize::try_from(self.number(width)?).map_err(|_| "a length is out of range")?;
        let bytes = self.take(length)?.into();
        self.stack.push(Value::Bytes(bytes));
        Ok(())
    }

    fn pop(&mut self) -> PickleResult<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > floor { self.stack.pop() } else { None };
        value.ok_or_else(|| "the stack is empty".to_owned())
    }

    fn top(&self) -> PickleResult<&Value> {
        self.stack.last().ok_or_else(|| "the stack is empty".to_owned())
    }

    /// Pops everything above the last mark.
    fn above_mark(&mut self) -> PickleResult<Vec<Value>> {
        let mark = self.marks.pop().ok_or("no mark is set")?;
        Ok(self.stack.split_off(mark))
    }

    /// Pops the last `n` values.
    fn last(&mut self, n: usize) -> PickleResult<Vec<Value>> {
        let mut items = (0..n).map(|_| self.pop()).collect::<PickleResult<Vec<Value>>>()?;
        items.reverse();
        Ok(items)
    }

    /// Pushes a container.
    fn start(&mut self, container: Value) -> PickleResult<()> {
        self.containers += 1;
        self.stack.push(container);
        if self.containers > 1000 { Err("it has too many lists".to_owned()) } else { Ok(()) }
    }

    fn tuple(&mut self, items: Vec<Value>) -> PickleResult<()> {
        self.start(Value::Tuple(items.into()))
    }

    fn append(&mut self, items: Vec<Value>) -> PickleResult<()> {
        let Value::List(list) = self.top()? else {
            return Err("appends to a value that is not a list".to_owned());
        };
        list.borrow_mut().extend(items);
        Ok(())
    }

    fn set_items(&mut self, items: &[Value]) -> PickleResult<()> {
        let Value::Dict(dict) = self.top()? else {
            return Err("sets items of a value that is not a dictionary".to_owned());
        };
        dict.borrow_mut().extend(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())));
        Ok(())
    }

    fn put(&mut self, slot: u64) -> PickleResult<()> {
        let value = self.top()?.clone();
        self.memo.insert(slot, value);
        Ok(())
    }

    fn get(&mut self, slot: u64) -> PickleResult<()> {
        let value = self.memo.get(&slot).ok_or_else(|| format!("slot {slot} is empty"))?.clone();
        self.stack.push(value);
        Ok(())
    }

    fn global(&mut self) -> PickleResult<()> {
        let mut line = || -> PickleResult<&'a [u8]> {
            let length = self.bytes[self.at..]
                .iter()
                .take(100)
                .position(|&b| b == b'\n')
                .ok_or("a name without end of line")?;
            let line = self.take(length)?;
            self.take(1)?;
            Ok(line)
        };
        let (module, name) = (line()?, line()?);
        self.push_global(module, name)
    }

    fn stack_global(&mut self) -> PickleResult<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let (Value::Bytes(module), Value::Bytes(name)) = (module, name) else {
            return Err("a name that is not text".to_owned());
        };
        self.push_global(&module, &name)
    }

    fn push_global(&mut self, module: &[u8], name: &[u8]) -> PickleResult<()> {
        let global = match (module, name) {
            (b"numpy.core.multiarray" | b"numpy._core.multiarray", b"_reconstruct") => Global::Reconstruct,
            (b"numpy", b"ndarray") => Global::NdArray,
            (b"numpy", b"dtype") => Global::DType,
            (b"_codecs", b"encode") => Global::Encode,
            _ => {
                let shown = |bytes| String::from_utf8_lossy(bytes).escape_debug().to_string();
                return Err(format!(
                    "it refers to `{}.{}`, which is not allowed",
                    shown(module),
                    shown(name)
                ));
            }
        };
        self.stack.push(Value::Global(global));
        Ok(())
    }

    /// A call. Only the built-in constructors can be called.
    fn reduce(&mut self) -> PickleResult<()> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Global(callee)) = (arguments, callee) else {
            return Err("calls a value that is not callable".to_owned());
        };
        let value = match (callee, &arguments[..]) {
            (Global::Reconstruct, [Value::Global(Global::NdArray), ..]) => {
                Value::Array(Rc::new(RefCell::new(Array { shape: Vec::new(), bytes: Rc::new([]) })))
            }
            (Global::DType, [Value::Bytes(name), ..]) if matches!(&**name, b"u1" | b"|u1") => Value::ByteType,
            (Global::Encode, [Value::Bytes(text), Value::Bytes(codec)]) if **codec == *b"latin1" => {
                let text = std::str::from_utf8(text).map_err(|_| "text that is not UTF-8")?;
                let bytes =
                    text.chars().map(|c| u8::try_from(c).map_err(|_| "text that is not Latin-1".to_owned()));
                Value::Bytes(bytes.collect::<PickleResult<Vec<u8>>>()?.into())
            }
            _ => return Err("a call that is not allowed".to_owned()),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Sets the state of an array: (version, shape, type, Fortran order, bytes).
    fn build(&mut self) -> PickleResult<()> {
        let state = self.pop()?;
        match (self.top()?, &state) {
            (Value::ByteType, Value::Tuple(_)) => Ok(()), // byte order and the like
            (Value::Array(array), Value::Tuple(state)) => {
                let [Value::Int(_), Value::Tuple(shape), Value::ByteType, Value::Int(0), Value::Bytes(bytes)] =
                    &state[..]
                else {
                    return Err("an array that is not of type uint8 in row-major order".to_owned());
                };
                let number = |v: &Value| {
                    if let Value::Int(i) = v { Ok(*i) } else { Err("an invalid shape".to_owned()) }
                };
                let shape = shape.iter().map(number).collect::<PickleResult<Vec<i64>>>()?;
                *array.borrow_mut() = Array { shape, bytes: bytes.clone() };
                Ok(())
            }
            _ => Err("sets the state of a value that has none".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "pickle_tests.rs"]
mod tests;
