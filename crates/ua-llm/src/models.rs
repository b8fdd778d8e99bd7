//! What is known about models by name: how much they take, how much they write, what they were said to cost.
//!
//! The shipped data is a file in this crate; a user's own file is laid over it. Sizes bound what a request holds. Prices go stale, so
//! they are for people to read and are never charged: that takes the user's [`PriceTable`](ua_core::PriceTable).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ANTHROPIC;

/// The model that is asked when nobody names one.
pub const DEFAULT_MODEL: &str = "claude-sonnet-4-5";

/// The data that comes with the program.
const SHIPPED: &str = include_str!("models.toml");

/// What is known about a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFacts {
    /// The most tokens that a request and its reply have together.
    #[serde(default)]
    pub context: Option<u64>,
    /// The most tokens of one reply.
    #[serde(default)]
    pub max_output: Option<u32>,
    /// Whether it reads images; where nobody says so, none are sent.
    #[serde(default)]
    pub images: bool,
    /// Whether it writes replies by a JSON Schema; where nobody says so, it reads the schema in its prompt, and is only checked.
    #[serde(default)]
    pub structured: bool,
    /// Whether it thinks as much as it deems right and takes no budget of thoughts, or takes one no longer for long (Anthropic).
    #[serde(default)]
    pub adaptive: bool,
    /// What a million tokens cost in US dollars, when the file was written.
    #[serde(default)]
    pub price: Option<ModelPrice>,
}

/// Dollars per million tokens, as the provider's page had them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Input that touches no cache.
    pub input: String,
    /// Output.
    pub output: String,
    /// Input read from a cache.
    #[serde(default)]
    pub cache_read: Option<String>,
    /// Input written to a cache.
    #[serde(default)]
    pub cache_write: Option<String>,
}

/// A file of models that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid models file {file}: {why}")]
pub struct ModelsError {
    /// Where it came from.
    pub file: String,
    /// What is wrong, with its place.
    pub why: String,
}

/// Models by provider and name.
///
/// ```
/// use ua_llm::ModelTable;
///
/// let mine = ModelTable::parse("models.toml", "[openai-chat.\"qwen3*\"]\ncontext = 32_768\n")?;
/// let models = ModelTable::shipped().overlaid(mine);
/// assert_eq!(models.find("openai-chat", "qwen3-8b").and_then(|model| model.context), Some(32_768));
/// assert!(models.find("anthropic", "claude-sonnet-4-5").is_some());
/// assert!(models.find("anthropic", "nobody").is_none());
/// # Ok::<(), ua_llm::ModelsError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelTable {
    prices_as_of: Option<String>,
    providers: BTreeMap<String, BTreeMap<String, ModelFacts>>,
}

/// What stands between the parts of a model's name.
const JOINTS: [char; 4] = ['-', '.', ':', '@'];

impl ModelTable {
    /// The data that comes with this version.
    pub fn shipped() -> Self {
        match Self::parse("of this version", SHIPPED) {
            Ok(table) => table,
            Err(error) => unreachable!("a test reads the shipped models: {error}"),
        }
    }

