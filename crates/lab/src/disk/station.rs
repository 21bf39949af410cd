//! The requests that wait for the moment at which the model completes them.
//!
//! Owns the clock, the queue of answers, and the counters. Never decides how long a request takes.

use super::model::{Access, Completion, Device, Nanos, Request};
use super::statistics::{Counts, Statistics};
use fuser::{Errno, ReplyData, ReplyWrite};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many buffers are kept for the next reads.
const BUFFERS: usize = 64;

/// How a request will be answered.
#[derive(Debug)]
pub(super) enum Answer {
    Data(ReplyData, Vec<u8>),
    Written(ReplyWrite, u32),
    FailedRead(ReplyData),
    FailedWrite(ReplyWrite),
}

impl Answer {
    /// Answers; gives back a buffer that can be used again.
    fn send(self) -> Option<Vec<u8>> {
        match self {
            Self::Data(reply, buffer) => {
                reply.data(&buffer);
                return Some(buffer);
            }
            Self::Written(reply, length) => reply.written(length),
            Self::FailedRead(reply) => reply.error(Errno::EIO),
            Self::FailedWrite(reply) => reply.error(Errno::EIO),
        }
        None
    }
}

/// A request that has come, and whose answer follows.
#[derive(Debug)]
pub(super) struct Ticket(Option<u64>);

/// Where requests wait.
#[derive(Debug)]
pub(super) struct Station {
    line: Mutex<Line>,
    changed: Condvar,
    start: Instant,
}

#[derive(Debug)]
struct Line {
    device: Device,
    modelled: bool,
    next: u64,
    access: HashMap<u64, Access>,
    /// By request; those that are complete already wait for their bytes in `complete`.
    answers: HashMap<u64, Answer>,
    complete: HashMap<u64, Completion>,
    buffers: Vec<Vec<u8>>,
    statistics: Statistics,
    /// Requests that the model has and has not done, and since when there are any.
    under_way: u64,
    /// Of these, reads.
    reading: u64,
    busy_since: Nanos,
    /// Done, and not answered yet.
    done: Vec<Completion>,
    /// Until when the one who answers sleeps; for good when there was nothing to wait for.
    asleep_until: Option<Nanos>,
}

impl Station {
    pub(super) fn new(device: Device) -> Self {
        let line = Line {
            device,
            modelled: true,
            next: 0,
            access: HashMap::new(),
            answers: HashMap::new(),
            complete: HashMap::new(),
            buffers: Vec::new(),
            statistics: Statistics::default(),
            under_way: 0,
            reading: 0,
            busy_since: Nanos(0),
            done: Vec::new(),
            asleep_until: None,
        };
        Self { line: Mutex::new(line), changed: Condvar::new(), start: Instant::now() }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A request has come: the model has it from now on, while its bytes are moved.
    pub(super) fn arrive(&self, request: Request) -> Ticket {
        let mut line = self.line();
        let counts = line.statistics.of(request.access);
        counts.requests += 1;
        counts.bytes += request.length.0;
        if !line.modelled {
            return Ticket(None);
        }
        let id = line.next;
        line.next += 1;
        line.access.insert(id, request.access);
        // Under the lock, so that times never go back.
        let now = self.now();
        line.advance(now);
        if line.under_way == 0 {
            line.busy_since = now;
        }
        line.under_way += 1;
        line.reading += u64::from(request.access == Access::Read);
        line.statistics.most_reads_at_once = line.statistics.most_reads_at_once.max(line.reading);
        line.device.submit(now, Request { id, ..request });
        Ticket(Some(id))
    }

    /// Its bytes have been moved: it can be answered when it is complete.
    pub(super) fn expect(&self, ticket: Ticket, answer: Answer) {
        let Some(id) = ticket.0 else {
            let buffer = answer.send();
            return self.keep(buffer);
        };
        let mut line = self.line();
        let Some(completion) = line.complete.remove(&id) else {
            line.answers.insert(id, answer);
            let due = if line.done.is_empty() { line.device.due() } else { Some(Nanos(0)) };
            if due.is_some_and(|due| line.asleep_until.is_none_or(|until| due < until)) {
                drop(line);
                self.changed.notify_one();
            }
            return;
        };
        line.account(&completion, self.now());
        drop(line);
        let buffer = answer.send();
        self.keep(buffer);
    }

    /// Memory for a read.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.line().buffers.pop().unwrap_or_default()
    }

    fn keep(&self, buffer: Option<Vec<u8>>) {
        let mut line = self.line();
        if line.buffers.len() < BUFFERS {
            line.buffers.extend(buffer);
        }
    }

    /// Whether requests take what the model says. Those that wait do anyway.
    pub(super) fn set_modelled(&self, modelled: bool) {
        self.line().modelled = modelled;
    }

    pub(super) fn count_flush(&self) {
        self.line().statistics.flushes += 1;
    }

    pub(super) fn count_discard(&self) {
        self.line().statistics.discards += 1;
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.line().statistics
    }

    /// Answers everything when it is complete, for ever.
    pub(super) fn answer_in_time(&self) {
        let mut line = self.line();
        loop {
            let now = self.now();
            let due = line.take_due(now);
            if due.is_empty() {
                line = self.wait(line);
                continue;
            }
            drop(line);
            let buffers: Vec<Vec<u8>> = due.into_iter().filter_map(Answer::send).collect();
            line = self.line();
            let room = BUFFERS.saturating_sub(line.buffers.len());
            line.buffers.extend(buffers.into_iter().take(room));
        }
    }

    fn wait<'a>(&self, mut line: MutexGuard<'a, Line>) -> MutexGuard<'a, Line> {
        line.asleep_until = if line.done.is_empty() { line.device.due() } else { Some(Nanos(0)) };
        match line.asleep_until {
            None => self.changed.wait(line).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                let time = Duration::from_nanos(due.since(self.now()).0);
                self.changed.wait_timeout(line, time).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

impl Line {
    /// Advances the model to this moment.
    fn advance(&mut self, now: Nanos) {
        for completion in self.device.take_done(now) {
            self.under_way = self.under_way.saturating_sub(1);
            let was_read = self.access.get(&completion.id) == Some(&Access::Read);
            self.reading = self.reading.saturating_sub(u64::from(was_read));
            if self.under_way == 0 {
                self.statistics.busy_nanos += completion.at.since(self.busy_since).0;
            }
            self.done.push(completion);
        }
    }

    /// The answers to what is complete by now.
    fn take_due(&mut self, now: Nanos) -> Vec<Answer> {
        let mut due = Vec::new();
        self.advance(now);
        for completion in std::mem::take(&mut self.done) {
            match self.answers.remove(&completion.id) {
                Some(answer) => {
                    self.account(&completion, now);
                    due.push(answer);
                }
                None => _ = self.complete.insert(completion.id, completion),
            }
        }
        due
    }

    fn account(&mut self, completion: &Completion, now: Nanos) {
        let Some(access) = self.access.remove(&completion.id) else { return };
        let counts: &mut Counts = self.statistics.of(access);
        counts.modelled += 1;
        counts.modelled_nanos += completion.at.since(completion.arrived).0;
        let late = now.since(completion.at).0;
        counts.late_nanos += late;
        counts.latest_nanos = counts.latest_nanos.max(late);
    }
}
