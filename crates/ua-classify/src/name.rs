//! What the words in a tool's name say about it.
//!
//! Durable Jobs v1 spec §7.4, on whole words instead of substrings: SPREADSHEET does not contain READ. A word of effect makes a tool
//! external wherever it stands, unless it is plainly a thing behind a verb that looks (`get_label`). A tool is read-only when a verb that
//! looks begins the name, or stands behind a prefix (`slack_list_channels`) or behind its thing (`issues_list`), or when the name asks for
//! a state (`git_log`). Invariant: a side-effect verb added to a name never lowers its class (property test in
//! `tests/it/classify/names.rs`); no rule here knows a server by its name.

mod acts;
mod begins;
mod creates;
mod money;
mod vocabulary;

use ua_core::{EffectKind, ToolName, ToolNamespace};

use self::vocabulary::{
    ADJECTIVES, AGAIN_OR_BACK, ASKING_LANGUAGES, DATABASE_STATES, DATABASES, EFFECTS, GIT_SHOWS, JOINS,
    LISTED_IN_SHORT, LOG_OWNERS, LOOKING, LOOKING_IN_FRONT, LOOKING_OR_THING, MARKED_AS, MARKED_READ, MILD_THINGS,
    PREPOSITIONS, QUEUES, RUNNING, STATES, SUGGESTS_LOOKING, TAKEN_WHEN_READ, TELEMETRY, THINGS, TREE_OWNERS,
};

/// The words this module goes by, for the policy version.
pub(crate) fn vocabulary() -> String {
    let lists = [
        LOOKING,
        LOOKING_OR_THING,
        LOOKING_IN_FRONT,
        SUGGESTS_LOOKING,
        STATES,
        ADJECTIVES,
        LOG_OWNERS,
        TREE_OWNERS,
        GIT_SHOWS,
        LISTED_IN_SHORT,
        ASKING_LANGUAGES,
        DATABASES,
        DATABASE_STATES,
        TAKEN_WHEN_READ,
        QUEUES,
        RUNNING,
        TELEMETRY,
        MARKED_READ,
        MARKED_AS,
        JOINS,
        EFFECTS,
        THINGS,
        MILD_THINGS,
        PREPOSITIONS,
        vocabulary::FILLERS,
        vocabulary::NAMED_ONCE,
        vocabulary::ADDED_ANEW,
        vocabulary::RUNS,
        vocabulary::SAID_OF_BOTH,
        AGAIN_OR_BACK,
    ];
    let lists: Vec<String> = lists.iter().map(|words| words.join(" ")).collect();
    let verbs = [acts::vocabulary(), begins::vocabulary(), creates::vocabulary(), money::vocabulary()];
    format!("{}\n{}", lists.join("\n"), verbs.join("\n"))
}

/// What a name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameSays {
    /// It contains this side-effect word: of several, the one that tells a person most.
    Effect(String),
    /// By this word it joins actions, of which none is known.
    Joins(String),
    /// It looks, by this word.
    Read(String),
    /// It may well look, by this word, but a name like that is no proof.
    MayRead(String),
    /// Nothing.
    Nothing,
}

/// Reads a tool's bare name.
pub(crate) fn read_name(tool: &ToolName) -> NameSays {
    let (all, server) = (words(&tool.tool), words(&tool.server));
    let rest = after_toolkit(without_prefix(&all, &server), &all, &server, tool.namespace);
    if let Some(join) = rest.iter().find(|word| has(JOINS, word)) {
        return told_by(rest).map_or_else(|| NameSays::Joins(join.clone()), |word| NameSays::Effect(word.clone()));
    }
    let says = match looking_verb(rest) {
        Some(at) => read_around(rest, at, &all, &server),
        None => read_without_verb(rest, &all),
    };
    match says {
        // A word that is not read here may be a verb.
        NameSays::Read(word) if !tool.tool.is_ascii() => NameSays::MayRead(word),
        NameSays::Effect(word) if has(THINGS, &word) => NameSays::Effect(told_by(rest).cloned().unwrap_or(word)),
        other @ (NameSays::Effect(_)
        | NameSays::Joins(_)
        | NameSays::Read(_)
        | NameSays::MayRead(_)
        | NameSays::Nothing) => other,
    }
}

