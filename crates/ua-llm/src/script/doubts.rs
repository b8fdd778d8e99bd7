//! What of a script would fail when it is played, as far as that can be told before.

use std::collections::BTreeSet;

use ua_core::nearest;

use super::{Script, ScriptTurn, template};

impl Script {
    /// What would fail when the script is played in a job whose model is offered the tools `offered`: tools that it asks for and that are not
    /// among them, and results that it reads and did not ask for. A sentence each; a script may mean it, to play a model that errs. `known` are
    /// tools that are offered elsewhere: such a name is meant.
    pub fn doubts(&self, offered: &BTreeSet<&str>, known: &BTreeSet<&str>) -> Vec<String> {
        let mut found = Vec::new();
        let end = self.after_end.as_ref();
        look(&mut found, "", &self.turns, end, (offered, known));
        for conversation in &self.conversations {
            let of = format!(" of the conversation {:?}", conversation.when);
            look(&mut found, &of, &conversation.turns, conversation.after_end.as_ref(), (offered, known));
        }
        found
    }

    /// Whether it asks for this tool anywhere.
    pub fn asks_for(&self, tool: &str) -> bool {
        let others = self.conversations.iter().flat_map(|one| one.turns.iter().chain(&one.after_end));
        let turns = self.turns.iter().chain(&self.after_end).chain(others);
        turns.flat_map(|turn| &turn.tools).any(|asked| asked.name == tool)
    }
}

fn look(
    found: &mut Vec<String>,
    of: &str,
    turns: &[ScriptTurn],
    after_end: Option<&ScriptTurn>,
    (offered, known): (&BTreeSet<&str>, &BTreeSet<&str>),
) {
    let mut results: BTreeSet<String> = BTreeSet::new();
    for (index, turn) in turns.iter().chain(after_end).enumerate() {
        let number = index + 1;
        let place = if index < turns.len() { format!("turn {number}{of}") } else { format!("`after_end`{of}") };
        let inputs = turn.tools.iter().flat_map(|tool| template::strings_of(&tool.input));
        let texts = turn.text.iter().chain(&turn.thinking).map(String::as_str).chain(inputs);
        let read: BTreeSet<&str> = texts.flat_map(template::results_of).collect();
        let missing = read.into_iter().filter(|id| !results.contains(*id));
        found.extend(missing.map(|id| format!("{place} reads the result of `{id}`, which no earlier turn asks for")));
        for (nth, tool) in turn.tools.iter().enumerate() {
            if !offered.contains(tool.name.as_str()) {
                let meant =
                    nearest(&tool.name, offered.iter().copied()).filter(|_| !known.contains(tool.name.as_str()));
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                found.push(format!("{place} asks for the tool `{}`, which the job does not offer{meant}", tool.name));
            }
            results.insert(tool.id.clone().unwrap_or_else(|| format!("toolu_{number}_{}", nth + 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_asks_for_and_reads_in_vain_is_told_with_its_turn() {
        let text = r#"{
            "turns": [
                {"tools": [{"name": "mcp__ua__notfy", "input": {}}, {"name": "write_local_file", "input": {}, "id": "bare"}, {"name": "mcp__ua__notify", "input": {}, "id": "mine"}]},
                {"text": "{{result:mine}} {{result:toolu_1_1}} {{result:toolu_2_1}}", "tools": [{"name": "mcp__ua__notify"}]}
            ],
            "conversations": [{"when": "look", "turns": [{"text": "{{result_json:mine:/a}}"}], "after_end": {"tools": [{"name": "x"}]}}]
        }"#;
        let offered = BTreeSet::from(["mcp__ua__notify", "mcp__ua__write_local_file"]);
        assert_eq!(
            Script::parse(text).unwrap().doubts(&offered, &BTreeSet::new()),
            [
                "turn 1 asks for the tool `mcp__ua__notfy`, which the job does not offer; did you mean `mcp__ua__notify`?",
                "turn 1 asks for the tool `write_local_file`, which the job does not offer; did you mean `mcp__ua__write_local_file`?",
                "turn 2 reads the result of `toolu_2_1`, which no earlier turn asks for",
                "turn 1 of the conversation \"look\" reads the result of `mine`, which no earlier turn asks for",
                "`after_end` of the conversation \"look\" asks for the tool `x`, which the job does not offer",
            ]
        );
    }
}
