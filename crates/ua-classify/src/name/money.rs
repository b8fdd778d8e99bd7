//! Whether a name says that money moves: `capture_payment_intent`, `transfer_usdc`, `top_up_wallet`, `payout`.
//!
//! What is made anew each time is said by the verbs of `creates`; a payment is often moved by a verb that makes nothing else, or by a noun
//! alone. A second one in the same words is one more, so where a name leaves open what is moved it counts as money, unless the thing behind
//! is known to be another one (`transfer_issue`): a false alarm costs a question, a miss costs a second payment.

use serde_json::Value;

use super::creates::{Made, UNDOING, kind, thing};
use super::vocabulary::{EFFECTS, PREPOSITIONS, STATES, SUGGESTS_LOOKING};
use super::{has, is_looking, words};

/// What a verb needs to be about money.
#[derive(Debug, Clone, Copy)]
enum Moves {
    /// Nothing: it is said of money and of little else.
    Always,
    /// That the thing is not one of these.
    Unless(&'static [&'static str]),
    /// That nothing stands with it, or money, or one of these.
    Alone(&'static [&'static str]),
    /// Money, or one of these.
    Of(&'static [&'static str]),
}

/// Money, and what it is called when it is on its way.
const FUNDS: &[&str] = &[
    "bitcoin",
    "bonus",
    "btc",
    "cash",
    "cashback",
    "charge",
    "coin",
    "commission",
    "credit",
    "crypto",
    "currency",
    "debt",
    "deposit",
    "disbursement",
    "dividend",
    "dollar",
    "donation",
    "escrow",
    "eth",
    "eur",
    "euro",
    "fee",
    "fund",
    "gbp",
    "installment",
    "loan",
    "money",
    "payment",
    "payout",
    "payroll",
    "purchase",
    "rebate",
    "refund",
    "reimbursement",
    "remittance",
    "reward",
    "royalty",
    "salary",
    "sol",
    "stablecoin",
    "transfer",
    "usd",
    "usdc",
    "usdt",
    "wage",
    "withdrawal",
];

/// What stands behind money and is still money: `capture_payment_intent`.
const TAILS: [&str; 7] = ["authorization", "batch", "instruction", "intent", "now", "order", "request"];

/// Whom money goes to or comes from.
const SIDES: &[&str] = &[
    "account",
    "balance",
    "beneficiary",
    "card",
    "client",
    "contractor",
    "creator",
    "customer",
    "employee",
    "merchant",
    "payee",
    "recipient",
    "seller",
    "subscriber",
    "supplier",
    "tenant",
    "user",
    "vendor",
    "wallet",
    "worker",
];

