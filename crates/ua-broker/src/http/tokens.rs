//! Who is let in: a token for each client, of which only a digest is kept.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use ua_core::{Env, sha256};
use ua_files::Folder;

/// The most that is read of the file, in bytes: a token has a hundred.
const MOST: u64 = 4 * 1024 * 1024;

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

    /// The folder of the file, and its name there.
    fn place(&self) -> io::Result<(&Path, &OsStr)> {
        self.path.parent().zip(self.path.file_name()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn read(&self) -> io::Result<BTreeMap<String, String>> {
        let (folder, name) = self.place()?;
        match Folder::open(folder).and_then(|folder| folder.read(name, MOST)) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, all: &BTreeMap<String, String>) -> io::Result<()> {
        let (folder, name) = self.place()?;
        Folder::make(folder)?.replace_durably(name, &serde_json::to_vec_pretty(all)?)
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
    pub fn whose(&self, token: &str) -> Option<String> {
        let digest = sha256(token).to_hex();
        let all = self.read().inspect_err(|error| tracing::warn!(%error, "the tokens cannot be read")).ok()?;
        all.into_iter().find(|(_, known)| *known == digest).map(|(client, _)| client)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;
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

    #[test]
    fn a_file_of_tokens_that_is_elsewhere_or_has_no_end_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("tokens.json"), folder.path().join("elsewhere"));
        let tokens = Tokens::at(path.clone());
        let token = tokens.make("codex", &ua_core::system::env()).unwrap();
        fs::rename(&path, &elsewhere).unwrap();
        for place in [elsewhere.as_path(), Path::new("/dev/zero")] {
            std::os::unix::fs::symlink(place, &path).unwrap();
            assert_eq!(tokens.whose(&token), None, "{}", place.display());
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&elsewhere, &path).unwrap();
        assert_eq!(tokens.whose(&token).as_deref(), Some("codex"));
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(MOST + 1).unwrap();
        assert!(tokens.clients().unwrap_err().to_string().contains("more than"));
    }
}