    /// Reads a file: `[<provider>."<model>"]` with `context`, `max_output` and `price`, each of which may be missing. A name may end
    /// in `*`. `file` is named in errors.
    ///
    /// # Errors
    /// When it is no TOML, has fields that nobody knows, or a number that cannot be.
    pub fn parse(file: &str, text: &str) -> Result<Self, ModelsError> {
        let error = |why: String| ModelsError { file: file.to_owned(), why };
        let read: toml::Table = text.parse().map_err(|e: toml::de::Error| error(ua_core::toml_fault(text, &e)))?;
        let mut table = Self::default();
        for (provider, models) in read {
            if provider == "prices_as_of" {
                table.prices_as_of = models.as_str().map(str::to_owned);
                continue;
            }
            let toml::Value::Table(models) = models else {
                return Err(error(format!("`{provider}` is not a table of models")));
            };
            let not_plain = |name: &str| {
                error(format!(
                    "the name {name:?} must be of letters, digits and `._:/@+,-`, for a model with `*` at its end"
                ))
            };
            if !ua_core::is_plain_name(&provider) {
                return Err(not_plain(&provider));
            }
            for (name, facts) in models {
                // A project may name the file, and completion puts these names on a shell's line.
                if !ua_core::is_plain_name(name.strip_suffix('*').unwrap_or(&name)) {
                    return Err(not_plain(&name));
                }
                let facts: ModelFacts = facts.try_into().map_err(|e: toml::de::Error| {
                    error(format!("[{provider}.{name:?}]: {}", ua_core::value_fault(e.message())))
                })?;
                let is_zero = facts.context == Some(0) || facts.max_output == Some(0);
                let is_less = facts.context.zip(facts.max_output).is_some_and(|(all, out)| u64::from(out) > all);
                if is_zero || is_less {
                    return Err(error(format!(
                        "[{provider}.{name:?}]: `context` and `max_output` are above 0, and the reply is part of the context"
                    )));
                }
                table.providers.entry(provider.clone()).or_default().insert(name, facts);
            }
        }
        Ok(table)
    }

    /// This table with another one laid over it, model by model.
    #[must_use]
    pub fn overlaid(mut self, over: Self) -> Self {
        for (provider, models) in over.providers {
            self.providers.entry(provider).or_default().extend(models);
        }
        self
    }

    /// What is known about a model: the exact name wins over a pattern, a longer pattern over a shorter one, the provider's own entry
    /// over one of its kind (`openai` for `openai-chat`).
    pub fn find(&self, provider: &str, model: &str) -> Option<&ModelFacts> {
        let kind = provider.strip_suffix("-chat").filter(|kind| *kind == "openai");
        [Some(provider), kind].into_iter().flatten().find_map(|provider| {
            let models = self.providers.get(provider)?;
            let pattern = |name: &&String| name.strip_suffix('*').is_some_and(|prefix| model.starts_with(prefix));
            let longest = models.keys().filter(pattern).max_by_key(|name| name.len());
            models.get(model).or_else(|| longest.and_then(|name| models.get(name)))
        })
    }

    /// Whether a model is known by its name: by an entry of that very name, or by one for all versions of it (`claude-sonnet-4-5*` for
    /// `claude-sonnet-4-5-20250929`). A pattern for a whole family (`claude-*`) says what its models have in common, and not that there is one
    /// of this name.
    pub fn is_named(&self, provider: &str, model: &str) -> bool {
        self.names_of(provider).any(|name| match name.strip_suffix('*') {
            None => name == model,
            Some(prefix) => model.strip_prefix(prefix).is_some_and(|version| {
                !prefix.ends_with(JOINTS) && (version.is_empty() || version.starts_with(JOINTS))
            }),
        })
    }

    /// The name of a known model that somebody may have meant who typed `model`.
    pub fn nearest(&self, provider: &str, model: &str) -> Option<&str> {
        let names = self.names_of(provider).map(|name| name.trim_end_matches('*'));
        ua_core::nearest(model, names.filter(|name| !name.ends_with(JOINTS)))
    }

    /// The model that can be asked in the place of one that its provider does not know: the one that was probably meant, or else the one that is
    /// asked where nobody names one. `None` where neither is another one.
    pub fn in_place_of(&self, provider: &str, model: &str) -> Option<&str> {
        // What is known by its name was not mistyped: this account has no access to it, or it is gone.
        let meant = self.nearest(provider, model).filter(|_| !self.is_named(provider, model));
        meant.or(Some(DEFAULT_MODEL).filter(|_| provider == ANTHROPIC)).filter(|name| *name != model)
    }

