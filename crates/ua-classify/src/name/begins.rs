//! Words that are things elsewhere, and verbs where a name begins with them and what they are done with follows: `text_user`, `file_bug`,
//! `order_pizza`.
//!
//! Each such word stands beside what makes it a verb, so that `file_upload`, `order_status` and `text_file` stay what they are.

use ua_core::{EffectKind, MAIL_WORDS, NOT_TELLING, SAID_TO_NOBODY, TELLING_VERBS, name_tells};

use super::creates::{UNDOING, kind, singular, thing};
use super::vocabulary::{ADJECTIVES, EFFECTS, FILLERS, PREPOSITIONS, SAID_OF_BOTH, STATES, SUGGESTS_LOOKING, THINGS};
use super::{changes, has, is_looking, is_plural};

/// What such a word needs behind it, and what is made then.
#[derive(Debug, Clone, Copy)]
enum Behind {
    /// Whoever is told: a message with this object of its kind.
    Somebody(&'static str),
    /// Somebody, or what is told: `page_oncall`, `alert_team`; any of these or a person.
    Things(&'static [&'static str], Verb),
    /// Anything but what is known of such a thing: `order_pizza`, not `order_status`; an order of this name.
    AnythingBut(&'static [&'static str], &'static str, &'static str),
}

/// The verb of the kind, and its object where it is not what stands behind.
#[derive(Debug, Clone, Copy)]
enum Verb {
    /// `<thing>.create`.
    Create,
    /// `<thing>.send`, of a mail `email.send`.
    Send,
    /// `<thing>.reply`.
    Reply,
    /// `email.send`, whatever is mailed.
    Mail,
    /// `payment.pay`.
    Pay,
    /// `call.create`, whatever is called.
    Call,
    /// `sms.send`, whatever is written to.
    Text,
    /// `message.send`, wherever it is written.
    Write,
}

/// What is mailed to somebody, where `mail` or `email` is the verb: `mail_report`.
const MAILED: &[&str] = &[
    "digest",
    "document",
    "invoice",
    "letter",
    "newsletter",
    "quote",
    "receipt",
    "report",
    "result",
    "statement",
    "summary",
];

/// Ways on which messages are written.
const CHANNELS: &[&str] = &[
    "discord",
    "imessage",
    "mattermost",
    "messenger",
    "msteams",
    "signal",
    "slack",
    "sms",
    "teams",
    "telegram",
    "viber",
    "wechat",
    "whatsapp",
    "zulip",
];
/// What a message on one of them is called.
const WRITTEN: &[&str] = &["dm", "message", "msg", "sms", "text"];

/// What a person is called or written to by.
const NUMBERS: &[&str] = &["cell", "landline", "mobile", "number", "phone", "telephone"];
/// What stands in front of a call that is made to somebody, and to no function.
const CALLS: &[&str] =
    &["conference", "facetime", "outbound", "phone", "skype", "telephone", "video", "voice", "voip", "whatsapp"];

/// What is sent to somebody.
const TOLD: &[&str] = &[
    "alert",
    "announcement",
    "campaign",
    "email",
    "fax",
    "invitation",
    "letter",
    "line",
    "mail",
    "message",
    "newsletter",
    "notification",
    "reminder",
    "sms",
    "voicemail",
];

/// Money, and what it is paid for or into.
const MONEY: &[&str] = &[
    "account", "balance", "bonus", "card", "cash", "charge", "credit", "crypto", "fund", "money", "payment", "payout",
    "wallet",
];

/// What is answered.
const ANSWERED: &[&str] =
    &["comment", "conversation", "email", "inquiry", "mail", "message", "question", "review", "thread", "ticket"];

