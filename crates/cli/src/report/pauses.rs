//! How a run gave way to other I/O, and how that fared: text.

use crate::text::{count, counted, duration, size};
use longrun_governor::{Balance, Loads, Observed, Pace};
use std::time::Duration;

/// How long the work paused for other I/O; empty if it never did.
pub fn pauses(loads: &Loads) -> String {
    match loads {
        Loads { observed: Observed::Nothing, pace, .. } if *pace != Pace::Fast => {
            "Other I/O on the device could not be observed; the run did not pause for it.\n".to_owned()
        }
        Loads { pauses: 0, account, .. } => account.as_ref().map(beside).unwrap_or_default(),
        loads => {
            format!(
                "Paused {} for {} in all, to give way to other I/O on {} ({} during the run).\n",
                counted(loads.pauses, "time", "times"),
                duration(Duration::from_secs_f64(loads.paused_seconds)),
                loads.devices.join(" and "),
                size(loads.foreign_bytes),
            ) + &loads.account.as_ref().map(beside).unwrap_or_default()
        }
    }
}

/// How others fared beside the work; empty if there were none.
fn beside(account: &Balance) -> String {
    account.slowdown().map_or_else(String::new, |slowdown| {
        format!(
            "Requests of others: {}, {} of them while the work was under way; on average they took {:.1} % longer because of it.\n",
            count(account.requests),
            count(account.met),
            slowdown * 100.0,
        )
    })
}
