//! `send_email`: sends one message, through a Maildir outbox, an SMTP server or an HTTP API.
//!
//! File name and Message-ID come from the idempotency key (Durable Jobs v1 spec §8.2). What a second call under the same
//! key does is the transport's promise, and `tools/list` declares it:
//!
//! | transport | promise | a second call under the same key |
//! |---|---|---|
//! | `maildir:` | once per key | finds the message in the outbox |
//! | `resend+http(s):` | once per key, for a day | is sent again with the same `Idempotency-Key`: the provider knows it |
//! | `smtp(s):` with `--mail-probe` | once per key | asks by Message-ID, and sends only what has not arrived |
//! | `smtp(s):` alone | none | is not sent; see below |
//!
//! SMTP has a moment in which nobody can tell: the message is out, and the server's answer to its last line is not in.
//! So a record of the attempt is on stable storage before the message leaves (see [`journal`]). A record without an
//! outcome means that the message may have arrived: a first attempt that finds one is answered with "the outcome is not
//! known". A later attempt is something else. The durable runner never repeats a call by itself whose tool says
//! `honours-keys: false` in its `_meta`; it holds the run and asks. So when bare SMTP sees a higher attempt number under a
//! recorded key, a person has looked and ordered it (`ua answer … execute`), and the message is sent. Transports that
//! promise more are repeated by the runner itself: their attempt number says nothing, and they rely on provider or probe.
//!
//! A message whose acceptance was recorded is never sent again under its key, whoever asks.

mod api;
mod journal;
mod maildir;
mod outgoing;
mod probe;
mod remote;
mod smtp;
mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ua_core::Env;

use self::maildir::Outbox;
use self::outgoing::Sender;
use self::transport::Transport;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking, effect_id};
use crate::place::Holds;
use crate::sent::Said;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Who gets the message: addresses, each with a name in front or without, as in `Ada <ada@example.org>`.
    #[schemars(length(min = 1))]
    to: Vec<String>,
    /// Who gets a copy.
    #[serde(default)]
    cc: Vec<String>,
    /// Who gets a copy without the others seeing it.
    #[serde(default)]
    bcc: Vec<String>,
    /// The subject, in one line.
    subject: String,
    /// The message as plain text.
    body: String,
    /// The same message as HTML, for readers that show it.
    html: Option<String>,
    /// Files to attach, relative to the workspace; 25 MiB in all.
    #[serde(default)]
    attachments: Vec<String>,
}

/// What was done, for the caller's records.
#[derive(Debug, Serialize)]
struct Receipt {
    message_id: String,
    /// The message's file, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The server it was given to, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    recipients: Vec<String>,
    already_sent: bool,
    /// The provider's own name for the message, or the server's last words about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_reference: Option<String>,
    /// How it is known that the message was sent, when this call did not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'static str>,
}

/// The tool: the sender and the way out.
#[derive(Debug)]
pub(super) struct SendEmail {
    from: Sender,
    transport: Transport,
}

impl Tool for SendEmail {
    const NAME: &'static str = "send_email";
    type Arguments = Arguments;

    fn receivers(variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        // A bare SMTP server tells nobody what came of a key; its probe does, of the mailbox that it looks into.
        if variables.contains_key("UA_MAIL") {
            &["UA_MAIL", "UA_MAIL_FROM", "UA_MAIL_USER", "UA_MAIL_API_KEY", "UA_MAIL_PROBE"]
        } else {
            &["UA_OUTBOX", "UA_MAIL_FROM"]
        }
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let (settings, workspace) = (setup.settings, &setup.context.workspace);
        let from = Sender::new(&settings.mail_from)?;
        let transport = Transport::new(workspace.area().path(), settings)?;
        if let Transport::Maildir(outbox) = &transport {
            let flag = if settings.mail.is_some() { "mail" } else { "outbox" };
            setup.works_at(Self::NAME, flag, outbox.path(), Holds::Files);
        }
        Ok(Some(Self { from, transport }))
    }

    fn describe(&self) -> Description {
        let (is_keyed, ttl_seconds) = match &self.transport {
            Transport::Maildir(_) => (true, None),
            Transport::Remote(remote) => (remote.is_keyed(), remote.key_ttl_seconds()),
        };
        let (description, effect) = if is_keyed {
            ("Sends an e-mail. With an idempotency key in _meta it is sent exactly once.", Effect::CreatesPerKey)
        } else {
            (
                "Sends an e-mail. Nobody can tell afterwards whether it was sent when the answer is lost.",
                Effect::Creates,
            )
        };
        Description::new("Send an e-mail", description, effect).honoured_for(ttl_seconds)
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let Context { workspace, env, .. } = context;
        let id = effect_id(order.key, env);
        let receipt = match &self.transport {
            Transport::Maildir(outbox) => self.put_into(outbox, workspace, given, id, order.files, env).await?,
            Transport::Remote(remote) => remote.send(workspace, &self.from, given, id, order, env).await?,
        };
        let what = if receipt.already_sent { "already sent" } else { "sent" };
        let whom = receipt.recipients.join(", ");
        success(format!("{what}: {} to {whom}", receipt.message_id), &receipt)
    }
}

impl SendEmail {
    async fn put_into(
        &self,
        outbox: &Arc<Outbox>,
        workspace: &Arc<Workspace>,
        given: Arguments,
        id: String,
        files: &Said,
        env: &Env,
    ) -> Result<Receipt, Failure> {
        let (outbox, workspace, from) = (Arc::clone(outbox), Arc::clone(workspace), self.from.clone());
        let (files, now) = (files.clone(), env.now());
        blocking(move || outbox.send(&workspace, &files, &from, given, &id, now)).await
    }
}

/// The Message-ID that belongs to an effect.
fn message_id(id: &str) -> String {
    format!("<{id}@ua.invalid>")
}
