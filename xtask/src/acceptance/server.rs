//! A receiving server as the harness sees it: a process that was started, and what it says about itself.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum as _;
use serde_json::Value;

use super::http::log_of;
use super::kill::Kill;
use crate::serve::Kind;

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) kind: Kind,
    /// Where it speaks HTTP.
    pub(super) url: String,
    /// Where it takes mail, if it does.
    pub(super) mail: Option<String>,
    child: Child,
}

impl Server {
    /// Starts one that keeps its state below `folder` and keeps waiting what `kill` says.
    pub(super) fn start(
        kind: Kind,
        folder: &Path,
        content: Option<&Path>,
        ignores_keys: bool,
        kill: &Kill,
    ) -> anyhow::Result<Self> {
        let value = kind.to_possible_value().context("every kind has a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", value.get_name(), "--state"]).arg(folder.join(value.get_name()));
        if let Some(content) = content {
            command.arg("--content").arg(content);
        }
        if ignores_keys {
            command.arg("--ignores-keys");
        }
        if let Kill::Held { server, requests, has_effect } = kill
            && *server == kind
        {
            let numbers: Vec<String> = requests.iter().map(u64::to_string).collect();
            command.args([if *has_effect { "--hold-after" } else { "--hold-before" }, &numbers.join(",")]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output is ours")?).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).with_context(|| format!("the server {kind:?} did not start"))?;
        let text = |field: &str| said[field].as_str().map(str::to_owned);
        Ok(Self { kind, url: text("url").context("it says where it is")?, mail: text("mail"), child })
    }

    /// What it says about what reached it.
    pub(super) fn log(&self) -> anyhow::Result<Value> {
        log_of(&self.url)
    }

    /// How many requests it keeps waiting.
    pub(super) fn held(&self) -> anyhow::Result<usize> {
        let log = self.log()?;
        if self.kind == Kind::Model {
            let requests = log["log"].as_array().into_iter().flatten();
            return Ok(requests.filter(|request| request["fault"]["kind"] == "hang").count());
        }
        Ok(usize::try_from(log["held"].as_u64().context("a log says what is held")?)?)
    }

    /// How many effects it took.
    pub(super) fn effects(&self) -> anyhow::Result<usize> {
        let log = self.log()?;
        let list = |field: &str| log[field].as_array().map_or(0, Vec::len);
        ensure!(log.is_object(), "a log is an object");
        Ok(match self.kind {
            Kind::Smtp => {
                let counts = log["messages"].as_object().into_iter().flat_map(|messages| messages.values());
                usize::try_from(counts.filter_map(Value::as_u64).sum::<u64>())?
            }
            Kind::MailApi => list("messages"),
            Kind::S3 => list("objects"),
            Kind::Webhook => list("effects"),
            Kind::Model | Kind::Site => 0,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
