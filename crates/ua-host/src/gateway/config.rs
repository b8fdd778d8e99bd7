//! `gateway.toml` in the gateway's folder: how long it waits, what clients may use, which policies hold, who comes over HTTP.
//!
//! Read strictly: a typing error would silently lift a budget, so an unknown name is an error that names the nearest one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};
use ua_broker::{Budget, BudgetSpan, ClientRules, Entries, EntrySpec, GatewayRules, Patience};
use ua_mcp::Reach;

use super::environment;
use crate::error::HostError;
use crate::hint::{self, Word};
use crate::host::Host;
use crate::mcp_files::{mcp_config, mcp_servers};
use crate::paths;
use crate::placed::{self, FileKind};
use crate::settings::{SETTINGS, ValueKind, believed, believed_as};
use crate::trust::ConfigFile;
use ua_core::ShowPath as _;

/// The file's name.
pub const FILE: &str = "gateway.toml";
/// The tool servers of clients over HTTP and of `--all`, where `servers` names no other file.
pub(super) const SERVERS: &str = "servers.json";
/// Who may come in over HTTP.
pub(crate) const TOKENS: &str = "tokens.json";

/// The largest such file that is read.
const MOST: u64 = 16 * 1024 * 1024;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayConfig {
    /// How long a request waits for a person; `None` when nothing is said.
    pub hold_wait: Option<Duration>,
    /// How long the broker stays without a client.
    pub idle_exit: Option<Duration>,
    /// Policy files, the strongest first, before those of the user.
    pub policies: Vec<PathBuf>,
    /// The file with the tool servers that a client only names.
    pub servers: Option<PathBuf>,
    /// Where clients come over HTTP.
    pub listen: Option<SocketAddr>,
    /// Clients and budgets.
    pub rules: GatewayRules,
    /// Variables of the broker's environment.
    pub env: BTreeMap<String, String>,
}

