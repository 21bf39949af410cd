//! Reads many pieces, a few at a time. Pure.

use longrun_layout::Run;

/// One step of reading in turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask for these pieces.
    Ask(Vec<Run>),
    /// Wait until these are there, and then for permission.
    Await(Vec<Run>),
}

/// Pieces in the order of the device, at most so many requests under way at a time.
pub fn in_turns(pieces: Vec<Run>, most: usize) -> Vec<Act> {
    let turns = turns(pieces, most / 2);
    let ahead = usize::from(most > 1).min(turns.len());
    let asked = turns.iter().map(Some).chain(std::iter::repeat_n(None, ahead));
    let awaited = std::iter::repeat_n(None, ahead).chain(turns.iter().map(Some));
    let step = |(ask, wait): (Option<&Vec<Run>>, Option<&Vec<Run>>)| {
        [ask.cloned().map(Act::Ask), wait.cloned().map(Act::Await)]
    };
    asked.zip(awaited).flat_map(step).flatten().collect()
}

/// Pieces in the order of the device, so many requests at a time: pieces that touch there are read by one.
fn turns(mut pieces: Vec<Run>, most: usize) -> Vec<Vec<Run>> {
    pieces.sort_unstable_by_key(|piece| piece.physical);
    let mut turns: Vec<Vec<Run>> = Vec::new();
    let mut requests = 0;
    for piece in pieces {
        let last = turns.last_mut();
        let goes_on =
            last.as_ref().and_then(|turn| turn.last()).is_some_and(|run| run.extent().end() == piece.physical);
        requests += usize::from(!goes_on);
        match last {
            Some(turn) if requests <= most.max(1) => turn.push(piece),
            _ => {
                turns.push(vec![piece]);
                requests = 1;
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_the_order_of_the_device_a_few_at_a_time() {
        let pieces = vec![Run::new(0, 50, 2), Run::new(2, 10, 2), Run::new(4, 90, 2), Run::new(6, 12, 2)];
        let firsts = |most| {
            let turns = turns(pieces.clone(), most);
            turns.iter().map(|turn| turn.iter().map(|run| run.logical.0).collect()).collect::<Vec<Vec<u64>>>()
        };
        assert_eq!(firsts(1), [vec![2, 6], vec![0], vec![4]], "10 and 12 touch");
        assert_eq!(firsts(2), [vec![2, 6, 0], vec![4]]);
        assert_eq!(firsts(9), [vec![2, 6, 0, 4]]);
        assert_eq!(turns(Vec::new(), 3), Vec::<Vec<Run>>::new());
    }

    #[test]
    fn half_of_what_may_be_under_way_is_asked_for_while_the_other_half_is_read() {
        let acts = |count: u64, most| {
            let pieces = (0..count).map(|n| Run::new(n, n * 10, 1)).collect();
            let told = |act: &Act| match act {
                Act::Ask(pieces) => pieces.iter().map(|run| format!("?{}", run.logical.0)).collect::<String>(),
                Act::Await(pieces) => pieces.iter().map(|run| format!("!{}", run.logical.0)).collect::<String>(),
            };
            in_turns(pieces, most).iter().map(told).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(acts(3, 1), "?0 !0 ?1 !1 ?2 !2", "never two");
        assert_eq!(acts(3, 2), "?0 ?1 !0 ?2 !1 !2");
        assert_eq!(acts(6, 5), "?0?1 ?2?3 !0!1 ?4?5 !2!3 !4!5", "never more than five");
        assert_eq!(acts(1, 16), "?0 !0");
        assert_eq!(acts(0, 16), "");
    }
}
