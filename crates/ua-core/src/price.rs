//! What tokens cost: a price per kind of token, and the table in which a user keeps them.
//!
//! Granular Execution PRD §5.2 (the pricing plan is part of the fingerprint) and §6 (cost of a reservation).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::{CanonicalJson, Sha256};
use crate::message::Usage;
use crate::money::{Currency, Money, decimal, number_text};

/// A price table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// Neither TOML nor JSON.
    #[error("invalid price table {file}: {why}")]
    Syntax {
        /// Where it came from.
        file: String,
        /// What the parser says, with the place.
        why: String,
    },
    /// A field that nobody knows, or a value that cannot be worked with.
    #[error("invalid price table {file}: `{field}` {why}")]
    Invalid {
        /// Where it came from.
        file: String,
        /// The field, with its path.
        field: String,
        /// What is wrong.
        why: String,
    },
}

/// What a million tokens of each kind cost, in billionths of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPrice {
    /// The currency.
    pub currency: Currency,
    /// Input tokens that touch no cache.
    pub input_nanos_per_million: u64,
    /// Output tokens.
    pub output_nanos_per_million: u64,
    /// Input tokens read from a cache; as other input when the table does not say.
    pub cache_read_nanos_per_million: u64,
    /// Input tokens written to a cache; as other input when the table does not say.
    pub cache_write_nanos_per_million: u64,
}

impl TokenPrice {
    /// What these tokens cost, rounded up to the next billionth; an amount that is too large stays at the largest one.
    pub fn cost(&self, usage: Usage) -> Money {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let parts = [
            part(usage.input_tokens, self.input_nanos_per_million),
            part(usage.output_tokens, self.output_nanos_per_million),
            part(usage.cache_read_tokens, self.cache_read_nanos_per_million),
            part(usage.cache_write_tokens, self.cache_write_nanos_per_million),
        ];
        let sum = parts.into_iter().fold(0_u128, u128::saturating_add).div_ceil(1_000_000);
        Money::from_nanos(u64::try_from(sum).unwrap_or(u64::MAX), self.currency)
    }

    /// The dearer of two prices, by kind of token. Currencies are not converted: the floor's price holds.
    fn not_below(self, floor: Self) -> Self {
        if self.currency != floor.currency {
            return floor;
        }
        Self {
            currency: self.currency,
            input_nanos_per_million: self.input_nanos_per_million.max(floor.input_nanos_per_million),
            output_nanos_per_million: self.output_nanos_per_million.max(floor.output_nanos_per_million),
            cache_read_nanos_per_million: self.cache_read_nanos_per_million.max(floor.cache_read_nanos_per_million),
            cache_write_nanos_per_million: self.cache_write_nanos_per_million.max(floor.cache_write_nanos_per_million),
        }
    }

    /// The most that a request can cost which has so many input tokens and at most so many output tokens: its input may all
    /// be of the most expensive kind.
    pub fn most(&self, input_tokens: u64, output_tokens: u64) -> Money {
        let input = self.input_nanos_per_million.max(self.cache_write_nanos_per_million);
        let dearest = Self { input_nanos_per_million: input, ..*self };
        dearest.cost(Usage { input_tokens, output_tokens, ..Usage::default() })
    }