impl GatewayConfig {
    /// Reads the file in the gateway's folder; where there is none nothing is said.
    ///
    /// # Errors
    /// A sentence about the first thing that is not understood, with its place.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        let path = root.join(FILE);
        // Whoever can change these decides what is started, what it may do and who comes in.
        for file in [path.clone(), root.join(SERVERS), root.join(TOKENS)] {
            if file.exists() {
                believed(&file)?;
            }
        }
        let text = match ua_files::read_text(&path, MOST) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(paths::cannot_read("the configuration", &path, &error)),
        };
        let read = placed::Place::named(FileKind::Gateway, &path).with(text).parse(|text| {
            Self::parse(text, root).map_err(|why| {
                HostError::usage(format!("{}: {why}", path.shown())).hint([
                    hint::text("docs/guide/gateway.md has an example; "),
                    Word::NothingBegun,
                    hint::text(", because a wrong rule could lift a budget"),
                ])
            })
        })?;
        for (field, kind, file) in read.files(root) {
            let names = || format!("`{field}` in {} names {}", path.shown(), file.shown());
            believed_as(kind, &file).map_err(|error| error.and(&names()))?;
        }
        Ok(read)
    }

    /// The files that this names and that are there, each behind the field that does and the kind of its value: they decide as much as it
    /// does, and so do those that `[env]` hands to the broker.
    fn files(&self, root: &Path) -> Vec<(String, Option<ValueKind>, PathBuf)> {
        let of_env = self.env.iter().flat_map(|(name, said)| {
            let whole = environment::own(root, name, said);
            let setting = SETTINGS.iter().find(|setting| setting.variable == name.as_str());
            let paths: Vec<PathBuf> = match setting {
                Some(setting) => setting.kind.paths_in(&whole),
                // What only libraries and programs read (`SSL_CERT_FILE`).
                None => Some(PathBuf::from(whole)).filter(|path| path.is_absolute()).into_iter().collect(),
            };
            paths.into_iter().map(move |path| (format!("env.{name}"), setting.map(|setting| setting.kind), path))
        });
        let policies = self.policies.iter().map(|file| ("policies".to_owned(), None, file.clone()));
        let servers = self.servers.iter().map(|file| ("servers".to_owned(), None, file.clone()));
        policies.chain(servers).chain(of_env).filter(|(_, _, file)| file.is_file()).collect()
    }

    /// What `[env]` says of these variables, for whoever only looks at what a broker wrote: what else is wrong with the file is told by whoever starts
    /// one.
    ///
    /// # Errors
    /// The file seems to name one of them, and cannot be understood, or others may change it.
    pub(super) fn said_of(root: &Path, names: &[&str]) -> Result<BTreeMap<String, String>, HostError> {
        let path = root.join(FILE);
        let text = ua_files::read_text(&path, MOST).unwrap_or_default();
        if !names.iter().any(|name| text.contains(name)) {
            return Ok(BTreeMap::new());
        }
        believed(&path)?;
        let Ok(table) = text.parse::<Table>() else {
            // That says why, with the place.
            return Self::read(root).map(|read| read.env);
        };
        let env = table.get("env").and_then(Value::as_table);
        let said = |name: &&str| env?.get(*name)?.as_str().filter(|value| !value.trim().is_empty());
        Ok(names.iter().filter_map(|name| Some(((*name).to_owned(), said(name)?.to_owned()))).collect())
    }

    /// Reads the text of such a file; relative paths are below `root`. The error says what is wrong, and where.
    ///
    /// # Errors
    /// See there.
    pub fn parse(text: &str, root: &Path) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| ua_core::toml_fault(text, &error))?;
        let mut read = Self::default();
        let top = Place { path: String::new(), table: &table };
        top.only(&["hold_wait", "idle_exit", "policies", "servers", "http", "approvals", "client", "budget", "env"])?;
        read.hold_wait = top.span("hold_wait")?;
        read.idle_exit = top.span("idle_exit")?;
        read.policies = top.texts("policies")?.into_iter().map(|file| root.join(file)).collect();
        read.servers = top.text("servers")?.map(|file| root.join(file));
        if let Some(http) = top.table("http")? {
            http.only(&["listen"])?;
            let listen = http
                .text("listen")?
                .ok_or_else(|| http.wrong("listen", "is missing: for example \"127.0.0.1:7433\""))?;
            let address: SocketAddr = listen
                .parse()
                .map_err(|_| http.wrong("listen", "is not an address with a port, like \"127.0.0.1:7433\""))?;
            if !address.ip().is_loopback() {
                return Err(http.wrong("listen", "must be an address of this machine: 127.0.0.1 or [::1]"));
            }
            read.listen = Some(address);
        }
        if let Some(env) = top.table("env")? {
            for name in env.table.keys() {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
                    return Err(env.wrong(name, "is not a name of a variable"));
                }
                read.env.extend(env.text(name)?.map(|value| (name.clone(), value)));
            }
        }
        if let Some(approvals) = top.table("approvals")? {
            approvals.only(&["elicitation"])?;
            read.rules.elicitation = approvals.truth("elicitation")?.unwrap_or(true);
        }
        if let Some(clients) = top.table("client")? {
            for name in clients.table.keys() {
                let Some(client) = clients.table(name)? else { continue };
                client.only(&["patience", "elicitation"])?;
                let patience = match client.text("patience")?.as_deref() {
                    None => None,
                    Some("unlimited") => Some(Patience::Unlimited),
                    Some(_) => {
                        let span = client.span("patience").map_err(|why| format!("{why}, or \"unlimited\""))?;
                        span.map(Patience::Limited)
                    }
                };
                let rules = ClientRules { patience, elicitation: client.truth("elicitation")? };
                read.rules.clients.insert(name.clone(), rules);
            }
        }
        read.rules.budgets = top.tables("budget")?.iter().map(budget).collect::<Result<_, _>>()?;
        Ok(read)
    }

    /// The tool servers that a client only names, ready to be reached; none where the file is not there and nobody named one.
    ///
    /// # Errors
    /// The file cannot be read, or what it refers to is not there.
    pub fn entries(&self, host: &Host, root: &Path) -> Result<Entries, HostError> {
        let path = self.servers.clone().unwrap_or_else(|| root.join(SERVERS));
        if self.servers.is_none() && !path.exists() {
            return Ok(Entries::new());
        }
        believed(&path)?;
        let file = ConfigFile::named(path);
        let config = mcp_config(Some(&file))?;
        let given: BTreeMap<String, Vec<String>> = config
            .servers
            .iter()
            .map(|(name, reach)| {
                let names = match reach {
                    Reach::Stdio { env, .. } => env.keys().cloned().collect(),
                    Reach::Http { .. } => Vec::new(),
                };
                (name.clone(), names)
            })
            .collect();
        let servers = mcp_servers(host, Some(&file), config)?;
        let entry = |server: ua_mcp::ServerSpec| {
            let secret = given.get(&server.name).cloned().unwrap_or_default();
            let spec = match server.reach {
                Reach::Stdio { command, args, env, cwd } => EntrySpec {
                    command: std::iter::once(command).chain(args).collect(),
                    env,
                    secret,
                    cwd: cwd.map_or_else(
                        || root.to_string_lossy().into_owned(),
                        |cwd| root.join(cwd).to_string_lossy().into_owned(),
                    ),
                    ..EntrySpec::default()
                },
                Reach::Http { url, headers, client } => {
                    if let Some(client) = client {
                        host.logins().add_client(&server.name, &url, &client);
                    }
                    EntrySpec {
                        url: Some(url),
                        headers,
                        cwd: root.to_string_lossy().into_owned(),
                        ..EntrySpec::default()
                    }
                }
            };
            (server.name, spec)
        };
        Ok(servers.into_iter().map(entry).collect())
    }
}

