//! Who an e-mail goes to, and whether that is clear.
//!
//! Durable Jobs v1 spec §6 (`ask_human_on_ambiguous_recipient`). A pure rule over a call's arguments: nothing is guessed from
//! names, and no model is asked.

use std::fmt;

use serde_json::Value;
use ua_core::{CallPolicy, MailAddress, MailAddressError, ScopeField, look_alikes_in};

/// What is not clear about the recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is none.
    Nobody,
    /// One is no address.
    NoAddress { text: String, why: MailAddressError },
    /// Addresses that neither the job nor a person named.
    NobodyNamed(Vec<MailAddress>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => write!(f, "It names no recipient."),
            Self::NoAddress { text, why } => {
                let shown: String = text.chars().take(100).collect();
                let note = look_alikes_in(&shown).map_or_else(String::new, |note| format!(" ({note})"));
                write!(f, "The recipient {shown:?}{note} is not clear: {why}.")
            }
            Self::NobodyNamed(addresses) => {
                let shown = |address: &MailAddress| match look_alikes_in(address.as_str()) {
                    Some(note) => format!("{address} ({note})", address = address.as_str()),
                    None => address.as_str().to_owned(),
                };
                let list: Vec<String> = addresses.iter().take(10).map(shown).collect();
                write!(f, "Neither the job nor a person named {}.", list.join(", "))
            }
        }
    }
}

/// Arguments that hold recipients where no policy says which do.
const USUAL: [&str; 6] = ["to", "cc", "bcc", "recipient", "recipients", "recipient_email"];

/// Further arguments in which tools that are no mail tools take addresses.
const OF_MESSAGES: [&str; 6] = ["email", "emails", "user_email", "attendees", "invitees", "members"];

/// The recipients of a call whose effect is e-mail, or a message or an invitation to mail addresses; `None` for every other call.
pub(crate) fn recipients(policy: &CallPolicy, arguments: &Value) -> Option<Result<Vec<MailAddress>, Problem>> {
    let (object, _) = policy.effect_kind.as_ref()?.as_str().split_once('.').filter(|(_, verb)| sends(verb))?;
    if object != "email" {
        return addressed(arguments).map(Ok);
    }
    let declared: Vec<&str> = policy
        .scope
        .0
        .iter()
        .filter_map(|field| match field {
            ScopeField::Addresses(name) => Some(name.as_str()),
            ScopeField::Value(_) | ScopeField::Files(_) => None,
        })
        .collect();
    // A reply goes to whom it answers; a tool that takes no recipient is one of those, whatever it is called.
    let takes_some = !declared.is_empty() || USUAL.iter().any(|name| arguments.get(*name).is_some());
    if !takes_some {
        return None;
    }
    let names = declared.iter().copied().chain(USUAL.into_iter().filter(|name| !declared.contains(name)));
    let mut texts = Vec::new();
    for name in names {
        collect(arguments.get(name), &mut texts);
    }
    if texts.is_empty() {
        return Some(Err(Problem::Nobody));
    }
    let read = texts.into_iter().map(|text| {
        MailAddress::parse(&text).map_err(|why| match why {
            MailAddressError::Empty => Problem::Nobody,
            MailAddressError::BareName | MailAddressError::Invalid => Problem::NoAddress { text, why },
        })
    });
    Some(read.collect())
}

/// The mail addresses that a message goes to. Other names of people and places (a channel, a number) are the service's own, and nothing says
/// which of them the job means.
fn addressed(arguments: &Value) -> Option<Vec<MailAddress>> {
    let mut texts = Vec::new();
    for name in USUAL.iter().chain(&OF_MESSAGES) {
        collect(arguments.get(*name), &mut texts);
    }
    let addresses: Vec<MailAddress> = texts.iter().filter_map(|text| MailAddress::parse(text).ok()).collect();
    (!addresses.is_empty()).then_some(addresses)
}

/// Whether an effect reaches people: drafts and deletions do not.
fn sends(verb: &str) -> bool {
    matches!(verb, "send" | "forward" | "invite" | "reply" | "publish" | "post" | "notify")
}

