//! What the user says about the gateway: clients, budgets, and tool servers that a client only names.

use std::collections::BTreeMap;
use std::time::Duration;

/// What is said about clients and what they may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayRules {
    /// Whether a client's own dialogue may decide a question, where nothing is said about the client.
    pub elicitation: bool,
    /// What is said about a client, by what it calls itself.
    pub clients: BTreeMap<String, ClientRules>,
    /// How much may be had.
    pub budgets: Vec<Budget>,
}

impl Default for GatewayRules {
    fn default() -> Self {
        Self { elicitation: true, clients: BTreeMap::new(), budgets: Vec::new() }
    }
}

impl GatewayRules {
    /// Whether a client's own dialogue may decide a question.
    pub fn may_decide(&self, client: &str) -> bool {
        self.clients.get(client).and_then(|rules| rules.elicitation).unwrap_or(self.elicitation)
    }
}

/// What is said about one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientRules {
    /// How long it waits for the answer to a call; `None` when nothing is said.
    pub patience: Option<Patience>,
    /// Whether its own dialogue may decide a question.
    pub elicitation: Option<bool>,
}

/// How long a client waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes.
    Unlimited,
    /// So long.
    Limited(Duration),
}

/// How many calls with an effect may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// The client, by what it calls itself; any when nothing is said.
    pub client: Option<String>,
    /// The tool server's name; any when nothing is said.
    pub server: Option<String>,
    /// The kind of effect, as policies name it; any when nothing is said.
    pub effect: Option<String>,
    /// In which span they are counted.
    pub per: BudgetSpan,
    /// How many.
    pub calls: u32,
}

/// In which span calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetSpan {
    /// A session of a client.
    Session,
    /// A day, which begins at midnight UTC.
    Day,
}

impl Budget {
    /// In words, for the model and the person.
    pub(crate) fn words(&self) -> String {
        let what = match &self.effect {
            Some(kind) => format!("{} `{kind}`", self.calls),
            None => format!("{} with an effect", ua_core::counted(self.calls, "call")),
        };
        let server = self.server.as_deref().map_or_else(String::new, |server| format!(" of `{server}`"));
        let client = self.client.as_deref().map_or_else(String::new, |client| format!(" by {client}"));
        let per = match self.per {
            BudgetSpan::Session => "per session",
            BudgetSpan::Day => "per day",
        };
        format!("{what}{server}{client} {per}")
    }
}

/// Tool servers for clients that only name one, by name.
pub type Entries = BTreeMap<String, EntrySpec>;

/// How such a tool server is reached. Values of variables and headers are filled in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EntrySpec {
    /// The program and its arguments; empty when it is reached over HTTP.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Which of its variables hold what is kept out of everything that is stored.
    pub secret: Vec<String>,
    /// The folder that it is started in.
    pub cwd: String,
    /// Where it is, when it is reached over HTTP.
    pub url: Option<String>,
    /// What goes with every request there.
    pub headers: BTreeMap<String, String>,
}

/// Without what variables and headers hold.
impl std::fmt::Debug for EntrySpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntrySpec")
            .field("command", &self.command.first())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}
