//! What bridge and broker say to each other: the broker's side of `ua_bridge`'s lines.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::broker::Way;

/// The version of these lines.
pub const WIRE: u32 = 1;

/// The first line of a bridge.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Hello {
    pub(crate) wire: u32,
    /// The bridge's own name.
    pub(crate) bridge: String,
    /// The tool server's name in the client's configuration.
    pub(crate) name: String,
    /// How it is started; empty when it is reached over HTTP.
    pub(crate) command: Vec<String>,
    /// Where it is then.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// What goes with every request there, a line each; `${NAME}` stands for a variable of the entry.
    #[serde(default)]
    pub(crate) headers: Vec<String>,
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) project: Option<String>,
    /// The process that started the bridge.
    #[serde(default)]
    pub(crate) parent: u32,
    /// The names of those of its variables that its entry gives it: their values are nobody else's business.
    #[serde(default)]
    pub(crate) secret: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// What says which project and session this is; inherited, so never more than a hint.
    #[serde(default)]
    pub(crate) hints: BTreeMap<String, String>,
    /// The client's `initialize`, when an earlier broker answered it.
    #[serde(default)]
    pub(crate) handshake: Option<Value>,
    /// Whether the client has all of the user's tool servers as one.
    #[serde(default)]
    pub(crate) all: bool,
    /// Whether the bridge says which of its requests it sends again.
    #[serde(default)]
    pub(crate) says_again: bool,
    /// Whether the bridge asks whether the broker is there before it says anything.
    #[serde(default)]
    pub(crate) asks_first: bool,
    /// How long ago the client asked for what the bridge says right behind this, in milliseconds, by the bridge's names.
    #[serde(default)]
    pub(crate) asked: BTreeMap<String, u64>,
    /// What the client's names of the tools begin with: nothing, unless it has all tool servers as one.
    #[serde(skip)]
    pub(crate) prefix: String,
    /// How long the client waits for an answer, in seconds, by what its entry says; `None` where that says nothing.
    #[serde(default)]
    pub(crate) patience: Option<u32>,
    /// How the client is connected; a bridge does not say it.
    #[serde(skip)]
    pub(crate) way: Way,
    /// Who it is by its token, which counts more than what it calls itself.
    #[serde(skip)]
    pub(crate) principal: Option<String>,
    /// Who is at the other end; a bridge does not say it.
    #[serde(skip)]
    pub(crate) sits: Sits,
}

/// Whether a person may sit at a client's dialogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sits {
    /// Nobody: a tool server started the client, or that cannot be told.
    #[default]
    Nobody,
    /// Somebody may.
    Somebody,
}

impl Hello {
    /// A text for the client's model: its tools by the names that the client has for them, not by those of the ledger.
    pub(crate) fn in_clients_names(&self, text: &str) -> String {
        text.replace(&format!("mcp__{}__", self.name), &self.prefix)
    }

    /// How the tool server is reached, as the entry has it: what a variable holds is not in it.
    pub(crate) fn reach(&self) -> Value {
        match &self.url {
            Some(url) => json!({"url": url}),
            None => json!({"command": self.command}),
        }
    }

    /// Where its calls go: as [`Hello::reach`], and for a program that is named from its folder, from which.
    pub(crate) fn place(&self) -> Value {
        let mut place = self.reach();
        if self.command.first().is_some_and(|program| program.contains('/') && !program.starts_with('/')) {
            place["cwd"] = json!(self.cwd);
        }
        place
    }

    /// As whom they go there: what its headers hold, or the variables that its entry gives it.
    pub(crate) fn account(&self) -> Result<BTreeMap<String, String>, String> {
        if self.url.is_some() {
            let headers = self.headers()?.into_iter();
            return Ok(headers.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect());
        }
        Ok(self.secret.iter().filter_map(|name| Some((name.clone(), self.env.get(name)?.clone()))).collect())
    }

    /// What is kept out of everything that is stored, by name: what those of its variables hold that its entry gives it. Of `Bearer …` and its
    /// like, which a header takes, the word that counts is the last one, and it may stand alone elsewhere.
    pub(crate) fn secrets(&self) -> Vec<(String, String)> {
        let values = self.secret.iter().filter_map(|name| Some((name, self.env.get(name)?)));
        let each = values.flat_map(|(name, value)| {
            let last = value.split_whitespace().next_back().filter(|_| self.url.is_some());
            [Some(value.as_str()), last].into_iter().flatten().map(|value| (name.clone(), value.to_owned()))
        });
        each.collect()
    }

