//! Unguessable strings: a worker's secret, or a file name that nobody else has chosen.

use std::fmt::Write as _;
use std::io;

/// Returns 128 random bits as hexadecimal digits.
pub(super) fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
