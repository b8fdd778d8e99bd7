//! Seals: what of the workspace this server wrote itself.
//!
//! Programs of `run_command` and `write_local_file` write there too, so neither a place, nor a digest, nor the id of a run proves where a file
//! is from. A seal does: a digest (HMAC-SHA256, RFC 2104) under a key that no tool shows and that lies where none of them writes. It comes from
//! whoever starts the server; without one, this process draws its own, and copies of another one are as good as none.
//!
//! Threat S1 of `docs/security.md`. Proved by: this file's test, `tests/it/wire/crawl_reuse.rs`, `tests/it/wire/research.rs`.

use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use ua_files::{Believe, Folder};

use crate::digest::to_hex;

/// The variable that the key comes in.
pub const COPY_KEY: &str = "UA_COPY_KEY";
/// The file that [`copy_key`] keeps it in.
const FILE: &str = "copies.key";

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
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut seal = Hmac::<Sha256>::new_from_slice(self.0.expose_secret().as_bytes()).expect("a key of any length");
        for part in [kind.as_bytes(), b"\0", text] {
            seal.update(part);
        }
        to_hex(&seal.finalize().into_bytes())
    }
}

/// The key that is kept in `folder`, for servers that are started one after the other; it is drawn the first time, and where somebody put another
/// one in its place, as a checkout may do. `None` where there is no such folder, or something else stands in its place.
pub fn copy_key(folder: &Path) -> Option<String> {
    ua_files::secret(&Folder::open_itself(folder).ok()?, FILE, Believe::Marked).ok()
}

fn drawn() -> std::io::Result<String> {
    Ok(ua_files::unguessable()? + &ua_files::unguessable()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_and_a_seal_is_of_one_key_and_one_kind() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(copy_key(&folder.path().join("none")), None);
        let key = copy_key(folder.path()).unwrap();
        assert_eq!((key.len(), copy_key(folder.path())), (64, Some(key.clone())));
        let seals = |key: &str| Seals::new(Some(&key.into())).unwrap().of("page", b"text");
        assert_eq!(seals(&key), seals(&key));
        let other_kind = Seals::new(Some(&key.as_str().into())).unwrap().of("search", b"text");
        assert!(seals(&key) != other_kind && seals(&key) != seals(&"0".repeat(64)) && seals(&key).len() == 64);
        assert_ne!(Seals::new(None).unwrap().of("page", b"text"), Seals::new(None).unwrap().of("page", b"text"));
    }
}
