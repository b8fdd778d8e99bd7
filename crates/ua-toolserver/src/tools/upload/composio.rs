//! `upload_to_composio`: puts a file where actions of Composio find it, and returns the `s3key` that they want.
//!
//! Two requests: one asks for a ticket (`POST /api/v3/files/upload/request`, docs.composio.dev), one puts the file to the address
//! on it. The ticket is noted under the idempotency key before the file leaves, so a call that is repeated after a kill
//! puts the same bytes under the same name (Durable Jobs v1 spec §7.4, §8.2).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use md5::{Digest as _, Md5};
use reqwest::StatusCode;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::too_large;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::media;
use crate::record::{Entry, Record};
use crate::sent::Said;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::web::{self, NoAnswer, Patience, means_not_done};
use crate::workspace::Workspace;

const RECORDS: &str = "composio";
const MAX_BYTES: u64 = 100 * 1024 * 1024;
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The action that will use it; GMAIL_SEND_EMAIL when left out.
    #[serde(default = "default_tool")]
    tool_slug: String,
    /// The toolkit of that action; gmail when left out.
    #[serde(default = "default_toolkit")]
    toolkit_slug: String,
}

fn default_tool() -> String {
    "GMAIL_SEND_EMAIL".to_owned()
}

fn default_toolkit() -> String {
    "gmail".to_owned()
}

/// Where the file goes, as Composio said it. The address is good for a while, and whoever has it may put the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket {
    s3key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Missing when Composio has the file already.
    #[serde(skip_serializing_if = "Option::is_none")]
    put_to: Option<String>,
    sha256: String,
}

/// A file that actions can use.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Uploaded {
    s3key: String,
    name: String,
    mimetype: String,
    sha256: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

#[derive(Debug, Serialize)]
struct Reported<'a> {
    #[serde(flatten)]
    uploaded: &'a Uploaded,
    already_present: bool,
}

struct Content {
    name: String,
    media_type: &'static str,
    bytes: Vec<u8>,
    sha256: String,
    md5: String,
}

/// The tool: Composio, as one server reaches it.
#[derive(Debug)]
pub(in crate::tools) struct UploadToComposio {
    client: reqwest::Client,
    base: Url,
    key: SecretString,
}

impl Tool for UploadToComposio {
    const NAME: &'static str = "upload_to_composio";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &["UA_COMPOSIO", "COMPOSIO_API_KEY"]
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let settings = setup.settings;
        let Some(text) = &settings.composio else { return Ok(None) };
        let wrong =
            |why: &str| ToolServerError::Setting { flag: "composio", value: web::shown(text), why: why.to_owned() };
        let base = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        if !is_safe(&base) {
            return Err(wrong("give an https address, such as https://backend.composio.dev"));
        }
        let key =
            settings.secrets.composio_api_key.clone().ok_or_else(|| wrong("put the key into COMPOSIO_API_KEY"))?;
        Ok(Some(Self { client: web::client()?, base, key }))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Upload a file to Composio",
            "Uploads a file of the workspace for an action of Composio and returns its s3key. For GMAIL_SEND_EMAIL, pass {name, mimetype, s3key} of the result as `attachment`.",
            Effect::CreatesOnce,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let record: Option<Record<Ticket, Uploaded>> = match order.key {
            Some(key) => Some(Record::open(&context.workspace, RECORDS, key).await?),
            None => None,
        };
        let earlier = record.as_ref().and_then(|record| record.earlier().cloned());
        if let Some(Entry::Done(uploaded)) = earlier {
            return answer(&uploaded, true);
        }
        let content = {
            let (workspace, path) = (Arc::clone(&context.workspace), given.path.clone());
            let files = order.files.clone();
            blocking(move || read(&files, &workspace, &path)).await?
        };
        // The same bytes under the name of the first attempt. Its address may have run out; then there is a new ticket.
        if let Some(Entry::Begun(ticket)) = earlier.filter(|earlier| is_about(earlier, &content)) {
            match self.put(&ticket, &content).await {
                Ok(()) => return Self::done(record.as_ref(), &ticket, &content).await,
                Err(Failure::Refused { .. }) => {}
                Err(unclear @ Failure::Unclear(_)) => return Err(unclear),
            }
        }
        let ticket = self.ticket(&given, &content).await?;
        if let Some(record) = &record {
            record.begin(ticket.clone()).await?;
        }
        match self.put(&ticket, &content).await {
            Ok(()) => Self::done(record.as_ref(), &ticket, &content).await,
            Err(failure) => {
                if let (Some(record), Failure::Refused { .. }) = (&record, &failure) {
                    record.withdraw().await;
                }
                Err(failure)
            }
        }
    }
}

impl UploadToComposio {
    async fn done(record: Option<&Record<Ticket, Uploaded>>, ticket: &Ticket, content: &Content) -> Answer {
        let uploaded = Uploaded {
            s3key: ticket.s3key.clone(),
            name: content.name.clone(),
            mimetype: content.media_type.to_owned(),
            sha256: content.sha256.clone(),
            bytes: content.bytes.len() as u64,
            id: ticket.id.clone(),
        };
        if let Some(record) = record {
            record.finish(uploaded.clone()).await;
        }
        answer(&uploaded, ticket.put_to.is_none())
    }

