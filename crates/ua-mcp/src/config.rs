//! The ecosystem's `mcpServers` object, read strictly.
//!
//! Durable Jobs v1 spec §3 (tool access through MCP). A typing error in this file would silently change which tools a run
//! has, so an unknown field, a doubled name and an unset variable are errors that name their place. Fields that other
//! clients keep in the same file and that mean nothing here are let through.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Value};
use ua_core::{
    PrintedCommand, ToolName, ToolNamespace, nearest, secrets_entrusted, secrets_given, secrets_in_arguments,
};

use crate::definitions::Locked;
use crate::destination::{Decides, SAY_NO_PLACE};
use crate::dialect::Protocol;
use crate::error::McpError;
use crate::exchange::OLD_TRANSPORT;
use crate::http::{check_header_name, key_in_the_clear};
use crate::logins::{ClientCredentials, ClientKey, ClientProof, ClientSecret, KeySource, SIGNED, check_address};

/// The longest server name; it is part of every tool's name, which providers limit to 64 characters.
const MAX_NAME: usize = 32;

/// Fields of an entry that mean something to other clients.
const IGNORED: [&str; 3] = ["timeout", "alwaysAllow", "autoApprove"];
/// Every field that an entry may have.
const KNOWN: [&str; 13] = [
    "command", "args", "env", "cwd", "url", "headers", CLIENT, "type", "protocol", "disabled", IGNORED[0], IGNORED[1],
    IGNORED[2],
];
/// The field with the client by which a remote server lets a program in without a person.
const CLIENT: &str = "client_credentials";
/// Every field that such a client may have.
const KNOWN_OF_CLIENT: [&str; 11] = [
    "id",
    "secret",
    KEY,
    KEY_FILE,
    "key_id",
    "audience",
    "token_url",
    "scope",
    "resource",
    "auth_method",
    "private_network",
];
/// The field with the private key of a client.
const KEY: &str = "private_key";
/// The field with the path of the file in which that is.
const KEY_FILE: &str = "private_key_file";

/// How a tool server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A program that speaks MCP over its standard input and output.
    Stdio {
        /// The program: a path, or a name to look up in `PATH` of `env`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment.
        env: BTreeMap<String, String>,
        /// Its working directory; `None` means ours.
        cwd: Option<PathBuf>,
    },
    /// An endpoint that speaks Streamable HTTP.
    Http {
        /// Where it is.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
        /// The client by which it lets this program in without a person.
        client: Option<Box<ClientCredentials>>,
    },
}

impl Reach {
    /// What of it may stand nowhere else, each with a name for it: by names of variables, headers and options, in addresses, and whatever looks like a
    /// credential under any name. `server` is what it reaches.
    pub fn secrets(&self, server: &str) -> Vec<(String, String)> {
        self.secrets_by(server, secrets_entrusted)
    }

    /// The same, where `judge` says what of a value beside a name is one.
    fn secrets_by(&self, server: &str, judge: fn(&str, &str) -> Vec<String>) -> Vec<(String, String)> {
        let given = |name: String, value: &str| {
            judge(&name, value).into_iter().map(move |secret| (name.clone(), secret)).collect::<Vec<_>>()
        };
        match self {
            Self::Stdio { args, env, .. } => {
                let named = secrets_in_arguments(args.iter().map(String::as_str)).into_iter();
                // What it looks like itself: an option says with `=` what its value is, or stands in front of it.
                let before = std::iter::once("").chain(args.iter().map(String::as_str));
                let looks = args.iter().zip(before).flat_map(|(argument, before)| {
                    let option = if before.starts_with('-') { before } else { "" };
                    let (name, value) = argument.split_once('=').unwrap_or((option, argument.as_str()));
                    // An option is no value, and a text for a shell has words of all kinds: what stands behind names in it is known by these.
                    let is_one = !value.starts_with('-') && !value.contains(char::is_whitespace);
                    if is_one { judge(name, value) } else { Vec::new() }
                });
                let arguments = named.chain(looks).map(|secret| (format!("an argument of {server}"), secret));
                env.iter().flat_map(|(name, value)| given(name.clone(), value)).chain(arguments).collect()
            }
            Self::Http { url, headers, client } => {
                // It stands beside no name.
                let address = judge("", url).into_iter().map(|secret| (format!("the address of {server}"), secret));
                let headers = headers.iter().flat_map(|(name, value)| {
                    given(name.clone(), value).into_iter().map(|(name, secret)| (format!("{name} of {server}"), secret))
                });
                let client = client.iter().flat_map(|client| client.secret.known(server));
                headers.chain(address).chain(client).collect()
            }
        }
    }

    /// Has a program started in `folder`, or below it where its own working directory is a relative path.
    pub fn start_in(&mut self, folder: &Path) {
        if let Self::Stdio { cwd, .. } = self {
            *cwd = Some(cwd.as_deref().map_or_else(|| folder.to_path_buf(), |cwd| folder.join(cwd)));
        }
    }
}

impl fmt::Debug for Reach {
    /// Names variables and headers, and shows no value: they are where keys are kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers, client } => f
                .debug_struct("Http")
                .field("url", url)
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .field("client", client)
                .finish(),
        }
    }
}

