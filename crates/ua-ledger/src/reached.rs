//! Whom a call reaches that no mail is sent to: by a message or a call to a number or a name, by an invitation, by sharing something.
//!
//! Durable Jobs v1 spec §6 (`ask_human_on_ambiguous_recipient`). A pure rule over the tool's name, the kind of its effect and its arguments. An
//! address or a number is one whatever the tool is called; a name is compared with the words that the job or a person wrote. What only the
//! service can read (`C024BE91L`, `12345`) is not judged. Proved by: this file's tests.

use serde_json::Value;
use ua_core::{CallPolicy, MAIL_WORDS, MailAddress, SAID_TO_NOBODY, SideEffectClass, ToolName, name_tells};

use crate::address::{folded, words_of};
use crate::recipient::{Problem, recipients, sends, split};

/// Somebody whom a call reaches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// By an address of mail: with a mail, an invitation, or something that is shared.
    Mail(MailAddress),
    /// By a number to call or to write to, as it stands there.
    Number(String),
    /// By a name of somebody, or of a place where others read, as it stands there.
    Name(String),
}

impl Reached {
    /// What it is called, as the call says it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Mail(address) => address.as_str(),
            Self::Number(text) | Self::Name(text) => text,
        }
    }

    /// Whether what a person wrote says it. Of an address nothing is said here: those are read out of a text by themselves.
    pub(crate) fn is_said_in(&self, text: &str) -> bool {
        match self {
            Self::Mail(_) => false,
            Self::Number(number) => numbers_in(text).any(|said| is_same_number(&said, &digits(number))),
            Self::Name(name) => names(&text.to_lowercase(), &bare(name)),
        }
    }

    /// Whether an entry of `constraints.allowed_recipients` stands for it.
    pub(crate) fn is_covered_by(&self, entry: &str) -> bool {
        match self {
            Self::Mail(address) => address.is_covered_by(entry),
            Self::Number(number) => is_number(entry) && is_same_number(&digits(entry), &digits(number)),
            Self::Name(name) => entry.starts_with(['#', '@']) && bare(entry) == bare(name),
        }
    }
}

