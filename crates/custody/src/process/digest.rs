//! FNV-1a, to avoid accidental collisions. The build script also compiles this file, so it uses only std.
//!
//! Safety does not depend on the digest: a forged digest can only make a process doubtful or a name long.

/// Returns the 64-bit FNV-1a hash of these bytes.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
