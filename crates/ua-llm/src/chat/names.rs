//! Names and ids as this wire takes them.

use std::collections::BTreeSet;

use ua_core::{Message, Sha256, sha256};

use crate::request::ModelRequest;

/// The longest name of a function.
const LONGEST_NAME: usize = 64;

/// Hexadecimal digits that tell shortened names apart.
const DIGITS: usize = 8;

/// A tool's name as this wire takes it: one that is too long keeps its beginning and gets a digest of the whole.
pub(crate) fn wire_name(name: &str) -> String {
    if name.len() <= LONGEST_NAME || !name.is_ascii() {
        return name.to_owned();
    }
    let kept = LONGEST_NAME - DIGITS - 1;
    format!("{}_{}", &name[..kept], &sha256(name).to_hex()[..DIGITS])
}

/// The tool that a model means by `name`.
pub(crate) fn offered_name(name: String, request_tools: &[(String, String)]) -> String {
    request_tools.iter().find(|(wire, _)| *wire == name).map_or(name, |(_, own)| own.clone())
}

/// The tools of `request` whose names are shortened: the name on the wire, and the tool's own.
pub(crate) fn shortened(request: &ModelRequest) -> Vec<(String, String)> {
    let names = request.tools.iter().map(|tool| (wire_name(&tool.name), tool.name.clone()));
    names.filter(|(wire, own)| wire != own).collect()
}

/// Gives every tool use of a reply an id that the history does not have yet. Servers leave ids out, or count from 0 in each reply.
#[derive(Debug)]
pub(crate) struct Ids {
    /// A request that is asked again gets the same ids.
    seed: Sha256,
    used: BTreeSet<String>,
}

impl Ids {
    pub(crate) fn of(request: &ModelRequest) -> Self {
        let used = request.messages.iter().flat_map(Message::tool_uses).map(|tool_use| tool_use.id.clone());
        Self { seed: request.sha256(), used: used.collect() }
    }

    /// `told` if it can be used, else an id of our own.
    pub(crate) fn take(&mut self, told: &str, position: usize) -> String {
        let told = told.trim();
        if !told.is_empty() && self.used.insert(told.to_owned()) {
            return told.to_owned();
        }
        let own = format!("call_{}", &sha256(format!("{}/{position}", self.seed)).to_hex()[..24]);
        self.used.insert(own.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_shortened_and_found_again() {
        let long = format!("mcp__server__{}", "x".repeat(80));
        let other = format!("mcp__server__{}y", "x".repeat(80));
        assert_eq!((wire_name(&long).len(), wire_name("short")), (64, "short".to_owned()));
        assert_ne!(wire_name(&long), wire_name(&other));
        let offered = [(wire_name(&long), long.clone())];
        assert_eq!(offered_name(wire_name(&long), &offered), long);
        assert_eq!(offered_name("short".to_owned(), &offered), "short");
    }
}
