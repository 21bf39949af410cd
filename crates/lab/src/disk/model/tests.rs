//! What holds of every model, and the laws of the disk with one arm.

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn hdd() -> DiskModel {
    DiskModel::Hdd(Hdd::default())
}

fn read(id: u64, at: u64, length: u64) -> Request {
    Request { id, access: Access::Read, at: Bytes(at), length: Bytes(length) }
}

fn random_reads(count: u64, span: u64, length: u64) -> Vec<Request> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|id| read(id, random.u64(0..(span - length) / 4096) * 4096, length)).collect()
}

fn seconds(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e9
}

#[test]
fn a_hard_disk_streams_at_the_rate_of_its_zone() {
    for (start, rate) in [(0, 160e6), (15 * GIB / 16, 80e6)] {
        for depth in [1, 4] {
            let requests: Vec<_> = (0..120).map(|n| read(n, start + n * 512 * 1024, 512 << 10)).collect();
            let took = seconds(closed_loop(&mut hdd().device(Bytes(GIB), 1), &requests, depth));
            let wanted = (120 * 512 * 1024) as f64 / rate;
            assert!(took > wanted && took < wanted * 1.1 + 0.03, "{took} s at depth {depth} against {wanted} s");
        }
    }
}

#[test]
fn a_hard_disk_takes_a_seek_and_half_a_turn_for_a_random_place() {
    let took = closed_loop(&mut hdd().device(Bytes(GIB), 1), &random_reads(2000, GIB, 4096), 1);
    let each = seconds(took) * 1000.0 / 2000.0;
    let wanted = 8.1 + 4.17 + 0.1;
    assert!((each - wanted).abs() < 0.7, "{each} ms against {wanted}");
}

#[test]
fn a_hard_disk_that_may_choose_is_faster_than_one_that_may_not() {
    let requests = random_reads(1000, GIB, 4096);
    let alone = closed_loop(&mut hdd().device(Bytes(GIB), 1), &requests, 1);
    let chosen = closed_loop(&mut hdd().device(Bytes(GIB), 1), &requests, 32);
    assert!(chosen.0 * 4 < alone.0 * 3, "{chosen:?} against {alone:?}");
}

#[test]
fn who_is_far_away_is_overtaken_no_more_often_than_patience_allows() {
    let mut device = hdd().device(Bytes(GIB), 1);
    let far = 1_000_000;
    device.submit(Nanos(0), read(0, 0, 4096));
    device.submit(Nanos(1), read(far, GIB - 4096, 4096));
    // Somebody who is always near: whenever one of theirs is done there is another.
    let (mut id, mut order) = (1, Vec::new());
    for _ in 0..8 {
        device.submit(Nanos(2), read(id, id * 65536, 4096));
        id += 1;
    }
    while !order.contains(&far) {
        let due = device.due().unwrap();
        for done in device.take_done(due) {
            order.push(done.id);
            device.submit(due, read(id, id * 65536, 4096));
            id += 1;
        }
    }
    assert_eq!(order.len() as u32, 1 + Hdd::default().patience + 1, "{order:?}");
}

#[test]
fn a_hard_disk_reads_on_while_nobody_asks_and_remembers_several_streams() {
    let Hdd { command, .. } = Hdd::default();
    let mut device = hdd().device(Bytes(GIB), 1);
    device.submit(Nanos(0), read(0, 0, 65536));
    device.submit(Nanos(1_000_000_000), read(1, 65536, 65536));
    assert_eq!(take_one(&mut device), command, "it has been read ahead of");
    device.submit(Nanos(2_000_000_000), read(2, GIB / 2, 65536));
    assert!(take_one(&mut device) > Nanos(8_000_000), "a seek");
    device.submit(Nanos(3_000_000_000), read(3, 131_072, 65536));
    assert_eq!(take_one(&mut device), command, "it is in memory, and costs no seek");
    device.submit(Nanos(4_000_000_000), read(4, GIB / 2 + 65536, 65536));
    assert_eq!(take_one(&mut device), command, "the arm has stayed with the other stream");
}

#[test]
fn what_was_overwritten_is_not_remembered() {
    let mut device = hdd().device(Bytes(GIB), 1);
    device.submit(Nanos(0), read(0, 0, 65536));
    device.submit(Nanos(1_000_000_000), Request { access: Access::Write, ..read(1, 131_072, 65536) });
    device.submit(Nanos(2_000_000_000), read(2, 131_072, 65536));
    assert!(take_one(&mut device) > Hdd::default().command);
}

