//! What the program has and what the daemon lets it have. Asked for before memory is allocated, in steps, so that not every small
//! allocation asks.
//!
//! Memory that the program itself asks for as managed may be more than a device has: it need not be there. It counts only as far as the
//! rest leaves room:
//!
//! ```text
//!   claimed == device + graphs + min(managed, most - device - graphs)
//! ```

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::code::{Answer, Code};

/// Asked for beyond what is needed now.
const STEP_BYTES: u64 = 32 << 20;
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What comes of a claim.
#[derive(Debug)]
pub(crate) enum Verdict {
    Admitted,
    Refused(String),
    /// There is nobody to ask: the daemon will be told when there is one.
    NobodyThere,
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of the device, whatever it is made of.
    Device,
    /// Managed memory, as such.
    Managed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    device: u64,
    managed: u64,
    /// What graphs have: part of the device's, but nobody is asked for it.
    graphs: u64,
    admitted: u64,
}

impl Amounts {
    fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Device => &mut self.device,
            Kind::Managed => &mut self.managed,
        }
    }

    fn with(mut self, kind: Kind, bytes: u64) -> Amounts {
        let of = self.of(kind);
        *of = of.saturating_add(bytes);
        self
    }

    fn claimed(&self, most: u64) -> u64 {
        let device = self.on_device();
        device.saturating_add(self.managed.min(most.saturating_sub(device)))
    }

    fn on_device(&self) -> u64 {
        self.device.saturating_add(self.graphs)
    }
}

/// See the module.
pub(crate) struct Claims {
    amounts: Mutex<Amounts>,
    /// Held while asking: answers come in the order of the questions.
    verdicts: Mutex<Receiver<Verdict>>,
    deliver: Sender<Verdict>,
}

impl Claims {
    pub(crate) fn new() -> Claims {
        let (deliver, verdicts) = channel();
        Claims { amounts: Mutex::default(), verdicts: Mutex::new(verdicts), deliver }
    }

    /// What the program has, as far as it counts where so much is the most that it may have.
    pub(crate) fn claimed(&self, most: u64) -> u64 {
        self.amounts.lock().claimed(most)
    }

    /// What does not count if the program has so much more: it must have a place on the host.
    pub(crate) fn beyond(&self, kind: Kind, bytes: u64, most: u64) -> u64 {
        let amounts = self.amounts.lock().with(kind, bytes);
        amounts.on_device().saturating_add(amounts.managed) - amounts.claimed(most)
    }

    /// What the daemon knows of.
    #[cfg(test)]
    fn admitted(&self) -> u64 {
        self.amounts.lock().admitted
    }

    /// An answer has come.
    pub(crate) fn deliver(&self, verdict: Verdict) {
        // Only a receiver that is gone fails, and ours is not.
        let _ = self.deliver.send(verdict);
    }

    /// The program is about to have so much more, and `most` in all. `ask` says a claim to the daemon and whether it could be said; `refused` gets
    /// the daemon's reason.
    pub(crate) fn take(
        &self,
        kind: Kind,
        bytes: u64,
        most: u64,
        ask: impl Fn(u64) -> bool,
        refused: impl Fn(&str),
    ) -> Answer {
        if self.take_admitted(kind, bytes, most) {
            return Ok(());
        }
        let verdicts = self.verdicts.lock();
        if self.take_admitted(kind, bytes, most) {
            return Ok(());
        }
        let needed = self.amounts.lock().with(kind, bytes).claimed(most);
        let mut reason = String::new();
        // A little in advance; where that is too much, exactly.
        for total in [needed.saturating_add(STEP_BYTES) / STEP_BYTES * STEP_BYTES, needed] {
            match question(&verdicts, || ask(total)) {
                Verdict::Admitted => {
                    let mut amounts = self.amounts.lock();
                    *amounts = amounts.with(kind, bytes);
                    amounts.admitted = total;
                    return Ok(());
                }
                Verdict::NobodyThere => {
                    let mut amounts = self.amounts.lock();
                    *amounts = amounts.with(kind, bytes);
                    amounts.admitted = amounts.admitted.max(amounts.claimed(most));
                    return Ok(());
                }
                Verdict::Refused(why) => reason = why,
            }
        }
        refused(&reason);
        Err(Code::OUT_OF_MEMORY)
    }

    fn take_admitted(&self, kind: Kind, bytes: u64, most: u64) -> bool {
        let mut amounts = self.amounts.lock();
        let more = amounts.with(kind, bytes);
        let fits = more.claimed(most) <= amounts.admitted;
        if fits {
            *amounts = more;
        }
        fits
    }

    /// Graphs have so much in all. It is there, whatever the daemon says: of what it does not let the program have it hears nothing,
    /// and takes it for a stranger's.
    pub(crate) fn note_graphs(&self, bytes: u64, most: u64, ask: impl Fn(u64) -> bool) {
        let verdicts = self.verdicts.lock();
        let mut amounts = self.amounts.lock();
        amounts.graphs = bytes;
        let (claimed, admitted) = (amounts.claimed(most), amounts.admitted);
        drop(amounts);
        if claimed <= admitted {
            return;
        }
        match question(&verdicts, || ask(claimed)) {
            Verdict::Admitted | Verdict::NobodyThere => {
                let mut amounts = self.amounts.lock();
                amounts.admitted = amounts.admitted.max(claimed);
            }
            Verdict::Refused(_) => {}
        }
    }

