//! A policy's clients, and sums over them, so that what one message costs does not depend on how many clients there are.
//!
//! ```text
//!   everyone         = Σ of what each client adds
//!   of(principal)    = Σ of what each of its clients adds
//!   short_of_room    = those whose process has less room on the host than they have claimed, the least room first
//! ```
//!
//! A client is changed through [`get_mut`](Clients::get_mut) only, which takes out what it adds and puts in again what it adds then.
//! Its times are added up when it is changed or asked for them: all that time it was what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, Deref, DerefMut, Index, Sub};

use super::client::{Client, Phase};
use super::{ClientId, Moment, Principal};

/// What some clients come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub clients: usize,
    pub waiting: usize,
    /// They may be using the device,
    pub occupying: usize,
    /// and of those: their work goes on,
    pub running: usize,
    /// their memory is on its way,
    pub arriving: usize,
    /// they are to give it up.
    pub dropping: usize,
    /// Not dropping, and asked for room that they have not made.
    pub making_room: usize,
    pub moving: usize,
    pub claimed: u128,
    pub on_host: u128,
    /// Of what is on the device, what cannot leave, as far as that is believed.
    pub pinned: u128,
    /// On the device in the clients' words,
    pub resident: u128,
    /// without those that are moving,
    pub resident_for_sure: u128,
    /// and with all that those have that may be bringing it in.
    pub resident_at_most: u128,
}

impl Sums {
    fn of(client: &Client) -> Sums {
        let count = usize::from;
        let (is_moving, is_occupying) = (client.is_moving(), client.is_occupying());
        let is_dropping = matches!(client.phase, Phase::Dropping { .. });
        let resident = u128::from(client.resident_in_its_words());
        let may_have_more = is_occupying || is_moving;
        Sums {
            clients: 1,
            waiting: count(client.is_waiting()),
            occupying: count(is_occupying),
            running: count(client.hold().is_some_and(|hold| hold.resumed)),
            arriving: count(client.is_arriving()),
            dropping: count(is_dropping),
            making_room: count(!is_dropping && client.is_making_room()),
            moving: count(is_moving),
            claimed: client.claimed.into(),
            on_host: client.on_host().into(),
            pinned: client.pinned.into(),
            resident,
            resident_for_sure: if is_moving { 0 } else { resident },
            resident_at_most: if may_have_more { client.claimed.into() } else { resident },
        }
    }

    fn with(
        self,
        other: Sums,
        count: fn(usize, usize) -> usize,
        bytes: fn(u128, u128) -> u128,
    ) -> Sums {
        Sums {
            clients: count(self.clients, other.clients),
            waiting: count(self.waiting, other.waiting),
            occupying: count(self.occupying, other.occupying),
            running: count(self.running, other.running),
            arriving: count(self.arriving, other.arriving),
            dropping: count(self.dropping, other.dropping),
            making_room: count(self.making_room, other.making_room),
            moving: count(self.moving, other.moving),
            claimed: bytes(self.claimed, other.claimed),
            on_host: bytes(self.on_host, other.on_host),
            pinned: bytes(self.pinned, other.pinned),
            resident: bytes(self.resident, other.resident),
            resident_for_sure: bytes(self.resident_for_sure, other.resident_for_sure),
            resident_at_most: bytes(self.resident_at_most, other.resident_at_most),
        }
    }

    fn add(&mut self, other: Sums) {
        *self = self.with(other, usize::add, u128::add);
    }

    fn take(&mut self, other: Sums) {
        *self = self.with(other, usize::sub, u128::sub);
    }
}