/// The side-effect word of a name that tells most: one that is plainly a verb, before one that is mostly a thing (`text`, `type`). A word that only
/// joins tells nothing. `None` where there is no other.
fn told_by(words: &[String]) -> Option<&String> {
    let is_known = |at: usize, word: &str| changes(word) && !has(JOINS, word) && !is_pull_request(words, at);
    let known = || words.iter().enumerate().filter(|(at, word)| is_known(*at, word)).map(|(_, word)| word);
    known().find(|word| !has(THINGS, word)).or_else(|| known().next())
}

/// Whether the name of a tool can say that it makes something with this verb.
pub(crate) fn creates_by(verb: &str) -> bool {
    creates::is_said_of(verb)
}

/// What names in the words of a kind say of a call: the kind itself, if any says it.
pub(crate) fn kind_by_names(kind: &EffectKind) -> Option<EffectKind> {
    creates::said_in_words_of(kind)
}

/// What a call of the tool makes anew each time, if its name says so.
pub(crate) fn made_by_name(tool: &ToolName) -> Option<EffectKind> {
    creates::made_by(&words(&tool.tool), &words(&tool.server))
}

/// Whether the name of a tool says that it makes a thing of which only its server knows if a second one in the same words is one more.
pub(crate) fn makes_named(tool: &ToolName) -> bool {
    creates::makes_named(&words(&tool.tool), &words(&tool.server))
}

/// Whether the name of a tool leaves open if it moves money, and its arguments say that it does.
pub(crate) fn moves_amount(tool: &ToolName, schema: &serde_json::Value) -> bool {
    money::moves_amount(&words(&tool.tool), schema)
}

/// Whether a declared kind, read as a name is, says that each call makes something: verbs are one list for names and kinds.
pub(crate) fn made_by_kind(kind: &EffectKind) -> bool {
    creates::made_by_kind(kind)
}

/// Whether the name of a tool leaves open if each call makes something.
pub(crate) fn leaves_open(tool: &ToolName) -> bool {
    creates::leaves_open(&words(&tool.tool), &words(&tool.server))
}

/// What a tool makes of which somebody said that it makes something.
pub(crate) fn made_by_word(tool: &ToolName) -> Option<EffectKind> {
    creates::of_anything(&words(&tool.tool), &words(&tool.server))
}

fn has(list: &[&str], word: &str) -> bool {
    list.contains(&word)
}

fn is_looking(word: &str) -> bool {
    has(LOOKING, word) || has(LOOKING_OR_THING, word) || has(LOOKING_IN_FRONT, word)
}

fn is_plural(word: &str) -> bool {
    word.len() > 2 && word.ends_with('s') && !word.ends_with("ss")
}

/// A name without the words in front that only say whose tool it is. A verb is no prefix, whatever the server is called.
fn without_prefix<'a>(words: &'a [String], server: &[String]) -> &'a [String] {
    let mut rest = words;
    while let [first, after @ ..] = rest
        && !after.is_empty()
        && !is_looking(first)
        && !has(EFFECTS, first)
        && server.contains(first)
    {
        rest = after;
    }
    rest
}

/// A Composio slug begins with its toolkit.
fn after_toolkit<'a>(rest: &'a [String], all: &[String], server: &[String], namespace: ToolNamespace) -> &'a [String] {
    let is_composio = namespace == ToolNamespace::Composio || server.iter().any(|word| word == "composio");
    match rest {
        [first, after @ ..]
            if is_composio
                && !after.is_empty()
                && rest.len() == all.len()
                && !is_looking(first)
                && !has(EFFECTS, first) =>
        {
            after
        }
        _ => rest,
    }
}

