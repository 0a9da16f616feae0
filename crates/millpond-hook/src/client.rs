//! This process on one device: what calls pass through, and what the link's thread works with.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use millpond_share::protocol::{
    DeviceId, Hello, PROTOCOL, Prefetch, Standing, ToClient, ToDaemon, Traffic,
};
use parking_lot::Mutex;

use crate::books::{Books, Physical};
use crate::captures::Captures;
use crate::claims::{self, Claims, Kind, Most, Verdict};
use crate::code::{Answer, Code};
use crate::connection::{Connection, Listening, Met, Said};
use crate::contexts::Contexts;
use crate::driver_ffi as driver;
use crate::environment::Wishes;
use crate::gate::{Gate, Inside};
use crate::link::{Event, Link};
use crate::own_threads_ffi;
use crate::said::{log, warn, warn_once};
use crate::stripe::stripe;
use crate::touches::{Id, Owner, Touches};
use crate::waiting_frees::WaitingFrees;

/// What the daemon says that can change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) prefetch: Prefetch,
    pub(crate) memory_bytes: u64,
    pub(crate) idle_ms: u64,
}

/// A device, as the driver knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: i32,
    pub(crate) id: DeviceId,
    pub(crate) capacity_bytes: u64,
}

/// See the module.
pub(crate) struct Client {
    pub(crate) device: Device,
    pub(crate) wishes: Wishes,
    instance: u64,
    pub(crate) gate: Gate,
    pub(crate) touches: Touches,
    /// Counts the grants; what calls name is marked with it.
    pub(crate) turn: AtomicU32,
    /// What may be on the device, as the daemon last said.
    pub(crate) room: AtomicU64,
    /// Physical memory that the program waits for.
    pub(crate) pending: AtomicU64,
    pub(crate) captures: Captures,
    pub(crate) contexts: Mutex<Contexts>,
    pub(crate) books: Mutex<Books>,
    pub(crate) claims: Claims,
    pub(crate) frees: WaitingFrees,
    pub(crate) connection: Connection,
    pub(crate) settings: Mutex<Settings>,
    events: Sender<Event>,
    said_why: AtomicBool,
    /// That calls fail because the device is full.
    pub(crate) said_full: AtomicBool,
}

