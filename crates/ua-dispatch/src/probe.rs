//! Calls in doubt: asking the declared probe, waiting until an answer counts, and the limit of that patience.
//!
//! Durable Jobs v1 spec §8.3. The order is the same for a resume and for a live run: fence → a person's answer, if there is one →
//! probe → wait for horizon and settle time, once, if the call is not there → probe again → run again, or hold. A wait longer than
//! [`LONGEST_WAIT`] is not waited for: the call is held, the process ends, and any later resume asks the probe again. Asking
//! changes nothing, so a crash anywhere in here costs only the asking.

use std::time::Duration;

use ua_classify::Classifier;
use ua_core::{CallPolicy, ClassSource, Destination, OnUnknown, Outcome, ProbePolicy, SideEffectClass, ToolName};
use ua_ledger::{Admission, Asked, Enquiry, Recovery, UnknownCall};
use ua_store::{AttemptRecord, CallRecord};

use crate::catalog::{Catalog, Entry};
use crate::dispatcher::{CallProgress, Dispatcher, backoff};
use crate::error::DispatchError;
use crate::stop::StopSignal;
use crate::transport::TransportError;
use crate::within::Within;

/// The longest a process waits before it decides about a call: one in doubt, or one whose server asks to be left alone.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// How often a probe is asked that could not be reached.
const MAX_ASKS: u32 = 3;

impl Catalog {
    /// What there is to ask about a call by its declared probe, or by `probe` where one is given; else why nothing can be asked,
    /// as a clause. `goes` is where the call would be sent now.
    pub fn enquiry(
        &self,
        classifier: &Classifier,
        call: &CallRecord,
        attempts: &[AttemptRecord],
        probe: Option<&ProbePolicy>,
        goes: Option<&Destination>,
    ) -> Result<Enquiry, String> {
        let probe = probe.or(call.policy.probe.as_ref()).ok_or("no policy says how to ask whether it happened")?;
        let entry = self.probe_tool(&call.name, probe)?;
        let its_policy = classifier.classify(&entry.spec, Some(&probe.arguments));
        Enquiry::about(call, attempts, probe, &entry.spec, &its_policy, goes).map_err(|error| error.to_string())
    }

    /// The tool that a probe names: one of the same server by its bare name, else any by its qualified one.
    fn probe_tool(&self, asked_about: &ToolName, probe: &ProbePolicy) -> Result<&Entry, String> {
        let sibling = ToolName::qualified(asked_about.namespace, &asked_about.server, &probe.tool);
        let entry = self.get(&sibling.raw).or_else(|| self.get(&probe.tool));
        let entry = entry.ok_or_else(|| format!("no server offers the probe's tool `{}`", probe.tool))?;
        match &entry.denied {
            Some(_) => Err(format!("the {} forbids the probe's tool `{}`", self.audience.work(), probe.tool)),
            None => Ok(entry),
        }
    }

    /// What is wrong with the probes of a person's own rules: each has to name a tool that is there and only looks. One of the built-in policy
    /// that does not fit these servers is passed over, and its calls are held.
    pub(crate) fn probe_problems(&self, classifier: &Classifier) -> Vec<DispatchError> {
        let mut found = Vec::new();
        for entry in self.entries().filter(|entry| entry.denied.is_none()) {
            let policy = classifier.classify(&entry.spec, None);
            let Some(probe) = policy.probe.as_ref().filter(|_| policy.on_unknown == OnUnknown::Probe) else { continue };
            let Err(why) = self.check_probe(classifier, &entry.spec.name, probe) else { continue };
            // Whose word the probe is, not whose the class: a rule may name a probe and leave the class to others.
            let considered = classifier.explain(&entry.spec).considered;
            let said = considered.into_iter().find(|said| said.fields.contains(&"probe"));
            match said.filter(|said| matches!(said.source, ClassSource::UserPolicy | ClassSource::JobPolicy)) {
                Some(said) => found.push(DispatchError::Configuration {
                    tool: entry.spec.name.raw.clone(),
                    why: format!("the policy `{}` wants to ask a probe, but {why}", said.rule_id),
                }),
                None => {
                    tracing::info!(tool = entry.spec.name.raw, why, "its probe cannot be asked; lost calls are held");
                }
            }
        }
        found
    }

