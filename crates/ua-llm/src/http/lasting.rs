//! What comes again however long one waits, though its server says it with a status that reads otherwise: as a failure of its own (500), or as a
//! model that is not there (404).
//!
//! Whoever fails for a while is asked again for half an hour, so a sentence is on this list only if no wait can change what it says: how the server
//! was started, what the model's template takes, whose key a router has. Everything else stays what its status says, and a server that only fails
//! says none of this. The words are those of the servers themselves, in small letters; the tests have them as they were seen, and what is near them.

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The model, or the server as it was started, calls no tools.
    NoTools,
    /// The server makes a grammar of schemas, and cannot of these.
    Grammar,
    /// A role, or an order of roles, that the model's template does not take.
    Roles,
    /// The model's template cannot write the conversation.
    Template,
    /// The model does not fit into the memory of its machine, which does not grow.
    Memory,
    /// The key that a router has for the provider behind it is refused there.
    KeyBehind,
    /// The settings of the account at a router leave no provider for the model.
    NoRoute,
    /// No provider behind a router takes all that the request has.
    NoneTakesIt,
}

/// Each with the words that it is told by, all of which have to be there. The first one that fits is meant.
const SAYINGS: [(Lasting, &[&str]); 44] = [
    // llama.cpp without `--jinja` (500), also with `tool_choice`; older ones (its issue 10920).
    (Lasting::NoTools, &["param requires --jinja"]),
    (Lasting::NoTools, &["unsupported param: tools"]),
    // vLLM without a parser of calls (its issue 9986).
    (Lasting::NoTools, &["enable-auto-tool-choice"]),
    // Ollama, OpenRouter (404), and whoever speaks like them.
    (Lasting::NoTools, &["not support tools"]),
    (Lasting::NoTools, &["support tool use"]),
    (Lasting::NoTools, &["not support tool call"]),
    (Lasting::NoTools, &["not support function call"]),
    (Lasting::NoTools, &["tool calling is not supported"]),
    (Lasting::NoTools, &["tools are not supported"]),
    // llama.cpp, older ones with 500 (its issues 19716 and 25895), and Ollama in front of it.
    (Lasting::Grammar, &["json schema conversion failed"]),
    (Lasting::Grammar, &["failed to parse grammar"]),
    (Lasting::Grammar, &["error parsing grammar"]),
    // vLLM with xgrammar, and hosts of it.
    (Lasting::Grammar, &["not supported by xgrammar"]),
    (Lasting::Grammar, &["failed to compile", "grammar"]),
    (Lasting::Grammar, &["guided decoding", "unsupported"]),
    // SGLang (its pull request 20467); Anthropic and Azure.
    (Lasting::Grammar, &["invalid grammar request"]),
    (Lasting::Grammar, &["compiled grammar is too large"]),
    // Templates of Mistral, Gemma and Llama, in llama.cpp (500, its issue 19851), vLLM (400) and LoRAX (424).
    (Lasting::Roles, &["roles must alternate"]),
    (Lasting::Roles, &["unexpected message role"]),
    (Lasting::Roles, &["unexpected role"]),
    (Lasting::Roles, &["unsupported role"]),
    (Lasting::Roles, &["invalid role"]),
    (Lasting::Roles, &["unknown role"]),
    (Lasting::Roles, &["roles are supported"]),
    (Lasting::Roles, &["role not supported"]),
    (Lasting::Roles, &["role is not supported"]),
    (Lasting::Template, &["jinja exception"]),
    (Lasting::Template, &["templateerror"]),
    (Lasting::Template, &["chat template"]),
    // Ollama.
    (Lasting::Memory, &["requires more system memory"]),
    // LiteLLM (500): OpenAI, Anthropic, Gemini, Bedrock and httpx behind it.
    (Lasting::KeyBehind, &["incorrect api key"]),
    (Lasting::KeyBehind, &["invalid x-api-key"]),
    (Lasting::KeyBehind, &["api key not valid"]),
    (Lasting::KeyBehind, &["invalid api key"]),
    (Lasting::KeyBehind, &["invalid_api_key"]),
    (Lasting::KeyBehind, &["authenticationerror"]),
    (Lasting::KeyBehind, &["authentication_error"]),
    (Lasting::KeyBehind, &["unable to locate credentials"]),
    // OpenRouter (404).
    (Lasting::NoRoute, &["no endpoints", "data policy"]),
    (Lasting::NoRoute, &["no endpoints", "guardrail restrictions"]),
    (Lasting::NoRoute, &["all providers have been ignored"]),
    (Lasting::NoRoute, &["no allowed providers"]),
    (Lasting::NoneTakesIt, &["no endpoints found that can handle"]),
    (Lasting::NoneTakesIt, &["no endpoints found that support"]),
];

/// What a router says of several providers behind it when one of them may answer later.
const MAY_PASS: [&str; 6] =
    ["ratelimiterror", "rate_limit", "too many requests", "serviceunavailable", "overloaded", "timeout"];

