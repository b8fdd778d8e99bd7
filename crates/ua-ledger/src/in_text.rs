//! The addresses in a text: where they begin, and where they end.
//!
//! A text may be a page, a letter, a style, JSON, or one in another, and each reader of these finds addresses by rules of its own. What one of
//! them may find is found here: it may be too much, which costs a question, and not too little. Proved by: this file's tests, and `address`'s.

use ua_core::is_unseen;

use crate::address::{
    SPECIAL, Sound, begins_an_address, ends_an_address, folded, is_file_of_this_machine, is_plainly_an_address,
    looks_like_address, scheme_before, unescaped, without_braces, without_end_of_sentence, without_surroundings,
};

/// The addresses of pages in a text under a name that sounds like this, as they are written. A text that is one counts whole, whatever
/// stands in it, and around it: of the white space at its ends a reader leaves out what ASCII has, or none, and sends the rest.
pub(crate) fn addresses_in(written: &str, sound: Sound) -> Vec<String> {
    let text = without_surroundings(written);
    if is_file_of_this_machine(text) || text.is_empty() {
        return Vec::new();
    }
    // Readers of addresses leave out tabs and ends of lines.
    let joined = without_breaks(text);
    let is_split = joined.len() != text.len() && !joined.contains(char::is_whitespace);
    let is_whole = begins_an_address(text)
        || (is_split && begins_as_an_address(&folded(&joined)))
        || match sound {
            Sound::Address => true,
            Sound::Maybe => is_in_either(text, is_plainly_an_address),
            Sound::Perhaps => {
                text.contains("://")
                    || is_in_either(text, looks_like_address)
                    || is_in_either(text, is_plainly_an_address)
            }
            Sound::Other => false,
        };
    if is_whole {
        return vec![written.to_owned()];
    }
    let mut found = Vec::new();
    let read = without_braces(text);
    for word in text.split(|c: char| c != '\\' && ends_an_address(c)).chain(read.split(ends_an_address)) {
        if let Some(at) = first_address(word) {
            // JSON within a text leaves a backslash in front of the quotation mark.
            let part = &word[at..];
            found.push(without_end_of_sentence(part.strip_suffix('\\').unwrap_or(part)).to_owned());
        }
    }
    quoted_addresses(text, &mut found);
    found
}

/// Whether that is so of a text as it is written, or in the usual spelling.
fn is_in_either(text: &str, is_so: impl Fn(&str) -> bool) -> bool {
    is_so(text) || is_so(&folded(text))
}

pub(crate) fn without_breaks(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\t' | '\r' | '\n')).collect()
}

/// Where the first address of a word begins, however it is spelled: what stands behind it is its own, also where another one stands there. At the
/// beginning of the word where only another spelling of it has one, or has one earlier.
fn first_address(word: &str) -> Option<usize> {
    let usual = without_breaks(&folded(word));
    let first = first_plain_address(&usual)?;
    let written = first_plain_address(word).filter(|at| without_breaks(&folded(&word[..*at])).len() == first);
    Some(written.unwrap_or(0))
}

/// The same of a word in the usual spelling.
fn first_plain_address(word: &str) -> Option<usize> {
    let with_scheme = word.find("://").map(|at| scheme_before(word, at));
    // `// a comment` is no host, nor is what lies in a folder (`a//b.rs`); whatever else stands before the slashes, Markdown or a page, may be.
    let mut slashes = word.match_indices("//").map(|(at, _)| at);
    let slashes = slashes.find(|at| {
        !word[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '/')
            && looks_like_address(word[*at..].trim_start_matches('/'))
    });
    // Fetchers take `https:` with one slash, or none, as well.
    let lower = word.to_ascii_lowercase();
    let without_slashes = SPECIAL.iter().flat_map(|scheme| {
        lower.match_indices(scheme).filter_map(|(at, _)| {
            let rest = lower[at + scheme.len()..].trim_start_matches(['/', '\\']);
            let is_scheme = !lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            (is_scheme && rest.starts_with(|c: char| c.is_alphanumeric() || "[%@_-".contains(c))).then_some(at)
        })
    });
    without_slashes.chain(with_scheme).chain(slashes).min()
}