/// Words of kinds of effects that are messages to people, or calls.
const MESSAGES: [&str; 15] = [
    "call",
    "chat",
    "discord",
    "dm",
    "fax",
    "message",
    "mms",
    "notification",
    "signal",
    "slack",
    "sms",
    "telegram",
    "text",
    "voice",
    "whatsapp",
];
/// Those of them that go to numbers.
const TO_NUMBERS: [&str; 7] = ["call", "fax", "mms", "sms", "text", "voice", "whatsapp"];
/// Words in names of arguments of messages that say who gets them, or where others read them.
const GETS: [&str; 39] = [
    "addressee",
    "addressees",
    "callee",
    "cell",
    "channel",
    "channels",
    "chat",
    "chats",
    "contact",
    "contacts",
    "conversation",
    "conversations",
    "destination",
    "destinations",
    "dm",
    "group",
    "groups",
    "member",
    "members",
    "mobile",
    "msisdn",
    "number",
    "numbers",
    "participants",
    "phone",
    "phones",
    "receiver",
    "receivers",
    "recipient",
    "recipients",
    "room",
    "rooms",
    "target",
    "targets",
    "tel",
    "telephone",
    "to",
    "user",
    "users",
];
/// What a word for whoever gets a message begins or ends with: `phonenumber`, `recipientlist`, `userphone`.
const GETTERS: [&str; 3] = ["phone", "receiver", "recipient"];
/// Those that say who is meant rather than in which conversation: bare digits are a number there, and the service's own word elsewhere (a chat has
/// a number, too).
const DIALLED: [&str; 24] = [
    "addressee",
    "addressees",
    "callee",
    "cell",
    "contact",
    "contacts",
    "destination",
    "destinations",
    "dm",
    "mobile",
    "msisdn",
    "number",
    "numbers",
    "phone",
    "phones",
    "receiver",
    "receivers",
    "recipient",
    "recipients",
    "target",
    "targets",
    "tel",
    "telephone",
    "to",
];
/// What says that an argument has the service's own word for somebody.
const KEYS: [&str; 6] = ["guid", "id", "ids", "key", "sid", "uuid"];
/// Names of fields that say nothing by themselves, of somebody whom the field around them names: `{"recipient": {"name": "bob"}}`.
const SHELLS: [&str; 6] = ["handle", "label", "name", "type", "username", "value"];
/// Names of somebody that may as well be who sends: they count where nothing else says who gets it.
const PERHAPS: [&str; 3] = ["handle", "username", "usernames"];
/// What an argument may say of the way instead of the recipient.
const WAYS: [&str; 14] = [
    "app", "default", "email", "mail", "me", "phone", "push", "self", "slack", "sms", "teams", "telegram", "voice",
    "web",
];
/// Words in names of tools by which whoever is named in the arguments is told.
const TOLD: [&str; 15] = [
    "alias",
    "aliases",
    "envelope",
    "forward",
    "grant",
    "invite",
    "invites",
    "notify",
    "redirect",
    "share",
    "shares",
    "signature",
    "subscribe",
    "subscription",
    "transfer",
];
/// Words in names of tools that make somebody a user: a way in, for whoever is named in the arguments.
const MAKING: [&str; 7] = ["add", "assign", "create", "invite", "make", "provision", "register"];
/// What they make.
const ACCOUNTS: [&str; 4] = ["account", "accounts", "user", "users"];
/// Words in names of tools that set up what a service sends from then on.
const SENT_LATER: [&str; 13] = [
    "alert",
    "alerts",
    "budget",
    "digest",
    "export",
    "notification",
    "notifications",
    "point",
    "report",
    "reports",
    "schedule",
    "scheduled",
    "subscriptions",
];
/// Words in names of arguments of such tools that say to whom.
const SENT_TO: [&str; 8] = ["address", "addresses", "channel", "email", "emails", "mail", "mails", "target"];
/// Words in names of tools that tell nobody anything, whoever stands in their arguments.
const UNTOLD: [&str; 4] = ["draft", "drafts", "filter", "label"];
/// Words in names of tools that give somebody a way in, or a copy of what comes: whoever is named in the arguments gets it.
const ACCESS: [&str; 46] = [
    "access",
    "acl",
    "acls",
    "admin",
    "admins",
    "attendee",
    "attendees",
    "binding",
    "bindings",
    "collaborator",
    "collaborators",
    "delegate",
    "delegates",
    "delegation",
    "editor",
    "editors",
    "follower",
    "followers",
    "forwarding",
    "guest",
    "guests",
    "iam",
    "mailing",
    "member",
    "members",
    "membership",
    "owner",
    "owners",
    "ownership",
    "participant",
    "participants",
    "permission",
    "permissions",
    "recovery",
    "role",
    "roles",
    "seat",
    "seats",
    "sharing",
    "subscriber",
    "subscribers",
    "team",
    "viewer",
    "viewers",
    "watcher",
    "watchers",
];
/// Words in names of tools that take something away.
const TAKING: [&str; 5] = ["archive", "cancel", "delete", "remove", "unsubscribe"];
/// Words in names of arguments that say where copies of what comes go, also where a tool only sets up a rule for that (`create_filter`).
const FORWARDED: [&str; 5] = ["forward", "forwarding", "forwards", "redirect", "redirects"];
/// Names of arguments that say what is done with what stands beside them: `{"type": "forward", "value": …}`.
const ACTIONS: [&str; 3] = ["action", "kind", "type"];
/// What stands in front of `to` in names of arguments that say who gets something (`deliver_to`), and not whose it is (`assigned_to`).
const GIVEN_TO: [&str; 8] = ["copy", "deliver", "email", "forward", "mail", "notify", "send", "share"];
/// Words in names of arguments of any effect whose mail addresses are told about it.
const INVITED: [&str; 39] = [
    "addressee",
    "addressees",
    "attendee",
    "attendees",
    "bcc",
    "beneficiary",
    "cc",
    "collaborator",
    "collaborators",
    "delegate",
    "editor",
    "editors",
    "follower",
    "followers",
    "grantee",
    "grantees",
    "guest",
    "guests",
    "invitee",
    "invitees",
    "notify",
    "participants",
    "payee",
    "payees",
    "principal",
    "principals",
    "receiver",
    "receivers",
    "recipient",
    "recipients",
    "share",
    "signer",
    "signers",
    "subscriber",
    "subscribers",
    "viewer",
    "viewers",
    "watcher",
    "watchers",
];

