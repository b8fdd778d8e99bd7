//! How long a reply may be asked for, read off a refusal of a request that asks for a longer one.
//!
//! Each server says it in its own words: as the longest reply of the model, or as a context in which the reply has no room beside the input. So
//! what is looked for are the numbers that stand with those words. A wrong number costs a refused request, and then the server's words are told
//! as they are.

use super::too_long::{OF_REPLY, OVER};

/// What stands behind the number of the input's tokens.
const INPUT: [&str; 9] = [
    "input tokens",
    "inputs tokens",
    "in the messages",
    "in your messages",
    "in the prompt",
    "in your prompt",
    "prompt tokens",
    "from the input",
    "tokens in the input",
];
/// What stands in front of the number of tokens that input and reply have together.
const TOGETHER: [&str; 7] = [
    "context length is",
    "context length of",
    "context window is",
    "context window of",
    "context size is",
    "context limit is",
    "must be <=",
];
/// What stands in front of the longest reply.
const AT_MOST: [&str; 12] = [
    "at most",
    "less than or equal to",
    "less or equal to",
    "must be <=",
    "value <=",
    "<=",
    ">",
    "maximum value of",
    "maximum of",
    "not exceed",
    "limit of",
    "up to",
];
/// The reply beside the input.
const IN_REPLY: [&str; 3] = ["in the completion", "for the completion", "messages or completion"];
/// The shortest reply that is asked for without a number of the server's.
const SHORTEST: u32 = 1_024;
/// The shortest that is of any use.
const USEFUL: u32 = 64;

/// How long a reply may be asked for, by the words of a refusal of one of `asked` tokens; `None` when it is not for that, or it is the input that
/// takes the room.
pub(crate) fn longest_reply(message: &str, asked: u32) -> Option<u32> {
    let said = message.to_ascii_lowercase().replace(['`', '\'', '"', '_'], " ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(&word.replace('_', " ")));
    if !has(&OF_REPLY) && !has(&IN_REPLY) {
        return None;
    }
    if said.contains("budget") {
        // `max_tokens` must be greater than `thinking.budget_tokens`: it is not too long, but too short.
        return None;
    }
    if let Some((input, together)) = sum(&said) {
        return (input <= together / 2).then(|| together - input).filter(|limit| is_of_use(*limit, asked));
    }
    let input = INPUT.iter().find_map(|words| number_in_front(&said, words));
    let together = TOGETHER.iter().find_map(|words| number_behind(&said, words));
    if let (Some(input), Some(together)) = (input, together) {
        // Where the input takes most of it, less of the history helps more than a short reply.
        return (input <= together / 2).then(|| together - input).filter(|limit| is_of_use(*limit, asked));
    }
    if together.is_some() && input.is_none() && has(&["context"]) && !has(&OF_REPLY) {
        return None;
    }
    let named = AT_MOST.iter().filter_map(|words| number_behind(&said, words)).find(|limit| is_of_use(*limit, asked));
    let half = || (has(&OVER) && asked / 2 >= SHORTEST).then_some(asked / 2);
    named.or_else(half)
}

/// The input and what it may have together with the reply, where they stand as a sum: `12920 + 8192 > 20000`.
fn sum(said: &str) -> Option<(u32, u32)> {
    let (before, behind) = said.split_once(" + ")?;
    let input = before.rsplit(' ').next()?;
    let (reply, behind) = behind.split_once(" > ")?;
    let together = behind.split([' ', ',', '.', ';']).next()?;
    reply.parse::<u32>().ok()?;
    Some((input.parse().ok()?, together.parse().ok()?))
}

fn is_of_use(limit: u32, asked: u32) -> bool {
    (USEFUL..asked).contains(&limit)
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == ','
}

/// The number right behind these words, where there is one.
fn number_behind(said: &str, words: &str) -> Option<u32> {
    said.match_indices(words).find_map(|(at, _)| {
        let behind = said[at + words.len()..].trim_start_matches([' ', ':', '=']);
        let end = behind.find(|c| !is_of_number(c)).unwrap_or(behind.len());
        digits(&behind[..end]).parse().ok()
    })
}

/// The number right in front of these words, where there is one.
fn number_in_front(said: &str, words: &str) -> Option<u32> {
    said.match_indices(words).find_map(|(at, _)| {
        let before = said[..at].trim_end();
        let begin = before.rfind(|c| !is_of_number(c)).map_or(0, |at| at + 1);
        digits(&before[begin..]).parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of the servers that people use, each with the longest reply that it would take.
    #[test]
    fn every_servers_words_for_a_reply_that_is_too_long_are_read() {
        for (server, message, limit) in [
            (
                "vLLM",
                "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens and your request has 300 input tokens (8192 > 8192 - 300).",
                Some(7_892),
            ),
            (
                "vLLM of old",
                "This model's maximum context length is 8192 tokens. However, you requested 8492 tokens (300 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
                Some(7_892),
            ),
            (
                "OpenAI",
                "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.",
                Some(4_096),
            ),
            (
                "Responses",
                "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.",
                Some(4_096),
            ),
            (
                "Anthropic",
                "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for claude-3-haiku-20240307",
                Some(4_096),
            ),
            (
                "Groq",
                "`max_tokens` must be less than or equal to `8000`, the maximum value for `max_tokens` is less than the `context_window` for this model",
                Some(8_000),
            ),
            (
                "TGI",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 300 `inputs` tokens and 8192 `max_new_tokens`",
                Some(7_892),
            ),
            (
                "Anthropic's context",
                "input length and `max_tokens` exceed context limit: 4000 + 8192 > 10000, decrease input length or `max_tokens` and try again",
                Some(6_000),
            ),
            ("nobody", "max_tokens exceeds what this model writes", Some(4_096)),
        ] {
            assert_eq!(longest_reply(message, 8_192), limit, "{server}");
        }
    }

    #[test]
    fn where_the_input_takes_the_room_or_something_else_is_refused_nothing_is_shortened() {
        for message in [
            "This model's maximum context length is 8192 tokens. However, you requested 15692 tokens (7500 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            "input length and `max_tokens` exceed context limit: 12920 + 8192 > 20000, decrease input length or `max_tokens` and try again",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the messages.",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "temperature must be less than or equal to 1",
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation",
            "The value of max_tokens (8192) must be greater than the thinking budget of 8192",
            "Unsupported parameter: 'max_tokens'",
            "",
        ] {
            assert_eq!(longest_reply(message, 8_192), None, "{message}");
        }
        assert_eq!(longest_reply("max_tokens is too large", 1_500), None, "half of it is of no use");
    }
}