/// Whom one tells something.
const PEOPLE: &[&str] = &[
    "admin",
    "all",
    "applicant",
    "assignee",
    "attendee",
    "author",
    "boss",
    "candidate",
    "client",
    "colleague",
    "contact",
    "customer",
    "doctor",
    "driver",
    "employee",
    "engineer",
    "everybody",
    "everyone",
    "follower",
    "friend",
    "guest",
    "her",
    "him",
    "human",
    "lead",
    "manager",
    "me",
    "member",
    "oncall",
    "operator",
    "owner",
    "parent",
    "patient",
    "people",
    "person",
    "responder",
    "reviewer",
    "somebody",
    "someone",
    "staff",
    "student",
    "subscriber",
    "supplier",
    "support",
    "team",
    "tenant",
    "them",
    "user",
    "vendor",
];

/// Verbs of telling somebody something that are things as often where a name begins with one of them, or name what is told: `tell_joke`.
const TELLING_OR_THING: &[&str] =
    &["alert", "call", "email", "mail", "message", "phone", "post", "reply", "ring", "tell", "text"];

/// Each beginning beside what makes it a verb.
const BEGINNINGS: &[(&str, Behind)] = &[
    ("airdrop", Behind::AnythingBut(&[], "payment", "pay")),
    ("alert", Behind::Somebody("message")),
    ("announce", Behind::AnythingBut(&[], "message", "notify")),
    ("answer", Behind::Things(ANSWERED, Verb::Reply)),
    ("bet", Behind::AnythingBut(&["amount", "odds", "slip", "type"], "bet", "create")),
    ("bid", Behind::AnythingBut(&["amount", "price", "type"], "bid", "create")),
    ("blast", Behind::AnythingBut(&["radius"], "message", "send")),
    ("call", Behind::Somebody("call")),
    ("call", Behind::Things(NUMBERS, Verb::Call)),
    ("capture", Behind::Things(&["charge", "payment"], Verb::Pay)),
    ("cast", Behind::Things(&["ballot", "vote"], Verb::Create)),
    ("debit", Behind::Things(MONEY, Verb::Pay)),
    ("deliver", Behind::Things(TOLD, Verb::Send)),
    ("deposit", Behind::Things(MONEY, Verb::Pay)),
    ("dial", Behind::AnythingBut(&["plan"], "call", "create")),
    ("dispatch", Behind::Things(TOLD, Verb::Send)),
    ("dm", Behind::Somebody("message")),
    ("drop", Behind::Things(TOLD, Verb::Send)),
    ("email", Behind::Somebody("email")),
    ("email", Behind::Things(MAILED, Verb::Mail)),
    ("enqueue", Behind::Things(TOLD, Verb::Send)),
    (
        "execute",
        Behind::Things(
            &["order", "payment", "payout", "purchase", "swap", "trade", "transaction", "transfer"],
            Verb::Create,
        ),
    ),
    ("fax", Behind::AnythingBut(&["machine", "number", "numbers"], "fax", "send")),
    (
        "file",
        Behind::Things(
            &["appeal", "bug", "case", "claim", "complaint", "dispute", "expense", "issue", "request", "tax", "ticket"],
            Verb::Create,
        ),
    ),
    ("gift", Behind::Things(&["card", "credit", "subscription", "voucher"], Verb::Create)),
    ("give", Behind::Things(&["bonus", "credit", "feedback", "refund", "tip"], Verb::Create)),
    ("grant", Behind::Things(&["bonus", "credit", "refund"], Verb::Create)),
    ("inform", Behind::Somebody("message")),
    (
        "issue",
        Behind::Things(
            &[
                "bond",
                "card",
                "certificate",
                "check",
                "coupon",
                "credit",
                "invoice",
                "payment",
                "receipt",
                "refund",
                "voucher",
            ],
            Verb::Create,
        ),
    ),
    (
        "launch",
        Behind::Things(
            &["campaign", "cluster", "container", "droplet", "instance", "machine", "node", "server", "vm"],
            Verb::Create,
        ),
    ),
    (
        "leave",
        Behind::Things(&["comment", "feedback", "message", "note", "reply", "review", "voicemail"], Verb::Create),
    ),
    (
        "log",
        Behind::Things(
            &["effort", "expense", "hour", "interaction", "meal", "sale", "time", "visit", "work", "workout"],
            Verb::Create,
        ),
    ),
    ("mail", Behind::Somebody("email")),
    ("mail", Behind::Things(MAILED, Verb::Mail)),
    (
        "make",
        Behind::Things(
            &["appointment", "bet", "bid", "deposit", "donation", "post", "trade", "transfer"],
            Verb::Create,
        ),
    ),
    ("message", Behind::Somebody("message")),
    ("message", Behind::Things(&["channel", "group", "room"], Verb::Write)),
    ("order", Behind::AnythingBut(ABOUT_ORDERS, "order", "create")),
    ("page", Behind::Somebody("message")),
    ("phone", Behind::Somebody("call")),
    ("ping", Behind::Somebody("message")),
    ("pm", Behind::Somebody("message")),
    (
        "print",
        Behind::Things(
            &["badge", "document", "invoice", "label", "letter", "photo", "receipt", "ticket"],
            Verb::Create,
        ),
    ),
    ("process", Behind::Things(&["payment", "payout", "refund"], Verb::Create)),
    ("queue", Behind::Things(TOLD, Verb::Send)),
    ("record", Behind::Things(&["donation", "expense", "payment", "purchase", "sale", "transaction"], Verb::Create)),
    ("remind", Behind::Somebody("message")),
    ("rent", Behind::AnythingBut(&["amount", "due", "price"], "rental", "create")),
    (
        "request",
        Behind::Things(&["callback", "loan", "payment", "payout", "pickup", "quote", "refund", "ride"], Verb::Create),
    ),
    ("resend", Behind::AnythingBut(&[], "message", "send")),
    (
        "reserve",
        Behind::Things(
            &[
                "appointment",
                "car",
                "desk",
                "flight",
                "hotel",
                "room",
                "seat",
                "slot",
                "spot",
                "stock",
                "table",
                "ticket",
            ],
            Verb::Create,
        ),
    ),
    ("respond", Behind::Things(ANSWERED, Verb::Reply)),
    ("ring", Behind::Somebody("call")),
    ("ring", Behind::Things(NUMBERS, Verb::Call)),
    ("ship", Behind::Things(&["item", "order", "package", "parcel", "product"], Verb::Create)),
    ("sms", Behind::Somebody("sms")),
    (
        "submit",
        Behind::Things(
            &[
                "ballot",
                "dispute",
                "feedback",
                "offer",
                "proposal",
                "quote",
                "report",
                "return",
                "trade",
                "transaction",
                "vote",
            ],
            Verb::Create,
        ),
    ),
    ("tell", Behind::Somebody("message")),
    ("text", Behind::Somebody("sms")),
    ("text", Behind::Things(NUMBERS, Verb::Text)),
    ("tip", Behind::Somebody("tip")),
    ("toot", Behind::AnythingBut(&["id"], "message", "post")),
    ("transmit", Behind::Things(TOLD, Verb::Send)),
    ("whatsapp", Behind::Somebody("message")),
    ("write", Behind::Things(&["comment", "letter", "reply", "review"], Verb::Create)),
];

