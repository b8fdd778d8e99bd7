//! How a program is let in where no person is: with an id and a secret or a key of its own (OAuth 2, `client_credentials`: RFC 6749, 4.4).
//!
//! Its token endpoint is found as a person's login page is, or is named. A token is kept like a login, under a name of its own, so that a person's
//! login at the same address is another one, and asked for anew when it ends: there is nothing else to renew it with. One process at a time asks.
//!
//! Invariants: the secret goes to the token endpoint alone, which is https or on this machine, and is kept nowhere; where the tool server
//! names that endpoint, the one that gave a token stays the only one until a person says otherwise; of a key, only what it signs does
//! (`assertion`); whoever keeps secrets out of records learns each of them and each token before it is used. Proved by:
//! `tests::logins::client`, `tests::logins::signed`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{AuthorizationMetadata, AuthorizationMetadataSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{PrintedCommand, Timestamp, in_a_sentence};

use super::assertion::{ClientKey, KeySource, SigningKey, texts_of};
use super::begin::{MOST_OF_AN_ANSWER, check_is_public};
use super::kept::{LoginFacts, NOT_SENT, OFFERED_METHODS, manager, said};
use super::{LoginError, Logins, Token, bearer, blocking, check_endpoint, host_of};
use crate::http::{cause, client_for};

/// The name of the way in which a client proves with a key who it is, where methods are listed.
pub(crate) const SIGNED: &str = "private_key_jwt";
/// Where an authorization server lists by which algorithms assertions are signed (RFC 8414, 2).
const OFFERED_ALGORITHMS: &str = "token_endpoint_auth_signing_alg_values_supported";
/// What kind of assertion is sent (RFC 7523, 2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How a client sends its secret to a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProof {
    /// In a header (`client_secret_basic`).
    Basic,
    /// In the body (`client_secret_post`).
    Post,
}

impl ClientProof {
    const ALL: [Self; 2] = [Self::Basic, Self::Post];

    const fn name(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }
}

impl FromStr for ClientProof {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|proof| proof.name() == text);
        known.ok_or_else(|| {
            let [basic, post] = Self::ALL.map(Self::name);
            format!("`{}` is neither `{basic}` nor `{post}` nor `{SIGNED}`", in_a_sentence(text))
        })
    }
}

/// What a client proves with who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientSecret {
    /// A text that both sides know, and that is sent.
    Shared(String),
    /// A private key, with which it signs; the other side knows the public one.
    Key(ClientKey),
}

impl ClientSecret {
    /// What a configuration says of it: the secret, the key, or where the key is.
    pub fn written(&self) -> &String {
        match self {
            Self::Shared(text) | Self::Key(ClientKey { from: KeySource::Text(text) | KeySource::File(text), .. }) => {
                text
            }
        }
    }

    /// What of it may stand nowhere else, each with a name for it, as far as no file has to be read for that. `server` is whose client it is.
    pub(crate) fn known(&self, server: &str) -> Vec<(String, String)> {
        match self {
            Self::Shared(text) => vec![(format!("client secret of {server}"), text.clone())],
            Self::Key(ClientKey { from: KeySource::Text(pem), .. }) => of_key(server, pem),
            Self::Key(ClientKey { from: KeySource::File(_), .. }) => Vec::new(),
        }
    }
}

/// The texts of a private key, each with a name for it.
fn of_key(server: &str, pem: &str) -> Vec<(String, String)> {
    texts_of(pem).into_iter().map(|text| (format!("private key of {server}"), text)).collect()
}

/// A client that an authorization server lets in by itself, without a person.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// Its id there.
    pub id: String,
    /// What it proves with that it is the client of that id.
    pub secret: ClientSecret,
    /// Where it asks for tokens; found out from the tool server when nothing is said.
    pub token_url: Option<String>,
    /// What it asks to be allowed; what the tool server says it needs when nothing is said.
    pub scopes: Vec<String>,
    /// What the tokens are for (RFC 8707); the tool server's address when nothing is said.
    pub resource: Option<String>,
    /// How it sends a secret that both sides know; by what the authorization server takes when nothing is said. A key is never sent.
    pub proof: Option<ClientProof>,
    /// Whether the authorization server may be in a private network where the tool server is not.
    pub private_network: bool,
}

