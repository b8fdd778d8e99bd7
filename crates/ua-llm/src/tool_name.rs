//! Names of tools for APIs that take shorter ones.
//!
//! The name that a model sees is the one it asks for. `mcp__server__tool` may be longer than an API allows; it is shortened the same
//! way in offers and in the history, and put back in what the model asks for.

use ua_core::sha256;

use crate::request::ModelRequest;

/// The longest name that the OpenAI APIs take.
pub(crate) const LONGEST: usize = 64;
/// Hexadecimal digits of the digest that tells shortened names apart.
const DIGITS: usize = 12;

/// The name as the API takes it.
pub(crate) fn short(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = sha256(name).to_hex();
    let kept: String = name.chars().take_while(char::is_ascii).take(LONGEST - DIGITS - 1).collect();
    format!("{kept}_{}", &digest[..DIGITS])
}

/// The offered tool that the model means by `name`; any other name stays, so that the gateway can refuse it.
pub(crate) fn whole(name: String, request: &ModelRequest) -> String {
    let offered = request.tools.iter().find(|tool| tool.name.len() > LONGEST && short(&tool.name) == name);
    offered.map_or(name, |tool| tool.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::ToolOffer;

    #[test]
    fn a_long_name_is_shortened_and_found_again() {
        let long = format!("mcp__{}__{}", "server".repeat(8), "tool".repeat(8));
        let offer = |name: &str| ToolOffer { name: name.into(), description: String::new(), input_schema: json!({}) };
        let request = ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: Vec::new(),
            tools: vec![offer("t"), offer(&long), offer(&format!("{long}2"))],
            max_output_tokens: 1,
            temperature_milli: None,
        };
        assert_eq!((short("t").as_str(), short(&long).len()), ("t", LONGEST));
        assert_ne!(short(&long), short(&format!("{long}2")));
        for tool in &request.tools {
            assert_eq!(whole(short(&tool.name), &request), tool.name);
        }
        assert_eq!(whole("made_up".into(), &request), "made_up");
    }
}