/// One tool server, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its name in the configuration.
    pub name: String,
    /// Where its tools belong.
    pub namespace: ToolNamespace,
    /// How it is reached. The environment in it is the whole environment of the process: a server is started with a
    /// cleared one, and whoever makes this value decides what it may see.
    pub reach: Reach,
    /// Which revision of the protocol it is spoken to in.
    pub protocol: Protocol,
    /// What `mcp.lock` has to say about it, when there is one.
    pub lock: Option<Locked>,
    /// What of the reach decides where its calls go and as whom.
    pub decides: Decides,
    /// The command by which a person logs in there; `None` where `ua login NAME` finds the server by its name alone.
    pub login: Option<String>,
}

impl ServerSpec {
    /// A server that is spoken to in the newest revision it knows, and whose tools are not locked. All variables of `reach` decide where its
    /// calls go; what it is given besides comes with [`ServerSpec::with_inherited`].
    pub fn new(name: impl Into<String>, namespace: ToolNamespace, reach: Reach) -> Self {
        let decides = Decides::Entry(match &reach {
            Reach::Stdio { env, .. } => env.keys().cloned().collect(),
            Reach::Http { .. } => BTreeSet::new(),
        });
        Self { name: name.into(), namespace, reach, protocol: Protocol::Auto, lock: None, decides, login: None }
    }

    /// A server as a configuration names it: its tools belong to where its name, or its address, says that it is.
    pub fn configured(name: impl Into<String>, reach: Reach) -> Self {
        let name = name.into();
        let namespace = namespace_of(&name, &reach);
        Self::new(name, namespace, reach)
    }

    /// What it is given that may stand nowhere else, each with a name for it. Of our own tool server the names of its settings say it: what looks like
    /// a credential there is a run, a folder or a trace.
    pub fn secrets(&self) -> Vec<(String, String)> {
        match self.decides {
            Decides::Entry(_) => self.reach.secrets(&self.name),
            Decides::Tools(_) => self.reach.secrets_by(&self.name, secrets_given),
        }
    }

    /// The command by which a person logs in there.
    pub(crate) fn login(&self) -> String {
        self.login.clone().unwrap_or_else(|| PrintedCommand::of("ua login").word(&self.name).to_string())
    }

    /// The same with variables that every server is given, where its own say nothing else. They decide where its calls go as well, but for those
    /// that say how words look to a person.
    #[must_use]
    pub fn with_inherited(mut self, inherited: &BTreeMap<String, String>) -> Self {
        let Reach::Stdio { env, .. } = &mut self.reach else { return self };
        for (name, value) in inherited.iter().filter(|(name, _)| !env.contains_key(*name)).collect::<Vec<_>>() {
            env.insert(name.clone(), value.clone());
            if let Decides::Entry(variables) = &mut self.decides
                && !SAY_NO_PLACE.contains(&name.as_str())
            {
                variables.insert(name.clone());
            }
        }
        self
    }
}

/// A Composio tool router, by the name it was given or by where it is; any other server is plain MCP.
fn namespace_of(name: &str, reach: &Reach) -> ToolNamespace {
    let is_named = name.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| word == "composio");
    let is_theirs = match reach {
        // Nobody connects to an address that cannot be read, and a trailing dot names the same host.
        Reach::Http { url, .. } => reqwest::Url::parse(url).is_ok_and(|url| {
            let host = url.host_str().unwrap_or_default().trim_end_matches('.');
            host == "composio.dev" || host.ends_with(".composio.dev")
        }),
        Reach::Stdio { .. } => false,
    };
    if is_named || is_theirs { ToolNamespace::Composio } else { ToolNamespace::Mcp }
}

/// The tool servers of a configuration file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpConfig {
    /// Name and reach of each server that is not disabled. Variables are not expanded yet.
    pub servers: Vec<(String, Reach)>,
    /// Names of the servers that the file disables.
    pub disabled: Vec<String>,
    /// The servers whose entry names a revision of the protocol.
    pub protocols: BTreeMap<String, Protocol>,
}

impl McpConfig {
    /// Reads `{"mcpServers": {…}}`. `source_name` is what error messages call the text.
    ///
    /// # Errors
    ///
    /// An [`McpError`] that names the server and the field.
    ///
    /// ```
    /// let text = r#"{"mcpServers": {"notes": {"command": "notes-server", "args": ["--dir", "${HOME}/notes"]}}}"#;
    /// let config = ua_mcp::McpConfig::parse(text, ".mcp.json").unwrap();
    /// let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
    /// let ua_mcp::Reach::Stdio { args, .. } = &config.expand(home).unwrap().servers[0].1 else { panic!() };
    /// assert_eq!(args, &["--dir", "/home/ada/notes"]);
    /// ```
    pub fn parse(text: &str, source_name: &str) -> Result<Self, McpError> {
        let unreadable = |why: String| McpError::Unreadable { source_name: source_name.to_owned(), why };
        let root: Root =
            serde_json::from_str(text).map_err(|error| unreadable(ua_core::json_fault_without_values(text, &error)))?;
        let mut config = Self::default();
        for (server, entry) in root.servers.0 {
            check_name(&server, source_name)?;
            if config.disabled.contains(&server) || config.servers.iter().any(|(name, _)| *name == server) {
                return Err(unreadable(format!("the server `{server}` is defined twice")));
            }
            match (Entry { source_name, server: &server }).read(entry)? {
                Some((reach, protocol)) => {
                    let other = config.servers.iter().find(|(_, other)| is_let_in_otherwise(&reach, other));
                    if let Some((other, _)) = other {
                        return Err(unreadable(format!(
                            "the servers `{other}` and `{server}` have one `url` and not the same `{CLIENT}`; tokens belong to an address"
                        )));
                    }
                    if protocol != Protocol::Auto {
                        config.protocols.insert(server.clone(), protocol);
                    }
                    config.servers.push((server, reach));
                }
                None => config.disabled.push(server),
            }
        }
        Ok(config)
    }

