//! What a tool paid to a model provider: tokens and money that count in the run's budgets as its own requests do.
//!
//! Durable Jobs v1 spec §6 (`budgets`), §7.3 (images). The charge stands in the receipt of the call, in the one write with which the
//! answer is stored. So it is there once, whatever dies: no receipt, no charge; and a receipt is never written twice.

use serde::{Deserialize, Serialize};

use crate::{Money, PriceTable, RawReply, ToolName, Usage};

/// What one call of a tool was charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCharge {
    /// The provider whose API the tool asked; `image-api` when the tool did not say.
    pub provider: String,
    /// The model that answered.
    pub model: String,
    /// The tokens that it counted.
    pub usage: Usage,
    /// What they cost by the price table of that time; `None` when nobody knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl ToolCharge {
    /// The tools of our own server that ask a model.
    pub const TOOLS: [&str; 2] = ["describe_image", "generate_image"];

    /// Whether calls of this tool may be charged. The words of other servers about what they paid are not believed.
    pub fn may_come_from(name: &ToolName) -> bool {
        name.is_of_own_server() && Self::TOOLS.contains(&name.tool.as_str())
    }

    /// Reads what an answer of `name` says it took; `None` when it says nothing. An answer from the tool's own record of an earlier
    /// attempt says it, too: that attempt brought no receipt.
    pub fn of(name: &ToolName, raw: &RawReply, prices: &PriceTable) -> Option<Self> {
        let RawReply::ToolResult { result } = raw else { return None };
        let told = result.get("structuredContent").filter(|_| Self::may_come_from(name))?;
        let usage = told.get("usage")?;
        let count = |field: &str| usage.get(field).and_then(serde_json::Value::as_u64);
        let (input, output) = (count("input_tokens"), count("output_tokens"));
        if input.is_none() && output.is_none() {
            return None;
        }
        let usage = Usage {
            input_tokens: input.unwrap_or_default(),
            output_tokens: output.unwrap_or_default(),
            ..Usage::default()
        };
        let text = |field: &str| told.get(field).and_then(serde_json::Value::as_str).map(str::to_owned);
        let provider = text("provider").unwrap_or_else(|| "image-api".to_owned());
        let model = text("model").unwrap_or_else(|| "unknown".to_owned());
        let cost = prices.price(&provider, &model).map(|price| price.cost(usage));
        Some(Self { provider, model, usage, cost })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ToolNamespace;

    fn of(server: &str, tool: &str, told: &Value) -> Option<ToolCharge> {
        let name = ToolName::qualified(ToolNamespace::Local, server, tool);
        let table = PriceTable::parse("f", "[providers.openai.painter]\ninput = 5\noutput = 40\n").unwrap();
        let raw = RawReply::ToolResult { result: json!({"content": [], "structuredContent": told}) };
        ToolCharge::of(&name, &raw, &table)
    }

    #[test]
    fn what_an_image_took_is_read_off_its_answer_and_priced() {
        let told = |model: &str| json!({"provider": "openai", "model": model, "usage": {"input_tokens": 100, "output_tokens": 1000}});
        let usage = Usage { input_tokens: 100, output_tokens: 1000, ..Usage::default() };
        let cost = Some(Money::parse("0.0405").unwrap());
        let charge =
            |model: &str, cost| Some(ToolCharge { provider: "openai".into(), model: model.into(), usage, cost });
        assert_eq!(of("ua", "generate_image", &told("painter")), charge("painter", cost));
        assert_eq!(of("ua", "describe_image", &told("other")), charge("other", None), "an unknown price is not zero");
    }

    #[test]
    fn who_says_nothing_or_is_not_believed_is_charged_nothing() {
        let usage = json!({"model": "painter", "usage": {"input_tokens": 1}});
        assert!(of("ua", "describe_image", &usage).is_some());
        assert_eq!(of("ua", "read_local_file", &usage), None);
        assert_eq!(of("forum", "describe_image", &usage), None);
        for told in [json!({"model": "painter"}), json!({"usage": {}}), json!({"usage": "much"}), json!(null)] {
            assert_eq!(of("ua", "describe_image", &told), None, "{told}");
        }
    }
}
