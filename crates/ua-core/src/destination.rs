//! Where calls go: what decides which side receives them and as whom, each part by its name and as a digest.
//!
//! Durable Jobs v1 spec §8.3. An idempotency key, and a probe's *it is not there*, mean something only at the side that got the first attempt.
//! Definitions of tools do not say which side that is: the same program sends as somebody else when one variable of its entry changes. So what
//! an attempt went to is stored with it and compared before another one goes out.
//!
//! Invariant: what a variable or a header holds is in no destination. A digest is made with a secret that is not in the database, so that nobody
//! who reads that can try values.
//!
//! Proved by: this file's tests; `ua-ledger`'s table of verdicts; the end-to-end tests `destination`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Sha256;
use crate::withheld::keyed_digest;

/// How many digits of a digest are kept of a part: nobody can look for two that are equal without the secret.
const DIGITS: usize = 16;
/// The part that says whose secret the digests are made with.
const SECRET: &str = "secret";
/// The part that says whether a call goes to a tool server or stays in the program.
const TRANSPORT: &str = "its transport";
/// How parts begin that say what a secret holds, which a call's arguments name.
const OF_ARGUMENTS: &str = "secret ";

/// Where a tool's calls go, as far as the configuration decides it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Destination(BTreeMap<String, String>);

impl Destination {
    /// That calls stay in the program: it is the side that gets them, and its own functions make the effect. No digest is in it.
    pub fn of_the_program() -> Self {
        Self(BTreeMap::from([(TRANSPORT.to_owned(), "the program".to_owned())]))
    }

    /// The same without what secrets hold that the call's arguments name: where calls of its tool go.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let parts = self.0.iter().filter(|(name, _)| !name.starts_with(OF_ARGUMENTS));
        Self(parts.map(|(name, digest)| (name.clone(), digest.clone())).collect())
    }

    /// The names of the parts in which two destinations differ, in order; of one that is not known any more, all.
    pub fn changes(&self, now: Option<&Self>) -> Vec<String> {
        let empty = BTreeMap::new();
        let now = now.map_or(&empty, |now| &now.0);
        if self.0.contains_key(SECRET) != now.contains_key(SECRET) {
            return vec![TRANSPORT.to_owned()];
        }
        // Under another secret every digest is another one, whatever it is of.
        if self.0.get(SECRET) != now.get(SECRET) {
            return vec![SECRET.to_owned()];
        }
        let names = self.0.keys().chain(now.keys().filter(|name| !self.0.contains_key(*name)));
        let mut names: Vec<String> = names.filter(|name| self.0.get(*name) != now.get(*name)).cloned().collect();
        names.sort();
        names
    }

    /// The same as the end of a sentence about a tool server: which of its settings are others now.
    pub fn changes_in_words(&self, now: Option<&Self>) -> String {
        if now.is_none() {
            return "where its calls go is not known".to_owned();
        }
        let changes = self.changes(now);
        if changes.iter().any(|name| name == SECRET) {
            return "whether it sends to the same place as the same account cannot be compared: another machine or another root sent it, \
                    or `locks/destinations.key` of this one was lost"
                .to_owned();
        }
        format!("changed: {}", changes.join(", "))
    }
}

/// The secret that digests of destinations are made with. Printing it does not show it.
#[derive(Clone)]
pub struct DestinationKey(String);

impl fmt::Debug for DestinationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DestinationKey")
    }
}

impl DestinationKey {
    /// The key with this text.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The digest of a value that may hold secrets.
    pub fn digest(&self, value: &Value) -> Sha256 {
        keyed_digest(&self.0, &value.to_string())
    }

    /// The destination that these parts make, by the names that people are told when one of them changes.
    pub fn destination(&self, parts: &BTreeMap<String, Value>) -> Destination {
        let digest = |value: &Value| self.digest(value).to_hex()[..DIGITS].to_owned();
        // The name goes in, too: two parts that hold the same are not seen to.
        let mut all: BTreeMap<String, String> =
            parts.iter().map(|(name, value)| (name.clone(), digest(&serde_json::json!([name, value])))).collect();
        all.insert(SECRET.to_owned(), digest(&Value::Null));
        Destination(all)
    }

    /// The same destination with more parts: what a call itself adds to where its tool goes.
    #[must_use]
    pub fn with(&self, destination: Destination, parts: &BTreeMap<String, Value>) -> Destination {
        let Destination(mut all) = destination;
        all.extend(self.destination(parts).0);
        Destination(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(parts: &[(&str, &str)]) -> BTreeMap<String, Value> {
        parts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    }

    #[test]
    fn what_changed_is_named_and_nothing_that_is_held_is_shown() {
        let key = DestinationKey::new("k");
        let first = key.destination(&parts(&[("its program", "mail"), ("its variable ACCOUNT", "hunter2")]));
        assert_eq!(first.changes(Some(&first)), Vec::<String>::new());
        let other = key.destination(&parts(&[("its program", "mail"), ("its variable ACCOUNT", "other")]));
        assert_eq!(first.changes_in_words(Some(&other)), "changed: its variable ACCOUNT");
        let more = key.destination(&parts(&[("its address", "http://x"), ("its variable ACCOUNT", "hunter2")]));
        assert_eq!(first.changes_in_words(Some(&more)), "changed: its address, its program");
        assert_ne!(first, DestinationKey::new("l").destination(&parts(&[("its program", "mail")])));
        let text = serde_json::to_string(&first).unwrap() + &format!("{key:?}{first:?}");
        assert!(!text.contains("hunter2") && !text.contains("mail"), "{text}");
        assert_eq!(serde_json::from_str::<Destination>(&serde_json::to_string(&first).unwrap()).unwrap(), first);
        let with = |value| key.with(first.clone(), &parts(&[("secret ACCT", value)]));
        assert_eq!(with("ada").changes_in_words(Some(&with("bob"))), "changed: secret ACCT");
        assert_eq!(with("ada").without_secrets(), first);
        assert_eq!((with("ada"), first.changes(Some(&with("ada")))), (with("ada"), vec!["secret ACCT".to_owned()]));
    }

    #[test]
    fn under_another_secret_nothing_is_said_to_have_changed() {
        let made = |key: &str| DestinationKey::new(key).destination(&parts(&[("its program", "mail")]));
        assert_eq!(made("k").changes(Some(&made("l"))), ["secret"]);
        let said = made("k").changes_in_words(Some(&made("l")));
        assert!(said.contains("cannot be compared: another machine or another root sent it"), "{said}");
        assert!(made("k").changes_in_words(None).contains("not known"));
    }

    #[test]
    fn the_program_itself_is_another_place_than_a_tool_server() {
        let (own, server) =
            (Destination::of_the_program(), DestinationKey::new("k").destination(&parts(&[("its program", "mail")])));
        assert_eq!(own.changes(Some(&own)), Vec::<String>::new());
        for (then, now) in [(&own, &server), (&server, &own)] {
            assert_eq!(then.changes_in_words(Some(now)), "changed: its transport");
        }
        assert!(own.changes_in_words(None).contains("not known"));
    }

    /// The digits of equal values are not equal, so that what two variables hold is not seen to be the same.
    #[test]
    fn two_parts_that_hold_the_same_have_two_digests() {
        let made = DestinationKey::new("k").destination(&parts(&[("a", "x"), ("b", "x")]));
        assert_ne!(made.0["a"], made.0["b"]);
    }
}
