//! Entry points for the fuzz targets in `fuzz/` and for the tests here: unchecked bytes pass through the same
//! functions as the bytes of a worker.

use bytes::BytesMut;

use crate::logging::Logging;
use crate::transport::fuzzing::cut_frames;
use crate::worker::Output;

/// The maximum length of a frame or line in these tests.
const LIMIT: usize = 1 << 20;

fn output() -> std::sync::Arc<Output> {
    let worker = crate::custody::WorkerId::new("fuzzed-1").expect("an id");
    Output::new(worker, Logging::default())
}

/// Reads frames, as they arrive on a worker's socket.
pub fn frames(bytes: &[u8]) {
    let _ = cut_frames(&mut BytesMut::from(bytes), &output(), LIMIT);
}

/// Reads the value of a frame in all the ways that callers use.
pub fn value(bytes: &[u8]) {
    let Some((&flag, payload)) = bytes.split_first() else { return };
    let payload = bytes::Bytes::copy_from_slice(payload);
    let Ok(value) = crate::value::Encoded::from_worker(payload, (flag & 1 == 1).into(), LIMIT) else {
        return;
    };
    let _ = value.to_value();
    let _ = value.decode::<Vec<String>>();
    let _ = value.decode::<std::collections::HashMap<String, u64>>();
    let _ = value.flagged(|_, value| value.to_value());
    let _ = crate::call::RemoteError::read(&value);
}

/// Reads lines of standard output. The first byte is the length of the pieces in which they arrive.
#[cfg(feature = "stdio")]
pub fn lines(bytes: &[u8]) {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    crate::stdio::fuzzing::lines(bytes, usize::from(size).max(1), LIMIT);
}

/// Reads a ready line.
#[cfg(feature = "announce")]
pub fn ready_line(bytes: &[u8]) {
    crate::ready_line::fuzzing::ready_line(bytes);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// The limit for 256 KiB, in a build without optimization on a busy machine. Quadratic code takes minutes.
    const TIME: Duration = Duration::from_secs(20);
    const SIZE: usize = 256 << 10;

    fn in_time(what: &str, read: impl FnOnce()) {
        let began = Instant::now();
        read();
        assert!(began.elapsed() < TIME, "{what}: {:?}", began.elapsed());
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame.extend([1, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    /// Payloads that caused trouble, or could: deep, wide, with duplicate keys, with long integers.
    fn payloads() -> Vec<Vec<u8>> {
        let integers = [&[0xc8, 0x10, 0, 1][..], &[0x5a; 4096]].concat().repeat(SIZE / 4100);
        let log = |fields: &[u8]| [b"\x93\xa4info\xa1x".as_slice(), fields].concat();
        let keys = [&b"\x8f"[..], &b"\xa1a\x01".repeat(15)].concat().repeat(SIZE / 46);
        vec![
            vec![0x91; SIZE],
            vec![0x81; SIZE],
            vec![0xc0; SIZE],
            b"\x81\xa1a".repeat(SIZE / 3),
            log(&[&[0xdc, 0, 64][..], &integers].concat()),
            log(&keys),
            [&[0xdd, 0, 3, 0, 0][..], &vec![0xa0; SIZE]].concat(),
            [&[0xdf, 0, 1, 0, 0][..], &b"\xa1a\xc0".repeat(SIZE / 3)].concat(),
        ]
    }

    #[test]
    fn frames_are_read_in_linear_time() {
        for payload in payloads() {
            for kind in 0..=27 {
                in_time(&format!("kind {kind}"), || frames(&frame(kind, &payload)));
            }
            in_time("small frames", || frames(&frame(17, &payload[..16]).repeat(SIZE / 32)));
            in_time("a value", || value(&[&[0], payload.as_slice()].concat()));
            in_time("a value with bodies", || value(&[&[1, 0, 0, 1, 0], payload.as_slice()].concat()));
        }
    }

    #[cfg(feature = "stdio")]
    #[test]
    fn lines_are_read_in_linear_time() {
        let deep = [b"{\"id\":1,\"result\":".as_slice(), &vec![b'['; SIZE]].concat();
        for text in [
            vec![b' '; SIZE],
            vec![b'{'; SIZE],
            vec![b'\n'; SIZE],
            b" {\n".repeat(SIZE / 3),
            b"{\"id\":1".repeat(SIZE / 7),
            deep,
            [b"{\"id\":".as_slice(), &vec![b'9'; SIZE], b"}\n"].concat(),
            b"{'status': 'ready'\n".repeat(SIZE / 19),
        ] {
            in_time("lines", || lines(&[&[1], text.as_slice()].concat()));
            in_time("a ready line", || ready_line(&text));
        }
    }
}