impl Lasting {
    /// What a refusal, or a failure, says that comes again.
    pub(crate) fn of(message: &str) -> Option<Self> {
        let said = message.to_ascii_lowercase();
        SAYINGS.iter().find(|(_, words)| words.iter().all(|word| said.contains(word))).map(|(what, _)| *what)
    }

    /// The same as it is said with a status that would be read as something else.
    pub(crate) fn behind(status: u16, message: &str) -> Option<Self> {
        let is_failure = matches!(status, 424 | 500 | 501);
        Self::of(message).filter(|said| match said {
            Self::NoTools => is_failure || status == 404,
            Self::Grammar | Self::Roles | Self::Template | Self::Memory => is_failure,
            Self::KeyBehind => status == 500 && !may_pass(message),
            Self::NoRoute | Self::NoneTakesIt => status == 404,
        })
    }
}

/// Whether a router quotes a failure that may pass as well.
fn may_pass(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    MAY_PASS.iter().any(|words| said.contains(words))
        || quoted_status(&said).is_some_and(|status| matches!(status, 408 | 409 | 425 | 429 | 500..))
}

/// The status of the provider behind a router, as it is quoted in small letters.
pub(super) fn quoted_status(said: &str) -> Option<u16> {
    ["error code: ", "status code: ", "client error '"].iter().find_map(|words| {
        let (_, behind) = said.split_once(words)?;
        behind.get(..3)?.parse::<u16>().ok()
    })
}

