//! One receiving server in a process of its own, for the acceptance run: it outlives every kill of the runner, and says
//! itself what reached it, at `GET /__log`.
//!
//! It says on its first line of standard output where it is, and ends when its standard input does, so that none is left
//! behind when the harness is.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::net::TcpListener;
use ua_testkit::{
    Fault, FaultKind, HttpFault, MailApi, MailApiConfig, ModelServerConfig, ObjectSink, ObjectSinkConfig, SiteConfig,
    SmtpFault, SmtpSink, SmtpSinkConfig, Webhook, WebhookConfig, serve_forever, serve_site,
};

/// The bucket that the object store has.
pub(crate) const BUCKET: &str = "reports";
/// The access key id that it knows.
pub(crate) const ACCESS_KEY_ID: &str = "acceptance";
/// The key of the mail API.
pub(crate) const MAIL_API_KEY: &str = "re_acceptance";

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The scripted model.
    Model,
    /// Web pages.
    Site,
    /// SMTP, and a page that knows each Message-ID.
    Smtp,
    /// A mail API that honours keys.
    MailApi,
    /// An S3-compatible store.
    S3,
    /// A webhook.
    Webhook,
}

/// One server.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    kind: Kind,
    /// The folder for what it receives
    #[arg(long)]
    state: PathBuf,
    /// What it has to say: the folder of the site's pages, or the model's script
    #[arg(long)]
    content: Option<PathBuf>,
    /// Makes a webhook act on every request, whatever its key
    #[arg(long)]
    ignores_keys: bool,
    /// Requests that are read and kept waiting, without effect; counted from 1
    #[arg(long, value_delimiter = ',')]
    hold_before: Vec<u64>,
    /// Requests that have their effect and are kept waiting
    #[arg(long, value_delimiter = ',')]
    hold_after: Vec<u64>,
}

pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.spawn(async move {
        if let Err(error) = serve(options).await {
            eprintln!("error: {error:#}");
        }
    });
    // Whoever started us holds the other end.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    // Waited for, as the threads of `ua` are: one that ends while it is let go of may end the process by a signal.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

async fn serve(options: Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(&options.state)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let content = || options.content.clone().context("--content is missing");
    let faults = || options.faults(HttpFault::HoldBefore, HttpFault::HoldAfter);
    match options.kind {
        Kind::Smtp => {
            let mail = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            announce(&json!({ "url": format!("http://{address}"), "mail": mail.local_addr()?.to_string() }))?;
            let faults = options.faults(SmtpFault::HoldBefore, SmtpFault::HoldAfter);
            let config =
                SmtpSinkConfig { directory: options.state.clone(), credentials: None, unknown: Vec::new(), faults };
            return Ok(SmtpSink::serve(mail, listener, config).await?);
        }
        Kind::Model | Kind::Site | Kind::MailApi | Kind::S3 | Kind::Webhook => {
            announce(&json!({ "url": format!("http://{address}") }))?;
        }
    }
    match options.kind {
        Kind::Smtp => unreachable!("served above"),
        Kind::Model => {
            let script = ua_llm::Script::parse(&std::fs::read_to_string(content()?)?)?;
            let faults = options.hold_before.iter().map(|n| Fault::at(*n, FaultKind::Hang)).collect();
            serve_forever(listener, ModelServerConfig { faults, ..ModelServerConfig::new(script) }).await?;
        }
        Kind::Site => {
            let config = SiteConfig { pages: content()?, log: options.state.join("pages.log"), faults: faults() };
            serve_site(listener, config).await?;
        }
        Kind::MailApi => {
            let config =
                MailApiConfig { directory: options.state.clone(), api_key: MAIL_API_KEY.to_owned(), faults: faults() };
            MailApi::serve(listener, config).await?;
        }
        Kind::S3 => {
            let config = ObjectSinkConfig {
                directory: options.state.clone(),
                bucket: BUCKET.to_owned(),
                access_key_id: ACCESS_KEY_ID.to_owned(),
                faults: faults(),
            };
            ObjectSink::serve(listener, config).await?;
        }
        Kind::Webhook => {
            let config = WebhookConfig {
                log: options.state.join("effects.log"),
                honours_keys: !options.ignores_keys,
                faults: faults(),
            };
            Webhook::serve(listener, config).await?;
        }
    }
    Ok(())
}

impl Options {
    fn faults<F: Copy>(&self, before: F, after: F) -> BTreeMap<u64, F> {
        let before = self.hold_before.iter().map(|n| (*n, before));
        before.chain(self.hold_after.iter().map(|n| (*n, after))).collect()
    }
}

fn announce(where_it_is: &serde_json::Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{where_it_is}")?;
    output.flush()
}
