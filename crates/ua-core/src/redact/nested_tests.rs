//! A secret in any dress, in any other.

use proptest::prelude::*;

use super::tests::base64;
use super::{Redactor, STANDARD, URL_SAFE};

/// A way to write bytes down.
pub(super) type Dress = (&'static str, fn(&[u8]) -> String);

/// Its parts as one text.
pub(super) fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().concat()
}

pub(super) fn hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

fn wrapped(text: &str, width: usize, end: &str) -> String {
    let lines: Vec<&str> = text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join(end)
}

fn shown(byte: u8) -> char {
    if matches!(byte, b' '..=b'~') { char::from(byte) } else { '.' }
}

/// As `xxd` has it: groups of so many bytes, in lines of 16.
fn xxd(bytes: &[u8], group: usize) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let groups: Vec<String> = bytes.chunks(group).map(|group| hex(group, "")).collect();
        let width = 32 + 16 / group - 1;
        let text: String = bytes.iter().copied().map(shown).collect();
        format!("{:08x}: {:width$}  {text}\n", 16 * line, groups.join(" "))
    });
    lines.collect()
}

/// As `hexdump -C` has it.
fn hexdump(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let halves: Vec<String> = bytes.chunks(8).map(|half| hex(half, " ")).collect();
        let text: String = bytes.iter().copied().map(shown).collect();
        format!("{:08x}  {:48}  |{text}|\n", 16 * line, halves.join("  "))
    });
    lines.chain([format!("{:08x}\n", bytes.len())]).collect()
}

/// As `od` has it, by a format of its own for each word of so many bytes.
fn od(bytes: &[u8], word: usize, show: impl Fn(&[u8]) -> String) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let words = joined(bytes.chunks(word).map(|word| format!(" {}", show(word))));
        format!("{:07o}{words}\n", 16 * line)
    });
    lines.chain([format!("{:07o}\n", bytes.len())]).collect()
}

pub(super) fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// As `od -c` has it.
fn od_c(bytes: &[u8]) -> String {
    od(bytes, 1, |byte| match byte[0] {
        0 => " \\0".to_owned(),
        b'\n' => " \\n".to_owned(),
        b'\r' => " \\r".to_owned(),
        b'\t' => " \\t".to_owned(),
        byte @ b' '..=b'~' => format!("  {}", char::from(byte)),
        byte => format!("{byte:03o}"),
    })
}

/// As mails have it, in lines of at most so many characters; `is_plain` says what stands as it is.
fn quoted_printable(bytes: &[u8], width: usize, is_plain: fn(u8) -> bool) -> String {
    let (mut text, mut line) = (String::new(), 0);
    for byte in bytes {
        let shown = if is_plain(*byte) { char::from(*byte).to_string() } else { format!("={byte:02X}") };
        if line + shown.len() >= width {
            text.push_str("=\r\n");
            line = 0;
        }
        line = if *byte == b'\n' { 0 } else { line + shown.len() };
        text.push_str(&shown);
    }
    text
}

/// Each sign of ASCII by its name.
fn by_name(text: &str) -> String {
    let name = |c: char| {
        let mut sign = [0; 4];
        let sign = if c == '-' { "\u{2010}" } else { c.encode_utf8(&mut sign) };
        let names = html_escape::NAMED_ENTITIES.iter().filter(|(_, meant)| *meant == sign);
        let name = names.map(|(name, _)| text_of(name)).max_by_key(|name| name.len());
        name.filter(|_| c.is_ascii() && c != '\n').map_or(c.to_string(), |name| format!("&{name};"))
    };
    text.chars().map(name).collect()
}

/// Something between any two characters.
fn between(bytes: &[u8], what: &str) -> String {
    text_of(bytes).chars().map(String::from).collect::<Vec<_>>().join(what)
}

fn utf16(bytes: &[u8], order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text_of(bytes).encode_utf16().flat_map(order).collect()
}

fn base32(bytes: &[u8]) -> String {
    let groups = bytes.chunks(5).map(|group| {
        let number = group.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)) << (8 * (5 - group.len()));
        let digits =
            (0..8).map(|n| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(number >> (35 - 5 * n) & 31) as usize]));
        digits.take((8 * group.len()).div_ceil(5)).collect::<String>()
    });
    joined(groups)
}