/// How long the last request took.
fn take_one(device: &mut Device) -> Nanos {
    let done = device.take_done(Nanos(u64::MAX / 2));
    done.last().map(|done| done.at.since(done.arrived)).unwrap()
}

#[test]
fn writes_that_follow_each_other_lose_no_turn_when_the_next_is_there_in_time() {
    let write = |n: u64| Request { access: Access::Write, ..read(n, n << 18, 1 << 18) };
    let requests: Vec<_> = (0..200).map(write).collect();
    let took = seconds(closed_loop(&mut hdd().device(Bytes(GIB), 3), &requests, 4));
    let wanted = (200_u64 << 18) as f64 / 160e6;
    assert!(took < wanted * 1.05 + 0.03, "{took} s against {wanted} s");
    let took = seconds(closed_loop(&mut hdd().device(Bytes(GIB), 3), &requests, 1));
    assert!(took > 200.0 * 8.3e-3, "with none in line, each waits for its place to come round: {took} s");
}

#[test]
fn seeks_grow_with_the_distance_through_the_points_that_are_given() {
    let hdd = Hdd::default();
    assert_eq!(hdd.seek(0), hdd.shortest_seek);
    assert_eq!(hdd.seek(1_000_000), hdd.longest_seek);
    assert!(hdd.seek(333_333).0.abs_diff(hdd.average_seek.0) < 10_000);
    assert!((0..1000).map(|n| hdd.seek(n * 1000)).is_sorted());
}

#[test]
fn every_model_has_a_name_and_says_that_it_is_one() {
    for name in DiskModel::NAMES {
        let model = DiskModel::by_name(name).unwrap();
        assert_eq!(model.name(), name);
        assert!(model.describe().starts_with("modelled "), "{}", model.describe());
        let told = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<DiskModel>(&told).unwrap(), model);
    }
    assert_eq!(DiskModel::by_name("tape"), None);
}

fn any_requests() -> impl Strategy<Value = Vec<(u64, Request)>> {
    let one = (0_u64..20_000_000, any::<bool>(), 0_u64..2048, 1_u64..=256);
    prop::collection::vec(one, 1..60).prop_map(|all| {
        let mut now = 0;
        let request = |(id, (gap, write, at, blocks)): (usize, (u64, bool, u64, u64))| {
            now += gap;
            let access = if write { Access::Write } else { Access::Read };
            (now, Request { id: id as u64, access, at: Bytes(at << 18), length: Bytes(blocks << 12) })
        };
        all.into_iter().enumerate().map(request).collect()
    })
}

/// All completions, the disk being looked at whenever something comes or is due.
fn serve(model: DiskModel, requests: &[(u64, Request)]) -> Vec<Completion> {
    let mut device = model.device(Bytes(GIB), 5);
    let mut done = Vec::new();
    for (at, request) in requests {
        while let Some(due) = device.due().filter(|due| due.0 < *at) {
            done.extend(device.take_done(due));
        }
        device.submit(Nanos(*at), *request);
    }
    while let Some(due) = device.due() {
        done.extend(device.take_done(due));
    }
    done
}

proptest! {
    #[test]
    fn every_request_is_done_once_after_it_came_and_the_same_under_the_same_seed(requests in any_requests()) {
        for name in DiskModel::NAMES {
            let model = DiskModel::by_name(name).unwrap();
            let done = serve(model, &requests);
            let mut ids: Vec<u64> = done.iter().map(|d| d.id).collect();
            ids.sort_unstable();
            prop_assert_eq!(&ids, &(0..requests.len() as u64).collect::<Vec<_>>(), "{}", name);
            for one in &done {
                let (at, _) = requests.iter().find(|(_, r)| r.id == one.id).unwrap();
                prop_assert!(one.arrived == Nanos(*at) && one.at > one.arrived, "{} {:?}", name, one);
            }
            prop_assert!(done.is_sorted_by_key(|d| d.at));
            prop_assert_eq!(done, serve(model, &requests), "{}", name);
        }
    }

    #[test]
    fn looking_seldom_changes_nothing_of_what_was_decided(requests in any_requests()) {
        for name in DiskModel::NAMES {
            let model = DiskModel::by_name(name).unwrap();
            let mut device = model.device(Bytes(GIB), 5);
            for (at, request) in &requests {
                device.submit(Nanos(*at), *request);
            }
            let late = device.take_done(Nanos(u64::MAX / 2));
            prop_assert_eq!(late, serve(model, &requests), "{}", name);
        }
    }
}
