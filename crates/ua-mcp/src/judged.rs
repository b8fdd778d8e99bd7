//! The secrets that arguments of calls refer to: a part of where a call goes and as whom, and what is sent in the place of the references.
//!
//! An API key or an account in an argument decides as much as one in a variable of the server's entry. Invariant: what a call was decided on with is
//! what is sent; a value that became another one meanwhile is not looked at before the transport is made anew. A digest of it is in the destination,
//! the value in nothing that is kept. Proved by: this file's tests, and the end-to-end tests `secret_references`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use ua_core::{SecretFiller, ToolName, fill_secrets, secrets_in};

/// What secrets held when a call was decided on that refers to them.
pub(crate) struct JudgedSecrets {
    filler: Arc<dyn SecretFiller>,
    /// By name: what it holds, or why nobody can say.
    known: Mutex<BTreeMap<String, Result<String, String>>>,
}

impl JudgedSecrets {
    pub(crate) fn new(filler: Arc<dyn SecretFiller>) -> Self {
        Self { filler, known: Mutex::default() }
    }

    /// What the secrets that these arguments refer to add to where a call goes, by the names that people are told. One that nobody can say holds
    /// nothing; it is asked for again with each decision, and the call is not sent without.
    pub(crate) fn parts(&self, arguments: &Value) -> BTreeMap<String, Value> {
        let part = |name: &str| (format!("secret {name}"), json!(self.known(name, true).ok()));
        secrets_in(arguments).into_iter().map(part).collect()
    }

    /// Puts values in the place of references in the arguments of a call of `tool`.
    ///
    /// # Errors
    /// Why nothing may be sent.
    pub(crate) fn fill(&self, tool: &ToolName, arguments: &mut Map<String, Value>) -> Result<(), String> {
        // Who may have which may have changed since the call was planned.
        self.filler.check(tool, arguments)?;
        arguments.values_mut().try_for_each(|value| fill_secrets(value, &mut |name| self.known(name, false)))
    }

    /// What a secret held when it was first asked for. What failed then may be asked for once more.
    fn known(&self, name: &str, once_more: bool) -> Result<String, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(name) {
            Some(held) if held.is_ok() || !once_more => held.clone(),
            Some(_) | None => {
                let held = self.filler.value(name);
                known.insert(name.to_owned(), held.clone());
                held
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::ToolNamespace;

    use super::*;

    /// Holds another value each time that it is asked, and nothing the first time.
    #[derive(Debug, Default)]
    struct Changing(Mutex<u32>);

    impl SecretFiller for Changing {
        fn check(&self, _tool: &ToolName, arguments: &Map<String, Value>) -> Result<(), String> {
            if arguments.contains_key("note") { Err("not allowed".to_owned()) } else { Ok(()) }
        }

        fn value(&self, name: &str) -> Result<String, String> {
            let mut asked = self.0.lock().unwrap();
            *asked += 1;
            if *asked == 1 { Err("locked".to_owned()) } else { Ok(format!("{name} {asked}")) }
        }
    }

    #[test]
    fn what_was_decided_on_is_what_is_sent() {
        let secrets = JudgedSecrets::new(Arc::new(Changing::default()));
        let send = ToolName::qualified(ToolNamespace::Mcp, "mail", "send");
        let call = json!({"to": "${secret:ACCT}", "deep": ["as ${secret:ACCT}"]});
        let sent = || {
            let mut arguments = call.as_object().unwrap().clone();
            secrets.fill(&send, &mut arguments).map(|()| Value::Object(arguments))
        };
        // One that was not known when it was decided is not asked for behind the decision's back.
        assert_eq!(secrets.parts(&call), BTreeMap::from([("secret ACCT".to_owned(), Value::Null)]));
        assert_eq!(sent(), Err("locked".to_owned()));
        let decided = BTreeMap::from([("secret ACCT".to_owned(), json!("ACCT 2"))]);
        for _ in 0..2 {
            assert_eq!(secrets.parts(&call), decided);
            assert_eq!(sent(), Ok(json!({"to": "ACCT 2", "deep": ["as ACCT 2"]})));
        }
        assert_eq!(secrets.parts(&json!({"to": "ada", "price": "${X}"})), BTreeMap::new());
        let mut not_allowed = Map::from_iter([("note".to_owned(), json!("${secret:ACCT}"))]);
        assert_eq!(secrets.fill(&send, &mut not_allowed), Err("not allowed".to_owned()));
    }
}
