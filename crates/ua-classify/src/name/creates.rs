//! Whether a name says that each call makes a new thing, and which (`effect_kind` of a tool that no rule knows).
//!
//! Durable Jobs v1 spec §8.2: the same content asked for twice is one effect. That is right for what is made anew each time, and wrong for
//! what is merely changed, so a name counts only when its first verb is one of making and the thing is not one that a provider keeps one of.

use ua_core::EffectKind;

use super::acts::is_done_again;
use super::begins::{called_by_noun, made_by_beginning, tells_somebody, written_on_channel};
use super::money::moved_by_part;
use super::vocabulary::{ADDED_ANEW, EFFECTS, FILLERS, JOINS, NAMED_ONCE, PREPOSITIONS, RUNS, SAID_OF_BOTH, STATES};
use super::{has, is_looking, is_plural, without_prefix};

/// What a verb does with the thing behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makes {
    /// The thing is new, with this verb of [`EffectKind`], whatever it is.
    Always(&'static str),
    /// It is new if it is no thing that is kept once under each name.
    Unnamed,
    /// It is new if it is one of [`ADDED_ANEW`].
    Added,
    /// A file is uploaded.
    Attached,
    /// Another run of one of [`RUNS`].
    Started,
    /// A second one, unless it is a file.
    Copied,
    /// Rows, when they are put into something.
    Imported,
    /// Rows or blocks at the end of something.
    Appended,
    /// It is new if it is one of these; behind such a verb other things are changed, too.
    Of(&'static [&'static str]),
    /// It is new if it is one of these, and of other things only the server knows: a form may be handed in twice.
    Surely(&'static [&'static str]),
    /// Only the server knows, whatever it is: a document that is shared again is mailed again by some.
    Perhaps,
    /// Only the server knows, also where the name says nothing of the thing, unless it is one of these: a picture that is generated again is
    /// another one and paid for again, and a summary is only told again.
    PerhapsBut(&'static [&'static str]),
    /// Only the server knows, if it is one of [`MEDIA`].
    Rendered,
    /// Only the server knows, if it is one of [`ADDED_ANEW`] (a note that is saved without an id), and else it is what it was.
    Saved,
    /// Something that is made with somebody.
    Arranged,
    /// Another deployment, unless it is something that has one version under its name.
    Deployed,
    /// Money.
    Moved,
    /// A message in a queue.
    Produced,
    /// A message to somebody else, not a port.
    Forwarded,
}

