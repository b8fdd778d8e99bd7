//! What is decided about a call before it runs: its class, what to do when its outcome is lost, how its key travels.
//!
//! Durable Jobs v1 spec §7 and §8; the decision itself is `ua-classify`'s work.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::composite::{Composite, Via};
use crate::probe::{Marker, ProbePolicy};
use crate::status::text_enum;

text_enum! {
    /// What a call touches (Durable Jobs v1 spec §7.2), in order of rising caution.
    SideEffectClass {
        /// It only looks.
        ReadOnly = "read_only",
        /// It writes files or runs programs on this machine.
        Local = "local",
        /// It changes persistent memory.
        Memory = "memory",
        /// It changes something outside.
        External = "external",
    }
}

impl SideEffectClass {
    /// Whether the call is a barrier in its turn and its RUNNING and receipt are synced to stable storage.
    pub const fn has_effect(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

text_enum! {
    /// What happens to a call that was sent and whose outcome nobody knows (`replay_policy` of the ledger).
    OnUnknown {
        /// Run it again: harmless for reads and for local files that are replaced whole.
        Redo = "redo",
        /// Run it again under the same key, which the tool honours.
        RedoKeyed = "redo_keyed",
        /// Ask a read-only tool whether it happened.
        Probe = "probe",
        /// Stop and ask a person.
        Hold = "hold",
        /// Tell the model that the outcome is unknown and block the scope.
        Continue = "continue",
    }
}

text_enum! {
    /// What happens when another call of the lineage may already have had this effect in other words.
    OnScopeConflict {
        /// Ask a person.
        Ask = "ask",
        /// Refuse the call and tell the model.
        Refuse = "refuse",
        /// Let it run.
        Allow = "allow",
    }
}

text_enum! {
    /// Where a class came from, strongest first.
    ClassSource {
        /// A policy file of the user's.
        UserPolicy = "user_policy",
        /// A policy file that comes with the job: one that a person trusted, or a rule that raises caution.
        JobPolicy = "job_policy",
        /// `side_effect_denylist` or `read_only_allowlist`.
        List = "list",
        /// A known tool, by our shipped policy.
        Shipped = "shipped",
        /// What the server says about it, or the program whose function it is.
        Annotation = "annotation",
        /// The words in its name.
        Name = "name",
        /// Nothing said anything.
        Default = "default",
    }
}

text_enum! {
    /// What a call brings into the run.
    Reads {
        /// Words of others: pages, mail, answers of foreign tools. They may be meant for the model.
        Untrusted = "untrusted",
        /// What the user would not show to others: files, memory, mail.
        Private = "private",
    }
}

/// How a tool receives the idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyChannel {
    /// An argument of this name; the model never sees it.
    Argument(String),
    /// An HTTP header of this name.
    Header(String),
    /// The request's MCP `_meta`. Counts as honoured only because a policy says so.
    Meta,
}

/// What an effect is: `<object>.<verb>`, for example `email.send`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKind(String);

impl EffectKind {
    /// Verbs of effects that create something and therefore are identified by content: those that names of tools are read as, then those that
    /// people declare as they say it.
    pub const CREATING: [&'static str; 28] = [
        "send",
        "create",
        "upload",
        "publish",
        "post",
        "invite",
        "comment",
        "reply",
        "forward",
        "pay",
        "notify",
        "book",
        "broadcast",
        "buy",
        "charge",
        "deposit",
        "donate",
        "mint",
        "order",
        "purchase",
        "refund",
        "register",
        "reserve",
        "schedule",
        "ship",
        "submit",
        "transfer",
        "withdraw",
    ];