    /// The longest reply, in tokens, with which a request of so many input tokens costs no more than `money` by [`most`](Self::most); `None` where
    /// its input alone costs more, or the money is another.
    pub fn reply_within(&self, input_tokens: u64, money: Money) -> Option<u64> {
        let input = self.input_nanos_per_million.max(self.cache_write_nanos_per_million);
        let all = u128::from(money.nanos()) * 1_000_000;
        let left = all.checked_sub(u128::from(input_tokens) * u128::from(input))?;
        let tokens = left.checked_div(self.output_nanos_per_million.into()).unwrap_or(u128::MAX);
        (money.currency() == self.currency).then(|| u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}

/// The prices of models, as a user keeps them in a file.
///
/// ```
/// use ua_core::PriceTable;
///
/// let table = PriceTable::parse(
///     "prices.toml",
///     r#"
///     [providers.anthropic."claude-sonnet-*"]
///     input = 3.00        # dollars per million tokens
///     output = 15.00
///     cache_read = 0.30
///     cache_write = 3.75
///     "#,
/// )?;
/// assert!(table.price("anthropic", "claude-sonnet-4-5").is_some());
/// assert!(table.price("anthropic", "another-model").is_none());
/// # Ok::<(), ua_core::PriceError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceTable {
    /// By provider, then by the model's name or pattern.
    providers: BTreeMap<String, BTreeMap<String, TokenPrice>>,
    /// Tables below whose prices none of these goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    floors: Vec<Self>,
}

/// The names under which a price per million and a price per thousand tokens are known.
const KINDS: [(&str, &str); 4] = [
    ("input", "prompt_tokens_per_1k"),
    ("output", "completion_tokens_per_1k"),
    ("cache_read", "cached_prompt_tokens_per_1k"),
    ("cache_write", "cache_write_tokens_per_1k"),
];

impl PriceTable {
    /// Reads a table, TOML or JSON (text that begins with `{`). `file` is named in errors.
    ///
    /// Each `[providers.<provider>."<model>"]` has `input` and `output`, and may have `cache_read` and `cache_write`: money
    /// per million tokens. The shape of the Granular Execution PRD's cost configuration is read as well:
    /// `[cost.providers.<provider>."<model>"]` with `prompt_tokens_per_1k` and `completion_tokens_per_1k`. A model's name may
    /// end in `*`, a provider may be `*`. `currency` at the top is `USD` when missing.
    pub fn parse(file: &str, text: &str) -> Result<Self, PriceError> {
        let syntax = |why: String| PriceError::Syntax { file: file.to_owned(), why };
        let value = if text.trim_start().starts_with('{') {
            crate::canonical::parse_strict(text).map_err(|error| syntax(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error: toml::de::Error| syntax(crate::faults::toml_fault(text, &error)))?
        };
        Reader { file }.table(&value)
    }

    /// This table, with no price below that of `floor`: where both have one, each kind of token costs what it costs where it is dearer, and
    /// where their currencies differ, the floor's price holds.
    #[must_use]
    pub fn not_below(mut self, floor: Self) -> Self {
        if !floor.is_empty() {
            self.floors.push(floor);
        }
        self
    }

    /// This table, with the entries of one provider for another one that asks the same models, where that has none of its own.
    #[must_use]
    pub fn shared(mut self, from: &str, with: &str) -> Self {
        let entries = self.providers.get(from).cloned().unwrap_or_default();
        let own = self.providers.entry(with.to_owned()).or_default();
        for (model, price) in entries {
            own.entry(model).or_insert(price);
        }
        self
    }

    /// The price of a model; the exact name wins over a pattern, a longer pattern over a shorter one, the provider's own
    /// entry over one of any provider (`*`).
    pub fn price(&self, provider: &str, model: &str) -> Option<TokenPrice> {
        let floors = self.floors.iter().filter_map(|floor| floor.price(provider, model));
        floors.fold(self.own_price(provider, model), |price, floor| {
            Some(price.map_or(floor, |price| price.not_below(floor)))
        })
    }

    fn own_price(&self, provider: &str, model: &str) -> Option<TokenPrice> {
        [provider, "*"].iter().find_map(|provider| {
            let models = self.providers.get(*provider)?;
            let pattern = |name: &&String| name.strip_suffix('*').is_some_and(|prefix| model.starts_with(prefix));
            let longest = models.keys().filter(pattern).max_by_key(|name| name.len());
            models.get(model).or_else(|| longest.and_then(|name| models.get(name))).copied()
        })
    }

    /// Its entries: the provider, and the model's name or pattern.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.providers
            .iter()
            .flat_map(|(provider, models)| models.keys().map(move |model| (provider.as_str(), model.as_str())))
    }

    /// Whether it holds no price.
    pub fn is_empty(&self) -> bool {
        self.providers.values().all(BTreeMap::is_empty) && self.floors.iter().all(Self::is_empty)
    }

    /// The digest of all prices, the pricing plan's part of a step's fingerprint: equal digests mean equal prices, whatever
    /// the file looked like.
    pub fn digest(&self) -> Sha256 {
        let canonical = serde_json::to_value(self)
            .map_err(|error| error.to_string())
            .and_then(|value| CanonicalJson::of(&value, &[]).map_err(|error| error.to_string()));
        match canonical {
            Ok(json) => json.hash(),
            Err(why) => unreachable!("a price table is made of strings and integers, which always serialise: {why}"),
        }
    }
}

struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn invalid(&self, field: &str, why: impl Into<String>) -> PriceError {
        PriceError::Invalid { file: self.file.to_owned(), field: field.to_owned(), why: why.into() }
    }