/// What a name says of orders that are there.
const ABOUT_ORDERS: &[&str] = &[
    "amount",
    "book",
    "by",
    "confirmation",
    "date",
    "entries",
    "entry",
    "flow",
    "id",
    "ids",
    "invoice",
    "invoices",
    "item",
    "items",
    "line",
    "lines",
    "number",
    "numbers",
    "price",
    "state",
    "summary",
    "total",
    "totals",
    "tracking",
    "type",
    "types",
];

pub(super) fn vocabulary() -> String {
    let words: Vec<String> = BEGINNINGS.iter().map(|(word, behind)| format!("{word}={behind:?}")).collect();
    let told = [TELLING_VERBS, NOT_TELLING, SAID_TO_NOBODY, MAIL_WORDS];
    let lists = [PEOPLE, ABOUT_ORDERS, CHANNELS, WRITTEN, CALLS, TELLING_OR_THING].into_iter().chain(told);
    let lists: Vec<String> = lists.map(|list| list.join(" ")).collect();
    format!("{}\n{}", words.join(" "), lists.join("\n"))
}

/// What a name makes that has no verb and is nothing but a way and what is written there: `slack_message`. Whose tool it is may say the way.
pub(super) fn written_on_channel(words: &[String], server: &[String]) -> Option<EffectKind> {
    let (last, before) = words.split_last()?;
    let is_channel = |word: &String| has(CHANNELS, word);
    let is_on_one = if before.is_empty() { server.iter().any(is_channel) } else { before.iter().all(is_channel) };
    (has(WRITTEN, last) && is_on_one).then(|| kind("message", "send")).flatten()
}

