//! Values that several commands read.

use ua_store::ConcurrencyKey;

/// Reads `30d`, `12h`, `90m` or `10s`.
pub(crate) fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is not a valid time; write a number and d, h, m or s, for example 30d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(std::time::Duration::from_secs(seconds * u64::from(number)))
}

pub(crate) fn parse_concurrency(text: &str) -> Result<ConcurrencyKey, String> {
    let (key, limit) = match text.rsplit_once(':') {
        None => (text, Ok(1)),
        Some((key, limit)) => (key, limit.parse::<u32>()),
    };
    match limit {
        Ok(limit) if limit > 0 && !key.is_empty() => Ok(ConcurrencyKey { key: key.to_owned(), limit }),
        _ => Err(format!("`{text}` is not a valid key; write KEY for one run at once, or KEY:N for N")),
    }
}
