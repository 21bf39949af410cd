use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn did(read: u64, written: u64) -> DeviceCounts {
    DeviceCounts { read: Bytes(read), written: Bytes(written), ..DeviceCounts::default() }
}

fn asked(read: u64, written: u64) -> Own {
    Own { read: Bytes(read), written: Bytes(written) }
}

fn foreign(books: &mut Attribution, now: Duration, counts: DeviceCounts, own: Own) -> u64 {
    books.share(now, &counts, own).foreign.0
}

#[test]
fn what_was_asked_for_is_ours_and_the_rest_is_others() {
    let mut books = Attribution::new(false);
    assert_eq!(books.share(s(0), &did(5 * MIB, 9 * MIB), asked(7, 8)), Share::default(), "nothing to compare with");
    let share = books.share(s(1), &did(6 * MIB, 10 * MIB), asked(7 + MIB, 8 + MIB));
    assert_eq!((share.own, share.foreign, share.of_writes()), (Bytes(2 * MIB), Bytes(0), 0.0));
    assert_eq!(foreign(&mut books, s(2), did(6 * MIB + 4096, 10 * MIB), asked(7 + MIB, 8 + MIB)), 4096);
}

#[test]
fn what_is_written_late_and_the_journal_about_it_are_ours_too() {
    let mut books = Attribution::new(false);
    books.share(s(0), &did(0, 0), asked(0, 0));
    assert_eq!(foreign(&mut books, s(1), did(MIB, 0), asked(MIB, MIB)), 0);
    assert_eq!(foreign(&mut books, s(6), did(MIB, MIB), asked(MIB, MIB)), 0);
    assert_eq!(foreign(&mut books, s(11), did(MIB, MIB + 60_000), asked(MIB, MIB)), 0, "the journal");
    let before = MIB + 60_000;
    assert!(foreign(&mut books, s(12), did(MIB, before + MIB), asked(MIB, MIB)) > MIB / 3, "somebody else");
}

#[test]
fn what_is_committed_when_writing_begins_is_ours_too() {
    let mut books = Attribution::new(false);
    books.share(s(0), &did(0, 0), asked(0, 0));
    assert_eq!(foreign(&mut books, s(1), did(0, 300_000), asked(0, 4096)), 0, "space was taken before");
    assert!(foreign(&mut books, s(2), did(0, MIB), asked(0, 8192)) > MIB / 10, "that is done once");
    let long_after = foreign(&mut books, s(60), did(0, MIB + 300_000), asked(0, 12_288));
    assert_eq!(long_after, 0, "and when it begins again");
}

#[test]
fn credit_that_nothing_uses_up_does_not_hide_others_for_ever() {
    let mut books = Attribution::new(false);
    books.share(s(0), &did(0, 0), asked(0, 0));
    // Read and written somewhere else.
    assert_eq!(foreign(&mut books, s(1), did(0, 0), asked(500 * MIB, 500 * MIB)), 0);
    assert_eq!(foreign(&mut books, s(2), did(0, 0), asked(501 * MIB, 501 * MIB)), 0);
    assert_eq!(foreign(&mut books, s(60), did(4096, 4096), asked(501 * MIB, 501 * MIB)), 8192);
}

#[test]
fn beside_steady_work_a_foreign_stream_is_told_at_once() {
    let mut books = Attribution::new(false);
    let (mut device, mut own, mut told) = (0, 0, 0);
    books.share(s(0), &did(0, 0), asked(0, 0));
    for step in 1..200 {
        own += MIB;
        device += MIB + if step > 100 { MIB } else { 0 };
        let share = books.share(Duration::from_millis(10 * step), &did(device, device), asked(own, own));
        if step <= 100 {
            assert_eq!(share.foreign, Bytes(0), "step {step}");
        } else if share.foreign.0 > 0 && told == 0 {
            told = step - 100;
        }
    }
    assert_eq!(told, 1, "reads are exact");
}

#[test]
fn below_a_file_more_may_be_read_than_was_asked_for() {
    let mut books = Attribution::new(true);
    books.share(s(0), &did(0, 0), asked(0, 0));
    assert_eq!(foreign(&mut books, s(1), did(2 * MIB, 0), asked(MIB, 0)), 0);
    assert!(foreign(&mut books, s(2), did(4 * MIB, 0), asked(MIB, 0)) > MIB);
}

proptest! {
    #[test]
    fn nothing_is_invented_and_our_own_is_never_blamed_on_others(
        steps in prop::collection::vec((0u64..4 * MIB, 0u64..4 * MIB, 1u64..50), 1..100),
    ) {
        let mut books = Attribution::new(false);
        books.share(s(0), &did(0, 0), asked(0, 0));
        let (mut read, mut written, mut now) = (0, 0, Duration::ZERO);
        for (more_read, more_written, gap) in steps {
            read += more_read;
            written += more_written;
            now += Duration::from_millis(gap);
            let share = books.share(now, &did(read, written), asked(read, written));
            prop_assert_eq!((share.own, share.foreign), (Bytes(more_read + more_written), Bytes(0)));
        }
        let share = books.share(now + s(100), &did(read + MIB, written), asked(read, written));
        prop_assert_eq!(share.own + share.foreign, Bytes(MIB));
    }
}
