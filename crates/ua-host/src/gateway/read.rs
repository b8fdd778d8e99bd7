//! The files that a broker was made from, and those of them that say something else by now.
//!
//! A broker keeps what it read when it started. Whoever changed a file, and looks how the gateway stands, is told there that it is not in effect yet.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::config::{self, GatewayConfig};
use crate::host::Host;
use crate::policies;

/// What of the user's configuration a broker reads.
const OF_USER: [&str; 3] = ["config.toml", "policy.toml", "secrets.toml"];
/// The largest such file that is compared.
const MOST: u64 = 16 * 1024 * 1024;

/// The files that a broker of this folder is made from, each with the digest of what it says; `None` of one that is not there.
pub(super) fn files(host: &Host, root: &Path) -> BTreeMap<String, Option<String>> {
    // What is wrong with it is told by whoever makes a broker of it.
    let config = GatewayConfig::read(root).unwrap_or_default();
    let servers = config.servers.unwrap_or_else(|| root.join(config::SERVERS));
    let named = policies::configured(host.settings()).unwrap_or_default();
    let of_user = OF_USER.iter().filter_map(|name| host.settings().user_place(name));
    let all = [root.join(config::FILE), servers].into_iter().chain(config.policies).chain(named).chain(of_user);
    all.map(|file| (file.to_string_lossy().into_owned(), digest(&file))).collect()
}

fn digest(file: &Path) -> Option<String> {
    ua_files::read_text(file, MOST).ok().map(|text| ua_core::sha256(text).to_hex())
}

/// What a person does about it.
pub const READ_AGAIN: &str =
    "`ua gateway restart` has it read again, once calls under way have finished, or after half a minute";

/// Each file that says something else than when the broker read it that says this of itself, in a sentence. Nothing of one that ends: the next one
/// reads it.
pub fn changed_since(status: &Value) -> Vec<String> {
    if status["is_ending"] == true {
        return Vec::new();
    }
    let files = status["made_from"].as_object().into_iter().flatten();
    let changed = files.filter(|(file, read)| digest(Path::new(file)).as_deref() != read.as_str());
    changed.map(|(file, _)| format!("{file} has changed since the broker read it, and is not in effect yet")).collect()
}