impl Client {
    /// Meets the daemon. `None`: the program runs without sharing.
    pub(crate) fn join(ordinal: i32) -> Option<&'static Client> {
        let device = device(ordinal)?;
        let wishes = Wishes::from_environment();
        let (events, arrived) = channel();
        let settings = Settings { prefetch: Prefetch::default(), memory_bytes: 0, idle_ms: 0 };
        let client: &'static Client = Box::leak(Box::new(Client {
            device,
            wishes,
            instance: instance(),
            gate: Gate::closed(),
            touches: Touches::new(),
            turn: AtomicU32::new(1),
            room: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            captures: Captures::default(),
            contexts: Mutex::default(),
            books: Mutex::default(),
            claims: Claims::new(),
            frees: WaitingFrees::default(),
            connection: Connection::default(),
            settings: Mutex::new(settings),
            events,
            said_why: AtomicBool::new(false),
            said_full: AtomicBool::new(false),
        }));
        let listening = match client.meet(Standing::default()) {
            Ok(listening) => listening,
            Err(not_met) => {
                without_sharing(&not_met.why);
                return None;
            }
        };
        let started = client.listen(listening).and_then(|()| {
            own_threads_ffi::spawn("millpond-link", move || Link::new(client, arrived).run())
        });
        if let Err(error) = started {
            without_sharing(&format!("no thread: {error}"));
            client.connection.forget();
            return None;
        }
        Some(client)
    }

    /// Says hello and takes the daemon's settings. The error is a line for the user.
    pub(crate) fn meet(&self, standing: Standing) -> Result<Listening, NotMet> {
        let wishes = &self.wishes;
        let hello = Hello {
            protocol: PROTOCOL,
            instance: self.instance,
            device: self.device.id,
            capacity_bytes: self.device.capacity_bytes,
            taken_bytes: self.taken_bytes(),
            name: wishes.name.clone(),
            weight: wishes.weight,
            priority: wishes.priority,
            memory_limit: wishes.memory_limit,
            standing,
        };
        match self.connection.meet(&wishes.socket, &hello) {
            Ok(Met::Welcome(welcome, listening)) => {
                self.take_settings(&welcome);
                Ok(listening)
            }
            Ok(Met::Unfit(why)) => Err(NotMet { why, is_absent: false }),
            Err(error) => Err(NotMet {
                why: format!("no daemon answers at {}: {error}", wishes.socket.display()),
                is_absent: matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused
                ),
            }),
        }
    }

    /// Begins to listen. Answers to claims go to whoever waits for them; everything else is for the link's thread.
    pub(crate) fn listen(&'static self, listening: Listening) -> std::io::Result<()> {
        listening.hand_to(move |message| match message {
            Some(ToClient::Admitted { claim }) => self.claims.deliver(claim, Verdict::Admitted),
            Some(ToClient::Refused { claim, reason }) => {
                self.claims.deliver(claim, Verdict::Refused(reason));
            }
            Some(message) => {
                log(|| format!("heard {message:?}"));
                self.tell_link(Event::Message(message));
            }
            None => {
                crate::process::forget_socket(self);
                self.connection.forget();
                self.claims.lose();
                self.tell_link(Event::Lost);
            }
        })
    }

    /// What the daemon says of settings.
    pub(crate) fn take_settings(&self, message: &ToClient) {
        if let &(ToClient::Welcome { prefetch, memory_bytes, idle_ms }
        | ToClient::Settings { prefetch, memory_bytes, idle_ms }) = message
        {
            *self.settings.lock() = Settings { prefetch, memory_bytes, idle_ms };
        }
    }

    pub(crate) fn tell_link(&self, event: Event) {
        // The link's thread ends with the process only.
        let _ = self.events.send(event);
    }

    /// Says something to the daemon, and whether it could be said.
    pub(crate) fn say(&self, message: &ToDaemon) -> bool {
        log(|| format!("says {message:?}"));
        let said = self.connection.say(message);
        if said == Said::TakenTooSlowly {
            self.claims.note_silence();
        }
        said == Said::Yes
    }

    /// Makes a call that gives the device work on a stream, as soon as the device may be used. It is inside the gate until the driver
    /// has taken it. `name` marks what the call names: before, so that it comes in, and once more if that took until another turn.
    #[inline]
    pub(crate) fn pass(
        &self,
        is_captured: bool,
        name: impl Fn(),
        call: impl FnOnce() -> i32,
    ) -> i32 {
        let turn = self.turn.load(Ordering::Relaxed);
        name();
        if is_captured {
            return call();
        }
        if self.wishes.without.gate {
            self.tell_link(Event::Wanted);
            return call();
        }
        let _inside = match self.enter() {
            Ok(inside) => inside,
            Err(code) => return code.0,
        };
        if self.turn.load(Ordering::Relaxed) != turn {
            name();
        }
        call()
    }

    /// Goes inside the gate. An error is the driver's, which has no room for memory that must be on the device first.
    #[inline]
    pub(crate) fn enter(&self) -> Answer<Inside<'_>> {
        let inside = self.gate.enter(stripe(), || self.tell_link(Event::Wanted));
        inside.ok_or(Code::OUT_OF_MEMORY)
    }

    /// A call names an address.
    #[inline]
    pub(crate) fn touch(&self, address: u64, is_captured: bool) {
        match self.touches.owner(address) {
            Owner::Nobody => {}
            Owner::One(id) => self.touch_allocation(id, is_captured),
            Owner::Several => {
                let id = self.books.lock().id_around(address);
                id.into_iter().for_each(|id| self.touch_allocation(id, is_captured));
            }
        }
    }

    /// Whether an address is in this device's memory.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.touches.owner(address) != Owner::Nobody || self.books.lock().has(address)
    }

    /// Whether kernels of other devices may use physical memory of this one.
    pub(crate) fn is_reachable_by_others(&self) -> bool {
        self.books.lock().is_reachable_by_others
    }

    #[inline]
    pub(crate) fn touch_allocation(&self, id: Id, is_captured: bool) {
        self.touches.mark(id, self.turn.load(Ordering::Relaxed));
        if is_captured {
            self.captures.record(id);
        }
    }

    /// A call may use anything.
    pub(crate) fn touch_everything(&self, is_captured: bool) {
        self.touches.mark_everything(self.turn.load(Ordering::Relaxed));
        if is_captured {
            self.captures.record_anything();
        }
    }

    /// The program is about to have so much more memory.
    pub(crate) fn claim(&self, kind: Kind, bytes: u64) -> Answer {
        let most = self.most_bytes();
        let beyond = self.claims.beyond(kind, bytes, most).min(bytes);
        let host = if beyond == 0 { u64::MAX } else { crate::host_memory::room() };
        if beyond > host {
            self.refuse(&format!(
                "{beyond} bytes of managed memory are more than the device has, and the host has {host}: free host memory"
            ));
            return Err(Code::OUT_OF_MEMORY);
        }
        let told = self.settings.lock().memory_bytes;
        self.claims.take(kind, bytes, Most { counted: most, told }, &Way(self))
    }

    /// Says once why the program cannot have what it asked for.
    fn refuse(&self, reason: &str) {
        warn_once(&self.said_why, &format!("out of memory: {reason}"));
    }

    /// The program has less memory again.
    pub(crate) fn unclaim(&self, kind: Kind, bytes: u64) {
        self.claims.give_back(kind, bytes, self.most_bytes(), &Way(self));
    }

    /// What the program has, as far as it counts.
    pub(crate) fn claimed_bytes(&self) -> u64 {
        self.claims.claimed(self.most_bytes())
    }

    /// Beyond this, memory that the program itself asked for as managed does not count, as on a device of its own. A limit that it was
    /// given is one for all its memory.
    pub(crate) fn most_bytes(&self) -> u64 {
        match self.wishes.memory_limit {
            Some(_) => u64::MAX,
            None => self.settings.lock().memory_bytes,
        }
    }

    /// What is where, as the daemon is told.
    pub(crate) fn traffic(&self) -> Traffic {
        let books = self.books.lock();
        let staying = books.staying_bytes();
        let bytes = |counts: fn(&Physical) -> bool| -> u64 {
            books.physical.values().filter(|memory| counts(memory)).map(|memory| memory.bytes).sum()
        };
        Traffic {
            fixed_bytes: bytes(|_| true) + staying + self.pending.load(Ordering::SeqCst),
            pinned_bytes: bytes(|memory| memory.is_in() && memory.stays) + staying,
            used_bytes: books.used_bytes(&self.touches, self.turn.load(Ordering::Relaxed)),
            ..books.traffic
        }
    }

    /// What is taken of the device, by any program, as the driver says. `None`: nobody can ask it at the moment.
    pub(crate) fn taken_bytes(&self) -> Option<u64> {
        if self.captures.any() {
            return None;
        }
        // Who joins may do so by its first context, of which nobody has taken note yet.
        let is_current = driver::current_device() == Some(self.device.ordinal);
        let known = self.contexts.lock().within_any(driver::taken_bytes).ok();
        known.or_else(|| is_current.then(driver::taken_bytes)?.ok())
    }

    /// The program's graphs have so much by now, of which the driver asks nobody.
    pub(crate) fn note_graph_memory(&self, bytes: u64) {
        let mut books = self.books.lock();
        let before = std::mem::replace(&mut books.graph_bytes, bytes);
        books.traffic.resident_bytes = books.traffic.resident_bytes - before + bytes;
        drop(books);
        if before != bytes {
            self.claims.note_graphs(bytes, self.most_bytes(), &Way(self));
        }
    }

    /// Whether managed memory is brought in before it is used.
    pub(crate) fn prefetches(&self) -> bool {
        !self.wishes.without.prefetch && self.settings.lock().prefetch != Prefetch::Off
    }

    /// Total and free memory, as far as this program goes.
    pub(crate) fn memory_info(&self) -> (u64, u64) {
        let total = self.settings.lock().memory_bytes;
        (total, total.saturating_sub(self.claimed_bytes()))
    }
}