fn budget(place: &Place<'_>) -> Result<Budget, String> {
    place.only(&["client", "server", "effect", "per", "calls"])?;
    let per = match place.text("per")?.as_deref() {
        Some("day") => BudgetSpan::Day,
        Some("session") => BudgetSpan::Session,
        Some(other) => return Err(place.wrong("per", &format!("is \"{other}\", but must be \"day\" or \"session\""))),
        None => return Err(place.wrong("per", "is missing: \"day\" or \"session\"")),
    };
    let calls = match place.table.get("calls") {
        Some(Value::Integer(calls)) => u32::try_from(*calls).ok(),
        Some(_) => None,
        None => return Err(place.wrong("calls", "is missing: how many calls may be made")),
    };
    let calls = calls.ok_or_else(|| place.wrong("calls", "must be a whole number that is not negative"))?;
    let (client, server, effect) = (place.text("client")?, place.text("server")?, place.text("effect")?);
    Ok(Budget { client, server, effect, per, calls })
}

/// A table and where it stands.
struct Place<'t> {
    path: String,
    table: &'t Table,
}

impl<'t> Place<'t> {
    fn named(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn wrong(&self, name: &str, why: &str) -> String {
        format!("`{}` {why}", self.named(name))
    }

    /// Refuses every other name.
    fn only(&self, known: &[&str]) -> Result<(), String> {
        let Some(other) = self.table.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
        Err(match ua_core::nearest(other, known.iter().copied()) {
            Some(nearest) => self.wrong(other, &format!("does not exist; did you mean `{nearest}`?")),
            None => self.wrong(other, &format!("does not exist; known fields are {}", known.join(", "))),
        })
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let Some(value) = self.table.get(name) else { return Ok(Vec::new()) };
        let texts = value.as_array().and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| self.wrong(name, "must be a list of strings"))
    }

    fn truth(&self, name: &str) -> Result<Option<bool>, String> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::Boolean(is_so)) => Ok(Some(*is_so)),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    fn span(&self, name: &str) -> Result<Option<Duration>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let seconds = match unit.trim() {
            "s" => Some(1),
            "m" | "min" => Some(60),
            "h" => Some(3_600),
            "d" => Some(86_400),
            _ => None,
        };
        let span = number.parse::<u64>().ok().zip(seconds).and_then(|(number, unit)| number.checked_mul(unit));
        let span = span.ok_or_else(|| {
            self.wrong(name, &format!("is \"{text}\", but must be a span like \"90s\", \"10m\" or \"2h\""))
        })?;
        Ok(Some(Duration::from_secs(span)))
    }

    fn table(&self, name: &str) -> Result<Option<Place<'t>>, String> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(Place { path: self.named(name), table })),
            Some(_) => Err(self.wrong(name, "must be a table")),
        }
    }

    fn tables(&self, name: &str) -> Result<Vec<Place<'t>>, String> {
        let Some(value) = self.table.get(name) else { return Ok(Vec::new()) };
        let all =
            value.as_array().ok_or_else(|| self.wrong(name, "must be a list of tables, each under `[[budget]]`"))?;
        let place = |(number, one): (usize, &'t Value)| {
            let table =
                one.as_table().ok_or_else(|| self.wrong(name, "must be a list of tables, each under `[[budget]]`"))?;
            Ok(Place { path: format!("{}[{}]", self.named(name), number + 1), table })
        };
        all.iter().enumerate().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
hold_wait = "5m"
idle_exit = "1h"
policies = ["gateway-policy.toml"]
servers = "/etc/servers.json"

[http]
listen = "127.0.0.1:7433"

[env]
HTTPS_PROXY = "http://proxy.test:3128"

[approvals]
elicitation = false

[client."my-agent"]
patience = "90s"
elicitation = true

