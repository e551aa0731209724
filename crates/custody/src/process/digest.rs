//! FNV-1a, against accidental collisions. The build script compiles this file too, so it uses only std.
//!
//! Safety does not depend on it: a forged digest makes a process doubtful or a name long, and nothing else.

/// The 64-bit FNV-1a hash of these bytes.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
