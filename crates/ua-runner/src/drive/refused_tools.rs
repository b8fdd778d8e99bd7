//! The tools that a model provider does not take.
//!
//! A provider refuses a whole request for one tool, and names that one. What is wrong with it is often wrong with most tools of its server, which
//! were all made from one description: so after some that were refused in the same words, the rest of their servers is left out with them, and
//! the run ends neither with a request for each tool nor at a limit of such requests. Our own are as every provider takes them, and a job relies on
//! them: one that refuses one of them refuses the run, and its words say why.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::Audience;
use ua_llm::ToolOffer;

/// So many tools are refused in the same words before the others of their servers are left out unasked.
const TOGETHER: usize = 16;
/// What the names of our own begin with.
const OWN: &str = "mcp__ua__";

/// The tools that are left out, each with what was said of it.
#[derive(Debug, Default)]
pub(super) struct RefusedTools(BTreeMap<String, String>);

impl RefusedTools {
    /// Whether a tool is left out.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// A tool of those that are `offered` was refused in these words. Returns what is left out from now on that was not before, each with why:
    /// nothing where it is one of our own.
    pub(super) fn refused(&mut self, tool: &str, words: &str, offered: &[ToolOffer]) -> Vec<(String, String)> {
        if self.has(tool) || tool.starts_with(OWN) {
            return Vec::new();
        }
        let fault = fault_in(words, tool);
        self.0.insert(tool.to_owned(), fault.clone());
        let mut left_out = vec![(tool.to_owned(), words.to_owned())];
        let alike: Vec<&String> = self.0.iter().filter(|(_, other)| **other == fault).map(|(tool, _)| tool).collect();
        if alike.len() >= TOGETHER {
            let count = alike.len();
            let servers: BTreeSet<String> =
                alike.iter().filter_map(|tool| server_of(tool)).map(str::to_owned).collect();
            let others = offered.iter().map(|offer| &offer.name).filter(|name| !self.has(name));
            let others: Vec<String> =
                others.filter(|name| server_of(name).is_some_and(|of| servers.contains(of))).cloned().collect();
            for other in others {
                let why =
                    format!("{count} tools were refused in the same words, and it is of the same server: {words}");
                self.0.insert(other.clone(), fault.clone());
                left_out.push((other, why));
            }
        }
        left_out
    }
}

/// How many servers are named.
const NAMED: usize = 8;

/// How the tool is found whose schema was refused by no name: whose tools were offered, and how those of one are denied. `None` where no server but our
/// own offered any.
pub(super) fn whose_it_may_be(offered: &[ToolOffer], audience: Audience) -> Option<String> {
    let mut servers: BTreeMap<&str, u64> = BTreeMap::new();
    for server in offered.iter().filter_map(|offer| server_of(&offer.name)) {
        *servers.entry(server).or_default() += 1;
    }
    let (first, _) = servers.first_key_value()?;
    let named = servers.iter().take(NAMED);
    let mut named: Vec<String> =
        named.map(|(server, tools)| format!("`{server}` ({})", ua_core::counted(*tools, "tool"))).collect();
    if let Some(more) = servers.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    let way = audience.pick(
        format!("deny those of one server at a time in the fork (`tools.deny`: `mcp__{first}__*`) until it is taken"),
        "leave out those of one server at a time until it is taken".to_owned(),
    );
    Some(format!("it names no tool, and tools of {} were offered: {way}", named.join(", ")))
}

/// What is wrong, without what is of this one tool: its name, its number, what is quoted of it.
fn fault_in(words: &str, tool: &str) -> String {
    let mut fault = String::new();
    let mut quote = None;
    for letter in words.replace(tool, "").chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            Some(_) => {}
            None if matches!(letter, '\'' | '"' | '`') => quote = Some(letter),
            None if letter.is_ascii_digit() => {}
            None => fault.push(letter),
        }
    }
    fault
}