/// Where the verb that looks is.
fn looking_verb(rest: &[String]) -> Option<usize> {
    let last = rest.len().saturating_sub(1);
    let at = rest.iter().enumerate().position(|(at, word)| {
        let may_come_last = ["diff", "validate"].contains(&word.as_str());
        has(LOOKING, word)
            || has(LOOKING_OR_THING, word)
            || (has(LOOKING_IN_FRONT, word) && (at == 0 || (at == last && may_come_last)))
    })?;
    // To analyze something with somebody hands the work to them, which may be paid for or leave something behind.
    (rest[at] != "analyze" || !rest.iter().any(|word| word == "with")).then_some(at)
}

/// Whether a word of effect at `at` is the beginning of "pull request", which is a thing.
fn is_pull_request(words: &[String], at: usize) -> bool {
    words[at] == "pull" && words.get(at + 1).is_some_and(|next| ["request", "requests"].contains(&next.as_str()))
}

fn effects(words: &[String]) -> impl Iterator<Item = (usize, &String)> {
    words.iter().enumerate().filter(|(at, word)| has(EFFECTS, word) && !is_pull_request(words, *at))
}

/// Whether a word changes something: it is known to, or it does again or undoes what such a one does (`resubmit`, `unschedule`).
fn changes(word: &str) -> bool {
    let again = |syllable: &&str| word.strip_prefix(syllable).is_some_and(|rest| rest.len() > 2 && has(EFFECTS, rest));
    has(EFFECTS, word) || AGAIN_OR_BACK.iter().any(again)
}

/// A name without a verb that looks: it asks for a state, is about things as they are, or proves nothing.
fn read_without_verb(rest: &[String], all: &[String]) -> NameSays {
    let [.., last] = rest else { return NameSays::Nothing };
    let read = || NameSays::Read(last.clone());
    if is_select(rest) {
        return NameSays::MayRead("select".to_owned());
    }
    let owner = rest.len().checked_sub(2).map(|at| rest[at].as_str());
    // No verb that looks says that such a word is a thing.
    let first_effect = rest.iter().enumerate().find(|(at, word)| changes(word) && !is_pull_request(rest, *at));
    let is_state = has(STATES, last) && rest.len() <= 4;
    match first_effect {
        None if is_state => return read(),
        // `http_test_details`, and not `test_details`.
        Some((1.., _)) if is_state && rest.iter().filter(|word| changes(word)).all(|word| has(MILD_THINGS, word)) => {
            return read();
        }
        Some(_) if owner == Some("take") && ["screenshot", "snapshot"].contains(&last.as_str()) => return read(),
        Some((_, word)) => return NameSays::Effect(word.clone()),
        None => {}
    }
    // Without its prefix the owner of a log may be in the prefix: `git_log` of a server called git.
    let owner = owner.or_else(|| all.len().checked_sub(2).map(|at| all[at].as_str())).unwrap_or_default();
    let is_git = all.iter().any(|word| word == "git");
    match last.as_str() {
        "log" if has(LOG_OWNERS, owner) => read(),
        "tree" if has(TREE_OWNERS, owner) => read(),
        "screenshot" => read(),
        "ping" if rest.len() == 1 => read(),
        word if has(GIT_SHOWS, word) && (owner == "git" || (rest.len() == 1 && is_git)) => read(),
        word if has(DATABASE_STATES, word) && has(DATABASES, owner) && rest.len() <= 2 => read(),
        word if has(ASKING_LANGUAGES, word) && rest.len() == 1 => read(),
        "query" if rest.len() == 2 && has(ASKING_LANGUAGES, owner) => read(),
        word if rest.len() == 2 && owner == "query" && (has(ASKING_LANGUAGES, word) || has(TELEMETRY, word)) => read(),
        // It may run what it explains.
        "explain" if rest.len() == 1 => NameSays::MayRead(last.clone()),
        // To top up a wallet is no list of the best.
        _ if rest.len() > 1 && money::is_phrase(&rest[0], &rest[1]) => NameSays::Effect(rest[0].clone()),
        _ if rest.len() > 1 && has(ADJECTIVES, &rest[0]) => NameSays::Read(rest[0].clone()),
        _ => match rest.iter().find(|word| has(SUGGESTS_LOOKING, word)) {
            Some(word) => NameSays::MayRead(word.clone()),
            None => NameSays::Nothing,
        },
    }
}