    /// The same for what is kept: without what an address may hide (a password, a query).
    pub(crate) fn shown_reach(&self) -> Value {
        let Some(url) = &self.url else { return self.reach() };
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        json!({"url": format!("{scheme}://{host}{path}")})
    }

    /// The headers of its requests, with what their variables hold. The error names no value.
    pub(crate) fn headers(&self) -> Result<BTreeMap<String, String>, String> {
        let header = |line: &String| {
            let (name, value) = line.split_once(':').ok_or("a header is not of the form `Name: value`")?;
            Ok((name.trim().to_owned(), self.filled_in(value.trim())?))
        };
        self.headers.iter().map(header).collect()
    }

    /// A text with what its variables hold. Only what the entry names is one: nothing else of the client's goes out.
    fn filled_in(&self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (name, after) = behind.split_once('}').ok_or("a header has a `${` without its `}`")?;
            let value = self.env.get(name).filter(|_| self.secret.iter().any(|own| own == name));
            let value = value.ok_or_else(|| format!("a header needs {name}: pass it with `--env {name}`"))?;
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The project that the client works in: the folder that it is told to take for one, else the top of the git repository around the folder
    /// that the client works in, else that folder.
    pub(crate) fn project(&self) -> String {
        let folder = self.folder();
        if self.project.is_some() {
            return folder;
        }
        let top = Path::new(&folder).ancestors().find(|around| around.join(".git").exists());
        top.map_or_else(|| folder.clone(), |top| top.to_string_lossy().into_owned())
    }

    /// The folder that the client works in, which was its project before repositories counted.
    pub(crate) fn folder(&self) -> String {
        let told = self.project.as_ref().or_else(|| self.hints.get("CLAUDE_PROJECT_DIR")).unwrap_or(&self.cwd);
        std::fs::canonicalize(told).map_or_else(|_| told.clone(), |path| path.to_string_lossy().into_owned())
    }
}

/// The first line of somebody who wants something of the broker itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Control {
    pub(crate) wire: u32,
    pub(crate) control: Wanted,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    /// How things stand.
    Status,
    /// That it ends, once what is under way is over.
    Stop,
    /// That it knows in which session a client's process is.
    Hook {
        /// The client's process, which started the bridges.
        process: u32,
        /// The client's name of the session.
        session: String,
    },
}

/// Who came to the socket.
#[derive(Debug)]
pub(crate) enum Visitor {
    Bridge(Box<Hello>),
    Control(Wanted),
}

impl Visitor {
    /// Reads the first line; the error is told to whoever sent it.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("the first line is not JSON: {error}"))?;
        if value["wire"] != WIRE {
            return Err(format!(
                "it speaks version {} of the gateway's protocol, and this broker speaks {WIRE}",
                value["wire"]
            ));
        }
        if value.get("control").is_some() {
            let control: Control = serde_json::from_value(value).map_err(|error| error.to_string())?;
            return Ok(Self::Control(control.control));
        }
        let hello: Hello = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let is_one = hello.command.is_empty() == hello.url.is_some();
        if is_one == hello.all || hello.name.is_empty() || hello.name.contains(['.', '/']) {
            return Err("it names no tool server".to_owned());
        }
        hello.headers()?;
        Ok(Self::Bridge(Box::new(hello)))
    }
}

