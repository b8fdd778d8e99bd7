//! What a tool paid to a model provider: tokens and money that count in the run's budgets as its own requests do.
//!
//! Durable Jobs v1 spec §6 (`budgets`), §7.3 (images). The charge stands in the receipt of the call, in the one write with which the
//! answer is stored. So it is there once, whatever dies: no receipt, no charge; and a receipt is never written twice.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Money, PriceTable, RawReply, ToolName, Usage, count_in};

/// What one call of a tool was charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCharge {
    /// The provider whose API the tool asked; `image-api` when the tool did not say.
    pub provider: String,
    /// The model that answered.
    pub model: String,
    /// The tokens that it counted; what it did not count, as estimated.
    pub usage: Usage,
    /// What they cost by the price table of that time; `None` when nobody knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

/// Bytes of text that are estimated as one token, as for requests of runs.
const BYTES_PER_TOKEN: u64 = 4;
/// What an image is estimated as that a model looks at, as in requests of runs.
const IMAGE_TOKENS: u64 = 1_600;
/// Pixels of a drawn image that are estimated as one token: what the drawing models with the most of them write at their best quality.
const PIXELS_PER_TOKEN: u64 = 256;
/// What a drawn image of unknown size is estimated as.
const DRAWN_TOKENS: u64 = 4_096;

impl ToolCharge {
    /// The tools of our own server that ask a model.
    pub const TOOLS: [&str; 2] = ["describe_image", "generate_image"];

    /// Whether calls of this tool may be charged. The words of other servers about what they paid are not believed.
    pub fn may_come_from(name: &ToolName) -> bool {
        name.is_of_own_server() && Self::TOOLS.contains(&name.tool.as_str())
    }

    /// Reads what an answer of `name` to these `arguments` says it took; `None` when it says nothing. An answer from the tool's own record of
    /// an earlier attempt says it, too: that attempt brought no receipt. So does an error: an answer without what was asked for is paid for like
    /// any other.
    ///
    /// Each half that it did not count is estimated, as that of a model's reply is: servers write 0 for what they do not count, and no request
    /// is without input, no answer without output.
    pub fn of(name: &ToolName, arguments: &Value, raw: &RawReply, prices: &PriceTable) -> Option<Self> {
        let RawReply::ToolResult { result } = raw else { return None };
        let told = result.get("structuredContent").filter(|_| Self::may_come_from(name))?;
        let usage = told.get("usage")?;
        let said = |field: &str| usage.get(field).filter(|count| !count.is_null());
        if said("input_tokens").is_none() && said("output_tokens").is_none() {
            return None;
        }
        let counted = |field: &str| count_in(said(field)?).filter(|count| *count > 0);
        let brought_nothing = result.get("isError") == Some(&Value::Bool(true));
        let estimated_output = || if brought_nothing { 0 } else { output_of(name, told) };
        let usage = Usage {
            input_tokens: counted("input_tokens").unwrap_or_else(|| input_of(name, arguments)),
            output_tokens: counted("output_tokens").unwrap_or_else(estimated_output),
            ..Usage::default()
        };
        let text = |field: &str| told.get(field).and_then(Value::as_str).map(str::to_owned);
        let provider = text("provider").unwrap_or_else(|| "image-api".to_owned());
        let model = text("model").unwrap_or_else(|| "unknown".to_owned());
        let cost = prices.price(&provider, &model).map(|price| price.cost(usage));
        Some(Self { provider, model, usage, cost })
    }
}

/// What a request that these arguments make is estimated to say.
fn input_of(name: &ToolName, arguments: &Value) -> u64 {
    let words = (arguments.to_string().len() as u64).div_ceil(BYTES_PER_TOKEN);
    if draws(name) { words } else { words.saturating_add(IMAGE_TOKENS) }
}

