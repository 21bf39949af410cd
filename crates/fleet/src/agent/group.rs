//! One storage group of this host: what the service wants there, its limits, and its lease.

use crate::broker::{Broker, BrokerError, Put};
use crate::lease::{
    Allowance, Answer, Governed, GroupLimits, GroupsRecord, Keeper, Moment, Owner, Request, Spent, Step, Term, today,
};
use crate::names::{LEASES, Name, budget_key, slot_key};
use longrun_api::fleet::StorageGroup;

/// So often is the sum of bytes tried to be written, while other hosts write it too.
const TRIES: u32 = 3;
/// A round of one group ends after so many requests, whatever the broker answers.
const MOST_REQUESTS: usize = 256;

/// A storage group of this host.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) keeper: Keeper,
    /// The service has it still.
    pub(super) present: bool,
    /// The service wants to work.
    pub(super) wants: bool,
    rotational: bool,
    latency_us: Option<f64>,
    allowance: Allowance,
    governed: Governed,
    permitted: bool,
}

impl Group {
    pub(super) fn new(me: Owner, term: Term) -> Self {
        Self {
            keeper: Keeper::new(me, term, 0, fastrand::usize(..1024)),
            present: true,
            wants: false,
            rotational: false,
            latency_us: None,
            allowance: Allowance::default(),
            governed: Governed::default(),
            permitted: false,
        }
    }

    /// What the service says of it.
    pub(super) fn take_in(&mut self, found: &StorageGroup, governs: bool) {
        self.present = true;
        self.wants = governs && found.wants;
        self.rotational = found.rotational;
        self.latency_us = found.latency_us;
        self.allowance.moved(found.moved_bytes);
    }

    /// Adds to the sum of the group what was moved here, and learns the sum, where there is a limit.
    pub(super) async fn account(&mut self, name: &Name, broker: &Broker, limits: &GroupsRecord) {
        let Some(limit) = limits.get(name.as_str()).and_then(|limits| limits.bytes_per_day) else { return };
        let seeks = self.wants && !self.keeper.is_engaged() && !self.allowance.is_used_up(limit, today());
        if self.allowance.unaccounted() == 0 && !seeks {
            return;
        }
        for _ in 0..TRIES {
            match self.add(name, broker).await {
                Ok(Put::Written(_)) => return,
                Ok(Put::Outdated) => {}
                // The bytes are counted at the next round.
                Err(error) => return tracing::debug!("{name}: the bytes moved today are not known: {error}"),
            }
        }
    }

    async fn add(&mut self, name: &Name, broker: &Broker) -> Result<Put, BrokerError> {
        let (key, bytes) = (budget_key(name), self.allowance.unaccounted());
        let found = broker.get(LEASES, &key).await?;
        let before: Spent = serde_json::from_slice(&found.value).unwrap_or_default();
        let sum = before.plus(today(), bytes);
        let put = if bytes == 0 {
            Put::Written(found.revision)
        } else {
            broker.put(LEASES, &key, found.revision, serde_json::to_vec(&sum).unwrap_or_default()).await?
        };
        if matches!(put, Put::Written(_)) {
            self.allowance.accounted(sum, bytes);
        }
        Ok(put)
    }

    /// Whether to seek or to keep a lease, or to give it back.
    pub(super) fn decide(&mut self, name: &Name, term: Term, limits: &GroupsRecord) {
        let none = GroupLimits::default();
        let limits = limits.get(name.as_str()).unwrap_or(&none);
        let now = Moment::now();
        self.keeper.set_slots(limits.slots(self.rotational).into());
        let holds = self.keeper.permitted_until(now).is_some();
        let may = self.governed.look(now, term, holds, self.latency_us, limits);
        let used_up = limits.bytes_per_day.is_some_and(|limit| self.allowance.is_used_up(limit, today()));
        if self.present && self.wants && may && !used_up {
            self.keeper.seek(now);
        } else {
            self.keeper.leave();
        }
    }

    /// Asks the broker what the keeper wants to know, until it has nothing to ask; when it will have.
    pub(super) async fn keep(&mut self, name: &Name, broker: &Broker) -> Moment {
        for _ in 0..MOST_REQUESTS {
            let connection = broker.connection();
            let sent = Moment::now();
            match self.keeper.next(sent, connection) {
                Step::Wait(until) => {
                    self.log(name);
                    return until;
                }
                Step::Ask(request) => {
                    let answer = ask(&request, name, broker).await;
                    // What another connection leads to may be a broker without the latest data: its answer is none.
                    let answer = if broker.connection() == connection { answer } else { Answer::Silence };
                    self.keeper.answer(&request, answer, sent, Moment::now());
                }
            }
        }
        tracing::warn!("{name}: the broker's answers lead nowhere");
        Moment::now()
    }

    fn log(&mut self, name: &Name) {
        let permitted = self.keeper.permitted_until(Moment::now()).is_some();
        if permitted != self.permitted {
            self.permitted = permitted;
            tracing::info!("{name}: {}", if permitted { "a lease was taken" } else { "the lease is over" });
        }
    }
}

async fn ask(request: &Request, group: &Name, broker: &Broker) -> Answer {
    let answer = match request {
        Request::Read { slot } => broker.get(LEASES, &slot_key(group, *slot)).await.map(Answer::Found),
        Request::Write { slot, expected, record } => {
            let put = broker.put(LEASES, &slot_key(group, *slot), *expected, record.to_value()).await;
            put.map(|put| match put {
                Put::Written(revision) => Answer::Written(revision),
                Put::Outdated => Answer::Refused,
            })
        }
    };
    answer.unwrap_or_else(|error| {
        tracing::debug!("{group}: {error}");
        Answer::Silence
    })
}