/// The verbs. An open list, as that of making is: `creates = true` says it of any other tool.
const VERBS: &[(&str, Moves)] = &[
    ("add", Moves::Of(&[])),
    ("advance", Moves::Of(&[])),
    ("approve", Moves::Of(&[])),
    ("authorize", Moves::Of(&["card"])),
    ("award", Moves::Of(&[])),
    ("bill", Moves::Alone(SIDES)),
    ("borrow", Moves::Always),
    ("bridge", Moves::Of(&["asset", "token"])),
    ("burn", Moves::Of(&["token"])),
    ("capture", Moves::Alone(&["authorization", "hold", "intent", "order"])),
    ("cashout", Moves::Always),
    ("chargeback", Moves::Always),
    ("checkout", Moves::Of(&["basket", "cart", "order", "session"])),
    ("claim", Moves::Of(&["token"])),
    ("collect", Moves::Of(&["rent"])),
    ("compensate", Moves::Always),
    ("complete", Moves::Of(&["checkout"])),
    ("confirm", Moves::Of(&["checkout"])),
    ("credit", Moves::Alone(SIDES)),
    ("debit", Moves::Always),
    (
        "deposit",
        Moves::Unless(&["artifact", "data", "dataset", "document", "file", "item", "paper", "record", "sample"]),
    ),
    ("disburse", Moves::Always),
    ("distribute", Moves::Of(&["token"])),
    ("exchange", Moves::Alone(&[])),
    ("execute", Moves::Of(&[])),
    ("finalize", Moves::Of(&["checkout"])),
    ("finish", Moves::Of(&["checkout"])),
    ("fund", Moves::Alone(SIDES)),
    ("initiate", Moves::Of(&[])),
    ("invest", Moves::Always),
    ("invoice", Moves::Alone(SIDES)),
    ("lend", Moves::Always),
    ("load", Moves::Of(&[])),
    ("make", Moves::Of(&[])),
    ("move", Moves::Of(&["balance"])),
    ("pays", Moves::Always),
    ("perform", Moves::Of(&[])),
    ("process", Moves::Of(&["transaction"])),
    ("push", Moves::Of(&[])),
    ("receive", Moves::Of(&[])),
    ("recharge", Moves::Always),
    ("redeem", Moves::Always),
    ("reimburse", Moves::Always),
    ("release", Moves::Of(&[])),
    ("remit", Moves::Always),
    ("repay", Moves::Always),
    ("retry", Moves::Of(&["invoice"])),
    ("return", Moves::Of(&[])),
    ("reverse", Moves::Of(&[])),
    ("run", Moves::Of(&[])),
    ("settle", Moves::Always),
    ("spend", Moves::Alone(&["balance", "point"])),
    ("stake", Moves::Always),
    ("start", Moves::Of(&[])),
    ("submit", Moves::Of(&["checkout"])),
    (
        "swap",
        Moves::Unless(&[
            "branch",
            "character",
            "column",
            "element",
            "environment",
            "face",
            "file",
            "image",
            "item",
            "key",
            "layer",
            "line",
            "member",
            "player",
            "price",
            "quote",
            "rate",
            "role",
            "route",
            "row",
            "seat",
            "shift",
            "slot",
            "tab",
            "value",
            "variable",
            "word",
        ]),
    ),
    ("sweep", Moves::Of(&["account", "balance", "wallet"])),
    ("tip", Moves::Alone(SIDES)),
    ("topup", Moves::Always),
    ("trade", Moves::Always),
    (
        "transfer",
        Moves::Unless(&[
            "admin",
            "agent",
            "app",
            "attachment",
            "call",
            "caller",
            "case",
            "chat",
            "contact",
            "control",
            "conversation",
            "data",
            "dialog",
            "directory",
            "domain",
            "file",
            "folder",
            "host",
            "image",
            "issue",
            "lead",
            "license",
            "message",
            "number",
            "object",
            "owner",
            "ownership",
            "participant",
            "patient",
            "project",
            "repo",
            "repository",
            "role",
            "session",
            "site",
            "student",
            "task",
            "team",
            "ticket",
            "vm",
            "workspace",
            "zone",
        ]),
    ),
    ("trigger", Moves::Of(&[])),
    ("unstake", Moves::Always),
    ("wire", Moves::Unless(&["component", "event", "handler", "up"])),
    (
        "withdraw",
        Moves::Unless(&[
            "answer",
            "appeal",
            "application",
            "approval",
            "bid",
            "candidate",
            "claim",
            "comment",
            "complaint",
            "consent",
            "entry",
            "invitation",
            "invite",
            "motion",
            "nomination",
            "offer",
            "proposal",
            "report",
            "request",
            "review",
            "submission",
            "ticket",
            "vote",
        ]),
    ),
];

/// Things that a tool is named after that moves them.
const NOUNS: [&str; 7] = ["disbursement", "payment", "payout", "reimbursement", "remittance", "transfer", "withdrawal"];

/// Verbs in front of such a thing that ask about it.
const ASKING: [&str; 6] = ["await", "query", "quote", "simulate", "track", "wait"];

/// Two words that are one verb.
const PHRASES: [(&str, &str, &str); 2] = [("cash", "out", "cashout"), ("top", "up", "topup")];

/// Words of an argument that says how much money it is, whatever else the name of the tool says.
const CURRENCY: [&str; 2] = ["currency", "iban"];
/// Words of arguments that an amount beside them is money of.
const BESIDE_AMOUNT: [&str; 14] = [
    "account",
    "beneficiary",
    "card",
    "charge",
    "customer",
    "invoice",
    "payee",
    "payment",
    "payout",
    "recipient",
    "refund",
    "token",
    "transaction",
    "wallet",
];

pub(super) fn vocabulary() -> String {
    let verbs: Vec<String> = VERBS.iter().map(|(verb, moves)| format!("{verb}={moves:?}")).collect();
    let lists: [&[&str]; 7] = [FUNDS, &TAILS, SIDES, &NOUNS, &ASKING, &CURRENCY, &BESIDE_AMOUNT];
    let lists: Vec<String> = lists.iter().map(|words| words.join(" ")).collect();
    format!("{}\n{}\n{PHRASES:?}", verbs.join(" "), lists.join("\n"))
}

