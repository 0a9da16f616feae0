//! The stack machine.

use std::io::Read;

use super::input::Input;
use super::memo::Memo;
use super::opcode as op;
use super::{Heap, LONGEST_TEXT, Refusal, Value};
use crate::trace::{Limits, TraceError};

/// How many opcodes run between two looks at the memory held. Each adds at most some hundred bytes.
const OPCODES_PER_CHECK: u32 = 1024;

/// Items that one opcode may append without a look at the memory held.
const FEW_ITEMS: usize = 16;
/// The most that an appended item may add to what the heap holds.
const BYTES_PER_ITEM: usize = 96;

/// Runs a pickle and gives what it leaves, and its length.
///
/// # Errors
/// Whatever is wrong with it, with the offset of the opcode.
pub(in crate::trace) fn run<R: Read, H: Heap>(
    source: R,
    limits: Limits,
    heap: &mut H,
) -> Result<(Value, u64), TraceError> {
    let mut machine = Machine {
        input: Input::new(source, limits.unpacked_bytes),
        heap,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::new(),
        memory_limit_bytes: limits.memory_bytes,
        at: 0,
    };
    machine.begin()?;
    let value = machine.run()?;
    let len = machine.input.offset();
    machine.input.check_end()?;
    Ok((value, len))
}

struct Machine<'a, R, H> {
    input: Input<R>,
    heap: &'a mut H,
    stack: Vec<Value>,
    /// Heights of the stack, in ascending order.
    marks: Vec<usize>,
    memo: Memo,
    memory_limit_bytes: u64,
    /// Where the opcode at hand is.
    at: u64,
}

