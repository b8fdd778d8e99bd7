//! What a run's requests to models took, from their rows (Granular Execution PRD §6).

use std::collections::BTreeMap;

use serde::Serialize;
use ua_core::{Costs, Money, ToolCharge, Usage};
use ua_store::{RequestRecord, RequestStatus, RequestSum, RunRecords};

use ua_evidence::quote::clean;

/// How a request of a tool is called: what it took stands in the receipt of its call.
const BY_TOOL: &str = "by_tool";

/// What a run's requests to models took, and those that its tools made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UsageSummary {
    /// How many requests were charged in which way: `actual`, `partial`, `baseline`, `refused`, `never_sent` or still `reserved`;
    /// `by_tool` those that tools made and paid for.
    pub requests: BTreeMap<String, u32>,
    /// The tokens charged.
    pub tokens: Usage,
    /// Their sum.
    pub total_tokens: u64,
    /// What those with a known price cost, one amount per currency.
    pub cost: Costs,
    /// Requests that were charged tokens whose price nobody knew; their cost is not in `cost`.
    pub unpriced_requests: u32,
    /// Requests that used more tokens than were reserved for them.
    pub overruns: u32,
    /// Estimated input tokens of the requests that the provider counted.
    pub estimated_input_tokens: u64,
    /// Input tokens of these requests as the provider counted them, caches included.
    pub counted_input_tokens: u64,
    /// The same by provider and model, in the order of first use.
    pub models: Vec<ModelUsage>,
}

/// What the requests to one model took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelUsage {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// How many requests were charged in which way.
    pub requests: BTreeMap<String, u32>,
    /// The tokens charged.
    pub tokens: Usage,
    /// What those with a known price cost.
    pub cost: Costs,
    /// Requests that were charged tokens whose price nobody knew.
    pub unpriced_requests: u32,
}

/// Requests to one model that were charged in one way.
#[derive(Clone, Copy)]
struct Counted {
    count: u32,
    usage: Usage,
    cost: Option<Money>,
    unpriced: u32,
}

impl Counted {
    fn one(usage: Usage, cost: Option<Money>) -> Self {
        Self { count: 1, usage, cost, unpriced: u32::from(cost.is_none() && usage.total() > 0) }
    }
}

impl UsageSummary {
    /// Adds up the requests of a run, of all processes that drove it.
    pub fn of(records: &RunRecords) -> Self {
        let mut summary = Self::default();
        for sum in &records.left_out.requests {
            summary.add_sum(sum);
        }
        for request in records.requests.iter().chain(records.requests_below()) {
            summary.add(request);
        }
        for charge in records.tool_charges(0).chain(records.tool_charges_below()) {
            summary.add_tool(charge);
        }
        summary
    }

    /// Adds what a tool paid.
    fn add_tool(&mut self, charge: &ToolCharge) {
        self.count(&charge.provider, &charge.model, BY_TOOL.to_owned(), Counted::one(charge.usage, charge.cost));
    }

    /// Adds requests that were added up before.
    fn add_sum(&mut self, sum: &RequestSum) {
        let RequestSum { count, usage, cost, unpriced, .. } = *sum;
        let how = sum.status.charge_name(sum.network_attempted);
        self.count(&sum.provider, &sum.model, how.to_owned(), Counted { count, usage, cost, unpriced });
        if sum.status == RequestStatus::Actual {
            self.overruns += sum.overruns;
            self.estimated_input_tokens += sum.estimated_tokens;
            self.counted_input_tokens += usage.total() - usage.output_tokens;
        }
    }

    fn add(&mut self, request: &RequestRecord) {
        let counted = Counted::one(request.usage, request.cost);
        self.count(&request.provider, &request.model, request.charge_name().to_owned(), counted);
        if request.status == RequestStatus::Actual {
            self.overruns += u32::from(request.is_overrun());
            self.estimated_input_tokens += request.estimated_tokens;
            self.counted_input_tokens += request.usage.total() - request.usage.output_tokens;
        }
    }

    fn count(&mut self, provider: &str, model: &str, status: String, counted: Counted) {
        let Counted { count, usage: tokens, cost, unpriced } = counted;
        let (provider, model) = (clean(provider), clean(model));
        let found = self.models.iter().position(|usage| usage.provider == provider && usage.model == model);
        let index = found.unwrap_or_else(|| {
            self.models.push(ModelUsage {
                provider,
                model,
                requests: BTreeMap::new(),
                tokens: Usage::default(),
                cost: Costs::default(),
                unpriced_requests: 0,
            });
            self.models.len() - 1
        });
        let by_model = &mut self.models[index];
        *by_model.requests.entry(status.clone()).or_insert(0) += count;
        by_model.tokens = by_model.tokens.plus(tokens);
        by_model.unpriced_requests += unpriced;
        *self.requests.entry(status).or_insert(0) += count;
        self.tokens = self.tokens.plus(tokens);
        self.total_tokens = self.tokens.total();
        self.unpriced_requests += unpriced;
        if let Some(cost) = cost {
            by_model.cost.add(cost);
            self.cost.add(cost);
        }
    }

