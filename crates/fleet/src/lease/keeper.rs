//! One host's part in the leases of one storage group, as a machine of states: it says what to ask the broker next, and takes
//! the answers.

use super::{Found, Moment, Owner, Record, Revision, Slot, Term};

/// A connection to a broker. Another number: perhaps another broker, perhaps one that lost its latest data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Which one.
    pub number: u64,
    /// Since when.
    pub since: Moment,
    /// To a server of a cluster. Some versions of it confirm two writings that replace one revision, when they come within
    /// the moment that the servers need to agree: the later one is valid.
    pub clustered: bool,
}

/// A request to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What does the slot hold?
    Read {
        /// Its number.
        slot: usize,
    },
    /// Write this to the slot, if its revision is still the expected one.
    Write {
        /// Its number.
        slot: usize,
        /// The revision that this replaces.
        expected: Revision,
        /// What to write.
        record: Record,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The slot holds this.
    Found(Found),
    /// It was written, and has this revision.
    Written(Revision),
    /// It was not written: the revision was another.
    Refused,
    /// None came, on the same connection and in time: it may have been written, or may be yet.
    Silence,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the broker, and bring the answer.
    Ask(Request),
    /// There is nothing to do before this moment.
    Wait(Moment),
}

/// A lease that is held, or was.
#[derive(Clone, Debug)]
struct Hold {
    slot: usize,
    revision: Revision,
    /// Work ends here, whatever is answered later.
    deadline: Moment,
    /// When to write next.
    due: Moment,
    /// The slot was renewed since it was taken, or that is not needed: only then is work permitted.
    confirmed: bool,
    /// A writing was refused or not answered, or this is another connection: the revision is to be read first.
    doubt: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// No lease is wanted.
    Away,
    /// Looks for a free slot: which look is next in this round, and whether it has just found one, and when it asked.
    Seeking { look: usize, found: Option<(usize, Moment)>, due: Moment },
    /// Holds a lease.
    Holding(Hold),
    /// Gives it back, once the service has stopped.
    Leaving { hold: Hold, stopped: bool },
}

/// One host's part in the leases of one group.
#[derive(Clone, Debug)]
pub struct Keeper {
    me: Owner,
    term: Term,
    slots: Vec<Slot>,
    /// The slot that this host looks at first, so that hosts begin at different ones.
    first: usize,
    serial: u64,
    connection: Option<Connection>,
    state: State,
}

impl Keeper {
    /// That of `me`, in a group of so many slots.
    #[must_use]
    pub fn new(me: Owner, term: Term, slots: usize, first: usize) -> Self {
        let slots = vec![Slot::default(); slots];
        Self { me, term, slots, first, serial: 0, connection: None, state: State::Away }
    }

    /// The administrator changed the number of slots. A lease of one that is gone is given back.
    pub fn set_slots(&mut self, slots: usize) {
        self.slots.resize(slots, Slot::default());
        if let State::Holding(hold) = &self.state
            && hold.slot >= slots
        {
            self.leave();
        }
    }

    /// A lease is wanted, from now on.
    pub fn seek(&mut self, now: Moment) {
        if matches!(self.state, State::Away) {
            self.state = State::Seeking { look: 0, found: None, due: now };
        }
    }