/// The verbs of making. An open list: a rule says of any other tool that it makes something by its `effect_kind` or by `creates = true`.
const VERBS: &[(&str, Makes)] = &[
    ("add", Makes::Added),
    ("append", Makes::Appended),
    ("attach", Makes::Attached),
    ("book", Makes::Unnamed),
    ("broadcast", Makes::Always("send")),
    ("buy", Makes::Always("pay")),
    ("charge", Makes::Always("pay")),
    ("clone", Makes::Perhaps),
    ("comment", Makes::Always("comment")),
    ("copy", Makes::Copied),
    ("create", Makes::Unnamed),
    ("creates", Makes::Unnamed),
    ("creation", Makes::Unnamed),
    ("deploy", Makes::Deployed),
    ("dispatch", Makes::Of(&["courier", "driver", "order", "package", "shipment", "technician"])),
    ("donate", Makes::Always("pay")),
    ("draft", Makes::Unnamed),
    ("duplicate", Makes::Copied),
    ("enqueue", Makes::Perhaps),
    ("execute", Makes::Started),
    ("fork", Makes::PerhapsBut(&[])),
    ("forward", Makes::Forwarded),
    ("generate", Makes::PerhapsBut(COMPUTED)),
    ("import", Makes::Imported),
    ("initiate", Makes::Of(&["call", "chat", "conversation", "payment", "payout", "refund", "thread", "transfer"])),
    ("insert", Makes::Unnamed),
    ("invite", Makes::Always("invite")),
    ("launch", Makes::Started),
    ("make", Makes::Arranged),
    ("mint", Makes::Unnamed),
    ("new", Makes::Unnamed),
    ("notify", Makes::Always("notify")),
    ("open", Makes::Of(&["case", "issue", "request", "ticket"])),
    ("pay", Makes::Always("pay")),
    ("place", Makes::Of(&["bet", "bid", "call", "order", "trade"])),
    ("post", Makes::Always("post")),
    ("produce", Makes::Produced),
    ("provision", Makes::Unnamed),
    ("publish", Makes::Always("publish")),
    ("purchase", Makes::Always("pay")),
    ("push", Makes::Of(&["message", "notification"])),
    (
        "raise",
        Makes::Of(&[
            "alarm",
            "alert",
            "case",
            "complaint",
            "dispute",
            "incident",
            "invoice",
            "issue",
            "request",
            "ticket",
        ]),
    ),
    ("refund", Makes::Unnamed),
    ("reply", Makes::Always("reply")),
    ("render", Makes::Rendered),
    ("run", Makes::Started),
    ("save", Makes::Saved),
    ("schedule", Makes::Unnamed),
    ("sell", Makes::Always("pay")),
    ("send", Makes::Always("send")),
    ("sends", Makes::Always("send")),
    ("share", Makes::Perhaps),
    ("speak", Makes::PerhapsBut(&[])),
    ("start", Makes::Started),
    ("swap", Makes::Of(&["coin", "crypto", "token"])),
    ("synthesise", Makes::Rendered),
    ("synthesize", Makes::Rendered),
    ("transfer", Makes::Moved),
    ("trigger", Makes::Started),
    ("tts", Makes::PerhapsBut(&["engine", "history", "language", "model", "setting", "status", "voice"])),
    (
        "submit",
        Makes::Surely(&[
            "application",
            "bid",
            "bug",
            "claim",
            "complaint",
            "expense",
            "invoice",
            "issue",
            "order",
            "payment",
            "post",
            "request",
            "ticket",
        ]),
    ),
    ("tweet", Makes::Always("post")),
    ("upload", Makes::Always("upload")),
    ("wire", Makes::Moved),
    ("withdraw", Makes::Moved),
];

/// What is worked out and told, and kept nowhere, when it is generated.
const COMPUTED: &[&str] = &[
    "answer",
    "caption",
    "checksum",
    "code",
    "completion",
    "config",
    "configuration",
    "context",
    "data",
    "description",
    "diff",
    "embedding",
    "example",
    "explanation",
    "expression",
    "guid",
    "hash",
    "id",
    "keyword",
    "list",
    "name",
    "number",
    "outline",
    "passphrase",
    "password",
    "preview",
    "prompt",
    "query",
    "regex",
    "sample",
    "schema",
    "signature",
    "slug",
    "snippet",
    "sql",
    "status",
    "suggestion",
    "summary",
    "text",
    "tree",
    "type",
    "uuid",
];

/// Pictures, sounds and films: made by a model, each time another one, and paid for.
const MEDIA: &[&str] = &[
    "animation",
    "artwork",
    "audio",
    "avatar",
    "film",
    "illustration",
    "image",
    "img",
    "logo",
    "melody",
    "movie",
    "music",
    "narration",
    "photo",
    "picture",
    "podcast",
    "portrait",
    "song",
    "sound",
    "soundtrack",
    "speech",
    "video",
    "voice",
    "voiceover",
];

/// What they are made of, beside each other: `text_to_speech`, `image_to_video`, `txt2img`.
const MADE_OF: [&str; 8] = ["lyrics", "prompt", "scene", "script", "sketch", "story", "text", "txt"];

/// What is started with others, or in front of them.
const STARTED: [&str; 9] =
    ["campaign", "chat", "conversation", "discussion", "huddle", "meeting", "poll", "thread", "topic"];

/// Verbs that stand behind their thing as often as in front of it (`issue_create`, `file_upload`).
const BEHIND: [&str; 4] = ["add", "create", "send", "upload"];

/// Words beside which a verb of making makes nothing, or not always.
const UNMAKING: [&str; 6] = ["ensure", "query", "replace", "search", "update", "upsert"];

