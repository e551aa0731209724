//! The socket that a worker listens on at a TCP port, and connections that reach this worker and nobody else.
//!
//! A port number proves nothing: the port of the other address family, or the same port once the worker is gone, may
//! belong to another user, who would receive the secret and the arguments. The listening socket is therefore looked
//! up before and after a connection is made. It must be the same socket both times and be held by a process of the
//! worker. Nothing is sent before that is certain.

use std::collections::HashSet;
use std::io;
#[cfg(any(target_os = "linux", test))]
use std::net::{IpAddr, Ipv6Addr};
use std::net::{Ipv4Addr, SocketAddr};
#[cfg(target_os = "linux")]
use std::sync::PoisonError;
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;

#[cfg(target_os = "linux")]
use super::pids;
use crate::custody;

/// The number of attempts to connect if the listening socket changes during the connect.
const TRIES: usize = 3;

/// The port of one worker.
#[derive(Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux tells which process holds a socket")
)]
pub(super) struct Listener {
    process: custody::WorkerProcess,
    port: u16,
    /// The inodes of the sockets that were found to be held by the worker.
    known: Mutex<HashSet<u64>>,
}

/// A listening socket, as the kernel's table shows it.
#[cfg(any(target_os = "linux", test))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SocketEntry {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
}

/// The address to connect to, and the sockets that accept connections there.
#[derive(PartialEq, Eq, Debug)]
struct Target {
    address: SocketAddr,
    inodes: Vec<u64>,
}

impl Listener {
    pub(super) fn new(process: custody::WorkerProcess, port: u16) -> Arc<Self> {
        Arc::new(Self { process, port, known: Mutex::default() })
    }

    /// Connects to the worker. Nothing has been sent on the connection yet.
    pub(super) async fn connect(self: &Arc<Self>) -> io::Result<TcpStream> {
        for _ in 0..TRIES {
            let before = self.look().await?;
            let stream = TcpStream::connect(before.address).await?;
            if self.look().await? == before {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
        }
        Err(refused(format!("the socket that listens on port {} changes all the time", self.port)))
    }

    /// Checks that the worker listens on the port.
    #[cfg(feature = "http")]
    pub(super) async fn prove(self: &Arc<Self>) -> io::Result<()> {
        self.look().await.map(drop)
    }

    #[cfg(not(target_os = "linux"))]
    async fn look(self: &Arc<Self>) -> io::Result<Target> {
        // The owner of a socket cannot be looked up here, so only the address that nearly all servers listen on is
        // used.
        Ok(Target { address: (Ipv4Addr::LOCALHOST, self.port).into(), inodes: Vec::new() })
    }

    #[cfg(target_os = "linux")]
    async fn look(self: &Arc<Self>) -> io::Result<Target> {
        let listener = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || listener.look_now());
        looked.await.map_err(io::Error::other)?
    }

    #[cfg(target_os = "linux")]
    fn look_now(&self) -> io::Result<Target> {
        let unknown = |error: io::Error| {
            let message = format!(
                "whose socket listens on port {} cannot be told ({error}): listen on the Unix socket that SNAKEPIT_SOCKET \
                 names",
                self.port
            );
            io::Error::new(error.kind(), Refusal(message))
        };
        let mut entries =
            listening(&std::fs::read_to_string("/proc/self/net/tcp").map_err(unknown)?, self.port);
        // A system without IPv6 does not have this file.
        if let Ok(table) = std::fs::read_to_string("/proc/self/net/tcp6") {
            entries.extend(listening(&table, self.port));
        }
        let (address, takers) = takers(&entries, self.port)?;
        self.check(&takers)?;
        let mut inodes: Vec<u64> = takers.iter().map(|entry| entry.inode).collect();
        inodes.sort_unstable();
        Ok(Target { address, inodes })
    }

