//! Story: hosts share storage. Each has an agent, which is killed, stopped and cut off; brokers die and lose data. The long form is
//! `longrun-lab fleet`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

use longrun_lab::fleet::{FleetStage, has_cables, roll_out, share_one_slot};
use longrun_lab::{FleetReport, FleetSettings, VolumeSpec, fleet};
use std::thread;
use std::time::{Duration, Instant};

/// Waits, on a machine however busy.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Faults of all kinds for this time. An observer that knows no leases ends it when more hosts work than there are slots.
fn faults(brokers: usize, seed: u64, seconds: u64) -> FleetReport {
    let settings = FleetSettings {
        seed,
        agents: 10,
        groups: 2,
        brokers,
        term: Duration::from_secs(1),
        time: Duration::from_secs(seconds),
        grants: u64::MAX,
        name_spaces: false,
    };
    let report = fleet(&settings, &mut |count| eprintln!("{count} grants")).unwrap();
    eprintln!("{report:#?}");
    report
}

#[test]
fn no_more_hosts_of_a_group_work_than_it_has_slots() {
    faults(1, 1, 6);
}

#[test]
fn campaign_no_more_hosts_of_a_group_work_than_it_has_slots() {
    for (brokers, seed) in [(1, 1), (3, 2)] {
        let report = faults(brokers, seed, 24);
        assert!(report.grants > 10 && report.faults.holders_killed > 0, "this proves nothing");
    }
}

/// Networks are name spaces here: needs root.
#[test]
fn campaign_a_host_whose_cable_is_unplugged_rests_before_another_one_takes_its_slot() {
    if let Err(why) = has_cables() {
        eprintln!("SKIPPED: no networks with cables here: {why:#}");
        return;
    }
    let stage = FleetStage::on_cables(2, Duration::from_secs(1)).unwrap();
    stage.admin(&["groups", "set", "san", "--slots", "1"]).unwrap();
    stage.hosts.iter().for_each(|host| host.said(|said| said.always = true));
    wait_until("one works", || stage.working() == 1);
    let (worker, other) = if stage.hosts[0].is_permitted() { (0, 1) } else { (1, 0) };
    stage.plug(worker, false).unwrap();
    wait_until("the other one works", || {
        assert!(stage.working() <= 1);
        stage.hosts[other].is_permitted()
    });
    wait_until("the lonely one knows that it is", || !stage.hosts[worker].is_in_touch());
    stage.plug(worker, true).unwrap();
    wait_until("it is back", || stage.hosts[worker].is_in_touch());
    stage.hosts[other].said(|said| said.mode = "off");
    wait_until("it works again", || stage.hosts[worker].is_permitted() && stage.working() == 1);
}

#[test]
fn campaign_a_host_gives_way_for_latency_and_for_a_sum_of_bytes_that_is_used_up() {
    let stage = FleetStage::start(2, Duration::from_secs(1)).unwrap();
    stage
        .admin(&["groups", "set", "san", "--slots", "1", "--bytes-per-day", "1000", "--latency-limit", "5000"])
        .unwrap();
    stage.hosts[0].said(|said| said.always = true);
    stage.hosts[1].said(|said| said.always = true);
    wait_until("one works", || stage.working() == 1);
    let (worker, other) = if stage.hosts[0].is_permitted() { (0, 1) } else { (1, 0) };
    stage.hosts[worker].said(|said| said.latency_us = Some(9000.0));
    wait_until("the other one takes over", || stage.hosts[other].is_permitted());
    assert!(stage.admin(&["leases"]).unwrap().contains(&format!("held by host-{other}")));

    stage.hosts[worker].said(|said| said.latency_us = None);
    stage.hosts[other].said(|said| said.moved_bytes = 999);
    let sum = |stage: &FleetStage| stage.json(&["groups", "--json"]).unwrap()[0]["moved"]["bytes"].as_u64();
    wait_until("the bytes are counted", || sum(&stage) == Some(999));
    stage.hosts[other].said(|said| said.moved_bytes = 1001);
    wait_until("nobody works", || sum(&stage) == Some(1001) && stage.working() == 0);
    thread::sleep(Duration::from_secs(8));
    assert_eq!(stage.working(), 0, "the sum of the day is used up");
    stage.admin(&["groups", "set", "san", "--slots", "2", "--bytes-per-day", "9000"]).unwrap();
    wait_until("both work", || stage.working() == 2);
    stage.admin(&["groups", "set", "san", "--slots", "0"]).unwrap();
    wait_until("none may", || stage.working() == 0);
}

#[test]
fn without_a_broker_no_permission_is_given_and_the_agent_is_out_of_touch_until_it_is_back() {
    let mut stage = FleetStage::start(1, Duration::from_secs(1)).unwrap();
    stage.hosts[0].said(|said| said.always = true);
    wait_until("it works", || stage.working() == 1 && stage.hosts[0].is_in_touch());
    stage.kill_broker();
    wait_until("it rests", || stage.working() == 0 && !stage.hosts[0].is_in_touch());
    stage.revive_broker().unwrap();
    wait_until("it works again", || stage.working() == 1 && stage.hosts[0].is_in_touch());
    // The service is off, or needs nothing: the lease goes back.
    stage.hosts[0].said(|said| said.mode = "off");
    wait_until("the lease is free", || stage.admin(&["leases"]).unwrap().contains("free"));
    assert!(stage.hosts[0].is_in_touch());
    stage.hosts[0].said(|said| said.mode = "go-on");
    wait_until("it works again", || stage.working() == 1);
    stage.end_agent(0).unwrap();
    assert_eq!(stage.working(), 0, "an agent that is ended takes its permission back");
    assert!(stage.admin(&["leases"]).unwrap().contains("free"), "and gives its lease back");
}

/// With real services. The long form is `longrun-lab roll-out`, with 50 of them.
#[test]
fn campaign_an_alert_takes_a_policy_back_and_a_good_one_reaches_all_services() {
    let report = roll_out(4, Duration::from_secs(1), &mut |what| eprintln!("{what}")).unwrap();
    eprintln!("{report:#?}");
    assert!((1..4).contains(&report.canaries));
}

#[test]
fn campaign_passes_on_shared_storage_wait_for_their_turn_and_do_all_their_work() {
    for spec in [VolumeSpec::ext4(256).mkfs(&["-b", "4096"]), VolumeSpec::xfs(512)] {
        assert!(share_one_slot(&spec, Duration::from_secs(1)).unwrap() > 0, "nobody was seen at work");
    }
}
