//! Numbers of things, as people write them.

use std::fmt::Display;

/// `1 call`, `2 calls`, `0 processes`: a number and what is counted, in the right number. What stands before the noun stays (`more run`).
///
/// ```
/// assert_eq!(ua_core::counted(1, "call"), "1 call");
/// assert_eq!(ua_core::counted(3, "process"), "3 processes");
/// assert_eq!(ua_core::counted(0, "more reply"), "0 more replies");
/// ```
pub fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {one}");
    }
    let is_vowel = |c: char| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u');
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{count} {stem}ies"),
        _ if one.ends_with(['s', 'x']) || one.ends_with("ch") => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}
