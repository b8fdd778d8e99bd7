//! The world of one cell: a folder, and the servers that outlive the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tempfile::TempDir;
use ua_testkit::workspace_root;

use super::BrokenRule;
use super::kill::Kill;
use super::route::{Effect, Route};
use super::script::{CANARY, write_job, write_script};
use super::server::Server;
use crate::serve::{ACCESS_KEY_ID, BUCKET, Kind, MAIL_API_KEY};

/// How long the tool server waits before it believes the mail server's "not there".
const SETTLE_SECONDS: &str = "1";

pub(super) struct Receivers {
    pub(super) route: Route,
    broken_rule: Option<BrokenRule>,
    folder: TempDir,
    servers: Vec<Server>,
}

impl Receivers {
    pub(super) fn new(route: Route, kill: &Kill, broken_rule: Option<BrokenRule>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ua-acceptance-").tempdir()?;
        let path = folder.path();
        for name in ["work", "home", "state"] {
            fs::create_dir(path.join(name))?;
        }
        let state = path.join("state");
        let pages = workspace_root().join("fixtures/jobs/site");
        let site = Server::start(Kind::Site, &state, Some(&pages), false, kill)?;
        write_job(&path.join("work"), &site.url)?;
        write_script(&state, &site.url, route)?;
        let mut servers = vec![site];
        servers.push(Server::start(Kind::Model, &state, Some(&state.join("script.json")), false, kill)?);
        for kind in route.effects().iter().filter_map(|effect| route.server(*effect)) {
            servers.push(Server::start(kind, &state, None, route.asks_about(Effect::Notification), kill)?);
        }
        let world = Self { route, broken_rule, folder, servers };
        if route.effects().contains(&Effect::Comment) {
            let forum =
                json!({"command": std::env::current_exe()?, "args": ["opaque-server", "--log", world.comments()]});
            fs::write(world.path("work/.mcp.json"), json!({"mcpServers": {"forum": forum}}).to_string())?;
        }
        Ok(world)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn comments(&self) -> PathBuf {
        self.path("comments.log")
    }

    /// The program's output over all its lives.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("ua.log")).unwrap_or_default()
    }

    pub(super) fn server(&self, kind: Kind) -> anyhow::Result<&Server> {
        self.servers.iter().find(|server| server.kind == kind).with_context(|| format!("there is no {kind:?} here"))
    }

    /// What the program is told about the way out, as its users tell it.
    pub(super) fn environment(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let mut all = vec![
            ("ANTHROPIC_BASE_URL", self.server(Kind::Model)?.url.clone()),
            ("ANTHROPIC_API_KEY", CANARY.to_owned()),
            ("HOME", self.path("home").display().to_string()),
        ];
        let servers = self.path("work/.mcp.json");
        if servers.exists() {
            // Named by the user, and so let in.
            all.push(("UA_MCP_CONFIG", servers.display().to_string()));
        }
        if self.broken_rule == Some(BrokenRule::RunningAfterDispatch) {
            all.push(("UA_BROKEN_RULE", "running-after-dispatch".to_owned()));
        }
        if self.broken_rule == Some(BrokenRule::NoRedactor) {
            all.push(("UA_BROKEN_RULE", "no-redactor".to_owned()));
        }
        if self.route == Route::Folders {
            return Ok(all);
        }
        all.extend([
            ("UA_OBJECTS", format!("s3://{BUCKET}/acceptance")),
            ("UA_S3_ENDPOINT", self.server(Kind::S3)?.url.clone()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "k3y-of-the-stand-in-for-s3".to_owned()),
            ("UA_NOTIFY_WEBHOOK", format!("{}/hook", self.server(Kind::Webhook)?.url)),
            ("UA_MAIL_FROM", "reports@example.test".to_owned()),
        ]);
        if !self.route.asks_about(Effect::Notification) || self.broken_rule == Some(BrokenRule::UnhonouredKeys) {
            all.push(("UA_NOTIFY_WEBHOOK_HONOURS_KEYS", "1".to_owned()));
        }
        if self.route == Route::MailApi {
            all.push(("UA_MAIL", format!("resend+{}", self.server(Kind::MailApi)?.url)));
            all.push(("UA_MAIL_API_KEY", MAIL_API_KEY.to_owned()));
        } else {
            let smtp = self.server(Kind::Smtp)?;
            let address = smtp.mail.as_deref().context("it takes mail")?;
            all.push(("UA_MAIL", format!("smtp://{address}?starttls=never")));
            if self.route == Route::ProbedSmtp {
                all.push(("UA_MAIL_PROBE", format!("{}/messages/{{message_id}}", smtp.url)));
                all.push(("UA_MAIL_SETTLE_SECONDS", SETTLE_SECONDS.to_owned()));
            }
        }
        Ok(all)
    }

    /// How often an effect happened, by the word of who took it.
    pub(super) fn count(&self, effect: Effect) -> anyhow::Result<usize> {
        if let Some(kind) = self.route.server(effect) {
            return self.server(kind)?.effects();
        }
        Ok(match effect {
            Effect::Upload => visible(&self.path("root/objects")).len(),
            Effect::Mail => visible(&self.path("root/outbox/new")).len(),
            Effect::Notification => visible(&self.path("root/notifications")).len(),
            Effect::Comment => fs::read_to_string(self.comments()).map_or(0, |text| text.lines().count()),
        })
    }

    /// Where a key that the program was given is found in what it wrote: workspace, database and its log, state, output.
    pub(super) fn canaries(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut waiting = vec![self.path("root"), self.path("home"), self.path("ua.log")];
        while let Some(path) = waiting.pop() {
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                waiting.extend(fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
                continue;
            }
            // A pipe, as each tool server has one beside its lock, has nothing to read and would be waited for.
            if !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path)?;
            if [CANARY, MAIL_API_KEY].iter().any(|key| bytes.windows(key.len()).any(|part| part == key.as_bytes())) {
                found.push(path.display().to_string());
            }
        }
        Ok(found)
    }

    /// The pages that were asked for, in order.
    pub(super) fn asked_pages(&self) -> anyhow::Result<Vec<String>> {
        let log = self.server(Kind::Site)?.log()?;
        Ok(serde_json::from_value(log["asked"].clone())?)
    }

    /// Whether what was uploaded is the PDF of the workspace.
    pub(super) fn check_upload(&self) -> anyhow::Result<()> {
        let sessions = fs::read_dir(self.path("root"))?.flatten().map(|entry| entry.path());
        let report = sessions.map(|session| session.join("work_products/report.pdf")).find(|file| file.exists());
        let report = fs::read(report.context("there is no report.pdf")?)?;
        let objects = match self.route.server(Effect::Upload) {
            Some(_) => visible(&self.path("state/s3")),
            None => visible(&self.path("root/objects")),
        };
        ensure!(report.starts_with(b"%PDF-"), "report.pdf is no PDF");
        ensure!(
            objects.iter().any(|object| fs::read(object).is_ok_and(|content| content == report)),
            "the uploaded object is not report.pdf"
        );
        Ok(())
    }
}

/// How often each page was asked for.
pub(super) fn count_pages(asked: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for page in asked {
        *counts.entry(page.as_str()).or_default() += 1;
    }
    counts
}

/// The files of a folder whose names do not start with a dot.
fn visible(folder: &Path) -> Vec<PathBuf> {
    let is_visible =
        |path: &Path| path.is_file() && !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    fs::read_dir(folder).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.path()).filter(|path| is_visible(path)).collect(),
    )
}