/// Verbs that are things as well: with one of [`UNDOING`] behind them, that one is the verb (`comment_delete`, `post_list`).
const THINGS_TOO: [&str; 15] = [
    "book",
    "charge",
    "clone",
    "comment",
    "draft",
    "duplicate",
    "fork",
    "import",
    "invite",
    "post",
    "refund",
    "reply",
    "schedule",
    "share",
    "upload",
];
/// Verbs that stand behind such a thing and do not make it.
pub(super) const UNDOING: [&str; 20] = [
    "archive", "cancel", "clear", "close", "count", "delete", "edit", "get", "hide", "list", "move", "pin", "remove",
    "rename", "resolve", "restore", "revoke", "status", "unpin", "verify",
];
/// Verbs with which money is given back or asked for (`issue_refund`): no things.
const GIVING: [&str; 5] = ["give", "issue", "make", "process", "request"];

/// Things that end like several and are one.
const NO_PLURALS: [&str; 13] = [
    "address", "alias", "analysis", "bonus", "canvas", "chess", "dns", "gps", "news", "series", "sms", "species",
    "status",
];

/// What is deployed under its name, in the place of what was there.
const DEPLOYED_BY_NAME: [&str; 7] = ["function", "policy", "rule", "schema", "script", "template", "worker"];

/// What is composed and may be there once more then.
const COMPOSED: [&str; 5] = ["email", "letter", "mail", "message", "sms"];

/// Words that say that a message is a mail.
const MAILS: [&str; 5] = ["email", "emails", "gmail", "mail", "outlook"];

pub(super) fn vocabulary() -> String {
    let verbs: Vec<String> = VERBS.iter().map(|(verb, makes)| format!("{verb}={makes:?}")).collect();
    let lists: [&[&str]; 12] = [
        &BEHIND,
        &UNMAKING,
        &MAILS,
        &THINGS_TOO,
        &UNDOING,
        &GIVING,
        &NO_PLURALS,
        &DEPLOYED_BY_NAME,
        &COMPOSED,
        MEDIA,
        &MADE_OF,
        &STARTED,
    ];
    let lists: Vec<String> = lists.iter().map(|words| words.join(" ")).collect();
    format!("{}\n{}", verbs.join(" "), lists.join("\n"))
}

/// The verbs of the kinds that names can say.
const KINDS: [&str; 11] =
    ["comment", "create", "forward", "invite", "notify", "pay", "post", "publish", "reply", "send", "upload"];

/// Whether the name of a tool can say that it makes something with this verb of [`EffectKind`].
pub(super) fn is_said_of(verb: &str) -> bool {
    KINDS.contains(&verb)
}

/// What names in the words of a kind say: the kind itself, if any says it, else what they say instead. `send_mail` is `email.send`, and no tool has
/// `mail.send`.
pub(super) fn said_in_words_of(kind: &EffectKind) -> Option<EffectKind> {
    let (object, verb) = kind.as_str().split_once('.')?;
    let named =
        |verb: &str| -> Vec<String> { std::iter::once(verb).chain(object.split('_')).map(str::to_owned).collect() };
    let by = |verb: &str| made_by(&named(verb), &[]);
    let is_said = VERBS.iter().any(|(verb, _)| by(verb).as_ref() == Some(kind));
    // A thing of which services keep one under each name is made where its server says so.
    let is_kept = || verb == "create" && of_anything(&named(verb), &[]).as_ref() == Some(kind);
    if is_said || is_kept() { Some(kind.clone()) } else { by(verb) }
}

/// What a name says that a call makes.
pub(super) enum Made {
    /// One more of this kind each time.
    Anew(EffectKind),
    /// A thing of which many services keep one under each name, and many do not: a second folder of one name is refused, is the same one, or is
    /// another one.
    Named,
}

/// What a call of a tool of this name makes, when the name says it; `words` are the name's.
pub(super) fn made_by(words: &[String], server: &[String]) -> Option<EffectKind> {
    parts_made(words, server).find_map(|made| match made {
        Made::Anew(kind) => Some(kind),
        Made::Named => None,
    })
}

