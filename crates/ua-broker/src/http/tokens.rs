//! Who is let in: a token for each client, of which only a digest is kept.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use ua_core::{Env, sha256};

/// The file with the tokens' digests, by the client's name. It is read for each request, so that a new token holds at once and a removed one no more.
#[derive(Debug, Clone)]
pub struct Tokens {
    path: PathBuf,
}

impl Tokens {
    /// Those of this file; there are none when it is not there.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    fn read(&self) -> io::Result<BTreeMap<String, String>> {
        match fs::read_to_string(&self.path) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, all: &BTreeMap<String, String>) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(serde_json::to_string_pretty(all)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Makes a token for a client, in the place of the one that it has. It is told once.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn make(&self, client: &str, env: &Env) -> io::Result<String> {
        let mut all = self.read()?;
        let bits: Vec<String> = (0..4).map(|_| format!("{:016x}", env.entropy.next_u64())).collect();
        let token = format!("uag_{}", bits.concat());
        all.insert(client.to_owned(), sha256(&token).to_hex());
        self.write(&all)?;
        Ok(token)
    }

    /// Takes a client's token away; `false` when it had none.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn remove(&self, client: &str) -> io::Result<bool> {
        let mut all = self.read()?;
        let had = all.remove(client).is_some();
        if had {
            self.write(&all)?;
        }
        Ok(had)
    }

    /// The clients that have one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn clients(&self) -> io::Result<Vec<String>> {
        Ok(self.read()?.into_keys().collect())
    }

    /// Whose token this is. Digests are compared, so that the time it takes tells nothing about a token.
    pub(crate) fn whose(&self, token: &str) -> Option<String> {
        let digest = sha256(token).to_hex();
        let all = self.read().inspect_err(|error| tracing::warn!(%error, "the tokens cannot be read")).ok()?;
        all.into_iter().find(|(_, known)| *known == digest).map(|(client, _)| client)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_token_lets_its_client_in_until_it_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path().join("gateway/tokens.json"));
        let env = ua_core::system::env();
        assert_eq!((tokens.clients().unwrap().len(), tokens.whose("x")), (0, None));
        let first = tokens.make("codex", &env).unwrap();
        let second = tokens.make("codex", &env).unwrap();
        assert_eq!((tokens.whose(&first), tokens.whose(&second).as_deref()), (None, Some("codex")));
        let text = fs::read_to_string(&tokens.path).unwrap();
        assert!(!text.contains(&second) && fs::metadata(&tokens.path).unwrap().mode().trailing_zeros() >= 6);
        assert!(tokens.remove("codex").unwrap() && !tokens.remove("codex").unwrap());
        assert_eq!(tokens.whose(&second), None);
    }
}
