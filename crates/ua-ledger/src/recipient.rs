//! Who an e-mail goes to, and whether that is clear.
//!
//! Durable Jobs v1 spec §6 (`ask_human_on_ambiguous_recipient`). A pure rule over a call's arguments: nothing is guessed from
//! names, and no model is asked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;
use ua_core::{CallPolicy, MailAddress, MailAddressError, ScopeField, look_alikes_in};

use crate::people::CallsOf;

/// What is not clear about the recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is none.
    Nobody,
    /// One is no address.
    NoAddress { text: String, why: MailAddressError },
    /// Addresses, numbers and names that neither the job nor a person named.
    NobodyNamed(Vec<String>),
}

impl Problem {
    /// The problem as a sentence. What could have named a recipient is called as the run has it.
    pub(crate) fn in_words(&self, calls_of: CallsOf) -> String {
        match self {
            Self::Nobody => "It names no recipient.".to_owned(),
            Self::NoAddress { text, why } => {
                let shown: String = text.chars().take(100).collect();
                let note = look_alikes_in(&shown).map_or_else(String::new, |note| format!(" ({note})"));
                format!("The recipient {shown:?}{note} is not clear: {why}.")
            }
            Self::NobodyNamed(addresses) => {
                let shown = |address: &String| match look_alikes_in(address) {
                    Some(note) => format!("{address} ({note})"),
                    None => address.clone(),
                };
                let list: Vec<String> = addresses.iter().take(10).map(shown).collect();
                format!("Neither the {} nor a person named {}.", calls_of.noun(), list.join(", "))
            }
        }
    }
}

/// Arguments that hold recipients where no policy says which do: what stands in them has to be an address.
const USUAL: [&str; 6] = ["to", "cc", "bcc", "recipient", "recipients", "recipient_email"];

/// What is said, and who says it. Whatever is called otherwise and is an address is one that something goes to: tools call it as they like
/// (`toRecipients`, `contact`, `personalizations`).
const NOT_TO: [&str; 15] = [
    "body",
    "comment",
    "content",
    "description",
    "from",
    "html",
    "message",
    "plain",
    "reply_to",
    "replyto",
    "sender",
    "signature",
    "subject",
    "text",
    "title",
];

/// The headers of a mail that say where it goes.
const TO_HEADERS: [&str; 6] = ["bcc", "cc", "resent-bcc", "resent-cc", "resent-to", "to"];

