//! The thread that does what the daemon says: opens and closes the gate, and moves memory in between.
//!
//! ```text
//!             Wanted → Want            Grant                    all in → open the gate, Resumed
//!   Outside ───────────────► (waits) ────────► Arriving ────────────────────────────────► Running
//!      ▲                                          │ Drop                                    │ Drop, or idle while contended
//!      └──────────────────── Released ◄───────────┴──────────────── close the gate, synchronise
//! ```
//!
//! Work is done in small steps, and between them the daemon is listened to. Memory moves out whenever the daemon asks for room.
//!
//! `Revoked` shuts the gate at once, and the turn is then `Leaving`: what was given to the device before may still run. Nothing is
//! released, and no memory that cannot fault leaves, until captures have ended and the device has been waited for.

mod daemon_lost;
mod survey;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use millpond_share::protocol::{Prefetch, ToClient, ToDaemon, Traffic};

use crate::books::Planned;
use crate::client::Client;
use crate::driver_ffi as driver;
use crate::mover::{Mover, Step};
use crate::quiet::Quiet;
use crate::said::{log, warn_once};
use daemon_lost::Alone;
use survey::Survey;

/// Managed memory comes in that was named in the last turn, or in so many before it.
const TURNS_BACK: u32 = 1;
/// So long the room may stay too small before managed memory is left to the device.
const STALL: Duration = Duration::from_secs(2);
/// So long the driver may have no room, though the daemon says that there is some, before calls get its answer.
const FULL: Duration = Duration::from_secs(10);
/// Between looks at what has changed without a message.
const TICK: Duration = Duration::from_secs(1);
/// Between attempts to bring in what there was no room for.
const RETRY: Duration = Duration::from_millis(5);

/// What the thread hears of.
#[derive(Debug)]
pub(crate) enum Event {
    Message(ToClient),
    /// The connection is gone.
    Lost,
    /// A call waits at the gate.
    Wanted,
    /// The program waits for memory that the device has no room for.
    NeedsRoom,
    /// No stream captures any more.
    CapturesEnded,
    /// The program has a context more.
    ContextMade,
}

/// Memory on its way in.
struct Arrival {
    plan: Vec<Planned>,
    granted: Instant,
    /// Since when there has been no room for the next piece.
    stalled: Option<Instant>,
    /// Since when it is the driver that has none.
    full: Option<Instant>,
}

enum Phase {
    Outside,
    /// The turn of this number is lost, and what was begun in it may not be over.
    Leaving(u64),
    Arriving(Arrival),
    Running,
}

/// See the module.
pub(crate) struct Link {
    client: &'static Client,
    events: Receiver<Event>,
    mover: Mover<'static>,
    phase: Phase,
    /// The daemon's number of our turn.
    turn: u64,
    /// The daemon knows that we want the device.
    has_asked: bool,
    /// What it was last told that we want.
    wanted: u64,
    /// The turn that is to be given up.
    dropping: Option<u64>,
    /// What is to leave, and how much may stay.
    leaving: Option<(Vec<Planned>, u64)>,
    /// How much the daemon last said may stay, since the last grant.
    may_stay: Option<u64>,
    contended: bool,
    quiet: Quiet,
    alone: Option<Alone>,
    said: Traffic,
    survey: Survey,
}

impl Link {
    pub(crate) fn new(client: &'static Client, events: Receiver<Event>) -> Link {
        let mover = Mover {
            device: client.device.ordinal,
            contexts: &client.contexts,
            books: &client.books,
            staging: None,
        };
        Link {
            client,
            events,
            mover,
            phase: Phase::Outside,
            turn: 0,
            has_asked: false,
            wanted: 0,
            dropping: None,
            leaving: None,
            may_stay: None,
            contended: false,
            quiet: Quiet::new(),
            alone: None,
            said: Traffic::default(),
            survey: Survey::new(),
        }
    }

