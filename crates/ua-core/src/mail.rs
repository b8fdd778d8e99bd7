//! Mail addresses, as far as it takes to tell whether a person was meant.
//!
//! Durable Jobs v1 spec §6 (`ask_human_on_ambiguous_recipient`). Not a parser of RFC 5322: it accepts what a mail server would
//! deliver to somebody outside this machine, with or without a display name, and refuses everything that leaves open who that is.

/// Why a text is no address that mail can go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailAddressError {
    /// Nothing.
    #[error("it is empty")]
    Empty,
    /// No `@`: a name, not an address.
    #[error("it is a name without an address")]
    BareName,
    /// Something before or after the `@` cannot be part of an address.
    #[error("it is not a valid address")]
    Invalid,
}

/// The address part of a recipient, lower-cased.
///
/// ```
/// use ua_core::{MailAddress, MailAddressError};
///
/// assert_eq!(MailAddress::parse("Ana Lopez <Ana@Example.org>").unwrap().as_str(), "ana@example.org");
/// assert_eq!(MailAddress::parse("Ana"), Err(MailAddressError::BareName));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailAddress(String);

impl MailAddress {
    /// Reads `address` or `Name <address>`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, MailAddressError> {
        let text = text.trim();
        let bare = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
            Some((_, inner)) => inner.trim(),
            None => text,
        };
        if bare.is_empty() {
            return Err(MailAddressError::Empty);
        }
        let (local, domain) = bare.rsplit_once('@').ok_or(MailAddressError::BareName)?;
        if is_local_part(local) && is_domain(domain) {
            Ok(Self(bare.to_lowercase()))
        } else {
            Err(MailAddressError::Invalid)
        }
    }

    /// Whether `text` stands for every address of a domain: `@example.org`.
    pub fn is_domain_entry(text: &str) -> bool {
        text.trim().strip_prefix('@').is_some_and(is_domain)
    }

    /// Every address that stands somewhere in `text`.
    pub fn all_in(text: &str) -> Vec<Self> {
        let is_part = |c: char| c.is_alphanumeric() || "@.!#$%&'*+-/=?^_`{|}~".contains(c);
        let words = text.split(|c| !is_part(c)).map(|word| word.trim_matches(|c| ".'`*!?{}|/".contains(c)));
        words.filter(|word| word.contains('@')).filter_map(|word| Self::parse(word).ok()).collect()
    }

    /// The address, lower-cased.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `entry`, an address or `@domain`, stands for this address.
    pub fn is_covered_by(&self, entry: &str) -> bool {
        if let Some(domain) = entry.trim().strip_prefix('@') {
            return self.0.rsplit_once('@').is_some_and(|(_, own)| own == domain.to_lowercase());
        }
        Self::parse(entry).is_ok_and(|entry| entry == *self)
    }
}

/// Letters, digits and the marks that RFC 5322 allows without quotes; no dot at an end or beside another.
fn is_local_part(local: &str) -> bool {
    let is_mark = |c: char| "!#$%&'*+-/=?^_`{|}~.".contains(c);
    !local.is_empty()
        && local.len() <= 64
        && local.chars().all(|c| c.is_alphanumeric() || is_mark(c))
        && local.split('.').all(|part| !part.is_empty())
}

/// Labels of letters, digits and hyphens. One label is a machine of the local network (`ua@localhost`).
pub(crate) fn is_domain(domain: &str) -> bool {
    !domain.is_empty()
        && domain.len() <= 253
        && domain.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.chars().all(|c| c.is_alphanumeric() || c == '-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_or_without_a_name_and_anything_else_says_what_it_is() {
        use MailAddressError as E;
        let cases = [
            ("ana@example.org", Ok("ana@example.org")),
            (" Ana@Example.ORG ", Ok("ana@example.org")),
            ("\"Lopez, Ana\" <ana+work@mail.example.org>", Ok("ana+work@mail.example.org")),
            ("root@localhost", Ok("root@localhost")),
            ("", Err(E::Empty)),
            ("Ana <>", Err(E::Empty)),
            ("Ana", Err(E::BareName)),
            ("the boss", Err(E::BareName)),
            ("ana@", Err(E::Invalid)),
            ("@example.org", Err(E::Invalid)),
            ("ana lopez@example.org", Err(E::Invalid)),
            ("ana..l@example.org", Err(E::Invalid)),
            ("ana@-example.org", Err(E::Invalid)),
            ("ana@example..org", Err(E::Invalid)),
            ("a@b.org, c@d.org", Err(E::Invalid)),
        ];
        for (text, expected) in cases {
            let read = MailAddress::parse(text);
            assert_eq!(read.as_ref().map(MailAddress::as_str).map_err(|error| *error), expected, "{text:?}");
        }
    }

    #[test]
    fn addresses_are_found_in_running_text() {
        let text = "Mail it to <Boss@example.org>, (cc: team.lead@example.org). Not to @handle or a@.";
        let found: Vec<String> = MailAddress::all_in(text).iter().map(|a| a.as_str().to_owned()).collect();
        assert_eq!(found, ["boss@example.org", "team.lead@example.org"]);
    }

    #[test]
    fn an_entry_covers_an_address_or_a_whole_domain_and_no_other() {
        let ana = MailAddress::parse("Ana@Example.org").unwrap();
        for (entry, covers) in [
            ("ana@example.org", true),
            ("@example.org", true),
            ("@Example.ORG", true),
            ("@example.com", false),
            ("@evil-example.org", false),
            ("bob@example.org", false),
        ] {
            assert_eq!(ana.is_covered_by(entry), covers, "{entry}");
        }
        assert!(MailAddress::is_domain_entry("@example.org") && !MailAddress::is_domain_entry("example.org"));
    }
}
