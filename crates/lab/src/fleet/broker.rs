//! Brokers as child processes: one alone, or a cluster.

use super::host;
use crate::tool;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A cluster needs some seconds to choose its leaders.
const PATIENCE: Duration = Duration::from_secs(60);

struct Broker {
    directory: PathBuf,
    port: u16,
    monitor: u16,
    child: Option<Child>,
}

/// All brokers of a campaign; killed when dropped.
pub(super) struct Brokers {
    all: Vec<Broker>,
}

impl Brokers {
    fn start(directory: &Path, count: usize) -> Result<Self> {
        let ports = free_ports(count * 3)?;
        let routes: Vec<_> =
            ports.chunks(3).filter_map(|ports| Some(format!("\"nats://127.0.0.1:{}\"", ports.get(2)?))).collect();
        let mut all = Vec::new();
        for (number, ports) in ports.chunks(3).enumerate() {
            let &[port, monitor, route] = ports else { continue };
            let own = directory.join(format!("broker-{number}"));
            fs::create_dir(&own)?;
            let mut config = format!(
                "server_name: broker-{number}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
                 jetstream {{ store_dir: {:?} }}\n",
                own.join("store")
            );
            if count > 1 {
                let routes = routes.join(", ");
                config += &format!("cluster {{ name: lab, listen: \"127.0.0.1:{route}\", routes: [{routes}] }}\n");
            }
            fs::write(own.join("config"), config)?;
            all.push(Broker { directory: own, port, monitor, child: None });
        }
        let mut brokers = Self { all };
        for number in 0..count {
            brokers.revive(number)?;
        }
        Ok(brokers)
    }

    /// Starts them with the buckets of a fleet; the configuration of its administrator.
    pub(super) fn of_a_fleet(directory: &Path, count: usize) -> Result<(Self, PathBuf)> {
        let brokers = Self::start(directory, count)?;
        let admin = directory.join("admin.toml");
        fs::write(&admin, format!("server = \"{}\"\nhost = \"admin\"\n", brokers.servers()))?;
        brokers.make_buckets(&admin)?;
        Ok((brokers, admin))
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.all.iter().map(|broker| broker.port).collect()
    }

    pub(super) fn servers(&self) -> String {
        let servers: Vec<_> = self.all.iter().map(|broker| format!("nats://127.0.0.1:{}", broker.port)).collect();
        servers.join(",")
    }

    /// Makes the buckets, as soon as the brokers can.
    pub(super) fn make_buckets(&self, admin: &Path) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let replicas = self.all.len().to_string();
        loop {
            let made = host::command(admin)?.run(&["make-buckets", "--replicas", &replicas]);
            if made.is_ok() || Instant::now() > until {
                return made.map(drop);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    pub(super) fn kill(&mut self, number: usize) {
        if let Some(child) = self.all.get_mut(number).and_then(|broker| broker.child.as_mut()) {
            _ = child.kill();
            _ = child.wait();
        }
    }

    pub(super) fn kill_all(&mut self) {
        (0..self.all.len()).for_each(|number| self.kill(number));
    }

    pub(super) fn revive(&mut self, number: usize) -> Result<()> {
        let broker = self.all.get_mut(number).context("no such broker")?;
        let log = File::options().create(true).append(true).open(broker.directory.join("log"))?;
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(broker.directory.join("config"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        longrun_sys::end_with_us(&mut command);
        broker.child = Some(command.spawn().context("cannot run nats-server: is it installed?")?);
        Ok(())
    }

    /// A disk that was replaced.
    pub(super) fn lose_data(&self, number: usize) -> Result<()> {
        let broker = self.all.get(number).context("no such broker")?;
        _ = fs::remove_dir_all(broker.directory.join("store"));
        Ok(())
    }

    /// Copies the data of a broker that is down aside, or back: power lost, and not all that was written was on the disk.
    pub(super) fn copy_data(&self, number: usize, back: bool) -> Result<bool> {
        let broker = self.all.get(number).context("no such broker")?;
        let (store, older) = (broker.directory.join("store"), broker.directory.join("older"));
        let (from, to) = if back { (&older, &store) } else { (&store, &older) };
        if !from.exists() {
            return Ok(false);
        }
        _ = fs::remove_dir_all(to);
        tool::run("cp", ["-a".as_ref(), from.as_os_str(), to.as_os_str()])?;
        Ok(true)
    }

    pub(super) fn signal(&self, number: usize, signal: Signal) {
        if let Some(child) = self.all.get(number).and_then(|broker| broker.child.as_ref()) {
            _ = kill_process(Pid::from_child(child), signal);
        }
    }

    pub(super) fn resident_kib(&self) -> u64 {
        let children = self.all.iter().filter_map(|broker| broker.child.as_ref());
        children.map(|child| host::resident_kib(child.id())).max().unwrap_or(0)
    }

    /// Messages that clients sent and got.
    pub(super) fn messages(&self) -> Result<u64> {
        let mut sum = 0;
        for broker in &self.all {
            let mut stream = TcpStream::connect(("127.0.0.1", broker.monitor))?;
            stream.write_all(b"GET /connz?limit=100000 HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (_, body) = answer.split_once("\r\n\r\n").context("no answer of the monitor")?;
            let told: serde_json::Value = serde_json::from_str(body)?;
            let connections = told.get("connections").and_then(serde_json::Value::as_array);
            ensure!(connections.is_some(), "the monitor shows no connections");
            for connection in connections.into_iter().flatten() {
                let count = |name| connection.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
                sum += count("in_msgs") + count("out_msgs");
            }
        }
        Ok(sum)
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Ports that nobody listens on: held all at once, so that they differ.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