impl fmt::Debug for ClientCredentials {
    /// Without what it proves itself with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a client asks for a token, and with what.
struct Way {
    endpoint: String,
    proof: Proof,
    scopes: Vec<String>,
}

/// What is sent to show who asks.
enum Proof {
    Secret { text: String, sent: ClientProof },
    Assertion(String),
}

/// A token as it is kept, and what was asked for it: who asks for something else does not use it.
#[derive(Serialize, Deserialize)]
struct KeptToken {
    version: u32,
    asked: Asked,
    token: String,
    until: Option<Timestamp>,
    /// The token endpoint that gave it; nothing of a token that an earlier version kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
}

/// Of a token that is kept, who gave it. It is read alone: what else was asked for then, and in which form it was kept, does not matter to that.
#[derive(Deserialize)]
struct Giver {
    endpoint: Option<String>,
}

const VERSION: u32 = 1;

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    address: String,
    client: String,
    token_url: Option<String>,
    scopes: Vec<String>,
    resource: Option<String>,
}

/// What an answer with a token says.
struct Given {
    token: String,
    lasts: Option<u64>,
    scopes: Option<Vec<String>>,
}

/// A client of one tool server.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) server: String,
    pub(super) address: String,
    pub(super) credentials: ClientCredentials,
}

impl Client {
    /// Which login its tokens are: the same however often they are asked for.
    pub(super) fn identity(&self) -> String {
        let ClientCredentials { id, token_url, resource, .. } = &self.credentials;
        let of = token_url.as_ref().map(|url| format!(" of {url}"));
        let at = resource.as_ref().map(|resource| format!(" at {resource}"));
        format!("client {id}{}{}", of.unwrap_or_default(), at.unwrap_or_default())
    }

    /// Under what its token is kept.
    pub(super) fn shelf(&self) -> String {
        format!("{} as client {}", self.address, self.credentials.id)
    }

    /// What may not be kept elsewhere, by name.
    pub(super) fn secrets(&self) -> Vec<(String, String)> {
        let mut secrets = self.credentials.secret.known(&self.server);
        if let ClientSecret::Key(ClientKey { from: from @ KeySource::File(_), .. }) = &self.credentials.secret {
            // One that cannot be read is told by whoever signs with it.
            secrets.extend(from.read().into_iter().flat_map(|pem| of_key(&self.server, &pem)));
        }
        secrets
    }

    fn asked(&self) -> Asked {
        let ClientCredentials { id, token_url, scopes, resource, .. } = &self.credentials;
        Asked {
            address: self.address.clone(),
            client: id.clone(),
            token_url: token_url.clone(),
            scopes: scopes.clone(),
            resource: resource.clone(),
        }
    }

    /// The token in a text that was kept; `None` of one that was asked for in another way, or cannot be read: another one costs one request.
    pub(super) fn read(&self, text: &str) -> Option<Token> {
        let kept: KeptToken = serde_json::from_str(text).ok()?;
        let is_own = kept.version == VERSION && kept.asked == self.asked();
        is_own.then(|| Token { secret: kept.token, until: kept.until, login: self.identity() })
    }

    /// Asks for a token, and keeps it.
    pub(super) async fn ask(&self, logins: &Logins) -> Result<Token, LoginError> {
        let way = self.way(logins).await?;
        let of = format!("the authorization server of {}", host_of(&self.address).unwrap_or_default());
        let (status, body) = logins.in_time(&of, self.post(&way)).await?;
        if !status.is_success() {
            return Err(self.refused(status, &body, &way));
        }
        let given = self.given(&body)?;
        let named = (format!("token of {}", self.address), given.token.clone());
        logins.vault.learn(vec![named]);
        if bearer(&given.token).is_none() {
            return Err(self.fails(NOT_SENT));
        }
        // One that ends the moment it is given does not say when it ends.
        let lasts = given.lasts.filter(|lasts| *lasts > 0).and_then(|lasts| i64::try_from(lasts).ok());
        let now = logins.env.now().as_millis();
        let until = lasts.map(|lasts| Timestamp::from_millis(now.saturating_add(lasts.saturating_mul(1_000))));
        let (token, endpoint) = (given.token.clone(), Some(way.endpoint.clone()));
        let kept = KeptToken { version: VERSION, asked: self.asked(), token, until, endpoint };
        let text = serde_json::to_string(&kept).map_err(|error| LoginError::Vault(error.to_string()))?;
        let facts = LoginFacts {
            issuer: Url::parse(&way.endpoint).ok().map(|url| url.origin().ascii_serialization()),
            client_id: self.credentials.id.clone(),
            scopes: given.scopes.unwrap_or(way.scopes),
            until,
            renewable: true,
            login: Some(self.identity()),
        };
        let (vault, shelf, server) = (Arc::clone(&logins.vault), self.shelf(), self.server.clone());
        blocking(move || vault.save_of(&server, &shelf, &text, &facts)).await?;
        Ok(Token { secret: given.token, until, login: self.identity() })
    }

