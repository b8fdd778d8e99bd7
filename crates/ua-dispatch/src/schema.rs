//! A JSON Schema that somebody else wrote, used so that it cannot cost more than was counted before.
//!
//! A schema of a kilobyte can ask for more work than a machine ever does: ten levels of `anyOf` over ten references each are 10^10 checks of
//! one text, and a pattern may backtrack for ever. So nothing is checked by a schema before two counts said what that takes. What the schema
//! is by itself is counted when it is read ([`measure`]): its size, how much of it holds at one place of a value once references are
//! followed, and that no reference leads back to the same place. What a value costs is counted before it is checked ([`work`]): each pair of
//! a schema and a place in the value is looked at once, so counting is cheap where the check would not be.
//! Patterns are matched by an engine that needs no backtracking, within a limit of size. Invariants: no check starts whose count is over
//! [`MOST_STEPS`] and what its value is large by; counting itself takes no more steps than that. Proved by: `schema/tests.rs`, which counts
//! what the library really does.

mod measure;
#[cfg(test)]
mod tests;
mod work;

use jsonschema::PatternOptions;
use serde_json::Value;

use measure::Measured;

/// Steps that the check of a small value may take. A step is one schema looked at for one place of a value.
pub(crate) const MOST_STEPS: u64 = 500_000;
/// What one compiled pattern may take, in bytes.
const PATTERN_BYTES: usize = 256 * 1024;
/// What the engine of one pattern may keep beside it, in bytes.
const PATTERN_CACHE_BYTES: usize = 128 * 1024;

/// A schema that was measured, and what checks values by it.
#[derive(Debug)]
pub(crate) struct Checker {
    /// What is checked by: the schema, and of a tool's without what needs backtracking.
    schema: Value,
    measured: Measured,
    validator: jsonschema::Validator,
}

/// Why a schema cannot be used for checks.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It is no schema; where and why.
    Invalid(jsonschema::ValidationError<'static>),
    /// A check by it would have no bound that is worth waiting for; in words, behind "it".
    Costly(String),
}

impl Checker {
    /// Reads a schema whose author can be told what is wrong with it.
    pub(crate) fn new(schema: &Value) -> Result<Self, Unusable> {
        Self::of(schema.clone())
    }

    /// Reads the schema of a tool. Patterns that need backtracking are left to its server.
    pub(crate) fn of_tool(schema: &Value) -> Result<Self, Unusable> {
        let mut kept = schema.clone();
        measure::leave_out_backtracking(&mut kept);
        Self::of(kept)
    }

    #[expect(clippy::disallowed_methods, reason = "this is where it is counted")]
    fn of(schema: Value) -> Result<Self, Unusable> {
        let measured = measure::measure(&schema).map_err(Unusable::Costly)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_CACHE_BYTES);
        let options = jsonschema::options().with_pattern_options(patterns);
        let validator = options.build(&schema).map_err(Unusable::Invalid)?;
        Ok(Self { schema, measured, validator })
    }

    /// The first few ways in which a value does not fit; `None` when it does.
    ///
    /// # Errors
    /// Why it was not looked at, in words: the check would take too many steps.
    pub(crate) fn violations(&self, value: &Value) -> Result<Option<String>, String> {
        work::work(&self.schema, &self.measured, value)?;
        Ok(crate::plan::violations(&self.validator, value))
    }
}