pub(super) const DRESSES: &[Dress] = &[
    ("json", |bytes| serde_json::to_string(text_of(bytes)).unwrap()),
    ("json of ascii", |bytes| {
        let units = text_of(bytes).encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        units.collect()
    }),
    ("percent, all", |bytes| joined(bytes.iter().map(|byte| format!("%{byte:02X}")))),
    ("percent, what is needed", |bytes| {
        let one =
            |byte: &u8| if byte.is_ascii_alphanumeric() { char::from(*byte).into() } else { format!("%{byte:02x}") };
        bytes.iter().map(one).collect()
    }),
    ("entities, decimal", |bytes| joined(text_of(bytes).chars().map(|c| format!("&#{};", u32::from(c))))),
    ("entities, open", |bytes| joined(text_of(bytes).chars().map(|c| format!("&#{}", u32::from(c))))),
    ("entities, hexadecimal", |bytes| joined(text_of(bytes).chars().map(|c| format!("&#x{:X};", u32::from(c))))),
    ("entities, open hexadecimal", |bytes| joined(text_of(bytes).chars().map(|c| format!("&#x{:x}", u32::from(c))))),
    ("entities, named", |bytes| {
        let text = text_of(bytes).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        text.replace('"', "&quot;").replace('\'', "&#39;")
    }),
    ("escapes of C", |bytes| joined(bytes.iter().map(|byte| format!("\\x{byte:02x}")))),
    ("escapes of Rust", |bytes| joined(text_of(bytes).chars().map(|c| c.escape_unicode().to_string()))),
    ("escapes of Markdown", |bytes| {
        let one = |c: char| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
        text_of(bytes).chars().map(one).collect()
    }),
    ("entities, all by name", |bytes| by_name(text_of(bytes))),
    ("quoted-printable", |bytes| {
        quoted_printable(bytes, 76, |byte| byte == b'\n' || (matches!(byte, b' '..=b'~') && byte != b'='))
    }),
    ("quoted-printable, all, short", |bytes| quoted_printable(bytes, 20, |_| false)),
    ("nothing between", |bytes| between(bytes, "\u{200b}")),
    ("word joiners, soft hyphens and fillers between", |bytes| between(bytes, "\u{2060}\u{ad}\u{3164}")),
    ("colours between", |bytes| between(bytes, "\u{1b}[1;31m")),
    ("UTF-16 in hex", |bytes| hex(&utf16(bytes, u16::to_le_bytes), "")),
    ("UTF-16 in hex, large end first", |bytes| hex(&utf16(bytes, u16::to_be_bytes), " ")),
    ("UTF-16 in base64", |bytes| wrapped(&base64(&utf16(bytes, u16::to_le_bytes), STANDARD), 76, "\n")),
    ("UTF-16 in base64, large end first", |bytes| base64(&utf16(bytes, u16::to_be_bytes), URL_SAFE)),
    ("UTF-16 in a dump", |bytes| xxd(&utf16(bytes, u16::to_le_bytes), 2)),
    ("base32", base32),
    ("od -c", od_c),
    ("a list of numbers", |bytes| format!("{{\"data\":{bytes:?}}}")),
    ("a list of numbers, below zero", |bytes| {
        let numbers = bytes.iter().map(|byte| byte.cast_signed().to_string());
        format!("[\n  {}\n]", numbers.collect::<Vec<_>>().join(",\n  "))
    }),
    ("octal escapes", |bytes| joined(bytes.iter().map(|byte| format!("\\{byte:03o}")))),
    ("hex", |bytes| hex(bytes, "")),
    ("hex, large", |bytes| hex(bytes, "").to_uppercase()),
    ("hex, spaced", |bytes| hex(bytes, " ")),
    ("hex, colons", |bytes| hex(bytes, ":")),
    ("hex, of an array", |bytes| format!("[0x{}]", hex(bytes, ", 0x"))),
    ("hex, wrapped", |bytes| wrapped(&hex(bytes, ""), 60, "\n")),
    ("base64", |bytes| base64(bytes, STANDARD)),
    ("base64, of addresses", |bytes| base64(bytes, URL_SAFE)),
    ("base64, wrapped", |bytes| wrapped(&base64(bytes, STANDARD), 76, "\n")),
    ("base64, wrapped short", |bytes| wrapped(&base64(bytes, STANDARD), 16, "\r\n ")),
    ("xxd", |bytes| xxd(bytes, 2)),
    ("xxd -g1", |bytes| xxd(bytes, 1)),
    ("xxd -g4", |bytes| xxd(bytes, 4)),
    ("hexdump -C", hexdump),
    ("hexdump", |bytes| {
        od(bytes, 2, |word| match word {
            [low, high] => format!("{high:02x}{low:02x}"),
            rest => format!("00{:02x}", rest[0]),
        })
    }),
    ("od -t x1", |bytes| od(bytes, 1, |word| hex(word, ""))),
];

