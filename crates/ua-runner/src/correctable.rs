//! What can be known of a person's word over a record by looking only: the one place that says so, for `ua` and for programs.
//!
//! Durable Jobs v1 spec §8.3. Whether the word comes too early, because the call may still begin, is not known by looking: whoever takes the word asks.
//! Proved by: the tests below, the end-to-end tests `corrections`, `ua-sdk`'s tests `resolved`.

use ua_core::{CallId, CallStatus, CorrectedTo, Resolution};
use ua_store::CallRecord;

/// The most bytes of a reason; it becomes part of the conversation.
pub const MAX_REASON: usize = 16 * 1024;

/// What a word that may be recorded comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correctable {
    /// The record says something else.
    Anew,
    /// The record says so already, and nothing is to be stored.
    Already,
}

/// Why a word is no correction of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncorrectable {
    /// It has no reason.
    NoReason,
    /// Its reason is longer than [`MAX_REASON`].
    LongReason,
    /// It has a proof, and does not say that the call happened.
    ProofOfNothing,
    /// The call is a task, and what that did is in the calls of its sub-agent.
    Task,
    /// The call was never sent: it has the answer of this one.
    AnsweredBy(CallId),
    /// The call was never sent.
    NeverSent,
    /// The record says so already, with this proof or without one: with another one it would be another record.
    OtherProof {
        /// The proof that is recorded.
        has: Option<String>,
    },
}

/// Whether a word that a call came to `outcome` may be recorded, as far as its record tells.
///
/// # Errors
/// Why it may not.
pub fn correctable(
    call: &CallRecord,
    outcome: CorrectedTo,
    reason: &str,
    proof: Option<&str>,
) -> Result<Correctable, Uncorrectable> {
    if reason.trim().is_empty() {
        return Err(Uncorrectable::NoReason);
    }
    if reason.len() > MAX_REASON {
        return Err(Uncorrectable::LongReason);
    }
    if proof.is_some() && outcome != CorrectedTo::Happened {
        return Err(Uncorrectable::ProofOfNothing);
    }
    if call.name.is_task() {
        return Err(Uncorrectable::Task);
    }
    if let Some(source) = &call.deduplicated_from {
        return Err(Uncorrectable::AnsweredBy(source.clone()));
    }
    if matches!(call.status, CallStatus::Prepared | CallStatus::Cancelled) {
        return Err(Uncorrectable::NeverSent);
    }
    let is_skipped = call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped);
    let is_so = call.status.on(outcome.event()).is_err() || (is_skipped && outcome == CorrectedTo::Skipped);
    if !is_so {
        return Ok(Correctable::Anew);
    }
    // What would have to be stored with it is another record.
    if proof.is_some() && proof != call.external_correlation_id.as_deref() {
        return Err(Uncorrectable::OtherProof { has: call.external_correlation_id.clone() });
    }
    Ok(Correctable::Already)
}

#[cfg(test)]
mod tests {
    use ua_store::MemStore;
    use ua_store::conformance::Scene;

    use super::*;

    /// Over where the call stands and what is said of it: what was never sent has nothing to correct, and what is recorded is recorded once.
    #[tokio::test]
    async fn a_record_is_put_right_once_and_only_of_what_was_sent() {
        let mut seen = [0; 3];
        for status in CallStatus::ALL {
            let store = MemStore::new();
            let call = Scene::begin(&store, "run_1").await.call_that_is("call_1", *status).await;
            for outcome in CorrectedTo::ALL {
                let found = correctable(&call, *outcome, "I looked", None);
                let was_sent = !matches!(status, CallStatus::Prepared | CallStatus::Cancelled);
                let says_so = matches!(
                    (status, outcome),
                    (CallStatus::Succeeded, CorrectedTo::Happened)
                        | (CallStatus::FailedDefinite, CorrectedTo::NotHappened)
                );
                let expected = match (was_sent, says_so) {
                    (false, _) => Err(Uncorrectable::NeverSent),
                    (true, true) => Ok(Correctable::Already),
                    (true, false) => Ok(Correctable::Anew),
                };
                assert_eq!(found, expected, "{status} {outcome}");
                seen[usize::from(was_sent) + usize::from(says_so)] += 1;
                assert_eq!(
                    correctable(&call, *outcome, " \n", None),
                    Err(Uncorrectable::NoReason),
                    "{status} {outcome}"
                );
                let long = "x".repeat(MAX_REASON + 1);
                assert_eq!(correctable(&call, *outcome, &long, None), Err(Uncorrectable::LongReason));
                if *outcome != CorrectedTo::Happened {
                    let found = correctable(&call, *outcome, "I looked", Some("msg_1"));
                    assert_eq!(found, Err(Uncorrectable::ProofOfNothing), "{status} {outcome}");
                }
            }
            if *status == CallStatus::Succeeded {
                let other = correctable(&call, CorrectedTo::Happened, "I looked", Some("another one"));
                assert_eq!(other, Err(Uncorrectable::OtherProof { has: call.external_correlation_id.clone() }));
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}
