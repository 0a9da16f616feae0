//! Contexts, and which one a thread uses.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use millpond::driver::{DevicePtr, Driver, Event, Stream};
use parking_lot::Mutex;

use crate::code_number::{Answer, Code};
use crate::device::Device;

/// How a context came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextKind {
    Primary,
    Created,
}

/// Something that ends with the context it was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owned {
    Memory(DevicePtr),
    Pinned(DevicePtr),
    Stream(Stream),
    Event(Event),
}

impl Owned {
    pub(crate) fn free(self, device: &Device) -> Answer {
        match self {
            Owned::Memory(ptr) => device.gpu.free(ptr)?,
            Owned::Pinned(ptr) => device.gpu.free_pinned(ptr)?,
            Owned::Event(event) => device.gpu.destroy_event(event)?,
            Owned::Stream(stream) => {
                device.streams.remove(stream);
                device.gpu.destroy_stream(stream)?;
            }
        }
        Ok(())
    }
}

/// A context. All contexts of a device share its memory and its default streams: the model has one address space.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: u64,
    pub(crate) device: usize,
    pub(crate) kind: ContextKind,
    pub(crate) flags: AtomicU32,
    alive: AtomicBool,
    /// What a created context has to free at its end. Of the primary one the whole device is reset.
    owned: Mutex<std::collections::HashSet<Owned>>,
    limits: [AtomicU64; LIMITS],
}

/// CUDA numbers its limits from 0.
const LIMITS: usize = 8;
const STACK_BYTES: u64 = 1024;
const PRINTF_FIFO_BYTES: u64 = 1 << 20;
const MALLOC_HEAP_BYTES: u64 = 8 << 20;

impl Context {
    pub(crate) fn new(device: usize, kind: ContextKind, flags: u32) -> Context {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be different each time.
        let number = CREATED.fetch_add(1, Ordering::Relaxed) + 1;
        let defaults = [STACK_BYTES, PRINTF_FIFO_BYTES, MALLOC_HEAP_BYTES, 2, 2048, 128, 0, 0];
        Context {
            // Looks like an address of the host, for some programs take handles for such.
            handle: 0x6d70_0000_0000 + number * 0x1000,
            device,
            kind,
            flags: flags.into(),
            alive: true.into(),
            owned: Mutex::default(),
            limits: defaults.map(AtomicU64::new),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        // Relaxed: a program that ends a context while another thread uses it gets one or the other answer.
        self.alive.load(Ordering::Relaxed)
    }

    /// Whether this call ended it.
    pub(crate) fn destroy(&self) -> bool {
        self.alive.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn own(&self, what: Owned) {
        if self.kind == ContextKind::Created {
            self.owned.lock().insert(what);
        }
    }

    pub(crate) fn disown(&self, what: Owned) {
        if self.kind == ContextKind::Created {
            self.owned.lock().remove(&what);
        }
    }

    pub(crate) fn take_owned(&self) -> impl Iterator<Item = Owned> + use<> {
        std::mem::take(&mut *self.owned.lock()).into_iter()
    }

    /// One of CUDA's limits. They limit nothing here.
    pub(crate) fn limit(&self, limit: i32) -> Answer<&AtomicU64> {
        let index = usize::try_from(limit).map_err(|_| Code::INVALID_VALUE)?;
        self.limits.get(index).ok_or(Code::INVALID_VALUE)
    }
}

thread_local! {
    /// The contexts that this thread has made current, the newest last. Never dropped: whoever cleans up when a thread or the
    /// program ends still has them, for the price of a few words a thread.
    static STACK: ManuallyDrop<RefCell<Vec<Arc<Context>>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// This thread's context, if it has one.
pub(crate) fn current() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

// A thread that is ending has no contexts any more, and whatever it does to them is done.

pub(crate) fn push(context: Arc<Context>) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

pub(crate) fn pop() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

/// Replaces the newest, or takes it away.
pub(crate) fn set(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}