/// Whether as much of a secret is left as is taken for one: 8 characters in a row.
fn is_left(secret: &str, clean: &str) -> bool {
    let characters: Vec<char> = secret.chars().collect();
    characters.windows(8).any(|part| clean.contains(&part.iter().collect::<String>()))
}

pub(super) fn check(value: &str, before: &str, after: &str, dresses: &[Dress]) -> Result<(), TestCaseError> {
    let redactor = Redactor::new([("K".to_owned(), value.to_owned())]);
    let mut text = format!("{before}{value}{after}");
    for (_, dress) in dresses {
        text = dress(text.as_bytes());
    }
    let text = format!("It says:\n{text}\n\n(and no more, which has to be there behind it all.)");
    let clean = redactor.text(&text);
    let names: Vec<&str> = dresses.iter().map(|(name, _)| *name).collect();
    prop_assert!(clean.contains("[secret K]"), "{names:?}: {value:?} in {text}");
    prop_assert!(!is_left(value, &clean), "{names:?}: {value:?} in {clean}");
    // What is no dump to whom it is written for may take a little of what follows with it: as much as there may be of a text beside its digits.
    prop_assert!(clean.starts_with("It says:") && clean.ends_with("behind it all.)"), "{names:?}: {clean}");
    Ok(())
}

/// Where digits at the end of a line may go on at the next, lines may be joined before they are read as a dump.
#[test]
fn a_dump_ends_where_its_lines_do() {
    check("0a!aaAaa", "\n", "\n", &[DRESSES[3], *DRESSES.last().unwrap()]).unwrap();
}

/// What is a secret to a person: 8 characters or more, with no white space.
fn secrets() -> impl Strategy<Value = String> {
    let characters = prop_oneof![
        6 => prop::char::range('!', '~'),
        1 => prop::sample::select(vec!['\u{e9}', '\u{df}', '\u{4e2d}', '\u{1f511}', '%', '&', '\\', '"', '/', '+', '=']),
    ];
    let values = prop::collection::vec(characters, 8..40).prop_map(|characters| characters.into_iter().collect());
    values.prop_filter("its own characters are escapes, and say too little", |value: &String| {
        super::layers::tight_of(value).iter().all(|form| form.len() >= super::MIN_RESOLVED)
    })
}

/// Of what reads as an escape itself, less than 8 bytes are left.
#[test]
fn a_short_secret_of_escapes_is_known_in_a_dress_of_other_escapes() {
    for value in ["Aa&\\\\AA0", "a<b%41\\\\z", "&\\\\\\\\'abcd"] {
        for dress in DRESSES {
            check(value, "", "", &[*dress]).unwrap();
        }
    }
}

/// A dress may be hardly longer than what it hides.
#[test]
fn one_character_that_is_dressed_is_enough_to_look_at_a_short_text() {
    let redactor = Redactor::new([("K".to_owned(), "Zq7-hunt".to_owned())]);
    for dressed in
        ["Zq7-\u{ad}hunt", "Zq7=2Dhunt", "Zq7-=\nhunt", "Zq7%2Dhunt", "Zq7\\-hunt", "Zq7&dash;hunt", "Zq7-\u{1b}[mhunt"]
    {
        assert_eq!(redactor.text(dressed), "[secret K]", "{dressed:?}");
        for coded in [hex(dressed.as_bytes(), ""), base64(dressed.as_bytes(), STANDARD), base32(dressed.as_bytes())] {
            assert!(redactor.text(&coded).contains("[secret K]"), "{dressed:?} in {coded}");
        }
    }
}

