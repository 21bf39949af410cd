//! The agent's part of state: asks the service, and writes the host's record at the broker.
//!
//! Owns when it is written: once a minute, and at once when an alert or the policy changes; and how long a service may be silent
//! before that is told. Tells no more than [`HostState`] has.

use crate::broker::Broker;
use crate::daemon::Daemon;
use crate::host_config::HostConfig;
use crate::lease::Moment;
use crate::names::STATE;
use crate::state::{HostState, Report, Totals};
use longrun_api::fleet::Fleet;
use longrun_api::model::Status;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Between records without news.
const INTERVAL: Duration = Duration::from_secs(60);
/// Between readings of the sums.
const SUMS: Duration = Duration::from_secs(600);
const DAY: u64 = 86_400;
/// A service that is silent for less is being restarted, or its machine is held up: an alert of that would take a policy back. What was
/// added up by silences is forgotten at half the speed: a service that a policy has crash again and again is told.
const SILENCE: Duration = Duration::from_secs(30);

/// What was told.
#[derive(Debug, Default)]
pub struct Teller {
    told: Option<(Moment, News)>,
    sums: Option<(Moment, [Totals; 3])>,
    silence: Silence,
}

/// For how long the service did not answer of late.
#[derive(Debug, Default)]
struct Silence {
    looked: Option<Moment>,
    sum: Duration,
}

impl Silence {
    /// Whether the service is silent, and not for long. Nothing is told then: what was told last is still the best known.
    fn is_short(&mut self, now: Moment, answers: bool) -> bool {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.since(looked));
        self.sum = if answers { self.sum.saturating_sub(passed / 2) } else { SILENCE.min(self.sum + passed) };
        !answers && self.sum < SILENCE
    }
}

/// What is told at once.
type News = (BTreeSet<String>, Option<u64>, Option<String>, String);

impl Teller {
    /// Tells the state of this host, where there is news or the last record is old.
    pub async fn tell(
        &mut self,
        broker: &Broker,
        daemon: &Daemon,
        config: &HostConfig,
        fleet: Option<&Fleet>,
        policy_trouble: Option<&String>,
    ) {
        if broker.connection().is_none() {
            return;
        }
        let now = Moment::now();
        let status = daemon.get::<Status>("/v1/status").await.ok();
        if self.silence.is_short(now, status.is_some() && fleet.is_some()) {
            return;
        }
        let mut state = HostState::of(status.as_ref(), fleet);
        state.labels.clone_from(&config.labels);
        state.policy_trouble = policy_trouble.cloned();
        let news = (state.alerts.clone(), state.policy, state.policy_trouble.clone(), state.mode.clone());
        if self.told.as_ref().is_some_and(|(told, before)| now.since(*told) < INTERVAL && *before == news) {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        if status.is_some() {
            self.sum(daemon, now, time).await;
        }
        state.at = time;
        [state.day, state.month, state.all] = self.sums.map(|(_, sums)| sums).unwrap_or_default();
        match broker.put_anyhow(STATE, config.host.as_str(), state.to_value()).await {
            Ok(_) => self.told = Some((now, news)),
            Err(error) => tracing::debug!("the state of this host was not told: {error}"),
        }
    }

    async fn sum(&mut self, daemon: &Daemon, now: Moment, time: u64) {
        if self.sums.is_some_and(|(read, _)| now.since(read) < SUMS) {
            return;
        }
        let mut sums = [Totals::default(); 3];
        for (sum, days) in sums.iter_mut().zip([1, 30, time / DAY]) {
            let from = rfc3339(time.saturating_sub(days * DAY));
            let Ok(report) = daemon.get::<Report>(&format!("/v1/report?from={from}")).await else { return };
            *sum = Totals::from(&report);
        }
        self.sums = Some((now, sums));
    }
}

/// A time (seconds since 1970) as the service reads it.
fn rfc3339(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the looks, one each five seconds, find a silence that is told: `.` answers, `x` does not.
    fn told(looks: &str) -> Vec<usize> {
        let (mut silence, mut now, mut told) = (Silence::default(), Moment::now(), Vec::new());
        for (number, look) in looks.chars().enumerate() {
            now = now.plus(Duration::from_secs(5));
            let answers = look == '.';
            if !silence.is_short(now, answers) && !answers {
                told.push(number);
            }
        }
        told
    }

    #[test]
    fn a_service_that_is_restarted_is_no_news_and_one_that_stays_away_is() {
        assert!(told("..xxxxx...............xxxxx").is_empty());
        assert_eq!(told("..xxxxxxx...x"), [7, 8]);
        assert_eq!(told("xxxxxxxx"), [6, 7], "it was never there");
    }

    #[test]
    fn a_service_that_crashes_again_and_again_is_told() {
        assert_eq!(told(".x.x.x.x.x.x.x.x.x.x.x.x"), [21, 23]);
        assert_eq!(told(".xx.xx.xx.xx.xx"), [11, 13, 14]);
        assert!(told(".x...x...x...x...x...x").is_empty(), "one look in four is forgotten in between");
    }
}
