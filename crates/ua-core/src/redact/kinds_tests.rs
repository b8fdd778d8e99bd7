//! Secrets of every kind that people have, in what people write them in, within any dress.

use proptest::prelude::*;

use super::nested_tests::{DRESSES, Dress, check, hex, is_known, joined, text_of};
use super::tests::base64;
use super::{STANDARD, spellings};

/// Lines of a few characters, each behind a mark; no piece is shorter than two.
fn marked(bytes: &[u8], mark: impl Fn(usize) -> String, end: &str) -> String {
    let mut pieces = Vec::new();
    for line in text_of(bytes).lines() {
        let characters: Vec<char> = line.chars().collect();
        let mut rest = &characters[..];
        while rest.len() > 14 {
            pieces.push(rest[..9].iter().collect::<String>());
            rest = &rest[9..];
        }
        pieces.push(rest.iter().collect());
    }
    joined(pieces.iter().zip(8..).map(|(piece, n)| format!("{}{piece}{end}\n", mark(n))))
}

/// In Latin-1, where all of it is there.
fn latin_1(bytes: &[u8]) -> Vec<u8> {
    let characters = text_of(bytes).chars().map(u8::try_from);
    characters.collect::<Result<Vec<u8>, _>>().unwrap_or_else(|_| bytes.to_vec())
}

fn percent(bytes: &[u8], blank: &str) -> String {
    joined(bytes.iter().map(|byte| match byte {
        b' ' => blank.to_owned(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    }))
}

const WRITTEN: &[Dress] = &[
    ("in a quotation", |bytes| marked(bytes, |_| "> ".to_owned(), "")),
    ("in a difference", |bytes| marked(bytes, |_| "+".to_owned(), "")),
    ("in a comment", |bytes| marked(bytes, |_| "// ".to_owned(), "")),
    ("in numbered lines", |bytes| marked(bytes, |n| format!("{n}: "), "")),
    ("in lines of cat", |bytes| marked(bytes, |n| format!("{n:6}\t"), "$")),
    ("in lines of grep", |bytes| marked(bytes, |n| format!("key.pem:{n}:"), "")),
    ("in a log", |bytes| marked(bytes, |n| format!("2026-11-29T14:00:{n:02}Z INFO  "), "")),
    ("in a table", |bytes| marked(bytes, |_| "| ".to_owned(), " |")),
    ("in a form of a page", |bytes| percent(bytes, "+")),
    ("in quotation marks of a shell", |bytes| format!("'{}'", text_of(bytes).replace('\'', "'\\''"))),
    ("in two kinds of them", |bytes| format!("'{}'", text_of(bytes).replace('\'', "'\"'\"'"))),
    ("in SQL", |bytes| format!("'{}'", text_of(bytes).replace('\'', "''"))),
    ("in CSV", |bytes| format!("\"{}\"", text_of(bytes).replace('"', "\"\""))),
    ("as PostgreSQL has bytes", |bytes| format!("\\x{}", hex(bytes, ""))),
    ("behind a percent sign", |bytes| format!("%{}", hex(bytes, ""))),
    ("behind the sign of an entity", |bytes| format!("&#{}", hex(bytes, ""))),
    ("in Latin-1 and percent signs", |bytes| percent(&latin_1(bytes), "%20")),
    ("in Latin-1 and hexadecimal digits", |bytes| hex(&latin_1(bytes), "")),
    ("in Latin-1 and base64", |bytes| base64(&latin_1(bytes), STANDARD)),
    ("in letters and marks", |bytes| spellings::decomposed(text_of(bytes))),
    ("in a list of characters", |bytes| format!("{:?}", text_of(bytes).chars().map(u32::from).collect::<Vec<_>>())),
];

/// Passphrases, numbers, keys of several lines, words of other languages, and what has quotation marks.
fn secrets_of_every_kind() -> impl Strategy<Value = String> {
    let words = prop::collection::vec("[a-z]{3,8}", 4..7).prop_map(|words| words.join(" "));
    let key = prop::collection::vec("[A-Za-z0-9+/]{40}", 2..4)
        .prop_map(|lines| format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")));
    prop_oneof![
        words,
        "[1-9][0-9]{11,18}",
        key,
        "[a-z]{3,6}[\u{e4}\u{f6}\u{fc}\u{df}\u{e9}\u{f1}][a-z]{4,8}[\u{e4}\u{e5}\u{e7}][a-z]{2,4}",
        "[a-z]{4,6}['\"][a-z]{4,6}['\"]{1,2}[a-z]{4,6}",
        "[a-z]{4,6} [a-z]{4,6}['\"][A-Z0-9]{4,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_of_any_kind_is_known_however_it_is_written_and_dressed(
        value in secrets_of_every_kind(),
        share in 0_usize..6,
    ) {
        check(&value, "", "\n", &[])?;
        for dress in DRESSES {
            check(&value, "", "\n", &[*dress])?;
        }
        for (place, written) in WRITTEN.iter().enumerate() {
            check(&value, "", "", &[*written])?;
            let outer = DRESSES.iter().skip((place + share) % 6).step_by(6);
            for outer in outer.filter(|outer| is_known(&value, written, outer)) {
                check(&value, "", "", &[*written, *outer])?;
            }
        }
    }
}

/// As `printf %q` and `set -x` write it.
#[test]
fn a_secret_is_known_whose_blanks_a_shell_keeps_together() {
    let redactor = super::Redactor::new([("K".to_owned(), "it's a horse & \"so\" on".to_owned())]);
    for dressed in ["it\\'s\\ a\\ horse\\ \\&\\ \\\"so\\\"\\ on", "$'it\\'s a horse & \"so\" on'"] {
        let clean = redactor.text(dressed).into_owned();
        assert!(clean.contains("[secret K]") && !clean.contains("horse"), "{clean}");
    }
}

/// Escapes and modes of a terminal, between any two letters.
#[test]
fn a_secret_is_known_between_whose_letters_a_terminal_changes_its_mode() {
    for secret in ["correct horse battery staple", "7Bcanary-7Qz/91", "cAnary=8>c(B"] {
        for told in ["\u{1b}(B\u{1b}[m", "\u{1b}=", "\u{1b}>", "\u{1b}7", "\u{1b})0", "\u{1b}(B"] {
            let text: Vec<String> = secret.chars().map(String::from).collect();
            let redactor = super::Redactor::new([("K".to_owned(), secret.to_owned())]);
            let clean = redactor.text(&text.join(told)).into_owned();
            assert_eq!(clean, "[secret K]", "{told:?}");
        }
    }
}
