//! What the program has and what the daemon lets it have. Asked for before memory is allocated, in steps, so that not every small
//! allocation asks.
//!
//! Memory that the program itself asks for as managed may be more than a device has: it need not be there. It counts only as far as the
//! rest leaves room:
//!
//! ```text
//!   claimed == device + graphs + min(managed, most - device - graphs)
//! ```
//!
//! Claims are numbered, and an answer counts for the claim whose number it carries. A daemon that lets one claim wait for too long has
//! lost the connection, so that its late answers are not read. Until it is met again, or is known to be gone, claims beyond what it
//! has admitted are refused at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::code::{Answer, Code};

/// Asked for beyond what is needed now.
const STEP_BYTES: u64 = 32 << 20;
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

const SILENT: &str = "the sharing daemon does not answer: restart it, or wait until it does";

/// What the daemon says to a claim.
#[derive(Debug)]
pub(crate) enum Verdict {
    Admitted,
    Refused(String),
}

/// What the listening thread hands over.
#[derive(Debug)]
enum Delivery {
    Answer(u64, Verdict),
    /// The connection is gone.
    Lost,
}

/// What comes of a claim.
enum Outcome {
    Answered(Verdict),
    /// There is no daemon to ask. The next one will be told.
    NoDaemon,
    /// There is one, and it does not answer.
    Silence,
}

/// The most that a program may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Beyond this, memory that the program itself asked for as managed does not count.
    pub(crate) counted: u64,
    /// What the daemon last said: this holds also while there is none.
    pub(crate) told: u64,
}

/// The way to the daemon.
pub(crate) trait Daemon {
    /// Says a claim of this number and total, and whether it could be said.
    fn claim(&self, number: u64, bytes: u64) -> bool;
    /// Ends the connection.
    fn hang_up(&self);
    /// The program hears why it cannot have what it asked for.
    fn refused(&self, reason: &str);
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
    /// Held while asking: one claim waits at a time.
    asking: Mutex<Asking>,
    deliver: Sender<Delivery>,
    /// A claim has waited in vain, and the daemon has neither been met since nor is it known to be gone.
    is_silent: AtomicBool,
    /// The number of the last claim.
    last: AtomicU64,
    patience: Duration,
}

struct Asking {
    deliveries: Receiver<Delivery>,
}

