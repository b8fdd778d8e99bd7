//! What the words in a tool's name say about it.
//!
//! Durable Jobs v1 spec §7.4, on whole words instead of substrings: SPREADSHEET does not contain READ. A side-effect
//! word anywhere makes a tool external; only a read verb in front, with no side-effect word after it, makes it
//! read-only. Invariant: a side-effect word added to a name never lowers its class (property test in `tests/it/classify/names.rs`).

use ua_core::{ToolName, ToolNamespace};

/// Verbs that only look. Left out on purpose: `query` and `execute` run whatever they are given, `check` is also
/// checking out and checking in.
const READ_VERBS: &[&str] = &["describe", "fetch", "find", "get", "list", "lookup", "read", "retrieve", "search"];

/// Words that change something, or that join a second verb we may not know (`and`, `or`, `then`), sorted. Nouns that
/// are verbs too are listed where the verb is common; a false alarm costs a question, a miss costs a second effect.
const EFFECT_WORDS: &[&str] = &[
    "accept",
    "ack",
    "acknowledge",
    "activate",
    "add",
    "allocate",
    "allow",
    "alter",
    "and",
    "append",
    "apply",
    "approve",
    "archive",
    "assign",
    "attach",
    "authorize",
    "ban",
    "block",
    "buy",
    "cancel",
    "change",
    "charge",
    "checkout",
    "claim",
    "clean",
    "clear",
    "clone",
    "close",
    "comment",
    "complete",
    "confirm",
    "consume",
    "copy",
    "create",
    "deactivate",
    "decline",
    "delete",
    "deploy",
    "dequeue",
    "destroy",
    "detach",
    "disable",
    "discard",
    "dismiss",
    "dispatch",
    "donate",
    "drain",
    "drop",
    "edit",
    "eject",
    "empty",
    "enable",
    "enqueue",
    "erase",
    "escalate",
    "evict",
    "exec",
    "execute",
    "expire",
    "fire",
    "flag",
    "flush",
    "follow",
    "fork",
    "forward",
    "freeze",
    "generate",
    "grant",
    "hide",
    "import",
    "increment",
    "insert",
    "install",
    "invite",
    "invoke",
    "join",
    "kick",
    "kill",
    "label",
    "launch",
    "leave",
    "like",
    "lock",
    "mark",
    "merge",
    "migrate",
    "mint",
    "modify",
    "move",
    "mutate",
    "mute",
    "next",
    "notify",
    "or",
    "overwrite",
    "patch",
    "pause",
    "pay",
    "pin",
    "poke",
    "pop",
    "post",
    "prepend",
    "promote",
    "provision",
    "publish",
    "purchase",
    "purge",
    "push",
    "put",
    "react",
    "reboot",
    "rebase",
    "redeem",
    "refresh",
    "refund",
    "register",
    "reindex",
    "reject",
    "remove",
    "rename",
    "reorder",
    "replace",
    "reply",
    "reserve",
    "reset",
    "resolve",
    "restart",
    "restore",
    "resume",
    "retry",
    "revert",
    "revoke",
    "rollback",
    "rotate",
    "run",
    "save",
    "sell",
    "send",
    "set",
    "share",
    "shift",
    "shutdown",
    "sign",
    "snooze",
    "spawn",
    "spend",
    "start",
    "stop",
    "submit",
    "subscribe",
    "suspend",
    "swap",
    "sync",
    "take",
    "terminate",
    "then",
    "transfer",
    "trash",
    "trigger",
    "truncate",
    "uninstall",
    "unlock",
    "unpin",
    "unsubscribe",
    "update",
    "upload",
    "upsert",
    "vote",
    "wipe",
    "withdraw",
    "write",
];

/// The words this module goes by, for the policy version.
pub(crate) fn vocabulary() -> String {
    format!("{}\n{}", READ_VERBS.join(" "), EFFECT_WORDS.join(" "))
}

