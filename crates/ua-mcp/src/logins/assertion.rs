//! How a client proves who it is with a private key: by an assertion that it signs (`private_key_jwt`: RFC 7523, 2.2), as MCP's extension for client
//! credentials has it.
//!
//! Invariants: the key leaves this process in nothing; an assertion is for one authorization server, has a number that nobody drew before, and ends
//! after [`LASTS`]; no error has a part of the key in it. Proved by: the tests below, and `tests::logins::signed`, whose server verifies what is signed.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::error::KeyRejected;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};
use ua_core::{PrintedCommand, ShowPath as _, Timestamp};
use ua_files::{Exposed, read_private_text, user_in_words};

/// How long an assertion is good: the clock of the other side may be a little off.
const LASTS: Duration = Duration::from_mins(5);
/// The longest text of a key, in bytes: one of RSA with 16384 bits has 13 thousand.
const MOST_OF_A_KEY: u64 = 64 * 1024;
/// A shorter line of a key is not looked for by itself: the last one may have a few letters.
const SHORTEST_LINE: usize = 32;

/// A private key of a client, and what is said with it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey {
    /// Where the key is.
    pub from: KeySource,
    /// Its name where the authorization server knows several of the client (`kid`).
    pub id: Option<String>,
    /// What the authorization server calls itself, for which each assertion is; by its description, or where tokens are asked for, when nothing is
    /// said.
    pub audience: Option<String>,
}

/// Where a private key is, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// This is it.
    Text(String),
    /// In the file with this whole path, which is this user's and closed to all others. It is read anew for each token.
    File(String),
}

impl KeySource {
    /// The key's text.
    ///
    /// # Errors
    /// Why the file cannot be used, and what to do.
    pub(super) fn read(&self) -> Result<String, String> {
        let path = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::File(path) => Path::new(path),
        };
        let shown = path.shown();
        if !path.is_absolute() {
            return Err(format!("`private_key_file` is {shown}; give the whole path of the file"));
        }
        read_private_text(path, MOST_OF_A_KEY).map_err(|exposed| match exposed {
            Exposed::Unread(error) => format!("its private key {shown} cannot be read ({error}); correct `private_key_file`"),
            Exposed::OfAnother(owner) => format!(
                "its private key {shown} belongs to another user ({}); name a file of the user that this program runs as, or, in a \
                 container, give the key in `private_key` as `${{NAME}}`, from the environment",
                user_in_words(owner)
            ),
            Exposed::OpenToOthers => format!(
                "others can read or change its private key {shown}; make it this user's alone ({})",
                PrintedCommand::of("chmod 600").word(path).in_code()
            ),
        })
    }
}

/// The texts by which a key is known: the whole of it, all of it on one line, and its lines.
pub(super) fn texts_of(pem: &str) -> Vec<String> {
    let lines = || pem.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let one_line: String = lines().collect();
    let long = lines().filter(|line| line.len() >= SHORTEST_LINE).map(str::to_owned);
    [pem.to_owned(), one_line].into_iter().chain(long).collect()
}

