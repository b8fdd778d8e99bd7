//! Acts that happen once more when they are done once more, by names that have no word of making: `apply_for_job`, `spawn_agent`,
//! `sign_document`, `rsvp`.
//!
//! What is made there has no name of its own, or only the server knows if a second one in the same words is refused, so such a tool has no kind,
//! and a repeat asks. A false alarm costs a question, a miss costs a second application. Left out on purpose are verbs after which everything
//! is as it was after the first time (`approve`, `assign`, `ban`, `cancel`, `enable`, `follow`, `grant`, `join`, `lock`, `revoke`, `subscribe`),
//! those that are repeated as a matter of course (`click`, `dequeue`, `execute`, `increment`, `navigate`, `press`, `type`), and those that put
//! back what they did (`toggle`).

use super::creates::{UNDOING, thing};
use super::vocabulary::{ADJECTIVES, EFFECTS, FILLERS, PREPOSITIONS, STATES, SUGGESTS_LOOKING, THINGS};
use super::{has, is_looking};

/// When such a verb is one.
#[derive(Debug, Clone, Copy)]
enum Done {
    /// Whatever it is done with.
    Always,
    /// With anything but these.
    Unless(&'static [&'static str]),
    /// With one of these.
    With(&'static [&'static str]),
    /// With one of these, or with nothing.
    AloneOrWith(&'static [&'static str]),
    /// With one of these, or where the name says what for.
    ForOrWith(&'static [&'static str]),
}

/// Whom one turns to.
const TURNED_TO: &[&str] = &[
    "agent",
    "applicant",
    "attendee",
    "author",
    "business",
    "candidate",
    "client",
    "colleague",
    "company",
    "customer",
    "doctor",
    "driver",
    "employee",
    "guest",
    "host",
    "human",
    "landlord",
    "lead",
    "manager",
    "member",
    "owner",
    "patient",
    "person",
    "sales",
    "seller",
    "somebody",
    "someone",
    "student",
    "subscriber",
    "supplier",
    "support",
    "team",
    "tenant",
    "user",
    "vendor",
];

/// What is under way twice when it is started twice. A container or a recording that is started is started.
const STARTED: &[&str] = &[
    "agent",
    "auction",
    "automation",
    "backtest",
    "bot",
    "campaign",
    "case",
    "chat",
    "checkout",
    "claim",
    "conference",
    "conversation",
    "crawler",
    "crew",
    "dispute",
    "evaluation",
    "experiment",
    "export",
    "fundraiser",
    "giveaway",
    "incident",
    "investigation",
    "journey",
    "meeting",
    "migration",
    "negotiation",
    "order",
    "playbook",
    "poll",
    "raffle",
    "rental",
    "research",
    "return",
    "ride",
    "run",
    "runbook",
    "session",
    "simulation",
    "subagent",
    "subscription",
    "survey",
    "timer",
    "training",
    "trial",
    "trip",
    "webinar",
];

/// Papers that a person puts a name under. What a program signs (`sign_jwt`, `sign_url`) is worked out and told.
const SIGNED: &[&str] = &[
    "agreement",
    "application",
    "contract",
    "deed",
    "document",
    "envelope",
    "form",
    "guestbook",
    "lease",
    "letter",
    "nda",
    "offer",
    "order",
    "paper",
    "pdf",
    "petition",
    "waiver",
    "will",
];

/// What one applies for; of a filter, a patch or a label that is applied nothing more is there the second time.
const APPLIED_FOR: &[&str] = &[
    "admission",
    "apartment",
    "benefit",
    "fellowship",
    "gig",
    "insurance",
    "internship",
    "job",
    "leave",
    "listing",
    "loan",
    "membership",
    "mortgage",
    "opening",
    "passport",
    "permit",
    "position",
    "posting",
    "scholarship",
    "school",
    "university",
    "vacancy",
    "visa",
];

/// What somebody gets more of.
const AWARDED: &[&str] = &["badge", "coin", "medal", "mile", "point", "prize", "star", "xp"];

/// What there is a draw or a queue for.
const CONTESTS: &[&str] =
    &["competition", "contest", "draw", "giveaway", "lottery", "raffle", "sweepstake", "tournament", "waitlist"];