/// The call that a name is, which has no verb: `phone_call`, and not `function_call`.
pub(super) fn called_by_noun(rest: &[String]) -> Option<EffectKind> {
    let (last, before) = rest.split_last()?;
    let is_made = last == "call" && !before.is_empty() && before.iter().all(|word| has(CALLS, word));
    is_made.then(|| kind("call", "create")).flatten()
}

/// Whether a name says, by the words that say whom a call reaches, that somebody is told something, where no verb of making stands in it:
/// `sms`, `telegram_sticker`, `team_alert`. The same once more may be one more.
pub(super) fn tells_somebody(rest: &[String]) -> bool {
    let (Some((first, after)), Some(last)) = (rest.split_first(), rest.last()) else { return false };
    // These stand alone, or in front of whom it goes to: `message`, `mail_to`, and not `text_file`, `message_by_id`, `tell_joke`.
    if has(TELLING_OR_THING, first) {
        let is_to = |word: &String| word == "to" && first != "text";
        return after.is_empty() || (after.len() == 1 && is_to(&after[0]));
    }
    if !name_tells(rest) || (!has(TELLING_VERBS, first) && last == "text") {
        return false;
    }
    // `direct_message` is one, and `write_message` another state of something.
    let is_thing = !has(TELLING_VERBS, first) && ["message", "post"].contains(&last.as_str());
    let is_other = |word: &String| {
        let changes_other = changes(word) && !has(TELLING_VERBS, word) && (is_thing || !has(SAID_OF_BOTH, word));
        let asks = is_looking(word) || has(STATES, word) || has(SUGGESTS_LOOKING, word) || has(ADJECTIVES, word);
        changes_other || asks || word == "compose"
    };
    // `sms_templates` are things that are there.
    let lists_things = has(TELLING_VERBS, first) && !after.is_empty() && !has(TELLING_VERBS, last) && is_plural(last);
    !lists_things && !rest.iter().any(is_other)
}

/// What a name makes that begins with such a word; `rest` is the name without what says whose it is.
pub(super) fn made_by_beginning(rest: &[String]) -> Option<EffectKind> {
    let (first, after) = rest.split_first()?;
    let mut meant = BEGINNINGS.iter().filter(|(word, _)| word == first).map(|(_, behind)| behind).peekable();
    meant.peek()?;
    // With a verb behind it the word is a thing: `order_create`, `message_user_delete`.
    let is_about = |word: &String| {
        is_looking(word) || has(STATES, word) || has(&UNDOING, word) || (has(EFFECTS, word) && !has(THINGS, word))
    };
    if after.iter().any(is_about) {
        return None;
    }
    meant.find_map(|behind| made_with(*behind, after))
}

