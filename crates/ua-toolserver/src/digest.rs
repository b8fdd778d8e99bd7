//! SHA-256 in hexadecimal digits: of bytes at hand, and of what passes through a copy.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// The SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
pub(crate) fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    to_hex(&Sha256::digest(bytes.as_ref()))
}

/// Copies `from` to `to` and returns the SHA-256 and the length of what was copied.
pub(crate) fn copy_hashing(from: &mut impl Read, to: &mut impl Write) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut bytes = 0_u64;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((to_hex(&hasher.finalize()), bytes)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let chunk = buffer.get(..count).unwrap_or_default();
        hasher.update(chunk);
        to.write_all(chunk)?;
        bytes += count as u64;
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a `String` cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree_with_the_standard_vector() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex("abc"), expected);
        let mut copy = Vec::new();
        assert_eq!(copy_hashing(&mut b"abc".as_slice(), &mut copy).unwrap(), (expected.to_owned(), 3));
        assert_eq!(copy, b"abc");
    }
}
