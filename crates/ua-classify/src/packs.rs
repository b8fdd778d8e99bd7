//! Shipped policy packs: what is known of the tools of one server that many people use.
//!
//! Durable Jobs v1 spec §7.3 (known tools). A pack is a policy file with a head; each of its rules says where it was read. Which server is
//! judged by which pack is the word of whoever configures it, never of the server: a pack is *vouched for* where the configuration names
//! the package, the program or the address that it is about. By its name in the configuration alone a server gets of a pack what raises
//! caution, and nothing else. docs/adr/0022 says why.
//!
//! Invariant: without somebody's word for it, no tool has a lower class than its name and its annotations give it, and no call of it is
//! sent again or settled by what a pack says.
//! Proved by: `tests/it/classify/packs.rs`.

use std::sync::{LazyLock, OnceLock};

use toml::de::DeValue;

use crate::error::PolicyError;
use crate::parse::{Origin, Place, parse_toml};
use crate::rule::{PolicyRules, Rule};

/// The table that a pack has beside its rules.
const HEAD: &str = "pack";

/// The files, by name: `packs/NAME.toml`.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../packs/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "agentmail",
    "asana",
    "aws-api",
    "aws-cloudwatch",
    "aws-pricing",
    "aws-s3-tables",
    "basic-memory",
    "brave-search",
    "browserbase",
    "cloudflare",
    "composio",
    "context7",
    "discord",
    "docker",
    "fetch",
    "figma",
    "filesystem",
    "git",
    "github",
    "gmail",
    "google-calendar",
    "google-maps",
    "grafana",
    "gtasks",
    "homeassistant",
    "hubspot",
    "intercom",
    "kubernetes",
    "linear",
    "linear-jerhadf",
    "mcp-atlassian",
    "mcp-sqlite",
    "memory",
    "mysql-benborla",
    "notion",
    "obsidian",
    "pagerduty",
    "perplexity",
    "playwright",
    "postgres",
    "quickbooks",
    "redis",
    "s3",
    "sendgrid",
    "sentry",
    "sequentialthinking",
    "slack",
    "sms",
    "square",
    "stripe",
    "supabase",
    "tavily",
    "terraform",
    "time",
    "trello",
    "whatsapp",
];

static PACKS: LazyLock<Result<Vec<Pack>, PolicyError>> =
    LazyLock::new(|| FILES.iter().map(|(id, text)| Pack::read(id, text)).collect());

/// One pack.
#[derive(Debug)]
pub struct Pack {
    id: &'static str,
    text: &'static str,
    version: String,
    about: String,
    source: String,
    packages: Vec<String>,
    servers: Vec<String>,
    rules: OnceLock<Result<PolicyRules, PolicyError>>,
    cautious: OnceLock<PolicyRules>,
}