    /// Asks where the file shall go. That by itself changes nothing that anybody sees.
    async fn ticket(&self, given: &Arguments, content: &Content) -> Result<Ticket, Failure> {
        let host = self.base.host_str().unwrap_or("Composio");
        let mut address = self.base.clone();
        address.set_path(&format!("{}/api/v3/files/upload/request", self.base.path().trim_end_matches('/')));
        let body = json!({
            "toolkit_slug": given.toolkit_slug.to_lowercase(), "tool_slug": given.tool_slug.to_uppercase(),
            "filename": content.name, "mimetype": content.media_type, "md5": content.md5,
        });
        let request = self
            .client
            .post(address)
            .header("Content-Type", "application/json")
            .header("x-api-key", self.key.expose_secret());
        let nothing = |why: String, hint: &str| Failure::refused(format!("{why}; nothing was uploaded"), hint);
        let answer = web::post(request, body.to_string().into_bytes(), Patience::default()).await.map_err(|error| {
            let (NoAnswer::NeverLeft(cause) | NoAnswer::MayHaveLeft(cause)) = error;
            nothing(format!("{host} gave no ticket: {cause}"), "try again later, or ask a person to check UA_COMPOSIO")
        })?;
        let status = answer.status();
        let text = web::text_up_to(MAX_ANSWER_BYTES, answer).await;
        let said: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
        if !status.is_success() {
            let message = said.as_ref().and_then(|said| said.pointer("/error/message")?.as_str()).unwrap_or_default();
            let why = format!("{host} gave no ticket but status {} {}", status.as_u16(), short(message));
            return Err(nothing(why, hint(status)));
        }
        said.and_then(|said| read_ticket(&said, content)).ok_or_else(|| {
            nothing(format!("what {host} answered is not a ticket"), "ask a person to check UA_COMPOSIO")
        })
    }

    /// Puts the file to the address on its ticket. The same bytes put there twice are one file.
    async fn put(&self, ticket: &Ticket, content: &Content) -> Result<(), Failure> {
        let Some(address) = &ticket.put_to else { return Ok(()) };
        let refused = |why: String, hint: &str| Failure::refused(format!("{why}, nothing was uploaded"), hint);
        let url = Url::parse(address).ok().filter(is_safe).ok_or_else(|| {
            refused("the ticket leads to an address that is not https".to_owned(), "ask a person to check UA_COMPOSIO")
        })?;
        let host = url.host_str().unwrap_or("the store").to_owned();
        let request = self.client.put(url).header("Content-Type", content.media_type);
        let answer =
            web::post(request, content.bytes.clone(), Patience::default()).await.map_err(|error| match error {
                NoAnswer::NeverLeft(cause) => refused(format!("could not reach {host}: {cause}"), "try again later"),
                NoAnswer::MayHaveLeft(cause) => Failure::Unclear(format!("the file may have reached {host}: {cause}")),
            })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        if means_not_done(status) {
            return Err(refused(format!("{host} refused the file with status {}", status.as_u16()), "call again"));
        }
        let status = status.as_u16();
        Err(Failure::Unclear(format!(
            "{host} answered with status {status}, which does not say whether it has the file"
        )))
    }
}

fn answer(uploaded: &Uploaded, already_present: bool) -> Answer {
    let what = if already_present { "already there" } else { "uploaded" };
    success(format!("{what}: {}", uploaded.s3key), &Reported { uploaded, already_present })
}

/// Secrets and files go over TLS, or stay on this machine.
fn is_safe(url: &Url) -> bool {
    url.host_str().is_some() && (url.scheme() == "https" || (url.scheme() == "http" && web::is_loopback(url)))
}

fn is_about(earlier: &Entry<Ticket, Uploaded>, content: &Content) -> bool {
    matches!(earlier, Entry::Begun(ticket) if ticket.sha256 == content.sha256)
}

fn read(files: &Said, workspace: &Workspace, path: &str) -> Result<Content, Failure> {
    let file = files.open("open", "path", workspace, path)?;
    let name = file.name()?;
    let bytes = file.read(MAX_BYTES, || too_large(&name, MAX_BYTES))?;
    let media_type = media::type_of(Path::new(&name));
    let md5 = Md5::digest(&bytes)
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    Ok(Content { sha256: sha256_hex(&bytes), md5, name, media_type, bytes })
}

/// The ticket in an answer: versions of the API call the address differently, and leave it out for a file they have.
fn read_ticket(said: &Value, content: &Content) -> Option<Ticket> {
    let text = |name: &str| said.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let is_known = said.get("type").and_then(Value::as_str) == Some("existing");
    let put_to = text("new_presigned_url").or_else(|| text("newPresignedUrl")).filter(|_| !is_known);
    if put_to.is_none() && !is_known {
        return None;
    }
    Some(Ticket { s3key: text("key")?, id: text("id"), put_to, sha256: content.sha256.clone() })
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "ask a person to check COMPOSIO_API_KEY",
        402 => "the account behind COMPOSIO_API_KEY cannot pay; ask a person",
        429 => "the limit is reached; try again later",
        _ => "check tool_slug and toolkit_slug, or try again later",
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
