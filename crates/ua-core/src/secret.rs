//! References to secrets, `${secret:NAME}`: what a model writes and what is stored, while the value goes to the tool alone.
//!
//! Invariants: keys, hashes and stored arguments are made of the reference; a value is put in just before the send and nowhere else; only
//! the user's own grants say which argument of which tool may hold which secret, never a job file and never a model, which could mail
//! it to itself. Proved by: this file's tests, `ua-dispatch`'s tests of planning, and the end-to-end tests `secret_references`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use crate::tool::ToolName;

const OPEN: &str = "${secret:";

/// A piece of a text with references.
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Takes a text apart. What does not end, or has no plain name, is text.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut rest, mut from) = (Vec::new(), text, 0);
    while let Some(start) = rest[from..].find(OPEN).map(|at| at + from) {
        let name = rest[start + OPEN.len()..].split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
        let Some(name) = name else {
            from = start + OPEN.len();
            continue;
        };
        pieces.push(Piece::Text(&rest[..start]));
        pieces.push(Piece::Name(name));
        (rest, from) = (&rest[start + OPEN.len() + name.len() + 1..], 0);
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Which argument of which tool may hold which secret: name → tool, as the model names it → top-level arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretGrants(pub BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl SecretGrants {
    /// Refuses references that are not granted. The error is for the model.
    ///
    /// # Errors
    /// A sentence that names the reference and says what is wrong with it.
    pub fn check(&self, tool: &ToolName, arguments: &Map<String, Value>) -> Result<(), String> {
        for (argument, value) in arguments {
            let mut found = BTreeSet::new();
            let mut in_names = false;
            collect(value, &mut found, &mut in_names);
            if in_names || pieces(argument).len() > 1 {
                return Err("a secret cannot be used in the name of a field".to_owned());
            }
            for name in found {
                let Some(tools) = self.0.get(name) else {
                    return Err(format!("there is no secret `{name}`"));
                };
                if !tools.get(&tool.raw).is_some_and(|arguments| arguments.contains(argument)) {
                    return Err(format!(
                        "the secret `{name}` may not be given to `{argument}` of `{}`; only its user can allow that",
                        tool.raw
                    ));
                }
            }
        }
        Ok(())
    }
}

impl SecretGrants {
    /// The first secret that a value refers to and that there is none of, in the order of their names.
    pub fn unknown_in<'a>(&self, value: &'a Value) -> Option<&'a str> {
        secrets_in(value).into_iter().find(|name| !self.0.contains_key(*name))
    }
}

fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>, in_names: &mut bool) {
    match value {
        Value::String(text) => found.extend(pieces(text).into_iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name),
            Piece::Text(_) => None,
        })),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found, in_names)),
        Value::Object(fields) => {
            *in_names |= fields.keys().any(|name| pieces(name).len() > 1);
            fields.values().for_each(|value| collect(value, found, in_names));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Puts values in the place of references, once: what a value holds is not looked at again.
///
/// # Errors
/// What `value` says about a name that it has no value for.
pub fn fill_secrets<E>(value: &mut Value, lookup: &mut impl FnMut(&str) -> Result<String, E>) -> Result<(), E> {
    match value {
        Value::String(text) => {
            let pieces = pieces(text);
            if pieces.len() > 1 {
                let mut filled = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => filled.push_str(text),
                        Piece::Name(name) => filled.push_str(&lookup(name)?),
                    }
                }
                *text = filled;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_secrets(item, lookup)),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| fill_secrets(field, lookup)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The names of the secrets that a value refers to, in order.
pub fn secrets_in(value: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    collect(value, &mut found, &mut false);
    found
}

/// Whoever knows the values of secrets, asked when a call is decided on: what is sent is what was decided on then.
pub trait SecretFiller: fmt::Debug + Send + Sync {
    /// Whether the arguments of a call of `tool` may hold the secrets that they refer to.
    ///
    /// # Errors
    /// Why nothing may be sent.
    fn check(&self, tool: &ToolName, arguments: &Map<String, Value>) -> Result<(), String>;

    /// What a secret holds. No record can hold it any more once it is returned.
    ///
    /// # Errors
    /// Why nobody can say.
    fn value(&self, name: &str) -> Result<String, String>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::ToolNamespace;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("an object") };
        map
    }

    #[test]
    fn only_what_the_user_granted_may_be_referred_to() {
        let arguments = BTreeSet::from(["password".to_owned()]);
        let grants = SecretGrants(BTreeMap::from([(
            "CRM".to_owned(),
            BTreeMap::from([("mcp__crm__login".to_owned(), arguments)]),
        )]));
        let login = ToolName::qualified(ToolNamespace::Mcp, "crm", "login");
        let mail = ToolName::qualified(ToolNamespace::Mcp, "mail", "send_email");
        let cases = [
            (&login, json!({"password": "${secret:CRM}"}), None),
            (&login, json!({"password": {"deep": ["Bearer ${secret:CRM}"]}}), None),
            (&login, json!({"note": "${secret:CRM}"}), Some("may not be given to `note`")),
            (
                &mail,
                json!({"password": "${secret:CRM}"}),
                Some("may not be given to `password` of `mcp__mail__send_email`"),
            ),
            (&login, json!({"password": "${secret:OTHER}"}), Some("there is no secret `OTHER`")),
            (&login, json!({"password": {"${secret:CRM}": 1}}), Some("name of a field")),
            (&login, json!({"note": "${secret:} ${secret:a b} ${secret $X ${HOME} ${secret:open"}), None),
        ];
        for (tool, arguments, wanted) in cases {
            let checked = grants.check(tool, &object(arguments.clone()));
            match wanted {
                None => assert_eq!(checked, Ok(()), "{arguments}"),
                Some(words) => {
                    assert!(checked.as_ref().is_err_and(|why| why.contains(words)), "{arguments}: {checked:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_is_put_in_once() {
        let mut value = json!({"a": "x ${secret:A}${secret:B} ${secret:A", "n": [1, "${secret:B}"]});
        let mut lookup = |name: &str| match name {
            "A" => Ok("${secret:B}".to_owned()),
            "B" => Ok("b".to_owned()),
            other => Err(other.to_owned()),
        };
        fill_secrets(&mut value, &mut lookup).unwrap();
        assert_eq!(value, json!({"a": "x ${secret:B}b ${secret:A", "n": [1, "b"]}));
        assert_eq!(fill_secrets(&mut json!("${secret:C}"), &mut lookup), Err("C".to_owned()));
    }
}