impl<R: Read, H: Heap> Machine<'_, R, H> {
    /// The first opcode says the protocol. Text protocols do not have it; they are not read.
    fn begin(&mut self) -> Result<(), TraceError> {
        match self.input.byte() {
            Ok(op::PROTO) => self.protocol(),
            Ok(_) => Err(TraceError::NotAPickle { found: "it begins otherwise" }),
            Err(TraceError::Truncated { offset: 0 }) if self.input.has_ended() => {
                Err(TraceError::NotAPickle { found: "the file is empty" })
            }
            Err(error) => Err(error),
        }
    }

    fn protocol(&mut self) -> Result<(), TraceError> {
        match self.input.byte()? {
            2..=5 => Ok(()),
            _ => Err(TraceError::NotAPickle { found: "it says another protocol" }),
        }
    }

    fn run(&mut self) -> Result<Value, TraceError> {
        loop {
            self.check_memory(0)?;
            for _ in 0..OPCODES_PER_CHECK {
                self.at = self.input.offset();
                let opcode = self.input.byte()?;
                if opcode == op::STOP {
                    return self.pop();
                }
                self.step(opcode)?;
            }
        }
    }

    /// One opcode. The order is that of their frequency in snapshots.
    #[inline]
    fn step(&mut self, opcode: u8) -> Result<(), TraceError> {
        match opcode {
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.recall(u64::from(index))
            }
            op::BINGET => {
                let index = self.input.byte()?;
                self.recall(u64::from(index))
            }
            op::MEMOIZE => self.memoize(self.memo.next()),
            op::LONG1 => {
                let len = self.input.byte()?;
                self.long(u64::from(len))
            }
            op::BININT1 => {
                let number = self.input.byte()?;
                self.push(Value::Number(u64::from(number)))
            }
            op::BININT2 => {
                let number = u16::from_le_bytes(self.input.array()?);
                self.push(Value::Number(u64::from(number)))
            }
            op::BININT => {
                let number = i32::from_le_bytes(self.input.array()?);
                self.push(u64::try_from(number).map_or(Value::Opaque, Value::Number))
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => {
                let len = self.input.byte()?;
                self.text(u64::from(len))
            }
            op::MARK => {
                self.reserve_mark()?;
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::EMPTY_DICT => {
                let dict = self.heap.dict();
                self.push_new(dict)
            }
            op::EMPTY_LIST => {
                let list = self.heap.list();
                self.push_new(list)
            }
            op::SETITEMS => {
                let height = self.unmark()?;
                self.set_items(height)
            }
            op::APPENDS => {
                let height = self.unmark()?;
                self.append_items(height)
            }
            op::SETITEM => self.set_items(self.height_below(2)?),
            op::APPEND => self.append_items(self.height_below(1)?),
            _ => self.rare(opcode),
        }
    }

    /// The opcodes that a snapshot has few of.
    fn rare(&mut self, opcode: u8) -> Result<(), TraceError> {
        match opcode {
            op::NONE => self.push(Value::Opaque),
            op::NEWTRUE => self.push(Value::Bool(true)),
            op::NEWFALSE => self.push(Value::Bool(false)),
            op::BINFLOAT => self.opaque(8),
            op::EMPTY_TUPLE => self.tuple(self.stack.len()),
            op::TUPLE1 => self.tuple(self.height_below(1)?),
            op::TUPLE2 => self.tuple(self.height_below(2)?),
            op::TUPLE3 => self.tuple(self.height_below(3)?),
            op::TUPLE => {
                let height = self.unmark()?;
                self.tuple(height)
            }
            op::BINUNICODE | op::BINSTRING => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.text(u64::from(len))
            }
            op::BINUNICODE8 => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.text(len)
            }
            op::SHORT_BINBYTES => {
                let len = self.input.byte()?;
                self.opaque(u64::from(len))
            }
            op::BINBYTES => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.opaque(u64::from(len))
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.opaque(len)
            }
            op::LONG4 => {
                let len = i32::from_le_bytes(self.input.array()?);
                let len = u64::try_from(len).map_err(|_| self.damaged("a negative length"))?;
                self.long(len)
            }
            op::BINPUT => {
                let index = self.input.byte()?;
                self.memoize(u64::from(index))
            }
            op::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.memoize(u64::from(index))
            }
            op::POP => self.pop_or_unmark(),
            op::POP_MARK => {
                let height = self.unmark()?;
                self.stack.truncate(height);
                Ok(())
            }
            op::DUP => self.push(self.top()?),
            op::PROTO => self.protocol(),
            // A frame is a hint for reading ahead. Its end is not needed, its length must be possible.
            op::FRAME => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.input.check_length(len)
            }
            byte => Err(match op::runs_code(byte) {
                Some(opcode) => TraceError::WantsToRunCode { opcode, offset: self.at },
                None => TraceError::UnknownOpcode { byte, offset: self.at },
            }),
        }
    }

    // Values.

    fn text(&mut self, len: u64) -> Result<(), TraceError> {
        if len > LONGEST_TEXT {
            return self.opaque(len);
        }
        let text = self.heap.text(self.input.slice(len as usize)?);
        self.push(text)
    }

    /// A number of any length, little end first, in two's complement.
    fn long(&mut self, len: u64) -> Result<(), TraceError> {
        if len > 9 {
            return self.opaque(len);
        }
        let bytes = self.input.slice(len as usize)?;
        let negative = bytes.last().is_some_and(|top| top & 0x80 != 0);
        let number = bytes.iter().rev().fold(0_u128, |number, b| number << 8 | u128::from(*b));
        self.push(match u64::try_from(number) {
            Ok(number) if !negative => Value::Number(number),
            _ => Value::Opaque,
        })
    }

    fn opaque(&mut self, len: u64) -> Result<(), TraceError> {
        self.input.skip(len)?;
        self.push(Value::Opaque)
    }

    fn tuple(&mut self, height: usize) -> Result<(), TraceError> {
        let tuple = self.heap.tuple(&self.stack[height..]);
        self.stack.truncate(height);
        self.push(tuple)
    }

    fn set_items(&mut self, height: usize) -> Result<(), TraceError> {
        let dict = self.object_below(height)?;
        let items = &self.stack[height..];
        if !items.len().is_multiple_of(2) {
            return Err(self.damaged("a key without a value"));
        }
        let done = self.heap.set(dict, items);
        self.stack.truncate(height);
        self.accepted(done)
    }

    fn append_items(&mut self, height: usize) -> Result<(), TraceError> {
        let list = self.object_below(height)?;
        // The items came by many opcodes, but what the heap makes of them comes at once.
        let count = self.stack.len() - height;
        if count > FEW_ITEMS {
            self.check_memory(count * BYTES_PER_ITEM)?;
        }
        let done = self.heap.append(list, &self.stack[height..]);
        self.stack.truncate(height);
        self.accepted(done)
    }

    // The memo.

    #[inline]
    fn recall(&mut self, index: u64) -> Result<(), TraceError> {
        match self.memo.get(index) {
            Some(value) => self.push(value),
            None => Err(self.damaged("it uses what it never memoised")),
        }
    }

    fn memoize(&mut self, index: u64) -> Result<(), TraceError> {
        let value = self.top()?;
        let done = self.memo.put(index, value);
        done.ok_or_else(|| self.damaged("it memoises far beyond what it used before"))
    }

    // The stack. What is below the last mark is out of reach until that mark is used.

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), TraceError> {
        if self.stack.len() == self.stack.capacity() {
            self.check_memory(2 * size_of_val(self.stack.as_slice()))?;
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_new(&mut self, value: Result<Value, Refusal>) -> Result<(), TraceError> {
        let value = value.map_err(|problem| self.damaged(problem))?;
        self.push(value)
    }

    fn pop(&mut self) -> Result<Value, TraceError> {
        let height = self.height_below(1)?;
        let value = self.stack[height];
        self.stack.truncate(height);
        Ok(value)
    }

    /// `POP` takes a mark away if that is what is on top.
    fn pop_or_unmark(&mut self) -> Result<(), TraceError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn top(&self) -> Result<Value, TraceError> {
        Ok(self.stack[self.height_below(1)?])
    }

    /// The stack's height without its last `count` values.
    fn height_below(&self, count: usize) -> Result<usize, TraceError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(height) if height >= floor => Ok(height),
            _ => Err(self.damaged("its stack is empty")),
        }
    }

    fn unmark(&mut self) -> Result<usize, TraceError> {
        self.marks.pop().ok_or_else(|| self.damaged("a mark is missing"))
    }

    fn reserve_mark(&mut self) -> Result<(), TraceError> {
        if self.marks.len() == self.marks.capacity() {
            self.check_memory(2 * size_of_val(self.marks.as_slice()))?;
        }
        Ok(())
    }

    /// The list or dict right below a height.
    fn object_below(&self, height: usize) -> Result<u32, TraceError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match height.checked_sub(1).filter(|below| *below >= floor).map(|below| self.stack[below]) {
            Some(Value::Object(object)) => Ok(object),
            _ => Err(self.damaged("it fills something that is no list or dict")),
        }
    }

    // Errors.

    fn accepted(&self, done: Result<(), Refusal>) -> Result<(), TraceError> {
        done.map_err(|problem| self.damaged(problem))
    }

    #[cold]
    fn damaged(&self, problem: &'static str) -> TraceError {
        TraceError::Damaged { offset: self.at, problem }
    }

    fn check_memory(&self, growth_bytes: usize) -> Result<(), TraceError> {
        let own = self.stack.capacity() * size_of::<Value>()
            + self.marks.capacity() * size_of::<usize>()
            + growth_bytes;
        if self.heap.held_bytes() + self.memo.held_bytes() + own as u64 > self.memory_limit_bytes {
            return Err(TraceError::TooLarge {
                offset: self.at,
                of: "of memory",
                limit: self.memory_limit_bytes,
            });
        }
        Ok(())
    }
}