    /// Reads `<object>.<verb>`; both parts are lower-case words.
    pub fn parse(text: &str) -> Option<Self> {
        let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let (object, verb) = text.split_once('.')?;
        (is_word(object) && is_word(verb)).then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the two may be names of one thing: both tell somebody something, or they are about the same object.
    fn is_like(&self, effect: &str) -> bool {
        let (Some((object, verb)), Some((other, wanted))) = (self.0.split_once('.'), effect.split_once('.')) else {
            return false;
        };
        let share = || object.split('_').any(|word| other.split('_').any(|another| another == word));
        (TELLS.contains(&verb) && TELLS.contains(&wanted)) || share()
    }

    /// Whether the effect creates something, so that asking for it twice means once.
    pub fn is_creating(&self) -> bool {
        self.0.split_once('.').is_some_and(|(_, verb)| Self::CREATING.contains(&verb))
    }
}

/// Verbs of effects that tell somebody something.
const TELLS: [&str; 7] = ["send", "reply", "forward", "post", "publish", "notify", "comment"];

/// Verbs in a tool's name by which it may tell somebody something, whatever else its name says: `share_document`, `draft_send`.
const TELLING: [&str; 26] = [
    "alert",
    "announce",
    "blast",
    "broadcast",
    "deliver",
    "dispatch",
    "distribute",
    "forward",
    "inform",
    "invite",
    "notify",
    "ping",
    "post",
    "publish",
    "push",
    "remind",
    "reply",
    "respond",
    "send",
    "sends",
    "share",
    "submit",
    "tell",
    "transmit",
    "transmits",
    "tweet",
];
/// What is told, and is a verb where it stands first: `email_customer`.
const TOLD: [&str; 14] = [
    "campaign",
    "dm",
    "email",
    "emails",
    "fax",
    "invitation",
    "letter",
    "mail",
    "message",
    "messages",
    "newsletter",
    "notification",
    "sms",
    "text",
];
/// Verbs by which something that is told may be sent: `create_message`.
const MAKING: [&str; 9] = ["add", "compose", "create", "make", "new", "queue", "schedule", "start", "write"];
/// Words that do something else with it: `email_delete`.
const ELSE: [&str; 16] = [
    "archive", "count", "delete", "edit", "extract", "get", "label", "list", "mark", "move", "read", "remove",
    "replace", "search", "status", "update",
];

/// Verbs that set something going, which then does what somebody else has laid down for it.
const RUNNING: [&str; 22] = [
    "activate", "apply", "approve", "continue", "enable", "enroll", "exec", "execute", "finalize", "fire", "flush",
    "invoke", "launch", "play", "replay", "rerun", "resume", "retry", "run", "start", "test", "trigger",
];
/// What is set going so, and may well tell somebody something: `execute_workflow`, `flush_outbox`, `use_tool`.
const SET_GOING: [&str; 40] = [
    "action",
    "automation",
    "automations",
    "batch",
    "broadcast",
    "campaign",
    "code",
    "command",
    "contact",
    "dag",
    "draft",
    "flow",
    "function",
    "invoice",
    "job",
    "journey",
    "lambda",
    "lead",
    "macro",
    "message",
    "node",
    "notification",
    "outbox",
    "pipeline",
    "playbook",
    "process",
    "queue",
    "recipe",
    "request",
    "routine",
    "runbook",
    "scenario",
    "script",
    "sequence",
    "step",
    "task",
    "tool",
    "webhook",
    "workflow",
    "zap",
];
/// What is told by somebody else once it is made: `create_envelope`, `add_to_sequence`.
const TOLD_LATER: [&str; 4] = ["envelope", "journey", "sequence", "sequences"];
/// What acts on a page, which does what it likes then, wherever it stands.
const ON_A_PAGE: [&str; 7] = ["act", "click", "dblclick", "doubleclick", "eval", "evaluate", "tap"];
/// What does so where the tool is one of a browser.
const IN_A_BROWSER: [&str; 8] = ["drag", "drop", "fill", "key", "mouse", "press", "select", "type"];
/// Words of tools of browsers.
const OF_A_BROWSER: [&str; 11] =
    ["browser", "button", "dialog", "element", "field", "form", "input", "page", "playwright", "puppeteer", "selector"];

/// Whether a tool of this name may tell somebody something: it says so, or it sets something going of which only somebody else knows what it does.
fn may_tell(tool: &str) -> bool {
    let words = words_of(tool);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let begins = words.first().is_some_and(|word| TOLD.contains(&word.as_str()));
    let says_so = has(&TELLING) || (has(&TOLD) && !has(&ELSE) && (begins || has(&MAKING)));
    let sets_going = (has(&RUNNING) || has(&["use", "call"])) && has(&SET_GOING);
    let is_told_later = has(&TOLD_LATER) && has(&MAKING);
    // The service mails what the person needs then.
    let resets = has(&["reset", "forgot"]) && has(&["password"]);
    says_so || ((sets_going || is_told_later) && !has(&ELSE)) || acts_on_a_page(tool) || resets
}

/// Whether a tool of this name acts on a page, of which only somebody else knows what it does then.
fn acts_on_a_page(tool: &str) -> bool {
    let words = words_of(tool);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    has(&ON_A_PAGE)
        || (has(&IN_A_BROWSER) && has(&OF_A_BROWSER))
        || (has(&["run"]) && has(&["code"]) && has(&OF_A_BROWSER))
        || (has(&["press"]) && has(&["key", "keys"]))
        || (has(&["handle", "accept", "dismiss"]) && has(&["dialog"]))
}

/// Whether the name of a tool that makes a thing has the object of this effect in it, and the effect is that it is made.
fn names_what_is_made(tool: &str, effect: &str) -> bool {
    let Some((object, verb)) = effect.split_once('.') else { return false };
    let words = words_of(tool);
    EffectKind::CREATING.contains(&verb)
        && object
            .split('_')
            .all(|part| words.iter().any(|word| word.strip_prefix(part).is_some_and(|end| end.len() < 3)))
}

/// The words of a tool's name, in lower case.
fn words_of(tool: &str) -> Vec<String> {
    let (mut words, mut is_small) = (vec![String::new()], false);
    for c in tool.chars() {
        if !c.is_alphanumeric() || (is_small && c.is_uppercase()) {
            words.push(String::new());
        }
        is_small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// Whether calls of a tool have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Makes {
    /// Its kind says so.
    Declared,
    /// Nobody declared what it does, and it may be that.
    Perhaps,
    /// Not that.
    No,
}

/// How one argument enters a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeField {
    /// The argument's value as it is.
    Value(String),
    /// A mail address or a list of them: sorted, lower-cased.
    Addresses(String),
    /// A file or a list of them: the digests of their contents.
    Files(String),
}

impl ScopeField {
    /// The argument's name.
    pub fn argument(&self) -> &str {
        match self {
            Self::Value(name) | Self::Addresses(name) | Self::Files(name) => name,
        }
    }
}

/// Which arguments name the effect, whatever the wording and the route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeRule(pub Vec<ScopeField>);

/// Everything decided about a call when it was planned; stored with it, so that a resume does not decide anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPolicy {
    /// What the call touches.
    pub class: SideEffectClass,
    /// What happens when its outcome is lost.
    pub on_unknown: OnUnknown,
    /// How the tool receives the key; `None` when it has no channel that counts.
    pub key_channel: Option<KeyChannel>,
    /// How long the other side remembers a key; `None` means for ever.
    pub key_ttl: Option<Duration>,
    /// How to ask afterwards whether a call happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbePolicy>,
    /// How the key is left as a mark in an argument, so that a probe can find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<Marker>,
    /// Templates of what a call is found by on the other side, beside what its key and its mark say ([`CallPolicy::names_outside`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_by: Vec<String>,
    /// How long after an attempt was given up the other side may still begin it. Before that, *it is not there* proves
    /// nothing, and nothing is sent again that could have its effect twice. `None` leaves it to the fence of the tool
    /// server; a probe then counts with [`CallPolicy::DEFAULT_HORIZON`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Duration>,
    /// The tool refuses to run without a key.
    pub requires_idempotency_key: bool,
    /// What the effect is, for tools whose effects are declared.
    pub effect_kind: Option<EffectKind>,
    /// Nobody declared that kind: that each call makes something is known, by its name, its server's word or a rule's, and not what the same
    /// words mean. A repeat in the same words may be meant, so a person is asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kind_is_guessed: bool,
    /// Each call makes something, whatever the verb of the kind: a rule says so, or the tool's name does beside a kind whose verb does not. Without
    /// a kind: the name says that a thing is made, and leaves open whether a second one in the same words is one more (`create_folder`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub makes_anew: bool,
    /// Nobody declared a kind, and the tool's name leaves open whether each call makes something (`push_message`, `dispatch_order`); or its calls carry
    /// calls of other tools, whatever its own kind is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_make: bool,
    /// Which arguments name the effect.
    pub scope: ScopeRule,
    /// Top-level arguments that do not make a call another call.
    pub volatile_fields: Vec<String>,
    /// Arguments that name files the tool sends out; their digests are compared before a keyed redo.
    pub sends_files: Vec<String>,
    /// Regular expressions over a reported error's text that prove that nothing happened; `.*` for our own tools.
    pub errors_without_effect: Vec<String>,
    /// Only the server's own word (`isError`) makes a result a failure: what stands in it is what the tool is about, and no report on the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_is_error: bool,
    /// How long to wait for an answer; `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// A person approves each call first.
    pub needs_approval: bool,
    /// What happens when the scope was touched before in other words.
    pub on_scope_conflict: OnScopeConflict,
    /// What its answer brings into the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Reads>,
    /// Set for a composite tool, which is never sent as it is: how its calls are taken apart into actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composite: Option<Box<Composite>>,
    /// Set for an action of a composite tool: how it reaches that tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Box<Via>>,
    /// The class without the words that may only raise it: those of a project's list, of a job's file, of the tool's server. What is asked
    /// about calls of that class is asked about these, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_from: Option<SideEffectClass>,
    /// Which rule decided (`policy_rule_id`).
    pub rule_id: String,
    /// What kind of rule that was.
    pub class_source: ClassSource,
    /// Why, in a sentence.
    pub reason: String,
}

impl CallPolicy {
    /// How long a probe takes the other side to be able to begin a call that was given up, when no policy says it.
    pub const DEFAULT_HORIZON: Duration = Duration::from_secs(30);