/// As much as can be said of a sum.
pub(super) fn at_most_u64(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    all: BTreeMap<ClientId, Client>,
    everyone: Sums,
    /// Of those that have clients.
    by_principal: BTreeMap<Principal, Sums>,
    short_of_room: BTreeSet<(u64, ClientId)>,
    now: Moment,
    /// How many clients and principals have been looked at.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl Clients {
    /// Time has passed up to then.
    pub(super) fn pass(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    pub(super) fn insert(&mut self, id: ClientId, mut client: Client) {
        debug_assert!(!self.all.contains_key(&id), "a number is used once");
        client.is_as_of = self.now;
        let sums = Sums::of(&client);
        self.everyone.add(sums);
        self.by_principal.entry(client.principal).or_default().add(sums);
        self.short_of_room.extend(short_of_room(id, &client));
        self.all.insert(id, client);
    }

    pub(super) fn remove(&mut self, id: ClientId) -> Option<Client> {
        let client = self.all.remove(&id)?;
        let sums = Sums::of(&client);
        self.everyone.take(sums);
        if let Some(own) = self.by_principal.get_mut(&client.principal) {
            own.take(sums);
            if own.clients == 0 {
                self.by_principal.remove(&client.principal);
            }
        }
        short_of_room(id, &client).map(|entry| self.short_of_room.remove(&entry));
        Some(client)
    }

    pub(super) fn get(&self, id: ClientId) -> Option<&Client> {
        self.look();
        self.all.get(&id)
    }

    /// A client that may be changed. What follows from the change is known when that is given back.
    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<Changing<'_>> {
        self.look();
        let client = self.all.get_mut(&id)?;
        client.spend_up_to(self.now);
        let before = Sums::of(client);
        self.everyone.take(before);
        let own = self.by_principal.get_mut(&client.principal).expect("it has this client");
        own.take(before);
        let listed = short_of_room(id, client);
        Some(Changing {
            id,
            client,
            everyone: &mut self.everyone,
            own,
            listed,
            short_of_room: &mut self.short_of_room,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, for what need not be quick.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.all.iter().map(|(id, client)| {
            self.look();
            (*id, client)
        })
    }

    /// All of them, for what need not be quick.
    pub(super) fn values(&self) -> impl Iterator<Item = &Client> {
        self.iter().map(|(_, client)| client)
    }

    /// The numbers of all of them, for what need not be quick.
    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Adds up everybody's times.
    pub(super) fn spend_up_to_now(&mut self) {
        let now = self.now;
        self.all.values_mut().for_each(|client| client.spend_up_to(now));
    }

    pub(super) fn everyone(&self) -> &Sums {
        &self.everyone
    }

    /// What a principal's clients come to.
    pub(super) fn of(&self, principal: Principal) -> Sums {
        self.by_principal.get(&principal).copied().unwrap_or_default()
    }

    pub(super) fn principal_count(&self) -> usize {
        self.by_principal.len()
    }

    /// Those that have clients, and what each one's come to.
    pub(super) fn principals(&self) -> impl Iterator<Item = (Principal, &Sums)> {
        self.by_principal.iter().map(|(principal, sums)| {
            self.look();
            (*principal, sums)
        })
    }

    /// Those whose process has less room on the host than they have claimed, and less than so much.
    pub(super) fn short_of_room(&self, bytes: u64) -> impl Iterator<Item = (ClientId, &Client)> {
        let below = self.short_of_room.range(..(bytes, ClientId(0)));
        below.map(|(_, id)| (*id, &self[*id]))
    }

    /// Whether the sums are what they say.
    pub(super) fn assert_valid(&self) {
        let mut again = Clients::default();
        for (&id, client) in &self.all {
            again.insert(id, client.clone());
        }
        assert_eq!(self.everyone, again.everyone);
        assert_eq!(self.by_principal, again.by_principal);
        assert_eq!(self.short_of_room, again.short_of_room);
    }

    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.looks.get()
    }

    #[cfg(test)]
    fn look(&self) {
        self.looks.set(self.looks.get() + 1);
    }

    #[cfg(not(test))]
    fn look(&self) {}
}

impl Index<ClientId> for Clients {
    type Output = Client;

    fn index(&self, id: ClientId) -> &Client {
        self.get(id).expect("it is one of them")
    }
}

fn short_of_room(id: ClientId, client: &Client) -> Option<(u64, ClientId)> {
    let most = client.most_on_host.filter(|most| *most < client.claimed)?;
    Some((most, id))
}

/// A client that may be changed: see [`Clients`].
#[derive(Debug)]
pub(super) struct Changing<'a> {
    id: ClientId,
    client: &'a mut Client,
    everyone: &'a mut Sums,
    own: &'a mut Sums,
    listed: Option<(u64, ClientId)>,
    short_of_room: &'a mut BTreeSet<(u64, ClientId)>,
}

impl Deref for Changing<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let after = Sums::of(self.client);
        self.everyone.add(after);
        self.own.add(after);
        let listed = short_of_room(self.id, self.client);
        if listed != self.listed {
            self.listed.map(|entry| self.short_of_room.remove(&entry));
            self.short_of_room.extend(listed);
        }
    }
}