    /// A new daemon knows of what the program has and of nothing in advance.
    pub(crate) fn begin_anew(&self, most: u64) {
        let mut amounts = self.amounts.lock();
        amounts.admitted = amounts.claimed(most);
    }

    /// The program has less again. `tell` hears of it when it is worth a message.
    pub(crate) fn give_back(&self, kind: Kind, bytes: u64, most: u64, tell: impl FnOnce(u64)) {
        // Not while somebody asks for more: the daemon would take the one for the other.
        let asking = self.verdicts.try_lock();
        let mut amounts = self.amounts.lock();
        let of = amounts.of(kind);
        *of = of.saturating_sub(bytes);
        let claimed = amounts.claimed(most);
        let unused = amounts.admitted.saturating_sub(claimed);
        if asking.is_some() && unused > 2 * STEP_BYTES {
            amounts.admitted = claimed.next_multiple_of(STEP_BYTES);
            tell(amounts.admitted);
        }
    }
}

/// Asks and waits. What an earlier question that was given up gets for an answer is none for this one.
fn question(verdicts: &Receiver<Verdict>, ask: impl FnOnce() -> bool) -> Verdict {
    while verdicts.try_recv().is_ok() {}
    if !ask() {
        return Verdict::NobodyThere;
    }
    match verdicts.recv_timeout(PATIENCE) {
        Ok(verdict) => verdict,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Verdict::NobodyThere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NO_LIMIT: u64 = u64::MAX;

    #[test]
    fn small_allocations_share_a_claim() {
        let claims = Claims::new();
        let asked = Mutex::new(Vec::new());
        let ask = |total| {
            asked.lock().push(total);
            claims.deliver(Verdict::Admitted);
            true
        };
        for _ in 0..33 {
            claims.take(Kind::Device, MIB, NO_LIMIT, ask, |_| ()).unwrap();
        }
        assert_eq!(*asked.lock(), [32 * MIB, 64 * MIB]);
        assert_eq!(claims.claimed(NO_LIMIT), 33 * MIB);
    }

    #[test]
    fn what_fits_exactly_is_not_refused_for_the_advance() {
        let claims = Claims::new();
        let ask = |total| {
            let fits = total <= 100 * MIB;
            claims.deliver(if fits { Verdict::Admitted } else { Verdict::Refused("full".into()) });
            true
        };
        assert_eq!(claims.take(Kind::Device, 100 * MIB, NO_LIMIT, ask, |_| ()), Ok(()));
        let reason = Mutex::new(String::new());
        let refused =
            claims.take(Kind::Device, 1, NO_LIMIT, ask, |why| *reason.lock() = why.to_owned());
        assert_eq!(refused, Err(Code::OUT_OF_MEMORY));
        assert_eq!(*reason.lock(), "full");
        assert_eq!(claims.claimed(NO_LIMIT), 100 * MIB);
    }

    #[test]
    fn without_a_daemon_nothing_is_refused_and_little_is_said_of_what_is_given_back() {
        let claims = Claims::new();
        claims.take(Kind::Device, 100 * MIB, NO_LIMIT, |_| false, |_| ()).unwrap();
        assert_eq!(claims.admitted(), 100 * MIB);
        let told = Mutex::new(Vec::new());
        claims.give_back(Kind::Device, MIB, NO_LIMIT, |kept| told.lock().push(kept));
        claims.give_back(Kind::Device, 98 * MIB, NO_LIMIT, |kept| told.lock().push(kept));
        assert_eq!(*told.lock(), [32 * MIB]);
        assert_eq!((claims.claimed(NO_LIMIT), claims.admitted()), (MIB, 32 * MIB));
    }

    #[test]
    fn managed_memory_counts_as_far_as_the_rest_leaves_room() {
        const MOST: u64 = 100 * MIB;
        let claims = Claims::new();
        let ask = |total| {
            let fits = total <= MOST;
            claims.deliver(if fits { Verdict::Admitted } else { Verdict::Refused("full".into()) });
            true
        };
        let take = |kind, mib: u64| claims.take(kind, mib * MIB, MOST, ask, |_| ());
        assert_eq!(take(Kind::Device, 40), Ok(()));
        assert_eq!(claims.beyond(Kind::Managed, 300 * MIB, MOST), 240 * MIB);
        assert_eq!(take(Kind::Managed, 300), Ok(()));
        assert_eq!(claims.claimed(MOST), MOST);
        // The device's memory is had all the same.
        assert_eq!(take(Kind::Device, 60), Ok(()));
        assert_eq!(take(Kind::Device, 1), Err(Code::OUT_OF_MEMORY));
        claims.give_back(Kind::Device, 100 * MIB, MOST, |_| ());
        claims.give_back(Kind::Managed, 270 * MIB, MOST, |_| ());
        assert_eq!(claims.claimed(MOST), 30 * MIB);
    }
}