    /// The rule ([`CallPolicy::rule_id`]) of a call that may repeat another one, which nobody can tell but a person: it
    /// was made as somebody else, or at another place of the same name. [`CallPolicy::reason`] says which.
    pub const MAY_REPEAT: &str = "gateway.may_repeat";

    /// The cautious default: external, no key channel, ask a person when in doubt.
    pub fn unclassified() -> Self {
        Self {
            class: SideEffectClass::External,
            on_unknown: OnUnknown::Hold,
            key_channel: None,
            key_ttl: None,
            probe: None,
            marker: None,
            found_by: Vec::new(),
            horizon: None,
            requires_idempotency_key: false,
            effect_kind: None,
            kind_is_guessed: false,
            makes_anew: false,
            may_make: false,
            scope: ScopeRule::default(),
            volatile_fields: Vec::new(),
            sends_files: Vec::new(),
            errors_without_effect: Vec::new(),
            only_is_error: false,
            timeout: None,
            needs_approval: false,
            on_scope_conflict: OnScopeConflict::Ask,
            reads: Vec::new(),
            composite: None,
            via: None,
            raised_from: None,
            rule_id: "default".to_owned(),
            class_source: ClassSource::Default,
            reason: "nothing is known about this tool, so it is treated as an external side effect".to_owned(),
        }
    }

