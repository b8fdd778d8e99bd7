//! In which order the calls of a session reach their tool server.
//!
//! Proved by: the search over all orders below, `tests/it/order.rs`.

use ua_core::CallId;
use ua_store::CallRecord;

use crate::queue::{Place, Queue};

/// In which order the calls of a session reach their tool server: that in which they were told apart, which is that in which they were asked
/// for. Each is handed over before the next is; only an effect waits for the answer of the effect before it, and only while somebody waits for
/// that. So a call that is never answered holds up no read, and its cancel frees the effects behind it.
pub(crate) type Turns = Queue<Standing>;

/// A call's turn, until it is dropped.
pub(crate) type Turn = Place<Standing>;

/// A call that waits for its turn, or has it.
#[derive(Debug)]
pub(crate) struct Standing {
    call: CallId,
    tool: String,
    has_effect: bool,
    /// Whether it was handed to its tool server.
    is_sent: bool,
}

impl Standing {
    pub(crate) fn of(call: &CallRecord) -> Self {
        let (tool, has_effect) = (call.name.tool.clone(), call.policy.class.has_effect());
        Self { call: call.call_id.clone(), tool, has_effect, is_sent: false }
    }

    /// Its tool, if it is another call than this one.
    pub(crate) fn tool_of_another(&self, call: &CallId) -> Option<String> {
        (self.call != *call).then(|| self.tool.clone())
    }
}

impl Place<Standing> {
    /// Its call was handed to its tool server.
    pub(crate) fn was_sent(&self) {
        self.change(|own| own.is_sent = true);
    }

    /// Waits for its turn. A read waits for reads before it to be handed over, and for the effect whose turn it is: those behind that wait for
    /// an answer, and it goes past them.
    pub(crate) async fn comes(&self, has_effect: bool) {
        self.until(|before| may_go(before, has_effect)).await;
    }
}

fn may_go<'a>(mut before: impl Iterator<Item = &'a Standing>, has_effect: bool) -> bool {
    match before.next() {
        None => true,
        Some(first) => !has_effect && first.has_effect && first.is_sent && before.all(|one| one.has_effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in a queue, and in which order what stood there was sent.
    type Case = (Vec<(usize, Standing)>, Vec<usize>);

    fn standing(place: usize, has_effect: bool) -> (usize, Standing) {
        let call = CallId::parse(&format!("call_{place}")).unwrap();
        (place, Standing { call, tool: String::new(), has_effect, is_sent: false })
    }

    fn again((all, sent): &Case) -> Case {
        let all = all
            .iter()
            .map(|(place, one)| (*place, Standing { is_sent: one.is_sent, ..standing(*place, one.has_effect).1 }));
        (all.collect(), sent.clone())
    }

    /// All sequences of five calls, and all orders in which they may be sent and answered: an effect is sent behind all that came before it, a
    /// read behind all but those effects that wait for an answer, and something can always go on.
    #[test]
    fn in_whichever_order_calls_are_answered_they_are_sent_in_their_order() {
        const COUNT: usize = 5;
        let mut ends = 0;
        for kinds in 0..1_u32 << COUNT {
            let has_effect = |place: usize| kinds & (1 << place) != 0;
            let mut open: Vec<Case> =
                vec![((0..COUNT).map(|place| standing(place, has_effect(place))).collect(), vec![])];
            while let Some(case) = open.pop() {
                let mut next = Vec::new();
                for at in 0..case.0.len() {
                    let (place, one) = &case.0[at];
                    let mut then = again(&case);
                    if one.is_sent {
                        // It is answered.
                        then.0.remove(at);
                    } else if may_go(case.0[..at].iter().map(|(_, before)| before), one.has_effect) {
                        let unanswered = case.0.iter().any(|(_, one)| one.is_sent);
                        let passed = case.0[..at].iter().filter(|(_, before)| !before.is_sent);
                        assert!(
                            passed.clone().all(|(_, before)| before.has_effect && !one.has_effect),
                            "{kinds:b} {case:?}"
                        );
                        assert!(passed.count() == 0 || unanswered, "{kinds:b} {case:?}");
                        assert!(!one.has_effect || !unanswered, "{kinds:b} {case:?}");
                        then.1.push(*place);
                        if one.has_effect {
                            then.0[at].1.is_sent = true;
                        } else {
                            then.0.remove(at);
                        }
                    } else {
                        continue;
                    }
                    next.push(then);
                }
                assert!(!next.is_empty() || case.1.len() == COUNT, "{kinds:b} {case:?}");
                ends += usize::from(case.0.is_empty());
                open.append(&mut next);
            }
        }
        assert!(ends > 1 << COUNT);
    }
}
