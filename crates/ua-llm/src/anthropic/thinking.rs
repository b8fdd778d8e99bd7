//! How a model is asked to think: newer ones as much as they deem right (`adaptive`), older ones within a budget of tokens (`enabled`), and the
//! newest take no budget at all.

use serde_json::{Value, json};

use crate::extras::ModelExtras;
use crate::thoughts::BUDGET;

/// The kind of thinking without a budget.
const ADAPTIVE: &str = "adaptive";
/// That a model is not to think, in a job's word and in the API's.
const OFF: (&str, &str) = ("off", "disabled");

/// The kind of thinking that one request asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Thinking<'e> {
    kind: Option<&'e str>,
    /// Which of the kinds that the job may mean it is; 0 for none.
    place: u8,
}

impl<'e> Thinking<'e> {
    /// What a job asks for, in the kind that its model takes: the one that fits it best and is not refused. Nothing where all of them are.
    pub(crate) fn of(extras: &'e ModelExtras, has_budget: bool, is_refused: impl Fn(&str) -> bool) -> Self {
        let kinds = match (extras.thinking.as_deref(), extras.thinking_tokens) {
            (None, None) => [None, None],
            (Some(word), _) if word == OFF.0 => [Some(OFF.1), None],
            (Some(word), None) => [Some(word), None],
            (Some(word), Some(_)) => [Some(word), Some(BUDGET)],
            (None, Some(_)) if has_budget => [Some(BUDGET), Some(ADAPTIVE)],
            (None, Some(_)) => [Some(ADAPTIVE), Some(BUDGET)],
        };
        let taken = (1_u8..).zip(kinds.into_iter().flatten()).find(|(_, kind)| !is_refused(kind));
        taken.map_or_else(Self::default, |(place, kind)| Self { kind: Some(kind), place })
    }

    /// What the API calls it.
    pub(crate) fn kind(self) -> Option<&'e str> {
        self.kind
    }

    /// Tells it from the others that one client may ask a model for.
    pub(crate) fn form(self) -> u8 {
        self.place
    }

    /// Asks for it.
    pub(crate) fn put(self, extras: &ModelExtras, body: &mut Value) {
        let Some(kind) = self.kind else { return };
        body["thinking"] = json!({ "type": kind });
        if kind == OFF.1 {
            return;
        }
        if let Some(tokens) = extras.thinking_tokens {
            if kind == BUDGET {
                body["thinking"]["budget_tokens"] = json!(tokens);
            }
            // Thoughts are part of the longest reply, which has to leave something for the reply itself.
            let longest = body["max_tokens"].as_u64().unwrap_or(0);
            if longest <= u64::from(tokens) {
                body["max_tokens"] = json!(longest + u64::from(tokens));
            }
        }
        // They bear no temperature.
        body.as_object_mut().and_then(|body| body.remove("temperature"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(thinking: Option<&str>, thinking_tokens: Option<u32>) -> ModelExtras {
        ModelExtras { thinking: thinking.map(str::to_owned), thinking_tokens, ..ModelExtras::default() }
    }

    fn asked(extras: &ModelExtras, has_budget: bool, refused: &[&str]) -> Value {
        let mut body = json!({"max_tokens": 1_000, "temperature": 0.5});
        Thinking::of(extras, has_budget, |kind| refused.contains(&kind)).put(extras, &mut body);
        body
    }

    #[test]
    fn a_model_is_asked_to_think_in_the_way_it_takes() {
        let budget = json!({"max_tokens": 3_000, "thinking": {"type": "enabled", "budget_tokens": 2_000}});
        let adaptive = json!({"max_tokens": 3_000, "thinking": {"type": "adaptive"}});
        let nothing = json!({"max_tokens": 1_000, "temperature": 0.5});
        let tokens = extras(None, Some(2_000));
        assert_eq!(asked(&tokens, true, &[]), budget);
        assert_eq!(asked(&tokens, true, &["enabled"]), adaptive);
        assert_eq!(asked(&tokens, false, &[]), adaptive);
        assert_eq!(asked(&tokens, false, &["adaptive"]), budget);
        assert_eq!(asked(&tokens, true, &["enabled", "adaptive"]), nothing);
        assert_eq!(asked(&extras(None, None), true, &[]), nothing);
        let both = extras(Some("adaptive"), Some(2_000));
        assert_eq!((asked(&both, true, &[]), asked(&both, true, &["adaptive"])), (adaptive, budget));
        let alone = extras(Some("adaptive"), None);
        assert_eq!(asked(&alone, true, &[]), json!({"max_tokens": 1_000, "thinking": {"type": "adaptive"}}));
        assert_eq!(asked(&alone, true, &["adaptive"]), nothing);
        for off in [extras(Some("off"), None), extras(Some("off"), Some(2_000))] {
            let disabled = json!({"max_tokens": 1_000, "temperature": 0.5, "thinking": {"type": "disabled"}});
            assert_eq!((asked(&off, true, &[]), asked(&off, true, &["disabled"])), (disabled, nothing.clone()));
        }
        // A word of tomorrow is the provider's.
        assert_eq!(asked(&extras(Some("between_tools"), None), true, &[])["thinking"]["type"], "between_tools");
    }

    #[test]
    fn each_kind_has_a_form_of_its_own() {
        let tokens = extras(None, Some(1));
        let form = |refused: &[&str]| Thinking::of(&tokens, true, |kind| refused.contains(&kind)).form();
        assert_eq!([form(&[]), form(&["enabled"]), form(&["enabled", "adaptive"])], [1, 2, 0]);
    }
}
