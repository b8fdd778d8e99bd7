//! The one reader of the environment here: keys and addresses of models, and what tool servers are started with.

/// A variable of the environment; `None` when it is not set, is empty, or is not text.
#[cfg(any(feature = "anthropic", feature = "openai", feature = "mcp"))]
#[expect(clippy::disallowed_methods, reason = "this is the crate's one reader of the environment")]
pub(crate) fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
