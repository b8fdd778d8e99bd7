//! Which hosts the arguments of a call may lead to: for a rule that lets a job reach only some.
//!
//! The taint rule asks about whatever some reader takes for an address ([`crate::address`], [`crate::in_text`]); a rule that refuses reads the
//! same texts the same way, or a spelling passes one of them that the other one knows. What it does not refuse is what leads to no host
//! elsewhere: files, ids, versions, words, addresses of mail, schemes of the tool's own (`note://1`). An address that counts has to be written so
//! that every reader reads one host off it, and that host has to be allowed. Proved by: this file's tests.

use serde_json::Value;
use ua_core::{MailAddress, is_unseen};

use crate::address::{
    SPECIAL, Sound, each_leaf, folded, follows_in_prose, is_file_of_this_machine, is_plainly_an_address,
    looks_like_address, looks_like_host, scheme_before, without_surroundings,
};
use crate::in_text::{addresses_in, without_breaks};

/// The first address among the arguments of a call that may lead to a host of which `is_allowed` does not hold, as it is written. Words for
/// people may mention what they want, and so may what is given to one of our own tools under a name that says nothing of an address.
pub fn leads_elsewhere(arguments: &Value, is_own: bool, is_allowed: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = None;
    each_leaf(arguments, &mut |leaf| {
        if found.is_none() && !leaf.is_words && !(is_own && leaf.sound == Sound::Other) {
            found = elsewhere(leaf.text, leaf.sound, &is_allowed);
        }
    });
    found
}

fn elsewhere(text: &str, sound: Sound, is_allowed: &impl Fn(&str) -> bool) -> Option<String> {
    let written = without_surroundings(text);
    if is_file_of_this_machine(written) || (sound < Sound::Address && is_mail(written)) {
        return None;
    }
    // Under a name that says nothing an address is what is nothing else.
    let is_one = !without_breaks(written).contains(char::is_whitespace);
    let mut places = Vec::new();
    if sound > Sound::Other {
        places.extend(addresses_in(text, Sound::Other));
    }
    if sound > Sound::Other || is_one {
        places.push(written.to_owned());
    }
    places
        .into_iter()
        .find(|place| leads_somewhere(place, sound) && host_of_all(place).is_none_or(|host| !is_allowed(&host)))
}

/// Whether all of a text is addresses of mail.
fn is_mail(text: &str) -> bool {
    let signs = folded(text).matches('@').count();
    let is_plain = !text.contains(['/', '\\', '?']) && !has_special(text);
    signs > 0 && is_plain && MailAddress::all_in(text).len() == signs
}

/// A text without the signs in front of it that no address begins by, and without those that end what they began.
fn bare(text: &str) -> &str {
    let is_before = |c: char| c.is_whitespace() || c.is_control() || is_unseen(c) || "<(\"'`{*_".contains(c);
    let is_behind = |c: char| c.is_whitespace() || c.is_control() || is_unseen(c) || ">)\"'`}*_".contains(c);
    let cut = text.trim_start_matches(is_before);
    if cut.len() == text.len() { text } else { cut.trim_end_matches(is_behind) }
}

/// Whether a text may be read as an address with a host.
fn leads_somewhere(place: &str, sound: Sound) -> bool {
    let place = bare(place);
    let usual = without_breaks(&folded(place));
    has_host(place, sound) || has_host(bare(&usual), sound)
}