/// What an answer is estimated to have taken.
fn output_of(name: &ToolName, told: &Value) -> u64 {
    if draws(name) {
        let side = |field: &str| told.get(field).and_then(Value::as_u64).filter(|side| *side > 0);
        let pixels = side("width").and_then(|width| width.checked_mul(side("height")?));
        return pixels.map_or(DRAWN_TOKENS, |pixels| pixels.div_ceil(PIXELS_PER_TOKEN));
    }
    let written = told.get("description").and_then(Value::as_str).unwrap_or_default();
    (written.len() as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Whether the tool has a model draw an image, and not look at one.
fn draws(name: &ToolName) -> bool {
    name.tool == "generate_image"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ToolNamespace;

    fn of(server: &str, tool: &str, told: &Value) -> Option<ToolCharge> {
        let name = ToolName::qualified(ToolNamespace::Local, server, tool);
        let table = PriceTable::parse("f", "[providers.openai.painter]\ninput = 5\noutput = 40\n").unwrap();
        let raw = RawReply::ToolResult { result: json!({"content": [], "structuredContent": told}) };
        ToolCharge::of(&name, &json!({"prompt": "a green bear"}), &raw, &table)
    }

    /// Both tools × how a half is not counted × which half.
    #[test]
    fn a_half_that_nobody_counted_is_charged_by_the_estimate() {
        // 25 bytes of arguments; an image that is looked at beside them.
        let described = json!({"model": "painter", "description": "a green bear, asleep"});
        let drawn = json!({"model": "painter", "width": 1024, "height": 1536});
        for (tool, told, input, output) in
            [("describe_image", described, 1_607, 5), ("generate_image", drawn, 7, 6_144)]
        {
            let charged = |usage: Value| {
                let mut told = told.clone();
                told["usage"] = usage;
                of("ua", tool, &told).map(|charge| (charge.usage.input_tokens, charge.usage.output_tokens))
            };
            assert_eq!(charged(json!({"input_tokens": 3, "output_tokens": 4})), Some((3, 4)), "{tool}");
            // However it is written.
            assert_eq!(charged(json!({"input_tokens": 2.5, "output_tokens": "4"})), Some((3, 4)), "{tool}");
            for none in [json!(0), json!(null), json!(-1), json!(2_000_000_000_000_u64), json!("many")] {
                let what = format!("{tool} {none}");
                assert_eq!(charged(json!({"input_tokens": none, "output_tokens": 4})), Some((input, 4)), "{what}");
                assert_eq!(charged(json!({"input_tokens": 3, "output_tokens": none})), Some((3, output)), "{what}");
            }
            assert_eq!(charged(json!({"output_tokens": 4})), Some((input, 4)), "{tool}");
            assert_eq!(charged(json!({"input_tokens": 3})), Some((3, output)), "{tool}");
            assert_eq!(charged(json!({"input_tokens": 0, "output_tokens": 0})), Some((input, output)), "{tool}");
        }
        // An image whose size nobody says.
        let unknown = of("ua", "generate_image", &json!({"usage": {"input_tokens": 1}})).unwrap();
        assert_eq!(unknown.usage.output_tokens, DRAWN_TOKENS);
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
    fn an_answer_that_brought_nothing_is_charged_and_no_image_is_made_up_for_it() {
        let table = PriceTable::default();
        for tool in ToolCharge::TOOLS {
            let name = ToolName::qualified(ToolNamespace::Local, "ua", tool);
            let charged = |usage: Value| {
                let told = json!({"error": "it refused", "provider": "openai", "model": "painter", "usage": usage});
                let raw =
                    RawReply::ToolResult { result: json!({"content": [], "isError": true, "structuredContent": told}) };
                let charge = ToolCharge::of(&name, &json!({"prompt": "a green bear"}), &raw, &table).unwrap();
                (charge.model, charge.usage.input_tokens, charge.usage.output_tokens)
            };
            assert_eq!(charged(json!({"input_tokens": 1_000, "output_tokens": 1})), ("painter".into(), 1_000, 1));
            assert_eq!(charged(json!({"input_tokens": 1_000, "output_tokens": 0})), ("painter".into(), 1_000, 0));
        }
    }

    #[test]
    fn who_says_nothing_or_is_not_believed_is_charged_nothing() {
        let usage = json!({"model": "painter", "usage": {"input_tokens": 1}});
        assert!(of("ua", "describe_image", &usage).is_some());
        assert_eq!(of("ua", "read_local_file", &usage), None);
        assert_eq!(of("forum", "describe_image", &usage), None);
        for told in [
            json!({"model": "painter"}),
            json!({"usage": {}}),
            json!({"usage": {"input_tokens": null}}),
            json!({"usage": "much"}),
            json!(null),
        ] {
            assert_eq!(of("ua", "describe_image", &told), None, "{told}");
        }
    }
}
