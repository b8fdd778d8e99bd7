//! Budgets of a job that end its run before it is done, whatever its model says: known before anything is started.
//!
//! Durable Jobs v1 spec §6 (`budgets`). Of the first request all is known but what files and images add to it, so what is said to be too little
//! is too little; that a budget is enough is said of none. The same sums decide here as before each request ([`Limits`](crate::Limits)).

use std::collections::BTreeMap;

use ua_core::{LEAST_REPLY, Message, Money, Origin, RunSpec, Shared, StopCondition, TokenPrice};
use ua_llm::{ModelRequest, ToolOffer, estimate_input_tokens};

use crate::budget::Estimate;
use crate::iteration::context_too_small;
use crate::ports::RunSettings;

/// The budgets of a job that can never do, each in a sentence with what it takes. `price` is that of its model, and `tools` are those that it is
/// offered.
pub fn too_small(
    spec: &RunSpec,
    settings: &RunSettings,
    price: Option<TokenPrice>,
    tools: Vec<ToolOffer>,
) -> Vec<String> {
    let estimate = first_request(spec, settings, price, tools);
    let of_run = (None, spec.budgets.max_tokens, spec.budgets.max_cost);
    let of_phases = spec.phases.iter().map(|phase| {
        let budgets = &phase.budgets;
        (Some(phase.name.as_str()), budgets.max_tokens, budgets.max_cost)
    });
    let mut found = Vec::new();
    for (phase, max_tokens, max_cost) in std::iter::once(of_run).chain(of_phases) {
        found.extend(max_tokens.and_then(|max| tokens(max, &estimate, phase)));
        found.extend(max_cost.and_then(|max| cost(max, &estimate, phase)));
    }
    found.extend(calls(spec));
    found.extend(turns(spec));
    found
}

/// Why no run of the job can do anything in iterations of the size that it asks for: its first request is larger, by what is known of it before the
/// start. A run would fail before its first request.
pub fn context_below_first_request(spec: &RunSpec, settings: &RunSettings, tools: Vec<ToolOffer>) -> Option<String> {
    let asked = spec.harness.as_ref()?.context_budget_tokens?;
    let tokens = first_request(spec, settings, None, tools).input_tokens;
    (tokens > asked).then(|| context_too_small(asked, tokens))
}

/// What the first request of a run of this job takes, as far as it is known.
fn first_request(spec: &RunSpec, settings: &RunSettings, price: Option<TokenPrice>, tools: Vec<ToolOffer>) -> Estimate {
    let phase = spec.phase_message(1).map(|text| Message::user(Origin::Phase, text));
    let mut messages = vec![Message::user(Origin::Prompt, spec.opening_prompt())];
    messages.extend(phase);
    let request = ModelRequest {
        model: settings.model.clone(),
        system: settings.system.clone(),
        messages,
        tools: Shared::from(tools),
        max_output_tokens: settings.max_output_tokens,
        temperature_milli: settings.temperature_milli,
        seed: settings.seed,
        output_schema: None,
        wants_form: false,
    };
    Estimate { input_tokens: estimate_input_tokens(&request), output_tokens: settings.max_output_tokens.into(), price }
}

fn tokens(max: u64, estimate: &Estimate, phase: Option<&str>) -> Option<String> {
    let needs = estimate.tokens();
    let fitting = max.checked_sub(estimate.input_tokens);
    (needs > max).then(|| in_words("max_tokens", &max, ("take", &needs), estimate, fitting, phase))
}

fn cost(max: Money, estimate: &Estimate, phase: Option<&str>) -> Option<String> {
    // Without a price in its currency the job is refused, and says so.
    let price = estimate.price.filter(|price| price.currency == max.currency())?;
    let needs = price.most(estimate.input_tokens, estimate.output_tokens);
    let fitting = price.reply_within(estimate.input_tokens, max);
    (needs.nanos() > max.nanos()).then(|| in_words("max_cost", &max, ("cost", &needs), estimate, fitting, phase))
}

/// That a budget is too small for a request.
fn in_words(
    budget: &str,
    max: &impl std::fmt::Display,
    (takes, needs): (&str, &impl std::fmt::Display),
    estimate: &Estimate,
    fitting: Option<u64>,
    phase: Option<&str>,
) -> String {
    let Estimate { input_tokens, output_tokens, .. } = estimate;
    let of = phase.map_or_else(String::new, |phase| format!(" of phase `{phase}`"));
    let request = if phase.is_some() { "a request" } else { "the first request" };
    let shorter = fitting.filter(|most| *most >= LEAST_REPLY);
    let shorter =
        shorter.map_or_else(String::new, |most| format!(", or a `model.max_output_tokens` of at most {most}"));
    format!(
        "`{budget}`{of} is {max}, and {request} may {takes} up to {needs} ({input_tokens} tokens for what it says, as estimated, and up to \
         {output_tokens} for the reply), so the run would stop before it; it takes a `{budget}` of at least {needs}{shorter}"
    )
}

/// Each effect that the conditions ask for takes a call of its own.
fn effects(spec: &RunSpec) -> u32 {
    let mut effects: BTreeMap<String, u32> = BTreeMap::new();
    for condition in spec.all_stop_conditions().map(StopCondition::expanded) {
        if let StopCondition::Effect { effect, count, .. } = condition {
            let asked = effects.entry(effect).or_default();
            *asked = count.max(*asked);
        }
    }
    effects.values().fold(0, |sum, count| sum.saturating_add(*count))
}

