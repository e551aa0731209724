//! The sockets that listen on a port, as the kernel lists them.
//!
//! The kernel is asked by netlink (`sock_diag`), which walks only the sockets that listen: 40 µs. The files
//! `/proc/net/tcp` and `tcp6` have the same, but walk the table of all connections, which takes ten milliseconds of
//! CPU time even if it is empty. They are read where netlink is not available, as in some sandboxes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, netlink, recv, send, socket_with,
    sockopt,
};

/// A listening socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SocketEntry {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) uid: u32,
    pub(super) inode: u64,
}

/// Returns the sockets that listen on a port of any address.
///
/// Blocks while the kernel is asked.
pub(super) fn listening_on(port: u16) -> io::Result<Vec<SocketEntry>> {
    if let Ok(entries) = ask_kernel(port) {
        return Ok(entries);
    }
    let mut entries = listed(&std::fs::read_to_string("/proc/self/net/tcp")?, port);
    // A system without IPv6 does not have this file.
    if let Ok(table) = std::fs::read_to_string("/proc/self/net/tcp6") {
        entries.extend(listed(&table, port));
    }
    Ok(entries)
}

/// The messages of netlink, from `linux/netlink.h`, `sock_diag.h` and `inet_diag.h`. Numbers are in native byte order,
/// except ports and addresses.
mod message {
    /// The length of the header before every message: its length, type, flags, sequence number and port id.
    pub(super) const HEADER: usize = 16;
    pub(super) const REQUEST_LENGTH: usize = HEADER + 56;
    /// The length of the part of an answer that every socket has.
    pub(super) const SOCKET: usize = 72;
    /// `SOCK_DIAG_BY_FAMILY`, the type of requests and of answers.
    pub(super) const BY_FAMILY: u16 = 20;
    /// `NLMSG_ERROR` and `NLMSG_DONE`.
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    /// `NLM_F_REQUEST | NLM_F_DUMP`.
    pub(super) const DUMP: u16 = 0x301;
    /// `AF_INET`, `AF_INET6` and `IPPROTO_TCP`.
    pub(super) const INET: u8 = 2;
    pub(super) const INET_6: u8 = 10;
    pub(super) const TCP: u8 = 6;
    /// `TCP_LISTEN`, as a bit in the set of states.
    pub(super) const LISTENING: u32 = 1 << 10;
}

/// How long the kernel's answer may take. It is usually there at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kernel sends at most 32 KiB at a time.
const LARGEST_ANSWER: usize = 64 * 1024;

fn ask_kernel(port: u16) -> io::Result<Vec<SocketEntry>> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let kernel = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
    // Connected to the kernel, the socket takes messages from nobody else.
    connect(&kernel, &netlink::SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&kernel, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let mut entries = Vec::new();
    let mut answer = vec![0; LARGEST_ANSWER];
    for family in [message::INET, message::INET_6] {
        send(&kernel, &request(family, port), SendFlags::empty())?;
        loop {
            let (_, length) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
            if read_answer(answer.get(..length).unwrap_or_default(), port, &mut entries)? == DumpState::Done {
                break;
            }
        }
    }
    Ok(entries)
}

fn request(family: u8, port: u16) -> [u8; message::REQUEST_LENGTH] {
    let mut request = [0; message::REQUEST_LENGTH];
    request[..4].copy_from_slice(&(message::REQUEST_LENGTH as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&message::BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&message::DUMP.to_ne_bytes());
    request[16..18].copy_from_slice(&[family, message::TCP]);
    request[20..24].copy_from_slice(&message::LISTENING.to_ne_bytes());
    // The port to look for. All else of the socket's id is left open, which for the cookie is written as ones.
    request[24..26].copy_from_slice(&port.to_be_bytes());
    request[64..].fill(0xff);
    request
}

/// Whether more of an answer follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DumpState {
    More,
    Done,
}

/// Adds the sockets of a part of the kernel's answer.
fn read_answer(mut answer: &[u8], port: u16, entries: &mut Vec<SocketEntry>) -> io::Result<DumpState> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    while !answer.is_empty() {
        let length = u32_at(answer, 0).ok_or_else(odd)? as usize;
        let message = answer.get(..length).filter(|_| length >= message::HEADER).ok_or_else(odd)?;
        match u16::from_ne_bytes([message[4], message[5]]) {
            message::DONE => return Ok(DumpState::Done),
            message::ERROR => {
                let code = u32_at(message, message::HEADER).ok_or_else(odd)?;
                return Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()));
            }
            message::BY_FAMILY => {
                let entry = read_socket(&message[message::HEADER..]).ok_or_else(odd)?;
                entries.extend((entry.port == port).then_some(entry));
            }
            _ => {}
        }
        // Messages begin at multiples of four.
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(DumpState::More)
}