    pub(crate) fn run(mut self) {
        // Nothing that this thread does is part of a capture, nor in the way of one.
        let mut mode = driver::RELAXED;
        let _ = driver::exchange_capture_mode(&mut mode);
        loop {
            match self.events.recv_timeout(self.pause()) {
                Ok(event) => self.hear(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(event) = self.events.try_recv() {
                self.hear(event);
            }
            self.step();
        }
    }

    /// How long there is nothing to do unless something is heard.
    fn pause(&self) -> Duration {
        let arriving = match &self.phase {
            Phase::Arriving(arrival) if arrival.stalled.is_none() => Duration::ZERO,
            Phase::Arriving(_) => RETRY,
            _ => TICK,
        };
        let leaving = if self.leaving.is_some() { Duration::ZERO } else { TICK };
        let quiet = if self.watches_quiet() { self.quiet.pause(self.idle()) } else { TICK };
        let alone = match &self.alone {
            Some(alone) => alone.next_try.saturating_duration_since(Instant::now()),
            None => TICK,
        };
        arriving.min(leaving).min(quiet).min(alone)
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.obey(message),
            Event::Lost => self.lose(),
            Event::Wanted => self.want(),
            Event::NeedsRoom => self.want_more(),
            Event::CapturesEnded => {}
            Event::ContextMade => self.survey.hurry(),
        }
    }

    fn obey(&mut self, message: ToClient) {
        match message {
            ToClient::Grant { turn, room } => self.begin(turn, room),
            ToClient::Room { room } => self.client.room.store(room, Ordering::Relaxed),
            ToClient::Contended(contended) => {
                self.contended = contended;
                self.quiet = Quiet::new();
            }
            ToClient::Drop { turn } => self.dropping = Some(turn),
            ToClient::MakeRoom { resident_at_most } => self.make_room(resident_at_most),
            ToClient::Revoked { turn } => self.lose_turn(turn),
            ToClient::Settings { .. } => self.client.take_settings(&message),
            ToClient::Notice { line } => crate::said::warn(&line),
            ToClient::Welcome { .. }
            | ToClient::Unfit { .. }
            | ToClient::Admitted { .. }
            | ToClient::Refused { .. } => {}
        }
    }

    /// One step of whatever is to be done.
    fn step(&mut self) {
        if let Some(turn) = self.dropping {
            self.give_up(turn);
        }
        if matches!(self.phase, Phase::Leaving(_)) {
            self.leave_when_done();
        }
        if matches!(self.phase, Phase::Arriving(_)) {
            self.arrive();
        }
        if self.leaving.is_some() {
            self.move_out();
        }
        if self.watches_quiet() {
            self.release_if_idle();
        }
        if self.alone.is_some() {
            self.look_for_daemon();
        }
        self.tidy();
    }

    /// Asks for the device if it is wanted and that is not known.
    fn want(&mut self) {
        let may_ask = match self.phase {
            Phase::Outside => true,
            // What the capture needs in order to end may be what waits.
            Phase::Leaving(_) => self.client.captures.any(),
            Phase::Arriving(_) | Phase::Running => false,
        };
        if !may_ask || self.has_asked {
            return;
        }
        self.say_moved();
        let bytes = self.wanted_bytes();
        self.has_asked = self.client.say(&ToDaemon::Want { bytes });
        self.wanted = bytes;
    }

    /// The device is ours, but others have too much of it.
    fn want_more(&mut self) {
        let bytes = self.wanted_bytes();
        if matches!(self.phase, Phase::Running) && bytes != self.wanted {
            self.say_moved();
            self.client.say(&ToDaemon::Want { bytes });
            self.wanted = bytes;
        }
    }

    fn wanted_bytes(&self) -> u64 {
        let books = self.client.books.lock();
        let pending = self.client.pending.load(Ordering::SeqCst);
        books.wanted_bytes(&self.client.touches, self.since()) + pending
    }

    /// From which turn on what was used comes in; `None`: no managed memory does.
    fn since(&self) -> Option<u32> {
        let turn = self.client.turn.load(Ordering::Relaxed);
        match self.client.settings.lock().prefetch {
            _ if self.client.wishes.without.prefetch => None,
            Prefetch::Off => None,
            Prefetch::All => Some(0),
            Prefetch::WorkingSet => Some(turn.saturating_sub(TURNS_BACK)),
        }
    }

    fn begin(&mut self, turn: u64, room: u64) {
        self.turn = turn;
        self.client.room.store(room, Ordering::Relaxed);
        (self.has_asked, self.dropping, self.leaving) = (false, None, None);
        self.may_stay = None;
        if !matches!(self.phase, Phase::Outside | Phase::Leaving(_)) {
            return;
        }
        // What waits at the gate has marked itself with the turn before.
        let since = self.since();
        self.client.turn.fetch_add(1, Ordering::Relaxed);
        let plan = self.client.books.lock().arriving(&self.client.touches, since);
        let now = Instant::now();
        log(|| format!("turn {turn}: {} pieces are to come in", plan.len()));
        self.phase = Phase::Arriving(Arrival { plan, granted: now, stalled: None, full: None });
    }

    fn arrive(&mut self) {
        let Phase::Arriving(arrival) = &mut self.phase else { return };
        let step = self.mover.bring_in(&mut arrival.plan, self.client.room.load(Ordering::Relaxed));
        match step {
            Step::Moved => {
                (arrival.stalled, arrival.full) = (None, None);
                self.say_moved();
                return;
            }
            Step::NoRoom | Step::Full => {
                let since = *arrival.stalled.get_or_insert_with(Instant::now);
                let stuck = since.elapsed() >= STALL;
                let is_managed =
                    |planned: &Planned| matches!(planned.piece, crate::books::Piece::Managed(..));
                // Physical memory cannot be faulted in; it must wait. Managed memory can.
                if !stuck || !arrival.plan.iter().all(is_managed) {
                    self.refuse_if_full(step == Step::Full);
                    return;
                }
                log(|| "no more room comes; the rest is left to the device".to_owned());
            }
            Step::Done => {}
        }
        let moving_ns = arrival.granted.elapsed().as_nanos() as u64;
        self.phase = Phase::Running;
        self.quiet = Quiet::new();
        self.client.gate.open();
        self.client.say(&ToDaemon::Resumed { moving_ns });
    }

    /// Nobody is kept waiting for ever: if the driver goes on having no room, calls get its answer. It is tried again all the same.
    fn refuse_if_full(&mut self, is_full: bool) {
        let Phase::Arriving(arrival) = &mut self.phase else { return };
        if !is_full {
            arrival.full = None;
            return;
        }
        let since = *arrival.full.get_or_insert_with(Instant::now);
        if since.elapsed() >= FULL {
            warn_once(
                &self.client.said_full,
                "the GPU is full and nobody makes room: calls fail with out-of-memory until a program on it ends or frees memory",
            );
            self.client.gate.refuse();
        }
    }

    /// The daemon wants the device back. Not while a stream captures: that would be spoilt by waiting for the device.
    fn give_up(&mut self, turn: u64) {
        if self.client.captures.any() {
            return;
        }
        self.close();
        if self.client.captures.any() {
            // It began before the gate was closed.
            if matches!(self.phase, Phase::Running) {
                self.client.gate.open();
            }
            return;
        }
        self.synchronize();
        self.leave_outside(turn, false);
    }

    /// The daemon has given the device to others. What is inside the gate cannot be stopped; what comes now waits.
    fn lose_turn(&mut self, turn: u64) {
        if matches!(self.phase, Phase::Outside) {
            return;
        }
        self.client.gate.shut();
        self.dropping = None;
        self.phase = Phase::Leaving(turn);
    }

    /// Says that the device is given up as soon as that is so.
    fn leave_when_done(&mut self) {
        let Phase::Leaving(turn) = self.phase else { return };
        if self.client.captures.any() {
            if self.client.gate.waiting() > 0 {
                self.want();
            }
            return;
        }
        self.close();
        // A capture begins inside the gate, and now nobody is.
        if !self.client.captures.any() {
            self.synchronize();
            self.leave_outside(turn, false);
        }
    }

    /// Nobody gets in, and nobody is inside.
    fn close(&self) {
        if !self.client.wishes.without.gate {
            self.client.gate.close();
        }
    }

    /// The device has nothing of ours left to do.
    fn synchronize(&self) {
        if !self.client.wishes.without.sync {
            self.client.contexts.lock().synchronize();
        }
    }

    fn leave_outside(&mut self, turn: u64, idle: bool) {
        self.phase = Phase::Outside;
        self.dropping = None;
        self.client.gate.shut();
        self.settle();
        let traffic = self.client.traffic();
        self.said = traffic;
        self.client.say(&ToDaemon::Released { turn, traffic, idle });
        // Now all kinds of memory can leave.
        if let Some(resident_at_most) = self.may_stay {
            self.make_room(resident_at_most);
        }
        if self.client.gate.waiting() > 0 {
            self.want();
        }
    }

    /// What the device has done by itself in this turn is written down.
    fn settle(&self) {
        let turn = self.client.turn.load(Ordering::Relaxed);
        let capacity = self.client.device.capacity_bytes;
        self.client.books.lock().settle(&self.client.touches, turn, capacity);
    }

    fn make_room(&mut self, resident_at_most: u64) {
        self.may_stay = Some(resident_at_most);
        // Physical memory goes only while nobody can use it.
        let is_outside = matches!(self.phase, Phase::Outside);
        let plan = self.client.books.lock().leaving(&self.client.touches, is_outside);
        self.leaving = Some((plan, resident_at_most));
    }

    fn move_out(&mut self) {
        let Some((plan, resident_at_most)) = &mut self.leaving else { return };
        if self.mover.out(plan, *resident_at_most) == Step::Done {
            self.leaving = None;
            return;
        }
        self.say_moved();
    }

    fn say_moved(&mut self) {
        let traffic = self.client.traffic();
        if traffic != self.said {
            self.said = traffic;
            self.client.say(&ToDaemon::Moved(traffic));
        }
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.client.settings.lock().idle_ms)
    }