/// What follows a secret that ends in a backslash is no escape of it.
#[test]
fn a_secret_that_ends_in_the_beginning_of_an_escape_is_known_whatever_follows() {
    for value in ["Aa&\\\\AA\\", "a<b\\\\wxyz%", "<a\\\\\"bcdef\\"] {
        for after in ["'", "\n'", "\nn", "4141", "\n4141", "\\"] {
            let dressed = value.replace('&', "&amp;").replace('<', "&lt;");
            let clean =
                Redactor::new([("K".to_owned(), value.to_owned())]).text(&format!("{dressed}{after}")).into_owned();
            assert!(clean.contains("[secret K]"), "{value:?} {after:?}: {clean}");
        }
    }
}

#[test]
fn a_secret_is_known_three_layers_deep_and_where_lines_are_set_off() {
    let secret = "cAnary-7Qz/91+kkLmnoPq";
    let redactor = Redactor::new([("KEY".to_owned(), secret.to_owned())]);
    let coded = |bytes: &[u8]| base64(bytes, STANDARD);
    let twice = coded(coded(secret.as_bytes()).as_bytes());
    let words = |from: &[u8], show: &dyn Fn(&[u8]) -> String| {
        let lines = from.chunks(16).enumerate().map(|(line, bytes)| {
            format!("{:08x}: {}\n", 16 * line, bytes.chunks(4).map(show).collect::<Vec<_>>().join(" "))
        });
        lines.collect::<String>()
    };
    let reversed = |word: &[u8]| word.iter().rev().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let bits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:08b}")).collect::<Vec<_>>().join(" ");
    let mut dresses = vec![
        coded(twice.as_bytes()),
        secret.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect::<Vec<_>>().concat(),
        words(secret.as_bytes(), &reversed),
        words(secret.as_bytes(), &bits),
    ];
    let long = coded(format!("hello world {secret} and more").as_bytes());
    for (before, after) in [("> ", "\n"), ("# ", "\n"), (" * ", "\n"), ("\"", "\",\n"), ("'", "' "), ("> > ", "\r\n")] {
        let lines = long.as_bytes().chunks(16).map(|line| format!("{before}{}{after}", text_of(line)));
        dresses.push(lines.collect());
    }
    for dress in dresses {
        let clean = redactor.text(&dress);
        assert!(clean.contains("[secret KEY]"), "{dress}: {clean}");
    }
}

/// How many runs of the search come to every pair of dresses.
const SHARES: usize = 8;

/// What can be read in two ways is read in one of them. In columns with named signs these have to be read first, and `\\n` of a column not;
/// and an escape that is part of a secret has to stay behind a backslash that is the dress of its dress.
pub(super) fn is_known(value: &str, inner: &Dress, outer: &Dress) -> bool {
    let is_escape = super::layers::tight_of(value)[0] != value.as_bytes();
    (inner.0, outer.0) != ("od -c", "entities, named") && !(inner.0 == "escapes of Markdown" && is_escape)
}