fn calls(spec: &RunSpec) -> Option<String> {
    let (asked, max) = (effects(spec), spec.budgets.max_tool_calls);
    (asked > max).then(|| {
        let asked = ua_core::counted(asked, "effect");
        format!("the conditions ask for {asked}, each of which is a call of its own, and `max_tool_calls` is {max}, so no run would be done")
    })
}

fn turns(spec: &RunSpec) -> Option<String> {
    let is_short = spec.budgets.max_turns == Some(1) && effects(spec) > 0;
    is_short.then(|| {
        "`max_turns` is 1, and the conditions ask for an effect: the reply that calls for it is a turn, and the one that says that all is done \
         another, so no run would be done"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use ua_core::PriceTable;

    use super::*;
    use crate::pin::PinSettings;
    use crate::retry::RetryPolicy;

    fn doubts(job: &str) -> Vec<String> {
        let spec = RunSpec::parse(job).unwrap();
        let prices = PriceTable::parse("f", "[providers.p.m]\ninput = 2\noutput = 10\n").unwrap();
        let price = prices.price("p", "m");
        too_small(&spec, &settings(prices), price, Vec::new())
    }

    fn settings(prices: PriceTable) -> RunSettings {
        RunSettings {
            model: "m".into(),
            system: String::new(),
            max_output_tokens: 1_000,
            history_tokens: None,
            images: false,
            structured: false,
            temperature_milli: None,
            seed: None,
            prices,
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        }
    }

    /// By the same estimate as before the first request, and by nothing where the job does not ask for a size.
    #[test]
    fn a_context_below_the_first_request_is_known_before_the_start() {
        let why = |harness: &str, objective: usize, tools: usize| {
            let objective = "x".repeat(objective);
            let spec = RunSpec::parse(&format!(r#"{{"objective": "{objective}", "harness": {harness}}}"#)).unwrap();
            let input_schema = serde_json::json!({"type": "object", "description": "y".repeat(tools)});
            let offer = ToolOffer { name: "t".to_owned(), description: String::new(), input_schema };
            context_below_first_request(&spec, &settings(PriceTable::default()), vec![offer])
        };
        assert_eq!(why(r#"{"context_budget_tokens": 1000}"#, 100, 100), None);
        for (objective, tools) in [(100, 4_000), (4_000, 100)] {
            let found = why(r#"{"context_budget_tokens": 1000}"#, objective, tools).unwrap();
            assert!(found.starts_with("harness.context_budget_tokens is 1000, and the first request alone"), "{found}");
            assert_eq!(why(r#"{"context_budget_tokens": 2000}"#, objective, tools), None);
            assert_eq!(why("{}", objective, tools), None);
        }
    }

    #[test]
    fn a_budget_that_cannot_pay_for_a_request_is_named_with_what_it_takes() {
        let fine = r#"{"objective": "x", "budgets": {"max_cost": "0.02", "max_tokens": 2000, "max_turns": 1}}"#;
        assert_eq!(doubts(fine), Vec::<String>::new());
        let found = doubts(r#"{"objective": "x", "budgets": {"max_cost": "0.005", "max_tokens": 200}}"#);
        let [tokens, cost] = found.as_slice() else { panic!("{found:?}") };
        assert!(tokens.starts_with("`max_tokens` is 200, and the first request may take up to 10"), "{tokens}");
        // What is left for the reply is not worth one.
        assert!(!tokens.contains("max_output_tokens"), "{tokens}");
        assert!(cost.starts_with("`max_cost` is $0.005, and the first request may cost up to $0.01"), "{cost}");
        assert!(cost.contains("it takes a `max_cost` of at least $0.01"), "{cost}");
        assert!(cost.contains(", or a `model.max_output_tokens` of at most 4"), "{cost}");
        // Of a phase, whatever comes before it; of another currency the start says more.
        let phases = r#"{"objective": "x", "phases": [{"name": "one", "instructions": "a"},
                         {"name": "two", "instructions": "b", "budgets": {"max_tokens": 500, "max_cost": "1 EUR"}}]}"#;
        let found = doubts(phases);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("`max_tokens` of phase `two` is 500, and a request may take up to 1"),
            "{found:?}"
        );
    }

    #[test]
    fn conditions_that_no_budget_leaves_room_for_are_named() {
        let of = |budgets: &str| {
            doubts(&format!(
                r#"{{"objective": "x", "budgets": {budgets},
                    "stop_conditions": [{{"effect": "a.send", "count": 2}}, {{"effect": "b.send"}}, {{"artifact": "f"}}],
                    "phases": [{{"name": "one", "instructions": "i", "stop_conditions": [{{"effect": "a.send", "count": 3}}]}}]}}"#
            ))
        };
        assert_eq!(of(r#"{"max_tool_calls": 4, "max_turns": 2}"#), Vec::<String>::new());
        let found = of(r#"{"max_tool_calls": 3, "max_turns": 1}"#);
        assert!(
            found[0].starts_with("the conditions ask for 4 effects") && found[0].contains("`max_tool_calls` is 3"),
            "{found:?}"
        );
        assert!(found[1].starts_with("`max_turns` is 1"), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
