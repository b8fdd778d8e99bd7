//! What a site's robots.txt says to us (RFC 9309).
//!
//! Groups that name our product token count, else those for `*`; the longest matching rule decides, and `Allow` wins
//! a tie. Crawl-delay is not in the RFC but is widely written, so it is read too.

use std::time::Duration;

use url::Url;

/// Our product token: what sites call us in `User-agent:` lines, and the first word of the `User-Agent` we send.
pub(super) const TOKEN: &str = "ua";
/// How much of a robots.txt is read, in bytes; the RFC asks for at least 500 KiB.
pub(super) const MAX_BYTES: usize = 512 * 1024;
/// The longest Crawl-delay that is kept to; a longer one is cut to it.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The rules that hold for us.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    delay: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    allow: bool,
    /// The path pattern in normal form, its `*` and final `$` still special.
    pattern: String,
}

impl Rules {
    /// Reads a robots.txt. Lines that make no sense are skipped, as the RFC asks.
    pub(super) fn parse(text: &str) -> Self {
        let (mut ours, mut everyone) = (None, None);
        let (mut for_us, mut for_everyone, mut naming) = (false, false, false);
        for line in text.trim_start_matches('\u{feff}').split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, value)) = line.split_once(':') else { continue };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            if name == "user-agent" {
                // Several such lines in a row open one group.
                if !naming {
                    (for_us, for_everyone, naming) = (false, false, true);
                }
                for_us |= product(value).eq_ignore_ascii_case(TOKEN);
                for_everyone |= value == "*";
                // A group without rules still is the one that holds for us.
                if for_us {
                    ours.get_or_insert_with(Self::default);
                }
                continue;
            }
            let known = matches!(name.as_str(), "allow" | "disallow" | "crawl-delay");
            naming &= !known;
            for (wanted, rules) in [(for_us, &mut ours), (for_everyone, &mut everyone)] {
                if wanted && known {
                    rules.get_or_insert_with(Self::default).add(&name, value);
                }
            }
        }
        ours.or(everyone).unwrap_or_default()
    }

    fn add(&mut self, name: &str, value: &str) {
        if name == "crawl-delay" {
            let seconds = value.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
            let delay = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(MAX_DELAY));
            self.delay = self.delay.max(delay.map(|delay| delay.min(MAX_DELAY)));
        } else if !value.is_empty() {
            self.rules.push(Rule { allow: name == "allow", pattern: normal(value, false) });
        }
    }

    /// Whether we may fetch the page.
    pub(super) fn allow(&self, url: &Url) -> bool {
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let path = normal(&path, true);
        self.rules
            .iter()
            .filter(|rule| matches(&rule.pattern, &path))
            .max_by_key(|rule| (rule.pattern.len(), rule.allow))
            .is_none_or(|rule| rule.allow)
    }

    /// The least time between the starts of two requests, at most 10 seconds.
    pub(super) fn delay(&self) -> Option<Duration> {
        self.delay
    }
}

/// The product token at the start of a `User-agent:` value; versions behind it do not count.
fn product(value: &str) -> &str {
    let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))).unwrap_or(value.len());
    value.get(..end).unwrap_or_default()
}

/// One spelling for each path: `%7E` is `~`, `%c3` is `%C3`, `ü` is `%C3%BC`. In a page's path `*` and `$` mean
/// themselves and are escaped; in a pattern they are special and stay.
fn normal(text: &str, is_path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digits = (byte == b'%').then(|| Some((hex(ahead.next()?)?, hex(ahead.next()?)?))).flatten();
        let (byte, escaped) = match digits {
            Some((high, low)) => {
                bytes = ahead;
                (high << 4 | low, true)
            }
            None => (byte, false),
        };
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let special = is_path && matches!(byte, b'*' | b'$');
        if plain || (!escaped && !special && byte.is_ascii_graphic()) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Whether `path` starts as the pattern says; takes time in proportion to both, whatever the pattern.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, whole) = pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true));
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return !whole || rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    if whole { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(robots: &str, path: &str) -> bool {
        Rules::parse(robots).allow(&Url::parse("https://example.org").unwrap().join(path).unwrap())
    }

    #[test]
    fn the_longest_rule_of_our_group_decides() {
        let all = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c$\nDisallow: /*.pdf$\nDisallow: /q*x=1\n";
        for (path, expected) in [
            ("/", true),
            ("/a", false),
            ("/abc", false),
            ("/a/b", true),
            ("/a/b/c", false),
            ("/a/b/c/d", true),
            ("/x.pdf", false),
            ("/x.pdf?y", true),
            ("/query?y=2&x=1", false),
            ("/query?y=2", true),
            ("/A", true),
        ] {
            assert_eq!(allowed(all, path), expected, "{path}");
        }
        assert!(allowed("User-agent: *\nDisallow: /p\nAllow: /p\n", "/p"), "Allow wins a tie");
    }

    #[test]
    fn a_group_that_names_us_replaces_the_one_for_everyone() {
        let robots = "\u{feff}User-Agent: other\nUSER-AGENT: UA/2.0 # us\nSitemap: /s\nDisallow: /ours\r\n\
            User-agent: *\nDisallow: /\nUser-agent: ua\nDisallow: /more\n";
        for (path, expected) in [("/free", true), ("/ours", false), ("/more", false)] {
            assert_eq!(allowed(robots, path), expected, "{path}");
        }
        assert!(allowed("User-agent: uax\nDisallow: /\n", "/"), "a longer name is somebody else");
        assert!(allowed("User-agent: ua\nUser-agent: ub\nDisallow:\nUser-agent: *\nDisallow: /\n", "/"));
        assert!(
            allowed("User-agent: *\nDisallow: /\n\nUser-agent: ua\n", "/"),
            "a group without rules forbids nothing"
        );
        assert!(allowed("<html>Disallow: /</html>", "/"), "a page is no robots.txt");
    }

    #[test]
    fn each_spelling_of_a_path_is_the_same_path() {
        let robots = "User-agent: *\nDisallow: /%7euser\nDisallow: /caf\u{e9}\nDisallow: /100%25\nDisallow: /star%2a\n";
        for path in ["/~user/x", "/caf%c3%a9", "/caf\u{e9}", "/100%25", "/star*"] {
            assert!(!allowed(robots, path), "{path}");
        }
        assert!(allowed(robots, "/starx"));
        assert!(allowed("User-agent: *\nDisallow: /a%2Fb\n", "/a/b"), "an escaped slash is not a slash");
    }

    #[test]
    fn the_delay_is_cut_to_ten_seconds() {
        let delay = |value: &str| Rules::parse(&format!("User-agent: *\nCrawl-delay: {value}\n")).delay();
        assert_eq!(delay("2.5"), Some(Duration::from_millis(2500)));
        assert_eq!(delay("86400"), Some(MAX_DELAY));
        assert_eq!(delay("1e300"), Some(MAX_DELAY));
        for nonsense in ["0", "-1", "NaN", "soon"] {
            assert_eq!(delay(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let robots = format!("User-agent: *\nDisallow: /{}b\n", "*a".repeat(200_000));
        assert!(allowed(&robots, &format!("/{}", "a".repeat(100_000))));
    }
}