/// The verbs. An open list, as that of making is: `creates = true` says it of any other tool, and `creates = false` the contrary.
const ACTS: &[(&str, Done)] = &[
    ("administer", Done::Unless(&["database", "server", "system", "user"])),
    ("advertise", Done::Always),
    ("appeal", Done::Always),
    ("apply", Done::ForOrWith(APPLIED_FOR)),
    ("award", Done::With(AWARDED)),
    ("begin", Done::With(STARTED)),
    ("bid", Done::AloneOrWith(&[])),
    ("boost", Done::With(&["ad", "campaign", "listing", "post", "tweet"])),
    ("brew", Done::With(&["coffee", "espresso", "tea"])),
    ("call", Done::With(&["ambulance", "business", "cab", "police", "restaurant", "taxi", "uber"])),
    (
        "claim",
        Done::With(&[
            "badge",
            "bounty",
            "coupon",
            "drop",
            "expense",
            "gift",
            "insurance",
            "prize",
            "seat",
            "spot",
            "voucher",
            "warranty",
        ]),
    ),
    ("clockin", Done::Always),
    ("clockout", Done::Always),
    ("commence", Done::With(STARTED)),
    ("congratulate", Done::With(TURNED_TO)),
    ("contact", Done::With(TURNED_TO)),
    ("cosign", Done::AloneOrWith(SIGNED)),
    ("countersign", Done::AloneOrWith(SIGNED)),
    ("crosspost", Done::Always),
    ("declare", Done::With(&["bankruptcy", "emergency", "incident"])),
    ("deduct", Done::Always),
    ("delegate", Done::Always),
    (
        "deliver",
        Done::AloneOrWith(&[
            "flower", "food", "gift", "item", "order", "package", "parcel", "pizza", "product", "shipment",
        ]),
    ),
    ("dispatch", Done::Unless(&["click", "input", "key", "mouse", "pointer", "touch"])),
    ("dispense", Done::Always),
    ("dispute", Done::With(&["bill", "charge", "claim", "invoice", "payment", "transaction"])),
    ("emit", Done::Unless(&["css", "html", "log"])),
    ("enlist", Done::Always),
    ("enrol", Done::Always),
    ("enroll", Done::Always),
    ("enter", Done::With(CONTESTS)),
    ("escalate", Done::Unless(&["permission", "privilege"])),
    ("esign", Done::Always),
    (
        "extend",
        Done::With(&[
            "booking",
            "contract",
            "license",
            "loan",
            "membership",
            "parking",
            "rental",
            "reservation",
            "stay",
            "subscription",
            "trial",
            "warranty",
        ]),
    ),
    ("feed", Done::With(&["animal", "cat", "chicken", "dog", "fish", "pet"])),
    ("file", Done::With(&["grievance", "lawsuit", "motion", "patent", "petition", "return"])),
    ("finetune", Done::Always),
    (
        "fire",
        Done::AloneOrWith(&[
            "alert",
            "employee",
            "event",
            "hook",
            "missile",
            "notification",
            "rocket",
            "shot",
            "signal",
            "trigger",
            "weapon",
            "webhook",
            "worker",
        ]),
    ),
    ("fulfil", Done::Always),
    ("fulfill", Done::Always),
    ("give", Done::With(AWARDED)),
    ("grant", Done::With(AWARDED)),
    ("greet", Done::With(TURNED_TO)),
    ("hail", Done::Always),
    ("handoff", Done::Always),
    ("hire", Done::Always),
    ("hold", Done::With(&["appointment", "room", "seat", "slot", "spot", "table", "ticket"])),
    ("honk", Done::Always),
    ("initiate", Done::With(STARTED)),
    ("invoke", Done::With(&["agent", "automation", "job", "pipeline", "playbook", "subagent", "webhook", "workflow"])),
    ("join", Done::With(CONTESTS)),
    ("kickoff", Done::AloneOrWith(STARTED)),
    ("launch", Done::With(STARTED)),
    ("lease", Done::With(&["apartment", "car", "equipment", "office", "vehicle"])),
    ("liquidate", Done::Always),
    ("lodge", Done::Always),
    ("make", Done::With(&["announcement", "claim", "coffee", "complaint", "copy", "offer", "pledge", "withdrawal"])),
    ("nominate", Done::Always),
    ("notarize", Done::Always),
    ("nudge", Done::Unless(&["element", "layer", "node", "object", "position", "shape"])),
    ("onboard", Done::Always),
    (
        "open",
        Done::With(&[
            "account",
            "bug",
            "claim",
            "complaint",
            "dispute",
            "incident",
            "investigation",
            "loan",
            "position",
            "session",
            "trade",
        ]),
    ),
    ("outreach", Done::Always),
    ("participate", Done::Always),
    ("petition", Done::Always),
    ("place", Done::With(&["ad", "advert", "advertisement", "booking", "hold", "reservation", "wager"])),
    ("pledge", Done::Always),
    ("poke", Done::With(TURNED_TO)),
    ("prescribe", Done::Always),
    (
        "print",
        Done::AloneOrWith(&[
            "barcode", "card", "coupon", "envelope", "file", "flyer", "form", "map", "menu", "order", "photo",
            "picture", "poster", "text",
        ]),
    ),
    ("promote", Done::With(&["ad", "listing", "post", "tweet"])),
    (
        "propose",
        Done::With(&[
            "amendment",
            "date",
            "deal",
            "meeting",
            "motion",
            "offer",
            "price",
            "swap",
            "time",
            "trade",
            "transaction",
        ]),
    ),
    ("punchin", Done::Always),
    ("punchout", Done::Always),
    ("reblog", Done::Always),
    ("rebook", Done::Always),
    ("rebroadcast", Done::Always),
    ("recruit", Done::Always),
    ("redeliver", Done::Always),
    ("redeploy", Done::Unless(&["function", "policy", "rule", "schema", "script", "template", "worker"])),
    ("redispatch", Done::Always),
    ("refill", Done::With(&["medication", "prescription"])),
    (
        "register",
        Done::Unless(&[
            "callback",
            "command",
            "component",
            "extension",
            "handler",
            "listener",
            "plugin",
            "tool",
            "type",
            "value",
        ]),
    ),
    ("reinvite", Done::Always),
    ("reissue", Done::Always),
    ("release", Done::With(&["album", "app", "build", "package", "product", "song", "statement", "version"])),
    ("remind", Done::Always),
    (
        "renew",
        Done::With(&[
            "contract",
            "domain",
            "insurance",
            "license",
            "membership",
            "passport",
            "plan",
            "prescription",
            "subscription",
            "warranty",
        ]),
    ),
    ("renotify", Done::Always),
    (
        "report",
        Done::With(&[
            "abuse", "bug", "comment", "content", "crime", "fraud", "incident", "issue", "listing", "message",
            "outage", "player", "post", "problem", "profile", "spam", "user",
        ]),
    ),
    ("repost", Done::Always),
    ("republish", Done::Always),
    (
        "request",
        Done::With(&[
            "access",
            "appointment",
            "approval",
            "consultation",
            "delivery",
            "demo",
            "extension",
            "help",
            "inspection",
            "leave",
            "meeting",
            "off",
            "prescription",
            "replacement",
            "return",
            "sample",
            "service",
            "signature",
            "support",
            "transcript",
            "visit",
        ]),
    ),
    (
        "rerun",
        Done::With(&[
            "action",
            "automation",
            "build",
            "deployment",
            "flow",
            "job",
            "pipeline",
            "playbook",
            "run",
            "workflow",
            "zap",
        ]),
    ),
    (
        "reserve",
        Done::Unless(&["balance", "capacity", "factor", "memory", "price", "proof", "rate", "ratio", "requirement"]),
    ),
    ("reshare", Done::Always),
    ("respawn", Done::Always),
    ("resubmit", Done::Always),
    ("retransmit", Done::Always),
    ("retrigger", Done::Always),
    (
        "retry",
        Done::With(&[
            "build",
            "delivery",
            "deployment",
            "job",
            "message",
            "notification",
            "pipeline",
            "run",
            "webhook",
            "workflow",
        ]),
    ),
    ("retweet", Done::Always),
    ("reupload", Done::Always),
    ("ring", Done::With(&["alarm", "bell", "buzzer", "doorbell"])),
    ("rsvp", Done::Always),
    (
        "run",
        Done::With(&[
            "ad",
            "agent",
            "automation",
            "bot",
            "campaign",
            "crew",
            "experiment",
            "playbook",
            "runbook",
            "subagent",
            "zap",
        ]),
    ),
    ("say", Done::AloneOrWith(&["announcement", "message", "phrase", "sentence", "text"])),
    ("ship", Done::AloneOrWith(&["gift", "goods", "kit", "replacement", "sample"])),
    ("sign", Done::AloneOrWith(SIGNED)),
    ("signup", Done::Always),
    ("sound", Done::With(&["alarm", "alert", "buzzer", "horn", "siren"])),
    ("spawn", Done::Always),
    ("spinup", Done::Always),
    ("sponsor", Done::With(&["creator", "developer", "event", "project", "user"])),
    ("start", Done::With(STARTED)),
    ("submit", Done::AloneOrWith(&[])),
    ("subscribe", Done::With(&["membership", "plan", "premium", "tier"])),
    ("take", Done::With(&["booking", "deposit", "loan", "mortgage", "order", "payment", "reservation"])),
    ("thank", Done::With(TURNED_TO)),
    ("track", Done::With(&["conversion", "event", "mileage"])),
    ("train", Done::With(&["agent", "classifier", "lora", "model", "network", "voice"])),
    ("trigger", Done::Unless(&["cleanup", "click", "refresh", "reindex", "reload", "sync", "type"])),
    ("vend", Done::Always),
    ("vote", Done::Unless(&["id", "result", "total", "type"])),
    ("wager", Done::Always),
    ("warn", Done::With(TURNED_TO)),
    ("welcome", Done::With(TURNED_TO)),
];