/// Addresses as tools take them: a text with one or several, a list of them, or objects with `email` or `address`.
fn collect(value: Option<&Value>, texts: &mut Vec<String>) {
    match value {
        Some(Value::String(text)) => texts.extend(split(text)),
        Some(Value::Array(items)) => items.iter().for_each(|item| collect(Some(item), texts)),
        Some(Value::Object(fields)) => {
            let address = ["email", "address", "email_address"].iter().find_map(|name| fields.get(*name));
            collect(address, texts);
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => {}
    }
}

/// Splits at commas and semicolons that are not inside quotes or angle brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_quoted, mut depth) = (Vec::new(), String::new(), false, 0_u32);
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '<' if !is_quoted => depth += 1,
            '>' if !is_quoted => depth = depth.saturating_sub(1),
            ',' | ';' if !is_quoted && depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{EffectKind, ScopeRule};

    use super::*;

    fn policy(effect: &str) -> CallPolicy {
        CallPolicy {
            effect_kind: EffectKind::parse(effect),
            scope: ScopeRule(vec![ScopeField::Addresses("to".into()), ScopeField::Addresses("cc".into())]),
            ..CallPolicy::unclassified()
        }
    }

    fn found(arguments: &Value) -> Result<Vec<String>, String> {
        let recipients = recipients(&policy("email.send"), arguments).unwrap();
        recipients.map(|all| all.iter().map(|a| a.as_str().to_owned()).collect()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn recipients_are_read_from_texts_lists_and_objects() {
        let expected = Ok(vec!["ana@example.org".to_owned(), "bob@example.org".to_owned()]);
        assert_eq!(found(&json!({"to": ["ana@example.org", "Bob <bob@example.org>"]})), expected);
        assert_eq!(found(&json!({"to": "\"Lopez, Ana\" <ana@example.org>, bob@example.org"})), expected);
        assert_eq!(found(&json!({"to": {"email": "ana@example.org"}, "cc": "bob@example.org"})), expected);
        assert_eq!(found(&json!({"to": "ana@example.org", "bcc": ["bob@example.org"]})), expected);
    }

    /// A foreign tool is known by its name: nobody declared it, and it has no scope.
    #[test]
    fn messages_and_invitations_to_mail_addresses_have_recipients() {
        let of = |kind: &str, arguments: &Value| {
            let policy = CallPolicy {
                effect_kind: EffectKind::parse(kind),
                kind_is_guessed: true,
                ..CallPolicy::unclassified()
            };
            let found = recipients(&policy, arguments)?;
            Some(found.unwrap().iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>())
        };
        let ana = Some(vec!["ana@example.org".to_owned()]);
        assert_eq!(of("email.send", &json!({"recipients": ["ana@example.org"]})), ana);
        assert_eq!(of("message.send", &json!({"to": "Ana <ana@example.org>", "text": "hi"})), ana);
        assert_eq!(of("user.invite", &json!({"email": "ana@example.org"})), ana);
        assert_eq!(of("message.post", &json!({"channel": "#general", "text": "bob@example.org"})), None);
        assert_eq!(of("message.send", &json!({"to": "+49 30 1234"})), None, "a number is the service's own name");
        assert_eq!(
            of("event.create", &json!({"attendees": ["ana@example.org"]})),
            None,
            "nothing is sent by that word"
        );
    }

    #[test]
    fn a_recipient_that_only_looks_like_a_known_one_is_said_to_do_so() {
        let shown = |address: &str| Problem::NobodyNamed(vec![MailAddress::parse(address).unwrap()]).to_string();
        assert_eq!(shown("team@example.org"), "Neither the job nor a person named team@example.org.");
        let said = "Neither the job nor a person named t\u{435}am@example.org (its \u{435} is U+0435, which only looks like e).";
        assert_eq!(shown("t\u{435}am@example.org"), said);
    }

    #[test]
    fn what_is_no_recipient_says_why() {
        for nobody in [json!({"to": []}), json!({"to": " "}), json!({"cc": null})] {
            assert_eq!(found(&nobody), Err("It names no recipient.".to_owned()), "{nobody}");
        }
        let bare = Err("The recipient \"the boss\" is not clear: it is a name without an address.".to_owned());
        assert_eq!(found(&json!({"to": "the boss"})), bare);
        let invalid = Err("The recipient \"ana@\" is not clear: it is not a valid address.".to_owned());
        assert_eq!(found(&json!({"to": ["bob@example.org", "ana@"]})), invalid);
    }

    #[test]
    fn only_mail_that_leaves_has_recipients() {
        for effect in ["email.delete", "file.upload"] {
            assert_eq!(recipients(&policy(effect), &json!({"to": "the boss"})), None, "{effect}");
        }
        let reply = CallPolicy { scope: ScopeRule::default(), ..policy("email.reply") };
        assert_eq!(recipients(&reply, &json!({"message_id": "m-1", "body": "Yes."})), None);
    }
}
