//! Names of requests: ULIDs, the time in front, so that they sort as they came.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::time::{SystemTime, UNIX_EPOCH};

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Where names come from.
#[derive(Debug)]
pub(crate) struct Names {
    /// As much of it is read at once as many names take.
    chance: BufReader<File>,
    last: u128,
}

impl Names {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { chance: BufReader::with_capacity(512, File::open("/dev/urandom")?), last: 0 })
    }

    /// A name that sorts behind all before.
    pub(crate) fn next(&mut self) -> io::Result<String> {
        let mut chance = [0; 16];
        self.chance.read_exact(&mut chance[6..])?;
        let drawn = (millis() << 80) | u128::from_be_bytes(chance);
        // Two of one millisecond, or after the clock was set back.
        self.last = if drawn > self.last { drawn } else { self.last + 1 };
        Ok(text(self.last))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name's time only sorts it, and this program has no environment of ours"
)]
fn millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis()) & 0xFFFF_FFFF_FFFF
}

fn text(number: u128) -> String {
    (0..26).rev().map(|place| char::from(DIGITS[usize::try_from((number >> (5 * place)) & 31).unwrap_or(0)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_sort_as_they_were_given() {
        let mut names = Names::new().unwrap();
        let drawn: Vec<String> = (0..500).map(|_| names.next().unwrap()).collect();
        assert!(drawn.is_sorted() && drawn.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(drawn.iter().all(|name| name.len() == 26));
        assert_eq!(text((1 << 80) | 31), "0000000001000000000000000Z");
    }
}
