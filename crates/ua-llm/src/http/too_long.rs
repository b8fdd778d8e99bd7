//! Whether a refusal means that the request has more tokens than the model takes.
//!
//! Each server says it in its own words, and new ones do. A list of sentences knows only the servers of yesterday, so what is looked for is what
//! each of them has to say: that a measure of the input (context, prompt, tokens, length) is over a bound. What speaks of the longest reply,
//! of money, of a rate or of a part of the request that has a name (a tool, a parameter) is something else. Who knows how large the request
//! was finds out the rest ([`LlmError::may_be_too_long`](crate::LlmError::may_be_too_long)). A wrong yes costs a few refused requests with less
//! of the history, and then the provider's words are told as they are.

use serde_json::Value;

/// Codes and names of error classes that say it alone, in lower case.
const CODES: [&str; 12] = [
    "context_length_exceeded",
    "contextlengthexceeded",
    "contextwindowexceeded",
    "context_window_exceeded",
    "exceed_context_size",
    "context_size_exceeded",
    "context_overflow",
    "max_context_length",
    "request_too_large",
    "prompt_too_long",
    "input_too_long",
    "token_limit_exceeded",
];
/// What is measured.
const MEASURES: [&str; 9] =
    ["context", "prompt", "input", "token", "sequence length", "messages", "history", "request", "conversation"];
/// What a measure is of that a limit of length can be about.
const LENGTHS: [&str; 6] = ["context", "token", "length", "window", "prompt", "input"];
/// That it is over a bound.
pub(super) const OVER: [&str; 28] = [
    "too long",
    "too large",
    "too big",
    "too many",
    "exceed",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the",
    "overflow",
    "out of range",
    "must be <=",
    "must be less",
    "less than or equal",
    "at most",
    "range of",
    "should be [",
    "maximum",
    "max context",
    "limit of",
    "limited to",
    "reduce the",
    "shorter",
    "shorten",
    "not enough",
    "not fit",
    "no room",
];
/// What is over a bound that cutting the history does not help.
const ELSEWHERE: [&str; 16] = [
    "quota",
    "billing",
    "credit",
    "balance",
    "rate limit",
    "rate_limit",
    "per minute",
    "per day",
    "requests per",
    "temperature",
    "top_p",
    "image",
    "stop sequence",
    "metadata",
    "expired",
    "api key",
];
/// The longest reply, in the words of the wires.
pub(super) const OF_REPLY: [&str; 6] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "completion tokens",
    "output tokens",
];
/// The input, where a sentence has both.
const OF_INPUT: [&str; 6] = ["context", "input", "prompt", "messages", "sequence", "history"];

/// Whether a code or the name of an error's class says it.
pub(crate) fn is_code_of_too_long(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    CODES.iter().any(|known| code.contains(known))
}

/// Whether words say it.
pub(crate) fn says_too_long(text: &str) -> bool {
    if is_code_of_too_long(text) {
        return true;
    }
    let text = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&ELSEWHERE) || names_a_part(&text) || (has(&OF_REPLY) && !has(&OF_INPUT)) {
        return false;
    }
    has(&MEASURES) && has(&LENGTHS) && has(&OVER)
}

/// Whether the answer to a refused request says it: by a status of a refusal, or, from servers that fail where they should refuse, by 500.
pub(super) fn says_so(status: u16, body: &str, message: &str) -> bool {
    match status {
        400 | 422 => has_code(body) || says_too_long(message),
        // A server that failed says many things; only one that names the context is believed.
        500 | 503 => {
            let said = message.to_ascii_lowercase();
            has_code(body)
                || ((said.contains("context") || said.contains("input is too long")) && says_too_long(message))
        }
        _ => false,
    }
}