    /// Whether a call that was sent and not answered is simply made again: it is not waited for when the run stops, and nobody is asked about it.
    pub fn is_free_read(&self) -> bool {
        self.class == SideEffectClass::ReadOnly && self.on_unknown == OnUnknown::Redo
    }

    /// Whether it does no harm to make a call once more of which nobody knows what became: it has no effect, or one that is there once however
    /// often it is made.
    pub fn may_simply_be_repeated(&self) -> bool {
        !self.class.has_effect() || matches!(self.on_unknown, OnUnknown::Redo | OnUnknown::RedoKeyed)
    }

    /// Whether nothing but its name says of this tool that it only reads: nobody wrote a rule about it, and nobody vouches for its server.
    pub fn is_read_by_name(&self) -> bool {
        self.class == SideEffectClass::ReadOnly && self.class_source == ClassSource::Name
    }

    /// How often a call that was sent and lost is sent again by itself, where a job allows so many retries. What is a read by its name alone is sent
    /// again once, so that a lost answer costs nothing; a server that loses that one as well may be doing something else than to read.
    pub fn repeats(&self, max_retries: u32) -> u32 {
        if self.is_read_by_name() { max_retries.min(1) } else { max_retries }
    }

    /// Whether a database that forgot such a call would have its effect repeated: it reaches outside, or is not simply done again. What was
    /// sent of these is kept outside the database as well.
    pub fn is_kept_outside(&self) -> bool {
        let is_repeatable = !self.class.has_effect() || self.on_unknown == OnUnknown::Redo;
        self.class == SideEffectClass::External || !is_repeatable
    }