/// Things that a tool is named after that makes them. Several of them are listed.
const NOUNS: [&str; 3] = ["booking", "enrollment", "reservation"];

/// Two words that are one verb.
const PHRASES: [(&str, &str, &str); 10] = [
    ("clock", "in", "clockin"),
    ("clock", "out", "clockout"),
    ("fine", "tune", "finetune"),
    ("hand", "off", "handoff"),
    ("kick", "off", "kickoff"),
    ("punch", "in", "punchin"),
    ("punch", "out", "punchout"),
    ("reach", "out", "outreach"),
    ("sign", "up", "signup"),
    ("spin", "up", "spinup"),
];

pub(super) fn vocabulary() -> String {
    let verbs: Vec<String> = ACTS.iter().map(|(verb, done)| format!("{verb}={done:?}")).collect();
    format!("{}\n{NOUNS:?}\n{PHRASES:?}", verbs.join(" "))
}

/// Whether a part of a name says that something is done which happens once more the next time.
pub(super) fn is_done_again(part: &[String]) -> bool {
    let part = one_verb(part);
    if part.first().is_none_or(|first| is_looking(first)) {
        return false;
    }
    let done_by = |word: &str| ACTS.iter().find(|(verb, _)| *verb == word).map(|(_, done)| *done);
    let asks = |word: &String| has(STATES, word) || has(&UNDOING, word) || is_looking(word);
    let Some(at) = part.iter().position(|word| has(EFFECTS, word) || done_by(word).is_some()) else {
        let is_asked = |word: &String| asks(word) || has(SUGGESTS_LOOKING, word) || has(ADJECTIVES, word);
        return has(&NOUNS, &part[part.len() - 1]) && !part.iter().any(is_asked);
    };
    let Some(done) = done_by(&part[at]) else { return false };
    let (before, after) = (&part[..at], &part[at + 1..]);
    let thing = thing(before, after);
    let head = thing.last().map_or("", String::as_str);
    let (is_meant, needs_none) = match done {
        Done::Always => (false, true),
        Done::Unless(others) => (false, !has(others, head)),
        Done::With(things) => (has(things, head), false),
        // `sign_in` is not `sign`.
        Done::AloneOrWith(things) => (has(things, head), thing.is_empty() && after.is_empty()),
        Done::ForOrWith(things) => (has(things, head), after.first().is_some_and(|word| word == "for")),
    };
    // With another verb, or in a name that asks how it is, the word is a thing: `vote_count`, `trigger_delete`, `check_sign_status`.
    let is_verb = |word: &String| has(EFFECTS, word) && !has(THINGS, word) && !has(FILLERS, word);
    let is_other = |word: &String| is_verb(word) && !(is_meant && word == head);
    let is_thing = after.iter().take_while(|word| !has(PREPOSITIONS, word)).any(is_other)
        || after.iter().any(asks)
        || before.iter().any(|word| asks(word) || has(SUGGESTS_LOOKING, word));
    (is_meant || needs_none) && !is_thing
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
    use super::super::creates::{made_by, makes_named};
    use super::super::words;
    use super::*;

    /// Whether a repeat in the same words is asked about.
    fn asks(name: &str) -> bool {
        let (name, server) = (words(name), words("other"));
        made_by(&name, &server).is_some() || makes_named(&name, &server)
    }

    #[test]
    fn each_verb_counts_with_what_it_needs_and_not_where_it_is_a_thing() {
        assert!(ACTS.is_sorted_by(|(a, _), (b, _)| a < b), "sorted, and each of them once");
        for (verb, done) in ACTS {
            let with = match done {
                Done::Always | Done::Unless(_) | Done::AloneOrWith([]) => String::new(),
                Done::With(things) | Done::AloneOrWith(things) | Done::ForOrWith(things) => format!("_{}", things[0]),
            };
            let name = format!("{verb}{with}");
            assert!(asks(&name), "{name}");
            for other in
                [format!("{name}_status"), format!("{name}_list"), format!("cancel_{name}"), format!("get_{name}")]
            {
                assert!(!asks(&other), "{other}");
            }
            let others: &[&str] = match done {
                Done::Unless(others) => others,
                Done::Always | Done::With(_) | Done::AloneOrWith(_) | Done::ForOrWith(_) => &[],
            };
            for other in others {
                assert!(!is_done_again(&[(*verb).to_owned(), (*other).to_owned()]), "{verb}_{other}");
            }
        }
        for (one, other, verb) in PHRASES {
            assert_eq!(asks(&format!("{one}_{other}")), asks(verb), "{one}_{other}");
        }
    }

    #[test]
    fn what_happens_once_more_is_asked_about() {
        for name in [
            "apply_for_job",
            "applyToJob",
            "job_apply",
            "apply_for_leave",
            "spawn",
            "spawn_agent",
            "agent_spawn",
            "start_session",
            "begin_chat_session",
            "open_session",
            "launch_agent",
            "run_agent",
            "start_trial",
            "sign",
            "sign_document",
            "sign_the_lease",
            "docs_sign_contract",
            "esign_document",
            "sign_up",
            "sign_up_for_event",
            "rsvp",
            "rsvp_yes",
            "event_rsvp",
            "submit",
            "submit_form",
            "resubmit_form",
            "enroll_student",
            "register_for_event",
            "register_new_user",
            "reserve",
            "reserve_restaurant",
            "vote",
            "vote_on_proposal",
            "trigger",
            "trigger_alarm",
            "fire_webhook",
            "dispatch_ambulance",
            "delegate_task",
            "hand_off_to_human",
            "escalate_incident",
            "remind",
            "reach_out_to_customer",
            "contact_seller",
            "warn_user",
            "report_abuse",
            "request_access",
            "request_time_off",
            "clock_in",
            "print",
            "print_file",
            "ring_doorbell",
            "say",
            "hire_candidate",
            "release_version",
            "redeploy_app",
            "rerun_workflow",
            "renew_membership",
            "give_points",
            "enter_raffle",
            "review_and_sign_contract",
            "hotel_booking",
            "table_reservation",
        ] {
            assert!(asks(name), "{name}");
        }
    }

    #[test]
    fn what_is_the_same_the_second_time_or_meant_to_be_repeated_is_not_asked_about() {
        for name in [
            "apply_patch",
            "apply_filter",
            "apply_label",
            "apply",
            "sign_in",
            "sign_out",
            "sign_url",
            "sign_jwt",
            "start_container",
            "start_server",
            "start_recording",
            "start_task",
            "launch_browser",
            "launch_application",
            "run_tests",
            "rerun_tests",
            "run_code",
            "register_tool",
            "reserve_memory",
            "vote_count",
            "list_votes",
            "trigger_sync",
            "trigger_delete",
            "dispatch_key",
            "emit_log",
            "escalate_privileges",
            "escalation_policy",
            "print_queue",
            "report_progress",
            "request_info",
            "release_lock",
            "extend_lease",
            "give_access",
            "grant_role",
            "revoke_access",
            "ban_user",
            "assign_issue",
            "approve_request",
            "join_channel",
            "follow_user",
            "subscribe_to_topic",
            "unsubscribe",
            "toggle_light",
            "click",
            "press_key",
            "navigate",
            "dequeue_message",
            "increment_counter",
            "contact_details",
            "call_tool",
            "feed_list",
            "nudge_layer",
            "bookings",
            "booking_details",
            "upcoming_reservation",
            "check_reservation",
            "get_or_register_user",
        ] {
            assert!(!asks(name), "{name}");
        }
    }
}