/// A line of a bridge behind its first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BridgeLine<'l> {
    /// A request, with the bridge's name for it, and whether an earlier connection may have had it.
    Request { name: &'l str, message: &'l str, is_again: bool },
    /// Any other message of the client.
    Message(&'l str),
    /// It asks whether the broker is there.
    AreYouThere,
    /// The answer to a request was written to the client.
    Delivered(&'l str),
    /// The client has gone: whether in an orderly way, as far as can be told.
    Gone { is_orderly: bool },
}

/// How long after the last answer an end is of a client that had it, whoever ended it.
const HEARD: u64 = 1_000;
/// How a client goes that had what was written to it: it ended the bridge, or closed its input and was still there.
const ORDERLY: [&str; 2] = ["signal", "closed"];

impl<'l> BridgeLine<'l> {
    pub(crate) fn read(line: &'l str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "R" | "S" => {
                let (name, message) = rest.split_once(' ')?;
                Some(Self::Request { name, message, is_again: kind == "S" })
            }
            "N" => Some(Self::Message(rest)),
            "Q" => Some(Self::AreYouThere),
            "D" => Some(Self::Delivered(rest)),
            "E" => {
                let (millis, how) = rest.split_once(' ')?;
                let is_orderly = ORDERLY.contains(&how) || millis.parse().is_ok_and(|millis: u64| millis >= HEARD);
                Some(Self::Gone { is_orderly })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_the_bridge_says_is_understood() {
        assert_eq!(
            BridgeLine::read("R 01A {\"id\": 1}"),
            Some(BridgeLine::Request { name: "01A", message: "{\"id\": 1}", is_again: false })
        );
        assert!(matches!(BridgeLine::read("S 01A {}"), Some(BridgeLine::Request { is_again: true, .. })));
        assert_eq!(BridgeLine::read("E 999 eof"), Some(BridgeLine::Gone { is_orderly: false }));
        assert_eq!(BridgeLine::read("E 1000 eof"), Some(BridgeLine::Gone { is_orderly: true }));
        assert_eq!(BridgeLine::read("E 0 closed"), Some(BridgeLine::Gone { is_orderly: true }));
        assert_eq!(BridgeLine::read("E 0 signal"), Some(BridgeLine::Gone { is_orderly: true }));
        assert_eq!(BridgeLine::read("Q "), Some(BridgeLine::AreYouThere));
        assert_eq!(BridgeLine::read("?"), None);
        let hello = r#"{"wire":1,"bridge":"b","name":"mail","command":["x"],"cwd":"/","project":null,"parent":1,"secret":[],"env":{},"hints":{},"handshake":null}"#;
        assert!(matches!(Visitor::read(hello), Ok(Visitor::Bridge(hello)) if hello.project() == "/"));
        let folder = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        let within = |cwd: &Path, project: Option<&Path>| {
            let mut hello: Value = serde_json::from_str(hello).unwrap();
            (hello["cwd"], hello["project"]) = (json!(cwd), json!(project));
            PathBuf::from(serde_json::from_value::<Hello>(hello).unwrap().project())
        };
        let deep = top.join("a/b");
        assert_eq!(within(&deep, None), deep);
        // A folder, or the file of a worktree.
        for is_folder in [true, false] {
            let git = top.join(if is_folder { ".git" } else { "a/.git" });
            if is_folder { std::fs::create_dir(&git) } else { std::fs::write(&git, "gitdir: /x") }.unwrap();
            assert_eq!(within(&deep, None), git.parent().unwrap());
            assert_eq!(within(&top.join("a/b/../b"), None), git.parent().unwrap());
            assert_eq!(within(&top, Some(&deep)), deep);
        }
        let remote = |header: &str| {
            let hello = json!({"wire": 1, "bridge": "b", "name": "web", "command": [], "url": "http://x/mcp", "cwd": "/",
                "headers": [header], "secret": ["KEY"], "env": {"KEY": "k", "HOME": "/h"}});
            match Visitor::read(&hello.to_string())? {
                Visitor::Bridge(hello) => hello.headers(),
                Visitor::Control(_) => Err("no bridge".to_owned()),
            }
        };
        let hidden = r#"{"wire":1,"bridge":"b","name":"web","command":[],"url":"https://me:pw@x:1/mcp?key=pw@x#pw","cwd":"/","secret":[],"env":{}}"#;
        assert!(
            matches!(Visitor::read(hidden), Ok(Visitor::Bridge(hello)) if hello.shown_reach() == json!({"url": "https://x:1/mcp"}))
        );
        assert_eq!(remote("X-Key: <${KEY}${KEY}>"), Ok([("X-Key".to_owned(), "<kk>".to_owned())].into()));
        for (header, why) in [("X-Key", "of the form `Name"), ("A: ${KEY", "without"), ("A: ${HOME}", "--env HOME")] {
            assert!(remote(header).is_err_and(|refused| refused.contains(why)), "{header}");
        }
        let all = r#"{"wire":1,"bridge":"b","name":"all","command":[],"all":true,"cwd":"/"}"#;
        assert!(matches!(Visitor::read(all), Ok(Visitor::Bridge(hello)) if hello.all));
        assert!(Visitor::read(&all.replace("true", "false")).is_err());
        assert!(matches!(Visitor::read(r#"{"wire":1,"control":"stop"}"#), Ok(Visitor::Control(Wanted::Stop))));
        assert!(Visitor::read(r#"{"wire":2}"#).is_err_and(|why| why.contains("version 2")));
    }
}
