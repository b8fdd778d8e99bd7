//! A secret in any dress, in any other.

use proptest::prelude::*;

use super::tests::base64;
use super::{Redactor, STANDARD, URL_SAFE};

/// A way to write bytes down.
type Dress = (&'static str, fn(&[u8]) -> String);

/// Its parts as one text.
fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().concat()
}

fn hex(bytes: &[u8], between: &str) -> String {
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

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const DRESSES: &[Dress] = &[
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

fn check(value: &str, before: &str, after: &str, dresses: &[Dress]) -> Result<(), TestCaseError> {
    let redactor = Redactor::new([("K".to_owned(), value.to_owned())]);
    let mut text = format!("{before}{value}{after}");
    for (_, dress) in dresses {
        text = dress(text.as_bytes());
    }
    let text = format!("It says:\n{text}\nand no more.");
    let clean = redactor.text(&text);
    let names: Vec<&str> = dresses.iter().map(|(name, _)| *name).collect();
    prop_assert!(clean.contains("[secret K]"), "{names:?}: {value:?} in {text}");
    prop_assert!(!is_left(value, &clean), "{names:?}: {value:?} in {clean}");
    prop_assert!(clean.starts_with("It says:") && clean.ends_with("and no more."), "{names:?}: {clean}");
    Ok(())
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_is_known_in_any_dress_within_any_other(
        value in secrets(),
        before in "[ -~\n]{0,40}",
        after in "[ -~\n]{0,40}",
    ) {
        let (before, after) = (format!("{before}\n"), format!("\n{after}"));
        check(&value, &before, &after, &[])?;
        for inner in DRESSES {
            check(&value, &before, &after, &[*inner])?;
            for outer in DRESSES {
                check(&value, &before, &after, &[*inner, *outer])?;
            }
        }
    }
}
