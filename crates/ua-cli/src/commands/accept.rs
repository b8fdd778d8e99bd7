//! `--accept`: which changed components a person goes on with.

use ua_core::Component;
use ua_runner::ANOTHER_RUN_HINT;

use crate::error::HostError;

/// Reads the components that are accepted. What makes it another run is refused.
pub(crate) fn components(words: &[String]) -> Result<Vec<Component>, HostError> {
    let mut accepted = Vec::new();
    for word in words {
        let component = word.parse::<Component>().map_err(|_| {
            let names = Component::ALL.iter().map(|component| component.as_str());
            let message = format!("there is no component `{word}` to accept");
            HostError::not_found(message, word, names, &format!("it is one of {}", choices()))
        })?;
        if !component.may_be_accepted() {
            return Err(HostError::usage(format!("a changed `{component}` cannot be accepted")).hint(ANOTHER_RUN_HINT));
        }
        if !accepted.contains(&component) {
            accepted.push(component);
        }
    }
    Ok(accepted)
}

fn choices() -> String {
    let all = Component::ALL.iter().filter(|component| component.may_be_accepted());
    all.map(|component| component.as_str()).collect::<Vec<_>>().join(", ")
}