/// Whether words about a key are those of a router about the provider behind it, and not about the key that it was sent itself.
pub(crate) fn is_of_a_key_behind(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    let of_its_own = ["virtual key", "proxy server token", "verificationtoken"];
    said.contains("litellm.") && !of_its_own.iter().any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::LlmError;
    use crate::http::reject::by_status;

    /// The words of servers as they were seen, with what is said by them and what the hint has.
    const SEEN: [(&str, u16, &str, Lasting, &str); 24] = [
        ("llama.cpp", 500, "tools param requires --jinja flag", Lasting::NoTools, "`--jinja`"),
        ("llama.cpp", 500, "tool_choice param requires --jinja flag", Lasting::NoTools, "`--jinja`"),
        ("llama.cpp, older", 500, "Unsupported param: tools", Lasting::NoTools, "`--jinja`"),
        (
            "LiteLLM before llama.cpp",
            500,
            "litellm.InternalServerError: InternalServerError: OpenAIException - Error code: 500 - {'error': {'code': 500, 'message': \
             'tools param requires --jinja flag', 'type': 'server_error'}}",
            Lasting::NoTools,
            "`--jinja`",
        ),
        (
            "vLLM",
            400,
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            Lasting::NoTools,
            "`--tool-call-parser`",
        ),
        (
            "vLLM behind a proxy",
            500,
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            Lasting::NoTools,
            "`--tool-call-parser`",
        ),
        (
            "OpenRouter",
            404,
            "No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai/docs",
            Lasting::NoTools,
            "`--model MODEL`",
        ),
        (
            "llama.cpp",
            500,
            "JSON schema conversion failed:\nUnrecognized schema: {\"description\":\"Value for add/replace/test operations\"}",
            Lasting::Grammar,
            "`--job-overrides FILE`",
        ),
        (
            "llama.cpp of today",
            400,
            "Failed to initialize samplers: failed to parse grammar",
            Lasting::Grammar,
            "`--job-overrides FILE`",
        ),
        (
            "a host of vLLM",
            500,
            "Failed to compile structural_tag grammar: [02:59:08] /project/cpp/json_schema_converter.cc:2999: items must be a boolean or an \
             object",
            Lasting::Grammar,
            "`--job-overrides FILE`",
        ),
        (
            "vLLM",
            500,
            "The provided JSON schema contains features not supported by xgrammar.",
            Lasting::Grammar,
            "`--job-overrides FILE`",
        ),
        (
            "llama.cpp",
            500,
            "\n------------\nWhile executing CallExpression at line 19, column 27 in source:\n...{{ raise_exception(\"Conversation roles must \
             alternate user...\nError: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
            Lasting::Roles,
            "`--chat-template-file`",
        ),
        (
            "LoRAX",
            424,
            "Request failed during generation: Server error: Conversation roles must alternate user/assistant/user/assistant/...",
            Lasting::Roles,
            "`--chat-template-file`",
        ),
        ("a door to another API", 500, "Unsupported role: tool", Lasting::Roles, "`--chat-template-file`"),
        (
            "Anthropic behind a router",
            500,
            "messages: Unexpected role \"tool\". Allowed roles are \"user\" or \"assistant\".",
            Lasting::Roles,
            "`--chat-template-file`",
        ),
        (
            "llama.cpp",
            500,
            "While executing CallExpression at line 4: Error: Jinja Exception: no tools for you",
            Lasting::Template,
            "`--chat-template-file`",
        ),
        (
            "Ollama",
            500,
            "model requires more system memory (5.5 GiB) than is available (3.1 GiB)",
            Lasting::Memory,
            "memory",
        ),
        (
            "LiteLLM",
            500,
            "litellm.APIConnectionError: OpenAIException - Incorrect API key provided: sk-1234. You can find your API key at \
             https://platform.openai.com/account/api-keys.",
            Lasting::KeyBehind,
            "the router",
        ),
        (
            "LiteLLM",
            500,
            "litellm.InternalServerError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\
             \"invalid x-api-key\"}}",
            Lasting::KeyBehind,
            "the router",
        ),
        (
            "LiteLLM",
            500,
            "litellm.APIConnectionError: GeminiException - API key not valid. Please pass a valid API key.",
            Lasting::KeyBehind,
            "the router",
        ),
        (
            "LiteLLM",
            500,
            "litellm.APIConnectionError: BedrockException - Unable to locate credentials",
            Lasting::KeyBehind,
            "the router",
        ),
        (
            "OpenRouter",
            404,
            "No endpoints found matching your data policy (Free model publication). Configure: https://openrouter.ai/settings/privacy",
            Lasting::NoRoute,
            "settings/privacy",
        ),
        (
            "OpenRouter",
            404,
            "No allowed providers are available for the selected model.",
            Lasting::NoRoute,
            "settings/privacy",
        ),
        (
            "OpenRouter",
            404,
            "No endpoints found that can handle the requested parameters.",
            Lasting::NoneTakesIt,
            "`--job-overrides FILE`",
        ),
    ];

    /// What servers say that fail for a while, or name a model that is not there.
    const NEAR: [(u16, &str, bool); 17] = [
        (500, "Internal Server Error", true),
        (500, "", true),
        (500, "The server had an error while processing your request. Sorry about that!", true),
        (500, "litellm.InternalServerError: AnthropicException - Overloaded. Received Model Group=claude", true),
        (500, "litellm.APIError: APIError: OpenAIException - Error code: 429 - slow down", true),
        (
            500,
            "litellm.InternalServerError: OpenAIException - Error code: 503 - {'message': 'invalid api key cache is down'}",
            true,
        ),
        (500, "litellm.APIConnectionError: Fallbacks failed: AuthenticationError, RateLimitError", true),
        (500, "llama runner process has terminated: exit status 2", true),
        (500, "CUDA out of memory", true),
        (500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", true),
        (500, "tools were called too often", true),
        (502, "Bad Gateway", true),
        (503, "The model is overloaded. Please try again later.", true),
        (503, "Loading model", true),
        (529, "Overloaded", true),
        (404, "No endpoints found for qwen/qwen3-9b.", false),
        (404, "The model `x` does not exist", false),
    ];

    #[test]
    fn what_no_wait_ends_is_told_in_every_servers_words_and_with_what_helps() {
        for (server, status, message, what, has) in SEEN {
            assert_eq!(Lasting::of(message), Some(what), "{server}: {message}");
            for body in [
                json!({"error": {"code": status, "message": message, "type": "server_error"}}),
                json!({"object": "error", "message": message, "code": status}),
                json!({"error": message}),
            ] {
                let error = by_status(status, None, &body.to_string(), "m");
                assert!(error.is_final() && !error.may_retry() && error.was_refused(), "{server}: {error:?}");
                let is_of_key = matches!(error, LlmError::Unauthorized { .. });
                assert_eq!(is_of_key, what == Lasting::KeyBehind, "{server}: {error:?}");
                assert!(is_of_key || matches!(error, LlmError::InvalidRequest { .. }), "{server}: {error:?}");
                assert!(!error.may_be_too_long(), "{server}: {error:?}");
                let hint = error.hint("openai-chat").unwrap();
                assert!(hint.contains(has), "{server}: {hint}");
            }
        }
    }

    #[test]
    fn what_may_pass_is_waited_for() {
        for (status, message, may_retry) in NEAR {
            let body = json!({"error": {"code": status, "message": message}}).to_string();
            let error = by_status(status, None, &body, "qwen/qwen3-9b");
            assert_eq!(error.may_retry(), may_retry, "{status} {message}: {error:?}");
            assert_eq!(matches!(error, LlmError::NotFound { .. }), status == 404, "{status} {message}: {error:?}");
        }
        // Words of the list with a status of somebody who has no capacity now.
        for status in [502, 503, 529] {
            let body = json!({"error": {"message": "chat template of the model is being loaded"}}).to_string();
            assert!(by_status(status, None, &body, "m").may_retry(), "{status}");
        }
    }

    #[test]
    fn a_router_that_refuses_the_key_it_was_sent_speaks_of_no_other() {
        for (message, is_behind) in [
            ("litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: x", true),
            ("litellm.APIError: Error code: 401 - no", true),
            ("Authentication Error, LiteLLM Virtual Key expected. Received=sk-1, expected to start with 'sk-'.", false),
            (
                "Authentication Error, Invalid proxy server token passed. Unable to find token in cache or `LiteLLM_VerificationTokenTable`",
                false,
            ),
            ("Incorrect API key provided: x", false),
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            for status in [401, 403] {
                let hint = by_status(status, None, &body, "m").hint("openai-chat").unwrap();
                assert_eq!(hint.contains("the router"), is_behind, "{message}: {hint}");
                assert_eq!(hint.contains("OPENAI_API_KEY"), !is_behind, "{message}: {hint}");
            }
        }
    }
}
