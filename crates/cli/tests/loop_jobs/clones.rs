//! Two mounted volumes with one UUID: each has its own id, and a job works on the volume whose id it was given.

use super::service::{Service, daemon, of};
use super::{ext4, has_ended, in_pieces, start, wait};
use longrun_lab::oracle::filefrag;
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::{Value, json};

/// A job for a clone ran on its origin: both had the UUID as their id.
#[test]
fn loop_a_job_for_a_clone_works_on_the_clone() {
    for spec in [ext4(256), VolumeSpec::xfs(512), VolumeSpec::btrfs(512)] {
        let kind = spec.kind;
        let origin = in_pieces(&spec);
        let Some(clone) = origin.mounted_clone().unwrap() else {
            println!("skipped on {kind:?}: this kernel does not mount a clone beside its origin");
            continue;
        };
        let volumes = [&origin, &clone];
        let mounts = volumes.map(LoopVolume::mount_point);
        let excess = || [0, 1].map(|at| filefrag(&mounts[at]).unwrap().excess);
        let id = |status: &Value, at: usize| Some(of(status, &mounts[at])?["id"].as_str()?.to_owned());
        let mut service = Service::start(&mounts);
        let status = service.wait(|status| [0, 1].iter().all(|at| id(status, *at).is_some()));
        let ids = [0, 1].map(|at| id(&status, at).unwrap());
        let uuid = ids.iter().min_by_key(|id| id.len()).unwrap();
        assert!(ids.contains(&format!("{uuid}-2")), "{kind:?}: {ids:?}");
        for at in [1, 0] {
            let mut expected = excess();
            assert!(expected[at] > 0, "{kind:?}: {expected:?}");
            let job = start(&service, &json!({"volume": ids[at], "task": "optimize", "mode": "full"}));
            let done = wait(&service, job, has_ended);
            assert_eq!((&done["state"], done["mount"].as_str()), (&json!("finished"), mounts[at].to_str()), "{done:#}");
            expected[at] = 0;
            assert_eq!(excess(), expected, "{kind:?}: {done:#}\n{}", service.log());
        }
        // Each keeps its id over a restart, whether the other one is mounted or not.
        for gone in [None, Some(0), Some(1)] {
            service.signal("TERM");
            assert!(service.child.wait().unwrap().success(), "{}", service.log());
            if let Some(gone) = gone {
                volumes[gone].unmount().unwrap();
            }
            service.child = daemon(&[], service.directory.path()).spawn().unwrap();
            let there: Vec<usize> = [0, 1].into_iter().filter(|at| Some(*at) != gone).collect();
            let status = service.wait(|status| there.iter().all(|at| id(status, *at).is_some()));
            assert!(there.iter().all(|at| id(&status, *at).as_ref() == Some(&ids[*at])), "{kind:?}: {status:#}");
            if let Some(gone) = gone {
                volumes[gone].mount().unwrap();
            }
        }
    }
}