/// Whether a limit of what is taken within a while is one that this request alone is over: no wait helps then. Most limits are over because of
/// what was asked before.
pub(super) fn never_fits(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    let number_behind = |word: &str| {
        said.match_indices(word).find_map(|(at, _)| {
            let behind = said[at + word.len()..].trim_start_matches([' ', ':', '=']);
            let ends = |c: char| !c.is_ascii_digit() && !matches!(c, ',' | '_');
            let digits = behind.split(ends).next().unwrap_or_default().replace([',', '_'], "");
            digits.parse::<u64>().ok()
        })
    };
    let is_over = number_behind("requested").zip(number_behind("limit")).is_some_and(|(asked, limit)| asked > limit);
    is_over || ["request too large", "must be reduced", "long context request"].iter().any(|words| said.contains(words))
}

/// Whether an error of any wire's shape has such a code, wherever it stands in it.
fn has_code(body: &str) -> bool {
    fn go(value: &Value, depth: u8) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(name, value)| match value {
                Value::String(code) => {
                    matches!(name.as_str(), "code" | "type" | "status" | "reason" | "error")
                        && is_code_of_too_long(code)
                }
                Value::Object(_) => depth > 0 && go(value, depth - 1),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        }
    }
    serde_json::from_str::<Value>(body).is_ok_and(|body| go(&body, 3))
}

/// Whether a refusal names the part of the request that it is about, and that part is not what was said so far: `tools[3].function`,
/// `'temperature'`, `response_format`.
pub(crate) fn names_a_part(message: &str) -> bool {
    const PARTS: [&str; 20] = [
        "tools.",
        "tools[",
        "tool_choice",
        "function.name",
        "function.parameters",
        "input_schema",
        "response_format",
        "text.format",
        "output_config",
        "reasoning_effort",
        "reasoning.effort",
        "thinking.",
        "temperature",
        "unsupported parameter",
        "unknown parameter",
        "unrecognized request argument",
        "support tools",
        "support tool use",
        "enable-auto-tool-choice",
        "grammar",
    ];
    let message = message.to_ascii_lowercase();
    PARTS.iter().any(|part| message.contains(part))
}

/// Whether a refusal is of thoughts in the history, and not of how long or what else it is.
pub(crate) fn names_thoughts(message: &str) -> bool {
    const THOUGHTS: [&str; 6] =
        ["signature", "thinking", "thought", "reasoning", "encrypted content", "encrypted_content"];
    let message = message.to_ascii_lowercase();
    THOUGHTS.iter().any(|word| message.contains(word))
}