/// Whether a name says of what it runs that it is a query which selects: it runs whatever it is given all the same, as `read_query` does.
fn is_select(rest: &[String]) -> bool {
    let [run, select, query] = rest else { return false };
    ["exec", "execute", "run"].contains(&run.as_str())
        && select == "select"
        && ["queries", "query", "sql", "statement"].contains(&query.as_str())
}

/// A name with a verb that looks at `at`.
fn read_around(rest: &[String], at: usize, all: &[String], server: &[String]) -> NameSays {
    let (verb, before, after) = (rest[at].as_str(), &rest[..at], &rest[at + 1..]);
    let read = || NameSays::Read(verb.to_owned());
    let may_read = || NameSays::MayRead(verb.to_owned());
    // Before the verb nothing is plainly a thing: `post_list` may post one.
    if let Some((_, word)) = effects(rest).find(|(place, _)| *place < at) {
        return NameSays::Effect(word.clone());
    }
    if let Some(word) = effect_after(verb, before, after) {
        return NameSays::Effect(word.clone());
    }
    let ends_with = |words: &[&str]| after.last().is_some_and(|word| words.contains(&word.as_str()));
    let starts_with = |words: &[&str]| after.iter().map(String::as_str).take(words.len()).eq(words.iter().copied());
    match verb {
        // Reading a queue may take away what is read.
        "read" if after.iter().any(|word| has(TAKEN_WHEN_READ, word)) => return may_read(),
        // A message of a queue is as good as taken, and what can be read once is gone.
        "fetch" | "get" | "read" | "retrieve" if is_taken(after, all.iter().chain(server)) => return may_read(),
        // What is searched or viewed is read, unless these are things themselves: `search_index_build`, `view_ticket_purchase`.
        "search" | "view" if ends_with_verb(after) => return may_read(),
        // `get_paid`, `get_in_line` and `count_me_in` are no things that somebody has.
        "get" if starts_with(&["in"]) || ends_with(&["back"]) => return may_read(),
        "get" if after.len() == 1 && ends_with(&["airdrop", "cash", "paid"]) => return may_read(),
        // Who gets drops of a faucet has been given something.
        "get" if after.iter().any(|word| word == "faucet") => return may_read(),
        "count" if starts_with(&["down"]) || starts_with(&["me"]) => return may_read(),
        // `notification_read` marks it.
        "read" if after.is_empty() && before.last().is_some_and(|word| has(MARKED_READ, word)) => {
            return NameSays::Nothing;
        }
        // What is asked runs whatever it is given; a token or a code for one time is made on the way, and who gets a lock has taken it.
        "get" | "read" if ends_with(&["lock", "otp", "query", "sql", "token"]) => return may_read(),
        // What is got is the right to look, and it stays: `get_access_to_url` makes a link that opens it.
        "get" if starts_with(&["access", "to"]) => return may_read(),
        // One command of stores of keys: a set of something says of what.
        "get" if after.len() == 1 && ends_with(&["set"]) => return may_read(),
        // Whoever keeps a card asks its bank, which may hold money for it.
        "validate" if ends_with(&["card"]) => return may_read(),
        // What is put up for sale is listed, too: `list_on_market`, `list_item_for_sale`, and not `list_items_on_board`.
        "list" if is_put_up(after) => return may_read(),
        // `git fetch` changes the clone.
        "fetch" if all.iter().any(|word| word == "git") => return NameSays::Nothing,
        _ => {}
    }
    if before.is_empty() || has(LOOKING, verb) || has(LOOKING_IN_FRONT, verb) || verb == "lookup" {
        return read();
    }
    // A verb that is a thing as well, behind words that may be a verb nobody knows.
    let closes = after.first().is_none_or(|word| has(PREPOSITIONS, word));
    let is_read = match verb {
        "list" if closes => match before {
            [only] if has(LISTED_IN_SHORT, only) => true,
            _ => before.last().is_some_and(|word| is_plural(word)),
        },
        "list" => before.len() <= 2 && after.iter().any(|word| is_listed(word)),
        "search" => after.is_empty() || before.len() <= 2,
        _ => before.len() <= 2,
    };
    if is_read { read() } else { may_read() }
}

