//! What a broker's environment is made of.
//!
//! One broker serves all clients of a user, and whichever client comes first has its bridge start it. What that client's entry, or the checkout that it
//! works in, puts into the environment is the business of its own tool server alone: it must not decide how the calls of all others are classified,
//! nor where they are sent. So a broker is given a few variables that describe the user's session, and what `gateway.toml` says under `[env]`. Which
//! folders and programs are the user's is as it was in the last command that a person gave.
//!
//! `ua gateway serve` in the foreground is a service of its own, and has the environment that it is run in.

use std::collections::BTreeMap;
use std::path::Path;

use ua_files::Folder;

use crate::error::HostError;
use crate::gateway::GatewayConfig;
use crate::settings::{SETTINGS, Settings};
use ua_core::ShowPath as _;

/// What describes the session, whoever starts the broker.
const SESSION: [&str; 17] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
];
/// What says where the user's files and programs are.
const PLACES: [&str; 4] = ["HOME", "PATH", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];
/// What decides where requests go and whom they believe, which no setting of ours says.
const NETWORK: [&str; 10] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Says where runs are, which a broker is told by its `--root`.
const ROOT: &str = "UA_ROOT";
/// Names a database in a file.
const DATABASE_FILE: &str = "UA_RUNTIME_DB_PATH";
/// What names a database.
const DATABASES: [&str; 2] = ["UA_DATABASE_URL", DATABASE_FILE];
/// Where the places are noted, in the gateway's folder.
pub(super) const NOTE: &str = "places.json";
/// No note is longer.
const MOST: u64 = 256 * 1024;

/// The environment of the broker of this folder.
pub(super) fn of_broker(settings: &Settings, root: &Path, config: &GatewayConfig) -> BTreeMap<String, String> {
    let named = |names: &[&str]| -> BTreeMap<String, String> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), settings.of_environment(name)?))).collect()
    };
    let mut environment = named(&SESSION);
    environment.extend(noted(root).unwrap_or_else(|| named(&PLACES)));
    environment.extend(config.env.iter().map(|(name, said)| (name.clone(), own(root, name, said))));
    environment
}

/// Notes the places of this process, which a person started: the next broker has them, whoever starts it.
pub(super) fn note(settings: &Settings, root: &Path) {
    let places: BTreeMap<&str, String> =
        PLACES.into_iter().filter_map(|name| Some((name, settings.of_environment(name)?))).collect();
    let text = serde_json::to_vec(&places).unwrap_or_default();
    let written = Folder::make(root).and_then(|root| root.replace(NOTE, &text));
    if let Err(error) = written {
        tracing::debug!(%error, "where the user's files and programs are was not noted");
    }
}

fn noted(root: &Path) -> Option<BTreeMap<String, String>> {
    let text = Folder::open(root).ok()?.read(NOTE, MOST).ok()?;
    let places: BTreeMap<String, String> = serde_json::from_slice(&text).ok()?;
    Some(places.into_iter().filter(|(name, _)| PLACES.contains(&name.as_str())).collect())
}

/// The settings by which the database of the broker of this folder is found, where its file says which that is: whoever looks at what it wrote, or
/// answers what it asks, has to have the same, whatever their own environment says. `None` where the file says nothing of it. What the command line
/// says counts more.
///
/// # Errors
/// The file seems to say it, and cannot be understood.
pub(crate) fn with_database(settings: &Settings, root: &Path) -> Result<Option<Settings>, HostError> {
    if DATABASES.into_iter().any(|name| settings.is_by_flag(name)) {
        return Ok(None);
    }
    let said = GatewayConfig::said_of(root, &DATABASES)?;
    if said.is_empty() {
        return Ok(None);
    }
    // A broker is given no other: what this environment names beside it is for other runs.
    let with =
        |settings: Settings, name: &str| settings.in_place_of(name, said.get(name).map(|said| own(root, name, said)));
    Ok(Some(DATABASES.into_iter().fold(settings.clone(), with)))
}

/// What a variable is to a broker: its paths begin at its folder, where `gateway.toml` is.
pub(super) fn own(root: &Path, name: &str, said: &str) -> String {
    let setting = SETTINGS.iter().find(|setting| setting.variable == name);
    let whole = |path: &str| root.join(path).to_string_lossy().into_owned();
    setting.map_or_else(|| said.to_owned(), |setting| setting.kind.with_paths(said, whole))
}

/// Refuses to start a broker with another database than this environment names: the one would not know what the other has.
pub(super) fn is_of_its_database(settings: &Settings, root: &Path, config: &GatewayConfig) -> Result<(), HostError> {
    let other = DATABASES.into_iter().find(|name| {
        let here = settings.of_environment(name);
        here.is_some() && here != config.env.get(*name).map(|said| own(root, name, said))
    });
    let Some(name) = other else { return Ok(()) };
    let file = root.join(super::CONFIG_FILE);
    Err(HostError::usage(format!("the broker would not use the database that {name} names: clients start it, and it takes nothing from their environments"))
        .hint(format!(
            "name the database where every broker finds it: `database_url` in your config.toml, or {name} under [env] in {}",
            file.shown()
        )))
}

/// What the names of variables begin with that are for whoever asks a model. A broker asks none, and a client has them for itself.
const MODELS: [&str; 2] = ["ANTHROPIC_", "OPENAI_"];

