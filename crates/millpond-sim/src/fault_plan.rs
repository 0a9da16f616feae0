//! Driver calls that fail on purpose.

use millpond::driver::{Call, DriverError, DriverErrorKind};

/// Which calls to fail. Calls are counted from 0, from the moment the plan is set, while it is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th call of any kind.
    Nth(u64),
    /// The n-th call of one kind.
    NthOf(Call, u64),
    /// Every call of one kind.
    All(Call),
}

/// The code of an injected failure that is not about memory.
pub const INJECTED_CODE: i32 = 999;

#[derive(Debug)]
pub(crate) struct FaultPlan {
    faults: Vec<Fault>,
    pub(crate) armed: bool,
    counted: u64,
    counted_of: [u64; Call::COUNT],
    pub(crate) injected: u64,
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan {
            faults: Vec::new(),
            armed: true,
            counted: 0,
            counted_of: [0; Call::COUNT],
            injected: 0,
        }
    }
}

impl FaultPlan {
    /// Replaces the plan and counts anew.
    pub(crate) fn set(&mut self, faults: &[Fault]) {
        *self = FaultPlan { faults: faults.to_vec(), armed: self.armed, ..FaultPlan::default() };
    }

    /// Calls counted since the plan was set.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// Whether this call is to fail.
    pub(crate) fn check(&mut self, call: Call) -> Result<(), DriverError> {
        if !self.armed {
            return Ok(());
        }
        let (n, of) = (self.counted, self.counted_of[call as usize]);
        self.counted += 1;
        self.counted_of[call as usize] += 1;
        let hit = self.faults.iter().any(|fault| match *fault {
            Fault::Nth(which) => which == n,
            Fault::NthOf(kind, which) => kind == call && which == of,
            Fault::All(kind) => kind == call,
        });
        if hit { Err(self.inject(call, n)) } else { Ok(()) }
    }

    #[cold]
    fn inject(&mut self, call: Call, n: u64) -> DriverError {
        self.injected += 1;
        let kind = if call.takes_memory() {
            DriverErrorKind::OutOfMemory
        } else {
            DriverErrorKind::Other { code: INJECTED_CODE }
        };
        DriverError::with_detail(call, kind, format!("injected failure of call {n}"))
    }
}
