//! The service under mixed load, with volumes that come and go; `longrun-lab soak --minutes 30` does the same for longer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly")]

use longrun_lab::{SoakSettings, soak};
use std::time::Duration;

#[test]
fn campaign_a_service_under_mixed_load_does_not_grow() {
    let report = soak(SoakSettings { time: Duration::from_secs(40), sample: Duration::from_secs(1) }).unwrap();
    assert!(report.grown_files > 0 && report.remounts > 0, "{report:?}");
}