    /// Finds out where to ask, and with what.
    async fn way(&self, logins: &Logins) -> Result<Way, LoginError> {
        let ClientCredentials { token_url, scopes, private_network, .. } = &self.credentials;
        if let Some(endpoint) = token_url {
            let proof = self.proof(logins, endpoint, None).await?;
            return Ok(Way { endpoint: endpoint.clone(), proof, scopes: scopes.clone() });
        }
        let manager = manager(&self.address, *private_network).await?;
        let found = manager.resolve_metadata().await.map_err(|error| match said(&error) {
            error @ (LoginError::Unreachable(_) | LoginError::Vault(_)) => error,
            LoginError::Ended(why) | LoginError::Denied(why) | LoginError::Refused(why) => {
                self.fails(&format!("where to ask for one was not found ({why}); {NAME_IT}"))
            }
        })?;
        // Where nothing is described the library guesses; a secret is not sent to a guess.
        let is_guess = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
        if is_guess || found.metadata.token_endpoint.is_empty() {
            return Err(self.fails(&format!("the server names no token endpoint; {NAME_IT}")));
        }
        let endpoint = found.metadata.token_endpoint.clone();
        check_endpoint("token endpoint", &endpoint).map_err(|error| self.fails(&error.to_string()))?;
        self.check_is_same(logins, &endpoint).await?;
        if !private_network && let Err(error) = check_is_public("token endpoint", &endpoint, &self.address).await {
            return Err(match error {
                LoginError::Refused(why) => {
                    self.fails(&format!("{why}; where that is meant to be, say `private_network`"))
                }
                error @ (LoginError::Unreachable(_)
                | LoginError::Ended(_)
                | LoginError::Denied(_)
                | LoginError::Vault(_)) => error,
            });
        }
        let proof = self.proof(logins, &endpoint, Some(&found.metadata)).await?;
        let scopes = if scopes.is_empty() { manager.select_initial_scopes(&[]).await } else { scopes.clone() };
        Ok(Way { endpoint, proof, scopes })
    }

    /// Refuses a token endpoint that a tool server names in the place of the one that gave this client its last token. Whoever takes over a tool
    /// server would have the secret by naming an endpoint of theirs, and with it everything that the client may do elsewhere.
    async fn check_is_same(&self, logins: &Logins, endpoint: &str) -> Result<(), LoginError> {
        let (vault, shelf) = (Arc::clone(&logins.vault), self.shelf());
        let text = blocking(move || vault.load(&shelf)).await?;
        let before = text.and_then(|text| serde_json::from_str::<Giver>(&text).ok()?.endpoint);
        let Some(before) = before.filter(|before| Url::parse(before).ok() != Url::parse(endpoint).ok()) else {
            return Ok(());
        };
        let (before, now) = (in_a_sentence(&before), in_a_sentence(endpoint));
        let logout = PrintedCommand::of("ua logout").word(&self.server).in_code();
        Err(self.fails(&format!(
            "the server names another token endpoint now ({now}) than the one that gave its tokens until now ({before}), and nothing was sent there; if \
             its operator says that it moved, run {logout}, or name the endpoint with `token_url`"
        )))
    }

    /// What shows the authorization server with that token endpoint who asks. What it says of itself is in `described`, where it was asked.
    async fn proof(
        &self,
        logins: &Logins,
        endpoint: &str,
        described: Option<&AuthorizationMetadata>,
    ) -> Result<Proof, LoginError> {
        let key = match &self.credentials.secret {
            ClientSecret::Shared(text) => {
                let sent = match (self.credentials.proof, described) {
                    (Some(sent), _) => sent,
                    (None, Some(described)) => taken(described).map_err(|why| self.fails(&why))?,
                    (None, None) => ClientProof::Basic,
                };
                return Ok(Proof::Secret { text: text.clone(), sent });
            }
            ClientSecret::Key(key) => key,
        };
        let from = key.from.clone();
        let pem = blocking(move || Ok(from.read())).await?.map_err(|why| self.fails(&why))?;
        // A file may have another one since this began.
        logins.vault.learn(of_key(&self.server, &pem));
        let signing = SigningKey::of_pem(&pem).map_err(|why| self.fails(&why))?;
        if let Some(described) = described {
            takes_signed(described, signing.algorithm()).map_err(|why| self.fails(&why))?;
        }
        let issuer = described.and_then(|described| described.issuer.as_deref());
        let audience = key.audience.as_deref().or(issuer).unwrap_or(endpoint);
        let assertion = signing.assertion(&self.credentials.id, key.id.as_deref(), audience, logins.env.now());
        let assertion = assertion.map_err(|why| self.fails(&why))?;
        // Whoever has it is this client until it ends.
        logins.vault.learn(vec![(format!("assertion for {}", self.server), assertion.clone())]);
        Ok(Proof::Assertion(assertion))
    }

