//! What one broker bears: the records of so many hosts, and the requests of their agents.
//!
//! `many_hosts [HOSTS [SECONDS]]` (10,000, 20) starts a nats-server of its own, writes the state of each host and a lease for each
//! twentieth, and then asks as agents do, from as many connections as there are tasks: a renewal of a lease, a look at the roll-out,
//! a look at another lease, and the state of the host, over and over. Prints sizes, times and memory.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on fails loudly")]

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use longrun_fleet::broker::{Broker, Put};
use longrun_fleet::host_config::HostConfig;
use longrun_fleet::lease::{Owner, Record, Revision};
use longrun_fleet::names::{self, Name};
use longrun_fleet::state::{HostState, Totals, VolumeState};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TASKS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);
const REQUESTS: usize = 4;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Server {
    fn start(directory: &Path, port: u16) -> Self {
        let config = directory.join("config");
        let store = directory.join("store");
        std::fs::write(&config, format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {store:?} }}\n"))
            .unwrap();
        let mut command = Command::new("nats-server");
        Self(command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
    }
}

fn host(number: usize) -> Name {
    format!("host-{number}").parse().unwrap()
}

/// What a host with four volumes tells.
fn state(number: usize) -> Vec<u8> {
    let volume = |at: usize| VolumeState {
        mount: format!("/srv/data-{at}"),
        filesystem: "xfs".to_owned(),
        total_bytes: 4 << 40,
        free_bytes: (number as u64) << 20,
        files: Some(1_234_567),
        excess_fragments: Some(4321),
        rests: None,
    };
    let sums = Totals {
        prevented: 123_456,
        mended: 7890,
        moved_bytes: 123 << 30,
        requests_saved: 234_567,
        ..Totals::default()
    };
    let state = HostState {
        version: "0.1.0".to_owned(),
        at: 1_795_000_000,
        labels: [("role".to_owned(), "database".to_owned()), ("site".to_owned(), "fra".to_owned())].into(),
        healthy: true,
        activity: "nothing to do".to_owned(),
        mode: "rest".to_owned(),
        policy: Some(7),
        groups: [(format!("san-{}", number / 20), false)].into(),
        volumes: (0..4).map(volume).collect(),
        day: sums,
        month: sums,
        all: sums,
        ..HostState::default()
    };
    serde_json::to_vec(&state).unwrap()
}

fn lease(number: usize) -> Vec<u8> {
    let owner = Owner { host: host(number), instance: "01234567-89ab-cdef-0123-456789abcdef".to_owned() };
    Record { owner, serial: 7, held: true, term_ms: 60_000 }.to_value()
}

/// What a request gives; its time is noted.
async fn timed<T>(times: &mut Vec<Duration>, request: impl Future<Output = T>) -> T {
    let at = Instant::now();
    let answer = request.await;
    times.push(at.elapsed());
    answer
}

/// The times of the requests of one connection, each of which stands for many hosts.
async fn agent(config: &HostConfig, task: usize, groups: usize, time: Duration) -> Vec<Duration> {
    let broker = Broker::connect(config, PATIENCE).await.unwrap();
    broker.connected_within(PATIENCE).await.unwrap();
    let key = names::slot_key(&format!("san-{task}").parse().unwrap(), 0);
    let mut revision = broker.get(names::LEASES, &key).await.unwrap().revision;
    let (begun, mut times, mut round) = (Instant::now(), Vec::new(), task);
    while begun.elapsed() < time {
        let renewal = broker.put(names::LEASES, &key, revision, lease(task));
        if let Put::Written(new) = timed(&mut times, renewal).await.unwrap() {
            revision = new;
        }
        timed(&mut times, broker.get(names::POLICY, names::ROLLOUT_KEY)).await.unwrap();
        let other = names::slot_key(&format!("san-{}", round % groups).parse().unwrap(), 0);
        timed(&mut times, broker.get(names::LEASES, &other)).await.unwrap();
        let (own, told) = (host(round * 20), state(round * 20));
        timed(&mut times, broker.put_anyhow(names::STATE, own.as_str(), told)).await.unwrap();
        round = (round + TASKS) % groups;
    }
    times
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (hosts, seconds) = (number(10_000), number(20) as u64);
    let groups = (hosts / 20).max(TASKS);
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let server = Server::start(directory.path(), port);
    let config = HostConfig::parse(&format!("server = \"nats://127.0.0.1:{port}\"\nhost = \"admin\"\n")).unwrap();
    let broker = Broker::connect(&config, PATIENCE).await.unwrap();
    broker.connected_within(PATIENCE).await.unwrap();
    broker.make_buckets(1).await.unwrap();
    println!("broker, empty: {} MiB", server.resident_mib());
    let begun = Instant::now();
    let write = |number| {
        let broker = &broker;
        async move { broker.put_anyhow(names::STATE, host(number).as_str(), state(number)).await.unwrap() }
    };
    stream::iter(0..hosts).map(write).buffer_unordered(TASKS).count().await;
    for group in 0..groups {
        let key = names::slot_key(&format!("san-{group}").parse().unwrap(), 0);
        broker.put(names::LEASES, &key, Revision(0), lease(group)).await.unwrap();
    }
    println!(
        "state of {hosts} hosts ({} bytes each) and {groups} leases ({} bytes) written in {:.1} s; broker: {} MiB",
        state(0).len(),
        lease(0).len(),
        begun.elapsed().as_secs_f64(),
        server.resident_mib()
    );
    let begun = Instant::now();
    let listed = broker.list(names::STATE).await.unwrap().len();
    println!("all {listed} states listed in {:.2} s", begun.elapsed().as_secs_f64());
    let time = Duration::from_secs(seconds);
    let begun = Instant::now();
    let times = join_all((0..TASKS).map(|task| agent(&config, task, groups, time))).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = times.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e3;
    println!(
        "{} requests in {elapsed:.1} s: {:.0} a second ({REQUESTS} kinds, {TASKS} connections); half within {:.1} ms, 99 % within {:.1} ms; broker: {} MiB",
        times.len(),
        times.len() as f64 / elapsed,
        at(50),
        at(99),
        server.resident_mib()
    );
}
