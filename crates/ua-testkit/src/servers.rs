//! Servers that receive effects: mail, a mail API, objects, webhooks, files for Composio, paid images; and a site whose pages are counted. Real protocols on 127.0.0.1, in this process
//! (`start`) or in one that outlives the runner (`serve`), each with a log at `GET /__log`.
//!
//! They do what the real ones do to a client that dies or is left without an answer: refuse, take the effect and withhold
//! the answer, cut the connection before it, answer late, keep the client waiting until it dies. What they took is in files, so that it can be counted from
//! outside, and is still there after a restart.

mod composio_files;
mod http;
mod image_api;
mod mail_api;
mod object_sink;
mod site;
mod smtp_sink;
mod tls;
mod webhook;

pub use composio_files::{ComposioFiles, ComposioFilesConfig};
pub use http::HttpFault;
pub use image_api::{DRAWN_PNG_BASE64, ImageModelApi, ImageModelApiConfig};
pub use mail_api::{MailApi, MailApiConfig};
pub use object_sink::{ObjectSink, ObjectSinkConfig};
pub use site::{SiteConfig, serve_site};
pub use smtp_sink::{SmtpFault, SmtpSink, SmtpSinkConfig};
pub use tls::{Encryption, TlsIdentity};
pub use webhook::{Webhook, WebhookConfig};