/// Whether a refusal names one of the things that were said so far, and measures nothing: `messages.1.content.0`, `input[3].call_id`.
pub(crate) fn names_an_item(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let names = |list: &str| message.match_indices(list).any(|(at, _)| is_number(&message[at + list.len()..]));
    let is_one = ["messages.", "messages[", "input[", "input."].iter().any(|list| names(list));
    is_one && !message.contains('>') && !OVER.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::error::LlmError;
    use crate::http::reject::{by_status, status_of_error};

    /// The words of the servers that people use, as they were seen, and one sentence that no server has: with its own numbers, each is a request
    /// that is too long, over any status that such a server answers with.
    #[test]
    fn every_servers_words_for_too_long_are_known() {
        for (server, status, message) in [
            (
                "OpenAI",
                400,
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the messages.",
            ),
            (
                "OpenAI, Responses",
                400,
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
            (
                "Azure",
                400,
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 290000 tokens. Please reduce the length of the messages.",
            ),
            ("Anthropic", 400, "prompt is too long: 215000 tokens > 200000 maximum"),
            (
                "Anthropic, both",
                400,
                "input length and `max_tokens` exceed context limit: 58000 + 8192 > 60000, decrease input length or `max_tokens` and try again",
            ),
            ("Bedrock", 400, "Input is too long for requested model."),
            ("Gemini", 400, "The input token count (70000) exceeds the maximum number of tokens allowed (60000)."),
            (
                "Mistral",
                400,
                "Prompt contains 70000 tokens and 0 draft tokens, too large for model with 60000 maximum context length",
            ),
            ("xAI", 400, "This model's maximum prompt length is 60000 but the request contains 70000 tokens."),
            (
                "Together",
                422,
                "`inputs` tokens + `max_new_tokens` must be <= 60000. Given: 70000 `inputs` tokens and 512 `max_new_tokens`",
            ),
            (
                "vLLM",
                400,
                "The decoder prompt (length 70000) is longer than the maximum model length of 60000. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            ),
            (
                "vLLM, both",
                400,
                "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 60000 tokens and your request has 58000 input tokens (8192 > 60000 - 58000).",
            ),
            (
                "vLLM, older",
                400,
                "This model's maximum context length is 60000 tokens. However, you requested 70000 tokens (68000 in the messages, 2000 in the completion). Please reduce the length of the messages or completion.",
            ),
            (
                "LM Studio",
                400,
                "Trying to keep the first 70000 tokens when context the overflows. However, the model is loaded with context length of only 60000 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input",
            ),
            ("Fireworks", 400, "The prompt is too long: 70000, model maximum context length: 60000"),
            ("SGLang", 400, "The input (70000 tokens) is longer than the model's context length (60000 tokens)."),
            (
                "SGLang, both",
                400,
                "Requested token count exceeds the model's maximum context length of 60000 tokens. You requested a total of 70000 tokens",
            ),
            (
                "Cohere",
                400,
                "too many tokens: total number of tokens in the prompt cannot exceed 60000 - received 70000.",
            ),
            ("LiteLLM", 400, "litellm.BadRequestError: litellm.ContextWindowExceededError: OpenAIException - no"),
            ("llama.cpp", 400, "the request exceeds the available context size, try increasing it"),
            ("llama.cpp, older", 500, "context size has been exceeded"),
            ("Ollama", 400, "prompt too long; exceeded max context length by 4 tokens"),
            ("Ollama, older", 500, "input length exceeds maximum context length"),
            (
                "OpenRouter",
                400,
                "This endpoint's maximum context length is 60000 tokens. However, you requested about 70000 tokens (69000 of text input, 1000 in the output).",
            ),
            ("DeepInfra", 400, "inputs too long, max context 60000"),
            ("Perplexity", 400, "The input is longer than the maximum context length of 60000 tokens"),
            ("Z.ai", 400, "tokens in request more than max tokens allowed"),
            ("Qwen", 400, "Range of input length should be [1, 60000]"),
            ("Moonshot", 400, "Invalid request: Your request exceeded model token limit: 60000"),
            ("Databricks", 400, "Input is too long for this model"),
            (
                "Groq",
                413,
                "Request too large for model `x` in organization on tokens per minute (TPM): Limit 6000, Requested 70000",
            ),
            ("a proxy", 413, "Request Entity Too Large"),
            (
                "one that nobody has seen",
                400,
                "Sorry, the conversation does not fit: its 70000 tokens are over the window of this model",
            ),
        ] {
            for body in [
                json!({"error": {"message": message, "type": "invalid_request_error"}}),
                json!({"object": "error", "message": message, "code": status}),
                json!({"detail": message}),
            ] {
                let error = by_status(status, None, &body.to_string(), "m");
                assert!(matches!(error, LlmError::TooLong { .. }), "{server}: {error}");
                assert!(error.was_refused() && !error.may_retry(), "{server}: {error}");
            }
        }
        for body in [
            json!({"error": {"message": "no", "code": "context_length_exceeded"}}),
            json!({"error": {"code": 400, "message": "no", "type": "exceed_context_size_error"}}),
            json!({"error": {"message": "no", "metadata": {"error": {"code": "context_length_exceeded"}}}}),
            json!({"type": "error", "error": {"type": "request_too_large", "message": "no"}}),
        ] {
            assert!(matches!(by_status(400, None, &body.to_string(), "m"), LlmError::TooLong { .. }), "{body}");
        }
    }

    #[test]
    fn a_limit_of_a_while_that_one_request_is_over_is_no_matter_of_time() {
        for (status, message) in [
            (
                429,
                "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 50000. The input or output tokens must be reduced in order to run successfully.",
            ),
            (429, "Rate limit reached for m on tokens per min (TPM): Limit 30,000, Used 100, Requested 50,000."),
            (429, "Extra usage is required for long context requests."),
            (503, "Input is too long for requested model."),
        ] {
            let body = json!({"error": {"message": message, "code": "rate_limit_exceeded"}}).to_string();
            let error = by_status(status, None, &body, "m");
            assert!(matches!(error, LlmError::TooLong { .. }), "{message}: {error:?}");
        }
        for message in [
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 5000. Please try again in 8s.",
            "Too many requests",
            "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
        ] {
            let body = json!({"error": {"message": message, "code": "rate_limit_exceeded"}}).to_string();
            let error = by_status(429, None, &body, "m");
            assert!(matches!(error, LlmError::RateLimited { .. }), "{message}: {error:?}");
        }
    }

    #[test]
    fn an_error_in_the_place_of_a_reply_is_what_its_status_says() {
        let of = |code: serde_json::Value, message: &str| {
            status_of_error(&json!({"error": {"code": code, "message": message}}).to_string())
        };
        assert_eq!(of(json!(400), "no"), Some(400));
        assert_eq!(of(json!("429"), "slow down"), Some(429));
        assert_eq!(of(json!(503), "busy"), Some(503));
        for code in [json!("context"), json!(7), json!(null), json!(200)] {
            assert_eq!(of(code.clone(), "no"), None, "{code}");
            assert_eq!(of(code, "This model's maximum context length is 8192 tokens."), Some(400));
        }
    }

    /// Cutting the history helps none of these.
    #[test]
    fn other_refusals_are_not_taken_for_it() {
        for (status, message) in [
            (400, "bad temperature"),
            (400, "temperature must be less than or equal to 2"),
            (400, "max_tokens is too large: 32768. This model supports at most 16384 completion tokens."),
            (400, "max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for claude-x"),
            (
                400,
                "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 130 instead.",
            ),
            (
                400,
                "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 1500 instead.",
            ),
            (400, "Invalid schema for function 'x': array schema missing items"),
            (400, "Your credit balance is too low to access the API."),
            (400, "You have exceeded your monthly token quota."),
            (400, "messages: roles must alternate between \"user\" and \"assistant\""),
            (400, "No tool output found for function call a."),
            (400, "image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes"),
            (422, "Input should be a valid dictionary"),
            (500, "the request took longer than the limit of 60 s"),
            (500, "Internal Server Error"),
        ] {
            let body = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
            let error = by_status(status, None, &body, "m");
            assert!(!matches!(error, LlmError::TooLong { .. }), "{message}: {error:?}");
        }
    }

    #[test]
    fn what_may_be_too_long_is_a_refusal_of_the_request_as_it_is() {
        let error =
            |status, message: &str| by_status(status, None, &json!({"error": {"message": message}}).to_string(), "m");
        for (status, message) in [(400, "Bad Request"), (422, "unprocessable"), (400, "\u{8f93}\u{5165} 70000 > 60000")]
        {
            assert!(error(status, message).may_be_too_long(), "{message}");
        }
        for (status, message) in
            [(400, "tools[3].function.name is bad"), (400, "bad temperature"), (401, "no"), (500, "no"), (429, "slow")]
        {
            assert!(!error(status, message).may_be_too_long(), "{message}");
        }
    }

    #[test]
    fn a_refusal_of_one_thing_that_was_said_is_no_guess_at_the_length() {
        let refused = |message: &str| LlmError::InvalidRequest {
            status: crate::error::Status::Http(400),
            message: message.to_owned(),
        };
        for message in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "The encrypted content gAAA could not be verified.",
            "'messages.2' : property 'reasoning' is unsupported",
            "Function call is missing a thought_signature in functionCall parts.",
            "Invalid type for 'input[3].output': expected a string.",
            "messages.4.content.1.tool_use.input: Input should be a valid dictionary",
            "registry.ollama.ai/library/gemma:latest does not support tools",
        ] {
            assert!(!refused(message).may_be_too_long(), "{message}");
        }
        for message in ["Bad Request", "messages[3]: 41000 > 40000", "invalid request (request id: 7)"] {
            assert!(refused(message).may_be_too_long(), "{message}");
        }
        // What may be about a picture is asked about first.
        assert!(refused("messages.1.content.0: could not process").may_be_about_images());
        assert!(!refused("messages.1.content.0: Invalid `signature` in `thinking` block").may_be_about_images());
    }
}
