//! Sending through a server: what is known about the key decides whether anything leaves.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{Env, Redactor, Timestamp};

use super::api::{self, Api};
use super::journal::{Entry, Journal, State};
use super::outgoing::{Bcc, OutgoingMail, Recipients, Sender};
use super::probe::{Found, Probe};
use super::smtp::Smtp;
use super::{Arguments, Receipt, message_id};
use crate::answer::Failure;
use crate::context::{Order, blocking};
use crate::workspace::Workspace;

/// A server, and what it can be asked afterwards.
#[derive(Debug)]
pub(super) struct Remote {
    wire: Wire,
    probe: Option<Probe>,
    settle: Duration,
    redactor: Redactor,
}

#[derive(Debug)]
pub(super) enum Wire {
    Smtp(Smtp),
    Api(Api),
}

/// What is known about a key before anything is sent.
enum KeyState {
    /// Nothing that keeps the message from being sent.
    Open,
    /// The message was sent.
    Sent { reference: Option<String>, evidence: &'static str },
}

impl Wire {
    /// The server as it is shown and recorded.
    fn address(&self) -> String {
        match self {
            Self::Smtp(smtp) => smtp.address(),
            Self::Api(api) => api.address(),
        }
    }
}

impl Remote {
    /// `redactor` knows what the server was given to sign in with.
    pub(super) fn new(wire: Wire, probe: Option<Probe>, settle_seconds: u32, redactor: Redactor) -> Self {
        Self { wire, probe, settle: Duration::from_secs(settle_seconds.into()), redactor }
    }

    /// What the server said, without what it was given: it is kept in the workspace, and answered.
    fn clean(&self, outcome: Result<Option<String>, Failure>) -> Result<Option<String>, Failure> {
        match outcome {
            Ok(mut reference) => {
                if let Some(words) = &mut reference {
                    self.redactor.own(words);
                }
                Ok(reference)
            }
            Err(mut failure) => {
                let (Failure::Refused { problem, .. } | Failure::Unclear(problem)) = &mut failure;
                self.redactor.own(problem);
                Err(failure)
            }
        }
    }

    /// Whether a message is sent once per key, however often the call is repeated.
    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.wire, Wire::Api(_)) || self.probe.is_some()
    }

    /// For how long, when not for ever.
    pub(super) fn key_ttl_seconds(&self) -> Option<u32> {
        matches!(self.wire, Wire::Api(_)).then_some(api::KEY_TTL_SECONDS)
    }

    pub(super) async fn send(
        &self,
        workspace: &Arc<Workspace>,
        from: &Sender,
        given: Arguments,
        id: String,
        order: Order<'_>,
        env: &Env,
    ) -> Result<Receipt, Failure> {
        let people = Recipients::parse(&given)?;
        let receipt = Receipt {
            message_id: message_id(&id),
            path: None,
            via: Some(self.wire.address()),
            recipients: people.addresses(),
            already_sent: false,
            provider_reference: None,
            evidence: None,
        };
        let journal = match order.key {
            None => None,
            Some(key) => {
                let (workspace, key) = (Arc::clone(workspace), key.to_owned());
                Some(Arc::new(blocking(move || Journal::open(workspace, &key)).await?))
            }
        };
        // Asked before anything can be refused: what was sent stays sent when an attachment is gone by now.
        if let Some(journal) = &journal
            && let KeyState::Sent { reference, evidence } = self.standing(journal, order.attempt, env).await?
        {
            return Ok(Receipt {
                already_sent: true,
                provider_reference: reference,
                evidence: Some(evidence),
                ..receipt
            });
        }
        let letter = {
            let (workspace, files) = (Arc::clone(workspace), order.files.clone());
            let (from, id) = (from.clone(), id.clone());
            blocking(move || OutgoingMail::read(&workspace, &files, &from, given, people, id)).await?
        };
        let reference = self.deliver(&letter, order.key.unwrap_or(&id), journal.as_ref(), env).await?;
        Ok(Receipt { provider_reference: reference, ..receipt })
    }

    async fn standing(&self, journal: &Arc<Journal>, attempt: u64, env: &Env) -> Result<KeyState, Failure> {
        let Some(entry) = journal.earlier() else {
            return Ok(KeyState::Open);
        };
        if entry.state == State::Accepted {
            let evidence = "the server took it in an earlier attempt under this key";
            return Ok(KeyState::Sent { reference: entry.reference.clone(), evidence });
        }
        let is_same_server = entry.via == self.wire.address();
        match (&self.wire, &self.probe) {
            (Wire::Api(_), _) if is_same_server && age(entry, env.now()) < ttl() => Ok(KeyState::Open),
            (Wire::Smtp(_), Some(probe)) if is_same_server => self.ask(probe, journal, entry, env).await,
            // Repeated only by order of a person, who looked; see the module's introduction. After its key's lifetime
            // that holds for an API too.
            (Wire::Smtp(_), None) if attempt > 1 => Ok(KeyState::Open),
            (Wire::Api(_), _) if attempt > 1 && is_same_server => Ok(KeyState::Open),
            (Wire::Smtp(_) | Wire::Api(_), _) => Err(Failure::Unclear(format!(
                "an earlier attempt under this key, at {} through {}, may have been delivered: look for {}",
                entry.attempted_at, entry.via, entry.message_id
            ))),
        }
    }

    /// Asks whether the message arrived. "Not there" counts only when it was asked late enough.
    async fn ask(&self, probe: &Probe, journal: &Arc<Journal>, entry: &Entry, env: &Env) -> Result<KeyState, Failure> {
        let mut answer = probe.ask(&entry.message_id).await;
        let wait = self.settle.saturating_sub(age(entry, env.now()));
        if matches!(answer, Found::Absent) && !wait.is_zero() {
            env.clock.sleep(wait).await;
            answer = probe.ask(&entry.message_id).await;
        }
        match answer {
            Found::Absent => Ok(KeyState::Open),
            Found::Unclear(why) => Err(Failure::Unclear(format!(
                "an earlier attempt under this key, at {}, may have been delivered, and {why}",
                entry.attempted_at
            ))),
            Found::Present => {
                record(Some(journal), Entry { state: State::Accepted, ..entry.clone() }).await;
                Ok(KeyState::Sent { reference: None, evidence: "found by probe" })
            }
        }
    }

    async fn deliver(
        &self,
        letter: &OutgoingMail,
        key: &str,
        journal: Option<&Arc<Journal>>,
        env: &Env,
    ) -> Result<Option<String>, Failure> {
        let attempt = Entry {
            state: State::Attempted,
            message_id: message_id(&letter.id),
            via: self.wire.address(),
            attempted_at: env.now(),
            reference: None,
        };
        let last_moment = async {
            match journal {
                None => Ok(()),
                Some(journal) => {
                    let (journal, attempt) = (Arc::clone(journal), attempt.clone());
                    blocking(move || journal.write(&attempt)).await
                }
            }
        };
        let outcome = match &self.wire {
            Wire::Smtp(smtp) => {
                let message = letter.mime(Bcc::Removed, env.now())?;
                smtp.send(&message, last_moment).await.map(Some)
            }
            Wire::Api(api) => {
                let body = Api::body(letter)?;
                last_moment.await?;
                api.send(body, key).await
            }
        };
        let outcome = self.clean(outcome);
        match &outcome {
            Ok(reference) => {
                record(journal, Entry { state: State::Accepted, reference: reference.clone(), ..attempt }).await;
            }
            Err(Failure::Refused { .. }) => withdraw(journal).await,
            Err(Failure::Unclear(_)) => {}
        }
        outcome
    }
}