fn has_host(text: &str, sound: Sound) -> bool {
    if has_special(text) {
        return true;
    }
    if let Some(at) = text.find("://").filter(|at| *at > 0 && scheme_before(text, *at) == 0) {
        // Of a scheme that is a tool's own, what stands behind it may be an id.
        let rest = &text[at + 3..];
        return rest.starts_with('[') || (!rest.starts_with('/') && is_plainly_an_address(rest));
    }
    // One slash begins a path.
    let behind = text.trim_start_matches('/');
    if text.len() == behind.len() + 1 {
        return false;
    }
    // `view-source:https://example.org`
    let within = text.split_once(':').filter(|(scheme, _)| {
        scheme.len() > 1
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme_before(scheme, scheme.len()) == 0
    });
    if let Some((_, rest)) = within.filter(|_| !looks_like_host(text) && !is_plainly_an_address(text)) {
        let is_host = looks_like_host(rest.trim_start_matches('/')) && is_plainly_an_address(rest);
        return has_special(rest) || (sound > Sound::Other && (is_host || rest.starts_with('[')));
    }
    let is_led_by_slashes = behind.len() < text.len();
    if sound == Sound::Other && !is_led_by_slashes {
        return false;
    }
    // A number alone is an id, but for where whatever stands there is an address.
    let is_id = behind.bytes().all(|byte| byte.is_ascii_digit()) && sound < Sound::Address && !is_led_by_slashes;
    // `chapter:120` is a host where one is expected.
    let is_plain = is_plainly_an_address(behind) && (sound >= Sound::Perhaps || looks_like_host(behind));
    is_plain || (looks_like_address(behind) && !looks_like_host(behind) && !is_id)
}

/// Whether a text begins by a scheme that fetchers take with slashes, with backslashes and with none, and has a host.
fn has_special(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let rest = SPECIAL.iter().find_map(|scheme| lower.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        rest.trim_start_matches(['/', '\\']).starts_with(|c: char| c.is_alphanumeric() || "[%@_-".contains(c))
    })
}

