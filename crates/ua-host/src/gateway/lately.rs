//! What went through the gateway lately, for whoever looks at other runs.

use std::collections::BTreeMap;

use ua_core::{CallStatus, Timestamp};
use ua_store::{CallQuery, CallRecord, Store as _};

use crate::host::Host;

/// At most so many calls are counted.
const COUNTED: u32 = 10_000;

/// The calls that clients made through the gateway since an instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallsLately {
    /// All of them, those that were answered by the receipt of another one included.
    pub calls: u32,
    /// Those among them that have an effect, by where they stand: the words of [`ua_resume::call_standing`].
    pub effects: BTreeMap<&'static str, u32>,
}

impl CallsLately {
    fn of<'c>(calls: impl Iterator<Item = &'c CallRecord>) -> Self {
        let mut found = Self::default();
        // What a client took back before it was sent is nobody's call.
        for call in calls.filter(|call| call.status != CallStatus::Cancelled) {
            found.calls += 1;
            if call.policy.class.has_effect() {
                *found.effects.entry(ua_resume::call_standing(call)).or_default() += 1;
            }
        }
        found
    }
}

/// What went through the user's gateway since `since`; `None` when these are its own runs, when nobody uses one, and when it cannot be looked
/// at now.
pub async fn calls_beside(host: &Host, since: Timestamp) -> Option<CallsLately> {
    let home = super::home_beside(host)?;
    let store = home.open_read_only().ok()?;
    let found = store.find_calls(&CallQuery { limit: COUNTED, ..CallQuery::default() }).await;
    crate::home::close(store);
    match found {
        Ok(calls) => Some(CallsLately::of(calls.iter().filter(|call| call.created_at >= since))),
        Err(error) => {
            tracing::debug!(%error, "the calls of the gateway cannot be read");
            None
        }
    }
}
