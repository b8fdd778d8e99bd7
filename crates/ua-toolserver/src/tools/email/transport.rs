//! The setting `--mail`: which way messages go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lettre::transport::smtp::client::Certificate;
use secrecy::ExposeSecret as _;
use url::Url;

use super::api::Api;
use super::maildir::Outbox;
use super::probe::Probe;
use super::remote::{Remote, Wire};
use super::smtp::{Security, Smtp};
use crate::error::ToolServerError;
use crate::settings::Settings;
use crate::web::{is_loopback, root_cause, shown};
use ua_core::ShowPath as _;

/// What each certificate of a PEM file begins with.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// A way out.
#[expect(clippy::large_enum_variant, reason = "one per process")]
#[derive(Debug)]
pub(super) enum Transport {
    /// A directory of this machine.
    Maildir(Arc<Outbox>),
    /// A server.
    Remote(Remote),
}

impl Transport {
    pub(super) fn new(workspace: &Path, settings: &Settings) -> Result<Self, ToolServerError> {
        let is_smtp = settings.mail.as_deref().is_some_and(|mail| mail.starts_with("smtp"));
        if let Some(path) = settings.mail_ca_file.as_ref().filter(|_| !is_smtp) {
            let value = path.shown().to_string();
            let why = "only smtps:// and smtp:// use it".to_owned();
            return Err(ToolServerError::Setting { flag: "mail-ca-file", value, why });
        }
        let Some(text) = settings.mail.as_deref() else {
            let directory = Settings::directory(workspace, settings.outbox.as_ref(), "outbox");
            refuse_probe(settings)?;
            return maildir("outbox", &directory);
        };
        if let Some(path) = text.strip_prefix("maildir:") {
            refuse_probe(settings)?;
            return maildir("mail", &PathBuf::from(path));
        }
        let wire = wire(text, settings).map_err(|why| invalid(text, why))??;
        let probe = match (&wire, settings.mail_probe.as_deref()) {
            (Wire::Api(_), Some(_)) => {
                return Err(setting("mail-probe", settings, "only SMTP is probed: a mail API knows its keys"));
            }
            (Wire::Smtp(_), Some(template)) => Some(Probe::new(template)?),
            (_, None) => None,
        };
        Ok(Self::Remote(Remote::new(wire, probe, settings.mail_settle_seconds, settings.secrets.redactor())))
    }
}

fn maildir(flag: &'static str, path: &Path) -> Result<Transport, ToolServerError> {
    let fault = |why: String| ToolServerError::Setting { flag, value: path.shown().to_string(), why };
    let outbox = Outbox::new(path).map_err(|error| fault(error.to_string()))?;
    Ok(Transport::Maildir(Arc::new(outbox)))
}

fn refuse_probe(settings: &Settings) -> Result<(), ToolServerError> {
    match settings.mail_probe {
        Some(_) => Err(setting("mail-probe", settings, "only SMTP is probed: a Maildir knows its keys")),
        None => Ok(()),
    }
}

fn setting(flag: &'static str, settings: &Settings, why: &str) -> ToolServerError {
    let value = settings.mail_probe.as_deref().map(shown).unwrap_or_default();
    ToolServerError::Setting { flag, value, why: why.to_owned() }
}

/// The complaint about `--mail`, without a password that should not have been there.
fn invalid(text: &str, why: String) -> ToolServerError {
    let value = match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    };
    ToolServerError::Setting { flag: "mail", value, why }
}

/// Reads the address of a server: a fault of the address, or of what it takes to use it.
fn wire(text: &str, settings: &Settings) -> Result<Result<Wire, ToolServerError>, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("{error}; give maildir:PATH, smtp://, smtps:// or resend+https://"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong on a command line: set UA_MAIL_USER and UA_MAIL_PASSWORD".to_owned());
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or("it names no host")?;
    match url.scheme() {
        "smtp" | "smtps" => {
            let security = security(&url)?;
            let credentials = match (&settings.secrets.mail_user, &settings.secrets.mail_password) {
                (Some(user), Some(password)) => Some((user.clone(), password.expose_secret().to_owned())),
                (None, None) => None,
                (Some(_), None) => return Err("UA_MAIL_USER is set and UA_MAIL_PASSWORD is not".to_owned()),
                (None, Some(_)) => return Err("UA_MAIL_PASSWORD is set and UA_MAIL_USER is not".to_owned()),
            };
            if credentials.is_some() && security == Security::Plain && !is_loopback(&url) {
                return Err(
                    "a password would cross the network in the clear; use smtps:// or ?starttls=required".to_owned()
                );
            }
            let port = url.port().unwrap_or(if security == Security::Tls { 465 } else { 587 });
            let authorities = match authorities(settings, security) {
                Ok(authorities) => authorities,
                Err(error) => return Ok(Err(error)),
            };
            Ok(Ok(Wire::Smtp(Smtp::new(host, port, security, credentials, authorities)?)))
        }
        "resend+http" | "resend+https" => {
            let address = text.trim_start_matches("resend+");
            let base = Url::parse(address).map_err(|error| error.to_string())?;
            let key = settings.secrets.mail_api_key.clone().ok_or("UA_MAIL_API_KEY is not set")?;
            if base.scheme() == "http" && !is_loopback(&base) {
                return Err("the API key would cross the network in the clear; use resend+https://".to_owned());
            }
            Ok(Api::new(&base, key).map(Wire::Api))
        }
        other => {
            Err(format!("{other}: is not a way to send mail; give maildir:PATH, smtp://, smtps:// or resend+https://"))
        }
    }
}

/// The most that is read of it.
const MAX_CA_BYTES: u64 = 4 * 1024 * 1024;

/// The certificates of `--mail-ca-file`.
fn authorities(settings: &Settings, security: Security) -> Result<Vec<Certificate>, ToolServerError> {
    let Some(path) = &settings.mail_ca_file else { return Ok(Vec::new()) };
    let setting = |why: String| {
        let value = path.shown().to_string();
        ToolServerError::Setting { flag: "mail-ca-file", value, why }
    };
    if security == Security::Plain {
        return Err(setting("starttls=never checks no certificate; leave one of the two out".to_owned()));
    }
    let pem = ua_files::read_text(path, MAX_CA_BYTES).map_err(|error| setting(error.to_string()))?.into_bytes();
    // A file without a certificate in it would be no complaint to the library, and no server would be trusted for it.
    if !pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Err(setting("there is no certificate in it; give a file in PEM form".to_owned()));
    }
    let certificate = Certificate::from_pem(&pem).map_err(|error| setting(root_cause(&error)))?;
    Ok(vec![certificate])
}

/// How the connection is kept private; plain SMTP has to say it.
fn security(url: &Url) -> Result<Security, String> {
    let mut choice = None;
    for (name, value) in url.query_pairs() {
        choice = match (name.as_ref(), value.as_ref()) {
            ("starttls", "required") => Some(Security::StartTls),
            ("starttls", "never") => Some(Security::Plain),
            _ => return Err(format!("{name}={value} is not known; give starttls=required or starttls=never")),
        };
    }
    match (url.scheme(), choice) {
        ("smtps", None) => Ok(Security::Tls),
        ("smtps", Some(_)) => Err("smtps:// is TLS from the start; leave starttls out, or use smtp://".to_owned()),
        (_, Some(security)) => Ok(security),
        (_, None) => Err("say how it is encrypted: add ?starttls=required, or ?starttls=never".to_owned()),
    }
}