/// What is made by such a word, if what stands behind it is what it needs.
fn made_with(behind: Behind, after: &[String]) -> Option<EffectKind> {
    let mut named =
        after.iter().filter(|word| !has(FILLERS, word) && !has(PREPOSITIONS, word)).map(|word| singular(word));
    let is_person = |word: &str| has(PEOPLE, word);
    match behind {
        Behind::Somebody(object) => {
            let told = named.next()?;
            let is_on_call = told == "call" && after.first().is_some_and(|word| word == "on");
            let verb = match object {
                "call" => "create",
                "tip" => "pay",
                _ => "send",
            };
            (is_person(&told) || is_on_call).then(|| kind(object, verb)).flatten()
        }
        Behind::Things(things, verb) => {
            // The thing in its own words: `give_customer_refund`, `queue_email_for_user`.
            let whole = thing(&[], after);
            whole.last().filter(|head| has(things, head))?;
            let thing = whole.join("_");
            match verb {
                Verb::Create => kind(&thing, "create"),
                Verb::Send if ["email", "mail"].contains(&thing.as_str()) => kind("email", "send"),
                Verb::Send => kind(if thing == "line" { "message" } else { &thing }, "send"),
                Verb::Reply if ["email", "mail"].contains(&thing.as_str()) => kind("email", "reply"),
                Verb::Reply => kind(&thing, "reply"),
                Verb::Mail => kind("email", "send"),
                Verb::Pay => kind("payment", "pay"),
                Verb::Call => kind("call", "create"),
                Verb::Text => kind("sms", "send"),
                Verb::Write => kind("message", "send"),
            }
        }
        Behind::AnythingBut(others, object, verb) => {
            let is_other = after.first().is_some_and(|word| has(others, word));
            (!is_other).then(|| kind(object, verb)).flatten()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{creates, words};
    use super::*;

    fn made(name: &str) -> Option<String> {
        creates::made_by(&words(name), &words("other")).map(|kind| kind.as_str().to_owned())
    }

    #[test]
    fn every_beginning_is_a_verb_only_with_what_it_needs() {
        for (word, behind) in BEGINNINGS {
            let with = match behind {
                Behind::Somebody(_) => format!("{word}_customers"),
                Behind::Things(things, _) => format!("{word}_{}", things[0]),
                Behind::AnythingBut(..) => format!("{word}_pizza"),
            };
            for name in [with.clone(), format!("{word}_the_{}", &with[word.len() + 1..])] {
                assert!(made(&name).is_some(), "{name}");
            }
            for undone in ["delete", "list", "status", "get", "update", "cancel"] {
                assert_eq!(made(&format!("{with}_{undone}")), None, "{with}_{undone}");
                assert_eq!(made(&format!("{word}_{undone}")), None, "{word}_{undone}");
            }
        }
        assert!(BEGINNINGS.is_sorted_by_key(|(word, _)| *word));
    }

    #[test]
    fn messages_orders_and_papers_in_words_of_everyday() {
        for (name, expected) in [
            ("text_user", "sms.send"),
            ("sms_customer", "sms.send"),
            ("email_customer", "email.send"),
            ("emailTheTeam", "email.send"),
            ("dm_user", "message.send"),
            ("page_oncall", "message.send"),
            ("page_on_call", "message.send"),
            ("order_pizza", "order.create"),
            ("order", "order.create"),
            ("order_create", "order.create"),
            ("file_bug", "bug.create"),
            ("issue_coupon", "coupon.create"),
            ("issue_refund", "refund.create"),
            ("print_shipping_label", "shipping_label.create"),
            ("file_request_for_user", "request.create"),
            ("launch_instance", "instance.create"),
            ("capture_payment", "payment.pay"),
            ("record_payment", "payment.create"),
            ("execute_trade", "trade.create"),
            ("sign_and_send_transaction", "transaction.send"),
            ("create_and_send_campaign", "campaign.send"),
            ("queue_email", "email.send"),
            ("drop_mail", "email.send"),
            ("respond_to_ticket", "ticket.reply"),
            ("post_status", "status.post"),
            ("discord_send", "discord.send"),
            ("whatsapp_reply", "whatsapp.reply"),
        ] {
            assert_eq!(made(name).as_deref(), Some(expected), "{name}");
        }
        for name in [
            "text_file",
            "email_template",
            "message_history",
            "order_status",
            "order_items",
            "orders",
            "page_title",
            "call_tool",
            "file_report_delete",
            "file_read",
            "issue_label",
            "print_queue",
            "launch_browser",
            "execute_query",
            "capture_screenshot",
            "record_audio",
            "create_or_update_order",
            "find_and_replace",
            "request_info",
            "submit_review",
            "process_image",
        ] {
            assert_eq!(made(name), None, "{name}");
        }
    }
}
