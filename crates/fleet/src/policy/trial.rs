//! How canaries try a policy, as administrators say it: on the command line and in a request. Pure.

use super::apply::Plan;
use clap::Args;
use serde::{Deserialize, Deserializer, de};
use std::time::Duration;

const CANARY: &str = "10%";
const WATCH: &str = "1h";
const PATIENCE: &str = "5min";

/// How canaries try a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trial {
    /// Let this share of the hosts try it first
    #[arg(long, value_name = "PERCENT", default_value = CANARY, value_parser = share)]
    #[serde(deserialize_with = "text_of_share")]
    canary: u8,
    /// For so long
    #[arg(long, value_name = "DURATION", default_value = WATCH, value_parser = duration)]
    #[serde(deserialize_with = "text_of_duration")]
    watch: Duration,
    /// Take it back when a canary does not have it, or is silent, for so long (hosts tell their state once a minute)
    #[arg(long, value_name = "DURATION", default_value = PATIENCE, value_parser = duration)]
    #[serde(deserialize_with = "text_of_duration")]
    patience: Duration,
}

impl Default for Trial {
    fn default() -> Self {
        let time = |text| duration(text).unwrap_or_default();
        Self { canary: share(CANARY).unwrap_or_default(), watch: time(WATCH), patience: time(PATIENCE) }
    }
}

impl Trial {
    /// How often the canaries are looked at follows.
    #[must_use]
    pub fn plan(self) -> Plan {
        Plan {
            share: self.canary,
            watch: self.watch,
            patience: self.patience,
            pause: (self.patience.min(self.watch) / 10).clamp(Duration::from_millis(200), Duration::from_secs(10)),
        }
    }
}

fn text_of_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    share(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn text_of_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn share(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    number.filter(|share| (0..=100).contains(share)).ok_or_else(|| "use a share such as 10%".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    longrun_config::units::parse_duration(text).ok_or_else(|| format!("use {}", longrun_config::units::DURATION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        trial: Trial,
    }

    #[test]
    fn a_request_says_it_as_the_command_line_does() {
        let by_default = Line::parse_from(["x"]).trial;
        assert_eq!(by_default, Trial::default());
        assert_eq!(serde_json::from_str::<Trial>("{}").unwrap(), by_default);
        assert_eq!(by_default.plan().watch, Duration::from_secs(3600));
        let line = Line::parse_from(["x", "--canary", "25%", "--watch", "2h", "--patience", "10min"]).trial;
        let asked = r#"{"canary":"25%","watch":"2h","patience":"10min"}"#;
        assert_eq!(serde_json::from_str::<Trial>(asked).unwrap(), line);
        for wrong in [r#"{"canary":"101%"}"#, r#"{"canary":10}"#, r#"{"watch":"soon"}"#, r#"{"share":"10%"}"#] {
            assert!(serde_json::from_str::<Trial>(wrong).is_err(), "{wrong}");
        }
    }
}
