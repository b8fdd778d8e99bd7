//! How a model is to work, by words that a compiler knows.

use ua_core::{ToolName, ToolNamespace};

use crate::tool::SERVER;

/// How much effort a model makes, for [`Step::effort`](crate::Step::effort), which takes another word of a provider as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effort {
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `high`.
    High,
}

impl From<Effort> for String {
    fn from(effort: Effort) -> Self {
        let word = match effort {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        word.to_owned()
    }
}

/// Which tool the replies of a model call, for [`Step::tool_choice`](crate::Step::tool_choice), which takes the same as a text. It holds
/// for every reply: a step with `Any`, `Own` or `Named` has no last one without a call, and is not complete before it stops at a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolChoice {
    /// What the model wants: also none.
    Auto,
    /// Some tool, whichever.
    Any,
    /// None.
    None,
    /// This tool of the program, by the name that [`tool`](crate::tool()) gave it.
    Own(String),
    /// This tool, by the name under which the model sees it.
    Named(String),
}

impl From<ToolChoice> for String {
    fn from(choice: ToolChoice) -> Self {
        match choice {
            ToolChoice::Auto => "auto".to_owned(),
            ToolChoice::Any => "any".to_owned(),
            ToolChoice::None => "none".to_owned(),
            ToolChoice::Own(name) => ToolName::qualified(ToolNamespace::Local, SERVER, &name).raw,
            ToolChoice::Named(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_the_word_that_a_provider_is_told() {
        let words: Vec<String> = [Effort::Low, Effort::Medium, Effort::High].map(String::from).into();
        assert_eq!(words, ["low", "medium", "high"]);
        for (choice, word) in [
            (ToolChoice::Auto, "auto"),
            (ToolChoice::Any, "any"),
            (ToolChoice::None, "none"),
            (ToolChoice::Own("send_invoice".to_owned()), "mcp__program__send_invoice"),
            (ToolChoice::Named("mcp__forum__post".to_owned()), "mcp__forum__post"),
        ] {
            assert_eq!(String::from(choice.clone()), word, "{choice:?}");
        }
    }
}