    async fn post(&self, way: &Way) -> Result<(StatusCode, Vec<u8>), LoginError> {
        let ClientCredentials { id, resource, .. } = &self.credentials;
        let unsent = |why: String| self.fails(&why);
        let url = Url::parse(&way.endpoint).map_err(|error| unsent(error.to_string()))?;
        let resource = resource.as_deref().unwrap_or(&self.address);
        let scopes = way.scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials"), ("resource", resource)];
        if !scopes.is_empty() {
            form.push(("scope", scopes.as_str()));
        }
        let in_header = match &way.proof {
            Proof::Secret { text, sent: ClientProof::Basic } => Some(text),
            Proof::Secret { text, sent: ClientProof::Post } => {
                form.extend([("client_id", id.as_str()), ("client_secret", text.as_str())]);
                None
            }
            Proof::Assertion(assertion) => {
                // Its id stands in the assertion, too; some look for it here alone (RFC 7521, 4.2).
                form.extend([("client_id", id.as_str()), ("client_assertion_type", ASSERTION_TYPE)]);
                form.push(("client_assertion", assertion.as_str()));
                None
            }
        };
        let http = client_for(&url, concat!("ua/", env!("CARGO_PKG_VERSION"))).map_err(unsent)?;
        let mut request = http.post(url).header(ACCEPT, "application/json");
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(encoded(&form));
        if let Some(secret) = in_header {
            // Both are written as in a form first (RFC 6749, 2.3.1).
            let part = |text: &str| encoded(&[("", text)]).trim_start_matches('=').to_owned();
            request = request.basic_auth(part(id), Some(part(secret)));
        }
        let unreachable = |error: &reqwest::Error| {
            LoginError::Unreachable(format!("its authorization server cannot be reached: {}", cause(error)))
        };
        let mut response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if body.len() + piece.len() > MOST_OF_AN_ANSWER {
                return Err(self.fails("the answer of its authorization server is too long"));
            }
            body.extend_from_slice(&piece);
        }
        Ok((status, body))
    }

    /// What an answer says that is a success.
    fn given(&self, body: &[u8]) -> Result<Given, LoginError> {
        let unreadable = |what: &str| self.fails(&format!("the answer of its authorization server {what}"));
        let answer: Value = serde_json::from_slice(body).map_err(|_| unreadable("is not JSON"))?;
        let text = |field: &str| answer[field].as_str();
        let token = text("access_token").ok_or_else(|| unreadable("has no `access_token`"))?;
        if let Some(other) = text("token_type").filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            let other = in_a_sentence(other);
            return Err(unreadable(&format!("has a token of type `{other}`, and only bearer's are known here")));
        }
        let scopes = text("scope").map(|scopes| scopes.split_whitespace().map(str::to_owned).collect());
        // Some write the number as a text.
        let lasts = answer["expires_in"].as_u64().or_else(|| text("expires_in")?.parse().ok());
        Ok(Given { token: token.to_owned(), lasts, scopes })
    }

    /// What an answer means that is no success, and what to change.
    fn refused(&self, status: StatusCode, body: &[u8], way: &Way) -> LoginError {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let code = said["error"].as_str().unwrap_or_default();
        let words = said["error_description"].as_str().map(|words| format!(": {}", in_a_sentence(words)));
        let told = if code.is_empty() {
            format!("HTTP status {status}")
        } else {
            format!("{}{}", in_a_sentence(code), words.unwrap_or_default())
        };
        let passes = ["temporarily_unavailable", "server_error", "slow_down"].contains(&code);
        if passes || status.is_server_error() || [408, 425, 429].contains(&status.as_u16()) {
            return LoginError::Unreachable(format!("its authorization server gives no token now ({told})"));
        }
        let scopes = in_a_sentence(&way.scopes.join(" "));
        let what = match (code, status.as_u16()) {
            ("invalid_client", _) | ("", 401) if matches!(way.proof, Proof::Assertion(_)) => format!(
                "its authorization server does not know the client, or does not take what it signed ({told}); correct `id` and the private key, or \
                 say with `key_id` which key it is and with `audience` (and `token_url`) what that server calls itself"
            ),
            ("invalid_client", _) | ("", 401) => format!(
                "its authorization server does not know the client, or its secret is wrong ({told}); correct `id` and `secret`, or say with \
                 `auth_method` how the secret is sent"
            ),
            ("unauthorized_client" | "unsupported_grant_type", _) => format!(
                "its authorization server does not let this client in without a person ({told}); have the grant `client_credentials` allowed for it \
                 there, or remove them here and have a person log in"
            ),
            ("invalid_scope" | "access_denied", _) if !scopes.is_empty() => format!(
                "its authorization server does not give it the scopes `{scopes}` ({told}); correct `scope`, or have them allowed for it there"
            ),
            ("invalid_scope" | "access_denied", _) => {
                format!("its authorization server gives it no scope ({told}); say with `scope` which it may have there")
            }
            ("invalid_target", _) => {
                let resource = self.credentials.resource.as_deref().unwrap_or(&self.address);
                let resource = in_a_sentence(resource);
                format!(
                    "its authorization server has no tokens for `{resource}` ({told}); say with `resource` what the tool server is called there"
                )
            }
            ("", 404 | 405 | 410) => {
                format!("there is no token endpoint at {} ({told}); {NAME_IT}", way.endpoint)
            }
            ("", 300..=399) => format!(
                "the token endpoint {} sends the request on to another address, which is not followed ({told}); {NAME_IT}",
                way.endpoint
            ),
            _ => format!("its authorization server refuses ({told})"),
        };
        self.fails(&what)
    }

    /// An end that stays until somebody changes something.
    fn fails(&self, why: &str) -> LoginError {
        let (id, server) = (in_a_sentence(&self.credentials.id), &self.server);
        LoginError::Refused(format!("the client `{id}` (`client_credentials` of `{server}`) gets no token: {why}"))
    }
}

