//! Random numbers from the kernel: the harness has no generator of its own to seed badly.

/// A number below `limit`.
pub fn below(limit: u64) -> u64 {
    u64::from_ne_bytes(bytes()) % limit.max(1)
}

/// A word that nothing else on this machine contains.
pub fn word() -> String {
    format!("{:016x}", u64::from_ne_bytes(bytes()))
}

fn bytes() -> [u8; 8] {
    let mut bytes = [0_u8; 8];
    // SAFETY: getrandom writes at most the given length into the buffer.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 8, "getrandom");
    bytes
}