    fn object<'v>(&self, value: &'v Value, field: &str) -> Result<&'v Map<String, Value>, PriceError> {
        value.as_object().ok_or_else(|| self.invalid(field, "must be a table"))
    }

    fn table(&self, value: &Value) -> Result<PriceTable, PriceError> {
        let top = self.object(value, "the file")?;
        let mut currency = Currency::USD;
        let mut found = Vec::new();
        for (name, value) in top {
            match name.as_str() {
                "currency" => {
                    let text = value.as_str().and_then(Currency::parse);
                    currency =
                        text.ok_or_else(|| self.invalid("currency", "must be three letters, for example \"USD\""))?;
                }
                "providers" => found.push(("providers", value)),
                "cost" => {
                    for (name, value) in self.object(value, "cost")? {
                        match name.as_str() {
                            "providers" => found.push(("cost.providers", value)),
                            "strict" => {} // an unknown model never has a price here
                            other => {
                                return Err(self.invalid(
                                    &format!("cost.{other}"),
                                    "is unknown; known fields are `providers` and `strict`",
                                ));
                            }
                        }
                    }
                }
                other => {
                    return Err(self.invalid(other, "is unknown; known fields are `currency`, `providers` and `cost`"));
                }
            }
        }
        let mut table = PriceTable::default();
        for (path, providers) in found {
            for (provider, models) in self.object(providers, path)? {
                let path = format!("{path}.{provider}");
                for (model, prices) in self.object(models, &path)? {
                    let path = format!("{path}.{model:?}");
                    let price = self.price(prices, &path, currency)?;
                    if table.providers.entry(provider.clone()).or_default().insert(model.clone(), price).is_some() {
                        return Err(self.invalid(&path, "has two prices"));
                    }
                }
            }
        }
        Ok(table)
    }

    fn price(&self, value: &Value, path: &str, currency: Currency) -> Result<TokenPrice, PriceError> {
        let fields = self.object(value, path)?;
        let is_known = |name: &str| KINDS.iter().any(|(million, thousand)| name == *million || name == *thousand);
        if let Some(name) = fields.keys().find(|name| !is_known(name)) {
            let known: Vec<&str> = KINDS.iter().flat_map(|(million, thousand)| [*million, *thousand]).collect();
            return Err(
                self.invalid(&format!("{path}.{name}"), format!("is unknown; known fields are {}", known.join(", ")))
            );
        }
        let mut prices = [None; 4];
        for (price, (million, thousand)) in prices.iter_mut().zip(KINDS) {
            *price = match (fields.get(million), fields.get(thousand)) {
                (None, None) => None,
                (Some(value), None) => Some(self.amount(value, &format!("{path}.{million}"), 9)?),
                // A thousandth of the tokens: three digits more.
                (None, Some(value)) => Some(self.amount(value, &format!("{path}.{thousand}"), 12)?),
                (Some(_), Some(_)) => {
                    return Err(self.invalid(path, format!("has both `{million}` (per million) and `{thousand}`")));
                }
            };
        }
        let [input, output, cache_read, cache_write] = prices;
        let needed = |price: Option<u64>, (million, thousand): (&str, &str)| {
            price.ok_or_else(|| self.invalid(path, format!("needs `{million}` (per million tokens) or `{thousand}`")))
        };
        let input = needed(input, KINDS[0])?;
        Ok(TokenPrice {
            currency,
            input_nanos_per_million: input,
            output_nanos_per_million: needed(output, KINDS[1])?,
            cache_read_nanos_per_million: cache_read.unwrap_or(input),
            cache_write_nanos_per_million: cache_write.unwrap_or(input),
        })
    }

    fn amount(&self, value: &Value, field: &str, digits: u32) -> Result<u64, PriceError> {
        let text = match value {
            Value::Number(number) => number_text(number),
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        text.and_then(|text| decimal(&text, digits)).ok_or_else(|| {
            self.invalid(
                field,
                format!("is {value}; it must be an amount of at most {digits} decimals, for example 3.00"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str =
        "[providers.anthropic.\"claude-*\"]\ninput = 3\noutput = 15.0\ncache_read = 0.3\ncache_write = 3.75\n";

    fn usage(input: u64, output: u64, read: u64, write: u64) -> Usage {
        Usage { input_tokens: input, output_tokens: output, cache_read_tokens: read, cache_write_tokens: write }
    }

    #[test]
    fn each_kind_of_token_has_its_price_and_the_sum_is_rounded_up_once() {
        let price = PriceTable::parse("f", OURS).unwrap().price("anthropic", "claude-x").unwrap();
        // 1000 × 3 + 200 × 15 + 5000 × 0.30 + 100 × 3.75 dollars per million.
        assert_eq!(price.cost(usage(1000, 200, 5000, 100)).exact(), "0.007875 USD");
        assert_eq!(price.cost(Usage::default()).nanos(), 0);
        let tiny = TokenPrice { input_nanos_per_million: 1, ..price };
        assert_eq!(tiny.cost(usage(1, 0, 0, 0)).nanos(), 1);
        assert_eq!(price.cost(usage(u64::MAX, u64::MAX, 0, 0)).nanos(), u64::MAX);
        // A reservation takes the dearest kind of input.
        assert_eq!(price.most(1_000_000, 0).exact(), "3.75 USD");
    }

    #[test]
    fn the_shape_of_the_granular_execution_prd_is_the_same_table() {
        let theirs = "[cost]\nstrict = true\n[cost.providers.anthropic.\"claude-*\"]\nprompt_tokens_per_1k = 0.003\n\
            completion_tokens_per_1k = 0.015\ncached_prompt_tokens_per_1k = 0.0003\ncache_write_tokens_per_1k = 0.00375\n";
        let json = r#"{"providers": {"anthropic": {"claude-*": {"input": "3.00", "output": 15, "cache_read": 0.3, "cache_write": 3.75}}}}"#;
        let ours = PriceTable::parse("f", OURS).unwrap();
        assert_eq!(PriceTable::parse("f", theirs).unwrap(), ours);
        assert_eq!(PriceTable::parse("f", json).unwrap().digest(), ours.digest());
        let dearer = PriceTable::parse("f", &OURS.replace("15.0", "15.1")).unwrap();
        assert_ne!(dearer.digest(), ours.digest());
    }

    #[test]
    fn without_cache_prices_cached_input_costs_what_input_costs() {
        let table = PriceTable::parse("f", "[providers.p.m]\ninput = 2\noutput = 4\n").unwrap();
        let price = table.price("p", "m").unwrap();
        assert_eq!(price.cost(usage(0, 0, 10, 10)), price.cost(usage(20, 0, 0, 0)));
    }

    #[test]
    fn the_nearest_entry_wins_and_an_unknown_model_has_no_price() {
        let entry = |provider: &str, model: &str, input: u32| {
            format!("[providers.\"{provider}\".\"{model}\"]\ninput = {input}\noutput = 1\n")
        };
        let text = [
            entry("a", "m-*", 1),
            entry("a", "m-large-*", 2),
            entry("a", "m-large-1", 3),
            entry("*", "*", 4),
            entry("b", "*", 5),
        ];
        let table = PriceTable::parse("f", &text.concat()).unwrap();
        let input =
            |provider, model| table.price(provider, model).map(|price| price.input_nanos_per_million / 1_000_000_000);
        let cases = [
            ("a", "m-large-1", 3),
            ("a", "m-large-2", 2),
            ("a", "m-x", 1),
            ("a", "other", 4),
            ("b", "m", 5),
            ("c", "m", 4),
        ];
        for (provider, model, expected) in cases {
            assert_eq!(input(provider, model), Some(expected), "{provider} {model}");
        }
        assert_eq!(PriceTable::default().price("a", "m"), None);
        assert!(PriceTable::default().is_empty());
    }

    #[test]
    fn a_bad_table_is_refused_with_file_and_field() {
        let model = |fields: &str| format!("[providers.p.m]\n{fields}\n");
        let cases = [
            (model("input = 1"), "providers.p.\"m\"` needs `output`"),
            (model("input = -1\noutput = 1"), "providers.p.\"m\".input` is -1"),
            (model("input = 1\noutput = 1\ninput_price = 2"), "input_price` is unknown; known fields are input,"),
            (model("input = 1\nprompt_tokens_per_1k = 1\noutput = 1"), "has both `input`"),
            ("prices = 1".to_owned(), "`prices` is unknown"),
            ("currency = \"dollars\"".to_owned(), "`currency` must be three letters"),
            ("{\"providers\": []}".to_owned(), "`providers` must be a table"),
            ("input = ".to_owned(), "line 1"),
        ];
        for (text, expected) in cases {
            let error = PriceTable::parse("prices.toml", &text).unwrap_err().to_string();
            assert!(error.starts_with("invalid price table prices.toml: ") && error.contains(expected), "{error}");
        }
    }
}
