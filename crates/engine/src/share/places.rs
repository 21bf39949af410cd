//! Chooses the place of a copy: the best of a few attempts.

use super::NotMended;
use super::traits::{Attempt, Sharing};
use super::unit::{UnitPlan, are_worth_taking};
use longrun_layout::Bytes;

/// The copies with which the files would lie best, one for each that the plan has. `excess_with` tells the excess fragments that
/// the files would lie in, `excess` what they lie in now.
pub(super) fn best<S: Sharing>(
    volume: &mut S,
    plan: &UnitPlan,
    bytes: &[Bytes],
    beside: bool,
    excess: u64,
    excess_with: impl Fn(&S, &[S::Copy]) -> u64,
) -> Result<Vec<S::Copy>, NotMended> {
    let mut best: Option<(u64, Vec<S::Copy>)> = None;
    let mut trouble = NotMended::NoGain;
    let total: Bytes = bytes.iter().copied().sum();
    let beside = beside.then_some(Attempt::Beside);
    for attempt in beside.into_iter().chain([Attempt::Anywhere, Attempt::Anywhere, Attempt::InOne]) {
        // The best so far are kept, so that the next are put elsewhere: as far as others can spare it.
        if best.is_some() && volume.permits(total).is_err() {
            break;
        }
        let made: Result<Vec<S::Copy>, NotMended> =
            bytes.iter().enumerate().map(|(copy, bytes)| volume.allocate(plan, copy, *bytes, attempt)).collect();
        match made {
            Ok(copies) => {
                let excess = excess_with(volume, &copies);
                if best.as_ref().is_none_or(|(least, _)| excess < *least) {
                    best = Some((excess, copies));
                }
                if excess == 0 {
                    break;
                }
            }
            Err(reason) => trouble = reason,
        }
    }
    let (left, copies) = best.ok_or(trouble)?;
    if are_worth_taking(excess, left) { Ok(copies) } else { Err(NotMended::NoGain) }
}
