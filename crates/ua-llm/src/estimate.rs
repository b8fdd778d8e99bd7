//! How many tokens a request is likely to have, guessed on this machine.
//!
//! Granular Execution PRD §6 (estimate of a reservation). A guess is used where there is no better number: for the budget
//! before a request leaves, and for what is charged when nobody says what it cost. The provider's usage always wins.

use ua_core::{Message, Usage};

use crate::image::uncounted_bytes;
use crate::request::ModelRequest;

/// The estimator's name and version, stored with every reservation and part of what shapes a step: four bytes of the
/// request's canonical JSON count as a token.
pub const ESTIMATOR: &str = "canonical-bytes-4/1";

/// The bytes that count as a token.
const BYTES_PER_TOKEN: u64 = 4;

/// Estimates the input tokens of a request. An image counts for what a large one costs, whatever its bytes.
pub fn estimate_input_tokens(request: &ModelRequest) -> u64 {
    let uncounted = request.messages.iter().map(uncounted_in).sum();
    tokens_of(request.canonical().as_str().len() as u64, uncounted)
}

/// Bytes of a message's JSON that cost nothing by themselves: those of images.
pub(crate) fn uncounted_in(message: &Message) -> u64 {
    message.blocks.iter().map(|block| uncounted_bytes(block, BYTES_PER_TOKEN)).sum()
}

/// What a request costs whose canonical JSON has so many bytes, and so many of them that do not count.
pub(crate) fn tokens_of(bytes: u64, uncounted: u64) -> u64 {
    bytes.saturating_sub(uncounted).div_ceil(BYTES_PER_TOKEN)
}

/// What is known of the cost of a reply that is still coming, or that broke off: what its provider has `counted`, and for the output at
/// least what has arrived in text, thoughts and arguments. Providers count while they write in steps, if at all. `None` when nothing has
/// been heard.
pub fn heard_so_far(counted: Option<Usage>, written_bytes: u64) -> Option<Usage> {
    if counted.is_none() && written_bytes == 0 {
        return None;
    }
    let counted = counted.unwrap_or_default();
    let written = written_bytes.div_ceil(BYTES_PER_TOKEN);
    Some(Usage { output_tokens: counted.output_tokens.max(written), ..counted })
}

#[cfg(test)]
mod tests {
    use ua_core::{Origin, Shared};

    use super::*;

    fn request(text: &str) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: vec![Message::user(Origin::Prompt, text)],
            tools: Shared::default(),
            max_output_tokens: 10,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    #[test]
    fn a_longer_request_has_more_tokens_and_the_same_one_always_as_many() {
        let short = estimate_input_tokens(&request("hi"));
        assert!(short > 0);
        assert_eq!(estimate_input_tokens(&request(&"a".repeat(4002))), short + 1000);
        assert_eq!(estimate_input_tokens(&request("hi")), short);
    }

    #[test]
    fn what_was_heard_is_what_was_counted_and_at_least_what_arrived() {
        let counted = Usage { input_tokens: 50, output_tokens: 3, cache_read_tokens: 7, cache_write_tokens: 0 };
        assert_eq!(heard_so_far(None, 0), None);
        assert_eq!(heard_so_far(Some(counted), 0), Some(counted));
        assert_eq!(heard_so_far(Some(counted), 12), Some(counted));
        assert_eq!(heard_so_far(Some(counted), 13), Some(Usage { output_tokens: 4, ..counted }));
        assert_eq!(heard_so_far(None, 1), Some(Usage { output_tokens: 1, ..Usage::default() }));
    }

    #[test]
    fn an_image_costs_by_its_area_and_not_by_its_bytes() {
        let mut with_image = request("hi");
        with_image.messages[0].blocks.extend(crate::image_block("a", "image/png", &"A".repeat(1_000_000)));
        let tokens = estimate_input_tokens(&with_image) - estimate_input_tokens(&request("hi"));
        assert!((1_600..1_700).contains(&tokens), "{tokens}");
    }
}