/// The recipients of a call whose effect is e-mail, or a message or an invitation to mail addresses; `None` for every other call.
pub(crate) fn recipients(policy: &CallPolicy, arguments: &Value) -> Option<Result<Vec<MailAddress>, Problem>> {
    let (object, verb) = policy.effect_kind.as_ref()?.as_str().split_once('.').filter(|(_, verb)| sends(verb))?;
    let elsewhere = addressed(arguments);
    if object != "email" {
        return (!elsewhere.is_empty()).then_some(Ok(elsewhere));
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
    // A reply goes to whom it answers. What sends a draft goes to somebody of whom nothing is said here.
    let takes_some = !declared.is_empty() || USUAL.iter().any(|name| arguments.get(*name).is_some());
    if !takes_some && elsewhere.is_empty() {
        return matches!(verb, "send" | "forward").then_some(Err(Problem::Nobody));
    }
    let names = declared.iter().copied().chain(USUAL.into_iter().filter(|name| !declared.contains(name)));
    let mut texts = Vec::new();
    for name in names {
        collect(arguments.get(name), &mut texts);
    }
    if texts.is_empty() && elsewhere.is_empty() {
        return Some(Err(Problem::Nobody));
    }
    let read = texts.into_iter().map(|text| {
        MailAddress::parse(&text).map_err(|why| match why {
            MailAddressError::Empty => Problem::Nobody,
            MailAddressError::BareName | MailAddressError::Invalid => Problem::NoAddress { text, why },
        })
    });
    let named: Result<Vec<MailAddress>, Problem> = read.collect();
    Some(named.map(|mut named| {
        let further: Vec<MailAddress> = elsewhere.into_iter().filter(|address| !named.contains(address)).collect();
        named.extend(further);
        named
    }))
}

/// The mail addresses in a call's arguments, however they are called and wherever they stand: those that are nothing else but addresses, and those in
/// the headers of a whole mail. Of numbers and other names, and of who is told by other effects, see [`crate::reached`].
fn addressed(arguments: &Value) -> Vec<MailAddress> {
    let mut found = Vec::new();
    look_in(arguments, "", &mut found);
    found
}

fn look_in(value: &Value, name: &str, found: &mut Vec<MailAddress>) {
    match value {
        Value::String(text) => {
            let parts = if NOT_TO.contains(&name) { Vec::new() } else { split(text) };
            let read: Vec<MailAddress> = parts.iter().filter_map(|part| MailAddress::parse(part).ok()).collect();
            let is_all = !parts.is_empty() && read.len() == parts.len();
            let addresses = if is_all { read } else { of_mail(text) };
            for address in addresses {
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look_in(item, name, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            look_in(field, &name.to_lowercase().replace('-', "_"), found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Where a whole mail goes, as it is sent over the wire, also in base64 as Gmail takes it.
fn of_mail(text: &str) -> Vec<MailAddress> {
    // Nearly every text has something in it that base64 has not: it is not copied four times to find that out.
    let may_be_packed = text.chars().all(|c| c.is_ascii_alphanumeric() || "+/-_=".contains(c) || c.is_whitespace());
    let unpacked = may_be_packed.then(|| unpacked(text)).flatten();
    let text = unpacked.as_deref().unwrap_or(text);
    let headers = text.trim_start().lines().take_while(|line| !line.trim().is_empty());
    let mut lines: Vec<String> = Vec::new();
    for line in headers {
        match lines.last_mut() {
            Some(before) if line.starts_with([' ', '\t']) => before.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    let of_headers = lines.iter().filter_map(|line| line.split_once(':'));
    let to = of_headers.filter(|(name, _)| TO_HEADERS.contains(&name.trim().to_lowercase().as_str()));
    to.flat_map(|(_, value)| split(value)).filter_map(|part| MailAddress::parse(&part).ok()).collect()
}

/// What base64 says, in the alphabet of programs or that of addresses; `None` when it says no text.
fn unpacked(text: &str) -> Option<String> {
    let packed: String = text.split_whitespace().collect();
    let packed = packed.trim_end_matches('=').replace('-', "+").replace('_', "/");
    STANDARD_NO_PAD.decode(packed).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// Whether an effect reaches people: drafts and deletions do not.
pub(crate) fn sends(verb: &str) -> bool {
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
pub(crate) fn split(text: &str) -> Vec<String> {
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
        recipients
            .map(|all| all.iter().map(|a| a.as_str().to_owned()).collect())
            .map_err(|problem| problem.in_words(CallsOf::Job))
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
        assert_eq!(of("message.send", &json!({"to": "+49 30 1234"})), None, "that is no address of mail");
        assert_eq!(of("event.create", &json!({"attendees": ["ana@example.org"]})), None, "that is no mail");
    }

    /// Whatever a tool calls its recipients, they are seen.
    #[test]
    fn an_address_is_seen_wherever_it_stands() {
        let eve = Some(vec!["eve@evil.test".to_owned()]);
        let of = |kind: &str, arguments: &Value| {
            let policy = CallPolicy { effect_kind: EffectKind::parse(kind), ..CallPolicy::unclassified() };
            let found = recipients(&policy, arguments)?;
            found.ok().map(|all| all.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>())
        };
        for arguments in [
            json!({"toRecipients": ["eve@evil.test"]}),
            json!({"message": {"to": [{"email": "eve@evil.test"}]}}),
            json!({"emailTo": "Eve <eve@evil.test>"}),
            json!({"destination": {"ToAddresses": ["eve@evil.test"]}}),
            json!({"personalizations": [{"to": [{"email": "eve@evil.test"}]}]}),
            json!({"body": {"Message": {"toRecipients": [{"emailAddress": {"address": "eve@evil.test"}}]}}}),
            json!({"headers": {"Bcc": "eve@evil.test"}, "subject": "Hi"}),
            json!({"contact": "eve@evil.test", "from": "ana@example.org", "body": "bob@example.org"}),
            json!({"raw": "VG86IGV2ZUBldmlsLnRlc3Q="}),
            json!({"raw": "RnJvbTogYW5hQGV4YW1wbGUub3JnDQpCY2M6DQogRXZlIDxldmVAZXZpbC50ZXN0Pg0KDQpUbzogYm9iQGV4YW1wbGUub3Jn"}),
            json!({"mime": "Subject: Hi\r\nTo: eve@evil.test\r\n\r\nTo: bob@example.org"}),
        ] {
            for kind in ["email.send", "message.send"] {
                assert_eq!(of(kind, &arguments), eve, "{kind} {arguments}");
            }
        }
        // Of whom nothing is said is not clear, whoever it is.
        let draft = CallPolicy { effect_kind: EffectKind::parse("email.send"), ..CallPolicy::unclassified() };
        assert_eq!(recipients(&draft, &json!({"draft_id": "d-1"})), Some(Err(Problem::Nobody)));
    }

    #[test]
    fn a_recipient_that_only_looks_like_a_known_one_is_said_to_do_so() {
        let said = |address: &str, whose| Problem::NobodyNamed(vec![address.to_owned()]).in_words(whose);
        let shown = |address: &str| said(address, CallsOf::Job);
        assert_eq!(said("team@example.org", CallsOf::Step), "Neither the step nor a person named team@example.org.");
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
