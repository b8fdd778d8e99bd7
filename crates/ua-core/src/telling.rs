//! By which words the name of a tool says that it tells somebody something.
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
}