/// What to do where the token endpoint is not known.
const NAME_IT: &str = "name the token endpoint with `token_url`";

/// How an authorization server takes clients that this program can do; with nothing said, in a header (RFC 8414, 2).
fn taken(metadata: &AuthorizationMetadata) -> Result<ClientProof, String> {
    let Some(offered) = listed(metadata, OFFERED_METHODS) else { return Ok(ClientProof::Basic) };
    let known = ClientProof::ALL.into_iter().find(|proof| offered.contains(&proof.name()));
    known.ok_or_else(|| {
        let shown = in_a_sentence(&offered.join(", "));
        let what_else = if offered.contains(&SIGNED) {
            "and not by a secret; give the client a `private_key_file` or a `private_key` instead of its `secret`"
        } else {
            "and this program knows `client_secret_basic`, `client_secret_post` and `private_key_jwt`; give the tool server a token in `headers`"
        };
        format!("its authorization server takes clients by `{shown}` alone, {what_else}")
    })
}

/// Whether an authorization server takes a client by what it signs with this algorithm; it does where it says nothing.
fn takes_signed(metadata: &AuthorizationMetadata, algorithm: &str) -> Result<(), String> {
    if let Some(offered) = listed(metadata, OFFERED_METHODS).filter(|offered| !offered.contains(&SIGNED)) {
        let offered = in_a_sentence(&offered.join(", "));
        return Err(format!(
            "its authorization server takes clients by `{offered}` alone, and not by what they sign (`{SIGNED}`); give it the client's `secret` instead \
             of the key"
        ));
    }
    if let Some(offered) = listed(metadata, OFFERED_ALGORITHMS).filter(|offered| !offered.contains(&algorithm)) {
        let offered = in_a_sentence(&offered.join(", "));
        return Err(format!(
            "its authorization server takes what is signed by `{offered}` alone, and this key signs by `{algorithm}`; give a key on the curve P-256 for \
             `ES256`, or of RSA for `RS256`"
        ));
    }
    Ok(())
}

/// What an authorization server lists under a name; `None` where it says nothing of that.
fn listed<'a>(metadata: &'a AuthorizationMetadata, field: &str) -> Option<Vec<&'a str>> {
    let listed = metadata.additional_fields.get(field)?.as_array()?;
    Some(listed.iter().filter_map(Value::as_str).collect())
}

/// Names and values as a form has them.
fn encoded(form: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", form);
    url.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
}
