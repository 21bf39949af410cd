//! Story: hosts share storage, and at most so many may work on it at a time. Messages are late or lost, agents are killed and
//! stopped, the broker loses its data or returns to older data, and no two clocks run alike. The keepers are those of the agent.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use longrun_fleet::lease::{Answer, Connection, Found, Keeper, Moment, Owner, Request, Revision, Step, Term};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// Milliseconds of the world's own time, which nobody in it can read.
type Time = u64;
const TERM: Time = 60_000;

/// What happens, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Due(usize),
    Arrives { host: usize, life: u64, number: u64, broker: u64, request: usize },
    Applies { host: usize, life: u64, number: u64, broker: u64, request: usize },
    Answered { host: usize, life: u64, number: u64, request: usize },
    TimesOut { host: usize, life: u64, number: u64 },
    Fault,
}

#[derive(Clone, Default)]
struct Broker {
    slots: BTreeMap<usize, Found>,
    sequence: u64,
}

impl Broker {
    /// A cluster looks at the revision first, and writes when its servers have agreed, without looking again.
    fn would_refuse(&self, request: &Request) -> bool {
        let revision = |slot| self.slots.get(slot).map_or(Revision(0), |found| found.revision);
        matches!(request, Request::Write { slot, expected, .. } if revision(slot) != *expected)
    }

    fn serve(&mut self, request: &Request) -> Answer {
        match request {
            Request::Read { slot } => Answer::Found(self.slots.get(slot).cloned().unwrap_or_default()),
            Request::Write { slot, record, .. } => {
                self.sequence += 1;
                let revision = Revision(self.sequence);
                self.slots.insert(*slot, Found { revision, value: record.to_value() });
                Answer::Written(revision)
            }
        }
    }
}

struct Host {
    keeper: Keeper,
    /// How fast its clock runs, and what it shows at the beginning.
    rate: f64,
    ahead: u64,
    life: u64,
    number: u64,
    waits_for: Option<(u64, usize, Moment)>,
    stopped_until: Time,
    connection: Option<Connection>,
    /// The service works until then, by the world's time, unless it is told to stop.
    works_until: Time,
    wants: bool,
}

impl Host {
    fn clock(&self, now: Time) -> Moment {
        Moment::after_boot(Duration::from_secs_f64(self.ahead as f64 + now as f64 / 1000.0 * self.rate))
    }

    fn time_of(&self, moment: Moment) -> Time {
        let seconds = moment.since(Moment::default()).as_secs_f64() - self.ahead as f64;
        (seconds * 1000.0 / self.rate).max(0.0) as Time
    }
}

struct World {
    random: fastrand::Rng,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
    hosts: Vec<Host>,
    requests: Vec<(Request, Option<Answer>)>,
    broker: Broker,
    older: Vec<Broker>,
    life_of_broker: u64,
    slots: usize,
    clustered: bool,
    faults_end: Time,
    most: usize,
    grants: u64,
    last_grant: Time,
}