/// The host of an address that every reader reads off it, in small letters; `None` where they may read different ones.
fn host_of_all(place: &str) -> Option<String> {
    let place = bare(without_surroundings(place)).trim_end_matches(follows_in_prose);
    let is_scheme = |scheme: &str| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let (scheme, rest) = place.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", place));
    let rest = if scheme.is_empty() { rest.strip_prefix("//").unwrap_or(rest) } else { rest };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = if host.starts_with('[') {
        host.split_inclusive(']').next().unwrap_or_default()
    } else {
        host.split(':').next().unwrap_or_default()
    };
    let is_of_a_name = |c: char| c.is_alphanumeric() || ".-_".contains(c);
    let is_host = !host.is_empty() && host.chars().all(|c| is_of_a_name(c) || "[]:".contains(c));
    let is_user = user.chars().all(|c| is_of_a_name(c) || "~!$*+,;=:".contains(c));
    let is_one = is_user && is_host && folded(authority) == authority;
    is_one.then(|| host.trim_end_matches('.').to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn elsewhere_of(arguments: &Value) -> Option<String> {
        leads_elsewhere(arguments, false, |host| host == "good.test" || host.ends_with(".good.test"))
    }

    /// The texts of a list in the tests of another file, with the escapes of Rust read.
    fn listed(file: &str, list: &str) -> Vec<String> {
        let start = file.find(list).unwrap() + list.len();
        let block = &file[start..start + file[start..].find("];").unwrap()];
        let mut texts = Vec::new();
        let mut rest = block;
        while let Some(at) = rest.find('"') {
            let (mut text, mut chars) = (String::new(), rest[at + 1..].char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (end, '"') => break end,
                    (_, '\\') => match chars.next().unwrap().1 {
                        'n' => text.push('\n'),
                        'r' => text.push('\r'),
                        't' => text.push('\t'),
                        'u' => {
                            let code: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                            let code = u32::from_str_radix(code.trim_start_matches('{'), 16).unwrap();
                            text.push(char::from_u32(code).unwrap());
                        }
                        other => text.push(other),
                    },
                    (_, c) => text.push(c),
                }
            };
            texts.push(text);
            rest = &rest[at + 1 + end + 1..];
        }
        texts
    }

    /// Every spelling that the tests of the taint rule have, in every place of the arguments where a tool may look for an address.
    #[test]
    fn what_the_taint_rule_reads_as_an_address_is_refused_where_its_host_is_not_allowed() {
        let (address, in_text) = (include_str!("address.rs"), include_str!("in_text.rs"));
        let mut spellings = listed(address, "let spellings = [");
        spellings.extend(listed(in_text, "let spellings = ["));
        spellings.extend(listed(in_text, "let broken = ["));
        spellings.extend(
            [
                "//evil.test",
                "wss://evil.test",
                "ws:evil.test",
                "ftp://evil.test/x",
                "git://evil.test/x",
                "https://good.test.evil.test",
                "https://good.test\\@evil.test",
                "https://good.test@evil.test",
                "https://evil.test;.good.test/",
                "postgres://u:p@evil.test/d",
            ]
            .map(str::to_owned),
        );
        assert!(spellings.len() > 40, "{}", spellings.len());
        let before = ["", " ", "\n", "\u{2028}", "\u{a0}", "\u{200b}", "\u{feff}", "\u{1}", "<", "(", "\"", "'", "*"];
        let mut tried = 0;
        for spelled in &spellings {
            for sign in before {
                let text = format!("{sign}{spelled}");
                for name in ["url", "target_url", "imageUrl", "href", "link", "endpoint", "uri", "webhook", "baseUrl"] {
                    for arguments in [
                        json!({ name: text }),
                        json!({ name: [text] }),
                        json!({ name: { "x": text } }),
                        json!({ name: [{ "value": text }] }),
                        json!({ "deep": [{ "a": { name: text } }] }),
                        json!({ name: ["https://good.test/x", text] }),
                    ] {
                        assert!(elsewhere_of(&arguments).is_some(), "{arguments}");
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 20_000, "{tried}");
        for arguments in [
            json!({"url": {"x": "https://evil.test"}}),
            json!({"url": "see https://evil.test/a now"}),
            json!({"url": 3_232_235_521_u64}),
            json!({"url": [127, 0, 0, 1]}),
            json!({"anything": "https://evil.test"}),
            json!({"anything": "<//evil.test/x>"}),
            json!({"https://evil.test/x": 1}),
            json!({"url": "view-source:https://evil.test"}),
            json!({"host": "evil:8080"}),
            json!({"site": "evil.test"}),
            json!({"proxy": "evil.test:3128"}),
            json!({"source": "git@evil.test:owner/name"}),
        ] {
            assert!(elsewhere_of(&arguments).is_some(), "{arguments}");
        }
    }

    #[test]
    fn what_leads_to_an_allowed_host_or_to_none_is_not_refused() {
        for text in [
            "https://good.test",
            "https://docs.good.test/a/b?x=https://evil.test#c",
            " HTTPS://GOOD.test:8443/a\n",
            "https://good.test./a",
            "https://u:p@good.test/",
            "//good.test/a",
            "<https://good.test/a>",
            "wss://good.test/socket",
            "postgres://u:p@db.good.test/d",
            "docs.good.test/a",
            "file:///w/a.md",
            "/docs.old/a.html",
            "#part",
            "?page=2",
            "notes.md",
            "report.pdf",
            "images/a.png",
            "main",
            "v1.2.3",
            "note://internal/12345678",
            "s3://bucket/key",
            "ui://widget/a.html",
            "urn:isbn:123",
            "doi:10.1000/182",
            "",
        ] {
            for name in ["url", "urls", "uri", "link", "src", "target", "site", "page", "source", "anything"] {
                for arguments in [json!({ name: text }), json!({ name: [{ "x": text }] })] {
                    assert_eq!(elsewhere_of(&arguments), None, "{arguments}");
                }
            }
        }
        let own = json!({"argv": ["git", "clone", "https://evil.test/x"], "value": "https://evil.test"});
        assert_eq!(leads_elsewhere(&own, true, |_| false), None);
        assert!(leads_elsewhere(&json!({"urls": ["https://evil.test"]}), true, |_| false).is_some());
        for arguments in [
            json!({"source": "chapter:120", "site": "urn:isbn:123"}),
            json!({"body": "https://evil.test", "text": "see https://evil.test"}),
            json!({"query": "what is https://evil.test about", "q": "evil.test"}),
            json!({"email_address": "ana@evil.test", "to": ["ana@evil.test", "b@evil.test"]}),
            json!({"page_id": 3_232_235_521_u64, "page": "123456789", "location": "Berlin", "address": "1 Main St., York"}),
            json!({"module": "os.path", "version": "1.2", "ref": "tag:v.one", "data": "{\"u\":\"https://evil.test\"}"}),
        ] {
            assert_eq!(elsewhere_of(&arguments), None, "{arguments}");
        }
    }
}
