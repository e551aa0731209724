//! Encodes byte strings as base64, in the standard alphabet and padded, for people and for JSON.
//!
//! Written here instead of using the crate `base64`: encoding is fifteen lines, and every build would pay for an unused
//! decoder.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            // One byte fills two places, two bytes fill three.
            if place > chunk.len() {
                text.push('=');
            } else {
                text.push(char::from(ALPHABET[(group >> (18 - 6 * place)) as usize & 63]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_matches_the_examples_of_rfc_4648() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (bytes, text) in examples {
            assert_eq!(super::encode(bytes.as_bytes()), text);
        }
    }
}