/// A private key that can sign.
pub(super) enum SigningKey {
    /// On the curve P-256.
    P256(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

impl SigningKey {
    /// Reads a key in PEM: PKCS #8, or what OpenSSL wrote before that (PKCS #1 of RSA, SEC 1 of a curve).
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub(super) fn of_pem(text: &str) -> Result<Self, String> {
        let (label, der) = first_key(text)?;
        let unreadable = |why: KeyRejected| format!("its private key cannot be used ({why}); {MAKE_ONE}");
        match label.as_str() {
            "PRIVATE KEY" => Self::of_pkcs8(&der),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der).map(Self::rsa).map_err(unreadable),
            "EC PRIVATE KEY" => p256(&pkcs8_of_p256(&der)).map_err(unreadable),
            "ENCRYPTED PRIVATE KEY" => Err(ENCRYPTED.to_owned()),
            _ => Err(format!("its private key is of a kind that is not known here; {MAKE_ONE}")),
        }
    }

    fn of_pkcs8(der: &[u8]) -> Result<Self, String> {
        let on_curve = match p256(der) {
            Ok(key) => return Ok(key),
            Err(why) => why,
        };
        let is_other = |why: KeyRejected| why.to_string() == "WrongAlgorithm";
        match RsaKeyPair::from_pkcs8(der) {
            Ok(key) => Ok(Self::rsa(key)),
            Err(why) if is_other(why) && is_other(on_curve) => {
                Err(format!("its private key is for another algorithm than ES256 and RS256; {MAKE_ONE}"))
            }
            Err(why) => {
                let why = if is_other(why) { on_curve } else { why };
                Err(format!("its private key cannot be used ({why}); {MAKE_ONE}"))
            }
        }
    }

    fn rsa(key: RsaKeyPair) -> Self {
        Self::Rsa(Box::new(key))
    }

    /// What it signs by, as assertions call it (RFC 7518, 3.1).
    pub(super) const fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// An assertion that this is `client`, for `audience` alone.
    ///
    /// # Errors
    /// No number can be drawn.
    pub(super) fn assertion(
        &self,
        client: &str,
        key: Option<&str>,
        audience: &str,
        now: Timestamp,
    ) -> Result<String, String> {
        let mut header = json!({"alg": self.algorithm(), "typ": "client-authentication+jwt"});
        if let Some(key) = key {
            header["kid"] = json!(key);
        }
        let issued = now.as_millis().div_euclid(1_000);
        let ends = issued.saturating_add_unsigned(LASTS.as_secs());
        let number = ua_files::unguessable().map_err(|error| format!("no number can be drawn ({error})"))?;
        let claims = json!({"iss": client, "sub": client, "aud": audience, "iat": issued, "exp": ends, "jti": number});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.sign(signed.as_bytes()).ok_or("its private key does not sign")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::P256(key) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

const MAKE_ONE: &str = "give one of RSA with 2048 bits or more, or on the curve P-256 (`openssl genpkey -algorithm EC -pkeyopt \
                        ec_paramgen_curve:P-256` makes one), in PEM and without a password";
const ENCRYPTED: &str = "its private key has a password, and nobody is there to give it; keep it without one (`openssl pkcs8 -topk8 -nocrypt`) where \
                         only this user can read it";

fn p256(der: &[u8]) -> Result<SigningKey, KeyRejected> {
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())?;
    Ok(SigningKey::P256(Box::new(key)))
}

/// The first private key in a text, and what its label says it is.
fn first_key(text: &str) -> Result<(String, Vec<u8>), String> {
    // In the environment, line breaks are often written so.
    let text = text.replace("\\n", "\n");
    let damaged = || format!("its private key is cut off or damaged; {MAKE_ONE}");
    let mut rest = text.as_str();
    // OpenSSL puts the name of the curve before a key.
    while let Some((_, begun)) = rest.split_once("-----BEGIN ") {
        let (label, begun) = begun.split_once("-----").ok_or_else(damaged)?;
        let (body, after) = begun.split_once("-----END ").ok_or_else(damaged)?;
        rest = after;
        if !label.ends_with("PRIVATE KEY") {
            continue;
        }
        if body.contains("Proc-Type:") {
            return Err(ENCRYPTED.to_owned());
        }
        let digits: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let der = STANDARD.decode(digits).map_err(|_| damaged())?;
        return Ok((label.to_owned(), der));
    }
    Err(format!("its private key is not in PEM: it has no line `-----BEGIN PRIVATE KEY-----`; {MAKE_ONE}"))
}

/// A key on the curve P-256 as PKCS #8 has it (RFC 5958), out of what it has of its own (RFC 5915).
fn pkcs8_of_p256(key: &[u8]) -> Vec<u8> {
    const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
    // id-ecPublicKey, and prime256v1.
    const ALGORITHM: [u8; 21] = [
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
        0x03, 0x01, 0x07,
    ];
    der(0x30, &[&VERSION[..], &ALGORITHM, &der(0x04, &[key])])
}

/// A value with its tag and its length.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|digit| *digit == 0).collect();
    let mut out = vec![tag];
    match digits[..] {
        [] => out.push(0),
        [short] if short < 0x80 => out.push(short),
        // At most eight, each of which has a place.
        _ => {
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(&digits);
        }
    }
    out.extend(content);
    out
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let digits = STANDARD.encode(der);
        let lines: Vec<&str> = (0..digits.len()).step_by(64).map(|at| &digits[at..digits.len().min(at + 64)]).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    fn on_curve() -> Vec<u8> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        made.as_ref().to_vec()
    }