impl Claims {
    pub(crate) fn new() -> Claims {
        Claims::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> Claims {
        let (deliver, deliveries) = channel();
        Claims {
            amounts: Mutex::default(),
            asking: Mutex::new(Asking { deliveries }),
            deliver,
            is_silent: AtomicBool::new(false),
            last: AtomicU64::new(0),
            patience,
        }
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

    /// The answer to the claim of that number has come.
    pub(crate) fn deliver(&self, claim: u64, verdict: Verdict) {
        // Only a receiver that is gone fails, and ours is not.
        let _ = self.deliver.send(Delivery::Answer(claim, verdict));
    }

    /// The connection is gone: the claim that waits gets no answer.
    pub(crate) fn lose(&self) {
        let _ = self.deliver.send(Delivery::Lost);
    }

    /// No daemon is there: none that could answer later.
    pub(crate) fn note_no_daemon(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }

    /// The daemon does not take what it is told.
    pub(crate) fn note_silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// The program is about to have so much more.
    pub(crate) fn take(&self, kind: Kind, bytes: u64, most: Most, daemon: &impl Daemon) -> Answer {
        if self.take_admitted(kind, bytes, most.counted) {
            return Ok(());
        }
        let asking = self.asking.lock();
        if self.take_admitted(kind, bytes, most.counted) {
            return Ok(());
        }
        let needed = self.amounts.lock().with(kind, bytes).claimed(most.counted);
        let mut reason = String::new();
        // A little in advance; where that is too much, exactly.
        for total in [needed.saturating_add(STEP_BYTES) / STEP_BYTES * STEP_BYTES, needed] {
            match self.question(&asking, total, daemon) {
                Outcome::Answered(Verdict::Admitted) => {
                    let mut amounts = self.amounts.lock();
                    *amounts = amounts.with(kind, bytes);
                    amounts.admitted = total;
                    return Ok(());
                }
                Outcome::NoDaemon if needed <= most.told => {
                    let mut amounts = self.amounts.lock();
                    *amounts = amounts.with(kind, bytes);
                    amounts.admitted = amounts.admitted.max(amounts.claimed(most.counted));
                    return Ok(());
                }
                Outcome::Answered(Verdict::Refused(why)) => reason = why,
                Outcome::NoDaemon => {
                    reason = format!("{needed} bytes are more than the {} it may have", most.told);
                    break;
                }
                Outcome::Silence => {
                    reason = SILENT.to_owned();
                    break;
                }
            }
        }
        daemon.refused(&reason);
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
    /// and takes it for external memory.
    pub(crate) fn note_graphs(&self, bytes: u64, most: u64, daemon: &impl Daemon) {
        let asking = self.asking.lock();
        let mut amounts = self.amounts.lock();
        amounts.graphs = bytes;
        let (claimed, admitted) = (amounts.claimed(most), amounts.admitted);
        drop(amounts);
        if claimed <= admitted {
            return;
        }
        match self.question(&asking, claimed, daemon) {
            Outcome::Answered(Verdict::Admitted) | Outcome::NoDaemon => {
                let mut amounts = self.amounts.lock();
                amounts.admitted = amounts.admitted.max(claimed);
            }
            Outcome::Answered(Verdict::Refused(_)) | Outcome::Silence => {}
        }
    }

    /// A new daemon knows of what the program has and of nothing in advance.
    pub(crate) fn begin_anew(&self, most: u64) {
        self.is_silent.store(false, Ordering::Relaxed);
        let mut amounts = self.amounts.lock();
        amounts.admitted = amounts.claimed(most);
    }

    /// The program has less again. The daemon hears of it when it is worth a message.
    pub(crate) fn give_back(&self, kind: Kind, bytes: u64, most: u64, daemon: &impl Daemon) {
        // Not while another thread asks for more: the daemon would take the one for the other.
        let asking = self.asking.try_lock();
        let mut amounts = self.amounts.lock();
        let of = amounts.of(kind);
        *of = of.saturating_sub(bytes);
        let claimed = amounts.claimed(most);
        let unused = amounts.admitted.saturating_sub(claimed);
        if asking.is_some() && unused > 2 * STEP_BYTES {
            amounts.admitted = claimed.next_multiple_of(STEP_BYTES);
            daemon.claim(self.next_number(), amounts.admitted);
        }
    }

    fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks and waits for the answer of the same number. After one that does not come, the connection is not used again.
    fn question(&self, asking: &Asking, total: u64, daemon: &impl Daemon) -> Outcome {
        // The end of an earlier connection is none of this one.
        while asking.deliveries.try_recv().is_ok() {}
        let number = self.next_number();
        if !daemon.claim(number, total) {
            let is_silent = self.is_silent.load(Ordering::Relaxed);
            return if is_silent { Outcome::Silence } else { Outcome::NoDaemon };
        }
        let due = Instant::now() + self.patience;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            match asking.deliveries.recv_timeout(left) {
                Ok(Delivery::Answer(of, verdict)) if of == number => {
                    return Outcome::Answered(verdict);
                }
                Ok(Delivery::Answer(..)) => {}
                Ok(Delivery::Lost) => return Outcome::NoDaemon,
                // The sender is ours, so it is the time that is over.
                Err(_) => {
                    self.note_silence();
                    daemon.hang_up();
                    return Outcome::Silence;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NO_LIMIT: Most = Most { counted: u64::MAX, told: u64::MAX };

    /// A daemon that admits up to so much, if it answers.
    struct Scripted<'a> {
        claims: &'a Claims,
        most: u64,
        is_there: bool,
        answers: bool,
        asked: Mutex<Vec<u64>>,
        hung_up: Mutex<u32>,
        reason: Mutex<String>,
    }

    impl<'a> Scripted<'a> {
        fn new(claims: &'a Claims, most: u64) -> Scripted<'a> {
            Scripted {
                claims,
                most,
                is_there: true,
                answers: true,
                asked: Mutex::default(),
                hung_up: Mutex::default(),
                reason: Mutex::default(),
            }
        }

        fn absent(claims: &'a Claims) -> Scripted<'a> {
            Scripted { is_there: false, ..Scripted::new(claims, 0) }
        }
    }

    impl Daemon for Scripted<'_> {
        fn claim(&self, number: u64, bytes: u64) -> bool {
            if !self.is_there || *self.hung_up.lock() > 0 {
                return false;
            }
            self.asked.lock().push(bytes);
            if self.answers {
                let fits = bytes <= self.most;
                let refused = || Verdict::Refused("full".into());
                self.claims.deliver(number, if fits { Verdict::Admitted } else { refused() });
            }
            true
        }

        fn hang_up(&self) {
            *self.hung_up.lock() += 1;
        }

        fn refused(&self, reason: &str) {
            *self.reason.lock() = reason.to_owned();
        }
    }

    #[test]
    fn small_allocations_share_a_claim() {
        let claims = Claims::new();
        let daemon = Scripted::new(&claims, u64::MAX);
        for _ in 0..33 {
            claims.take(Kind::Device, MIB, NO_LIMIT, &daemon).unwrap();
        }
        assert_eq!(*daemon.asked.lock(), [32 * MIB, 64 * MIB]);
        assert_eq!(claims.claimed(u64::MAX), 33 * MIB);
    }

    #[test]
    fn what_fits_exactly_is_not_refused_for_the_advance() {
        let claims = Claims::new();
        let daemon = Scripted::new(&claims, 100 * MIB);
        assert_eq!(claims.take(Kind::Device, 100 * MIB, NO_LIMIT, &daemon), Ok(()));
        let refused = claims.take(Kind::Device, 1, NO_LIMIT, &daemon);
        assert_eq!(refused, Err(Code::OUT_OF_MEMORY));
        assert_eq!(*daemon.reason.lock(), "full");
        assert_eq!(claims.claimed(u64::MAX), 100 * MIB);
    }

    #[test]
    fn an_answer_counts_for_its_own_claim_only() {
        /// Answers each claim with the verdict on the one before.
        struct Late<'a>(Scripted<'a>, Mutex<Option<u64>>);
        impl Daemon for Late<'_> {
            fn claim(&self, number: u64, bytes: u64) -> bool {
                if let Some(before) = self.1.lock().replace(number) {
                    self.0.claims.deliver(before, Verdict::Admitted);
                }
                self.0.claim(number, bytes)
            }
            fn hang_up(&self) {
                self.0.hang_up();
            }
            fn refused(&self, reason: &str) {
                self.0.refused(reason);
            }
        }
        let claims = Claims::new();
        let daemon = Late(Scripted::new(&claims, 200 * MIB), Mutex::default());
        assert_eq!(claims.take(Kind::Device, 200 * MIB, NO_LIMIT, &daemon), Ok(()));
        for _ in 0..3 {
            let more = claims.take(Kind::Device, 100 * MIB, NO_LIMIT, &daemon);
            assert_eq!(more, Err(Code::OUT_OF_MEMORY), "the verdict on another claim counted");
        }
        assert_eq!(claims.claimed(u64::MAX), 200 * MIB);
    }

    #[test]
    fn after_one_answer_that_does_not_come_nothing_waits_and_nothing_is_granted() {
        let claims = Claims::with_patience(Duration::from_millis(50));
        let mut daemon = Scripted::new(&claims, 200 * MIB);
        assert_eq!(claims.take(Kind::Device, 100 * MIB, NO_LIMIT, &daemon), Ok(()));
        daemon.answers = false;
        for _ in 0..3 {
            let more = claims.take(Kind::Device, 100 * MIB, NO_LIMIT, &daemon);
            assert_eq!(more, Err(Code::OUT_OF_MEMORY));
            assert_eq!(*daemon.reason.lock(), SILENT);
        }
        assert_eq!(daemon.asked.lock().len(), 2, "one claim waits, and no other after it");
        assert_eq!(*daemon.hung_up.lock(), 1);
        // What was admitted is the program's all the same.
        assert_eq!(claims.take(Kind::Device, 20 * MIB, NO_LIMIT, &daemon), Ok(()));
        let again = Scripted::new(&claims, 300 * MIB);
        claims.begin_anew(u64::MAX);
        assert_eq!(claims.take(Kind::Device, 100 * MIB, NO_LIMIT, &again), Ok(()));
    }

    #[test]
    fn without_a_daemon_what_it_last_said_holds_and_little_is_said_of_what_is_given_back() {
        let claims = Claims::new();
        let most = Most { counted: u64::MAX, told: 100 * MIB };
        let absent = Scripted::absent(&claims);
        claims.take(Kind::Device, 100 * MIB, most, &absent).unwrap();
        assert_eq!(claims.admitted(), 100 * MIB);
        assert_eq!(claims.take(Kind::Device, 1, most, &absent), Err(Code::OUT_OF_MEMORY));
        assert!(absent.reason.lock().contains("more than"), "{}", absent.reason.lock());
        let there = Scripted::new(&claims, u64::MAX);
        claims.give_back(Kind::Device, MIB, u64::MAX, &there);
        claims.give_back(Kind::Device, 98 * MIB, u64::MAX, &there);
        assert_eq!(*there.asked.lock(), [32 * MIB]);
        assert_eq!((claims.claimed(u64::MAX), claims.admitted()), (MIB, 32 * MIB));
    }

    #[test]
    fn managed_memory_counts_as_far_as_the_rest_leaves_room() {
        const MOST: u64 = 100 * MIB;
        let claims = Claims::new();
        let daemon = Scripted::new(&claims, MOST);
        let most = Most { counted: MOST, told: MOST };
        let take = |kind, mib: u64| claims.take(kind, mib * MIB, most, &daemon);
        assert_eq!(take(Kind::Device, 40), Ok(()));
        assert_eq!(claims.beyond(Kind::Managed, 300 * MIB, MOST), 240 * MIB);
        assert_eq!(take(Kind::Managed, 300), Ok(()));
        assert_eq!(claims.claimed(MOST), MOST);
        // The device's memory is had all the same.
        assert_eq!(take(Kind::Device, 60), Ok(()));
        assert_eq!(take(Kind::Device, 1), Err(Code::OUT_OF_MEMORY));
        claims.give_back(Kind::Device, 100 * MIB, MOST, &daemon);
        claims.give_back(Kind::Managed, 270 * MIB, MOST, &daemon);
        assert_eq!(claims.claimed(MOST), 30 * MIB);
    }
}