impl Pack {
    /// Every pack, by name.
    ///
    /// # Errors
    /// Only when a file in the program is damaged.
    pub fn all() -> Result<&'static [Self], PolicyError> {
        PACKS.as_deref().map_err(Clone::clone)
    }

    /// The pack of this name.
    ///
    /// # Errors
    /// As of [`Pack::all`].
    pub fn named(id: &str) -> Result<Option<&'static Self>, PolicyError> {
        Ok(Self::all()?.iter().find(|pack| pack.id == id))
    }

    /// The pack about a package, as [`Pack::packages`] names them.
    ///
    /// # Errors
    /// As of [`Pack::all`].
    pub fn about_package(package: &str) -> Result<Option<&'static Self>, PolicyError> {
        Ok(Self::all()?.iter().find(|pack| pack.packages.iter().any(|known| is_same(known, package))))
    }

    /// The pack whose server is usually configured under this name.
    pub(crate) fn about_server(server: &str) -> Option<&'static Self> {
        let packs = PACKS.as_ref().ok()?;
        packs.iter().find(|pack| pack.servers.iter().any(|known| known == server))
    }

    /// Its name.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// The day on which it was last compared with the server, as `2026-11-23`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What it is about, in a few words.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Where the server can be read.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The packages, programs and addresses that it is about: `npm:NAME`, `pypi:NAME`, `python:MODULE`, `oci:IMAGE`, `program:NAME`,
    /// `host:NAME`.
    pub fn packages(&self) -> &[String] {
        &self.packages
    }

    /// Names that its server usually has in a configuration.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The file, as it was written.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// What a run is pinned to of it. That answers bring nothing in is left out: it was taken for granted of every effect before packs said
    /// it, so a run that began then is resumed.
    pub(crate) fn pinned_text(&self) -> String {
        self.text.replace("reads = []\n", "")
    }

    /// How many rules it has.
    ///
    /// # Errors
    /// Only when the file in the program is damaged.
    pub fn rule_count(&self) -> Result<usize, PolicyError> {
        Ok(self.rules()?.len())
    }

    pub(crate) fn rules(&self) -> Result<&PolicyRules, PolicyError> {
        let read = || {
            let rules = PolicyRules::shipped(self.text, &format!("the pack {}", self.id), Some(HEAD))?;
            let sourced = rules.rules.iter().find(|rule| rule.source.is_none());
            match sourced {
                Some(rule) => Err(PolicyError::Field {
                    file: rules.file.clone(),
                    line: 1,
                    rule: format!("rule {:?}", rule.id),
                    field: "source".to_owned(),
                    why: "say where this was read".to_owned(),
                }),
                None => Ok(rules),
            }
        };
        self.rules.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// What of it may be believed of a server that nobody vouches for.
    pub(crate) fn cautious_rules(&self) -> Option<&PolicyRules> {
        let rules = self.rules().ok()?;
        Some(self.cautious.get_or_init(|| {
            let cautious =
                rules.rules.iter().map(|rule| Rule { settings: rule.settings.only_caution(), ..rule.clone() });
            PolicyRules { rules: cautious.collect(), ..rules.clone() }
        }))
    }

    /// Reads the head alone: the rules of most packs are never needed.
    fn read(id: &'static str, text: &'static str) -> Result<Self, PolicyError> {
        let head = text.find("\n[[rule]]").map_or(text, |end| &text[..end]);
        let file = format!("the pack {id}");
        let document = parse_toml(head, &file)?;
        let top = Place::top(&file, head, Origin::Shipped);
        let mut pack = Self {
            id,
            text,
            version: String::new(),
            about: String::new(),
            source: String::new(),
            packages: Vec::new(),
            servers: Vec::new(),
            rules: OnceLock::new(),
            cautious: OnceLock::new(),
        };
        for field in top.fields(document.get_ref()) {
            let DeValue::Table(table) = field.value.get_ref() else {
                return Err(field.error("a pack begins with the table [pack]"));
            };
            if field.name != HEAD {
                return Err(field.error("a pack begins with the table [pack]"));
            }
            for field in top.fields(table) {
                match field.name {
                    "version" => pack.version = field.text()?,
                    "about" => pack.about = field.text()?,
                    "source" => pack.source = field.text()?,
                    "packages" => pack.packages = field.texts()?,
                    "servers" => pack.servers = field.texts()?,
                    _ => return Err(field.error("a pack has version, about, source, packages and servers")),
                }
            }
        }
        Ok(pack)
    }
}