    fn check_probe(&self, classifier: &Classifier, tool: &ToolName, probe: &ProbePolicy) -> Result<(), String> {
        let entry = self.probe_tool(tool, probe)?;
        let CallPolicy { class, .. } = classifier.classify(&entry.spec, Some(&probe.arguments));
        if class == SideEffectClass::ReadOnly {
            return Ok(());
        }
        Err(format!(
            "`{}` is classified as {class}; if it only looks, give it a rule with side_effect_class = \"read_only\"",
            probe.tool
        ))
    }
}

impl Dispatcher {
    /// Decides about a call whose server is fenced. `Unknown` comes back when a stop was asked for first, or where it would have to wait for
    /// longer than it may.
    pub(crate) async fn recover(&self, unknown: UnknownCall, within: &Within<'_>) -> Result<Admission, DispatchError> {
        let stop = within.stop;
        loop {
            // Files are looked at anew behind each wait.
            let mut next = self.ledger.recover(&unknown, &self.facts_of_doubt(&unknown, within).await?).await?;
            if matches!(next, Recovery::Ask) {
                let Some(asked) = self.ask(unknown.call(), stop).await? else { return Ok(Admission::Unknown(unknown)) };
                self.tell(CallProgress::Probed {
                    call: Box::new(unknown.call().clone()),
                    asked: Box::new(asked.clone()),
                });
                next = self.ledger.conclude(&unknown, &self.facts_of_doubt(&unknown, within).await?, asked).await?;
            }
            match next {
                Recovery::Decided(admission) => return Ok(*admission),
                Recovery::Ask => {} // asked above
                Recovery::Unreachable { why } => {
                    let server = unknown.call().name.server.clone();
                    return Err(TransportError::NotReached { server, why }.into());
                }
                Recovery::NotBefore { until, question } => {
                    let wait = until.since(self.ledger.env().now());
                    if wait > LONGEST_WAIT {
                        if let Some(question) = question {
                            return Ok(Admission::Held(*question));
                        }
                        let because = format!(
                            "this cannot be decided before {until}, because until then the other side may still begin it or hide it; resume \
                             then to look it up again"
                        );
                        return Ok(self.ledger.hold(&unknown, &because).await?);
                    }
                    if !within.fits(wait, self.ledger.env().now()) {
                        return Ok(Admission::Unknown(unknown));
                    }
                    self.tell(CallProgress::Waiting { call: Box::new(unknown.call().clone()), wait });
                    tokio::select! {
                        () = self.ledger.env().clock.sleep(wait) => {}
                        () = stop.stopping() => return Ok(Admission::Unknown(unknown)),
                    }
                }
            }
        }
    }

    /// Asks the declared probe about a call; `None` when a stop was asked for first.
    async fn ask(&self, call: &CallRecord, stop: &StopSignal) -> Result<Option<Asked>, DispatchError> {
        if stop.is_stopping() {
            return Ok(None);
        }
        let env = self.ledger.env();
        let attempts = self.ledger.attempts(&call.call_id).await?;
        let goes = self.transport.destination(call.called_tool(), &call.arguments)?;
        let enquiry = match self.catalog.enquiry(&self.classifier, call, &attempts, None, goes.as_ref()) {
            Ok(enquiry) => enquiry,
            Err(why) => return Ok(Some(Asked::not_at_all(why, env.now()))),
        };
        for ask in 1.. {
            let time = self.ledger.time(); // before it is asked: what happens meanwhile need not be in the answer
            let outcome = tokio::select! {
                outcome = self.transport.ask(&enquiry) => outcome,
                () = stop.stopping() => return Ok(None),
            };
            if matches!(outcome, Outcome::Raw(_)) || ask == MAX_ASKS {
                return Ok(Some(enquiry.judge(&outcome, &time)));
            }
            tokio::select! {
                () = env.clock.sleep(backoff(ask, env.entropy.next_u64())) => {}
                () = stop.stopping() => return Ok(None),
            }
        }
        Ok(None)
    }
}