/// Whether a tool of this name makes a thing of which only its server knows if a second one in the same words is one more.
pub(super) fn makes_named(words: &[String], server: &[String]) -> bool {
    made_by(words, server).is_none() && parts_made(words, server).next().is_some()
}

/// What the parts of a name make. `create_and_send_campaign`: what is done last says what it is; if nothing is made there, what is done before.
fn parts_made(words: &[String], server: &[String]) -> impl Iterator<Item = Made> {
    let rest = without_prefix(words, server);
    let leaves_out = rest.iter().any(|word| word == "or" || UNMAKING.contains(&word.as_str()));
    let parts = rest.rsplit(|word| has(JOINS, word)).filter(move |_| !leaves_out);
    parts.filter_map(move |part| match made_by_part(part, words, server) {
        // Money that is moved is surely moved again.
        Some(Made::Named) => moved_by_part(part).or(Some(Made::Named)),
        made => made.or_else(|| moved_by_part(part)).or_else(|| is_seen_again(part).then_some(Made::Named)),
    })
}

/// Whether somebody or something outside sees it once more, where nothing is made that has a name.
fn is_seen_again(part: &[String]) -> bool {
    tells_somebody(part) || is_done_again(part)
}

/// What one part of a name makes; `words` are those of the whole name, `server` those of whose tool it is.
fn made_by_part(rest: &[String], words: &[String], server: &[String]) -> Option<Made> {
    if is_looking(rest.first()?) {
        return None;
    }
    // What is composed is only written, in most places: it is not sent yet. Of a message one more may be left behind each time.
    if rest[0] == "compose" {
        let is_made = |word: &str| COMPOSED.contains(&word) || has(MEDIA, word);
        return rest[1..].last().is_some_and(|last| is_made(&singular(last))).then_some(Made::Named);
    }
    let by_beginning = || called_by_noun(rest).or_else(|| made_by_beginning(rest));
    if let Some(kind) = written_on_channel(words, server).or_else(by_beginning) {
        return Some(Made::Anew(kind));
    }
    if is_media_of_something(rest) {
        return Some(Made::Named);
    }
    let makes = |word: &str| VERBS.iter().find(|(verb, _)| *verb == word).map(|(_, makes)| *makes);
    let at = rest.iter().position(|word| has(EFFECTS, word) || makes(word).is_some())?;
    let last = rest.len() - 1;
    let stands_behind = at < last && makes(&rest[at]).is_none() && BEHIND.contains(&rest[last].as_str());
    // `release_create`: the first word is a verb elsewhere, and a thing here.
    let at = if stands_behind && has(super::vocabulary::THINGS, &rest[at]) { last } else { at };
    let makes = makes(&rest[at])?;
    let after = &rest[at + 1..];
    // A status is what is posted.
    let is_posted = rest[at] == "post" && after == ["status"];
    if has(&THINGS_TOO, &rest[at]) && after.len() == 1 && has(&UNDOING, &after[0]) && !is_posted {
        return None;
    }
    let is_given = after.is_empty() && at > 0 && has(&GIVING, &rest[at - 1]);
    let thing = if is_given { vec![rest[at].clone()] } else { thing(&rest[..at], after) };
    let head = thing.last().map_or("", String::as_str);
    let is_mail = words.iter().any(|word| MAILS.contains(&word.as_str()));
    let named = |object: &str, verb: &str| kind(if object.is_empty() { "item" } else { object }, verb);
    let whole = thing.join("_");
    let made = match makes {
        Makes::Always(verb @ ("send" | "reply")) if is_mail => kind("email", verb),
        Makes::Always(verb) => kind(if whole.is_empty() { "message" } else { &whole }, verb),
        Makes::Unnamed if has(NAMED_ONCE, head) => return Some(Made::Named),
        Makes::Unnamed => named(&whole, "create"),
        // `quick_add` is how a calendar calls the making of an event from a sentence.
        Makes::Added if after.is_empty() && at > 0 && rest[at - 1] == "quick" => kind("item", "create"),
        Makes::Added if head == "comment" => named(&thing[..thing.len() - 1].join("_"), "comment"),
        Makes::Added if has(ADDED_ANEW, head) => named(&whole, "create"),
        // Whoever adds an account to something has it already: `add_email_account`, and not `add_account_to_group`.
        Makes::Added if head == "account" && thing.len() > 1 && !after.iter().any(|word| has(PREPOSITIONS, word)) => {
            named(&whole, "create")
        }
        Makes::Deployed if DEPLOYED_BY_NAME.contains(&head) => None,
        Makes::Deployed => kind("deployment", "create"),
        Makes::Attached => {
            let is_file = |word: &String| ["data", "document", "file", "image", "media"].contains(&word.as_str());
            thing.iter().any(is_file).then(|| kind("attachment", "upload")).flatten()
        }
        Makes::Started if rest[at] == "start" && head == "call" => kind("call", "create"),
        Makes::Started if rest[at] == "start" && STARTED.contains(&head) => return Some(Made::Named),
        Makes::Started => {
            thing.iter().find(|word| has(RUNS, word)).and_then(|what| kind(&format!("{what}_run"), "create"))
        }
        Makes::Copied if !["", "directory", "file", "folder", "object"].contains(&head) => named(&whole, "create"),
        Makes::Imported if after.iter().any(|word| ["to", "into"].contains(&word.as_str())) => kind("row", "create"),
        Makes::Appended if ["block", "child", "record", "row"].contains(&head) => named(head, "create"),
        Makes::Of(things) | Makes::Surely(things) if things.contains(&head) => named(&whole, "create"),
        Makes::Saved if has(ADDED_ANEW, head) => return Some(Made::Named),
        Makes::PerhapsBut(others) if !has(others, head) => return Some(Made::Named),
        Makes::Rendered if has(MEDIA, head) => return Some(Made::Named),
        // A state or a list is put in the place of the one before.
        Makes::Perhaps | Makes::Imported | Makes::Surely(_) if !["", "list", "state", "status"].contains(&head) => {
            return Some(Made::Named);
        }
        Makes::Arranged if ["booking", "call", "order", "purchase", "reservation"].contains(&head) => {
            named(head, "create")
        }
        Makes::Arranged | Makes::Moved if ["cash", "crypto", "fund", "money", "payment"].contains(&head) => {
            kind("payment", "pay")
        }
        Makes::Produced if ["event", "message", "record"].contains(&head) => kind("message", "send"),
        Makes::Forwarded if is_mail => kind("email", "forward"),
        Makes::Forwarded if !after.is_empty() && head != "port" => named(&whole, "forward"),
        Makes::Added
        | Makes::Copied
        | Makes::Imported
        | Makes::Appended
        | Makes::Of(_)
        | Makes::Surely(_)
        | Makes::Perhaps
        | Makes::PerhapsBut(_)
        | Makes::Rendered
        | Makes::Saved
        | Makes::Arranged
        | Makes::Moved
        | Makes::Produced
        | Makes::Forwarded => None,
    };
    made.map(Made::Anew)
}

