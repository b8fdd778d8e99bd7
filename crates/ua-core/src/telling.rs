//! By which words a tool says that it tells somebody something: those of its name, and those of its arguments.
//!
//! One list for two questions: whom a call reaches (`ask_human_on_ambiguous_recipient`), and whether the same call once more is one more
//! (`no_duplicate_external_actions`). What is seen to reach somebody by the one is never sent again unasked by the other.

/// Verbs of telling somebody something: a name begins or ends with one.
pub const TELLING_VERBS: &[&str] = &[
    "alert",
    "announce",
    "broadcast",
    "dm",
    "inform",
    "message",
    "notify",
    "post",
    "reply",
    "send",
    "sends",
    "sms",
    "telegram",
    "tell",
    "text",
    "toot",
    "tweet",
    "whatsapp",
];

/// Words beside which such a verb is a thing: `edit_message`, `post_search`.
pub const NOT_TELLING: &[&str] = &[
    "add", "archive", "cancel", "clear", "close", "convert", "count", "create", "delete", "download", "draft",
    "drafts", "edit", "export", "extract", "fetch", "find", "format", "get", "hide", "list", "mark", "move", "mute",
    "pin", "query", "react", "reaction", "read", "receive", "remove", "rename", "search", "set", "status", "template",
    "unpin", "update", "verify", "view",
];

/// What is sent to programs and machines, and said to nobody: `send_keys`, `http_post`.
pub const SAID_TO_NOBODY: &[&str] = &[
    "api",
    "byte",
    "bytes",
    "command",
    "commands",
    "cookie",
    "cookies",
    "http",
    "input",
    "key",
    "keys",
    "keystroke",
    "keystrokes",
    "packet",
    "packets",
    "prompt",
    "query",
    "request",
    "requests",
    "rpc",
    "script",
    "sql",
];

/// Words of mails. To whom these go is read from their addresses alone.
pub const MAIL_WORDS: &[&str] = &["email", "emails", "mail", "mails"];

/// Whether a name of these words, in lower case, says that the tool tells somebody something.
pub fn name_tells(words: &[String]) -> bool {
    let is_one_of = |word: &String, list: &[&str]| list.contains(&word.as_str());
    let tells = |word: Option<&String>| word.is_some_and(|word| is_one_of(word, TELLING_VERBS));
    let is_other =
        |word: &String| is_one_of(word, NOT_TELLING) || is_one_of(word, SAID_TO_NOBODY) || is_one_of(word, MAIL_WORDS);
    (tells(words.first()) || tells(words.last())) && !words.iter().any(is_other)
}

/// Arguments that say to whom something goes, in small letters without the signs between their words.
const TO_SOMEBODY: &[&str] = &[
    "emailto",
    "phonenumber",
    "recipient",
    "recipientemail",
    "recipients",
    "toaddress",
    "toemail",
    "tonumber",
    "torecipients",
];
/// Arguments that are words for somebody.
const WORDS_FOR_SOMEBODY: &[&str] = &[
    "body",
    "bodytext",
    "content",
    "emailbody",
    "html",
    "htmlbody",
    "message",
    "messagebody",
    "subject",
    "text",
    "textbody",
];
/// Those of them that nothing but a message has, so that `to` beside one says whom it goes to: `translate(text, to)` says into what.
const OF_A_MESSAGE: &[&str] =
    &["body", "bodytext", "emailbody", "htmlbody", "message", "messagebody", "subject", "textbody"];

/// Whether a tool takes these arguments to tell somebody something, whatever it is called: to whom it goes, and what it says.
pub fn arguments_tell<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let letters = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_ascii_lowercase();
    let names: Vec<String> = names.map(letters).collect();
    let has = |list: &[&str]| names.iter().any(|name| list.contains(&name.as_str()));
    (has(TO_SOMEBODY) && has(WORDS_FOR_SOMEBODY)) || (has(&["to"]) && has(OF_A_MESSAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_by_its_first_or_last_word() {
        let tells = |name: &str| name_tells(&name.split('_').map(str::to_owned).collect::<Vec<_>>());
        for name in ["sms", "tell_team", "price_alert", "telegram_sticker"] {
            assert!(tells(name), "{name}");
        }
        for name in ["", "edit_message", "send_keys", "http_post", "send_mail", "text_search", "resume_text_now"] {
            assert!(!tells(name), "{name}");
        }
    }

    #[test]
    fn arguments_of_a_message_are_told_from_those_of_other_work() {
        for names in [
            &["to", "subject"][..],
            &["To", "body", "cc"],
            &["recipientEmail", "content"],
            &["to_number", "text"],
            &["to", "htmlBody"],
            &["phone_number", "message"],
        ] {
            assert!(arguments_tell(names.iter().copied()), "{names:?}");
        }
        // Into what, from where, how much; and who is looked up.
        for names in [
            &["text", "to"][..],
            &["from", "to", "content"],
            &["to", "amount"],
            &["recipient", "limit"],
            &["subject", "body"],
            &["to"],
            &[],
        ] {
            assert!(!arguments_tell(names.iter().copied()), "{names:?}");
        }
    }
}
