//! Story: an administrator rolls a policy out to five hosts. The first one fills an array: the host that tries it raises an alert,
//! and the policy is taken back. The second one is good and goes to all. Real agents, a real nats-server; the services are
//! small ones of this test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod support;

use longrun_api::fleet::{Fleet, Policy, PolicyInForce};
use longrun_api::model::Status;
use longrun_fleet::policy::apply;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Server, has_server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longrun-fleet");

/// What a service knows.
#[derive(Default)]
struct Inside {
    policy: Option<Policy>,
    /// How often a policy was given or taken.
    changes: usize,
    /// It has an alert while its policy says so.
    sensitive: bool,
    prevented: u64,
}

/// A service that notes its policy.
#[derive(Clone)]
struct Service(Arc<Mutex<Inside>>);

impl Service {
    fn on(socket: PathBuf, prevented: u64) -> Self {
        let service = Self(Arc::new(Mutex::new(Inside { prevented, sensitive: true, ..Inside::default() })));
        let listener = UnixListener::bind(socket).unwrap();
        let answering = service.clone();
        std::thread::spawn(move || listener.incoming().for_each(|stream| _ = answering.serve(&mut stream.unwrap())));
        service
    }

    fn serve(&self, stream: &mut UnixStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut request = Vec::new();
        let mut part = [0; 4096];
        let (head, body) = loop {
            let read = stream.read(&mut part)?;
            request.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .to_lowercase()
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    break (head.to_owned(), body.to_owned());
                }
            }
            if read == 0 {
                return Ok(());
            }
        };
        let answer = self.answer(head.lines().next().unwrap(), &body);
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}", answer.len())
    }

    fn answer(&self, what: &str, body: &str) -> String {
        let mut inside = self.0.lock().unwrap();
        let inside = &mut *inside;
        let path = what.split(' ').nth(1).unwrap().split('?').next().unwrap();
        match (what.split(' ').next().unwrap(), path) {
            ("GET", "/v1/fleet") => {
                let policy = inside.policy.clone();
                let policy = policy.map(|policy| PolicyInForce {
                    version: policy.version,
                    settings: policy.settings,
                    pinned: vec![],
                });
                serde_json::to_string(&Fleet { mode: "rest".to_owned(), policy, ..Fleet::default() }).unwrap()
            }
            ("GET", "/v1/status") => {
                let hurts = inside.policy.as_ref().is_some_and(|policy| policy.settings.contains("pace = \"fast\""));
                let troubles = if hurts && inside.sensitive { vec!["the array is slow".to_owned()] } else { vec![] };
                serde_json::to_string(&Status {
                    version: "0.1.0".to_owned(),
                    healthy: true,
                    troubles,
                    ..Status::default()
                })
                .unwrap()
            }
            ("GET", "/v1/report") => {
                format!("{{\"totals\":{{\"fragments-prevented\":{}}},\"benefit\":{{}}}}", inside.prevented)
            }
            ("PUT", "/v1/fleet/policy") => {
                let policy: Policy = serde_json::from_str(body).unwrap();
                longrun_config::parse(&policy.settings).unwrap();
                inside.policy = Some(policy);
                inside.changes += 1;
                "{}".to_owned()
            }
            ("DELETE", "/v1/fleet/policy") => {
                inside.policy = None;
                inside.changes += 1;
                "{}".to_owned()
            }
            _ => "{}".to_owned(),
        }
    }

    fn version(&self) -> Option<u64> {
        self.0.lock().unwrap().policy.as_ref().map(|policy| policy.version)
    }
}

