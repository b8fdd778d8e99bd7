//! The question afterwards: has a message of this Message-ID arrived?

use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::error::ToolServerError;
use crate::web;

const PLACE: &str = "{message_id}";

/// A place to ask.
#[derive(Debug)]
pub(super) struct Probe {
    client: reqwest::Client,
    template: String,
}

/// What it answered.
#[derive(Debug)]
pub(super) enum Found {
    Present,
    Absent,
    /// It could not say, and why.
    Unclear(String),
}

impl Probe {
    pub(super) fn new(template: &str) -> Result<Self, ToolServerError> {
        let fault = if template.contains(PLACE) {
            match Url::parse(&template.replace(PLACE, "x")) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => None,
                Ok(url) => Some(format!("{}:// cannot be asked; give an http:// or https:// address", url.scheme())),
                Err(error) => Some(error.to_string()),
            }
        } else {
            Some(format!("it has no {PLACE} in it, so every message would look the same"))
        };
        match fault {
            None => Ok(Self { client: web::client()?, template: template.to_owned() }),
            Some(why) => Err(ToolServerError::Setting { flag: "mail-probe", value: web::shown(template), why }),
        }
    }

    #[tracing::instrument(name = "look for mail", skip_all, fields(otel.kind = "client"))]
    pub(super) async fn ask(&self, message_id: &str) -> Found {
        let id = message_id.trim_start_matches('<').trim_end_matches('>');
        let address = self.template.replace(PLACE, &byte_serialize(id.as_bytes()).collect::<String>());
        match self.client.get(address).timeout(web::QUESTION_TIMEOUT).send().await {
            Ok(answer) => match answer.status().as_u16() {
                200 => Found::Present,
                404 => Found::Absent,
                other => Found::Unclear(format!("--mail-probe answered with status {other}")),
            },
            Err(error) => {
                let cause = web::root_cause(&error.without_url());
                Found::Unclear(format!("--mail-probe could not be asked: {cause}"))
            }
        }
    }
}