    /// Replaces each `${NAME}` and `${secret:NAME}` in arguments, environment values, headers and id, secret and private key of a client (or the path
    /// of that) by what `lookup` says of `NAME` or `secret:NAME`. Text that is not a reference to a plain name (`$HOME`, `${a b}`) stays as it is.
    ///
    /// # Errors
    ///
    /// [`McpError::MissingVariable`] for a name that `lookup` does not know.
    pub fn expand(mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, McpError> {
        for (server, reach) in &mut self.servers {
            let expand = |field: &str, text: &mut String| {
                *text = expand_one(text, &lookup).map_err(|variable| McpError::MissingVariable {
                    server: server.clone(),
                    field: field.to_owned(),
                    variable,
                })?;
                Ok::<(), McpError>(())
            };
            match reach {
                Reach::Stdio { args, env, .. } => {
                    args.iter_mut().try_for_each(|arg| expand("args", arg))?;
                    env.iter_mut().try_for_each(|(name, value)| expand(&format!("env.{name}"), value))?;
                }
                Reach::Http { headers, client, .. } => {
                    headers.iter_mut().try_for_each(|(name, value)| expand(&format!("headers.{name}"), value))?;
                    if let Some(client) = client {
                        expand(&format!("{CLIENT}.id"), &mut client.id)?;
                        let (field, text) = match &mut client.secret {
                            ClientSecret::Shared(text) => ("secret", text),
                            ClientSecret::Key(ClientKey { from: KeySource::Text(text), .. }) => (KEY, text),
                            ClientSecret::Key(ClientKey { from: KeySource::File(text), .. }) => (KEY_FILE, text),
                        };
                        expand(&format!("{CLIENT}.{field}"), text)?;
                    }
                }
            }
        }
        Ok(self)
    }
}

#[derive(Deserialize)]
struct Root {
    #[serde(rename = "mcpServers")]
    servers: Entries,
}

/// A JSON object as pairs, so that a doubled name is seen and the order of the file is kept.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tool servers by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Whether two servers are at one address, and the clients by which they let this program in are not the same.
fn is_let_in_otherwise(reach: &Reach, other: &Reach) -> bool {
    match (reach, other) {
        (Reach::Http { url, client, .. }, Reach::Http { url: other_url, client: other_client, .. }) => {
            url == other_url && client != other_client
        }
        (Reach::Stdio { .. }, _) | (_, Reach::Stdio { .. }) => false,
    }
}

fn check_name(server: &str, source_name: &str) -> Result<(), McpError> {
    let refuse = |why| Err(McpError::Name { source_name: source_name.to_owned(), server: server.to_owned(), why });
    if server.is_empty() || server.len() > MAX_NAME {
        return refuse("use 1 to 32 characters");
    }
    if !server.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        return refuse("use only the characters a-z A-Z 0-9 _ -");
    }
    if server.contains("__") {
        return refuse("`__` separates a server from its tools; use a single `_`");
    }
    if ToolName::is_built_in_server(server) {
        return refuse("it is the name of a built-in tool server; use another one");
    }
    Ok(())
}

/// Where an entry stands, for its error messages.
struct Entry<'a> {
    source_name: &'a str,
    server: &'a str,
}

