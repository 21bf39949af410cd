//! Computing behind the other threads of the machine.
//!
//! Only what holds no lock of the kernel may run so: a thread that waits for a processor with a lock in its hand lets all wait
//! who want that lock. So a pass plans like this, and moves like everybody else.
//!
//! With both processors busy, a pass that takes 24 s took 44 s with its plans at nice 19 (1.5 % of a busy processor), and more than 200 s with
//! them in SCHED_IDLE (0.3 %), for less than a second of processor time.

/// The last of the nice values.
const LAST: i32 = 19;

/// Calls `work` in a thread behind all ordinary ones, and returns when it is done. A thread of its own, because to be an ordinary
/// one again would need a privilege.
pub(crate) fn behind_others(work: &mut (dyn FnMut() + Send)) {
    let lowered = || {
        if let Err(error) = longrun_sys::set_nice(LAST) {
            tracing::debug!(%error, "lowering the priority of a computation failed; it is unchanged");
        }
        work();
    };
    let thread = std::thread::Builder::new().name("computing".to_owned());
    match std::thread::scope(|scope| thread.spawn_scoped(scope, lowered).map(std::thread::ScopedJoinHandle::join)) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Field 19 of proc_pid_stat(5); the second one is the name, in parentheses, and may hold spaces.
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19 - 3).unwrap().to_owned()
    }

    #[test]
    fn a_computation_runs_once_behind_others_and_its_caller_does_not() {
        let (before, mut seen) = (nice(), Vec::new());
        behind_others(&mut || seen.push(nice()));
        assert_eq!((seen, nice()), (vec![LAST.to_string()], before));
    }

    #[test]
    fn a_panic_of_the_computation_is_the_callers() {
        let panic = std::panic::catch_unwind(|| behind_others(&mut || std::panic::panic_any(7))).unwrap_err();
        assert_eq!(panic.downcast_ref::<i32>(), Some(&7));
    }
}