/// The server of a tool that is not one of our own.
fn server_of(tool: &str) -> Option<&str> {
    let (server, _) = tool.strip_prefix("mcp__")?.split_once("__")?;
    (server != "ua").then_some(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(names: &[String]) -> Vec<ToolOffer> {
        let offer = |name: &String| ToolOffer {
            name: name.clone(),
            description: String::new(),
            input_schema: serde_json::Value::Null,
        };
        names.iter().map(offer).collect()
    }

    fn words(place: usize, name: &str) -> String {
        format!(
            "tools.{place}.custom.input_schema.properties: `{name}` has keys that do not match '^[a-z]{{1,{place}}}$'"
        )
    }

    /// However many tools a provider does not take, and in whatever order it names them: as many requests are refused as there are tools, or as few
    /// as it takes to see that all of them are alike. Those of other servers are still offered.
    #[test]
    fn tools_that_are_refused_alike_are_left_out_together() {
        for bad in [1, 3, TOGETHER - 1, TOGETHER, TOGETHER + 1, 40, 200] {
            for step in [1, 7, 199] {
                let fine = ["mcp__b__fine", "mcp__ua__notify", "plain"].map(str::to_owned);
                let all: Vec<String> = (0..bad).map(|n| format!("mcp__a__t{n}")).chain(fine.clone()).collect();
                let (mut refused, mut requests) = (RefusedTools::default(), 0);
                loop {
                    let offered: Vec<String> = all.iter().filter(|tool| !refused.has(tool)).cloned().collect();
                    let broken: Vec<&String> = offered.iter().filter(|tool| tool.starts_with("mcp__a__")).collect();
                    if broken.is_empty() {
                        assert_eq!(offered, fine);
                        break;
                    }
                    let tool = broken[(requests * step) % broken.len()].clone();
                    assert!(!refused.refused(&tool, &words(requests, &tool), &offers(&offered)).is_empty());
                    assert!(refused.refused(&tool, "again", &offers(&offered)).is_empty(), "it is told once");
                    requests += 1;
                }
                assert_eq!(requests, bad.min(TOGETHER), "{bad} by {step}");
            }
        }
    }

    #[test]
    fn a_tool_of_our_own_is_never_left_out() {
        let all = ["mcp__ua__notify", "mcp__ua__read_file", "mcp__uab__x", "plain"].map(str::to_owned);
        let mut refused = RefusedTools::default();
        for (tool, is_left_out) in all.iter().zip([false, false, true, true]) {
            assert_eq!(!refused.refused(tool, "no such schema", &offers(&all)).is_empty(), is_left_out, "{tool}");
            assert_eq!(refused.has(tool), is_left_out, "{tool}");
        }
    }

    #[test]
    fn a_refusal_of_a_schema_without_a_name_is_told_with_whose_tools_were_offered() {
        let of = |names: &[&str], audience| {
            whose_it_may_be(&offers(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()), audience)
        };
        let names = ["mcp__b__x", "mcp__a__x", "mcp__ua__notify", "mcp__b__y", "plain"];
        let told = of(&names, Audience::Terminal).unwrap();
        assert!(told.contains("tools of `a` (1 tool), `b` (2 tools) were offered"), "{told}");
        assert!(told.contains("(`tools.deny`: `mcp__a__*`)"), "{told}");
        assert!(!of(&names, Audience::Program).unwrap().contains("tools.deny"));
        assert_eq!(of(&["mcp__ua__notify", "plain"], Audience::Terminal), None);
        let many: Vec<String> = (0..20).map(|n| format!("mcp__s{n}__t")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(of(&many, Audience::Terminal).unwrap().contains(", 12 more were offered"));
    }

    #[test]
    fn tools_with_faults_of_their_own_are_left_out_one_by_one() {
        let all: Vec<String> = (0..40).map(|n| format!("mcp__a__t{n}")).collect();
        let (mut refused, faults) = (RefusedTools::default(), ["no type", "a loop", "too deep"]);
        for (place, tool) in all.iter().enumerate().take(3 * (TOGETHER - 1)) {
            let left_out = refused.refused(tool, &format!("tools.{place}: {}", faults[place % 3]), &offers(&all));
            assert_eq!(left_out.len(), 1, "{tool}");
        }
    }
}