impl World {
    /// `drift`: clocks run at most this part too fast or too slow.
    fn new(seed: u64, hosts: usize, slots: usize, drift: f64, faults_end: Time) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let clustered = random.bool();
        let hosts = (0..hosts)
            .map(|index| Host {
                keeper: keeper(index, 0, slots),
                rate: 1.0 + (random.f64() * 2.0 - 1.0) * drift,
                ahead: random.u64(1..1_000_000),
                life: 0,
                number: 0,
                waits_for: None,
                stopped_until: 0,
                connection: None,
                works_until: 0,
                wants: true,
            })
            .collect();
        let mut world = Self {
            random,
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            hosts,
            requests: Vec::new(),
            broker: Broker::default(),
            older: Vec::new(),
            life_of_broker: 1,
            slots,
            clustered,
            faults_end,
            most: 0,
            grants: 0,
            last_grant: 0,
        };
        for host in 0..world.hosts.len() {
            world.after(0, Event::Wake(host));
        }
        world.after(0, Event::Fault);
        world
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now + delay, self.count, event)));
    }

    fn run(&mut self, until: Time) {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > until {
                self.events.push(Reverse((time, self.count, event)));
                self.now = until;
                return;
            }
            self.now = time;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Fault => self.fault(),
            // A message ends with its connection.
            Event::Arrives { broker, .. } | Event::Applies { broker, .. } if broker != self.life_of_broker => {}
            Event::Arrives { host, life, number, broker, request } => {
                if self.broker.would_refuse(&self.requests[request].0) {
                    self.requests[request].1 = Some(Answer::Refused);
                    let delay = self.delay();
                    self.after(delay, Event::Answered { host, life, number, request });
                    return;
                }
                let applies = Event::Applies { host, life, number, broker, request };
                if self.clustered {
                    let agreement = self.random.u64(0..200);
                    self.after(agreement, applies);
                } else {
                    self.happen(applies);
                }
            }
            Event::Applies { host, life, number, broker, request } => {
                let answer = self.broker.serve(&self.requests[request].0);
                self.requests[request].1 = Some(answer);
                // The answer goes to the connection on which the request came.
                if broker == self.life_of_broker && !self.is_lost() {
                    let delay = self.delay();
                    self.after(delay, Event::Answered { host, life, number, request });
                }
            }
            Event::Wake(host) | Event::Due(host) | Event::Answered { host, .. } | Event::TimesOut { host, .. }
                if self.now < self.hosts[host].stopped_until =>
            {
                let wait = self.hosts[host].stopped_until - self.now;
                self.after(wait, event);
            }
            Event::Wake(host) => self.wake(host),
            Event::Due(host) => self.go_on(host),
            Event::Answered { host, life, number, request } => {
                if let Some(answer) = self.requests[request].1.take() {
                    self.answered(host, life, number, answer);
                }
            }
            Event::TimesOut { host, life, number } => self.answered(host, life, number, Answer::Silence),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.now < self.faults_end && self.random.u8(0..100) < 7
    }

    /// Most messages are quick; some arrive when nobody waits for them any more.
    fn delay(&mut self) -> Time {
        match self.random.u8(0..100) {
            0..4 if self.now < self.faults_end => self.random.u64(0..TERM * 3),
            4..10 if self.now < self.faults_end => self.random.u64(0..TERM / 8),
            _ => self.random.u64(1..100),
        }
    }

    fn wake(&mut self, index: usize) {
        let number = self.life_of_broker;
        let (now, busy) = (self.now, self.random.u8(0..100) < 8);
        let host = &mut self.hosts[index];
        let clock = host.clock(now);
        if host.connection.is_none_or(|known| known.number != number) {
            host.connection = Some(Connection { number, since: clock, clustered: self.clustered });
        }
        if self.now < self.faults_end && busy {
            host.wants = !host.wants;
        } else if self.now >= self.faults_end {
            host.wants = true;
        }
        if host.wants {
            host.keeper.seek(clock);
        } else {
            host.keeper.leave();
        }
        self.go_on(index);
        let pause = (TERM / 4) + self.random.u64(0..50);
        self.after(pause, Event::Wake(index));
    }

    fn answered(&mut self, index: usize, life: u64, number: u64, answer: Answer) {
        let host = &mut self.hosts[index];
        let Some((waited, request, sent)) = host.waits_for else { return };
        if life != host.life || number != waited {
            return;
        }
        host.waits_for = None;
        let clock = host.clock(self.now);
        let request = self.requests[request].0.clone();
        host.keeper.answer(&request, answer, sent, clock);
        self.go_on(index);
    }

    /// Tells the service what is permitted, and asks what the keeper wants to know.
    fn go_on(&mut self, index: usize) {
        let now = self.now;
        let host = &mut self.hosts[index];
        let clock = host.clock(now);
        let worked = host.works_until > now;
        host.works_until = host.keeper.permitted_until(clock).map_or(0, |until| host.time_of(until));
        if host.keeper.is_leaving() {
            host.keeper.stopped();
        }
        if host.works_until > now && !worked {
            self.grants += 1;
            self.last_grant = now;
            self.most = self.most.max(self.hosts.iter().filter(|host| host.works_until > now).count());
        }
        let host = &mut self.hosts[index];
        if host.waits_for.is_some() {
            return;
        }
        match host.keeper.next(clock, host.connection) {
            Step::Wait(moment) => {
                let wait = host.time_of(moment).saturating_sub(now).max(1);
                if wait < TERM / 4 {
                    self.after(wait, Event::Due(index));
                }
            }
            Step::Ask(asked) => {
                let (life, number) = (host.life, host.number);
                let broker = host.connection.map_or(0, |connection| connection.number);
                host.number += 1;
                let request = self.requests.len();
                host.waits_for = Some((number, request, clock));
                self.requests.push((asked, None));
                if !self.is_lost() {
                    let delay = self.delay();
                    self.after(delay, Event::Arrives { host: index, life, number, broker, request });
                }
                self.after(TERM / 8, Event::TimesOut { host: index, life, number });
            }
        }
    }

    fn fault(&mut self) {
        if self.now >= self.faults_end {
            return;
        }
        let host = self.random.usize(0..self.hosts.len());
        match self.random.u8(0..20) {
            0..6 => self.hosts[host].stopped_until = self.now + self.random.u64(0..TERM * 3),
            6..11 => self.kill(host),
            11 => {
                self.broker = Broker::default();
                self.life_of_broker += 1;
            }
            12..15 => {
                // Power lost: back to what was on the disk. Or only a restart.
                if let Some(older) = self.older.pop() {
                    self.broker = older;
                }
                self.life_of_broker += 1;
            }
            _ => self.older.push(self.broker.clone()),
        }
        let delay = self.random.u64(0..TERM * 2);
        self.after(delay, Event::Fault);
    }

    /// The agent is killed and started anew. The service goes on until the permission is over.
    fn kill(&mut self, index: usize) {
        let slots = self.slots;
        let host = &mut self.hosts[index];
        host.life += 1;
        host.keeper = keeper(index, host.life, slots);
        host.waits_for = None;
        host.connection = None;
    }
}

