//! A program that is let in by what it signs: the server verifies each assertion as its own would.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RsaKeyPair, UnparsedPublicKey,
};
use serde_json::json;

use super::client::{ID, client, with};
use super::*;
use crate::logins::{ClientCredentials, ClientKey, ClientProof, ClientSecret, KeySource};

/// The keys of the client that is known to the server, as PKCS #8 has them.
static ON_CURVE: LazyLock<Vec<u8>> = LazyLock::new(on_curve);
static RSA: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // Nothing here makes one; it lets nobody in anywhere.
    let digits: String = include_str!("rsa_2048.txt").split_whitespace().collect();
    STANDARD.decode(digits).unwrap()
});

/// What a server calls itself that names nothing in its description.
const NAMED: &str = "https://issuer.example";

fn on_curve() -> Vec<u8> {
    EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap().as_ref().to_vec()
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// Head and claims of the assertion in a request, and whether one of the client's keys signed it.
fn assertion(seen: &Seen) -> Option<(Value, Value, bool)> {
    let text = seen.field("client_assertion")?;
    let (signed, signature) = text.rsplit_once('.')?;
    let (head, claims) = signed.split_once('.')?;
    let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
    let (head, claims, signature) = (read(head)?, read(claims)?, URL_SAFE_NO_PAD.decode(signature).ok()?);
    let is_signed = match head["alg"].as_str()? {
        "ES256" => {
            let key =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &ON_CURVE, &SystemRandom::new()).ok()?;
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key().as_ref().to_vec());
            key.verify(signed.as_bytes(), &signature).is_ok()
        }
        "RS256" => {
            let key = RsaKeyPair::from_pkcs8(&RSA).ok()?;
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref().to_vec());
            key.verify(signed.as_bytes(), &signature).is_ok()
        }
        _ => false,
    };
    Some((head, claims, is_signed))
}

/// Whether a request comes from that client by what it signed for the server at `base`.
pub(super) fn is_from_key(seen: &Seen, base: &str) -> bool {
    let is_typed = seen.field("client_assertion_type").as_deref()
        == Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let Some((_, claims, is_signed)) = assertion(seen).filter(|_| is_typed) else { return false };
    let now = ua_core::system::env().now().as_millis() / 1_000;
    let is_now = claims["iat"].as_i64().is_some_and(|issued| (issued - now).abs() < 60)
        && claims["exp"].as_i64().is_some_and(|ends| ends > now && ends - now <= 300);
    let audience = claims["aud"].as_str().unwrap_or_default();
    let is_ours = [base, &format!("{base}/token"), NAMED].contains(&audience);
    is_signed && is_now && is_ours && claims["iss"] == ID && claims["sub"] == ID && claims["jti"].is_string()
}

fn signing(from: KeySource) -> ClientCredentials {
    let key = ClientKey { from, id: None, audience: None };
    ClientCredentials { secret: ClientSecret::Key(key), ..client() }
}

fn offers(site: &Site, methods: &Value, algorithms: &Value) {
    let said = [
        ("token_endpoint_auth_methods_supported".to_owned(), methods.clone()),
        ("token_endpoint_auth_signing_alg_values_supported".to_owned(), algorithms.clone()),
    ];
    site.state.metadata.lock().unwrap().extend(said);
}

#[tokio::test]
async fn a_client_signs_who_it_is_for_one_server_and_its_key_goes_nowhere() {
    // OpenSSL wrote keys of RSA so before: behind version and algorithm, 4 + 3 + 15 + 4 bytes.
    let before = pem("RSA PRIVATE KEY", &RSA[26..]);
    for (text, algorithm, id) in [
        (pem("PRIVATE KEY", &ON_CURVE), "ES256", None),
        (pem("PRIVATE KEY", &RSA), "RS256", Some("key-1")),
        (before, "RS256", None),
    ] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        offers(&site, &json!(["private_key_jwt"]), &json!(["ES256", "RS256"]));
        let key = ClientKey { from: KeySource::Text(text.clone()), id: id.map(str::to_owned), audience: None };
        let own = with(&shelves, &site, &ClientCredentials { secret: ClientSecret::Key(key), ..client() });
        let token = own.token(&site.url).await.unwrap();
        assert!(token.is_some(), "{algorithm}");
        assert!(own.another(&site.url, token.as_deref()).await.unwrap(), "it is asked for anew");
        let asked = site.seen("/token");
        assert_eq!(asked.len(), 2);
        let (head, claims, is_signed) = assertion(&asked[0]).unwrap();
        let mut expected = json!({"alg": algorithm, "typ": "client-authentication+jwt"});
        if let Some(id) = id {
            expected["kid"] = json!(id);
        }
        assert_eq!((head, is_signed), (expected, true));
        assert_eq!(claims["aud"].as_str(), site.url.strip_suffix("/mcp"), "what the server calls itself");
        assert_eq!(asked[0].field("grant_type").as_deref(), Some("client_credentials"));
        assert!(!asked[0].headers.contains_key("authorization") && asked[0].field("client_secret").is_none());
        let (_, other, _) = assertion(&asked[1]).unwrap();
        assert_ne!(other["jti"], claims["jti"], "none is used twice");
        // No part of the key is sent or kept, and whoever keeps secrets out of records knows it and what was signed.
        let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        let kept = format!("{:?}", shelves.kept.lock().unwrap());
        assert!(!asked.iter().any(|asked| asked.body.contains(&body[..40])) && !kept.contains(&body[..40]));
        let signed = asked[0].field("client_assertion").unwrap();
        for secret in [text.as_str(), &body, &signed] {
            assert!(shelves.learned.lock().unwrap().iter().any(|learned| learned == secret), "{algorithm}");
        }
    }
}