[client.codex-mcp-client]
patience = "unlimited"

[[budget]]
effect = "email.send"
per = "day"
calls = 20

[[budget]]
client = "goose"
server = "bank"
per = "session"
calls = 0
"#;

    #[test]
    fn the_whole_file_is_read() {
        let read = GatewayConfig::parse(WHOLE, Path::new("/g")).unwrap();
        assert_eq!((read.hold_wait, read.idle_exit), (Some(Duration::from_mins(5)), Some(Duration::from_hours(1))));
        assert_eq!(read.policies, [PathBuf::from("/g/gateway-policy.toml")]);
        assert_eq!(read.servers, Some(PathBuf::from("/etc/servers.json")));
        assert_eq!(read.listen.unwrap().port(), 7433);
        assert!(!read.rules.may_decide("goose") && read.rules.may_decide("my-agent"));
        assert_eq!(read.rules.clients["codex-mcp-client"].patience, Some(Patience::Unlimited));
        assert_eq!(read.rules.clients["my-agent"].patience, Some(Patience::Limited(Duration::from_secs(90))));
        assert_eq!((read.rules.budgets.len(), read.rules.budgets[0].per), (2, BudgetSpan::Day));
        assert_eq!(read.env, [("HTTPS_PROXY".to_owned(), "http://proxy.test:3128".to_owned())].into());
        assert_eq!(GatewayConfig::parse("", Path::new("/g")), Ok(GatewayConfig::default()));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn no_file_that_the_gateways_file_names_is_believed_where_others_can_change_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let file = root.join("named");
        std::fs::write(&file, "").unwrap();
        for said in [
            "policies = [\"named\"]".to_owned(),
            "servers = \"named\"".to_owned(),
            "[env]\nUA_POLICY = \"/none:named\"".to_owned(),
            "[env]\nUA_PRICING = \"named\"".to_owned(),
            format!("[env]\nSSL_CERT_FILE = \"{}\"", file.display()),
        ] {
            std::fs::write(root.join(FILE), &said).unwrap();
            let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            mode(0o644);
            assert!(GatewayConfig::read(root).is_ok(), "{said}");
            mode(0o666);
            let refused = GatewayConfig::read(root).unwrap_err().to_string();
            assert!(refused.contains("other users can change it"), "{said}: {refused}");
            let field = said.trim_start_matches("[env]\n").split(' ').next().unwrap_or_default();
            assert!(refused.contains(&format!("{field}` in {} names ", root.join(FILE).shown())), "{said}: {refused}");
            mode(0o644);
            if crate::settings::shared_with_a_group(&file) {
                mode(0o664);
                assert!(GatewayConfig::read(root).is_err(), "{said}");
                mode(0o644);
                assert!(GatewayConfig::read(root).is_ok(), "{said}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_place() {
        for (text, why) in [
            ("hold_wiat = \"5m\"", "`hold_wiat` does not exist; did you mean `hold_wait`?"),
            ("zebra = 1", "known fields are hold_wait"),
            ("hold_wait = \"5 parsecs\"", "must be a span like"),
            ("[client.x]\npatience = \"forever\"", "or \"2h\", or \"unlimited\""),
            ("[env]\n\"A B\" = \"x\"", "`env.A B` is not a name of a variable"),
            ("[env]\nA = 1", "`env.A` must be a string"),
            ("hold_wait = 5", "`hold_wait` must be a string"),
            ("http = 1", "`http` must be a table"),
            ("[http]\nport = 1", "`http.port` does not exist"),
            ("[http]", "`http.listen` is missing"),
            ("[http]\nlisten = \"0.0.0.0:1\"", "an address of this machine"),
            ("[http]\nlisten = \"here\"", "not an address with a port"),
            ("[approvals]\nelicitations = true", "did you mean `elicitation`?"),
            ("[client.x]\npatiense = \"5s\"", "`client.x.patiense` does not exist; did you mean `patience`?"),
            ("[[budget]]\nper = \"day\"", "`budget[1].calls` is missing"),
            ("[[budget]]\ncalls = 3", "`budget[1].per` is missing"),
            ("[[budget]]\ncalls = 3\nper = \"week\"", "must be \"day\" or \"session\""),
            ("[[budget]]\ncalls = -3\nper = \"day\"", "not negative"),
            ("[budget]\ncalls = 3", "[[budget]]"),
            ("policies = \"x\"", "must be a list"),
            ("x = ", "line 1: "),
        ] {
            let refused = GatewayConfig::parse(text, Path::new("/g")).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
