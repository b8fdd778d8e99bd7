//! The words for how a reply ended.
//!
//! Each wire has its own, and servers in between hand on those of the wire behind them: a proxy of Bedrock says `guardrail_intervened` to Chat
//! Completions, one of Claude `tool_use`. None of them means one thing here and another there, so all are known everywhere: a call behind a word that
//! nobody knows is not made, and the run would end with a question.

use ua_core::StopReason;

/// The word for a reply that ran into the end of the context.
pub(crate) const CONTEXT_IS_FULL: &str = "model_context_window_exceeded";

/// What a word means, whichever wire or model it is of.
pub(crate) fn stop_reason(word: &str) -> StopReason {
    let word = word.to_ascii_lowercase();
    // Gemini's door says why behind a colon: `content_filter: RECITATION`, `function_call_filter: MALFORMED_FUNCTION_CALL`.
    let word = word.split(':').next().unwrap_or_default().trim();
    if let Ok(known) = word.parse() {
        return known;
    }
    match word {
        "stop" | "eos" | "eos_token" | "complete" | "completed" => StopReason::EndTurn,
        "tool_calls" | "tool_call" | "function_call" => StopReason::ToolUse,
        // The context window is an output limit too: the reply was cut in the middle.
        "length" | "model_length" | "max_output_tokens" | CONTEXT_IS_FULL => StopReason::MaxTokens,
        "content_filter"
        | "content_filtered"
        | "guardrail_intervened"
        | "safety"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii" => StopReason::Refusal,
        _ => StopReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_reason_has_its_word_and_new_ones_are_other() {
        for reason in StopReason::ALL {
            assert_eq!(stop_reason(reason.as_str()), *reason);
        }
        for (word, expected) in [
            ("stop", StopReason::EndTurn),
            ("STOP", StopReason::EndTurn),
            ("tool_calls", StopReason::ToolUse),
            ("MAX_TOKENS", StopReason::MaxTokens),
            ("model_context_window_exceeded", StopReason::MaxTokens),
            ("SAFETY", StopReason::Refusal),
            ("content_filter: RECITATION", StopReason::Refusal),
            ("guardrail_intervened", StopReason::Refusal),
            ("function_call_filter: MALFORMED_FUNCTION_CALL", StopReason::Other),
            ("malformed_function_call", StopReason::Other),
            ("error", StopReason::Other),
            ("bored", StopReason::Other),
            ("", StopReason::Other),
        ] {
            assert_eq!(stop_reason(word), expected, "{word}");
        }
    }
}
