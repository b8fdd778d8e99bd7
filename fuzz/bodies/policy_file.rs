//! A policy file is read or refused with a place in it.

use ua_classify::PolicyRules;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match PolicyRules::parse(text, "policy.toml") {
        Ok(rules) => assert_eq!(rules.file(), "policy.toml"),
        Err(error) => assert!(error.to_string().contains("policy.toml"), "{error}"),
    }
}