/// Everybody whom a call reaches; `None` of one that reaches nobody, as far as can be seen.
pub(crate) fn everybody(
    tool: &ToolName,
    policy: &CallPolicy,
    arguments: &Value,
) -> Option<Result<Vec<Reached>, Problem>> {
    let mail = match recipients(policy, arguments) {
        Some(Err(problem)) => return Some(Err(problem)),
        Some(Ok(mail)) => Some(mail),
        None => invited(tool, policy, arguments),
    };
    let mut all: Vec<Reached> = mail.unwrap_or_default().into_iter().map(Reached::Mail).collect();
    let others = if tool.is_built_in() { Vec::new() } else { written_to(tool, policy, arguments) };
    for one in others {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    (!all.is_empty()).then_some(Ok(all))
}

/// The addresses of those who are told by an effect that is neither a mail nor a message: whoever a file is shared with, or a meeting is set up
/// for.
fn invited(tool: &ToolName, policy: &CallPolicy, arguments: &Value) -> Option<Vec<MailAddress>> {
    let is_foreign = policy.class == SideEffectClass::External && !tool.is_built_in();
    let words = words_of(&tool.tool);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if !is_foreign || has(&TAKING) {
        return None;
    }
    let is_told = has(&TOLD) || has(&ACCESS) || (has(&MAKING) && has(&ACCOUNTS));
    let (tells_nobody, is_sent_later) = (has(&UNTOLD), has(&SENT_LATER));
    let mut found = Vec::new();
    each_text(arguments, &mut Vec::new(), &mut |names, text| {
        let is_one_of =
            |list: &[&str]| names.iter().any(|name| words_of(name).iter().any(|word| list.contains(&word.as_str())));
        let gets = is_told
            || is_one_of(&INVITED)
            || (is_sent_later && is_one_of(&SENT_TO))
            || names.iter().any(|name| is_given_to(name));
        if !is_one_of(&FORWARDED) && (tells_nobody || !gets) {
            return;
        }
        let parts = split(text);
        let read: Vec<Vec<MailAddress>> =
            parts.iter().map(|part| addresses_in(part)).filter(|read| !read.is_empty()).collect();
        if read.len() == parts.len() {
            for one in read.into_iter().flatten() {
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
    });
    (!found.is_empty()).then_some(found)
}

/// The address that a part of an argument is, in whatever form services write one: `mailto:ana@…?subject=…`, `user:ana@…`, `ana@…:writer`,
/// `ana@… (editor)`. What is longer than a few words is a text that speaks of somebody.
fn addresses_in(part: &str) -> Vec<MailAddress> {
    const WORDS: usize = 4;
    if let Ok(address) = MailAddress::parse(part) {
        return vec![address];
    }
    let part = part.split_once('?').map_or(part, |(before, _)| before);
    if part.split_whitespace().count() > WORDS { Vec::new() } else { MailAddress::all_in(part) }
}

/// Whether the name of an argument says that something goes to what stands in it: `to`, `deliver_to`, `sendTo`.
fn is_given_to(name: &str) -> bool {
    let words = words_of(name);
    match words.as_slice() {
        [one] => one == "to",
        [.., way, to] => to == "to" && GIVEN_TO.contains(&way.as_str()),
        [] => false,
    }
}

/// Whether a call writes to somebody or calls them, and whether by a number: by the kind of its effect, or, where it has none, by the tool's name.
fn writes(tool: &ToolName, policy: &CallPolicy) -> Option<bool> {
    let Some((object, verb)) = policy.effect_kind.as_ref().and_then(|kind| kind.as_str().split_once('.')) else {
        let words = words_of(&tool.tool);
        let tells = policy.class == SideEffectClass::External && name_tells(&words);
        return tells.then(|| words.iter().any(|word| TO_NUMBERS.contains(&word.as_str())));
    };
    let objects: Vec<&str> = object.split('_').collect();
    let is_of = |list: &[&str]| objects.iter().any(|word| list.contains(word));
    let leaves = match verb {
        "create" => is_of(&MESSAGES) && !objects.contains(&"draft"),
        // A package is published, and a post, to nobody by name.
        "publish" => is_of(&MESSAGES),
        verb => sends(verb) && (is_of(&MESSAGES) || !(is_of(MAIL_WORDS) || is_of(SAID_TO_NOBODY))),
    };
    leaves.then(|| is_of(&TO_NUMBERS))
}

/// The numbers and names that a message or a call goes to.
fn written_to(tool: &ToolName, policy: &CallPolicy, arguments: &Value) -> Vec<Reached> {
    let Some(to_numbers) = writes(tool, policy) else { return Vec::new() };
    let (mut found, mut perhaps) = (Vec::new(), Vec::new());
    each_text(arguments, &mut Vec::new(), &mut |names, text| {
        let mut words: Vec<String> = names.last().map(|name| words_of(name)).unwrap_or_default();
        if let [.., around, last] = names
            && SHELLS.contains(last)
        {
            words.extend(words_of(around));
        }
        let says = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        let is_getter = |word: &String| GETTERS.iter().any(|part| word.starts_with(part) || word.ends_with(part));
        let gets = says(&GETS) || words.iter().any(is_getter);
        let may_get = says(&PERHAPS);
        if !gets && !may_get {
            return;
        }
        let is_dialled = (says(&DIALLED) || words.iter().any(is_getter)) && !says(&KEYS);
        for part in split(text).into_iter().filter(|part| MailAddress::parse(part).is_err()) {
            let is_to_call = to_numbers || part.starts_with('+') || part.starts_with("00");
            let may_be_called = is_dialled && (7..=15).contains(&digits(&part).len());
            let reached = if is_number(&part) && !is_day(&part) && (is_to_call || may_be_called) {
                Reached::Number(part)
            } else if is_name(&part) {
                Reached::Name(part)
            } else {
                continue; // the service's own word for it
            };
            if gets { found.push(reached) } else { perhaps.push(reached) }
        }
    });
    if found.is_empty() { perhaps } else { found }
}

/// `2026-12-01`, which may stand under `to` as well.
fn is_day(text: &str) -> bool {
    let text = folded(text);
    let parts: Vec<&str> = text.trim().split(['-', '/', '.']).collect();
    parts.len() == 3
        && parts.iter().all(|part| matches!(part.len(), 1 | 2 | 4) && part.chars().all(|c| c.is_ascii_digit()))
        && parts.iter().filter(|part| part.len() == 4).count() == 1
}

/// Shows every text with the names that lead to it.
fn each_text<'v>(value: &'v Value, names: &mut Vec<&'v str>, with: &mut impl FnMut(&[&str], &str)) {
    match value {
        Value::String(text) => with(names, text),
        Value::Number(number) => with(names, &number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, names, with)),
        Value::Object(fields) => {
            let forwards = |action: &&str| {
                let said = fields.get(*action).and_then(Value::as_str).map(words_of).unwrap_or_default();
                said.iter().any(|word| FORWARDED.contains(&word.as_str()))
            };
            // Whoever says what is done in a field of its own says it of what stands beside it.
            let depth = names.len();
            names.extend(ACTIONS.iter().any(forwards).then_some(FORWARDED[0]));
            for (name, field) in fields {
                names.push(name);
                each_text(field, names, with);
                names.pop();
            }
            names.truncate(depth);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn digits(text: &str) -> String {
    let text = folded(text);
    let text = text.trim();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    match digits.strip_prefix("00") {
        Some(rest) if !text.starts_with('+') => rest.to_owned(),
        Some(_) | None => digits,
    }
}

/// `+49 30 1234`, `(030) 1234`.
fn is_number(text: &str) -> bool {
    let text = folded(text);
    let is_part = |c: char| c.is_ascii_digit() || "+ ()-./\u{a0}".contains(c);
    text.trim().chars().all(is_part) && text.chars().filter(char::is_ascii_digit).count() >= 6
}

/// The numbers in a text, as their digits.
fn numbers_in(text: &str) -> impl Iterator<Item = String> {
    let text = folded(text);
    let mut found = vec![String::new()];
    for c in text.chars() {
        match c {
            // It begins one.
            '+' => found.push("+".to_owned()),
            c if c.is_ascii_digit() || " ()-./\u{a0}".contains(c) => {
                if let Some(number) = found.last_mut() {
                    number.push(c);
                }
            }
            _ => found.push(String::new()),
        }
    }
    found.into_iter().map(|number| digits(&number)).filter(|digits| digits.len() >= 6)
}

/// Whether two numbers are one: as they stand, or one of them without what is dialled before a country's own numbers.
fn is_same_number(said: &str, called: &str) -> bool {
    let without_country = |short: &str, long: &str| {
        short
            .strip_prefix('0')
            .is_some_and(|rest| rest.len() >= 6 && long.ends_with(rest) && long.len() <= rest.len() + 3)
    };
    said == called || without_country(said, called) || without_country(called, said)
}

/// A name as people write it, with or without the sign in front: no number and no id.
fn is_name(text: &str) -> bool {
    let folded = folded(text);
    let name = folded.trim().trim_start_matches(['@', '#']);
    let has_sign = folded.trim().starts_with(['@', '#']);
    // `#room:example.org`
    let is_part = |c: char| c.is_alphanumeric() || " ._-".contains(c) || (has_sign && c == ':');
    let is_id = name.chars().any(|c| c.is_ascii_digit()) && !has_sign;
    let is_all_capitals = name.chars().count() > 7 && name.chars().all(|c| c.is_uppercase() || c.is_ascii_digit());
    !name.is_empty()
        && name.chars().count() <= 64
        && name.chars().any(char::is_alphabetic)
        && name.chars().all(is_part)
        && !is_id
        && !is_all_capitals
        && (has_sign || !WAYS.contains(&name.to_lowercase().as_str()))
}

/// A name as it is compared.
fn bare(name: &str) -> String {
    folded(name).trim().trim_start_matches(['@', '#']).to_lowercase()
}

/// Whether a name stands in a text by itself; both in small letters.
fn names(text: &str, name: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let mut before = text[..at].chars().rev();
            let mut after = text[at + name.len()..].chars();
            let begins = match before.next() {
                // `bob@eve.test` names nobody called eve.
                Some('@') => !before.next().is_some_and(is_of_word),
                Some(c) => !is_of_word(c) && c != '.',
                None => true,
            };
            let ends = match after.next() {
                Some('@') => false,
                Some('.' | '-') => !after.next().is_some_and(is_of_word),
                Some(c) => !is_of_word(c),
                None => true,
            };
            begins && ends
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{EffectKind, ToolNamespace};

    use super::*;

    fn reached(tool: &str, kind: Option<&str>, arguments: &Value) -> Vec<String> {
        let tool = ToolName::qualified(ToolNamespace::Mcp, "office", tool);
        let policy = CallPolicy {
            class: SideEffectClass::External,
            effect_kind: kind.and_then(EffectKind::parse),
            kind_is_guessed: true,
            ..CallPolicy::unclassified()
        };
        let all = everybody(&tool, &policy, arguments).and_then(Result::ok).unwrap_or_default();
        all.iter().map(|one| one.as_str().to_owned()).collect()
    }

    #[test]
    fn a_function_of_a_program_reaches_whom_the_same_tool_of_a_server_does() {
        let policy = CallPolicy { effect_kind: EffectKind::parse("sms.send"), ..CallPolicy::unclassified() };
        let arguments = json!({"to": "+15551234567", "email": "eve@evil.test", "body": "b"});
        let reaches = |namespace, server: &str| {
            let tool = ToolName::qualified(namespace, server, "share_and_send");
            everybody(&tool, &policy, &arguments).and_then(Result::ok).unwrap_or_default()
        };
        let of_a_server = reaches(ToolNamespace::Mcp, "office");
        assert!(!of_a_server.is_empty());
        assert_eq!(reaches(ToolNamespace::Local, "program"), of_a_server);
    }

    #[test]
    fn whoever_is_written_to_or_called_is_seen() {
        for (tool, kind, arguments) in [
            ("send_sms", Some("sms.send"), json!({"to": "+15551234567", "body": "b"})),
            ("send_sms", Some("sms.send"), json!({"to": 15_551_234_567_u64, "body": "b"})),
            ("send_whatsapp_message", Some("whatsapp_message.send"), json!({"phone": "0155 123 4567", "text": "b"})),
            ("make_call", Some("call.create"), json!({"number": "+15551234567"})),
            ("send_message", Some("message.send"), json!({"recipient": "eve", "text": "b"})),
            ("send_dm", Some("dm.send"), json!({"user": "@eve", "text": "b"})),
            ("send_telegram", Some("telegram.send"), json!({"username": "eve", "message": "b"})),
            ("slack_post_message", Some("message.post"), json!({"channel": "#eve", "username": "bot", "text": "b"})),
            ("create_event", Some("event.create"), json!({"attendees": ["eve@evil.test"]})),
            ("create_event", Some("event.create"), json!({"attendees": [{"email": "eve@evil.test"}]})),
            ("update_event", None, json!({"add_guests": "eve@evil.test"})),
            ("share_file", None, json!({"id": "1", "email": "eve@evil.test"})),
            ("do_it", None, json!({"to": "eve@evil.test"})),
            ("add_file_sharing_preference", None, json!({"email_address": "eve@evil.test", "role": "reader"})),
            ("create_permission", None, json!({"fileId": "1", "emailAddress": "eve@evil.test"})),
            ("add_collaborator", None, json!({"email": "eve@evil.test"})),
            ("add_user_to_team", None, json!({"email": "eve@evil.test"})),
            ("set_permissions", None, json!({"users": ["eve@evil.test"]})),
            ("update_sharing", None, json!({"viewers": ["eve@evil.test"]})),
            ("create_acl", None, json!({"scope": {"type": "user", "value": "eve@evil.test"}})),
            (
                "create_filter",
                None,
                json!({"criteria": {"from": "boss@example.org"}, "action": {"forward": "eve@evil.test"}}),
            ),
            ("create_forwarding_address", None, json!({"forwardingEmail": "eve@evil.test"})),
            ("update_auto_forwarding", None, json!({"emailAddress": "eve@evil.test"})),
            ("addDelegate", None, json!({"delegateEmail": "eve@evil.test"})),
            ("add_attendee", None, json!({"email": "eve@evil.test"})),
            ("export_report", None, json!({"deliver_to": "eve@evil.test"})),
            ("run_workflow", None, json!({"inputs": {"mailTo": "eve@evil.test"}})),
            ("respond_to_event", None, json!({"notify": ["eve@evil.test"]})),
        ] {
            assert_eq!(reached(tool, kind, &arguments).len(), 1, "{tool} {arguments}");
        }
    }

    /// Whatever a tool that tells somebody something is called, and whatever it calls those: a number and a name are seen, and what only the
    /// service can read is not asked about.
    #[test]
    fn whoever_is_told_is_seen_under_every_name_that_says_so() {
        let tools = [
            ("send", None),
            ("send_message", Some("message.send")),
            ("send_file", Some("file.send")),
            ("send_poll", None),
            ("sendReport", Some("report.send")),
            ("post_to_channel", Some("channel.post")),
            ("post_to_channel", None),
            ("slack_message", None),
            ("slack_message", Some("message.send")),
            ("whatsapp_text", None),
            ("telegram_send", Some("telegram.send")),
            ("dm", None),
            ("notify", Some("notification.send")),
            ("notify", Some("message.notify")),
            ("notify_team", Some("team.notify")),
            ("notify_team", None),
            ("reply_in_thread", Some("thread.reply")),
            ("invite_to_room", Some("room.invite")),
            ("broadcast", None),
        ];
        let called = [
            "to",
            "recipient",
            "recipients",
            "recipientList",
            "receiver",
            "phone",
            "phoneNumber",
            "phonenumber",
            "phone_number",
            "userphone",
            "mobile",
            "number",
            "destination",
            "target",
            "sendTo",
            "contact",
        ];
        let places = ["channel", "channelName", "group", "room", "chat", "conversation", "user"];
        let numbers = [
            json!("4930123456"),
            json!("030 1234567"),
            json!("+49 30 123456"),
            json!(4_930_123_456_u64),
            json!("004930123456"),
        ];
        let names = [json!("bob"), json!("#secret"), json!("@bob"), json!("Bob Miller"), json!("#room:evil.test")];
        for (tool, kind) in tools {
            for name in called.iter().chain(&places) {
                let is_called = called.contains(name);
                for value in names.iter().chain(numbers.iter().filter(|_| is_called)) {
                    for arguments in [
                        json!({"text": "b", *name: value}),
                        json!({"text": "b", *name: [value]}),
                        json!({"text": "b", *name: {"name": value}}),
                        json!({"message": {*name: value, "text": "b"}}),
                    ] {
                        assert_eq!(reached(tool, kind, &arguments).len(), 1, "{tool} {kind:?} {arguments}");
                    }
                }
                for value in [json!("12345"), json!("C024BE91L"), json!("2026-12-01"), json!(true)] {
                    let arguments = json!({"text": "b", *name: value});
                    assert_eq!(reached(tool, kind, &arguments), [""; 0], "{tool} {kind:?} {arguments}");
                }
            }
            // On WhatsApp a number is whoever has it, whatever it is called.
            for name in ["chat_id", "chatId", "user_id", "conversation_ids", "channel_id", "chat", "room", "group"]
                .into_iter()
                .filter(|_| tool != "whatsapp_text")
            {
                let arguments = json!({"text": "b", name: "493012345678"});
                assert_eq!(reached(tool, kind, &arguments), [""; 0], "{tool} {arguments}: the service's own word");
            }
        }
        for (tool, kind) in [
            ("edit_message", None),
            ("post_search", None),
            ("pin_message", None),
            ("message_delete", None),
            ("list_posts", None),
            ("publish_package", Some("package.publish")),
            ("send_email", Some("email.send")),
            ("create_channel", Some("channel.create")),
            ("send_keys", Some("key.send")),
            ("http_post", None),
        ] {
            let arguments = json!({"channel": "#secret", "number": "4930123456", "user": "bob"});
            let reached = reached(tool, kind, &arguments);
            assert!(reached.iter().all(|one| MailAddress::parse(one).is_ok()), "{tool}: {reached:?}");
        }
    }

    /// Every form of an address, in every place where one that stands alone is seen.
    #[test]
    fn whoever_gets_in_or_gets_copies_is_seen_in_whatever_form_the_address_is_written() {
        let forms = [
            "eve@evil.test",
            "Eve <eve@evil.test>",
            "mailto:eve@evil.test",
            "mailto:eve@evil.test?subject=hi there",
            "user:eve@evil.test",
            "serviceAccount:eve@evil.test",
            "eve@evil.test:writer",
            "eve@evil.test (editor)",
            "user:eve@evil.test:owner",
            "Eve (eve@evil.test)",
        ];
        for form in forms {
            for (tool, arguments) in [
                ("add_iam_policy_binding", json!({"resource": "p", "role": "roles/editor", "member": form})),
                ("set_iam_policy", json!({"policy": {"bindings": [{"role": "roles/owner", "members": [form]}]}})),
                ("grant_role", json!({"principal": form, "role": "editor"})),
                ("bigquery_grant_access", json!({"dataset": "d", "grantee": form})),
                ("share_document", json!({"doc": "1", "users": [form]})),
                ("share_notebook", json!({"with": form})),
                ("share_link", json!({"to": form})),
                ("create_calendar_acl", json!({"scope": form, "role": "reader"})),
                ("update_inbox_rule", json!({"actions": {"redirectTo": [{"emailAddress": {"address": form}}]}})),
                ("create_filter", json!({"criteria": {"from": "a"}, "action": {"redirect": form}})),
                ("create_mail_rule", json!({"redirect": form})),
                ("create_email_routing_rule", json!({"actions": [{"type": "forward", "value": [form]}]})),
                ("transfer_ownership", json!({"file": "1", "new_owner": form})),
                ("add_owner", json!({"user": form})),
                ("set_owner", json!({"email": form})),
                ("assign_role", json!({"email": form, "role": "admin"})),
                ("add_user", json!({"email": form})),
                ("add_seat", json!({"email": form})),
                ("create_user", json!({"email": form, "role": "admin"})),
                ("request_signature", json!({"document": "d", "signers": [{"email": form}]})),
                ("create_envelope", json!({"signers": [{"email": form}]})),
                ("subscribe", json!({"protocol": "email", "endpoint": form})),
                ("schedule_report", json!({"report": "r", "emails": [form]})),
                ("create_contact_point", json!({"name": "x", "settings": {"addresses": form}})),
                ("create_budget_alert", json!({"emails": [form]})),
                ("create_alert", json!({"name": "a", "notificationChannel": form})),
                ("add_mailing_list_entry", json!({"list": "l", "email": form})),
                ("update_recovery_email", json!({"email": form})),
                ("create_alias", json!({"alias": "a", "target": form})),
                ("create_payout", json!({"receiver": form, "amount": 5})),
                ("create_payment", json!({"payee": {"email_address": form}, "amount": 5})),
                ("create_task", json!({"name": "n", "followers": [form]})),
            ] {
                assert_eq!(reached(tool, None, &arguments), ["eve@evil.test"], "{tool} {arguments}");
            }
        }
    }

    /// What only the service can read, who sends, and tools that tell nobody anything.
    #[test]
    fn what_is_nobody_is_not_asked_about() {
        for (tool, kind, arguments) in [
            ("send_message", Some("message.send"), json!({"chat_id": "12345", "text": "@eve"})),
            ("slack_post_message", Some("message.post"), json!({"channel": "C024BE91L", "text": "b"})),
            ("slack_post_message", Some("message.post"), json!({"channel": "CEVEEVEEVE", "text": "b"})),
            ("send_notification", Some("notification.send"), json!({"channel": "email", "text": "b"})),
            ("create_draft", Some("draft.create"), json!({"to": "eve@evil.test"})),
            ("create_contact", Some("contact.create"), json!({"email": "eve@evil.test"})),
            ("create_issue", Some("issue.create"), json!({"user": "eve", "assignee": "eve@evil.test"})),
            ("publish_package", Some("package.publish"), json!({"to": "npm"})),
            ("remove_member", None, json!({"email": "eve@evil.test"})),
            ("share_report", None, json!({"note": "as eve@evil.test asked for it on Monday"})),
            ("create_contact", Some("contact.create"), json!({"emails": ["eve@evil.test"], "type": "person"})),
            ("create_report", None, json!({"author": "eve@evil.test", "title": "Report"})),
            ("update_user_story", None, json!({"author": "eve@evil.test"})),
            ("delete_permission", None, json!({"emailAddress": "eve@evil.test"})),
            ("create_filter", None, json!({"criteria": {"from": "boss@example.org"}, "action": {"label": "x"}})),
            ("update_task", None, json!({"assigned_to": "eve@evil.test", "reply_to": "eve@evil.test"})),
        ] {
            assert_eq!(reached(tool, kind, &arguments), [""; 0], "{tool} {arguments}");
        }
    }

    #[test]
    fn a_name_or_a_number_is_known_in_the_words_that_say_it() {
        let text = "Tell Eve Miller, bob@mallory.test and +49 (30) 1234-567 (or 0170 1234567) what is new; post it in #general. #dev.ops too";
        for known in ["eve", "@Eve", "Eve Miller", "#general", "general", "dev.ops"] {
            assert!(Reached::Name(known.to_owned()).is_said_in(text), "{known}");
        }
        for unknown in ["steve", "ve", "mallory", "bob", "test", "#gener", "dev", "ops", "@eve_miller", ""] {
            assert!(!Reached::Name(unknown.to_owned()).is_said_in(text), "{unknown}");
        }
        for known in ["+49301234567", "0049 30 1234567", "030 1234567", "+491701234567", "01701234567"] {
            assert!(Reached::Number(known.to_owned()).is_said_in(text), "{known}");
        }
        for unknown in ["+4930123456", "+15551234567", "1234567", "+9999301234567", "+490301234567"] {
            assert!(!Reached::Number(unknown.to_owned()).is_said_in(text), "{unknown}");
        }
    }

    #[test]
    fn a_job_may_allow_names_and_numbers() {
        let name = |text: &str| Reached::Name(text.to_owned());
        assert!(name("general").is_covered_by("#general") && name("@eve").is_covered_by("@eve"));
        assert!(!name("general").is_covered_by("general") && !name("#general").is_covered_by("#dev"));
        let number = Reached::Number("+49 30 1234567".to_owned());
        assert!(number.is_covered_by("+49301234567") && !number.is_covered_by("+4930123456"));
        let mail = Reached::Mail(MailAddress::parse("ana@example.org").unwrap());
        assert!(mail.is_covered_by("@example.org") && !mail.is_covered_by("#example"));
    }
}
