//! A policy file is read or refused with a place in it.

use ua_classify::{Classifier, Lists, PolicyError, PolicyRules};

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match PolicyRules::parse(text, "policy.toml") {
        Ok(rules) => {
            let classifier = Classifier::new(vec![rules], &Lists::default(), std::collections::HashSet::new());
            // Two rules of one id are the only thing that is left to be wrong.
            assert!(matches!(classifier, Ok(_) | Err(PolicyError::DuplicateId { .. })));
        }
        Err(error) => assert!(error.to_string().contains("policy.toml"), "{error}"),
    }
}
