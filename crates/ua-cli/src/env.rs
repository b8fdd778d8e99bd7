//! The environment: the one place that reads it.

use std::collections::BTreeMap;

/// A variable of the environment, or what the configuration files say in its place ([`crate::config`]).
pub(crate) fn var(name: &str) -> Option<String> {
    of_process(name).or_else(|| crate::config::value(name))
}

/// A variable of the environment alone, unless it is missing, empty or not text.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(crate) fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Every variable whose name begins with one of `prefixes`.
pub(crate) fn beginning_with(prefixes: &[&str]) -> BTreeMap<String, String> {
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Variables that tool servers may see; everything else, keys and tokens above all, stays with us.
const PASSED_ON: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// The environment a tool server starts with, before its own configuration is added.
pub(crate) fn for_tool_servers() -> BTreeMap<String, String> {
    PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), var(name)?))).collect()
}