/// Writes down what is known now. The answer does not depend on it: without it, less is known the next time.
async fn record(journal: Option<&Arc<Journal>>, entry: Entry) {
    let Some(journal) = journal.cloned() else { return };
    if let Err(failure) = blocking(move || journal.write(&entry)).await {
        tracing::warn!(problem = failure.text(), "the outcome of a sent message was not recorded");
    }
}

/// Takes an attempt back that was refused. When that fails, the next attempt under the key is answered with caution.
async fn withdraw(journal: Option<&Arc<Journal>>) {
    let Some(journal) = journal.cloned() else { return };
    let undone = blocking(move || journal.withdraw().map_err(|error| Failure::Unclear(error.to_string()))).await;
    if let Err(failure) = undone {
        tracing::warn!(problem = failure.text(), "the record of a refused message was not taken back");
    }
}

/// How long ago an attempt was; zero when the clock has been set back since.
fn age(entry: &Entry, now: Timestamp) -> Duration {
    let millis = now.as_millis() - entry.attempted_at.as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn ttl() -> Duration {
    Duration::from_secs(api::KEY_TTL_SECONDS.into())
}

#[cfg(test)]
mod tests {
    use super::super::smtp::Security;
    use super::*;

    #[test]
    fn s3_what_a_mail_server_says_is_kept_without_what_it_was_given() {
        let redactor = Redactor::new([("UA_MAIL_PASSWORD".to_owned(), "Zq7Wk2vRt9Lm4Xp8".to_owned())]);
        let smtp = Smtp::new("mail.example.org", 465, Security::Plain, None, Vec::new()).unwrap();
        let remote = Remote::new(Wire::Smtp(smtp), None, 0, redactor);
        for said in ["queued as Zq7Wk2vRt9Lm4Xp8", "queued as WnE3V2sydlJ0OUxtNFhwOA=="] {
            let kept = remote.clean(Ok(Some(said.to_owned()))).unwrap().unwrap();
            // What fills Base64 up to its length says nothing.
            assert_eq!(kept.trim_end_matches('='), "queued as [secret UA_MAIL_PASSWORD]");
            for failure in [Failure::refused(said, "look"), Failure::Unclear(said.to_owned())] {
                let told = remote.clean(Err(failure)).unwrap_err().text();
                assert!(told.starts_with("queued as [secret UA_MAIL_PASSWORD]"), "{told}");
            }
        }
        assert_eq!(remote.clean(Ok(Some("queued as 4711".to_owned()))).unwrap().unwrap(), "queued as 4711");
        // So it is whatever keeps it, of every tool that has a record of its calls.
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap().with_redactor(remote.redactor.clone());
        let kept = String::from_utf8(workspace.kept(&["queued as Zq7Wk2vRt9Lm4Xp8"]).unwrap()).unwrap();
        assert!(kept.contains("[secret UA_MAIL_PASSWORD]") && !kept.contains("Zq7W"), "{kept}");
    }
}