/// Whether a name says that a picture, a sound or a film is made of something else: `convert_text_to_speech`, `img2img`.
fn is_media_of_something(rest: &[String]) -> bool {
    let is_of = |word: &str| MADE_OF.contains(&word) || has(MEDIA, word);
    let is_about = |word: &String| is_looking(word) || has(STATES, word) || has(&UNDOING, word);
    let in_words =
        rest.windows(3).any(|three| three[1] == "to" && is_of(&three[0]) && has(MEDIA, &singular(&three[2])));
    let in_one = || rest.iter().filter_map(|word| word.split_once('2')).any(|(of, made)| is_of(of) && has(MEDIA, made));
    (in_words || in_one()) && !rest.iter().any(is_about)
}

/// Whether a name leaves open if each call makes something, so that it is for its server to say: it has no verb that is known, or one that is
/// said of making and of changing alike. `update_title`, `pause_project` and `create_branch` leave nothing open.
pub(super) fn leaves_open(words: &[String], server: &[String]) -> bool {
    let rest = without_prefix(words, server);
    let is_verb = |word: &&String| has(EFFECTS, word) || VERBS.iter().any(|(verb, _)| verb == word);
    let is_unmaking = rest.iter().any(|word| UNMAKING.contains(&word.as_str()));
    !is_unmaking && rest.iter().find(is_verb).is_none_or(|verb| has(SAID_OF_BOTH, verb))
}