/// Adds the addresses that stand in quotation marks as values do with white space in them: a reader leaves tabs and ends of lines out and writes
/// spaces otherwise, so all of it is the address.
fn quoted_addresses(text: &str, found: &mut Vec<String>) {
    each_quoted(text, &mut |value| {
        // How an address begins is told by less than this.
        let beginning: String = without_surroundings(value).chars().take(500).collect();
        let is_one = begins_as_an_address(&folded(&beginning.replace(['\t', '\r', '\n'], " ")));
        if is_one || begins_broken(value, begins_a_page) {
            found.push(value.to_owned());
        }
    });
}

/// Shows what stands in quotation marks as values do (`src="…"`, `url('…')`, `{"u": "…"}`) with white space in it, as it is written and with its
/// escapes read.
pub(crate) fn each_quoted(text: &str, with: &mut impl FnMut(&str)) {
    let plain = if text.contains(['&', '\\']) { breaks_read(&unescaped(text)) } else { String::new() };
    let readings: &[&str] = if plain.is_empty() || plain == text { &[text] } else { &[text, &plain] };
    for text in readings {
        for (at, quote) in text.match_indices(['"', '\'']) {
            let before = text[..at].trim_end_matches(|c: char| c.is_whitespace() || c == '\\');
            if !(before.is_empty() || before.ends_with(['=', '(', ':', '[', ','])) {
                continue;
            }
            let value = &text[at + 1..];
            let value = value.find(quote).map_or(value, |end| &value[..end]);
            let may_be_one = |c: char| !c.is_ascii() || matches!(c, ':' | '/' | '\\' | '&' | '%');
            // What ends an address in prose, or hides in it, is sent with it from here.
            if value.contains(|c: char| c.is_whitespace() || is_unseen(c)) && value.contains(may_be_one) {
                with(value);
            }
        }
    }
}

/// A text with tabs and ends of lines in the place of the escapes by which JSON and programs write them.
fn breaks_read(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r")
}

/// How far the beginning of an address is looked for: longer than every scheme, with as many breaks in it.
const BEGINNING: usize = 64;

/// Whether an address begins anywhere in a value because a reader of addresses leaves a tab or the end of a line out (WHATWG URL, "basic URL
/// parser", which removes all of them first), and would not without: `begins` says whether one begins a text in the usual spelling.
pub(crate) fn begins_broken(value: &str, begins: impl Fn(&str) -> bool) -> bool {
    let is_break = |c: char| matches!(c, '\t' | '\r' | '\n');
    if !value.contains(is_break) {
        return false;
    }
    let mut before = ' ';
    for (at, c) in value.char_indices() {
        let may_begin = !before.is_ascii_alphanumeric() && !c.is_whitespace();
        before = c;
        let beginning: String = if may_begin { value[at..].chars().take(BEGINNING).collect() } else { String::new() };
        if !beginning.contains(is_break) {
            continue;
        }
        let read = |text: &str| folded(text).to_ascii_lowercase();
        let unbroken = beginning.split(is_break).next().unwrap_or_default();
        if begins(&read(&without_breaks(&beginning))) && !begins(&read(unbroken)) {
            return true;
        }
    }
    false
}

/// Whether a text begins as the address of a page does, by its scheme or by its slashes. A scheme that is not known would be any word at the end
/// of a line.
fn begins_a_page(text: &str) -> bool {
    let behind = SPECIAL.iter().find_map(|scheme| text.strip_prefix(scheme));
    behind.is_some_and(|rest| {
        rest.trim_start_matches(['/', '\\']).starts_with(|c: char| c.is_alphanumeric() || "[%@_-".contains(c))
    }) || (text.starts_with("//") && looks_like_address(text))
}