impl Entry<'_> {
    fn wrong(&self, field: &str, why: impl Into<String>) -> McpError {
        McpError::Field {
            source_name: self.source_name.to_owned(),
            server: self.server.to_owned(),
            field: ua_core::in_a_sentence(field),
            why: why.into(),
        }
    }

    /// Reads one entry; `None` when it is disabled.
    fn read(&self, entry: Value) -> Result<Option<(Reach, Protocol)>, McpError> {
        let Value::Object(mut entry) = entry else {
            return Err(self.wrong("(entry)", "it must be an object with `command` or `url`"));
        };
        if let Some(unknown) = entry.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            let meant = nearest(unknown, KNOWN);
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
            return Err(self.wrong(unknown, format!("there is no such field{meant}")));
        }
        let disabled = match entry.remove("disabled") {
            None => false,
            Some(Value::Bool(disabled)) => disabled,
            Some(_) => return Err(self.wrong("disabled", "it must be true or false")),
        };
        for ignored in IGNORED {
            entry.remove(ignored);
        }
        let protocol = match self.text(&mut entry, "protocol")? {
            None => Protocol::Auto,
            Some(text) => text.parse().map_err(|why| self.wrong("protocol", why))?,
        };
        let kind = self.text(&mut entry, "type")?;
        let reach = match kind.as_deref() {
            Some("stdio") => self.stdio(&mut entry)?,
            Some("http" | "streamable-http" | "streamableHttp") => self.http(&mut entry)?,
            Some("sse") => {
                let why = format!("use `http` where the server speaks it; if it is one of {OLD_TRANSPORT}");
                return Err(self.wrong("type", why));
            }
            Some(other) => {
                return Err(
                    self.wrong("type", format!("`{}` is neither `stdio` nor `http`", ua_core::in_a_sentence(other)))
                );
            }
            None if entry.contains_key("command") => self.stdio(&mut entry)?,
            None if entry.contains_key("url") => {
                return Err(self.wrong("type", "it is missing; a server with a `url` needs `\"type\": \"http\"`"));
            }
            None => return Err(self.wrong("command", "it is missing")),
        };
        match entry.keys().next() {
            Some(other) if matches!(reach, Reach::Stdio { .. }) => {
                Err(self.wrong(other, "a server with a `command` has no such field"))
            }
            Some(other) => Err(self.wrong(other, "a server with a `url` has no such field")),
            None => Ok((!disabled).then_some((reach, protocol))),
        }
    }

    fn stdio(&self, entry: &mut Map<String, Value>) -> Result<Reach, McpError> {
        let command = self.text(entry, "command")?.ok_or_else(|| self.wrong("command", "it is missing"))?;
        if command.is_empty() {
            return Err(self.wrong("command", "it is empty"));
        }
        let args = match entry.remove("args") {
            None => Vec::new(),
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Ok(text),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        Err(self.wrong("args", "each argument must be a string"))
                    }
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(self.wrong("args", "it must be a list of strings")),
        };
        let env = self.texts(entry, "env")?;
        let cwd = self.text(entry, "cwd")?.map(PathBuf::from);
        Ok(Reach::Stdio { command, args, env, cwd })
    }

    fn http(&self, entry: &mut Map<String, Value>) -> Result<Reach, McpError> {
        let url = self.text(entry, "url")?.ok_or_else(|| self.wrong("url", "it is missing"))?;
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(self.wrong("url", "it must start with https:// or http://"));
        }
        let headers = self.texts(entry, "headers")?;
        for name in headers.keys() {
            check_header_name(name).map_err(|why| self.wrong(&format!("headers.{name}"), why))?;
        }
        // No reference in an address is replaced, so it is what it will be.
        if let Some(why) = Url::parse(&url).ok().and_then(|url| key_in_the_clear(&url, &headers)) {
            return Err(self.wrong("url", why));
        }
        let client = self.client(entry, &url, &headers)?;
        Ok(Reach::Http { url, headers, client })
    }

    fn client(
        &self,
        entry: &mut Map<String, Value>,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<Option<Box<ClientCredentials>>, McpError> {
        let fields = match entry.remove(CLIENT) {
            None => return Ok(None),
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                return Err(self.wrong(CLIENT, "it must be an object with `id` and `secret`, or with a private key"));
            }
        };
        let wrong = |field: &str, why: &str| self.wrong(&format!("{CLIENT}.{field}"), why);
        if let Some(unknown) = fields.keys().find(|key| !KNOWN_OF_CLIENT.contains(&key.as_str())) {
            let meant = nearest(unknown, KNOWN_OF_CLIENT);
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
            return Err(wrong(unknown, &format!("there is no such field{meant}")));
        }
        let text = |field: &str| match fields.get(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Err(wrong(field, "it is empty")),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(field, "it must be a string")),
        };
        let needed = |field: &str| text(field).and_then(|text| text.ok_or_else(|| wrong(field, "it is missing")));
        let id = needed("id")?;
        let (key_id, audience) = (text("key_id")?, text("audience")?);
        let key =
            |from: KeySource| ClientSecret::Key(ClientKey { from, id: key_id.clone(), audience: audience.clone() });
        let secret = match (text("secret")?, text(KEY)?, text(KEY_FILE)?) {
            (Some(secret), None, None) => ClientSecret::Shared(secret),
            (None, Some(pem), None) => key(KeySource::Text(pem)),
            // Where it begins with a reference, whoever reads it says whether it is a whole path.
            (None, None, Some(path)) if path.starts_with('/') || path.starts_with("${") => key(KeySource::File(path)),
            (None, None, Some(_)) => return Err(wrong(KEY_FILE, "it must be the whole path of a file")),
            (None, None, None) => {
                let why = format!("it is missing; a client has a `secret`, a `{KEY_FILE}` or a `{KEY}`");
                return Err(wrong("secret", &why));
            }
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
                let why = format!("it has more than one of `secret`, `{KEY_FILE}` and `{KEY}`; keep one of them");
                return Err(self.wrong(CLIENT, why));
            }
        };
        let is_signed = matches!(secret, ClientSecret::Key(_));
        for (field, said) in [("key_id", &key_id), ("audience", &audience)] {
            if said.is_some() && !is_signed {
                return Err(wrong(field, "it is said of a client with a private key, and this one has a `secret`"));
            }
        }
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            return Err(self.wrong(CLIENT, "`headers` has an `Authorization` already; keep one of the two"));
        }
        if check_address(url).is_err() {
            let why = "the token would go there unencrypted; give an https:// `url` (http:// is for this machine only)";
            return Err(self.wrong(CLIENT, why));
        }
        let token_url = text("token_url")?;
        if token_url.as_deref().is_some_and(|url| check_address(url).is_err()) {
            let why =
                "it must be an https:// address, or http:// on this machine: what lets the client in is sent there";
            return Err(wrong("token_url", why));
        }
        if audience.is_some() && token_url.is_none() {
            let why = "it needs `token_url`: else the tool server says who gets what is signed for that audience";
            return Err(wrong("audience", why));
        }
        let resource = text("resource")?;
        let is_resource = |resource: &str| Url::parse(resource).is_ok_and(|url| url.fragment().is_none());
        if resource.as_deref().is_some_and(|resource| !is_resource(resource)) {
            return Err(wrong("resource", "it must be a whole address without a fragment (RFC 8707)"));
        }
        let proof = match text("auth_method")?.as_deref() {
            None => None,
            Some(SIGNED) if is_signed => None,
            Some(SIGNED) => {
                let why =
                    format!("`{SIGNED}` is for a client with a `{KEY_FILE}` or a `{KEY}`, and this one has a `secret`");
                return Err(wrong("auth_method", &why));
            }
            Some(method) => {
                let proof = method.parse::<ClientProof>().map_err(|why| wrong("auth_method", &why))?;
                if is_signed {
                    return Err(wrong(
                        "auth_method",
                        "a private key is never sent; say `private_key_jwt`, or leave it out",
                    ));
                }
                Some(proof)
            }
        };
        let scopes = text("scope")?.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let private_network = match fields.get("private_network") {
            None => false,
            Some(Value::Bool(is_private)) => *is_private,
            Some(_) => return Err(wrong("private_network", "it must be true or false")),
        };
        let client = ClientCredentials { id, secret, token_url, scopes, resource, proof, private_network };
        Ok(Some(Box::new(client)))
    }

    fn text(&self, entry: &mut Map<String, Value>, field: &str) -> Result<Option<String>, McpError> {
        match entry.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "it must be a string")),
        }
    }

    fn texts(&self, entry: &mut Map<String, Value>, field: &str) -> Result<BTreeMap<String, String>, McpError> {
        let Some(value) = entry.remove(field) else { return Ok(BTreeMap::new()) };
        let Value::Object(map) = value else { return Err(self.wrong(field, "it must be an object of strings")) };
        map.into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name, text)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Err(self.wrong(&format!("{field}.{name}"), "it must be a string"))
                }
            })
            .collect()
    }
}