/// Why the daemon was not met.
pub(crate) struct NotMet {
    why: String,
    /// Nothing listens there: it is not that a daemon does not answer.
    pub(crate) is_absent: bool,
}

/// A client's way to the daemon, for claims.
struct Way<'a>(&'a Client);

impl claims::Daemon for Way<'_> {
    fn claim(&self, claim: u64, bytes: u64) -> bool {
        let cgroup_room = crate::host_memory::cgroup_room();
        self.0.say(&ToDaemon::Claim { claim, bytes, cgroup_room })
    }

    fn hang_up(&self) {
        self.0.connection.hang_up();
    }

    fn refused(&self, reason: &str) {
        self.0.refuse(reason);
    }
}

/// Says once, on however many devices, that there is no sharing.
fn without_sharing(why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    warn_once(&SAID, &format!("this program runs without sharing its GPU: {why}"));
}

/// What the driver says of a device; `None`, with a line, if its memory cannot be shared.
fn device(ordinal: i32) -> Option<Device> {
    let (mut id, mut capacity, mut can_fault) = ([0; 16], 0, 0);
    driver::device_uuid(&mut id, ordinal)
        .or_else(|_| driver::device_uuid_v1(&mut id, ordinal))
        .ok()?;
    driver::device_total_bytes(&mut capacity, ordinal).ok()?;
    driver::device_attribute(&mut can_fault, driver::CONCURRENT_MANAGED_ACCESS, ordinal).ok()?;
    if can_fault == 0 {
        warn(&format!(
            "this program runs without sharing GPU {ordinal}: its managed memory cannot be moved while it is in use"
        ));
        return None;
    }
    Some(Device { ordinal, id: DeviceId(id), capacity_bytes: capacity as u64 })
}

/// A number that no other client has.
fn instance() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