    /// Whether calls of a tool of this bare name have this effect, as far as anybody said. A kind that was read out of the name is no proof that it
    /// is not another one.
    pub fn makes(&self, tool: &str, effect: &str) -> Makes {
        if self.effect_kind.as_ref().is_some_and(|kind| kind.as_str() == effect) {
            return Makes::Declared;
        }
        let is_unknown =
            matches!(self.class_source, ClassSource::Default | ClassSource::List | ClassSource::Annotation);
        // What is named after the run itself is what our own tools do for it: of no other tool it is to be believed unasked.
        let is_of_the_run = effect.starts_with("run.");
        let tells = || effect.split_once('.').is_some_and(|(_, verb)| TELLS.contains(&verb)) && may_tell(tool);
        let might = match &self.effect_kind {
            _ if is_of_the_run => false,
            Some(kind) if self.kind_is_guessed => kind.is_like(effect) || tells(),
            // What is declared is what it makes at least: a draft, which may have become the thing.
            Some(_) => self.may_make || (self.makes_anew && names_what_is_made(tool, effect)),
            None if self.makes_anew && names_what_is_made(tool, effect) => true,
            // A pack says of such a tool that it changes something, and cannot say what the page makes of it.
            None if self.class_source == ClassSource::Shipped && acts_on_a_page(tool) => self.may_make || tells(),
            None => is_unknown || self.may_make || (self.class_source == ClassSource::Name && tells()),
        };
        // What carries calls of other tools reaches them from wherever it runs.
        let reaches = self.class == SideEffectClass::External || (self.class.has_effect() && self.may_make);
        if might && reaches { Makes::Perhaps } else { Makes::No }
    }

    /// Whether the name or the kind of a tool of this bare name suggests that its calls have this effect. Of another one that might
    /// ([`Makes::Perhaps`]) nothing is known at all.
    pub fn seems_to_make(&self, tool: &str, effect: &str) -> bool {
        let tells = || effect.split_once('.').is_some_and(|(_, verb)| TELLS.contains(&verb)) && may_tell(tool);
        let is_like = |kind: &EffectKind| kind.as_str() == effect || kind.is_like(effect);
        self.effect_kind.as_ref().is_some_and(is_like) || names_what_is_made(tool, effect) || tells()
    }

    /// Whether some of the arguments name files, which are looked at before a call goes out.
    pub fn names_files(&self) -> bool {
        !self.sends_files.is_empty() || self.scope.0.iter().any(|field| matches!(field, ScopeField::Files(_)))
    }