/// Where the token endpoint is named nothing says what the server calls itself, so it is called by where it is asked, or as it is said.
#[tokio::test]
async fn an_assertion_is_for_the_token_endpoint_that_is_named_or_for_whom_it_is_said() {
    for audience in [None, Some(NAMED)] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        let endpoint = site.url.replace("/mcp", "/token");
        let from = KeySource::Text(pem("PRIVATE KEY", &ON_CURVE));
        let key = ClientKey { from, id: None, audience: audience.map(str::to_owned) };
        let credentials = ClientCredentials {
            secret: ClientSecret::Key(key),
            token_url: Some(endpoint.clone()),
            // Said of a client with a secret alone: a key is never sent.
            proof: Some(ClientProof::Post),
            ..client()
        };
        assert!(with(&shelves, &site, &credentials).token(&site.url).await.unwrap().is_some());
        let (_, claims, _) = assertion(&site.seen("/token")[0]).unwrap();
        assert_eq!(claims["aud"], audience.unwrap_or(&endpoint));
    }
}

/// A key is read for each token, so the next one is used without a restart.
#[tokio::test]
async fn a_key_in_a_file_is_read_for_each_token() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    let write = |text: &str| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let first = pem("PRIVATE KEY", &on_curve());
    write(&first);
    let own = with(&shelves, &site, &signing(KeySource::File(path.display().to_string())));
    assert!(shelves.learned.lock().unwrap().contains(&first), "before anybody has asked");
    let refused = own.token(&site.url).await.unwrap_err().to_string();
    assert!(
        refused.contains("does not take what it signed (invalid_client); correct `id` and the private key"),
        "{refused}"
    );
    let second = pem("PRIVATE KEY", &ON_CURVE);
    write(&second);
    assert!(own.token(&site.url).await.unwrap().is_some());
    assert!(shelves.learned.lock().unwrap().contains(&second));
}

#[tokio::test]
async fn why_a_key_lets_nobody_in_is_said_with_what_to_change() {
    let text = || KeySource::Text(pem("PRIVATE KEY", &ON_CURVE));
    let file = |path: &str| KeySource::File(path.to_owned());
    let (all, both) = (json!(["private_key_jwt"]), json!(["ES256", "RS256"]));
    for (methods, algorithms, from, why) in [
        (json!(["client_secret_basic"]), both.clone(), text(), "and not by what they sign (`private_key_jwt`)"),
        (all.clone(), json!(["PS256"]), text(), "is signed by `PS256` alone, and this key signs by `ES256`"),
        (all.clone(), both.clone(), KeySource::Text("hush canary".to_owned()), "is not in PEM"),
        (all.clone(), both.clone(), file("/nowhere/key.pem"), "/nowhere/key.pem cannot be read"),
        (all.clone(), both.clone(), file("key.pem"), "give the whole path of the file"),
    ] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        offers(&site, &methods, &algorithms);
        let refused = with(&shelves, &site, &signing(from)).token(&site.url).await.unwrap_err();
        assert!(matches!(refused, LoginError::Refused(_)), "nobody waits for it: {refused:?}");
        let said = refused.to_string();
        assert!(said.starts_with("the client `machine/1` (`client_credentials` of `web`) gets no token: "), "{said}");
        assert!(said.contains(why) && !said.contains("canary"), "{said}");
        assert!(site.seen("/token").is_empty(), "{said}");
    }
}
