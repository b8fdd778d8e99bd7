//! Seals: what of the workspace this server wrote itself.
//!
//! Programs of `run_command` and `write_local_file` write there too, so neither a place, nor a digest, nor the id of a run proves where a file
//! is from. A seal does: a digest (HMAC-SHA256, RFC 2104) under a key that no tool shows and that lies where none of them writes. It comes from
//! whoever starts the server; without one, this process draws its own, and copies of another one are as good as none.
//!
//! Threat S1 of `docs/security.md`. Proved by: this file's test, `tests/it/wire/crawl_reuse.rs`, `tests/it/wire/research.rs`.

use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use ua_files::Folder;

use crate::digest::to_hex;

/// The variable that the key comes in.
pub const COPY_KEY: &str = "UA_COPY_KEY";
/// The file that [`copy_key`] keeps it in.
const FILE: &str = "copies.key";
/// A key has 64 digits; a file with less in it is one that is being written.
const KEY_DIGITS: usize = 64;

/// The key of this server. Printing it does not show it.
#[derive(Debug, Clone)]
pub(crate) struct Seals(SecretString);

impl Seals {
    /// With the key that was given, else with one that ends with this process.
    pub(crate) fn new(given: Option<&SecretString>) -> std::io::Result<Self> {
        let key = match given {
            Some(key) if !key.expose_secret().is_empty() => key.clone(),
            Some(_) | None => drawn()?.into(),
        };
        Ok(Self(key))
    }

    /// The seal of `text`, which is a `kind` of file: one kind is never taken for another.
    pub(crate) fn of(&self, kind: &str, text: &[u8]) -> String {
        hmac(self.0.expose_secret().as_bytes(), &[kind.as_bytes(), b"\0", text])
    }
}

/// The key that is kept in `folder`, for servers that are started one after the other; it is drawn the first time. `None` where there is no
/// such folder, or something else stands in its place.
pub fn copy_key(folder: &Path) -> Option<String> {
    let folder = Folder::open_itself(folder).ok()?;
    let read = || {
        let text = String::from_utf8(folder.read(FILE, KEY_DIGITS as u64).ok()?).ok()?;
        (text.len() == KEY_DIGITS).then_some(text)
    };
    if let Some(key) = read() {
        return Some(key);
    }
    // Whoever comes later takes what is there; of two at once, one fetches its pages again.
    folder.replace(FILE, drawn().ok()?.as_bytes()).ok()?;
    read()
}

fn drawn() -> std::io::Result<String> {
    Ok(ua_files::unguessable()? + &ua_files::unguessable()?)
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> String {
    const BLOCK: usize = 64;
    let shortened = Sha256::digest(key);
    let key = if key.len() > BLOCK { shortened.as_slice() } else { key };
    let pad = |with: u8| {
        let padded = key.iter().copied().chain(std::iter::repeat(0)).take(BLOCK);
        padded.map(|byte| byte ^ with).collect::<Vec<u8>>()
    };
    let mut inner = Sha256::new_with_prefix(pad(0x36));
    for part in parts {
        inner.update(part);
    }
    to_hex(&Sha256::new_with_prefix(pad(0x5c)).chain_update(inner.finalize()).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_the_standards_and_a_key_stays() {
        // RFC 4231, test case 2, and 6, whose key is longer than a block.
        let two = hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(two, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let six = hmac(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(six, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");

        let folder = tempfile::tempdir().unwrap();
        assert_eq!(copy_key(&folder.path().join("none")), None);
        let key = copy_key(folder.path()).unwrap();
        assert_eq!((key.len(), copy_key(folder.path())), (KEY_DIGITS, Some(key.clone())));
        let seals = |key: &str| Seals::new(Some(&key.into())).unwrap().of("page", b"text");
        assert_eq!(seals(&key), seals(&key));
        assert_ne!(Seals::new(None).unwrap().of("page", b"text"), Seals::new(None).unwrap().of("page", b"text"));
    }
}