    /// Checks that all of these sockets belong to the worker.
    #[cfg(target_os = "linux")]
    fn check(&self, entries: &[SocketEntry]) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unknown = entries.iter().filter(|entry| !known.contains(&entry.inode)).peekable();
        if unknown.peek().is_none() {
            return Ok(());
        }
        let held = pids::sockets_of(&self.process);
        if let Some(foreign) = unknown.find(|entry| !held.contains(&entry.inode)) {
            return Err(refusal(format!(
                "the socket that listens on port {} of {} is not held by a process of this worker (it is of the user with \
                 the number {}): nothing was sent; listen on the Unix socket that SNAKEPIT_SOCKET names",
                self.port, foreign.address, foreign.uid
            )));
        }
        // Closed sockets are forgotten, because the kernel may reuse their inodes.
        known.retain(|inode| held.contains(inode));
        known.extend(entries.iter().map(|entry| entry.inode));
        Ok(())
    }
}

/// The reason why nothing is sent to the process that listens.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Builds the error for a listening process that must not receive anything. A call treats it as if no process
/// listened.
#[cfg(target_os = "linux")]
pub(super) fn refusal(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, Refusal(message))
}

/// Reports whether a process listens that must not receive anything, or whose owner cannot be determined.
#[cfg(feature = "http")]
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().and_then(|cause| cause.downcast_ref::<Refusal>()).is_some()
}

/// Builds the error for a port on which no process listens.
fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, message)
}

/// Chooses the loopback address to connect to, and returns it with all sockets that may accept a connection to it.
/// The choice is final: there is no fallback to a second address.
#[cfg(any(target_os = "linux", test))]
fn takers(entries: &[SocketEntry], port: u16) -> io::Result<(SocketAddr, Vec<SocketEntry>)> {
    let taking = |to: IpAddr| -> Vec<SocketEntry> {
        let any =
            if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        entries.iter().filter(|entry| entry.address == to || entry.address == any).copied().collect()
    };
    for to in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let found = taking(to);
        if !found.is_empty() {
            return Ok((SocketAddr::new(to, port), found));
        }
    }
    Err(refused(format!("nobody listens on port {port} of the loopback")))
}

/// Returns the sockets that listen on a port, from the kernel's table.
#[cfg(any(target_os = "linux", test))]
fn listening(table: &str, port: u16) -> Vec<SocketEntry> {
    const LISTEN: &str = "0A";
    let entry = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        let (address, its_port) = local.split_once(':')?;
        if state != LISTEN || u16::from_str_radix(its_port, 16).ok()? != port {
            return None;
        }
        let (uid, inode) = (words.nth(3)?.parse().ok()?, words.nth(1)?.parse().ok()?);
        Some(SocketEntry { address: read_address(address)?, port, uid, inode })
    };
    table.lines().skip(1).filter_map(entry).collect()
}

/// Parses an address: 32-bit words in hexadecimal, each in native byte order.
#[cfg(any(target_os = "linux", test))]
fn read_address(text: &str) -> Option<IpAddr> {
    let words: Option<Vec<u32>> =
        (0..text.len() / 8).map(|at| u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()).collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(IpAddr::from(four));
    }
    let sixteen = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(Ipv6Addr::from(sixteen).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0
   1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 44 1 0 20 4 30 10 -1
";
    const TABLE_6: &str = "  sl  local_address                         remote_address st ...
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001 0 77 1 0 100
   1: 00000000000000000000000000000000:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001 0 78 1 0 100
   2: 0000000000000000FFFF00000100007F:1F93 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001 0 79 1 0 100
";

    fn on(port: u16) -> io::Result<(SocketAddr, Vec<u64>)> {
        let entries: Vec<SocketEntry> =
            listening(TABLE, port).into_iter().chain(listening(TABLE_6, port)).collect();
        let (address, takers) = takers(&entries, port)?;
        Ok((address, takers.iter().map(|entry| entry.inode).collect()))
    }

    #[test]
    fn the_owners_of_a_listening_port_are_found_in_the_kernels_socket_tables() {
        let v4 = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let v6 = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        assert_eq!(on(0x1f90).expect("a socket"), (v4(8080), vec![4242]));
        assert_eq!(on(0x1f91).expect("a socket"), (v4(8081), vec![43]));
        assert_eq!(on(0x1f92).expect("a socket"), (v6(8082), vec![78]));
        assert_eq!(on(0x1f93).expect("a socket"), (v4(8083), vec![79]));
        assert!(on(0x1f94).expect_err("nobody").to_string().contains("nobody listens"));
    }
}
