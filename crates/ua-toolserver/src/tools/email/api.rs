//! A mail API like Resend's: one POST per message, which the provider performs once per `Idempotency-Key`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::message::Mailbox;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::outgoing::OutgoingMail;
use crate::answer::Failure;
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::web::{self, NoAnswer, Patience, means_not_done};

/// For how many seconds the provider remembers a key: 24 hours.
pub(super) const KEY_TTL_SECONDS: u32 = 86_400;

/// The longest key the provider takes.
const MAX_KEY_BYTES: usize = 256;

/// How much of the provider's answer is read; it holds a name or a complaint.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// The provider.
#[derive(Debug)]
pub(super) struct Api {
    client: reqwest::Client,
    /// The address of `/emails`.
    address: Url,
    key: SecretString,
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    from: String,
    to: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cc: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bcc: Vec<String>,
    subject: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<File<'a>>,
}

#[derive(Debug, Serialize)]
struct File<'a> {
    filename: &'a str,
    content: String,
}

impl Api {
    pub(super) fn new(base: &Url, key: SecretString) -> Result<Self, ToolServerError> {
        let mut address = base.clone();
        let path = format!("{}/emails", base.path().trim_end_matches('/'));
        address.set_path(&path);
        Ok(Self { client: web::client()?, address, key })
    }

    /// The provider as it is shown and recorded.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The request's body. The same letter gives the same bytes, which the provider compares under a key.
    pub(super) fn body(letter: &OutgoingMail) -> Result<Vec<u8>, Failure> {
        let texts = |people: &[Mailbox]| people.iter().map(ToString::to_string).collect();
        let message = Message {
            from: letter.from.to_string(),
            to: texts(&letter.people.to),
            cc: texts(&letter.people.cc),
            bcc: texts(&letter.people.bcc),
            subject: &letter.subject,
            text: &letter.body,
            html: letter.html.as_deref(),
            attachments: letter
                .attachments
                .iter()
                .map(|file| File { filename: &file.name, content: STANDARD.encode(&file.content) })
                .collect(),
        };
        serde_json::to_vec(&message)
            .map_err(|error| Failure::refused(format!("the message cannot be written down: {error}"), "reword it"))
    }

    /// Posts the message under `key`; returns the provider's name for it, if it gave one.
    #[tracing::instrument(name = "send mail", skip_all, fields(otel.kind = "client", ua.mail.transport = "api"))]
    pub(super) async fn send(&self, body: Vec<u8>, key: &str) -> Result<Option<String>, Failure> {
        let host = self.address.host_str().unwrap_or("the mail API");
        let key = if key.len() > MAX_KEY_BYTES { sha256_hex(key) } else { key.to_owned() };
        let request = self
            .client
            .post(self.address.clone())
            .bearer_auth(self.key.expose_secret())
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key);
        let answer = web::post(request, body, Patience::default()).await.map_err(|error| match error {
            NoAnswer::NeverLeft(cause) => {
                let hint = "try again later, or ask a person to check --mail";
                Failure::refused(format!("could not reach {host}, nothing was sent: {cause}"), hint)
            }
            NoAnswer::MayHaveLeft(cause) => Failure::Unclear(format!("the message may have reached {host}: {cause}")),
        })?;
        let status = answer.status();
        // A success whose text got lost is a success: the status says that the message was taken.
        let answer = web::text_up_to(MAX_ANSWER_BYTES, answer).await;
        let answer: Option<Value> = answer.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let text = |field: &str| answer.as_ref().and_then(|answer| answer[field].as_str()).map(str::to_owned);
        if status.is_success() {
            return Ok(text("id"));
        }
        let said = text("message").map_or_else(String::new, |message| format!(": {message}"));
        if means_not_done(status) {
            let hint = match status.as_u16() {
                401 | 403 => "ask a person to check UA_MAIL_API_KEY and --mail-from",
                402 => "the account behind UA_MAIL_API_KEY cannot pay; ask a person",
                429 => "the provider's limit is reached; try again later",
                _ => "change what the provider complains about, or ask a person to check --mail",
            };
            return Err(Failure::refused(format!("{host} refused the message with status {status}{said}"), hint));
        }
        Err(Failure::Unclear(format!(
            "{host} answered with status {status}, which does not say whether the message was sent{said}"
        )))
    }
}
