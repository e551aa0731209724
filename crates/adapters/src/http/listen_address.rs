//! The choice of a worker's address: a Unix socket in a private directory, or a free port of the loopback.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::ServerAddress;
use crate::Program;
use crate::adapter::{Spawner, StartError};
use crate::custody;
use crate::listener::Listener;
use crate::socket_dir::SocketDir;

/// The placeholder for the path of the socket, in the arguments and variables of a program.
const SOCKET_MARK: &str = "{socket}";
/// The placeholder for the port.
const PORT_MARK: &str = "{port}";

/// The number of attempts to find a free port that no other worker was given.
const TRIES: usize = 100;

/// The kind of address that a program gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListenOffer {
    Socket,
    /// A port that the host chooses.
    FreePort,
    /// A port that the pool's options name.
    Port(u16),
}

impl ListenOffer {
    /// Chooses by the placeholders in a program's arguments and variables. Without a placeholder, chooses the socket.
    pub(super) fn of(program: &Program, port: Option<u16>) -> Result<Self, String> {
        let has =
            |mark: &str| program.texts().any(|text| text.to_str().is_some_and(|text| text.contains(mark)));
        match (has(SOCKET_MARK), has(PORT_MARK), port) {
            (true, true, _) => Err(format!("its program names both {SOCKET_MARK} and {PORT_MARK}: keep one")),
            (true, false, Some(port)) => {
                Err(format!("its program names {SOCKET_MARK}, but its port is set to {port}: keep one"))
            }
            (false, _, Some(port)) => Ok(Self::Port(port)),
            (false, true, None) => Ok(Self::FreePort),
            (_, false, None) => Ok(Self::Socket),
        }
    }
}

/// The address that a worker was told to listen on, kept for as long as the worker lives.
#[derive(Debug)]
pub(super) enum ToldAddress {
    Socket(SocketDir),
    Port(ReservedPort),
}

impl ToldAddress {
    pub(super) fn new(offer: ListenOffer, spawner: &Spawner) -> Result<Self, StartError> {
        match offer {
            ListenOffer::Socket => {
                let home = SocketDir::new(spawner.run_dir(), "http");
                Ok(Self::Socket(home.map_err(|error| spawner.system("a directory for its socket", error))?))
            }
            ListenOffer::FreePort => {
                let port = ReservedPort::free().map_err(|error| spawner.system("a free port", error))?;
                Ok(Self::Port(port))
            }
            ListenOffer::Port(number) => Ok(Self::Port(ReservedPort { number, is_ours: false })),
        }
    }

    /// Replaces the placeholders in a word of the program.
    pub(super) fn fill(&self, word: &OsStr) -> OsString {
        let Some(text) = word.to_str() else { return word.to_owned() };
        match self {
            Self::Socket(home) if text.contains(SOCKET_MARK) => {
                text.replace(SOCKET_MARK, &home.socket().to_string_lossy()).into()
            }
            Self::Port(port) => text.replace(PORT_MARK, &port.number.to_string()).into(),
            Self::Socket(_) => word.to_owned(),
        }
    }

    /// Returns the environment variable that carries the address.
    pub(super) fn variable(&self) -> (&'static str, OsString) {
        match self {
            Self::Socket(home) => (super::SOCKET, home.socket().into()),
            Self::Port(port) => (super::PORT, port.number.to_string().into()),
        }
    }

    /// Describes the address for error messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Socket(home) => format!("the Unix socket {}", home.socket().display()),
            Self::Port(port) => format!("port {} of the loopback", port.number),
        }
    }

    /// Removes the directory of the socket, once the worker is gone.
    pub(super) fn remove(&self) {
        match self {
            Self::Socket(home) => home.remove(),
            Self::Port(_) => {}
        }
    }

    /// Returns the address to connect to.
    pub(super) fn listening(&self, process: &custody::WorkerProcess) -> ListeningServer {
        match self {
            Self::Socket(home) => ListeningServer::Socket(home.socket()),
            Self::Port(port) => ListeningServer::Port(Listener::new(process.clone(), port.number)),
        }
    }
}

/// The address that a worker listens on.
pub(super) enum ListeningServer {
    Socket(PathBuf),
    Port(Arc<Listener>),
}

impl ListeningServer {
    /// Returns the address for a client. Called for every poll of a starting worker, because its user may change.
    pub(super) fn place(&self, process: &custody::WorkerProcess) -> ServerAddress {
        match self {
            Self::Socket(path) => ServerAddress::Socket(path.clone(), users_of(process)),
            Self::Port(listener) => ServerAddress::Port(Arc::clone(listener)),
        }
    }
}

/// Returns the users that may listen for a worker: this user, root, and the user that the worker has become.
fn users_of(process: &custody::WorkerProcess) -> Vec<u32> {
    let status = std::fs::metadata(format!("/proc/{}", process.pid().as_raw()));
    let worker = status.ok().map(|status| std::os::unix::fs::MetadataExt::uid(&status));
    [0, rustix::process::geteuid().as_raw()].into_iter().chain(worker).collect()
}

/// A port that was free when the system was asked. This process gives it to no other worker until it is dropped.
#[derive(Debug)]
pub(super) struct ReservedPort {
    number: u16,
    /// Whether the host chose the port.
    is_ours: bool,
}

static RESERVED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

fn reserved() -> MutexGuard<'static, BTreeSet<u16>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReservedPort {
    fn free() -> io::Result<Self> {
        // The rejected ports stay bound until the search ends, so that the system does not offer them again.
        let mut others = Vec::new();
        for _ in 0..TRIES {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let number = listener.local_addr()?.port();
            if reserved().insert(number) {
                return Ok(Self { number, is_ours: true });
            }
            others.push(listener);
        }
        Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "all ports that the system offers are taken"))
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        if self.is_ours {
            reserved().remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_names_is_what_it_is_offered() {
        let of = |words: &[&str], port| ListenOffer::of(&Program::new(words.iter().copied()), port);
        assert_eq!(of(&["serve"], None), Ok(ListenOffer::Socket));
        assert_eq!(of(&["serve", "--uds={socket}"], None), Ok(ListenOffer::Socket));
        assert_eq!(of(&["serve", "--port", "{port}"], None), Ok(ListenOffer::FreePort));
        assert_eq!(of(&["serve", "--port", "{port}"], Some(80)), Ok(ListenOffer::Port(80)));
        assert_eq!(of(&["serve"], Some(80)), Ok(ListenOffer::Port(80)));
        assert_eq!(
            ListenOffer::of(&Program::new(["serve"]).env("PORT", "{port}"), None),
            Ok(ListenOffer::FreePort)
        );
        assert!(of(&["{port}", "{socket}"], None).is_err_and(|fault| fault.contains("keep one")));
        assert!(of(&["{socket}"], Some(80)).is_err_and(|fault| fault.contains("keep one")));
    }

    #[test]
    fn no_two_workers_are_told_the_same_port() {
        let ports: Vec<ReservedPort> = (0..50).map(|_| ReservedPort::free().expect("a port")).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers.len(), 50);
        drop(ports);
        assert!(numbers.is_disjoint(&reserved()));
    }
}