    /// Whether equal calls of a lineage are one effect (`effect_kind` with a creating verb, or one that makes something all the same).
    pub fn is_by_content(&self) -> bool {
        self.makes_anew || self.effect_kind.as_ref().is_some_and(EffectKind::is_creating)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_an_effect_is_known_by_what_was_declared_and_what_nobody_declared_may_be_it() {
        let of = |kind: Option<&str>, kind_is_guessed: bool, class_source: ClassSource| CallPolicy {
            effect_kind: kind.and_then(EffectKind::parse),
            kind_is_guessed,
            class_source,
            ..CallPolicy::unclassified()
        };
        let open = CallPolicy { may_make: true, ..of(None, false, ClassSource::Name) };
        assert_eq!(open.makes("do_it", "email.send"), Makes::Perhaps, "its name leaves it open");
        let named = |tool, kind: Option<&str>| of(kind, kind.is_some(), ClassSource::Name).makes(tool, "email.send");
        for (tool, kind) in [
            ("draft_send", Some("draft.create")),
            ("push_message", Some("message.create")),
            ("create_message", Some("message.create")),
            ("createAndSend", None),
            ("create_and_send", None),
            ("share_document", None),
            ("email_customer", None),
            ("dispatch_courier", Some("courier.create")),
            ("execute_workflow", Some("workflow_run.create")),
            ("n8n_test_workflow", None),
            ("n8n_trigger_webhook_workflow", Some("workflow_run.create")),
            ("trigger_workflow", Some("workflow_run.create")),
            ("start_workflow", Some("workflow_run.create")),
            ("resume_workflow", None),
            ("apply_workflow", None),
            ("activate_flow", None),
            ("use_tool", None),
            ("browser_click", None),
            ("browser_type", None),
            ("browser_press_key", None),
            ("press_key", None),
            ("dismiss_dialog", None),
            ("stagehand_act", None),
            ("browser_evaluate", None),
            ("browser_fill_form", None),
            ("browser_handle_dialog", None),
            ("puppeteer_click", None),
            ("puppeteer_evaluate", None),
            ("evaluate_script", None),
            ("press_inline_button", None),
            ("launch_campaign", Some("campaign.create")),
            ("activate_campaign", None),
            ("flush_outbox", None),
            ("approve_draft", None),
            ("retry_message", None),
            ("reset_password", None),
            ("create_envelope", Some("envelope.create")),
            ("finalize_invoice", None),
            ("enroll_contact", None),
            ("add_to_sequence", None),
        ] {
            assert_eq!(named(tool, kind), Makes::Perhaps, "{tool}");
        }
        for (tool, kind) in [
            ("create_issue", Some("issue.create")),
            ("delete_file", None),
            ("upload_image", Some("image.upload")),
            ("delete_email", None),
            ("email_archive", None),
            ("replace_text", None),
            ("create_page", Some("page.create")),
            ("drop_table", None),
            ("update_workflow", None),
            ("delete_workflow_run", None),
            ("create_workflow", Some("workflow.create")),
            ("start_instance", None),
            ("fill_cell", None),
            ("set_password", None),
            ("create_api_key", Some("api_key.create")),
            ("delete_key", None),
            ("add_ssh_key", Some("ssh_key.create")),
            ("select_key", None),
            ("create_dialog", Some("dialog.create")),
        ] {
            assert_eq!(named(tool, kind), Makes::No, "{tool}");
        }
        let thing = CallPolicy { makes_anew: true, ..of(None, true, ClassSource::Name) };
        for (effect, makes) in [
            ("folder.create", Makes::Perhaps),
            ("drive_folder.create", Makes::Perhaps),
            ("folder.delete", Makes::No),
            ("issue.create", Makes::No),
        ] {
            assert_eq!(thing.makes("drive_create_folders", effect), makes, "{effect}");
        }
        for (tool, seems) in [("send_report", true), ("alert_team", true), ("adjust_volume", false), ("zoom", false)] {
            let nothing = of(None, false, ClassSource::Default);
            assert_eq!(nothing.makes(tool, "email.send"), Makes::Perhaps, "{tool}");
            assert_eq!(nothing.seems_to_make(tool, "email.send"), seems, "{tool}");
        }
        let drafted = CallPolicy { makes_anew: true, ..of(Some("entry.draft"), false, ClassSource::Shipped) };
        for (tool, makes) in [("create_invoice", Makes::Perhaps), ("create_bill", Makes::No)] {
            assert_eq!(drafted.makes(tool, "invoice.create"), makes, "{tool}");
        }
        assert_eq!(drafted.makes("create_invoice", "entry.draft"), Makes::Declared);
        let shipped = |tool, effect| of(None, false, ClassSource::Shipped).makes(tool, effect);
        assert_eq!(shipped("share_document", "email.send"), Makes::No);
        for tool in ["browser_click", "browser_press_key", "browser_run_code_unsafe", "act"] {
            assert_eq!(shipped(tool, "email.send"), Makes::Perhaps, "{tool}: who knows what the page does");
            assert_eq!(shipped(tool, "issue.create"), Makes::No, "{tool}");
        }
        let makes = |kind, guessed, source| of(kind, guessed, source).makes("do_it", "email.send");
        assert_eq!(makes(Some("email.send"), false, ClassSource::Shipped), Makes::Declared);
        assert_eq!(makes(Some("email.send"), true, ClassSource::Name), Makes::Declared);
        assert_eq!(makes(Some("message.post"), true, ClassSource::Name), Makes::Perhaps);
        assert_eq!(makes(Some("email.create"), true, ClassSource::Name), Makes::Perhaps);
        assert_eq!(makes(Some("issue.create"), true, ClassSource::Name), Makes::No);
        assert_eq!(makes(Some("message.post"), false, ClassSource::Shipped), Makes::No, "somebody said what it is");
        assert_eq!(makes(None, false, ClassSource::Default), Makes::Perhaps);
        assert_eq!(makes(None, false, ClassSource::Name), Makes::No, "its name says that it changes something");
        let local = CallPolicy { class: SideEffectClass::Local, ..of(None, false, ClassSource::Default) };
        assert_eq!(local.makes("do_it", "email.send"), Makes::No);
    }

    #[test]
    fn only_creating_verbs_are_by_content() {
        assert!(EffectKind::parse("email.send").unwrap().is_creating());
        assert!(!EffectKind::parse("email.delete").unwrap().is_creating());
        let mut once = EffectKind::CREATING.to_vec();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), EffectKind::CREATING.len());
        for bad in ["email", ".send", "email.", "Email.send", "a.b.c"] {
            assert_eq!(EffectKind::parse(bad), None, "{bad}");
        }
    }
}