/// What a name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameSays {
    /// It contains this side-effect word.
    Effect(String),
    /// It begins with this read verb and contains no side-effect word.
    Read(String),
    /// Neither.
    Nothing,
}

/// Reads a tool's bare name.
pub(crate) fn read_name(tool: &ToolName) -> NameSays {
    let words = words(&tool.tool);
    if let Some(effect) = words.iter().find(|word| EFFECT_WORDS.contains(&word.as_str())) {
        return NameSays::Effect(effect.clone());
    }
    match first_after_prefix(&words, tool) {
        Some(verb) if READ_VERBS.contains(&verb) => NameSays::Read(verb.to_owned()),
        _ => NameSays::Nothing,
    }
}

/// The first word that is not the toolkit's or the server's name (`GMAIL_FETCH_EMAILS` → `fetch`). A first word that is
/// a read verb is no prefix.
fn first_after_prefix<'a>(words: &'a [String], tool: &ToolName) -> Option<&'a str> {
    let is_verb = |word: &str| READ_VERBS.contains(&word);
    let server = self::words(&tool.server);
    let mut rest = words;
    while let [first, after @ ..] = rest
        && !after.is_empty()
        && !is_verb(first)
        && server.contains(first)
    {
        rest = after;
    }
    // A Composio slug begins with its toolkit; of other names nobody knows whether the first word is a verb.
    let is_composio = tool.namespace == ToolNamespace::Composio || server.iter().any(|word| word == "composio");
    match rest {
        [first, second, ..] if is_composio && rest.len() == words.len() && !is_verb(first) => Some(second),
        [first, ..] => Some(first),
        [] => None,
    }
}

/// Splits a name at everything that is no letter or digit and at the humps of camelCase; lower-cased.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|at| letters[at]);
        let after = letters.get(index + 1);
        let is_hump = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if (is_hump || !letter.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_at_separators_and_humps() {
        for (name, expected) in [
            ("GMAIL_FETCH_EMAILS", "gmail fetch emails"),
            ("getOrCreate", "get or create"),
            ("resolve-library.id", "resolve library id"),
            ("HTTPGetURL", "http get url"),
            ("listV2Items", "list v2 items"),
            ("SPREADSHEET_READ", "spreadsheet read"),
            ("__", ""),
        ] {
            assert_eq!(words(name).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn only_the_toolkit_or_the_server_is_a_prefix() {
        let says = |namespace, server: &str, tool: &str| read_name(&ToolName::qualified(namespace, server, tool));
        let read = |verb: &str| NameSays::Read(verb.to_owned());
        assert_eq!(says(ToolNamespace::Composio, "tools", "GMAIL_FETCH_EMAILS"), read("fetch"));
        assert_eq!(says(ToolNamespace::Mcp, "composio", "GMAIL_FETCH_EMAILS"), read("fetch"));
        assert_eq!(says(ToolNamespace::Mcp, "github-prod", "github_list_issues"), read("list"));
        assert_eq!(says(ToolNamespace::Mcp, "other", "github_list_issues"), NameSays::Nothing);
        assert_eq!(says(ToolNamespace::Composio, "tools", "GOOGLE_MAPS_GET_ROUTE"), NameSays::Nothing);
        // One prefix, not two.
        assert_eq!(says(ToolNamespace::Composio, "composio", "COMPOSIO_APPROVAL_LIST"), NameSays::Nothing);
        assert_eq!(says(ToolNamespace::Mcp, "search", "search"), read("search"));
        assert_eq!(says(ToolNamespace::Mcp, "list", "list_send"), NameSays::Effect("send".to_owned()));
    }

    #[test]
    fn the_words_are_sorted_and_no_word_is_both() {
        assert!(READ_VERBS.is_sorted());
        assert!(EFFECT_WORDS.iter().all(|word| !READ_VERBS.contains(word)));
        let mut unique: Vec<_> = EFFECT_WORDS.to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), EFFECT_WORDS.len());
    }
}
