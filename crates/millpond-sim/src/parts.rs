//! What a device is put together from: things of its own, or those that it shares with other processes.

use crate::Profile;
use crate::board::Board;
use crate::board_figures::BoardFigures;
use crate::clock::{RealClock, SimClock};
use crate::gpu::SimOptions;
use crate::machine::Machine;
use crate::own_board::OwnBoard;
use crate::shared_memory::SharedMemory;

/// What a device shares with others, or has for itself.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) board: Board,
    /// Real time, or none for the virtual clock.
    pub(crate) clock: Option<RealClock>,
    pub(crate) memory: Option<SharedMemory>,
}

impl Parts {
    /// A device of this process alone.
    pub(crate) fn own(profile: &Profile, options: &SimOptions) -> Parts {
        Parts {
            board: Board::Own(OwnBoard::new(&BoardFigures::new(profile, options.fault_model))),
            clock: match options.clock {
                SimClock::Virtual => None,
                SimClock::Real { speed } => Some(RealClock::begin(speed)),
            },
            memory: None,
        }
    }
}

impl Machine {
    /// What a device that takes this one's place begins with: a shared one keeps what it shares.
    pub(crate) fn parts_to_begin_anew(&mut self, options: &SimOptions) -> Parts {
        let mut parts = Parts::own(&self.profile, options);
        if let Board::Shared(board) = &mut self.board {
            board.give_everything_back();
            std::mem::swap(&mut parts.board, &mut self.board);
            parts.clock = self.clock;
            parts.memory = self.bytes.take_shared();
        }
        parts
    }
}