/// Whether a package of a pack is the one that a configuration names. A host may stand for all hosts below it.
fn is_same(known: &str, named: &str) -> bool {
    match (known.strip_prefix("host:*."), named.strip_prefix("host:")) {
        (Some(domain), Some(host)) => {
            host == domain || host.strip_suffix(domain).is_some_and(|below| below.ends_with('.'))
        }
        _ => known == named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pack_can_be_read_and_says_where_it_comes_from() {
        let packs = Pack::all().unwrap();
        assert!(packs.len() >= 40, "{}", packs.len());
        for pack in packs {
            assert!(!pack.rules().unwrap().is_empty(), "{}", pack.id);
            let is_day = pack.version.len() == 10 && pack.version.split('-').count() == 3;
            assert!(is_day && pack.source.starts_with("https://") && !pack.about.is_empty(), "{}", pack.id);
            assert!(!pack.servers.is_empty(), "{}", pack.id);
            for package in &pack.packages {
                let (kind, name) = package.split_once(':').unwrap();
                assert!(
                    ["npm", "pypi", "python", "oci", "program", "host"].contains(&kind) && !name.is_empty(),
                    "{package}"
                );
            }
        }
        assert!(FILES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn the_regular_expressions_of_shipped_rules_compile() {
        for pack in Pack::all().unwrap() {
            PolicyRules::read(pack.text, pack.id, Some(HEAD), Origin::Anybody).unwrap();
        }
        PolicyRules::parse(crate::classifier::SHIPPED, "shipped").unwrap();
    }

    #[test]
    fn a_run_is_pinned_to_everything_of_a_pack_but_that_answers_bring_nothing_in() {
        let [said, unsaid] = ["class = 1\nreads = []\non = 2\n", "class = 1\non = 2\n"].map(|text| {
            let head = "[pack]\nversion = \"2026-11-23\"\n\n[[rule]]\n";
            let text: &'static str = String::leak(format!("{head}{text}"));
            Pack::read("x", text).unwrap().pinned_text()
        });
        assert_eq!(said, unsaid);
        // Whatever else a pack says about answers is pinned.
        assert!(Pack::all().unwrap().iter().all(|pack| !pack.pinned_text().contains("reads = [")));
    }

    #[test]
    fn no_name_is_claimed_by_two_packs() {
        let packs = Pack::all().unwrap();
        let mut names: Vec<&String> = packs.iter().flat_map(|pack| pack.servers.iter().chain(&pack.packages)).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_a_pack_asks_is_a_read_of_the_same_server_and_takes_what_it_is_asked() {
        let mut probes = 0;
        for pack in Pack::all().unwrap() {
            let chosen = [("x".to_owned(), Some(pack.id.to_owned()))].into();
            let classifier = crate::Classifier::shipped().unwrap().with_packs(&chosen).unwrap();
            for rule in &pack.rules().unwrap().rules {
                let Some(probe) = &rule.settings.probe else { continue };
                probes += 1;
                let asked = ua_core::ToolSpec {
                    name: ua_core::ToolName::qualified(ua_core::ToolNamespace::Mcp, "x", &probe.tool),
                    description: String::new(),
                    input_schema: serde_json::json!({"type": "object", "properties": probe.arguments}),
                    annotations: ua_core::ToolAnnotations::default(),
                };
                let class = classifier.classify(&asked, None).class;
                assert_eq!(class, ua_core::SideEffectClass::ReadOnly, "{}: {} asks {}", pack.id, rule.id, probe.tool);
                // What changes things as well would lose what it changes to a mark that is put where nothing was.
                let is_marked = matches!(&rule.settings.marker, Some(crate::rule::MarkerSetting::Mark(_)));
                let changes =
                    ["issue_write", "save_issue"].contains(&rule.selector.name.as_deref().unwrap_or_default());
                assert!(!(is_marked && changes), "{}: {}", pack.id, rule.id);
            }
        }
        assert!(probes > 20, "{probes}");
    }

    #[test]
    fn a_host_may_stand_for_those_below_it() {
        for (host, expected) in
            [("a.example.dev", true), ("example.dev", true), ("anexample.dev", false), ("example.dev.org", false)]
        {
            assert_eq!(is_same("host:*.example.dev", &format!("host:{host}")), expected, "{host}");
        }
        assert!(is_same("npm:a", "npm:a") && !is_same("npm:a", "pypi:a"));
    }
}