    fn watches_quiet(&self) -> bool {
        self.contended && self.dropping.is_none() && matches!(self.phase, Phase::Running)
    }

    /// Somebody waits and the program has nothing to do: it need not be told. That it asks nothing does not mean that the device
    /// has nothing left to do; if it had, the quiet begins only now.
    fn release_if_idle(&mut self) {
        let gate = &self.client.gate;
        let is_in_use = gate.is_occupied() || gate.is_expected();
        if !self.quiet.lasts(gate.calls(), is_in_use, self.idle()) || self.client.captures.any() {
            return;
        }
        self.close();
        let began = Instant::now();
        if !self.client.captures.any() {
            self.synchronize();
        }
        let was_busy = began.elapsed() > Duration::from_millis(2);
        if was_busy || self.client.captures.any() || gate.waiting() > 0 {
            gate.open();
            self.quiet = Quiet::new();
            return;
        }
        log(|| "nothing to do".to_owned());
        self.leave_outside(self.turn, true);
    }

    /// Now and then: what was freed in the order of streams that have come so far, and what the device did by itself.
    fn tidy(&mut self) {
        crate::memory::drain_frees(self.client);
        if matches!(self.phase, Phase::Running) && self.said_long_ago() {
            self.settle();
            self.say_moved();
        }
        self.look_around();
    }

    fn said_long_ago(&mut self) -> bool {
        self.quiet.is_time_to_report(TICK)
    }
}
