//! A real nats-server with TLS and the accounts of a fleet, in a directory of its own, ended with the test.
#![allow(dead_code, clippy::print_stdout, reason = "each test uses a part, and says when it is skipped")]

use async_nats::{Client, ConnectOptions};
use longrun_fleet::broker::Broker;
use longrun_fleet::enroll::{NewHost, Office};
use longrun_fleet::host_config::HostConfig;
use longrun_fleet::names::Name;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Whether the server is there; a test that does without says so.
pub fn has_server() -> bool {
    let there = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        println!("SKIPPED: no nats-server here; `scripts/prepare.sh test` installs it");
    }
    there
}

/// A server and its administrator's directory.
pub struct Server {
    pub directory: TempDir,
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| directory.path().join(name);
        certificates(directory.path());
        let address = format!("tls://127.0.0.1:{port}");
        Office::open(&at("office"), &address, Some(&at("ca.pem"))).unwrap();
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\nserver_name: test\njetstream {{ store_dir: {:?}, max_mem: 0, max_file: 200M }}\n\
             tls {{ cert_file: {:?}, key_file: {:?} }}\naccounts {{ include \"office/accounts.conf\" }}\n",
            at("store"),
            at("server.pem"),
            at("server.key")
        );
        std::fs::write(at("nats-server.conf"), text).unwrap();
        let log = std::fs::File::create(at("log")).unwrap();
        let child = Command::new("nats-server").arg("-c").arg(at("nats-server.conf")).stderr(log).spawn().unwrap();
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { directory, child, address }
    }

    pub fn office_directory(&self) -> PathBuf {
        self.directory.path().join("office")
    }

    pub fn administrator_config(&self) -> PathBuf {
        self.office_directory().join("fleet.toml")
    }

    pub fn office(&self) -> Office {
        Office::of(&self.administrator_config())
    }

    /// The administrator's connection, with all buckets made.
    pub async fn administrator(&self) -> Broker {
        let config = HostConfig::read(&self.administrator_config()).unwrap();
        let broker = Broker::connect(&config, Duration::from_secs(5)).await.unwrap();
        broker.connected_within(Duration::from_secs(10)).await.unwrap_or_else(|error| {
            panic!("{error}: {}", std::fs::read_to_string(self.directory.path().join("log")).unwrap())
        });
        broker.make_buckets(1).await.unwrap();
        broker
    }

    /// Enrolls a host; its configuration, with the seed where it lies here.
    pub fn enroll(&self, host: &str, groups: &[&str], labels: &[(&str, &str)]) -> HostConfig {
        let groups: BTreeSet<Name> = groups.iter().map(|group| group.parse().unwrap()).collect();
        let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let authority = self.directory.path().join("ca.pem");
        let new = NewHost {
            name: &host.parse().unwrap(),
            groups: &groups,
            labels: &labels,
            server: &self.address,
            authority: Some(&authority),
            renew: false,
        };
        let bundle = self.office().enroll(&new).unwrap();
        let mut config = HostConfig::read(&bundle.join("fleet.toml")).unwrap();
        assert_eq!(config.seed.as_deref(), Some(Path::new("/etc/longrun/fleet.nk")));
        config.seed = Some(bundle.join("fleet.nk"));
        config.ca = Some(authority);
        config
    }

    /// It does nothing more, and its connections stay.
    pub fn hold(&self) {
        self.signal("-STOP");
        // A thread that is at work on another processor stops a little later, and may answer until then. The kernel tells the
        // parent when all of them have.
        waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED).unwrap();
    }

    /// It works again.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// It is gone.
    pub fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Has the server read its accounts anew, twice: after the first time, 2.9 does not know the imports of new accounts.
    pub async fn reload(&self) {
        self.reload_once().await;
        self.reload_once().await;
    }

    async fn reload_once(&self) {
        let done =
            || std::fs::read_to_string(self.directory.path().join("log")).unwrap().matches("Reloaded server").count();
        let before = done();
        self.signal("-HUP");
        for _ in 0..200 {
            if done() > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", std::fs::read_to_string(self.directory.path().join("log")).unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What the server says to a connection that it refuses something.
pub type Said = Arc<Mutex<Vec<String>>>;

/// A bare connection as a host, for acts that the agent has no words for.
pub async fn client(config: &HostConfig) -> Result<(Client, Said), async_nats::ConnectError> {
    let said = Said::default();
    let into = said.clone();
    let mut options = ConnectOptions::new()
        .custom_inbox_prefix(config.inbox_prefix())
        .request_timeout(Some(Duration::from_millis(700)))
        .add_root_certificates(config.ca.clone().unwrap())
        .require_tls(true)
        .event_callback(move |event| {
            into.lock().unwrap().push(event.to_string());
            async {}
        });
    if let Some(seed) = &config.seed {
        options = options.nkey(std::fs::read_to_string(seed).unwrap().trim().to_owned());
    }
    Ok((options.connect(config.server.clone()).await?, said))
}

/// An authority and a certificate of the server, with the lines of the manual.
fn certificates(directory: &Path) {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3 -subj '/CN=fleet CA' \
            -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem && \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=nats' -keyout server.key -out server.csr && \
        printf 'subjectAltName=IP:127.0.0.1\\nbasicConstraints=CA:FALSE\\n' > server.ext && \
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3 -extfile server.ext -out server.pem";
    let made = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