/// Of letters of ASCII, as whoever reads them byte by byte has them.
#[test]
fn nuls_of_other_encodings_hide_nothing() {
    let secret = "cAnary-7Qz/91+kkLmnoPq";
    let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
    let wide = |text: &str| -> Vec<u8> { text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect() };
    for (name, dress) in DRESSES {
        if *name == "nothing between" || name.starts_with("word joiners") {
            continue;
        }
        let dressed = dress(secret.as_bytes());
        assert!(redactor.text(&between(dressed.as_bytes(), "\0")).contains("[secret K]"), "{name} with NULs");
        assert!(redactor.text(&base64(&wide(&dressed), STANDARD)).contains("[secret K]"), "{name} in UTF-32");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_is_known_in_any_dress_within_any_other(
        value in secrets(),
        before in "[ -~\n]{0,40}",
        after in "[ -~\n]{0,40}",
        share in 0..SHARES,
    ) {
        let (before, after) = (format!("{before}\n"), format!("\n{after}"));
        check(&value, &before, &after, &[])?;
        for (place, inner) in DRESSES.iter().enumerate() {
            check(&value, &before, &after, &[*inner])?;
            let outer = DRESSES.iter().skip((place + share) % SHARES).step_by(SHARES);
            for outer in outer.filter(|outer| is_known(&value, inner, outer)) {
                check(&value, &before, &after, &[*inner, *outer])?;
            }
        }
    }
}

/// Whoever comments a line out has a mark of their own for it; lines of digits stand behind it as lines of base64 do.
#[test]
fn a_secret_is_known_behind_whatever_marks_its_lines_have() {
    let secret = "cAnary-7Qz/91+kkLmnoPq";
    let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
    let long = format!("hello world, {secret} and more of it");
    let marks = [
        "// ", "//", "# ", "#", "-- ", "--", "; ", "% ", "* ", " * ", "> ", ">> ", "> > ", "+ ", "+", "- ", "-", "| ",
        "REM ", "dnl ", "/// ", "//! ", "1: ", "12:", "  1\t", "0001 ", "! ", "<!-- ", "C ", "... ", "'", "\" ",
        "12 + ",
    ];
    for mark in marks {
        for (what, coded) in [("base64", base64(long.as_bytes(), STANDARD)), ("hex", hex(long.as_bytes(), ""))] {
            for width in [16, 20, 32, 64] {
                let text = format!("Before.\n{mark}{}\n\nand more.", wrapped(&coded, width, &format!("\n{mark}")));
                let clean = redactor.text(&text);
                assert!(clean.contains("[secret K]"), "{what} at {width} behind {mark:?}: {clean}");
                assert!(clean.starts_with("Before.") && clean.ends_with("and more."), "{clean}");
            }
        }
    }
}

/// Lines are wrapped at some width, whatever stands there.
#[test]
fn a_secret_is_known_whose_escapes_are_wrapped_anywhere() {
    let secret = "cAnary-7Qz/91+kkLmnoPq";
    let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
    let each = |show: fn(u8) -> String| joined(secret.bytes().map(show));
    let dresses = [
        ("entities", each(|byte| format!("&#{byte};"))),
        ("hexadecimal entities", each(|byte| format!("&#x{byte:X};"))),
        ("percent", each(|byte| format!("%{byte:02X}"))),
        ("escapes of C", each(|byte| format!("\\x{byte:02x}"))),
        ("octal", each(|byte| format!("\\{byte:03o}"))),
        ("escapes of JSON", each(|byte| format!("\\u{byte:04x}"))),
        ("escapes of Rust", each(|byte| format!("\\u{{{byte:x}}}"))),
        ("quoted-printable", each(|byte| format!("={byte:02X}"))),
        ("a list", format!("{:?}", secret.as_bytes())),
    ];
    for (what, dressed) in &dresses {
        for end in ["\n", "\r\n", "\n    ", "\\\n"] {
            // Once, at each place.
            for place in 1..dressed.len() {
                let text = format!("See {}{end}{} there", &dressed[..place], &dressed[place..]);
                let clean = redactor.text(&text);
                assert!(clean.contains("[secret K]"), "{what}, broken once by {end:?} at {place}: {text} {clean}");
            }
            for width in [13, 17, 40, 41, 60] {
                let text = wrapped(dressed, width, end);
                let clean = redactor.text(&text);
                assert!(clean.contains("[secret K]"), "{what} at {width} by {end:?}: {text} {clean}");
            }
        }
    }
}

/// What stands in front of a secret makes its beginning the end of a colour to a terminal. In a file it is a secret as before.
#[test]
fn a_secret_is_known_whose_beginning_a_terminal_takes_for_the_end_of_a_colour() {
    for secret in [
        "s\"cr/t+canary-0123",
        "12;3\"4567-canary",
        " ?!\"#$%canary/7Qz",
        "cAnary-7Qz/91+kkLmnoPq",
        "m4nary-7Qz/91+kkLmnoPq",
        "1;31m4nary-7Qz/91",
    ] {
        let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
        for (what, dress) in DRESSES {
            let dressed = dress(secret.as_bytes());
            // A dump begins with its line, or is none.
            if dressed.contains('\n') {
                continue;
            }
            for begins in ["\u{1b}[", "\u{1b}\u{1b}[", "\u{1b}[1;", "\u{9b}", "\u{1b}[0m\u{1b}[3"] {
                let clean = redactor.text(&format!("a {begins}{dressed} b")).into_owned();
                assert!(clean.contains("[secret K]") && !clean.contains(&dressed), "{what} {begins:?}: {clean:?}");
            }
        }
    }
}

/// A text whose letters have something between them, and something else in front of the one at `place`.
fn between_but(text: &str, what: &str, place: usize, there: &str) -> String {
    let letters = text.chars().enumerate();
    joined(letters.map(|(at, c)| {
        format!(
            "{}{c}",
            if at == place {
                there
            } else if at == 0 {
                ""
            } else {
                what
            }
        )
    }))
}

/// Beginnings of colours that are not finished: what comes next may be taken for the rest.
const UNFINISHED: [&str; 6] = ["\u{1b}[", "\u{1b}[0", "\u{1b}[1;3", "\u{1b}[1;31", "\u{9b}", "\u{1b}[0m\u{1b}[3"];

/// Colours that are whole between its letters do not say which one of them took a letter: the one in front of it that was never finished ends as
/// they do.
#[test]
fn a_secret_is_known_among_colours_of_which_one_was_never_finished() {
    let secrets = ["m4nary-7Qz/91+kkLmnoPq", "1;31m4nary-7Qz/91", "31mmm-canary?0", "K-canary-0123", "cAnary-7Qz/91"];
    for secret in secrets {
        let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
        let known = |text: &str, what: &str| {
            let text = format!("a {text} b");
            let clean = redactor.text(&text).into_owned();
            assert!(
                clean.contains("[secret K]") && clean.starts_with("a ") && clean.ends_with(" b"),
                "{what}: {clean:?}"
            );
        };
        for begins in UNFINISHED {
            for color in ["", "\u{1b}[1;31m", "\u{9b}0m", "\u{1b}[0m\u{1b}[1;31m", "\u{1b}[K", "\u{1b}[2C"] {
                // In front of each of its letters.
                for place in 0..secret.chars().count() {
                    known(
                        &between_but(secret, color, place, begins),
                        &format!("{begins:?} at {place} among {color:?}"),
                    );
                }
            }
            // In front of any dress of it, among colours of any text.
            for (what, dress) in DRESSES {
                let dressed = dress(secret.as_bytes());
                if !dressed.contains('\n') {
                    let text = format!("{begins}{}", between(dressed.as_bytes(), "\u{1b}[1;31m"));
                    known(&text, &format!("{begins:?} in front of {what}"));
                }
            }
        }
    }
    // Nobody's letters are missing.
    let redactor = Redactor::new([("K".to_owned(), "m4nary-7Qz/91".to_owned())]);
    for text in ["\u{1b}[1;31mm4nary\u{1b}[0m is a word", "\u{1b}[32m4\u{1b}[39m of 4", "\u{1b}[", "a\u{1b}[0"] {
        assert_eq!(redactor.text(text), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_is_known_wherever_a_colour_was_never_finished(
        value in secrets(),
        signs in "[0-9;]{0,4}",
        color in prop::sample::select(vec!["", "\u{1b}[m", "\u{1b}[1;31m", "\u{1b}[K", "\u{9b}38;5;1m", "\u{1b}[0m\u{1b}[4m"]),
        place in 0_usize..40,
        before in "[ -~\n]{0,20}",
        after in "[ -~\n]{0,20}",
    ) {
        let place = place % value.chars().count();
        let text = between_but(&value, color, place, &format!("\u{1b}[{signs}"));
        let text = format!("{before}\n{text}\n{after}");
        let clean = Redactor::new([("K".to_owned(), value.clone())]).text(&text).into_owned();
        prop_assert!(clean.contains("[secret K]"), "{value:?} in {text:?}: {clean:?}");
    }
}

#[test]
fn a_secret_is_known_between_whose_letters_a_terminal_is_told_something() {
    let secret = "cAnary-7Qz/91+kkLmnoPq";
    let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
    for told in [
        "\u{1b}]8;;https://a.example/\u{7}",
        "\u{1b}]8;;\u{1b}\\",
        "\u{9d}0;title\u{9c}",
        "\u{1b}Pq#0\u{1b}\\",
        "\u{9b}0m",
        "\u{9b}1;31m",
        "\u{1b}[0m\u{1b}]0;x\u{7}",
    ] {
        let clean = redactor.text(&between(secret.as_bytes(), told)).into_owned();
        assert!(clean.contains("[secret K]"), "{told:?}: {clean:?}");
    }
    // What a terminal takes for itself is looked at as well.
    assert!(
        redactor
            .text(&format!("\u{1b}]8;;https://a.example/{}\u{7}link", hex(secret.as_bytes(), "")))
            .contains("[secret K]")
    );
    // UTF-16 that lost its last byte, which is a NUL.
    let wide = between(secret.as_bytes(), "\0");
    assert!(redactor.text(&hex(wide.as_bytes(), "")).contains("[secret K]"));
    assert!(redactor.text(&base64(wide.as_bytes(), STANDARD)).contains("[secret K]"));
}
