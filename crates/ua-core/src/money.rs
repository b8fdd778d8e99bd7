//! Money: whole billionths of a currency, never floating point.
//!
//! Granular Execution PRD §6 (usage accounting). Amounts are added with checks, and what cannot be exact is rounded up, so
//! that a run is never charged less than it cost.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Billionths in one unit of a currency.
pub(crate) const NANOS: u64 = 1_000_000_000;

/// A currency by its three capital letters, as in ISO 4217.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The US dollar, in which most prices are named.
    pub const USD: Self = Self(*b"USD");

    /// Reads three letters, in capitals or not.
    pub fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 3] = text.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_alphabetic).then(|| Self(letters.map(|letter| letter.to_ascii_uppercase())))
    }

    /// The three letters.
    pub fn as_str(&self) -> &str {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text,
            Err(_) => unreachable!("a currency is made of ASCII letters"),
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not a currency: write its three letters, for example USD"))
        })
    }
}

/// An amount of money, in billionths ("nanos") of its currency.
///
/// It is shown rounded up to four decimals (`$0.0123`, `0.0123 EUR`) and stored exactly (`"0.012345678 USD"`).
///
/// ```
/// use ua_core::{Currency, Money};
///
/// let budget = Money::parse("2.50 USD").ok_or("no amount")?;
/// assert_eq!((budget.nanos(), budget.currency()), (2_500_000_000, Currency::USD));
/// assert_eq!(budget.checked_add(Money::from_nanos(12_345_678, Currency::USD)).map(|m| m.to_string()).as_deref(), Some("$2.5124"));
/// assert_eq!(budget.checked_add(Money::from_nanos(1, Currency::parse("EUR").ok_or("no currency")?)), None);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Money {
    nanos: u64,
    currency: Currency,
}

impl Money {
    /// Makes an amount of billionths.
    pub const fn from_nanos(nanos: u64, currency: Currency) -> Self {
        Self { nanos, currency }
    }

    /// Reads `2.50 USD`, `$2.50` or `2.50` (dollars). `None` for anything else, more than nine decimals, or too much.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (amount, currency) = match (text.strip_prefix('$'), text.split_once(' ')) {
            (Some(amount), _) => (amount, Currency::USD),
            (None, Some((amount, currency))) => (amount, Currency::parse(currency.trim())?),
            (None, None) => (text, Currency::USD),
        };
        Some(Self { nanos: decimal(amount.trim(), 9)?, currency })
    }

    /// Billionths of the currency.
    pub const fn nanos(self) -> u64 {
        self.nanos
    }

    /// The currency.
    pub const fn currency(self) -> Currency {
        self.currency
    }

    /// The sum; `None` when the currencies differ or the sum is too large.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let nanos = self.nanos.checked_add(other.nanos).filter(|_| self.currency == other.currency)?;
        Some(Self { nanos, ..self })
    }

    /// The amount to the last billionth, with its currency: `0.012345678 USD`.
    pub fn exact(self) -> String {
        format!("{} {}", places(self.nanos / NANOS, self.nanos % NANOS, 9), self.currency)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = self.nanos.div_ceil(100_000);
        let amount = places(rounded / 10_000, rounded % 10_000, 4);
        if self.currency == Currency::USD { write!(f, "${amount}") } else { write!(f, "{amount} {}", self.currency) }
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.exact())
    }
}

impl Serialize for Money {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.exact())
    }
}

impl<'de> Deserialize<'de> for Money {
    /// Takes the text that [`parse`](Self::parse) takes, or a number of dollars.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let read = match &value {
            serde_json::Value::String(text) => Self::parse(text),
            serde_json::Value::Number(number) => number_text(number).and_then(|text| Self::parse(&text)),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => None,
        };
        read.ok_or_else(|| {
            serde::de::Error::custom(format!(
                "{value} is not a valid amount of money: write \"2.50 USD\", or 2.5 for dollars"
            ))
        })
    }
}

/// Amounts in several currencies, each added up on its own: prices may change their currency between two resumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs(Vec<Money>);