/// Reads a `struct inet_diag_msg`.
fn read_socket(socket: &[u8]) -> Option<SocketEntry> {
    let socket = socket.get(..message::SOCKET)?;
    let address = match socket[0] {
        message::INET => IpAddr::from(<[u8; 4]>::try_from(&socket[8..12]).ok()?),
        message::INET_6 => Ipv6Addr::from(<[u8; 16]>::try_from(&socket[8..24]).ok()?).to_canonical(),
        _ => return None,
    };
    let port = u16::from_be_bytes([socket[4], socket[5]]);
    Some(SocketEntry { address, port, uid: u32_at(socket, 64)?, inode: u32_at(socket, 68)?.into() })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the sockets that listen on a port, from the kernel's table as text.
fn listed(table: &str, port: u16) -> Vec<SocketEntry> {
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
fn read_address(text: &str) -> Option<IpAddr> {
    let words: Option<Vec<u32>> =
        (0..text.len() / 8).map(|at| u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()).collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(four).into());
    }
    let sixteen = <[u8; 16]>::try_from(bytes.as_slice()).ok()?;
    Some(Ipv6Addr::from(sixteen).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::AsFd;

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

    #[test]
    fn the_tables_of_the_kernel_are_read() {
        let on = |port| -> Vec<(SocketAddr, u32, u64)> {
            let entries = listed(TABLE, port).into_iter().chain(listed(TABLE_6, port));
            entries.map(|it| (SocketAddr::new(it.address, it.port), it.uid, it.inode)).collect()
        };
        let socket = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(on(0x1f90), [(socket("127.0.0.1:8080"), 1000, 4242), (socket("[::1]:8080"), 1001, 77)]);
        assert_eq!(on(0x1f91), [(socket("0.0.0.0:8081"), 0, 43)]);
        assert_eq!(on(0x1f92), [(socket("[::]:8082"), 1001, 78)]);
        assert_eq!(on(0x1f93), [(socket("127.0.0.1:8083"), 1001, 79)]);
        assert_eq!(on(0x1f94), []);
    }

    #[test]
    fn netlink_and_the_tables_say_the_same() {
        let v4 = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = v4.local_addr().expect("an address").port();
        // Without IPv6, one socket is enough.
        let v6 = TcpListener::bind(("::1", port));
        let mut tables = Vec::new();
        for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            tables.extend(listed(&std::fs::read_to_string(table).unwrap_or_default(), port));
        }
        let asked = ask_kernel(port).expect("netlink");
        assert_eq!(asked, tables);
        assert_eq!(asked.len(), 1 + usize::from(v6.is_ok()));
        let inode = rustix::fs::fstat(v4.as_fd()).expect("a socket").st_ino;
        assert_eq!((asked[0].address, asked[0].inode), ("127.0.0.1".parse().expect("an address"), inode));
        drop((v4, v6));
        assert_eq!(ask_kernel(port).expect("netlink"), []);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        let mut socket = [0; message::HEADER + message::SOCKET];
        socket[..4].copy_from_slice(&88_u32.to_ne_bytes());
        socket[4..6].copy_from_slice(&message::BY_FAMILY.to_ne_bytes());
        socket[16] = message::INET;
        socket[20..22].copy_from_slice(&80_u16.to_be_bytes());
        let read = |answer: &[u8]| {
            let mut entries = Vec::new();
            read_answer(answer, 80, &mut entries).map(|progress| (progress, entries.len())).ok()
        };
        assert_eq!(read(&socket), Some((DumpState::More, 1)));
        assert_eq!(read(&[socket, socket].concat()), Some((DumpState::More, 2)));
        for length in 1..socket.len() {
            assert_eq!(read(&socket[..length]), None, "{length}");
        }
        let header = |kind: u16| {
            let mut header = [0; 20];
            header[0] = 20;
            header[4..6].copy_from_slice(&kind.to_ne_bytes());
            header
        };
        assert_eq!(read(&header(message::DONE)), Some((DumpState::Done, 0)));
        assert_eq!(read(&header(message::ERROR)), None);
        assert_eq!(read(&[0; 16]), None, "a length of nothing");
    }
}