/// The variables of this process that would say something to a broker, and that none is given.
pub(super) fn withheld(settings: &Settings, config: &GatewayConfig) -> Vec<String> {
    let ours = SETTINGS.iter().map(|setting| setting.variable).filter(|name| *name != ROOT);
    let said = ours.chain(NETWORK).filter(|name| settings.of_environment(name).is_some()).map(str::to_owned);
    let is_for_models = |name: &String| MODELS.iter().any(|prefix| name.starts_with(prefix));
    let said = said.filter(|name| !is_for_models(name)).chain(settings.secrets_of_environment());
    said.filter(|name| !config.env.contains_key(name)).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;
    use crate::env::Process;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(Process { variables, folder: None, program: None })
    }

    #[test]
    fn no_client_decides_for_the_others_by_its_environment() {
        let root = tempfile::tempdir().unwrap();
        let theirs = [
            ("HOME", "/home/ann"),
            ("PATH", "/checkout/bin"),
            ("XDG_CONFIG_HOME", "/checkout/config"),
            ("UA_READ_ONLY_ALLOWLIST", "*"),
            ("HTTPS_PROXY", "http://evil.test"),
            ("LD_PRELOAD", "/checkout/x.so"),
            ("LANG", "C.UTF-8"),
        ];
        let (theirs, own) =
            (settings(&theirs), settings(&[("HOME", "/home/ann"), ("PATH", "/bin"), ("UA_POLICY", "p")]));
        let config = GatewayConfig::default();
        let names = |environment: &BTreeMap<String, String>| environment.keys().cloned().collect::<Vec<_>>();
        // Before a person gave a command there, the places are those of the first client.
        let first = of_broker(&theirs, root.path(), &config);
        assert_eq!(names(&first), ["HOME", "LANG", "PATH", "XDG_CONFIG_HOME"]);
        note(&own, root.path());
        let next = of_broker(&theirs, root.path(), &config);
        assert_eq!(names(&next), ["HOME", "LANG", "PATH"]);
        assert_eq!(next["PATH"], "/bin");
        // What the file says is given in any case.
        let said = [("HTTPS_PROXY".to_owned(), "http://proxy.test".to_owned())].into();
        let config = GatewayConfig { env: said, ..GatewayConfig::default() };
        assert_eq!(of_broker(&theirs, root.path(), &config)["HTTPS_PROXY"], "http://proxy.test");
        assert_eq!(withheld(&theirs, &config), ["UA_READ_ONLY_ALLOWLIST"]);
        assert_eq!(withheld(&own, &config), ["UA_POLICY"]);
        assert_eq!(withheld(&settings(&[("UA_SECRET_CRM", "x")]), &config), ["UA_SECRET_CRM"]);
        // Nobody is told to write the key of a model down for what asks none.
        let model = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "https://x.test"), ("OPENAI_MODEL", "m")];
        assert_eq!(withheld(&settings(&model), &config), [""; 0]);
        let elsewhere = settings(&[("UA_DATABASE_URL", "postgres://a/b")]);
        let config = GatewayConfig::default();
        assert!(is_of_its_database(&theirs, root.path(), &config).is_ok());
        assert!(is_of_its_database(&elsewhere, root.path(), &config).is_err());
        let said = [("UA_DATABASE_URL".to_owned(), "postgres://a/b".to_owned())].into();
        let config = GatewayConfig { env: said, ..GatewayConfig::default() };
        assert!(is_of_its_database(&elsewhere, root.path(), &config).is_ok());
        // Whoever looks has the one that the file names, and no other that their own environment names beside it.
        std::fs::write(root.path().join("gateway.toml"), "[env]\nUA_RUNTIME_DB_PATH = \"db/own.db\"\n[htpp]\n")
            .unwrap();
        let looks = with_database(&elsewhere, root.path()).unwrap().unwrap();
        let file = root.path().join("db/own.db").to_string_lossy().into_owned();
        assert_eq!((looks.var("UA_DATABASE_URL"), looks.var("UA_RUNTIME_DB_PATH")), (None, Some(file.clone())));
        let given = settings(&[("UA_RUNTIME_DB_PATH", file.as_str())]);
        let said = [("UA_RUNTIME_DB_PATH".to_owned(), "db/own.db".to_owned())].into();
        let config = GatewayConfig { env: said, ..GatewayConfig::default() };
        assert!(is_of_its_database(&given, root.path(), &config).is_ok(), "it is the same");
        let flag = settings(&[]).with("UA_DATABASE_URL", Some("postgres://a/b".to_owned()));
        assert!(with_database(&flag, root.path()).unwrap().is_none(), "the command line says more");
        std::fs::write(root.path().join("gateway.toml"), "hold_wait = [\n").unwrap();
        assert!(with_database(&elsewhere, root.path()).unwrap().is_none(), "it names none");
        std::fs::write(root.path().join("gateway.toml"), "[env\nUA_DATABASE_URL = \"postgres://a:hush@b/c\"\n")
            .unwrap();
        let wrong = with_database(&theirs, root.path()).unwrap_err().to_string();
        assert!(wrong.contains("gateway.toml") && !wrong.contains("hush"), "{wrong}");
        // A note that somebody else wrote names no more than places.
        std::fs::write(root.path().join(NOTE), r#"{"UA_POLICY": "x", "HOME": "/h"}"#).unwrap();
        assert_eq!(names(&of_broker(&own, root.path(), &GatewayConfig::default())), ["HOME"]);
    }
}
