//! Why a call in doubt is a person's to decide, and whether that is so now.
//!
//! A reason is a fact of the moment: a tool server is put back, a policy is restored, another call turns out not to have happened. So a question
//! keeps its reasons beside its words, and what asked it for a reason that does not hold any more takes it back and decides again.
//! Invariant: what is asked and what is taken back go by the same look ([`Case::says`]).

use serde_json::{Value, json};
use ua_core::OnUnknown;
use ua_store::QuestionRecord;

use super::Case;
use crate::admission::SincePlanned;
use crate::interpret::is_refused_as_it_is;

/// An enum whose members are listed once, with the code that a question keeps each by.
macro_rules! reasons {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $member:ident = $code:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$doc])* $member,)+ }

        impl $name {
            /// All of them.
            pub(super) const ALL: &'static [Self] = &[$(Self::$member),+];

            /// How a question keeps it.
            fn code(self) -> &'static str {
                match self { $(Self::$member => $code,)+ }
            }
        }
    };
}

reasons! {
    /// Why a call in doubt is not sent again by itself.
    Against {
        /// Its server has no such tool any more, so it is not sent whoever says so.
        ToolGone = "tool_gone",
        /// The definition of its tool is another one than it was planned with.
        AnotherTool = "another_tool",
        /// What is known of its tool now would not have let it be sent as it was.
        Stricter = "stricter",
        /// Its calls need a person's word now.
        NeedsApproval = "needs_approval",
        /// What its job allows of its effect is used up by other calls, so it is not sent whoever says so.
        LimitUsedUp = "limit_used_up",
        /// What was lost may have happened, and what came behind it says that it will not be taken again.
        RefusedAsItIs = "refused_as_it_is",
        /// It was sent as often as is allowed.
        TriedOften = "tried_often",
        /// It would go somewhere else than where it went.
        Elsewhere = "elsewhere",
        /// It would send other files.
        FilesChanged = "files_changed",
        /// Another call may have had its effect since.
        Overtaken = "overtaken",
        /// The other side may have forgotten its key.
        KeyForgotten = "key_forgotten",
        /// What a look would show may be another call's.
        Alike = "alike",
        /// Its policy, what a look said, or what a person's earlier word could not do: only an answer changes that.
        Standing = "standing",
    }
}

impl Against {
    /// What stands against a repeat under an old key, or none, in the order in which it is told.
    pub(super) const fn redo(policy: OnUnknown) -> &'static [Self] {
        use Against as A;
        match policy {
            OnUnknown::Redo => &[
                A::ToolGone,
                A::AnotherTool,
                A::Stricter,
                A::NeedsApproval,
                A::LimitUsedUp,
                A::RefusedAsItIs,
                A::TriedOften,
                A::Elsewhere,
                A::Overtaken,
            ],
            OnUnknown::RedoKeyed => &[
                A::ToolGone,
                A::AnotherTool,
                A::Stricter,
                A::NeedsApproval,
                A::LimitUsedUp,
                A::RefusedAsItIs,
                A::TriedOften,
                A::Elsewhere,
                A::FilesChanged,
                A::Overtaken,
                A::KeyForgotten,
            ],
            OnUnknown::Probe => &[A::Elsewhere, A::Alike],
            OnUnknown::Hold | OnUnknown::Continue => &[A::Standing],
        }
    }

    /// The same of a call that a look has not found.
    pub(super) const ABSENT: [Self; 7] = [
        Self::TriedOften,
        Self::ToolGone,
        Self::AnotherTool,
        Self::FilesChanged,
        Self::Stricter,
        Self::NeedsApproval,
        Self::Overtaken,
    ];
}

/// Where the detail of a question has its reasons.
const AGAINST: &str = "against";

/// Keeps with a question why it is asked.
pub(crate) fn keep(detail: &mut Value, against: &[Against]) {
    detail[AGAINST] = against.iter().map(|against| json!(against.code())).collect();
}

/// Whether a question told its person of this reason.
pub(super) fn was_told(asked: &QuestionRecord, against: Against) -> bool {
    let mut codes = asked.detail.get(AGAINST).and_then(Value::as_array).into_iter().flatten();
    codes.any(|code| code == against.code())
}

impl Case<'_> {
    /// The reason in words, if it holds now.
    pub(super) fn says(&self, against: Against) -> Option<String> {
        let (call, rules, facts) = (self.call, self.rules, self.facts);
        let since = |planned| facts.since_planned == planned;
        let holds = |is_so: bool, words: &str| is_so.then(|| words.to_owned());
        match against {
            Against::ToolGone => {
                holds(rules.is_gone(call), "the tool is not offered any more, so it cannot be sent again")
            }
            Against::AnotherTool => {
                holds(rules.is_for_another_tool(call), "the definition of its tool has changed since it was planned")
            }
            Against::Stricter => holds(
                since(SincePlanned::Stricter),
                "its tool and the policies say something else of it now than what it was sent under",
            ),
            Against::NeedsApproval => holds(
                since(SincePlanned::Asks),
                "a person has to approve such calls now, which was not so when it was planned",
            ),
            Against::LimitUsedUp => self.view.used_up.as_ref().map(|limit| limit.against_a_repeat(rules.calls_of)),
            Against::RefusedAsItIs => holds(
                call.doubt.is_some_and(|doubt| doubt < call.attempt) && is_refused_as_it_is(call),
                "it was refused as it is when it was sent again",
            ),
            Against::TriedOften => {
                holds(rules.is_exhausted(call, &self.view.attempts), "it was tried as often as is allowed")
            }
            Against::Elsewhere => self.elsewhere(),
            Against::FilesChanged => holds(!facts.files.are_those_of(call), facts.files.why_others()),
            Against::Overtaken => self.overtaken(),
            Against::KeyForgotten => {
                let first = self.view.attempts.first().map(|attempt| attempt.started_at);
                let is_over =
                    first.zip(call.policy.key_ttl).is_some_and(|(first, ttl)| rules.time.may_be_over(first, ttl));
                holds(is_over, "the other side may have forgotten its key")
            }
            Against::Alike => self.not_told_apart(),
            Against::Standing => holds(true, "the tool can neither take an idempotency key nor be asked afterwards"),
        }
    }

    /// The first of these that holds, with its words.
    pub(super) fn first_of(&self, against: &[Against]) -> Option<(Against, String)> {
        against.iter().find_map(|against| Some((*against, self.says(*against)?)))
    }

    /// Whether what a question about it was asked for holds still. One of an earlier version does not say what that was.
    pub(super) fn is_still_so(&self, asked: &QuestionRecord) -> bool {
        let codes = asked.detail.get(AGAINST).and_then(Value::as_array).into_iter().flatten();
        // A reason of a newer version is none that could be looked at here.
        let reasons = codes.filter_map(|code| Against::ALL.iter().copied().find(|against| code == against.code()));
        reasons.into_iter().all(|against| self.says(against).is_some())
    }
}