    /// As PKCS #8, as OpenSSL wrote it before, behind the name of the curve, and as an environment variable has it.
    #[test]
    fn a_key_is_read_however_it_is_written() {
        let whole = on_curve();
        // What the key has of its own stands behind version and algorithm, 3 + 3 + 21 + 2 bytes.
        let own = &whole[29..];
        let written = pem("PRIVATE KEY", &whole);
        let behind = format!(
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{}",
            pem("EC PRIVATE KEY", own)
        );
        for text in
            [&written, &pem("EC PRIVATE KEY", own), &behind, &written.replace('\n', "\\n"), &written.replace('\n', " ")]
        {
            let key = SigningKey::of_pem(text).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(key.algorithm(), "ES256");
        }
    }

    #[test]
    fn what_is_no_key_is_said_with_what_to_do_and_without_a_part_of_it() {
        let whole = on_curve();
        let mut other_curve = whole.clone();
        // The last digit of the curve's name.
        other_curve[26] = 0x06;
        let cases = [
            ("correct horse".to_owned(), "is not in PEM"),
            (pem("PRIVATE KEY", &whole)[..80].to_owned(), "is cut off or damaged"),
            (pem("PRIVATE KEY", &whole).replace('M', "!"), "is cut off or damaged"),
            (pem("PRIVATE KEY", &whole[..40]), "cannot be used (InvalidEncoding)"),
            (pem("PRIVATE KEY", &other_curve), "is for another algorithm than ES256 and RS256"),
            (pem("RSA PRIVATE KEY", &whole), "cannot be used"),
            (pem("OPENSSH PRIVATE KEY", &whole), "is of a kind that is not known here"),
            (pem("ENCRYPTED PRIVATE KEY", &whole), "has a password"),
            (pem("EC PRIVATE KEY", &whole).replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1), "has a password"),
            (pem("PUBLIC KEY", &whole), "is not in PEM"),
        ];
        for (text, why) in cases {
            let Err(said) = SigningKey::of_pem(&text) else { panic!("{why}") };
            assert!(said.contains(why), "{said}");
            let body = STANDARD.encode(&whole);
            assert!(!said.contains(&body[40..60]) && !said.contains("horse"), "{said}");
        }
    }

    #[test]
    fn a_file_with_a_key_is_this_users_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let read = || KeySource::File(path.display().to_string()).read();
        assert!(read().unwrap_err().contains("cannot be read"));
        std::fs::write(&path, "a key").unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o644, false), (0o660, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match read() {
                Ok(text) => assert!(is_read && text == "a key", "{mode:o}"),
                Err(why) => assert!(!is_read && why.contains("`chmod 600 "), "{mode:o} {why}"),
            }
        }
        assert!(KeySource::File("key.pem".to_owned()).read().unwrap_err().contains("the whole path"));
    }

    #[test]
    fn a_key_is_known_by_each_of_its_lines() {
        let text = pem("PRIVATE KEY", &on_curve());
        let known = texts_of(&text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(known[0], text);
        assert_eq!(known[1], lines[1..lines.len() - 1].concat());
        assert!(lines[1..3].iter().all(|line| known.iter().any(|known| known == line)), "{}", known.len());
        assert!(!known.iter().any(|known| known.starts_with("-----END")));
    }
}