/// Whether what is read is a message of a queue, or what a program wrote since it was asked last, or can be read once. `whole` are the words of
/// the whole name and of the server's: `rabbitmq_broker_get_message`, `get_message` of `sqs`.
fn is_taken<'a>(after: &[String], mut whole: impl Iterator<Item = &'a String>) -> bool {
    let is_one_of = |words: &[&str]| after.iter().any(|word| words.contains(&word.as_str()));
    let is_message =
        after.last().is_some_and(|word| ["letter", "letters", "message", "messages"].contains(&word.as_str()));
    let is_of_queue = is_one_of(&["queue"]) && is_one_of(&["message", "messages"]);
    let is_written =
        after.last().is_some_and(|word| ["output", "outputs", "stderr", "stdout"].contains(&word.as_str()));
    let is_of_running = is_written && after.iter().any(|word| has(RUNNING, word));
    is_one_of(&["once"])
        || (is_of_queue && (is_message || after.last().is_some_and(|word| word == "queue")))
        || is_of_running
        || (is_message && is_one_of(&["dead", "dlq"]))
        || (is_message && whole.any(|word| has(QUEUES, word)))
}

/// Whether the words behind a verb that may be a thing end with another verb: `index_build`, and not `tools_by_tag`.
fn ends_with_verb(after: &[String]) -> bool {
    let [.., before, last] = after else { return false };
    has(THINGS, last) && !has(PREPOSITIONS, before)
}

/// The word behind a verb that looks which is a second verb and not a thing.
fn effect_after<'a>(verb: &str, before: &[String], after: &'a [String]) -> Option<&'a String> {
    let mut found = effects(after);
    found.find_map(|(place, word)| {
        if has(THINGS, word) {
            // `get_emails_content_mark_read`: a mark of that name is none.
            if word == "mark" && after.get(place + 1).is_some_and(|next| has(MARKED_AS, next)) {
                return Some(word);
            }
            return is_verb_behind_thing(verb, before, after, place).then_some(word);
        }
        // `list_clear_drafts`: the drafts that are clear. A list of items may be cleared.
        let is_adjective = verb == "list" && ["clear", "complete", "open"].contains(&word.as_str());
        (!(is_adjective && after.get(place + 1).is_some_and(|next| is_listed(next)))).then_some(word)
    })
}

/// Whether what is listed is one thing, on or for something.
fn is_put_up(after: &[String]) -> bool {
    let place = after.iter().position(|word| ["for", "on"].contains(&word.as_str()));
    place.is_some_and(|place| !after[..place].iter().any(|word| is_plural(word)))
}

/// Whether a word is what is listed, and not what a list is made of: its items may be changed.
fn is_listed(word: &str) -> bool {
    is_plural(word) && !["elements", "entries", "items", "members"].contains(&word)
}