fn keeper(host: usize, life: u64, slots: usize) -> Keeper {
    let owner = Owner { host: format!("host-{host}").parse().unwrap(), instance: life.to_string() };
    Keeper::new(owner, Term::of(Duration::from_millis(TERM)), slots, host)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn never_do_more_hosts_work_than_there_are_slots_and_all_slots_are_used_again_after_the_last_fault(
        seed in any::<u64>(), hosts in 2..7_usize, slots in 1..4_usize,
    ) {
        let faults = TERM * 60;
        let mut world = World::new(seed, hosts, slots, 0.05, faults);
        world.run(faults);
        world.run(faults + TERM * 6);
        prop_assert!(world.grants > 3, "this proves nothing");
        prop_assert!(world.most <= slots, "{} of {slots} slots held", world.most);
        let working = world.hosts.iter().filter(|host| host.works_until > world.now).count();
        prop_assert_eq!(working, slots.min(hosts));
    }

    #[test]
    fn a_slot_is_granted_at_most_two_terms_after_its_holder_was_killed(seed in any::<u64>(), moment in 0..TERM) {
        let mut world = World::new(seed, 4, 1, 0.05, 0);
        world.run(TERM * 3 + moment);
        let holder = world.hosts.iter().position(|host| host.works_until > world.now).unwrap();
        // For good.
        world.hosts[holder].stopped_until = Time::MAX / 2;
        let killed = world.now;
        world.run(killed + TERM * 4);
        prop_assert!(world.last_grant > killed, "nobody took over");
        prop_assert!(world.last_grant - killed <= TERM * 2, "{} ms", world.last_grant - killed);
    }
}

#[test]
fn the_simulation_would_notice_too_many_holders() {
    // Clocks that differ by more than the margin of the algorithm.
    let violations = (0..200).filter(|&seed| {
        let mut world = World::new(seed, 6, 1, 0.5, TERM * 60);
        world.run(TERM * 60);
        world.most > 1
    });
    assert!(violations.count() > 0);
}
