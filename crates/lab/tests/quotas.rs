//! Story: runways are charged to the owner of the file. Who had a limit reached it too early, and root, who grants them, was held
//! by none.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use longrun_lab::{FileSystemKind, Medium, quotas, quotas_known};

#[test]
fn loop_who_has_a_limit_gets_all_of_it_beside_prevention_and_no_more() {
    for kind in FileSystemKind::ALL {
        if quotas_known(kind).unwrap().is_empty() {
            println!("skipped on {}: this kernel has no quotas for it", kind.name());
            continue;
        }
        for medium in Medium::ALL {
            let reports = quotas(kind, medium).unwrap();
            println!("{reports:?}");
            assert!(reports.iter().all(|report| report.left > 0 || kind == FileSystemKind::Ext4), "{reports:?}");
        }
    }
}