    /// The names and patterns of a provider's models, and of its kind.
    fn names_of(&self, provider: &str) -> impl Iterator<Item = &str> {
        let kind = provider.strip_suffix("-chat").filter(|kind| *kind == "openai");
        let tables = [Some(provider), kind].into_iter().flatten().filter_map(|provider| self.providers.get(provider));
        tables.flat_map(|models| models.keys().map(String::as_str))
    }

    /// Every entry: provider, name or pattern, and what is known.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &ModelFacts)> {
        self.providers.iter().flat_map(|(provider, models)| {
            models.iter().map(move |(name, facts)| (provider.as_str(), name.as_str(), facts))
        })
    }

    /// The day whose prices the shipped data has.
    pub fn prices_as_of(&self) -> Option<&str> {
        self.prices_as_of.as_deref()
    }
}

impl ModelFacts {
    /// The most tokens of history that a request can carry beside its reply: an eighth of the context is kept for tools, and for
    /// what the estimate of tokens is wrong by.
    pub fn history_tokens(&self, max_output: u32) -> Option<u64> {
        self.context.map(|context| context.saturating_sub(context / 8).saturating_sub(max_output.into()).max(1_000))
    }

    /// `wanted` output tokens, or what the model can write if that is less; a quarter of a small context.
    pub fn output_tokens(&self, wanted: u32) -> u32 {
        let quarter = self.context.map(|context| u32::try_from(context / 4).unwrap_or(u32::MAX));
        [self.max_output, quarter].into_iter().flatten().fold(wanted, u32::min).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completion puts them on the line of a shell, and a project may name the file.
    #[test]
    fn names_of_models_are_plain() {
        for name in ["qwen3:8b", "meta/llama-3*", "claude-sonnet-4-5@20250929"] {
            let table = ModelTable::parse("m.toml", &format!("[openai.{name:?}]\ncontext = 10\n")).unwrap();
            assert_eq!(table.all().count(), 1);
        }
        for name in ["m$(touch${IFS}PWN)", "a b", "a*b", "-x", "`x`", "m\u{1b}[0m", ""] {
            for table in [format!("[openai.{name:?}]\ncontext = 10\n"), format!("[{name:?}.m]\ncontext = 10\n")] {
                let why = ModelTable::parse("m.toml", &table.replace("\\u{1b}", "\\u001b")).unwrap_err().to_string();
                assert!(why.contains("must be of letters, digits"), "{table}: {why}");
            }
        }
    }

    #[test]
    fn the_shipped_models_are_readable_and_dated() {
        let shipped = ModelTable::shipped();
        assert!(shipped.prices_as_of().is_some_and(|day| day.len() == 10));
        assert!(shipped.all().count() > 15);
        let sonnet = shipped.find("anthropic", "claude-sonnet-4-5-20250929").unwrap();
        assert_eq!((sonnet.context, sonnet.max_output), (Some(200_000), Some(64_000)));
        assert!(sonnet.structured && !shipped.find("anthropic", "claude-of-tomorrow").unwrap().structured);
        for (model, is_adaptive) in [
            ("claude-opus-5-5", true),
            ("claude-sonnet-4-6-20260217", true),
            ("claude-opus-4-5", false),
            ("claude-haiku-4-5-20251001", false),
            ("claude-of-tomorrow", false),
        ] {
            assert_eq!(shipped.find("anthropic", model).unwrap().adaptive, is_adaptive, "{model}");
        }
        // Both wires of OpenAI know its models.
        assert_eq!(shipped.find("openai-chat", "gpt-5"), shipped.find("openai", "gpt-5"));
        assert!(shipped.find("openai", "gpt-5").is_some() && shipped.find("other", "gpt-5").is_none());
        for (provider, name, facts) in shipped.all() {
            for price in facts
                .price
                .iter()
                .flat_map(|price| {
                    [Some(&price.input), Some(&price.output), price.cache_read.as_ref(), price.cache_write.as_ref()]
                })
                .flatten()
            {
                assert!(price.parse::<f64>().is_ok_and(|price| price > 0.0), "{provider} {name}: {price}");
            }
        }
    }

    #[test]
    fn the_nearest_name_wins_and_the_users_file_lies_on_top() {
        let mine = "[anthropic.\"claude-*\"]\ncontext = 1\n[anthropic.\"claude-sonnet-4-5-mine\"]\ncontext = 2\n";
        let models = ModelTable::shipped().overlaid(ModelTable::parse("mine", mine).unwrap());
        let context = |name| models.find("anthropic", name).and_then(|model| model.context);
        assert_eq!(context("claude-sonnet-4-5-mine"), Some(2));
        assert_eq!(context("claude-sonnet-4-5"), Some(200_000));
        assert_eq!(context("claude-next"), Some(1));
    }

    #[test]
    fn a_family_is_no_name_of_a_model() {
        let models = ModelTable::shipped();
        let named = |name| models.is_named("anthropic", name);
        assert!(named("claude-sonnet-4-5") && named("claude-sonnet-4-5-20250929"));
        assert!(!named("claude-sonet") && models.find("anthropic", "claude-sonet").is_some(), "its family is known");
        assert!(models.nearest("anthropic", "claude-sonet").is_some_and(|name| name.starts_with("claude-sonnet-")));
        assert_eq!(models.nearest("anthropic", "qwen"), None);
        // What is asked instead of a model that is not there.
        let meant = models.in_place_of("anthropic", "claude-sonet");
        assert!(meant.is_some_and(|name| name.starts_with("claude-sonnet-")), "{meant:?}");
        assert_eq!(models.in_place_of("anthropic", "qwen"), Some(DEFAULT_MODEL));
        assert_eq!(models.in_place_of("anthropic", DEFAULT_MODEL), None);
        assert_eq!(models.in_place_of("openai", "qwen"), None);
        let known = models.all().find(|(provider, name, _)| *provider == "openai" && !name.ends_with('*'));
        assert_eq!(models.in_place_of("openai", known.unwrap().1), None, "it was not mistyped");
        let meant = models.in_place_of("openai-chat", "gtp-5").unwrap();
        assert!(models.is_named("openai", meant), "{meant}");
        for (provider, name, _) in models.all() {
            let is_family = name.strip_suffix('*').is_some_and(|prefix| prefix.ends_with(JOINTS));
            assert_eq!(models.is_named(provider, name.trim_end_matches('*')), !is_family, "{provider} {name}");
        }
    }

    #[test]
    fn a_bad_file_is_refused_with_its_place() {
        for (text, expected) in [
            ("[openai.m]\ncontex = 1", "contex"),
            ("[openai.m]\ncontext = -1", "[openai.\"m\"]: it is -1"),
            ("[openai.m]\ncontext = 0", "above 0"),
            ("[openai.m]\ncontext = 10\nmax_output = 11", "part of the context"),
            ("openai = 1", "not a table of models"),
            ("[openai", "line 1"),
        ] {
            let error = ModelTable::parse("mine.toml", text).unwrap_err().to_string();
            assert!(
                error.starts_with("invalid models file mine.toml: ") && error.contains(expected),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn what_a_request_holds_fits_the_model() {
        let facts = |context, max_output| ModelFacts { context, max_output, ..ModelFacts::default() };
        assert_eq!(facts(Some(200_000), Some(64_000)).output_tokens(8_192), 8_192);
        assert_eq!(facts(None, Some(4_096)).output_tokens(8_192), 4_096);
        assert_eq!(facts(Some(8_192), None).output_tokens(8_192), 2_048);
        assert_eq!(facts(Some(8_192), None).history_tokens(2_048), Some(8_192 - 1_024 - 2_048));
        assert_eq!(ModelFacts::default().history_tokens(1), None);
        assert_eq!(ModelFacts::default().output_tokens(8_192), 8_192);
    }
}
