//! The network between hosts and brokers: links that can be frozen, after which what was sent arrives late, and cut.
//!
//! Each host is on one of several networks; on each there is a link to each broker. Where networks are name spaces of the kernel,
//! the cable between host and link can be unplugged, too.

use super::name_space::NameSpace;
use anyhow::Result;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How many networks there are.
pub(super) const NETWORKS: usize = 4;
const LOOK: Duration = Duration::from_millis(20);
const LOOPBACK: &str = "127.0.0.1";

#[derive(Default)]
struct Network {
    frozen: AtomicBool,
    /// Counts the cuts: connections of before are gone.
    cuts: AtomicU64,
    ended: AtomicBool,
}

/// All links.
pub(super) struct Links {
    networks: Vec<Arc<Network>>,
    /// For each network, the ports of its links.
    ports: Vec<Vec<u16>>,
    /// The networks, where they are name spaces.
    spaces: Vec<NameSpace>,
}

impl Links {
    pub(super) fn open(brokers: &[u16], name_spaces: bool) -> Result<Self> {
        let networks: Vec<_> = (0..NETWORKS).map(|_| Arc::new(Network::default())).collect();
        let spaces =
            (0..if name_spaces { NETWORKS } else { 0 }).map(|_| NameSpace::open()).collect::<Result<Vec<_>>>()?;
        let mut ports = Vec::new();
        for (number, network) in networks.iter().enumerate() {
            let mut own = Vec::new();
            for &broker in brokers {
                let listener = TcpListener::bind((address(&spaces, number), 0))?;
                own.push(listener.local_addr()?.port());
                let network = Arc::clone(network);
                thread::spawn(move || accept(&listener, broker, &network));
            }
            ports.push(own);
        }
        Ok(Self { networks, ports, spaces })
    }

    /// The brokers as this host reaches them.
    pub(super) fn servers(&self, host: usize) -> String {
        let network = host % NETWORKS;
        let ports = self.ports.get(network).into_iter().flatten();
        let address = address(&self.spaces, network);
        let servers: Vec<_> = ports.map(|port| format!("nats://{address}:{port}")).collect();
        servers.join(",")
    }

    /// The words before a command that is to run on this host.
    pub(super) fn enter(&self, host: usize) -> Vec<OsString> {
        self.spaces.get(host % NETWORKS).map(NameSpace::enter).unwrap_or_default()
    }

    /// Whether there are cables that can be unplugged.
    pub(super) fn has_cables(&self) -> bool {
        !self.spaces.is_empty()
    }

    pub(super) fn plug(&self, network: usize, in_it: bool) -> Result<()> {
        self.spaces.get(network).map_or(Ok(()), |space| space.plug(in_it))
    }

    pub(super) fn freeze(&self, network: usize, frozen: bool) {
        if let Some(network) = self.networks.get(network) {
            network.frozen.store(frozen, Ordering::SeqCst);
        }
    }

    pub(super) fn cut(&self, network: usize) {
        if let Some(network) = self.networks.get(network) {
            network.cuts.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for (number, (network, ports)) in self.networks.iter().zip(&self.ports).enumerate() {
            network.ended.store(true, Ordering::SeqCst);
            network.cuts.fetch_add(1, Ordering::SeqCst);
            // Wakes those that wait for connections.
            ports.iter().for_each(|&port| drop(TcpStream::connect((address(&self.spaces, number), port))));
        }
    }
}

/// Where the links of a network listen.
fn address(spaces: &[NameSpace], network: usize) -> &str {
    spaces.get(network).map_or(LOOPBACK, |space| &space.address)
}

fn accept(listener: &TcpListener, broker: u16, network: &Arc<Network>) {
    for client in listener.incoming().flatten() {
        if network.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect((LOOPBACK, broker)) else { continue };
        let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
        let born = network.cuts.load(Ordering::SeqCst);
        let (there, back) = (Arc::clone(network), Arc::clone(network));
        thread::spawn(move || pass(client, server, &there, born));
        thread::spawn(move || pass(server_too, client_too, &back, born));
    }
}

/// Passes on what comes, later while the network is frozen.
fn pass(mut from: TcpStream, mut to: TcpStream, network: &Network, born: u64) {
    let mut buffer = [0; 16 << 10];
    _ = from.set_read_timeout(Some(LOOK * 50));
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => 0,
            Err(_) => break,
        };
        while network.frozen.load(Ordering::SeqCst) && network.cuts.load(Ordering::SeqCst) == born {
            thread::sleep(LOOK);
        }
        if network.cuts.load(Ordering::SeqCst) != born || to.write_all(buffer.get(..got).unwrap_or_default()).is_err() {
            break;
        }
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}