/// Whether two words in front of a name are a verb, whatever the first one says alone: `top_up` is no list of the best.
pub(super) fn is_phrase(first: &str, second: &str) -> bool {
    first == "top" && ["off", "up"].contains(&second)
        || PHRASES.iter().any(|(one, other, _)| (*one, *other) == (first, second))
}

/// What one part of a name moves.
pub(super) fn moved_by_part(part: &[String]) -> Option<Made> {
    let part = one_verb(part);
    let (at, moves) = found(&part)?;
    let (before, after) = (&part[..at], &part[at + 1..]);
    let thing = thing(before, after);
    let head = thing.last().map_or("", String::as_str);
    let is_funds = |word: &str| has(FUNDS, word);
    // Without a verb the noun is money itself; `approve_payment_request`, `confirm_payment_intent`.
    let is_money =
        moves.is_none() || is_funds(head) || (TAILS.contains(&head) && thing.iter().any(|word| is_funds(word)));
    let moves_money = match moves {
        None | Some(Moves::Always) => true,
        Some(Moves::Unless(others)) => !has(others, head),
        Some(Moves::Alone(things)) => thing.is_empty() || is_money || has(things, head),
        Some(Moves::Of(things)) => is_money || has(things, head),
    };
    // What it is called is known where money is named; else only that a second one would be one more.
    moves_money.then(|| if is_money { kind("payment", "pay").map_or(Made::Named, Made::Anew) } else { Made::Named })
}

/// Whether a name has a verb of money, and the arguments are those of an amount of it: `claim(amount, currency)`.
pub(super) fn moves_amount(name: &[String], schema: &Value) -> bool {
    let arguments: Vec<Vec<String>> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|properties| properties.keys().map(|key| words(key)))
        .collect();
    let has_any = |list: &[&str]| arguments.iter().flatten().any(|word| has(list, word));
    let is_amount = has_any(&["amount"]) && (has_any(&CURRENCY) || has_any(&BESIDE_AMOUNT));
    is_amount && found(&one_verb(name)).is_some()
}

/// The first verb of a name, if it is one of money and nothing undoes it or asks how it is; without a verb, a noun that closes the name or
/// that says to whom.
fn found(part: &[String]) -> Option<(usize, Option<Moves>)> {
    if is_looking(part.first()?) {
        return None;
    }
    let moves = |word: &str| VERBS.iter().find(|(verb, _)| *verb == word).map(|(_, moves)| *moves);
    let verb = part.iter().position(|word| has(EFFECTS, word) || moves(word).is_some());
    // `wire_transfer`, `payment_transfer`: what stands before a verb that is a noun as well says which.
    let noun = part.iter().position(|word| NOUNS.contains(&word.as_str()));
    let (at, moves) = match (verb, noun) {
        (Some(at), _) => (at, Some(moves(&part[at])?)),
        (None, Some(at)) => (at, None),
        (None, None) => return None,
    };
    let (before, after) = (&part[..at], &part[at + 1..]);
    let is_else = |word: &String| has(STATES, word) || has(&UNDOING, word) || is_looking(word);
    let is_asked = after.iter().any(is_else)
        || before.iter().any(|word| is_else(word) || has(SUGGESTS_LOOKING, word) || has(&ASKING, word));
    let says_whom =
        after.first().is_none_or(|word| has(PREPOSITIONS, word)) || after.iter().all(|word| has(SIDES, word));
    (!is_asked && (moves.is_some() || says_whom)).then_some((at, moves))
}

