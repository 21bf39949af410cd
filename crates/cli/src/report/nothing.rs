//! Why a plan has no moves, and what would help: for people and as JSON.

use crate::text::{counted, size};
use longrun_layout::{BlockSize, Bytes};
use longrun_planner::{Mode, NoPlan, Nothing, Room};
use serde::Serialize;

/// The object of the contract.
#[derive(Clone, Debug, Serialize)]
pub struct NothingFigures {
    /// `good`, `good-enough`, `not-worth`, `pinned`, `budget` or `no-room`.
    reason: &'static str,
    /// Of files that may move.
    excess_fragments: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<RoomFigures>,
    would_help: WouldHelp,
}

/// The free space for which no plan was found.
#[derive(Clone, Copy, Debug, Serialize)]
struct RoomFigures {
    free_bytes: u64,
    kept_bytes: u64,
    largest_bytes: u64,
    smallest_file_bytes: u64,
}

/// What would make a plan possible. A remedy that is not known to help is null.
#[derive(Clone, Copy, Debug, Serialize)]
struct WouldHelp {
    mode: Option<Mode>,
    budget: Option<u64>,
    free_bytes: Option<u64>,
}

impl NothingFigures {
    /// Puts the planner's reason into the form that is reported; `mode` may be recommended.
    pub fn new(nothing: &Nothing, mode: Option<Mode>, block_size: BlockSize) -> Self {
        let bytes = |blocks| block_size.to_bytes(blocks).0;
        let mut would_help = WouldHelp { mode, budget: None, free_bytes: None };
        let (reason, room) = match nothing.reason {
            NoPlan::Good => ("good", None),
            NoPlan::GoodEnough => ("good-enough", None),
            NoPlan::Pinned => ("pinned", None),
            NoPlan::Budget { needed } => {
                would_help.budget = Some(bytes(needed));
                ("budget", None)
            }
            NoPlan::NoRoom(Room { free, kept, largest, smallest_file, missing }) => {
                would_help.free_bytes = Some(bytes(missing));
                let room = RoomFigures {
                    free_bytes: bytes(free),
                    kept_bytes: bytes(kept),
                    largest_bytes: bytes(largest),
                    smallest_file_bytes: bytes(smallest_file),
                };
                ("no-room", Some(room))
            }
        };
        Self { reason, excess_fragments: nothing.excess_fragments, room, would_help }
    }

    /// No mode was asked for, and by the verdict none is worth its cost.
    pub fn not_worth(excess_fragments: u64) -> Self {
        let would_help = WouldHelp { mode: Some(Mode::Full), budget: None, free_bytes: None };
        Self { reason: "not-worth", excess_fragments, room: None, would_help }
    }

    /// For people.
    pub fn text(&self) -> String {
        let excess = counted(self.excess_fragments, "excess fragment", "excess fragments");
        let why = match (self.reason, self.room) {
            ("good", _) => "nothing to move; this mode cannot improve the volume.".to_owned(),
            ("not-worth", _) => {
                return "Plan: nothing to move; too little would be gained. To optimize all the same, choose --mode full or \
                        --mode efficient.\n"
                    .to_owned();
            }
            ("pinned", _) => "nothing to move; all fragmented files must stay in place.".to_owned(),
            ("good-enough", _) if self.excess_fragments == 0 => {
                "nothing to move; no file is fragmented, and consolidating the free space costs more than it gains."
                    .to_owned()
            }
            ("good-enough", _) => format!("nothing to move; {excess} are below the threshold of this mode."),
            ("budget", _) => format!("nothing to move; the budget is too small for any gain, and {excess} remain."),
            (_, None) => format!("no plan was found for the {excess}."),
            (_, Some(room)) => {
                let kept = match room.kept_bytes {
                    0 => String::new(),
                    kept => format!(", of which the file system reserves {}", size(Bytes(kept))),
                };
                format!(
                    "no plan was found for the {excess}: {} are free{kept}; the largest free piece has {}, the smallest \
                     fragmented file {}.",
                    size(Bytes(room.free_bytes)),
                    size(Bytes(room.largest_bytes)),
                    size(Bytes(room.smallest_file_bytes)),
                )
            }
        };
        let WouldHelp { mode, budget, free_bytes } = self.would_help;
        let help = [
            free_bytes.map(|bytes| format!("about {} more free space", size(Bytes(bytes)))),
            budget.map(|bytes| format!("a budget of up to {}", size(Bytes(bytes)))),
            mode.map(|mode| format!("--mode {}", mode_name(mode))),
        ];
        let help: Vec<String> = help.into_iter().flatten().collect();
        let help = if help.is_empty() { String::new() } else { format!("What would help: {}.\n", help.join(", or ")) };
        format!("Plan: {why}\n{help}")
    }
}

/// The mode's name on the command line.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Full => "full",
        Mode::Efficient => "efficient",
        Mode::Files => "files",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::Blocks;

    const ROOM: Room = Room {
        free: Blocks(2880),
        kept: Blocks(1000),
        largest: Blocks(300),
        smallest_file: Blocks(16),
        missing: Blocks(2304),
    };

    fn figures(reason: NoPlan, excess_fragments: u64, mode: Option<Mode>) -> NothingFigures {
        let nothing = Nothing { reason, excess_fragments, mode };
        NothingFigures::new(&nothing, mode, BlockSize::new(4096).unwrap())
    }

    #[test]
    fn each_reason_is_told_with_what_would_help() {
        let told = [
            figures(NoPlan::Good, 0, None),
            figures(NoPlan::GoodEnough, 0, None),
            figures(NoPlan::GoodEnough, 12, Some(Mode::Full)),
            figures(NoPlan::Pinned, 0, None),
            figures(NoPlan::Budget { needed: Blocks(25_600) }, 590, None),
            figures(NoPlan::NoRoom(ROOM), 5959, Some(Mode::Files)),
            figures(NoPlan::NoRoom(Room { kept: Blocks(0), ..ROOM }), 1, None),
        ];
        insta::assert_snapshot!(told.map(|figures| figures.text()).join("\n"));
    }

    #[test]
    fn the_json_is_stable() {
        insta::assert_json_snapshot!(figures(NoPlan::NoRoom(ROOM), 5959, Some(Mode::Files)));
    }
}
