//! Arguments have one canonical form: it is stable, and equal arguments have equal hashes however they are laid out.

use ua_core::{CanonicalJson, parse_strict};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(value) = parse_strict(text) else { return };
    let Ok(canonical) = CanonicalJson::of(&value, &[]) else { return };
    let again = parse_strict(canonical.as_str()).unwrap_or_else(|e| panic!("the canonical form can be read: {e}"));
    let second = CanonicalJson::of(&again, &[]).unwrap_or_else(|e| panic!("it has a canonical form: {e}"));
    assert_eq!(second.as_str(), canonical.as_str());
    assert_eq!(second.hash(), canonical.hash());
    let pretty = serde_json::to_string_pretty(&value).unwrap_or_else(|e| panic!("it can be written: {e}"));
    let laid_out = parse_strict(&pretty).unwrap_or_else(|e| panic!("and read: {e}"));
    assert_eq!(CanonicalJson::of(&laid_out, &[]).map(|form| form.hash()), Ok(canonical.hash()));
}