    /// None is wanted any more: what is held is given back after [`Self::stopped`].
    pub fn leave(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Away) {
            // To be written as soon as the service has stopped.
            State::Holding(hold) => State::Leaving { hold: Hold { due: Moment::default(), ..hold }, stopped: false },
            State::Seeking { .. } => State::Away,
            other => other,
        };
    }

    /// The service has confirmed that it works no more on this group, and no permission is under way to it.
    pub const fn stopped(&mut self) {
        if let State::Leaving { stopped, .. } = &mut self.state {
            *stopped = true;
        }
    }

    /// Whether work is permitted, and until when.
    #[must_use]
    pub fn permitted_until(&self, now: Moment) -> Option<Moment> {
        match &self.state {
            State::Holding(hold) if hold.confirmed && now < hold.deadline => Some(hold.deadline),
            _ => None,
        }
    }

    /// Whether a lease is held, or not given back yet.
    #[must_use]
    pub const fn is_engaged(&self) -> bool {
        matches!(self.state, State::Holding(_) | State::Leaving { .. })
    }

    /// Whether a lease is being given back.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    /// What to do at `now`, on this connection.
    pub fn next(&mut self, now: Moment, connection: Option<Connection>) -> Step {
        self.pass_time(now);
        if self.connection.map(|known| known.number) != connection.map(|new| new.number) {
            self.slots.iter_mut().for_each(Slot::forget);
            self.connection = connection;
            match &mut self.state {
                State::Away => {}
                State::Seeking { look, found, .. } => (*look, *found) = (0, None),
                // Revisions of another connection may mean something else there.
                State::Holding(hold) | State::Leaving { hold, .. } => hold.doubt = true,
            }
        }
        let wait = Step::Wait(now.plus(self.term.pause()));
        if connection.is_none() {
            return wait;
        }
        match &self.state {
            State::Away => wait,
            State::Seeking { .. } if self.slots.is_empty() => wait,
            State::Seeking { found: Some((slot, _)), .. } => {
                let slot = *slot;
                match self.slots.get(slot).and_then(Slot::revision) {
                    Some(expected) => self.write(slot, expected, true),
                    None => wait,
                }
            }
            State::Seeking { look, due, .. } if *look > 0 || now >= *due => self.read(self.slot_of_look(*look)),
            State::Seeking { due, .. } => Step::Wait(*due),
            State::Leaving { hold, stopped: false } => Step::Wait(hold.deadline),
            State::Holding(hold) | State::Leaving { hold, .. } if now < hold.due => Step::Wait(hold.due),
            State::Holding(hold) | State::Leaving { hold, .. } if hold.doubt => self.read(hold.slot),
            State::Holding(hold) => self.write(hold.slot, hold.revision, true),
            State::Leaving { hold, .. } => self.write(hold.slot, hold.revision, false),
        }
    }

    /// The answer to `request`, which was sent at `sent` or later and has been answered at `now`.
    pub fn answer(&mut self, request: &Request, answer: Answer, sent: Moment, now: Moment) {
        self.pass_time(now);
        if let (Request::Read { slot }, Answer::Found(found)) = (request, &answer)
            && let Some(slot) = self.slots.get_mut(*slot)
        {
            slot.saw(found.clone(), now);
        }
        self.state = match std::mem::replace(&mut self.state, State::Away) {
            State::Away => State::Away,
            State::Seeking { look, found, .. } => self.sought(look, found, request, &answer, sent, now),
            State::Holding(mut hold) => match answer {
                Answer::Found(found) if !self.is_mine(&found) => self.seeking_from(now),
                answer => {
                    // `hold` is not over: what is answered after its deadline revives nothing.
                    if self.settle(&mut hold, &answer, sent, now) {
                        hold.deadline = sent.plus(self.term.hold());
                        hold.confirmed = true;
                    }
                    State::Holding(hold)
                }
            },
            State::Leaving { mut hold, stopped } => match answer {
                Answer::Found(found) if !self.is_mine(&found) => State::Away,
                Answer::Written(_) if matches!(request, Request::Write { record, .. } if !record.held) => State::Away,
                answer => {
                    self.settle(&mut hold, &answer, sent, now);
                    State::Leaving { hold, stopped }
                }
            },
        };
    }

    /// What the passing of time alone changes.
    fn pass_time(&mut self, now: Moment) {
        match &mut self.state {
            State::Holding(hold) if now >= hold.deadline => self.state = self.seeking_from(now),
            // Its permission is over: the service has stopped by itself.
            State::Leaving { hold, stopped } if now >= hold.deadline => {
                *stopped = true;
                // Others take it over meanwhile.
                if now >= hold.deadline.plus(self.term.full()) {
                    self.state = State::Away;
                }
            }
            _ => {}
        }
    }

    fn sought(
        &self,
        look: usize,
        found: Option<(usize, Moment)>,
        request: &Request,
        answer: &Answer,
        sent: Moment,
        now: Moment,
    ) -> State {
        // Where nothing is found at the end of a round, the next one begins after a pause, or when a slot becomes free.
        let go_on = |look: usize| {
            let due = if look < self.slots.len() { now } else { self.next_round(now) };
            State::Seeking { look: if look < self.slots.len() { look } else { 0 }, found: None, due }
        };
        match (answer, found, request) {
            (Answer::Found(_), None, Request::Read { slot }) => match self.free_from(*slot) {
                Some(free) if now >= free => State::Seeking { look: look + 1, found: Some((*slot, sent)), due: now },
                _ => go_on(look + 1),
            },
            // The term began when it was *seen* to be free: a broker that lost its data since can have given the slot to another.
            (Answer::Written(revision), Some((slot, asked)), _) if now < asked.plus(self.term.hold()) => {
                let clustered = self.connection.is_none_or(|connection| connection.clustered);
                let due = if clustered { now.plus(self.term.patience()) } else { asked.plus(self.term.pause()) };
                let deadline = asked.plus(self.term.hold());
                State::Holding(Hold { slot, revision: *revision, deadline, due, confirmed: !clustered, doubt: false })
            }
            // A broker that does not answer is not asked for the other slots at once.
            (Answer::Silence, ..) => State::Seeking { look: 0, found: None, due: now.plus(self.term.pause()) },
            _ => go_on(look),
        }
    }

    /// Takes what an answer says of a lease that is held or being left; whether it was renewed.
    fn settle(&self, hold: &mut Hold, answer: &Answer, sent: Moment, now: Moment) -> bool {
        match answer {
            Answer::Written(revision) => {
                hold.revision = *revision;
                hold.due = sent.plus(self.term.pause());
                return true;
            }
            // Mine: a writing of mine came through whose answer did not.
            Answer::Found(found) => {
                hold.revision = found.revision;
                hold.doubt = false;
            }
            Answer::Refused => hold.doubt = true,
            Answer::Silence => {
                hold.doubt = true;
                hold.due = now.plus(self.term.patience());
            }
        }
        false
    }

    fn is_mine(&self, found: &Found) -> bool {
        found.record().is_some_and(|record| record.owner == self.me && record.held)
    }

    fn seeking_from(&self, now: Moment) -> State {
        State::Seeking { look: 0, found: None, due: now.plus(self.term.pause()) }
    }

    fn free_from(&self, slot: usize) -> Option<Moment> {
        let connected = self.connection?.since;
        self.slots.get(slot)?.free_from(connected, self.term)
    }

    fn next_round(&self, now: Moment) -> Moment {
        let freed = (0..self.slots.len()).filter_map(|slot| self.free_from(slot)).filter(|&free| free > now).min();
        let pause = now.plus(self.term.pause());
        freed.map_or(pause, |freed| freed.min(pause))
    }

    fn slot_of_look(&self, look: usize) -> usize {
        (self.first + look) % self.slots.len().max(1)
    }

    const fn read(&self, slot: usize) -> Step {
        Step::Ask(Request::Read { slot })
    }

    fn write(&mut self, slot: usize, expected: Revision, held: bool) -> Step {
        self.serial += 1;
        let record = Record { owner: self.me.clone(), serial: self.serial, held, term_ms: self.term.milliseconds() };
        Step::Ask(Request::Write { slot, expected, record })
    }
}