/// Whether a kind with this verb makes something, read as a name is: `stock.sell` as `sell_stock`.
pub(super) fn made_by_kind(kind: &EffectKind) -> bool {
    kind.as_str().split_once('.').is_some_and(|(object, verb)| {
        let words: Vec<String> = std::iter::once(verb).chain(object.split('_')).map(str::to_owned).collect();
        made_by(&words, &[]).is_some()
    })
}

/// The kind for a tool of which a rule says `creates = true` and nothing more.
pub(super) fn of_anything(words: &[String], server: &[String]) -> Option<EffectKind> {
    let rest = without_prefix(words, server);
    let thing: Vec<String> = rest.iter().filter(|word| !has(EFFECTS, word) && !has(FILLERS, word)).cloned().collect();
    made_by(words, server).or_else(|| kind(&thing.join("_"), "create")).or_else(|| kind("item", "create"))
}

/// The words that name the thing: those behind the verb up to a preposition, else those in front of it, each in the singular.
pub(super) fn thing(before: &[String], after: &[String]) -> Vec<String> {
    let is_filler = |word: &&String| has(FILLERS, word) || has(PREPOSITIONS, word);
    let until = after.iter().position(|word| has(PREPOSITIONS, word)).unwrap_or(after.len());
    let pick = |words: &[String]| -> Vec<String> {
        words.iter().filter(|word| !is_filler(word)).map(|word| singular(word)).collect()
    };
    let behind = pick(&after[..until]);
    if !behind.is_empty() {
        return behind;
    }
    let in_front = pick(before);
    if in_front.is_empty() { pick(after) } else { in_front }
}