/// The names that a text refers to, as `NAME` and `secret:NAME`, in order.
pub fn references(text: &str) -> Vec<String> {
    let found = std::cell::RefCell::new(Vec::new());
    let note = |name: &str| {
        found.borrow_mut().push(name.to_owned());
        Some(String::new())
    };
    // Every name is known to this lookup.
    expand_one(text, &note).ok();
    found.into_inner()
}

/// Expands the references in one text; the error is the name that stands for nothing.
fn expand_one(text: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, reference) = rest.split_at(start);
        expanded.push_str(before);
        let name = reference[2..].split_once('}').map(|(name, _)| name).filter(|name| is_variable(name));
        if let Some(name) = name {
            expanded.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
            rest = &reference[name.len() + 3..];
        } else {
            expanded.push_str("${");
            rest = &reference[2..];
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_variable(name: &str) -> bool {
    let name = name.strip_prefix("secret:").unwrap_or(name);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        McpConfig::parse(text, "test.json").unwrap_err().to_string()
    }

    fn entry(fields: &str) -> String {
        format!(r#"{{"mcpServers": {{"notes": {fields}}}}}"#)
    }

    #[test]
    fn a_file_of_another_client_is_read_in_its_order() {
        let text = r#"{"theme": "dark", "mcpServers": {
            "zeta": {"command": "z", "timeout": 60, "autoApprove": ["a"], "alwaysAllow": []},
            "alpha": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "off": {"command": "o", "disabled": true}}}"#;
        let config = McpConfig::parse(text, "test.json").unwrap();
        let stdio = Reach::Stdio { command: "z".into(), args: vec![], env: BTreeMap::new(), cwd: None };
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer ${TOKEN}".to_owned())]);
        let http = Reach::Http { url: "https://example.org/mcp".into(), headers, client: None };
        let expected = McpConfig {
            servers: vec![("zeta".into(), stdio), ("alpha".into(), http)],
            disabled: vec!["off".into()],
            ..McpConfig::default()
        };
        assert_eq!(config, expected);
    }

    /// By reference or as it stands there, under any name; and what a page may well have in it is left.
    #[test]
    fn whatever_a_server_is_given_that_looks_like_a_credential_is_a_secret() {
        let key = "s3cr027valueXyz";
        let names = [
            "CREDS",
            "CONNECTION_STRING",
            "CONN_STR",
            "PRIVATE",
            "SESSION",
            "PWD_X",
            "TOK",
            "ACCESS",
            "SIGNATURE",
            "LICENSE",
            "APP_CODE",
            "SEED",
            "SENTRY_DSN",
            "TOKEN",
        ];
        let plain = [
            ("MODE", "production"),
            ("WHERE", "eu-central-1"),
            ("WHO", "ada@example.org"),
            ("WHAT", "acme-website-2026"),
            ("HOME", "/home/ada"),
            ("BASE", "https://api.example.org/v1"),
            ("TENANT_ID", key),
        ];
        let known = |text: &str| {
            let config = McpConfig::parse(text, "test.json").unwrap();
            let config = config.expand(|name| (name == "X").then(|| key.to_owned())).unwrap();
            let of_all =
                config.servers.into_iter().flat_map(|(name, reach)| ServerSpec::configured(name, reach).secrets());
            of_all.map(|(_, secret)| secret).collect::<BTreeSet<_>>()
        };
        for written in ["${X}", key] {
            for name in names {
                let text = entry(&serde_json::json!({"command": "s", "env": {name: written}}).to_string());
                assert_eq!(known(&text), [key.to_owned()].into(), "{name}");
            }
            for fields in [
                serde_json::json!({"type": "http", "url": "https://a.example/mcp", "headers": {"X-Conn": written}}),
                serde_json::json!({"type": "http", "url": format!("https://a.example/mcp?sig={key}")}),
                serde_json::json!({"command": "s", "args": ["--conn", written, "--verbose"]}),
                serde_json::json!({"command": "s", "args": [format!("--conn={written}")]}),
                serde_json::json!({"command": "s", "args": ["-y", written]}),
                serde_json::json!({"command": "s", "args": ["--token", "--verbose", written]}),
            ] {
                assert!(known(&entry(&fields.to_string())).contains(key), "{fields}");
            }
        }
        for (name, value) in plain {
            let env = serde_json::json!({"command": "s", "args": [value, "--what", value], "env": {name: value}});
            let headers = serde_json::json!({"type": "http", "url": "https://a.example/mcp", "headers": {name: value}});
            let whole = if value == key { vec![headers] } else { vec![env, headers] };
            for fields in whole {
                assert_eq!(known(&entry(&fields.to_string())), BTreeSet::new(), "{fields}");
            }
        }
    }

    /// What our own tool server is told has runs and traces in it.
    #[test]
    fn what_looks_like_a_credential_is_none_where_the_names_of_settings_say_it() {
        let env = BTreeMap::from([
            ("PLACE".to_owned(), "s3cr027valueXyz".to_owned()),
            ("A_KEY".to_owned(), "canary-1".to_owned()),
        ]);
        let reach = Reach::Stdio {
            command: "ua".into(),
            args: vec!["01a22ea8dfe5720a92c0e33b76b2ec45".into()],
            env,
            cwd: None,
        };
        let decides = Decides::Tools(BTreeMap::new());
        let own = ServerSpec { decides, ..ServerSpec::new("ua", ToolNamespace::Local, reach) };
        assert_eq!(own.secrets(), [("A_KEY".to_owned(), "canary-1".to_owned())]);
    }

    #[test]
    fn where_the_tools_of_a_configured_server_belong_is_in_its_name_or_its_address() {
        let http = |url: &str| Reach::Http { url: url.to_owned(), headers: BTreeMap::new(), client: None };
        let stdio = || Reach::Stdio { command: "npx".into(), args: vec![], env: BTreeMap::new(), cwd: None };
        let of = |name: &str, reach| ServerSpec::configured(name, reach).namespace;
        for (name, reach) in [
            ("apps", http("https://mcp.composio.dev/v3/mcp?user_id=me")),
            ("apps", http("https://me:pw@composio.dev:443/x")),
            ("apps", http("HTTPS://MCP.Composio.Dev.:443\\x")),
            ("my-Composio", stdio()),
        ] {
            assert_eq!(of(name, reach.clone()), ToolNamespace::Composio, "{name} {reach:?}");
        }
        for (name, reach) in [
            ("apps", http("https://composio.dev.example.org/mcp")),
            ("apps", http("https://example.org/composio.dev")),
            ("decomposiotion", stdio()),
        ] {
            assert_eq!(of(name, reach.clone()), ToolNamespace::Mcp, "{name} {reach:?}");
        }
    }

    #[test]
    fn a_revision_of_the_protocol_can_be_pinned() {
        let config = McpConfig::parse(&entry(r#"{"command": "x", "protocol": "2025-11-25"}"#), "test.json").unwrap();
        assert_eq!(config.protocols["notes"], Protocol::Pinned("2025-11-25".into()));
        let why = refusal(&entry(r#"{"command": "x", "protocol": "1"}"#));
        assert!(why.contains("invalid `protocol`") && why.contains("2026-07-28"), "{why}");
    }

    #[test]
    fn a_wrong_field_is_named_with_its_server() {
        let cases = [
            (
                r#"{"command": "x", "comand": 1}"#,
                "invalid `comand` of the tool server `notes` in test.json: there is no such field; did you mean `command`?",
            ),
            (
                r#"{"comand": "x"}"#,
                "invalid `comand` of the tool server `notes` in test.json: there is no such field; did you mean `command`?",
            ),
            (
                r#"{"command": "x", "colour": "red"}"#,
                "invalid `colour` of the tool server `notes` in test.json: there is no such field",
            ),
            (r#"{"command": 5}"#, "invalid `command` of the tool server `notes` in test.json: it must be a string"),
            (r#"{"command": ""}"#, "invalid `command` of the tool server `notes` in test.json: it is empty"),
            (
                r#"{"command": "x", "args": "a"}"#,
                "invalid `args` of the tool server `notes` in test.json: it must be a list of strings",
            ),
            (
                r#"{"command": "x", "args": [1]}"#,
                "invalid `args` of the tool server `notes` in test.json: each argument must be a string",
            ),
            (
                r#"{"command": "x", "env": {"A": 1}}"#,
                "invalid `env.A` of the tool server `notes` in test.json: it must be a string",
            ),
            (
                r#"{"command": "x", "url": "https://a"}"#,
                "invalid `url` of the tool server `notes` in test.json: a server with a `command` has no such field",
            ),
            (r#"{"type": "http"}"#, "invalid `url` of the tool server `notes` in test.json: it is missing"),
            (
                r#"{"type": "http", "url": "file:///x"}"#,
                "invalid `url` of the tool server `notes` in test.json: it must start with https:// or http://",
            ),
            (
                r#"{"type": "http", "url": "https://a", "headers": {"Host": "b"}}"#,
                "invalid `headers.Host` of the tool server `notes` in test.json: this header is set by the protocol; remove it",
            ),
            (
                r#"{"disabled": 1, "command": "x"}"#,
                "invalid `disabled` of the tool server `notes` in test.json: it must be true or false",
            ),
            (r"{}", "invalid `command` of the tool server `notes` in test.json: it is missing"),
        ];
        for (fields, expected) in cases {
            assert_eq!(refusal(&entry(fields)), expected);
        }
        let old = refusal(&entry(r#"{"type": "sse", "url": "https://a/sse"}"#));
        assert!(old.contains("use `http` where") && old.contains("`mcp-remote`"), "{old}");
    }

    #[test]
    fn s10_headers_go_over_tls_or_stay_on_this_machine() {
        let fields = |url: &str, headers: &str| format!(r#"{{"type": "http", "url": "{url}", "headers": {headers}}}"#);
        let key = r#"{"Authorization": "Bearer ${TOKEN}"}"#;
        for (url, headers, is_fine) in [
            ("https://example.org/mcp", key, true),
            ("http://127.0.0.1:1/mcp", key, true),
            ("http://[::1]:1/mcp", key, true),
            ("http://localhost/mcp", key, true),
            ("http://example.org/mcp", "{}", true),
            ("http://example.org/mcp", r#"{"X-Team": ""}"#, true),
            ("http://example.org/mcp", key, false),
            ("http://10.0.0.1/mcp", r#"{"X-Team": "a"}"#, false),
            ("http://localhost.example.org/mcp", key, false),
            ("http://me:hush@example.org/mcp", "{}", false),
        ] {
            let read = McpConfig::parse(&entry(&fields(url, headers)), "test.json").map_err(|error| error.to_string());
            let expected = read
                .as_ref()
                .err()
                .is_none_or(|why| why.contains("would go there unencrypted") && !why.contains("hush"));
            assert!(read.is_ok() == is_fine && expected, "{url} {headers}: {read:?}");
            let map: BTreeMap<String, String> = serde_json::from_str(headers).unwrap();
            let sent = crate::http::Endpoint::new(url, &map, "test", None);
            assert_eq!(sent.is_ok(), is_fine, "{url} {headers}");
        }
    }

    #[test]
    fn a_client_without_a_person_is_read_and_its_secret_is_shown_nowhere() {
        let fields = r#"{"type": "http", "url": "https://a.example/mcp", "client_credentials": {"id": "ua-${X}", "secret": "${secret:CRM}",
            "token_url": "https://b.example/token", "scope": "read  write", "resource": "https://a.example/",
            "auth_method": "client_secret_post", "private_network": true}}"#;
        let config = McpConfig::parse(&entry(fields), "test.json").unwrap();
        let expanded = config.expand(|name| Some(format!("hush-{name}"))).unwrap();
        let reach = &expanded.servers[0].1;
        let Reach::Http { client: Some(client), .. } = reach else { panic!("{reach:?}") };
        let expected = ClientCredentials {
            id: "ua-hush-X".into(),
            secret: ClientSecret::Shared("hush-secret:CRM".into()),
            token_url: Some("https://b.example/token".into()),
            scopes: vec!["read".into(), "write".into()],
            resource: Some("https://a.example/".into()),
            proof: Some(ClientProof::Post),
            private_network: true,
        };
        assert_eq!(**client, expected);
        assert!(!format!("{reach:?}").contains("hush-secret"), "{reach:?}");
        assert_eq!(reach.secrets("crm"), [("client secret of crm".to_owned(), "hush-secret:CRM".to_owned())]);
    }

    #[test]
    fn a_private_key_of_a_client_is_read_and_shown_nowhere() {
        let of = |fields: &str| {
            let fields =
                format!(r#"{{"type": "http", "url": "https://a.example/mcp", "client_credentials": {fields}}}"#);
            let config = McpConfig::parse(&entry(&fields), "test.json").unwrap();
            let mut config = config.expand(|name| Some(format!("/hush/{name}/and-more-than-eight"))).unwrap();
            let (_, reach) = config.servers.remove(0);
            let Reach::Http { client: Some(client), .. } = &reach else { panic!("{reach:?}") };
            (client.secret.clone(), client.proof, reach)
        };
        let key = |from, id: Option<&str>, audience: Option<&str>| {
            ClientSecret::Key(ClientKey { from, id: id.map(str::to_owned), audience: audience.map(str::to_owned) })
        };
        let (secret, proof, reach) =
            of(r#"{"id": "a", "private_key": "${secret:KEY}", "key_id": "k1", "audience": "https://b.example",
                "token_url": "https://b.example/token", "auth_method": "private_key_jwt"}"#);
        let pem = "/hush/secret:KEY/and-more-than-eight";
        assert!(secret == key(KeySource::Text(pem.into()), Some("k1"), Some("https://b.example")) && proof.is_none());
        assert!(reach.secrets("crm").contains(&("private key of crm".to_owned(), pem.to_owned())));
        assert!(!format!("{reach:?}").contains("hush"), "{reach:?}");
        // The file is read by who signs, and not to find out what is in it.
        let (secret, _, reach) = of(r#"{"id": "a", "private_key_file": "${X}/key.pem"}"#);
        assert!(secret == key(KeySource::File("/hush/X/and-more-than-eight/key.pem".into()), None, None));
        assert!(reach.secrets("crm").is_empty());
    }

    #[test]
    fn a_wrong_field_of_a_client_is_named() {
        let http = |url: &str, more: &str, client: &str| {
            refusal(&entry(&format!(r#"{{"type": "http", "url": "{url}", {more}"client_credentials": {client}}}"#)))
        };
        let of = |client: &str| http("https://a", "", client);
        for (client, field, why) in [
            ("5", "client_credentials", "an object with `id`"),
            (r#"{"secret": "s"}"#, "client_credentials.id", "it is missing"),
            (r#"{"id": "a", "secret": " "}"#, "client_credentials.secret", "it is empty"),
            (r#"{"id": 5, "secret": "s"}"#, "client_credentials.id", "a string"),
            (r#"{"id": "a", "secret": "s", "scopes": "x"}"#, "client_credentials.scopes", "did you mean `scope`?"),
            (r#"{"id": "a", "secret": "s", "token_url": "http://b/t"}"#, "client_credentials.token_url", "https://"),
            (r#"{"id": "a", "secret": "s", "resource": "a#b"}"#, "client_credentials.resource", "whole address"),
            (r#"{"id": "a", "secret": "s", "auth_method": "x"}"#, "client_credentials.auth_method", "`x` is neither"),
            (r#"{"id": "a"}"#, "client_credentials.secret", "a `private_key_file` or a `private_key`"),
            (r#"{"id": "a", "secret": "s", "private_key": "k"}"#, "client_credentials", "keep one of them"),
            (r#"{"id": "a", "private_key_file": "/k", "private_key": "k"}"#, "client_credentials", "keep one of them"),
            (r#"{"id": "a", "private_key_file": "k.pem"}"#, "client_credentials.private_key_file", "the whole path"),
            (r#"{"id": "a", "secret": "s", "key_id": "k"}"#, "client_credentials.key_id", "this one has a `secret`"),
            (
                r#"{"id": "a", "secret": "s", "audience": "k"}"#,
                "client_credentials.audience",
                "this one has a `secret`",
            ),
            (
                r#"{"id": "a", "private_key": "k", "audience": "https://b.example"}"#,
                "client_credentials.audience",
                "it needs `token_url`",
            ),
            (
                r#"{"id": "a", "secret": "s", "auth_method": "private_key_jwt"}"#,
                "client_credentials.auth_method",
                "is for a client with a `private_key_file`",
            ),
            (
                r#"{"id": "a", "private_key": "k", "auth_method": "client_secret_post"}"#,
                "client_credentials.auth_method",
                "a private key is never sent",
            ),
        ] {
            let said = of(client);
            assert!(said.contains(&format!("invalid `{field}` of the tool server `notes`")), "{said}");
            assert!(said.contains(why), "{said}");
        }
        let fine = r#"{"id": "a", "secret": "s"}"#;
        assert!(http("http://a.example/", "", fine).contains("unencrypted"));
        assert!(http("https://a", r#""headers": {"authorization": "x"}, "#, fine).contains("keep one of the two"));
        let stdio = refusal(&entry(&format!(r#"{{"command": "x", "client_credentials": {fine}}}"#)));
        assert!(stdio.contains("a server with a `command` has no such field"), "{stdio}");
        let two = format!(
            r#"{{"mcpServers": {{"a": {{"type": "http", "url": "https://a", "client_credentials": {fine}}},
                "b": {{"type": "http", "url": "https://a"}}}}}}"#
        );
        assert!(refusal(&two).contains("the servers `a` and `b` have one `url` and not the same"));
    }

    #[test]
    fn names_that_would_blur_tool_names_are_refused() {
        for name in ["", "a__b", "a.b", "a b", "ua", "ua_person", "ua_agents", "name-that-is-longer-than-thirty-two"] {
            let text = format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
            let error = McpConfig::parse(&text, "test.json").unwrap_err();
            assert!(matches!(error, McpError::Name { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn a_doubled_server_is_refused() {
        let text = r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#;
        assert_eq!(refusal(text), "invalid tool servers in test.json: the server `a` is defined twice");
    }

    #[test]
    fn a_file_without_servers_is_refused() {
        assert!(refusal("{}").contains("mcpServers"));
        assert!(refusal("[").starts_with("invalid tool servers in test.json: "));
    }

    #[test]
    fn references_are_expanded_where_values_stand_and_an_unset_one_is_named() {
        let text =
            entry(r#"{"command": "${NOT_HERE}", "args": ["a${X}b${X}", "$X ${} ${1} ${open"], "env": {"K": "${X}"}}"#);
        let config = McpConfig::parse(&text, "test.json").unwrap();
        let expanded = config.clone().expand(|name| (name == "X").then(|| "${Y}".to_owned())).unwrap();
        let Reach::Stdio { command, args, env, .. } = &expanded.servers[0].1 else { panic!("stdio") };
        assert_eq!(command, "${NOT_HERE}");
        assert_eq!(args, &["a${Y}b${Y}", "$X ${} ${1} ${open"]);
        assert_eq!(env["K"], "${Y}");
        let error = config.expand(|_| None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot expand `${X}` in `args` of the tool server `notes`: set the variable X, or remove the reference"
        );
    }

    #[test]
    fn what_a_text_refers_to_is_listed() {
        assert_eq!(references("a ${X} $Y ${secret:Z}${1} ${open ${X}"), ["X", "secret:Z", "X"]);
    }

    #[test]
    fn debug_text_shows_no_values() {
        let env = BTreeMap::from([("API_KEY".to_owned(), "hush".to_owned())]);
        let reach = Reach::Stdio { command: "x".into(), args: vec!["--token=hush".into()], env, cwd: None };
        let shown = format!("{reach:?}");
        assert!(shown.contains("API_KEY") && !shown.contains("hush"), "{shown}");
    }
}
