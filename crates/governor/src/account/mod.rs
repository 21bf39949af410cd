//! The account of harm on one device: how long others may still wait for our work. Pure: time and observations are
//! arguments.
//!
//! The kernel's side counts how long the requests of others take, apart by the state of our work. From those that were made
//! while we rested, the account learns the usual time of each kind of request. We rest now and then for that purpose: who
//! compared with the moments in which we gave way would compare with requests that came in clusters, and so would never see
//! the harm. Each request of others earns a small share of its usual time; what a request that met our work took beyond its
//! usual time is charged. The difference may be negative, so that chance cancels out. Work goes on while the account covers
//! the harm that the next piece is expected to do:
//!
//! ```text
//! harm = correction × arrivals per second × Σ (time of a request of ours)² / 2
//! ```
//!
//! because of the requests that arrive during one of ours each waits half of it, on average, if the device serves one
//! request at a time. The correction is learned from what was charged: a device with parallel channels harms less. The first
//! request after our work is charged, too, though nothing of ours is under way any more: on a disk with an arm it waits for a
//! longer way. What that costs is learned, and the account must cover it once, however many pieces are moved before it.
//!
//! A second account counts requests: how many of them may be late, that is later than their usual 99th percentile by more
//! than what is promised.

mod balance;
mod requests;
mod usual;

pub use balance::{Balance, Promise};
pub(crate) use requests::KINDS;
pub use requests::{Bounds, Completed, Requests, SYNC, Times, Work};

use requests::SIZES;
use std::time::Duration;
use usual::{Arrivals, KNOWN, MEMORY, SLOW, Usual, WHILE};

/// The shortest and longest moment, in seconds, in which a burst is noticed.
const MOMENT: (f64, f64) = (0.01, 0.05);
/// The weight of the last piece in the average time of a piece.
const NEW_PIECE: f64 = 0.1;
/// A piece that takes longer than this, in seconds, does something else as well.
const LONGEST_PIECE: f64 = 0.2;
/// The account holds what it earns in so many seconds, or a debt of this.
const SAVED_MOST: f64 = 10.0;
const DEBT_MOST: f64 = 100.0;
/// The correction is never less: what was not seen to harm may yet.
const LEAST_CORRECTION: f64 = 0.002;
/// A moment is so many pieces long.
const PIECES: f64 = 4.0;
/// So many late requests may be made up for later, or saved up.
const LATE_MOST: f64 = 3.0;
/// If more requests are late without us than one in a hundred: so many of all requests may be late because of us.
const LATE_LEAST: f64 = 0.002;
/// A request of others is given so many usual times to be done before a piece of ours is begun, and at most so long.
const GRACE: f64 = 1.5;
const GRACE_MOST: f64 = 0.03;
/// After at least this time, in seconds, work goes on for the least share of it although the account does not cover that.
const LEAST_INTERVAL: f64 = 5.0;
/// We rest for so many usual times and so many requests, within these bounds in seconds, and for this share of the time.
const REST: f64 = 4.0;
const LEAST_REST: f64 = 0.01;
const LONGEST_REST: f64 = 1.0;
const REST_SHARE: f64 = 0.03;
/// Between two looks while the account does not cover a piece.
const LOOK: (f64, f64) = (0.002, 0.05);

/// The account of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    promise: Promise,
    /// The least time, in seconds, without a request after which nobody is there.
    silence: f64,
    usual: [Usual; KINDS],
    arrivals: Arrivals,
    /// Seconds that others may wait, and requests that may be late.
    credit: f64,
    late: f64,
    /// The average time of a piece, in seconds; 0 before the first.
    piece: f64,
    /// The pieces since the last observation, and how long the requests of one take: the squares of that, added up; 0 before the
    /// first.
    pieces: u64,
    squares: f64,
    /// The sums from which the correction follows: charged, and expected.
    harm: (f64, f64),
    /// The sums from which the cost of being the first after our work follows: charged, and how many.
    aftermath: (f64, f64),
    observed: Option<Duration>,
    /// When others last made a request, and when they last wrote and waited for it.
    asked: Option<Duration>,
    wrote: Option<Duration>,
    /// When the last piece was begun.
    began: Option<Duration>,
    /// Since when the next one is refused.
    refused: Option<Duration>,
    /// When the account last did not cover a piece.
    short: Option<Duration>,
    /// Until when work goes on whatever the account says.
    forced: Option<Duration>,
    work: Work,
    /// Until when we rest in order to learn, when we shall do so next, and how often we did.
    rest: Option<Duration>,
    next_rest: Duration,
    rests: u32,
    balance: Balance,
}

