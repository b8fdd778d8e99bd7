//! `notify`: tells a person something, by a file in a directory or by a webhook.
//!
//! A notification file is named by the idempotency key and created once. A webhook gets the key in `Idempotency-Key`;
//! nothing is retried here, because one retry layer is enough and it belongs to the caller's ledger.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::answer::{Answer, Failure, success};
use crate::area::{Area, Created};
use crate::context::{Context, Order, Setup, blocking, effect_id};
use crate::error::ToolServerError;
use crate::place::Holds;
use crate::settings::Settings;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::web::{self, NoAnswer, Patience, means_not_done};
use ua_core::ShowPath as _;

const LOCK: &str = ".lock";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// What to tell.
    #[schemars(length(min = 1))]
    message: String,
    /// A short heading.
    title: Option<String>,
    /// How much it matters; info when left out.
    #[serde(default)]
    level: Level,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Level {
    #[default]
    Info,
    Warning,
    Error,
}

/// What is stored or posted.
#[derive(Debug, Serialize)]
struct Notification<'a> {
    id: &'a str,
    level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    message: &'a str,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct Notified {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    already_sent: bool,
}

/// The tool: where notifications go.
#[derive(Debug)]
pub(super) enum Notify {
    Directory(PathBuf),
    Webhook {
        client: reqwest::Client,
        url: Url,
        /// Whether the receiver acts once per key.
        honours_keys: bool,
    },
}

impl Tool for Notify {
    const NAME: &'static str = "notify";
    type Arguments = Arguments;

    fn receivers(variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        if variables.contains_key("UA_NOTIFY_WEBHOOK") { &["UA_NOTIFY_WEBHOOK"] } else { &["UA_NOTIFICATIONS"] }
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let notify = Self::new(setup.context.workspace.area().path(), setup.settings)?;
        if let Self::Directory(path) = &notify {
            setup.works_at(Self::NAME, "notifications", path, Holds::Files);
        }
        Ok(Some(notify))
    }

    fn describe(&self) -> Description {
        let (description, effect) = match self {
            Self::Directory(_) | Self::Webhook { honours_keys: true, .. } => (
                "Sends a short notification to the people behind this run. With an idempotency key in _meta it is sent once.",
                Effect::CreatesPerKey,
            ),
            Self::Webhook { honours_keys: false, .. } => {
                ("Sends a short notification to the people behind this run. Every call sends one.", Effect::Creates)
            }
        };
        Description::new("Notify a person", description, effect)
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let key = order.key;
        if given.message.trim().is_empty() {
            return Err(Failure::refused("the message is empty", "say what the people should know"));
        }
        let id = effect_id(key, &context.env);
        let notification = Notification {
            id: &id,
            level: given.level,
            title: given.title.as_deref(),
            message: &given.message,
            created_at: context.env.now().to_string(),
        };
        let body = serde_json::to_vec_pretty(&notification).map_err(|error| {
            Failure::refused(format!("the notification cannot be written down: {error}"), "reword it")
        })?;
        let notified = match self {
            Self::Directory(directory) => {
                let (directory, id) = (directory.clone(), id.clone());
                blocking(move || store(&directory, id, &body)).await?
            }
            Self::Webhook { client, url, .. } => post(client, url, key.unwrap_or(&id), &id, body).await?,
        };
        let what = if notified.already_sent { "already sent" } else { "sent" };
        success(format!("{what}: notification {}", notified.id), &notified)
    }
}

impl Notify {
    fn new(workspace: &Path, settings: &Settings) -> Result<Self, ToolServerError> {
        let Some(text) = &settings.notify_webhook else {
            let directory = Settings::directory(workspace, settings.notifications.as_ref(), "notifications");
            return std::path::absolute(&directory).map(Self::Directory).map_err(|error| ToolServerError::Setting {
                flag: "notifications",
                value: directory.shown().to_string(),
                why: error.to_string(),
            });
        };
        let url = Url::parse(text)
            .map_err(|error| error.to_string())
            .and_then(|url| match url.scheme() {
                "http" if !web::is_loopback(&url) => {
                    Err("what it posts, and a token in the address, would go there unencrypted; \
                                                          give an https:// address (http:// is for this machine only)"
                        .to_owned())
                }
                "http" | "https" => Ok(url),
                scheme => Err(format!("{scheme}:// cannot be posted to; give an http:// or https:// address")),
            })
            .map_err(|why| ToolServerError::Setting { flag: "notify-webhook", value: web::shown(text), why })?;
        let honours_keys = settings.notify_webhook_honours_keys;
        Ok(Self::Webhook { client: web::client()?, url, honours_keys })
    }
}

fn store(directory: &Path, id: String, body: &[u8]) -> Result<Notified, Failure> {
    let could_not = |error: &std::io::Error| {
        Failure::io(format_args!("open the directory of notifications {}", directory.shown()), error)
    };
    let area = Area::open_store(directory).map_err(|error| could_not(&error))?;
    let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
    let name = PathBuf::from(format!("{id}.json"));
    let created = area.create(&name, body).map_err(|error| {
        error.into_failure(format_args!("write the notification {}", area.path().join(&name).shown()))
    })?;
    Ok(Notified {
        id,
        path: Some(area.path().join(name).to_string_lossy().into_owned()),
        status: None,
        already_sent: created == Created::Before,
    })
}

#[tracing::instrument(name = "POST", skip_all, fields(otel.kind = "client", http.request.method = "POST"))]
async fn post(client: &reqwest::Client, url: &Url, key: &str, id: &str, body: Vec<u8>) -> Result<Notified, Failure> {
    let host = url.host_str().unwrap_or("the webhook");
    let request = client.post(url.clone()).header("Content-Type", "application/json").header("Idempotency-Key", key);
    let response = web::post(request, body, Patience::default()).await.map_err(|error| match error {
        NoAnswer::NeverLeft(cause) => Failure::refused(
            format!("could not reach {host}, nothing was sent: {cause}"),
            "try again later, or ask a person to check UA_NOTIFY_WEBHOOK",
        ),
        NoAnswer::MayHaveLeft(cause) => Failure::Unclear(format!("the notification may have reached {host}: {cause}")),
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(Notified { id: id.to_owned(), path: None, status: Some(status.as_u16()), already_sent: false });
    }
    if means_not_done(status) {
        return Err(Failure::refused(
            format!("{host} refused the notification with status {status}"),
            "ask a person to check UA_NOTIFY_WEBHOOK",
        ));
    }
    Err(Failure::Unclear(format!(
        "{host} answered with status {status}, which does not say whether the notification arrived"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_a_notification_goes_over_tls_or_stays_on_this_machine() {
        let notify = |address: &str| {
            let settings = Settings { notify_webhook: Some(address.to_owned()), ..Settings::in_workspace("/") };
            Notify::new(Path::new("/"), &settings).map(|_| ()).map_err(|error| error.to_string())
        };
        for fine in ["https://hooks.example/T0/x", "http://127.0.0.1:9/", "http://[::1]/", "http://localhost:9"] {
            notify(fine).unwrap();
        }
        for wrong in ["http://hooks.example/T0/x", "http://10.0.0.1/", "http://localhost.example/", "ftp://127.0.0.1/"]
        {
            let why = notify(wrong).unwrap_err();
            assert!(why.contains("notify-webhook") && !why.contains("T0"), "{wrong}: {why}");
        }
    }
}
