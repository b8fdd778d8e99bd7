//! Which tool server is it? What an entry sends to, and as whom, as one digest.
//!
//! Two entries of one name may send as two accounts: they differ in a variable or in a header alone. So all that decides where a call goes
//! enters the digest: program and arguments or the address, and what the entry's variables and headers hold. What these hold is stored
//! nowhere; the digest is made with a key of this gateway's own, so that nobody who reads the database can try values.
//!
//! Which login a person has at an address (`ua login`) is no part of it: with another one, equal effects of the session would be made again, and
//! whoever logs in anew is most often the same. It is stored with each attempt instead (`upstream/transport.rs`), so that a call in doubt is asked
//! about.
//!
//! Proved by: this file's tests, `tests/it/accounts`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use ua_core::{ShowPath as _, keyed_digest, sha256};
use ua_mcp::own_secret;

use crate::broker::{Broken, Broker};
use crate::sync::lock;
use crate::wire::Hello;

impl Broker {
    /// The digest of the tool server that an entry names.
    pub(crate) fn server_id(&self, hello: &Hello) -> Result<String, Broken> {
        let account = hello.account().map_err(Broken::new)?;
        if account.is_empty() {
            return Ok(server_id(hello, &account, ""));
        }
        Ok(server_id(hello, &account, &self.own_key()?))
    }

    /// The key of this gateway, with which digests are made of what is stored nowhere.
    pub(crate) fn own_key(&self) -> Result<Arc<str>, Broken> {
        let mut key = lock(&self.account_key);
        if let Some(key) = &*key {
            return Ok(key.clone());
        }
        let path = &self.config.account_key;
        let made = own_secret(path);
        let made =
            made.map_err(|error| Broken::new(format!("the key {} cannot be read or made: {error}", path.shown())))?;
        Ok(key.insert(made.into()).clone())
    }
}

/// Without anything that an account could be known by, it is where the calls go alone.
fn server_id(hello: &Hello, account: &BTreeMap<String, String>, key: &str) -> String {
    let place = hello.place().to_string();
    if account.is_empty() {
        return sha256(place).to_hex();
    }
    keyed_digest(key, &json!([place, account]).to_string()).to_hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(reach: &serde_json::Value) -> Hello {
        let mut all = json!({"wire": 1, "bridge": "b", "name": "mail", "command": [], "cwd": "/w", "env": {}});
        for (name, value) in reach.as_object().unwrap() {
            all[name] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn id(reach: &serde_json::Value, key: &str) -> String {
        let hello = hello(reach);
        server_id(&hello, &hello.account().unwrap(), key)
    }

    /// Every two of these are two servers, under one key and under two.
    #[test]
    fn all_that_decides_where_a_call_goes_tells_servers_apart() {
        let command = |command: &[&str], secret: &[&str], env: serde_json::Value| json!({"command": command, "secret": secret, "env": env});
        let address = |url: &str, header: &str, value: &str| json!({"url": url, "headers": [header], "secret": ["TOKEN"], "env": {"TOKEN": value}});
        let all = [
            command(&["mail"], &[], json!({})),
            command(&["mail", "a"], &[], json!({})),
            command(&["other"], &[], json!({})),
            command(&["./mail"], &[], json!({})),
            command(&["mail"], &["A"], json!({"A": "1"})),
            command(&["mail"], &["A"], json!({"A": "2"})),
            command(&["mail"], &["B"], json!({"B": "1"})),
            command(&["mail"], &["A", "B"], json!({"A": "1", "B": "2"})),
            command(&["mail"], &["A", "B"], json!({"A": "2", "B": "1"})),
            address("http://x/mcp", "Authorization: ${TOKEN}", "1"),
            address("http://x/mcp", "Authorization: ${TOKEN}", "2"),
            address("http://x/mcp", "X-Account: ${TOKEN}", "1"),
            address("http://y/mcp", "Authorization: ${TOKEN}", "1"),
            json!({"url": "http://x/mcp"}),
        ];
        let ids: std::collections::BTreeSet<String> = all.iter().map(|one| id(one, "k")).collect();
        assert_eq!(ids.len(), all.len());
        for one in all {
            let has_account =
                one.get("secret").and_then(|names| names.as_array()).is_some_and(|names| !names.is_empty());
            assert_eq!(id(&one, "k") != id(&one, "l"), has_account, "{one}");
        }
    }

    /// What says nothing about the account makes no other server.
    #[test]
    fn the_same_account_is_the_same_server() {
        let plain = json!({"command": ["mail"], "secret": ["A"], "env": {"A": "1"}});
        let ambient = json!({"command": ["mail"], "secret": ["A", "A", "UNSET"], "env": {"A": "1", "PATH": "/x", "TERM": "t"},
            "cwd": "/elsewhere", "bridge": "c"});
        assert_eq!(id(&plain, "k"), id(&ambient, "k"));
        let named = json!({"url": "http://x", "headers": ["Authorization: ${T}"], "secret": ["T"], "env": {"T": "1"}});
        let entry = json!({"url": "http://x", "headers": ["authorization: ${U}"], "secret": ["U"], "env": {"U": "1"}});
        assert_eq!(id(&named, "k"), id(&entry, "k"));
    }
}