impl Account {
    /// Nothing seen yet. Without a request for `silence` nobody is there.
    #[must_use]
    pub fn new(promise: Promise, silence: Duration) -> Self {
        Self {
            promise,
            silence: silence.as_secs_f64(),
            usual: [Usual::default(); KINDS],
            arrivals: Arrivals::default(),
            credit: 0.0,
            late: 1.0,
            piece: 0.0,
            pieces: 0,
            squares: 0.0,
            harm: (0.0, 0.0),
            aftermath: (0.0, 0.0),
            observed: None,
            asked: None,
            wrote: None,
            began: None,
            refused: None,
            short: None,
            forced: None,
            work: Work::Rests,
            rest: None,
            next_rest: Duration::ZERO,
            rests: 0,
            balance: Balance::default(),
        }
    }

    /// With another promise from now on.
    pub fn set_promise(&mut self, promise: Promise) {
        self.promise = promise;
    }

    /// Takes into account what was seen by `now`.
    pub fn observe(&mut self, now: Duration, seen: &Requests) {
        let time = self.observed.map_or(0.0, |before| now.saturating_sub(before).as_secs_f64());
        self.observed = Some(now);
        let writes = seen.completed.iter().skip(SIZES).take(SIZES).map(Completed::requests);
        if seen.foreign_writes > 0.0 && writes.sum::<u64>() > 0 {
            self.wrote = Some(now);
        }
        // The file system's own writes are for others where others write.
        let others_write = self.wrote.is_some_and(|wrote| now.saturating_sub(wrote).as_secs_f64() < WHILE);
        let (mut done, mut met, mut earned, mut charged, mut late) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut following, mut firsts) = ((0.0, 0.0), 0.0);
        for (kind, (usual, completed)) in self.usual.iter_mut().zip(&seen.completed).enumerate() {
            let (beside, after) = (completed.met, completed.after);
            let of_others = match kind / SIZES {
                0 => 1.0,
                1 => seen.foreign_writes,
                _ if kind >= SYNC => 1.0,
                _ if others_write => seen.foreign_writes,
                _ => 0.0,
            };
            usual.learn(completed.alone);
            let count = completed.requests() as f64;
            let is_request = if kind < SYNC { 1.0 } else { 0.0 };
            done += count * of_others * is_request;
            // Of a kind that is not known yet, what met us may have taken its usual time.
            let Some(mean) = usual.mean().map(|mean| mean * 1e-9) else { continue };
            let beside_us = beside.requests as f64;
            met += beside_us * of_others * is_request;
            earned += mean * count * of_others;
            charged += (beside.total as f64 * 1e-9 - mean * beside_us) * of_others;
            let first = after.requests as f64;
            following.0 += (after.total as f64 * 1e-9 - mean * first) * of_others;
            following.1 += first * of_others;
            firsts += first * of_others * is_request;
            let permitted = (SLOW - usual.late()).max(LATE_LEAST);
            let is_late = (beside.late + after.late) as f64 - (beside_us + first) * usual.late();
            late += (is_late - count * permitted) * of_others;
        }
        let asked = (seen.asked as f64).max(done);
        self.arrivals.add(time, asked, self.moment());
        if asked > 0.0 {
            self.asked = Some(now.saturating_sub(seen.since_last));
        }
        self.balance.requests += done.round() as u64;
        self.balance.met += (met + firsts).round() as u64;
        self.balance.usual_seconds += earned;
        self.balance.charged_seconds += charged + following.0;
        let kept = 0.5f64.powf(met / MEMORY);
        self.harm = (self.harm.0 * kept + charged, self.harm.1 * kept);
        let kept = 0.5f64.powf(following.1 / MEMORY);
        self.aftermath = (self.aftermath.0 * kept + following.0, self.aftermath.1 * kept + following.1);
        let income = self.income();
        let credit = self.credit + earned * self.promise.mean - charged - following.0;
        self.credit = credit.clamp(-income * DEBT_MOST, income * SAVED_MOST);
        self.measure(seen);
        self.late = (self.late - late).clamp(-LATE_MOST, LATE_MOST);
    }

    /// How long the requests of a piece take.
    fn measure(&mut self, seen: &Requests) {
        let pieces = std::mem::take(&mut self.pieces);
        if pieces == 0 {
            return;
        }
        // What kernel threads write for us is not known as ours: then as if the piece were one request.
        let squares = if seen.own > 0 { seen.own_squares / pieces as f64 } else { self.piece * self.piece };
        self.squares += (squares - self.squares) * if self.squares == 0.0 { 1.0 } else { NEW_PIECE };
    }

    /// What the account earns, in seconds a second.
    fn income(&self) -> f64 {
        self.usual_time() * self.arrivals.rate * self.promise.mean
    }

    /// When to ask again before the next piece, if the account refuses it `now`. The last piece is over.
    pub fn refuses(&mut self, now: Duration) -> Option<Duration> {
        if let Some(began) = self.began.take() {
            let took = now.saturating_sub(began).as_secs_f64().min(LONGEST_PIECE);
            self.piece += (took - self.piece) * if self.piece == 0.0 { 1.0 } else { NEW_PIECE };
        }
        let refusal = self.rest(now).or_else(|| self.refusal(now));
        if refusal.is_none() {
            self.refused = None;
        }
        self.work = refusal.map_or(Work::Rests, |(work, _)| work);
        refusal.map(|(_, time)| Duration::from_secs_f64(time))
    }

    /// The next piece is begun `now`.
    pub fn begin(&mut self, now: Duration) {
        self.work = Work::UnderWay;
        self.pieces += 1;
        self.began = Some(now);
        self.harm.1 += self.expected_in_line(now);
    }

    /// The state of our work.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// How much longer we rest in order to learn, if we do.
    fn rest(&mut self, now: Duration) -> Option<(Work, f64)> {
        if let Some(until) = self.rest {
            self.rest = Some(until).filter(|until| now < *until);
            // A request that is under way belongs to the rest.
            let left = until.saturating_sub(now).as_secs_f64().max(self.under_way(now));
            return (left > 0.0).then_some((Work::Rests, left.max(LOOK.0 / 10.0)));
        }
        if now < self.next_rest || !self.is_shared(now) {
            return None;
        }
        // The first request in it does not count: it comes after our work.
        let length = (self.usual_time() * REST).max(REST / self.arrivals.rate).clamp(LEAST_REST, LONGEST_REST);
        self.rests = self.rests.wrapping_add(1);
        // Not in step with anybody: the fractions of the multiples of the golden ratio fill the unit evenly.
        let apart = length / REST_SHARE * (0.5 + (f64::from(self.rests) * 0.618_033_988_75).fract());
        self.rest = Some(now + Duration::from_secs_f64(length));
        self.next_rest = now + Duration::from_secs_f64(length + apart);
        Some((Work::Rests, length))
    }

    /// How long a request of others may still be under way, in seconds.
    fn under_way(&self, now: Duration) -> f64 {
        (self.usual_time() * GRACE).min(GRACE_MOST) - self.silent_for(now)
    }

    /// How long to wait before the next question, and what that is called; `None` when the piece may be begun.
    fn refusal(&mut self, now: Duration) -> Option<(Work, f64)> {
        if !self.is_shared(now) {
            return None;
        }
        let refused_for = now.saturating_sub(*self.refused.get_or_insert(now)).as_secs_f64();
        if self.forced.is_some_and(|until| now < until) {
            return None;
        }
        let least = self.promise.least.share();
        // The time that is due must be long enough for a piece.
        if least > 0.0 && refused_for >= LEAST_INTERVAL.max(self.piece / least) {
            self.forced = Some(now + Duration::from_secs_f64(refused_for * least));
            return None;
        }
        let moment = self.moment();
        if self.arrivals.is_burst(moment) {
            return Some((Work::GivesWay, moment));
        }
        // A request that is under way is done soon: a piece of ours would only be in its way.
        let left = self.under_way(now);
        if left > 0.0 && refused_for < GRACE_MOST * PIECES {
            return Some((Work::GivesWay, left.max(LOOK.0 / 10.0)));
        }
        if self.usual_time() == 0.0 {
            // Who does not know how long requests take would not see that they take longer.
            return Some((Work::Rests, LOOK.1));
        }
        let uncovered = self.expected_in_line(now) * self.correction() + self.first_after() - self.credit;
        if uncovered <= 0.0 && self.late >= 0.0 {
            return None;
        }
        self.short = Some(now);
        let income = self.income();
        let time = if uncovered > 0.0 && income > 0.0 { uncovered / income } else { LOOK.1 };
        // What was made while the last of us was still done, or in the same cluster, does not show the usual time.
        let is_settled = refused_for > (self.usual_time() * REST).max(self.piece);
        let work = if is_settled { Work::Rests } else { Work::GivesWay };
        Some((work, time.clamp(LOOK.0, LOOK.1)))
    }

    /// How long others have made no request, in seconds.
    fn silent_for(&self, now: Duration) -> f64 {
        self.asked.map_or(f64::INFINITY, |asked| now.saturating_sub(asked).as_secs_f64())
    }

    /// Whether others still use the device.
    fn is_shared(&self, now: Duration) -> bool {
        self.silent_for(now) < self.arrivals.silence(self.silence)
    }

    /// The harm that the next piece is expected to do on a device that serves one request at a time, in seconds.
    fn expected_in_line(&self, now: Duration) -> f64 {
        if self.is_shared(now) { self.arrivals.rate * self.squares / 2.0 } else { 0.0 }
    }

    /// The share of that harm which is really done.
    fn correction(&self) -> f64 {
        // As if that many meetings had gone as expected.
        let prior = self.squares.sqrt() / 2.0 * KNOWN;
        if prior == 0.0 {
            1.0
        } else {
            ((self.harm.0.max(0.0) + prior) / (self.harm.1 + prior)).clamp(LEAST_CORRECTION, 2.0)
        }
    }

    /// What it costs to be the first after our work, in seconds.
    fn first_after(&self) -> f64 {
        let (charged, requests) = self.aftermath;
        (charged / requests.max(KNOWN)).max(0.0)
    }

    /// The usual time of a request to the device, over all kinds, in seconds; 0 while nothing is known.
    fn usual_time(&self) -> f64 {
        let (requests, total) =
            self.usual.iter().take(SYNC).fold((0.0, 0.0), |(n, t), usual| (n + usual.requests, t + usual.total));
        if requests < KNOWN { 0.0 } else { total / requests * 1e-9 }
    }

    fn moment(&self) -> f64 {
        (self.piece * PIECES).clamp(MOMENT.0, MOMENT.1)
    }

    /// Whether the account did not cover a piece a moment ago, or others have not met enough pieces to know: smaller pieces harm
    /// less.
    #[must_use]
    pub fn is_short(&self) -> bool {
        if self.balance.requests > 0 && self.balance.met < KNOWN as u64 {
            return true;
        }
        let since = |short: Duration| self.observed.unwrap_or_default().saturating_sub(short).as_secs_f64();
        self.short.is_some_and(|short| since(short) < WHILE)
    }

    /// What the kernel's side is to compare the times of each kind with.
    #[must_use]
    pub fn bounds(&self) -> [Bounds; KINDS] {
        self.usual.map(|usual| usual.bounds(self.promise.late))
    }

    /// What came of it so far.
    #[must_use]
    pub fn balance(&self) -> Balance {
        Balance { credit_seconds: self.credit, ..self.balance }
    }

    /// The average time of a piece of ours.
    #[must_use]
    pub fn piece(&self) -> Duration {
        Duration::from_secs_f64(self.piece)
    }
}

#[cfg(test)]
mod tests;