/// A word in the singular.
pub(super) fn singular(word: &str) -> String {
    if word == "children" {
        return "child".to_owned();
    }
    if has(&NO_PLURALS, word) {
        return word.to_owned();
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    if ["sses", "xes", "ches", "shes"].iter().any(|end| word.ends_with(end)) {
        return word[..word.len() - 2].to_owned();
    }
    if is_plural(word) { word[..word.len() - 1].to_owned() } else { word.to_owned() }
}

/// `<object>.<verb>`; characters that such a text cannot have are left out.
pub(super) fn kind(object: &str, verb: &str) -> Option<EffectKind> {
    let object: String = object.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').collect();
    EffectKind::parse(&format!("{}.{verb}", object.trim_matches('_')))
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    fn made(server: &str, name: &str) -> Option<String> {
        made_by(&words(name), &words(server)).map(|kind| kind.as_str().to_owned())
    }

    #[test]
    fn what_a_budget_may_count_is_what_names_can_say() {
        for (_, makes) in VERBS {
            let Makes::Always(verb) = makes else { continue };
            assert!(is_said_of(verb), "{verb}");
        }
        let shipped = crate::Classifier::shipped().unwrap();
        for kind in [
            "email.send",
            "issue.comment",
            "gizmo.create",
            "folder.create",
            "mail.post",
            "payment.pay",
            "workflow_run.create",
        ] {
            assert_eq!(shipped.can_be_effect(kind), Ok(()), "{kind}");
        }
        // Whatever a tool of these words is called, its effect is another one, and a budget of these would limit nothing.
        for (kind, meant) in
            [("mail.send", "email.send"), ("emails.send", "email.send"), ("issues.create", "issue.create")]
        {
            assert_eq!(shipped.can_be_effect(kind), Err(Some(meant.to_owned())), "{kind}");
        }
        // All that names say in the tests below can be limited.
        for name in [
            "create_pull_request",
            "add_issue_comment",
            "attach_file_to_card",
            "append_table_rows",
            "wire_money",
            "swap_tokens",
        ] {
            let said = made("other", name).unwrap();
            assert_eq!(shipped.can_be_effect(&said), Ok(()), "{said}");
        }
        assert_eq!(shipped.can_be_effect("email.sned"), Err(Some("email.send".to_owned())));
        assert_eq!(shipped.can_be_effect("xq"), Err(None));
    }

    #[test]
    fn names_say_what_they_make() {
        for (name, expected) in [
            ("create_issue", "issue.create"),
            ("create_pull_request", "pull_request.create"),
            ("batch_create_tickets", "ticket.create"),
            ("ticket_create", "ticket.create"),
            ("add_comment", "item.comment"),
            ("add_issue_comment", "issue.comment"),
            ("add_cards_to_list", "card.create"),
            ("sendMessage", "message.send"),
            ("GMAIL_SEND_DRAFT", "email.send"),
            ("reply_to_conversation", "conversation.reply"),
            ("attach_file_to_card", "attachment.upload"),
            ("run_workflow", "workflow_run.create"),
            ("create_refund", "refund.create"),
            ("notify", "message.notify"),
            ("append_table_rows", "row.create"),
            ("create", "item.create"),
            ("transfer_money", "payment.pay"),
            ("place_order", "order.create"),
            ("issue_refund", "refund.create"),
            ("send_sms", "sms.send"),
            ("book_series", "series.create"),
            ("submit_expense_report_claim", "expense_report_claim.create"),
            ("new_issue", "issue.create"),
            ("broadcast", "message.send"),
            ("get_and_send_report", "report.send"),
            ("donate", "message.pay"),
            ("push_text_message", "text_message.create"),
            ("push_notification", "notification.create"),
            ("wire_money", "payment.pay"),
            ("withdraw_crypto", "payment.pay"),
            ("sell_stock", "stock.pay"),
            ("initiate_payment", "payment.create"),
            ("swap_tokens", "token.create"),
            ("dispatch_courier", "courier.create"),
            ("submit_post", "post.create"),
            ("insert-many", "item.create"),
            ("insertOne", "item.create"),
            ("insert_many_documents", "document.create"),
            ("deploy_to_heroku", "deployment.create"),
            ("deploy_one_off_dyno", "deployment.create"),
            ("deploy", "deployment.create"),
            ("provision_ai_model", "ai_model.create"),
            ("add_email_account", "email_account.create"),
            ("compose_and_send_email", "email.send"),
            ("mail_report", "email.send"),
            ("email_invoices", "email.send"),
            ("slack_message", "message.send"),
            ("whatsapp_text", "message.send"),
            ("enqueue_email", "email.send"),
            ("raise_alert", "alert.create"),
            ("log_time", "time.create"),
            ("call_phone", "call.create"),
            ("call_phone_number", "call.create"),
            ("phone_call", "call.create"),
            ("outbound_voice_call", "call.create"),
            ("start_call", "call.create"),
            ("initiate_call", "call.create"),
            ("text_phone", "sms.send"),
            ("message_channel", "message.send"),
        ] {
            assert_eq!(made("other", name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn what_is_kept_once_or_only_changed_is_not_made() {
        for name in [
            "create_branch",
            "create_or_update_file",
            "get_or_create_label",
            "create_workspace_tags",
            "upsert_record",
            "update_comment",
            "delete_message",
            "add_label_to_issue",
            "add_reaction",
            "get_upload_url",
            "port_forward",
            "copy_file",
            "post_search",
            "run_code",
            "submit_form",
            "comment_delete",
            "post_list",
            "place_pin",
            "raise_limit",
            "frobnicate",
            "compose-broadcast",
            "compose_tweet",
            "deploy_edge_function",
            "provision_database",
            "add_account_to_group",
            "add_account",
            "undeploy_app",
        ] {
            assert_eq!(made("other", name), None, "{name}");
        }
    }

    /// A repeat of these in the same words is a question, and of the others the same state again.
    #[test]
    fn what_may_be_there_once_more_has_no_kind_and_asks() {
        let named = |name: &str| makes_named(&words(name), &words("other"));
        for name in [
            "compose_mail",
            "compose_email",
            "enqueue_job",
            "share_doc",
            "share_document_with_user",
            "import_contacts",
            "save_issue",
            "save_note",
            "clone_repo",
            "clone_voice",
            "submit_form",
            "form_submit",
            "submit_pending_review",
            "create_folder",
            "fork",
            "fork_repository",
            "generate",
            "generate_image",
            "generate_music_track",
            "generate_api_key",
            "generate_report",
            "render_video",
            "synthesize_speech",
            "compose_song",
            "text_to_speech",
            "convert_text_to_speech",
            "image_to_video",
            "txt2img",
            "tts",
            "speak",
            "start_thread",
            "start_conversation",
            "swap_positions",
            // What is seen to reach somebody.
            "sms",
            "telegram",
            "whatsapp",
            "dm",
            "tell",
            "text",
            "message",
            "email",
            "mail_to",
            "call",
            "sms_dispatch",
            "telegram_sticker",
            "team_alert",
            "direct_message",
            "alert",
        ] {
            assert!(named(name) && made("other", name).is_none(), "{name}");
        }
        for name in [
            "write_record",
            "write_file",
            "put_item",
            "save_file",
            "save_settings",
            "save_or_update_note",
            "share_delete",
            "share_list",
            "unshare_doc",
            "get_share_link",
            "compose_query",
            "compose-broadcast",
            "append",
            // The same line once more is what many a log wants.
            "append_text",
            "append_to_document",
            "raise_limit",
            "list_imports",
            "generate_uuid",
            "generate_report_preview",
            "generate_typescript_types",
            "generate_password",
            "generate_text_summary",
            "fork_list",
            "fork_delete",
            "render_page",
            "render_template",
            "tts_voices",
            "text_to_sql",
            "get_text_to_speech_voices",
            "speech_to_text",
            "start_container",
            "start_recording",
            "swap_columns",
            "function_call",
            "call_tool",
            "get_sms",
            "list_threads",
            "sms_templates",
            "telegram_status",
            "whatsapp_check_number",
            "edit_message",
            "translate_text",
            "text_file",
            "tell_joke",
            "compose_tweet",
            "latest_message",
            "message_by_id",
            "write_text",
        ] {
            assert!(!named(name) && made("other", name).is_none(), "{name}");
        }
        assert_eq!(made("slack", "message").as_deref(), Some("message.send"), "whose tool it is says where");
        assert_eq!(made("other", "message"), None);
        for verb in ua_core::TELLING_VERBS {
            assert!(named(verb) || made("other", verb).is_some(), "{verb} reaches somebody, so it creates");
        }
        // Whose tool it is tells nobody anything.
        assert!(!makes_named(&words("telegram_chats"), &words("telegram")));
    }

    #[test]
    fn a_server_may_say_what_a_name_leaves_open_and_nothing_else() {
        let open = |name: &str| leaves_open(&words(name), &[]);
        for name in ["escalate_incident", "frobnicate", "save_note", "submit_order", "orders_submit", "record_payment"]
        {
            assert!(open(name), "{name}");
        }
        for name in [
            "update_issue_title",
            "resolve_thread",
            "pause_project",
            "restore_project",
            "checkout",
            "commit_all",
            "create_branch",
            "add_reaction",
            "save_or_update_note",
        ] {
            assert!(!open(name), "{name}");
        }
    }

    #[test]
    fn a_rule_may_say_of_anything_that_it_makes_something() {
        let of = |name: &str| of_anything(&words(name), &[]).map(|kind| kind.as_str().to_owned());
        assert_eq!(of("escalate_incident").as_deref(), Some("incident.create"));
        assert_eq!(of("create_branch").as_deref(), Some("branch.create"));
        assert_eq!(of("x1").as_deref(), Some("x.create"));
        assert_eq!(of("1").as_deref(), Some("item.create"));
    }
}
