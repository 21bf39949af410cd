//! Networks of hosts as name spaces of the kernel, each with one cable to this machine, which can be unplugged: then packets are
//! lost, and the kernel sends them again when it is plugged in.
//!
//! A name space lives as long as a process of it: nothing has a name that could be left behind.

use crate::tool;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// 198.18.0.0/15 is for measuring networks (RFC 2544): so many networks of four addresses.
const SUBNETS: u32 = 1 << 15;
const PATIENCE: Duration = Duration::from_secs(30);

/// A network; gone when dropped.
pub(super) struct NameSpace {
    holder: Child,
    /// The end of the cable on this machine.
    cable: String,
    /// The address of that end.
    pub(super) address: String,
}

impl NameSpace {
    pub(super) fn open() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = std::process::id();
        // Several laboratories at a time seldom meet in one subnet; where they do, the address cannot be had twice.
        let subnet = (own * 8 + count) % SUBNETS * 4;
        let address =
            |host: u32| format!("198.{}.{}.{}", 18 + (subnet >> 16), subnet >> 8 & 255, (subnet & 255) + host);
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        longrun_sys::end_with_us(&mut command);
        let holder = command.spawn().context("cannot run unshare")?;
        let space = Self { holder, cable: format!("lab{own}n{count}"), address: address(1) };
        space.wait_until_apart()?;
        let id = space.holder.id().to_string();
        let (here, there) = (format!("{}/30", address(1)), format!("{}/30", address(2)));
        tool::run("ip", ["link", "add", &space.cable, "type", "veth", "peer", "name", "eth0", "netns", &id])?;
        tool::run("ip", ["address", "add", &here, "dev", &space.cable])?;
        space.plug(true)?;
        let inside = |arguments: &[&str]| {
            let enter = space.enter().into_iter().skip(1).chain(["ip".into()]);
            tool::run("nsenter", enter.chain(arguments.iter().map(OsString::from)))
        };
        inside(&["address", "add", &there, "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        Ok(space)
    }

    /// The words before a command that is to run there.
    pub(super) fn enter(&self) -> Vec<OsString> {
        let mut net = OsString::from("--net=");
        net.push(self.path());
        vec!["nsenter".into(), net, "--".into()]
    }

    /// Plugs the cable in, or out.
    pub(super) fn plug(&self, in_it: bool) -> Result<()> {
        tool::run("ip", ["link", "set", self.cable.as_str(), if in_it { "up" } else { "down" }]).map(drop)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    fn wait_until_apart(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        while std::fs::read_link(self.path()).context("unshare makes no network: is this root?")? == ours {
            ensure!(Instant::now() < until, "unshare makes no network within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for NameSpace {
    fn drop(&mut self) {
        _ = tool::run("ip", ["link", "delete", self.cable.as_str()]);
        _ = self.holder.kill();
        _ = self.holder.wait();
    }
}