    /// The cost in words: `$0.0123`, `unknown`, or both when only some of the prices are known. What a script plays costs nothing.
    pub fn cost_in_words(&self) -> String {
        let mut unpriced = self.models.iter().filter(|model| model.unpriced_requests > 0).peekable();
        let is_played = unpriced.peek().is_some() && unpriced.all(ModelUsage::is_played);
        cost_in_words(&self.cost, self.unpriced_requests, is_played)
    }

    /// The requests in words: `6 (1 estimated)`.
    pub fn requests_in_words(&self) -> String {
        requests_in_words(&self.requests)
    }
}

impl ModelUsage {
    /// Whether no model was asked: a script, or a recording, stood for it.
    pub fn is_played(&self) -> bool {
        matches!(self.provider.as_str(), "scripted" | "replay")
    }

    /// The line of a model: requests, tokens, cost.
    pub fn in_words(&self) -> String {
        format!(
            "{}; {} tokens; cost {}",
            requests_of(&self.requests, "request"),
            self.tokens.total(),
            cost_in_words(&self.cost, self.unpriced_requests, self.is_played())
        )
    }
}

fn cost_in_words(cost: &Costs, unpriced_requests: u32, is_played: bool) -> String {
    match (cost.is_empty(), unpriced_requests) {
        (true, 0) => "none".to_owned(),
        (true, _) if is_played => "none (a script played the model)".to_owned(),
        (true, _) => "unknown (no price for the model)".to_owned(),
        (false, 0) => cost.to_string(),
        (false, count) => {
            format!("{cost} and {count} whose price is unknown", count = ua_core::counted(count, "request"))
        }
    }
}

fn requests_in_words(requests: &BTreeMap<String, u32>) -> String {
    let words = requests_of(requests, "request");
    // The name of the line says what they are.
    words.replacen(" requests", "", 1).replacen(" request", "", 1)
}

/// How many, and how those were charged of which the provider did not say what they cost.
fn requests_of(requests: &BTreeMap<String, u32>, one: &str) -> String {
    let total: u32 = requests.values().sum();
    if total == 0 {
        return "none".to_owned();
    }
    let notable = requests.iter().filter(|(_, count)| **count > 0).filter_map(|(status, count)| {
        let how = match status.as_str() {
            "actual" => return None,
            "partial" => "counted in part",
            "baseline" => "estimated",
            "refused" => "refused and not charged",
            "never_sent" => "never sent",
            "reserved" => "not answered yet",
            "by_tool" => "made by tools",
            other => other,
        };
        Some(format!("{count} {how}"))
    });
    let notable: Vec<String> = notable.collect();
    let more = if notable.is_empty() { String::new() } else { format!(" ({})", notable.join(", ")) };
    format!("{}{more}", ua_core::counted(total, one))
}

#[cfg(test)]
mod tests {
    use ua_core::{Money, PriceTable};

    use super::*;
    use ua_evidence::testing::Story;

    #[test]
    fn requests_are_added_up_by_model_and_unknown_prices_are_not_zero() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        for _ in 0..5 {
            story.asks("words", &[]);
            story.commits();
        }
        let table = PriceTable::parse("f", "[providers.scripted.\"*\"]\ninput = 2\noutput = 10\n").unwrap();
        let price = table.price("scripted", "m");
        let requests = &mut story.records.requests;
        requests[0].price = price;
        requests[0].cost = price.map(|price| price.cost(requests[0].usage));
        for (at, was_sent) in [(1, false), (4, true)] {
            requests[at].status = RequestStatus::Zero;
            requests[at].network_attempted = was_sent;
            requests[at].usage = Usage::default();
        }
        requests[2].status = RequestStatus::Baseline;
        requests[2].usage = Usage { input_tokens: 950, ..Usage::default() };
        requests[3].model = "another".to_owned();
        requests[3].usage.output_tokens = 90_000;
        let summary = UsageSummary::of(&story.records);
        assert_eq!(summary.requests_in_words(), "5 (1 estimated, 1 never sent, 1 refused and not charged)");
        let names: Vec<&str> = summary.requests.keys().map(String::as_str).collect();
        assert_eq!(names, ["actual", "baseline", "never_sent", "refused"], "the same for a machine");
        assert_eq!((summary.total_tokens, summary.overruns), (1_000 + 950 + 90_900, 1));
        assert_eq!((summary.estimated_input_tokens, summary.counted_input_tokens), (1_900, 1_800));
        // 900 × 2 + 100 × 10 dollars per million.
        assert_eq!(summary.cost.of(ua_core::Currency::USD), Money::parse("0.0028").unwrap());
        assert_eq!(summary.cost_in_words(), "$0.0028 and 2 requests whose price is unknown");
        let [scripted, another] = summary.models.as_slice() else { panic!("{:?}", summary.models) };
        assert_eq!(
            scripted.in_words(),
            "4 requests (1 estimated, 1 never sent, 1 refused and not charged); 1950 tokens; cost $0.0028 and 1 request whose price is unknown"
        );
        assert_eq!(another.in_words(), "1 request; 90900 tokens; cost none (a script played the model)");
        let asked = ModelUsage { provider: "anthropic".to_owned(), ..another.clone() };
        assert_eq!(asked.in_words(), "1 request; 90900 tokens; cost unknown (no price for the model)");
        assert_eq!(UsageSummary::default().cost_in_words(), "none");
    }
}