/// A part of a name in which two words that are one verb are one word.
fn one_verb(part: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(part.len());
    for word in part {
        let phrase = joined.last().and_then(|before| {
            PHRASES.iter().find(|(one, other, _)| before == one && word == other).map(|(_, _, verb)| *verb)
        });
        match (phrase, joined.last_mut()) {
            (Some(verb), Some(last)) => verb.clone_into(last),
            _ => joined.push(word.clone()),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::creates::{made_by, makes_named};
    use super::*;

    /// Whether a repeat in the same words is asked about, and what it is called.
    fn asks(name: &str) -> Option<String> {
        let (name, server) = (words(name), words("other"));
        let kind = made_by(&name, &server).map(|kind| kind.as_str().to_owned());
        kind.or_else(|| makes_named(&name, &server).then(String::new))
    }

    #[test]
    fn each_verb_of_money_counts_with_money_and_not_where_something_else_is_done_with_it() {
        assert!(VERBS.is_sorted_by_key(|(verb, _)| *verb));
        for (verb, _) in VERBS {
            for name in [format!("{verb}_payment"), format!("payment_{verb}"), format!("acme_{verb}_payout")] {
                // `move_…` and the like stand in front.
                if !(has(&UNDOING, verb) && name.ends_with(verb)) {
                    assert!(asks(&name).is_some(), "{name}");
                }
            }
            for name in [
                format!("cancel_{verb}_payment"),
                format!("{verb}_payment_status"),
                format!("{verb}_payment_list"),
                format!("update_{verb}_payment"),
            ] {
                assert_eq!(asks(&name), None, "{name}");
            }
        }
    }

    #[test]
    fn a_payment_in_the_words_of_many_servers_is_asked_about_when_it_is_repeated() {
        let payment = [
            "capture_payment_intent",
            "payment_capture",
            "capture_funds",
            "confirm_payment",
            "payout",
            "paypal_payout",
            "payout_to_bank",
            "payout_seller",
            "instant_payout",
            "make_payout",
            "trigger_payout",
            "run_payroll",
            "wire_transfer",
            "add_funds",
            "move_money",
            "release_escrow",
            "retry_charge",
            "reverse_transfer",
            "approve_payment_request",
            "swap_usdc_eth",
            "deposit_usdc",
            "transfer_sol",
            "withdraw_eth",
            "collect_fee",
            "receive_payment",
            "make_withdrawal",
            "complete_purchase",
        ];
        for name in payment {
            assert_eq!(asks(name).as_deref(), Some("payment.pay"), "{name}");
        }
        let unnamed = [
            "transfer",
            "transfer_tokens",
            "transferToAccount",
            "bank_transfer",
            "capture",
            "capture_authorization",
            "debit",
            "credit_customer",
            "fund_wallet",
            "deposit",
            "withdraw",
            "top_up",
            "topup_card",
            "top_up_wallet",
            "cash_out",
            "reimburse_employee",
            "disburse",
            "remit",
            "repay",
            "stake",
            "swap",
            "swap_position",
            "swap_on_exchange",
            "trade",
            "trade_shares",
            "settle_up",
            "redeem_points",
            "tip_creator",
            "bill_customer",
            "checkout_cart",
            "authorize_card",
            "bridge_tokens",
        ];
        for name in unnamed {
            assert_eq!(asks(name).as_deref(), Some(""), "{name}");
        }
        for name in ["pay", "charge_card", "refund_order", "refund", "transfer_funds", "create_transfer"] {
            assert!(asks(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_only_sounds_like_money_is_not_asked_about() {
        for name in [
            "transfer_issue",
            "project_transfer",
            "transfer_ownership",
            "capture_screenshot",
            "credit_report",
            "checkout",
            "git_checkout",
            "move_card",
            "add_account",
            "withdraw_application",
            "deposit_document",
            "exchange_code",
            "verify_payment",
            "simulate_capture",
            "track_transfer",
            "payment_method",
            "payouts",
            "void_payment",
            "cancel_payment",
            "fund_performance",
            "top_stories",
            "wire_up",
            "swap_rows",
            "swap_face",
            "swap_quote",
            "trade_history",
        ] {
            assert_eq!(asks(name), None, "{name}");
        }
    }

    #[test]
    fn an_amount_makes_money_of_what_a_verb_leaves_open() {
        let schema = |names: &[&str]| {
            let properties: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            json!({"type": "object", "properties": properties})
        };
        let moves = |name: &str, arguments: &[&str]| moves_amount(&words(name), &schema(arguments));
        assert!(moves("checkout", &["amount", "currency"]));
        assert!(moves("claim", &["totalAmount", "wallet_address"]));
        assert!(!moves("checkout", &["branch"]));
        assert!(!moves("move", &["amount", "direction"]));
        assert!(!moves("get_claim", &["amount", "currency"]));
        assert!(!moves("convert", &["amount", "currency"]), "that is a sum");
    }
}
