//! The socket that a worker listens on at a TCP port, and connections that reach this worker and nobody else.
//!
//! A port number proves nothing: the port of the other address family, or the same port once the worker is gone, may
//! belong to another user, who would receive the secret and the arguments. The listening socket is therefore looked
//! up before and after a connection is made. It must be the same socket both times and be held by a process of the
//! worker. Nothing is sent before that is certain. Connections that are made at the same time share a look.

use std::collections::HashSet;
use std::io;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv6Addr};
use std::net::{Ipv4Addr, SocketAddr};
#[cfg(target_os = "linux")]
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
#[cfg(target_os = "linux")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

#[cfg(target_os = "linux")]
mod sockets;

use tokio::net::TcpStream;

use crate::custody;
#[cfg(target_os = "linux")]
use crate::pids;
#[cfg(target_os = "linux")]
use sockets::{SocketEntry, listening_on};

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
    /// How many looks were asked for.
    asked: AtomicU64,
    last: tokio::sync::Mutex<LastLook>,
}

/// What the last look found.
#[derive(Debug, Default)]
struct LastLook {
    /// How many looks had been asked for when it began. It answers all of these, and none that was asked for later.
    answers: u64,
    found: Option<Target>,
}

/// The address to connect to, and the sockets that accept connections there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Target {
    address: SocketAddr,
    inodes: Vec<u64>,
}

impl Listener {
    pub(super) fn new(process: custody::WorkerProcess, port: u16) -> Arc<Self> {
        let (known, asked, last) = Default::default();
        Arc::new(Self { process, port, known, asked, last })
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
        Err(unsteady(self.port))
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
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let Some(found) = last.found.as_ref().filter(|_| number <= last.answers) {
            return Ok(found.clone());
        }
        let answers = self.asked.load(Ordering::SeqCst);
        let listener = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || listener.look_now());
        let found = looked.await.map_err(io::Error::other)?;
        // An error is not shared: each connection that waits looks again.
        *last = LastLook { answers, found: found.as_ref().ok().cloned() };
        found
    }

    #[cfg(target_os = "linux")]
    fn look_now(&self) -> io::Result<Target> {
        let entries = listening_on(self.port).map_err(|error| unknown_owner(self.port, &error))?;
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
            return Err(foreign_owner(self.port, foreign));
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

/// Builds the error for a port whose owner cannot be looked up.
#[cfg(target_os = "linux")]
fn unknown_owner(port: u16, error: &io::Error) -> io::Error {
    let message = format!(
        "the process that listens on port {port} cannot be determined ({error}), so nothing was sent: listen on the Unix \
         socket that SNAKEPIT_SOCKET names"
    );
    io::Error::new(error.kind(), Refusal(message))
}

/// Builds the error for a port that another process has.
#[cfg(target_os = "linux")]
fn foreign_owner(port: u16, foreign: &SocketEntry) -> io::Error {
    refusal(format!(
        "no process of this worker holds the socket that listens on port {port} of {} (its owner is user {}), so nothing \
         was sent: listen on the Unix socket that SNAKEPIT_SOCKET names",
        foreign.address, foreign.uid
    ))
}

/// Builds the error for a port whose socket is another one each time.
fn unsteady(port: u16) -> io::Error {
    refused(format!("the socket that listens on port {port} keeps changing: open it once, and keep it open"))
}

/// Builds the error for a port on which no process listens.
fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, message)
}

/// Chooses the loopback address to connect to, and returns it with all sockets that may accept a connection to it.
/// The choice is final: there is no fallback to a second address.
#[cfg(target_os = "linux")]
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
    Err(refused(format!("no process listens on port {port} of the loopback")))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use snakepit_error_texts::ErrorTexts;

    use super::*;

    fn on(entries: &[(&str, u64)]) -> io::Result<(String, Vec<u64>)> {
        let entries: Vec<SocketEntry> = entries
            .iter()
            .map(|(address, inode)| {
                let address: SocketAddr = address.parse().expect("an address");
                SocketEntry { address: address.ip(), port: address.port(), uid: 0, inode: *inode }
            })
            .collect();
        let (address, takers) = takers(&entries, 80)?;
        Ok((address.to_string(), takers.iter().map(|entry| entry.inode).collect()))
    }

    #[test]
    fn the_first_loopback_on_which_a_socket_listens_is_taken_with_all_that_may_accept_there() {
        let found = |entries| on(entries).expect("a socket");
        assert_eq!(found(&[("127.0.0.1:80", 1), ("[::1]:80", 2)]), ("127.0.0.1:80".into(), vec![1]));
        assert_eq!(found(&[("0.0.0.0:80", 1), ("127.0.0.1:80", 2)]), ("127.0.0.1:80".into(), vec![1, 2]));
        assert_eq!(found(&[("[::]:80", 1), ("10.0.0.1:80", 2)]), ("[::1]:80".into(), vec![1]));
    }

    #[test]
    fn a_port_that_is_not_the_workers_is_refused_with_the_reason() {
        let mut texts = ErrorTexts::new();
        texts.add("none", &on(&[("10.0.0.1:80", 1)]).expect_err("none"));
        texts.add("unsteady", &unsteady(80));
        texts.add("unknown", &unknown_owner(80, &io::Error::from_raw_os_error(13)));
        let foreign = SocketEntry { address: Ipv4Addr::LOCALHOST.into(), port: 80, uid: 1000, inode: 1 };
        texts.add("foreign", &foreign_owner(80, &foreign));
        insta::assert_snapshot!(texts);
    }
}