impl Costs {
    /// Adds an amount to those of its currency; a sum that is too large stays at the largest amount.
    pub fn add(&mut self, money: Money) {
        match self.0.iter_mut().find(|sum| sum.currency == money.currency) {
            Some(sum) => sum.nanos = sum.nanos.saturating_add(money.nanos),
            None => self.0.push(money),
        }
    }

    /// The amount in one currency.
    pub fn of(&self, currency: Currency) -> Money {
        let sum = self.0.iter().find(|sum| sum.currency == currency);
        sum.copied().unwrap_or(Money { nanos: 0, currency })
    }

    /// The sums, one for each currency.
    pub fn amounts(&self) -> &[Money] {
        &self.0
    }

    /// Whether nothing was added.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums: Vec<String> = self.0.iter().map(Money::to_string).collect();
        f.write_str(&sums.join(" + "))
    }
}

/// `whole.fraction`, the fraction of so many digits, without zeros at its end beyond the second one.
fn places(whole: u64, fraction: u64, digits: usize) -> String {
    let mut fraction = format!("{fraction:0digits$}");
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{whole}.{fraction}")
}

/// A plain decimal number times ten to the power of `digits`; `None` when that is no whole number or too large.
pub(crate) fn decimal(text: &str, digits: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > digits as usize {
        return None;
    }
    let missing = digits - u32::try_from(fraction.len()).ok()?;
    let fraction: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(10_u64.checked_pow(digits)?)?.checked_add(fraction.checked_mul(10_u64.checked_pow(missing)?)?)
}

/// A JSON number as a plain decimal, as short as it was written; `None` for a negative one.
pub(crate) fn number_text(number: &serde_json::Number) -> Option<String> {
    if let Some(whole) = number.as_u64() {
        return Some(whole.to_string());
    }
    number.as_f64().filter(|float| float.is_finite() && *float >= 0.0).map(|float| format!("{float}"))
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Money {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An amount and its currency (\"2.50 USD\"), or a number of dollars.",
            "type": ["string", "number"],
            "examples": ["2.50 USD", 2.5],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_three_forms_and_stored_exactly() {
        let cases = [
            ("2.50 USD", "2.50 USD"),
            ("$2.5", "2.50 USD"),
            ("0.012345678", "0.012345678 USD"),
            ("7 eur", "7.00 EUR"),
            ("18446744073.709551615", "18446744073.709551615 USD"),
        ];
        for (text, exact) in cases {
            let money = Money::parse(text).unwrap();
            assert_eq!(money.exact(), exact);
            assert_eq!(serde_json::from_value::<Money>(serde_json::to_value(money).unwrap()).unwrap(), money);
        }
        assert_eq!(serde_json::from_str::<Money>("0.0000001").unwrap().nanos(), 100);
        for bad in ["", "-1", "1.0000000001", "1e3", "one", "1 dollar", "1 2", ".5", "18446744073.709551616"] {
            assert_eq!(Money::parse(bad), None, "{bad:?}");
        }
        assert!(serde_json::from_str::<Money>("-1").is_err());
    }

    #[test]
    fn amounts_are_shown_rounded_up_so_that_nothing_looks_free() {
        let cases =
            [(0, "$0.00"), (1, "$0.0001"), (12_300_000, "$0.0123"), (12_300_001, "$0.0124"), (2 * NANOS, "$2.00")];
        for (nanos, shown) in cases {
            assert_eq!(Money::from_nanos(nanos, Currency::USD).to_string(), shown);
        }
        assert_eq!(Money::parse("1.5 CHF").unwrap().to_string(), "1.50 CHF");
    }

    #[test]
    fn sums_are_checked_and_currencies_are_kept_apart() {
        let dollar = Money::from_nanos(NANOS, Currency::USD);
        assert_eq!(dollar.checked_add(Money::from_nanos(u64::MAX, Currency::USD)), None);
        let mut costs = Costs::default();
        assert!(costs.is_empty());
        for money in [dollar, Money::parse("2 EUR").unwrap(), dollar] {
            costs.add(money);
        }
        assert_eq!(costs.to_string(), "$2.00 + 2.00 EUR");
        assert_eq!(costs.of(Currency::USD).nanos(), 2 * NANOS);
        assert_eq!(costs.of(Currency::parse("GBP").unwrap()).nanos(), 0);
    }
}