/// Whether the word behind a verb that looks is a verb all the same, because the one in front may be a thing: `list_push`, `search_start`,
/// `view_update`. Nothing is got or found that is not a thing.
fn is_verb_behind_thing(verb: &str, before: &[String], after: &[String], place: usize) -> bool {
    if !before.is_empty() || place > 0 || has(LOOKING, verb) {
        return false;
    }
    let behind = &after[place + 1..];
    if verb == "list" {
        return !behind.iter().any(|word| is_listed(word));
    }
    // What is done to everything is done: `read_mark_all`.
    behind.iter().all(|word| ["all", "everything"].contains(&word.as_str()))
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
        assert_eq!(says(ToolNamespace::Mcp, "other", "github_list_issues"), read("list"));
        assert_eq!(says(ToolNamespace::Composio, "tools", "GOOGLE_MAPS_GET_ROUTE"), read("get"));
        // Who knows what `approval_list` does.
        let may = NameSays::MayRead("list".to_owned());
        assert_eq!(says(ToolNamespace::Composio, "composio", "COMPOSIO_APPROVAL_LIST"), may);
        assert_eq!(says(ToolNamespace::Mcp, "search", "search"), read("search"));
        assert_eq!(says(ToolNamespace::Mcp, "list", "list_send"), NameSays::Effect("send".to_owned()));
    }

    /// What a person reads of the reason is the word that says something.
    #[test]
    fn the_word_that_tells_most_is_named() {
        let says = |tool: &str| read_name(&ToolName::qualified(ToolNamespace::Mcp, "other", tool));
        for (tool, word) in [
            ("search_and_replace", "replace"),
            ("get_type_then_delete", "delete"),
            ("list_items_and_create", "create"),
            ("read_text_and_move", "move"),
            ("find_and_update_document", "update"),
            ("preview_then_publish", "publish"),
            ("sendAndArchive", "send"),
            ("type_text", "type"),
            ("create_message_text", "create"),
        ] {
            assert_eq!(says(tool), NameSays::Effect(word.to_owned()), "{tool}");
        }
        for (tool, join) in [("rinse_and_repeat", "and"), ("look_then_leap", "then")] {
            assert_eq!(says(tool), NameSays::Joins(join.to_owned()), "{tool}");
        }
    }

    #[test]
    fn names_say_that_they_look() {
        let says = |server: &str, tool: &str| read_name(&ToolName::qualified(ToolNamespace::Mcp, server, tool));
        for (server, tool) in [
            ("slack", "slack_list_channels"),
            ("other", "jira_get_request_types"),
            ("other", "get_label"),
            ("other", "get_run_comments"),
            ("other", "list_order_comments"),
            ("other", "list_clear_drafts"),
            ("other", "issues_list"),
            ("other", "issue_read"),
            ("other", "pull_request_read"),
            ("other", "web_search"),
            ("git", "git_log"),
            ("work-git", "git_status"),
            ("git", "git_show"),
            ("h", "git_show"),
            ("h", "git_blame"),
            ("git", "git_reflog"),
            ("git", "git_blame"),
            ("heroku", "ps_list"),
            ("pg", "pg_locks"),
            ("heroku", "pg_outliers"),
            ("heroku", "pg_ps"),
            ("mongodb", "collection-indexes"),
            ("elastic", "esql"),
            ("grafana", "promql_query"),
            ("metrics", "query_prometheus"),
            ("metrics", "query_promql"),
            ("resend", "get-broadcast"),
            ("maps", "find_place"),
            ("other", "get_bookmark_folders"),
            ("other", "audit_log"),
            ("other", "directory_tree"),
            ("other", "recent_activity"),
            ("other", "http_test_details"),
            ("other", "take_screenshot"),
            ("other", "validate_email"),
            ("other", "get_data_set"),
            // A set of tags, as S3 calls what an object has: two words that are verbs elsewhere.
            ("s3", "inspect_tag_set"),
            ("s3", "get_bucket_tag_set"),
            ("other", "get_locked_files"),
            ("pay", "get_refund"),
            ("pay", "get_payment"),
            ("pay", "get_cash_flow"),
            ("book", "get_appointment"),
            ("notes", "search_by_tag"),
            ("notes", "search_tagged_posts"),
            ("queue", "get_queue_status"),
            ("queue", "get_queue_item"),
            ("queue", "get_queue_message_count"),
            ("queue", "list_queues"),
            ("sqs", "list_messages"),
            ("sqs", "get_message_count"),
            ("slack", "get_message"),
            ("gitlab", "get_pipeline_job_output"),
            ("heroku", "get_process_info"),
            ("wallet", "get_airdrop_history"),
            ("db", "count_rows"),
        ] {
            assert!(matches!(says(server, tool), NameSays::Read(_)), "{tool}: {:?}", says(server, tool));
        }
        for (server, tool) in [
            ("other", "sort_list"),
            ("other", "list_delete"),
            ("other", "list_comment"),
            ("other", "list_push_item"),
            ("other", "search_start"),
            ("other", "view_update"),
            ("other", "list_clear_items"),
            ("other", "post_list"),
            ("other", "get_next_message"),
            ("other", "get_or_create_label"),
            ("other", "update_status"),
            ("other", "bulk_update_details"),
            ("send", "send_list"),
            ("other", "receive_message"),
            ("files", "read_write_file"),
            ("files", "get_rid_of_file"),
            ("redis", "get_del"),
            ("mail", "read_mark_all"),
            ("mail", "read_mark"),
            ("mail", "get_emails_content_mark_read"),
            ("mail", "fetch_thread_mark_as_done"),
            ("mail", "list_mails_mark_seen"),
            ("resend", "compose-broadcast"),
            ("other", "list_broadcast"),
            ("other", "broadcast_list"),
            ("db", "run_query"),
            ("db", "run_select_and_delete"),
            ("db", "execute_select_into_query"),
            ("git", "git_reset"),
            ("git", "git_commit_show"),
            ("pg", "pg_kill"),
        ] {
            assert!(matches!(says(server, tool), NameSays::Effect(_)), "{tool}: {:?}", says(server, tool));
        }
        for (server, tool) in [
            ("queue", "read_messages"),
            ("other", "notification_read"),
            ("click", "run_select_query"),
            ("mongodb", "explain"),
            ("postgres", "explain_query"),
            ("h", "show"),
            ("video", "browser_video_show"),
            ("shell", "rm_list"),
            ("chat", "dm_list"),
            ("other", "blame"),
            ("other", "door_locks"),
            ("other", "frob_promql"),
            ("git", "git_fetch"),
            ("db", "read_query"),
            ("auth", "get_access_token"),
            ("other", "workout_log"),
            ("other", "analyze_issue_with_agent"),
            ("other", "show_message"),
            ("other", "query_database"),
            ("other", "download_file"),
            ("shop", "list_on_market"),
            ("shop", "list_item_for_sale"),
            ("redis", "get_set"),
            ("files", "get_file_lock"),
            ("auth", "get_otp"),
            ("shop", "validate_card"),
            ("vercel", "get_access_to_vercel_url"),
            ("index", "search_index_build"),
            ("shop", "view_ticket_purchase"),
            ("queue", "get_queue_message"),
            ("queue", "retrieve_message_from_queue"),
            ("queue", "get_dead_letter"),
            ("aws-sqs", "get_message"),
            ("other", "rabbitmq_broker_get_message"),
            ("kafka", "fetch_messages"),
            ("desktop-commander", "read_process_output"),
            ("other", "get_terminal_session_output"),
            ("other", "readSessionStdout"),
            ("wallet", "getAirdrop"),
            ("wallet", "get_faucet_tokens"),
            ("other", "count_down"),
            ("click", "query_clickhouse"),
            ("vault", "read_once_secret"),
            ("shop", "get_paid"),
            ("shop", "get_money_back"),
            ("shop", "get_in_line"),
            ("shop", "count_me_in"),
        ] {
            let says = says(server, tool);
            assert!(matches!(says, NameSays::MayRead(_) | NameSays::Nothing), "{tool}: {says:?}");
        }
    }

    #[test]
    fn the_words_are_sorted_and_no_word_looks_and_changes() {
        for list in [LOOKING, LOOKING_OR_THING, LOOKING_IN_FRONT, SUGGESTS_LOOKING, STATES, EFFECTS, THINGS] {
            assert!(list.is_sorted_by(|a, b| a < b), "{list:?}");
        }
        assert!(EFFECTS.iter().all(|word| !is_looking(word)));
        assert!(
            THINGS.iter().chain(MILD_THINGS).all(|word| has(EFFECTS, word)),
            "a thing that is no effect needs no list"
        );
    }
}