/// An agent that ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn agent(config: &Path) -> Agent {
    Agent(
        Command::new(PROGRAM)
            .args(["agent", "--term", "1.6", "--config"])
            .arg(config)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

async fn command(config: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--config").arg(config);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if reached().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn an_alert_on_a_canary_takes_a_policy_back_and_a_good_one_reaches_all() {
    if !has_server() {
        return;
    }
    let server = Server::start();
    let broker = server.administrator().await;
    let mut services = Vec::new();
    let mut agents = Vec::new();
    for number in 0..5_u64 {
        let host = format!("host-{number}");
        let role = if number == 4 { "database" } else { "files" };
        let mut config = server.enroll(&host, &["san1"], &[("role", role)]);
        config.socket = server.directory.path().join(format!("{host}.sock"));
        services.push(Service::on(config.socket.clone(), number * 100));
        let path = server.directory.path().join(format!("{host}.toml"));
        let text = format!(
            "server = {:?}\nca = {:?}\nseed = {:?}\nhost = {host:?}\nsocket = {:?}\nlabels = {{ role = {role:?} }}\n",
            config.server,
            config.ca.as_ref().unwrap(),
            config.seed.as_ref().unwrap(),
            config.socket
        );
        std::fs::write(&path, text).unwrap();
        agents.push(path);
    }
    server.reload().await;
    let _agents: Vec<Agent> = agents.iter().map(|path| agent(path)).collect();
    until("all tell their state", async || apply::states(&broker).await.unwrap().len() == 5).await;

    let admin = server.administrator_config();
    let file = server.directory.path().join("policy.toml");
    let trial = ["policy", "apply", file.to_str().unwrap(), "--canary", "10%", "--watch", "3s", "--patience", "30s"];

    std::fs::write(&file, "[service]\nsocket = \"/etc\"\n").unwrap();
    let refused = command(&admin, &trial).await;
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("line 1: service"),
        "{refused:?}"
    );

    std::fs::write(&file, "name = \"bad\"\n[defaults]\npace = \"fast\"\n").unwrap();
    let stopped = command(&admin, &trial).await;
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(
        !stopped.status.success() && said.contains("version 1 was taken back") && said.contains("the array is slow"),
        "{said}"
    );
    until("the canary has no policy any more", async || services.iter().all(|service| service.version().is_none()))
        .await;
    let tried = services.iter().filter(|service| service.0.lock().unwrap().changes > 0).count();
    assert!((1..5).contains(&tried), "{tried} of 5 hosts tried it");

    let good = "name = \"good\"\n[defaults]\npace = \"invisible\"\n[[rule]]\nwhere = { role = \"database\" }\nsettings = { exclude = [\"*.ibd\"] }\n";
    std::fs::write(&file, good).unwrap();
    let spread = command(&admin, &trial).await;
    assert!(spread.status.success(), "{}", String::from_utf8_lossy(&spread.stderr));
    until("all have version 2", async || services.iter().all(|service| service.version() == Some(2))).await;
    let settings = |service: &Service| service.0.lock().unwrap().policy.clone().unwrap().settings;
    assert_eq!(settings(&services[0]), "[defaults]\npace = \"invisible\"\n");
    assert_eq!(settings(&services[4]), "[defaults]\nexclude = [\"*.ibd\"]\npace = \"invisible\"\n");

    let settled = async || apply::states(&broker).await.unwrap().values().all(|(state, _)| state.policy == Some(2));
    until("all tell that they have it", settled).await;
    let output = async |arguments: &[&str]| {
        let output = command(&admin, arguments).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let hosts = output(&["hosts"]).await;
    assert!(hosts.starts_with("HOST") && hosts.lines().count() == 6 && hosts.contains("nothing to do"), "{hosts}");
    let status = output(&["status"]).await;
    assert!(
        status.contains("5 hosts")
            && status.contains("Policy version 2 is for all hosts")
            && status.contains("No host has an alert"),
        "{status}"
    );
    let report = output(&["report"]).await;
    assert!(
        report.contains("5 hosts told")
            && report.contains("1,000")
            && report.contains("No benefit in 30 days: host-0."),
        "{report}"
    );
    let json: serde_json::Value = serde_json::from_str(&output(&["report", "--json"]).await).unwrap();
    assert_eq!(json["all"]["prevented"], 1000);
    assert!(output(&["policy", "show"]).await.contains("Hosts where role is database:"));

    output(&["policy", "rollback", "--reason", "a test"]).await;
    until("nobody has a policy", async || services.iter().all(|service| service.version().is_none())).await;

    output(&["revoke", "host-4"]).await;
    assert_eq!(output(&["hosts"]).await.lines().count(), 5);
}