/// Whether a text is an address from its beginning, with a scheme or without one: `//example.org`.
fn begins_as_an_address(text: &str) -> bool {
    begins_an_address(text) || (text.starts_with("//") && looks_like_address(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each spelling of where something goes, in each place of a text where a reader finds addresses, alone and with one beside it that is known:
    /// what is found is more than the known one, with all that was put behind it.
    #[test]
    fn s1_an_address_is_found_wherever_a_reader_would_find_it() {
        let spellings = [
            "https://evil.example/S",
            "//evil.example/S",
            "///evil.example/S",
            "/\\evil.example/S",
            "http:evil.example/S",
            "HTTP:evil.example/S",
            "https:evil.example/S",
            "http:/evil.example/S",
            "http:\\evil.example/S",
            "https:\\\\evil.example/S",
            "wss:evil.example/S",
            "http&#58;evil.example/S",
            "https&colon;&sol;evil.example/S",
            "ｈttp:evil.example/S",
            "http:3232235521/S",
            "http:[2001:db8::1]/S",
            "http:evil/S",
        ];
        let broken = [
            "/\t/evil.example/S",
            "/\n/evil.example/S",
            "ht\ntp:evil.example/S",
            "http\r\n:evil.example/S",
            "/&Tab;/evil.example/S",
            "/&#10;/evil.example/S",
        ];
        let quoted = [
            "<img src=\"{}\">",
            "<img src = '{}' alt=x>",
            "a { b: url(\"{}\") }",
            "{\"u\": \"{}\"}",
            "{\\\"u\\\":\\\"{}\\\"}",
            "<p srcdoc=\"<img src=&quot;{}&quot;>\">",
            "f('{}')",
        ];
        let bare = [
            "![x]({})",
            "<img src={}>",
            "<{}>",
            "url({})",
            "see {} now",
            "x={}",
            "x,{}",
            "[a]:{}",
            "{}",
            "![x]({})![y](https://known.example/x)",
            "<meta http-equiv=refresh content='0;url={}'>",
            "{}?u=https://known.example/x",
        ];
        let each = |places: &[&str], spellings: &[&str]| {
            for (place, spelled) in
                places.iter().flat_map(|place| spellings.iter().map(move |spelled| (*place, *spelled)))
            {
                let text = format!("of others: {}", place.replace("{}", spelled));
                let found = addresses_in(&text, Sound::Other);
                let is_whole = |found: &String| found.contains('S') && found != "https://known.example/x";
                assert!(found.iter().any(is_whole), "{text:?}: {found:?}");
            }
        };
        each(&quoted, &spellings);
        each(&bare, &spellings);
        each(&quoted, &broken);
        // What stands behind a known one in the same quotation marks is sent with it.
        for place in &quoted {
            for behind in [" S", "\nS", "\t/S", "?a b=S"] {
                let text = place.replace("{}", &format!("https://known.example/x{behind}"));
                let found = addresses_in(&format!("of others: {text}"), Sound::Other);
                assert!(found.iter().any(|found| found.contains('S')), "{text:?}: {found:?}");
            }
        }
        for alone in ["/\t/evil.example/S", "http:evil.example/S"] {
            assert_eq!(addresses_in(alone, Sound::Other), [alone]);
        }
        for harmless in [
            "the http: and https: schemes, (http:) or \"https:\"",
            "news:example.org shttp:x",
            "he said \"look there\" and 'wait'",
            "f(\"a b\", 'c d') x = \"1 / 2\"",
            "{\"a\": \"b c\", \"d\": \"/etc/x y\"}",
            "dir/\n/etc/hosts.conf",
            "/* a */\n// b\n",
        ] {
            assert_eq!(addresses_in(&format!("of others: {harmless}"), Sound::Other), [""; 0], "{harmless:?}");
        }
        assert_eq!(
            addresses_in("\"an error\" https://known.example/x says", Sound::Other),
            ["https://known.example/x"],
            "quotation marks around something else"
        );
    }
}
