//! What is kept of a login, and how it is renewed.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use ua_core::Timestamp;

use super::{LoginError, Token, Vault, bearer, blocking, check_metadata};

/// In what an authorization server says of itself: how clients prove who they are.
pub(super) const OFFERED_METHODS: &str = "token_endpoint_auth_methods_supported";

/// What to do where the description of an authorization server is one of another address.
const NAMES_NONE: &str = "where the tool server itself does not name its authorization server (protected resource metadata, RFC 9728), as those of \
    revision 2025-03-26 do not, its operator has to add that; until then, get a token there and put it into the server's `headers`";

/// What may be shown of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginFacts {
    /// Where the person logged in.
    pub issuer: Option<String>,
    /// What this program was registered as there.
    pub client_id: String,
    /// What the login allows.
    pub scopes: Vec<String>,
    /// When the token that is in use now ends, if that was said.
    pub until: Option<Timestamp>,
    /// Whether it is renewed automatically.
    pub renewable: bool,
    /// What was drawn when the person logged in; nothing of a login that an earlier version kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
}

impl LoginFacts {
    /// Which login it is: the same over every renewal of its token, and another one each time that a person logs in, since nobody can tell as
    /// whom they did. One of an earlier version is known by what this program was registered as for it.
    pub fn identity(&self) -> String {
        let issuer = || self.issuer.as_deref().unwrap_or_default();
        self.login.clone().unwrap_or_else(|| format!("{} of {}", self.client_id, issuer()))
    }
}

/// A login as it is stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "version")]
enum Stored {
    #[serde(rename = "1")]
    V1(V1),
}

#[derive(Clone, Serialize, Deserialize)]
struct V1 {
    address: String,
    #[serde(flatten)]
    around: Around,
    credentials: StoredCredentials,
}

/// What a login was made with, and is renewed with.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Around {
    /// What was drawn when the person logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) login: Option<String>,
    /// The secret of the client that logged in, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    /// How this program proves to the token endpoint that it is that client, as its registration says (RFC 7591); nothing where nobody said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) auth_method: Option<String>,
    /// Where the person came back to.
    pub(super) redirect_uri: String,
    /// Whether the servers may be in a private network.
    #[serde(default)]
    pub(super) private_network: bool,
}

/// A login.
#[derive(Clone)]
pub(super) struct Kept(V1);

impl Kept {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Stored::V1(kept) = serde_json::from_str(text).map_err(|error| {
            // Without the text itself: it holds secrets.
            format!("line {}, column {}", error.line(), error.column())
        })?;
        Ok(Self(kept))
    }

    pub(super) fn address(&self) -> &str {
        &self.0.address
    }

    fn tokens(&self) -> Option<Tokens> {
        let tokens = self.0.credentials.token_response.as_ref()?;
        serde_json::to_value(tokens).and_then(serde_json::from_value).ok()
    }

    /// The token that is in use, and when it ends.
    pub(super) fn token(&self) -> Option<Token> {
        let tokens = self.tokens()?;
        Some(Token { secret: tokens.access_token, until: self.until(), login: self.facts().identity() })
    }

    fn until(&self) -> Option<Timestamp> {
        // Who says that a token ends the moment it is given does not say when it ends: it is used until it is refused, as one of which nothing
        // is said, and not renewed for each request.
        let lasts = self.0.credentials.token_received_at.zip(self.tokens()?.expires_in.filter(|lasts| *lasts > 0));
        let until = lasts.map(|(from, lasts)| from.saturating_add(lasts).saturating_mul(1_000));
        until.map(|until| Timestamp::from_millis(i64::try_from(until).unwrap_or(i64::MAX)))
    }

    fn refresh_token(&self) -> Option<String> {
        self.tokens()?.refresh_token
    }

    pub(super) fn facts(&self) -> LoginFacts {
        LoginFacts {
            issuer: self.0.credentials.issuer.clone(),
            client_id: self.0.credentials.client_id.clone(),
            scopes: self.0.credentials.granted_scopes.clone(),
            until: self.until(),
            renewable: self.refresh_token().is_some(),
            login: self.0.around.login.clone(),
        }
    }

    /// Everything in it that must not be kept elsewhere, by name.
    pub(super) fn secrets(&self) -> Vec<(String, String)> {
        let named = |what: &str, secret: &str| (format!("{what} of {}", self.0.address), secret.to_owned());
        let token = self.token().map(|token| named("token", &token.secret));
        let refresh = self.refresh_token().map(|token| named("refresh token", &token));
        let client = self.0.around.client_secret.as_deref().map(|secret| named("client secret", secret));
        token.into_iter().chain(refresh).chain(client).collect()
    }

    /// Renews it; what comes of it lies on the shelf then.
    pub(super) async fn renew(&self, vault: Arc<dyn Vault>) -> Result<(), LoginError> {
        let V1 { address, around, credentials } = &self.0;
        let shelf = Shelf { vault, address: address.clone(), around: around.clone() };
        let mut manager = manager(address, around.private_network).await?;
        manager.set_credential_store(shelf);
        // Looked up here, not by the library on its way: what it names is judged before the login is sent there.
        let found = manager.resolve_metadata().await.map_err(|error| said(&error))?;
        check_metadata(&found.metadata)?;
        manager.set_metadata(proving(found.metadata, around.auth_method.as_deref()));
        let is_there = manager.initialize_from_store().await.map_err(|error| said(&error))?;
        if !is_there {
            return Err(LoginError::Ended("the server uses another authorization server now".to_owned()));
        }
        if let Some(secret) = &around.client_secret {
            let config = OAuthClientConfig::new(&credentials.client_id, &around.redirect_uri);
            manager.configure_client(config.with_client_secret(secret)).map_err(|error| said(&error))?;
        }
        manager.refresh_token().await.map_err(|error| said(&error)).map(drop)
    }
}

/// What an authorization server says of itself, with the one way in it in which this client proves who it is: what its registration says holds for
/// it, whatever else the server offers. The client library reads it there, for the first exchange and for each renewal.
pub(super) fn proving(mut metadata: AuthorizationMetadata, method: Option<&str>) -> AuthorizationMetadata {
    if let Some(method) = method {
        metadata.additional_fields.insert(OFFERED_METHODS.to_owned(), json!([method]));
    }
    metadata
}

/// What came of an exchange, in the words of the protocol.
#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

/// One place of the vault, as the client library wants it.
pub(super) struct Shelf {
    pub(super) vault: Arc<dyn Vault>,
    pub(super) address: String,
    pub(super) around: Around,
}

#[async_trait]
impl CredentialStore for Shelf {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let (vault, address) = (Arc::clone(&self.vault), self.address.clone());
        let text = blocking(move || vault.load(&address)).await.map_err(|error| failed(&error))?;
        let kept = text.map(|text| Kept::parse(&text)).transpose();
        Ok(kept.map_err(AuthError::CredentialStoreError)?.map(|kept| kept.0.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let kept = Kept(V1 { address: self.address.clone(), around: self.around.clone(), credentials });
        self.vault.learn(kept.secrets());
        // Whoever is told that they are logged in has a token that can be sent, and a renewal takes no good one's place with one that cannot.
        if kept.token().is_some_and(|token| bearer(&token.secret).is_none()) {
            return Err(AuthError::InvalidTokenType(NOT_SENT.to_owned()));
        }
        let text = serde_json::to_string(&Stored::V1(kept.0.clone()));
        let text = text.map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
        let (vault, facts) = (Arc::clone(&self.vault), kept.facts());
        blocking(move || vault.save(&kept.0.address, &text, &facts)).await.map_err(|error| failed(&error))
    }

    /// What the library asks for when the server has another place for its logins now. The login stays where it is, and is refused.
    async fn clear(&self) -> Result<(), AuthError> {
        Ok(())
    }
}

fn failed(error: &LoginError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

/// A client for the logins of one server. What a server names as the place of its logins may be in this machine or in a private network
/// only where the server is there itself, or where a person says so.
pub(super) async fn manager(address: &str, private_network: bool) -> Result<AuthorizationManager, LoginError> {
    ua_http::prepare();
    let made = if private_network {
        AuthorizationManager::new_allowing_private_addresses(address).await
    } else {
        AuthorizationManager::new(address).await
    };
    made.map_err(|error| said(&error))
}

/// What is said of a token that cannot be used.
pub(super) const NOT_SENT: &str = "its authorization server gave a token that no request can carry: it is empty, or has characters that no HTTP header may have \
    (RFC 6750, 2.1), so its operator has to correct that";

/// What a token endpoint calls the error that it answered with, as the client library says it; `None` of anything else than such an answer.
fn code_in(why: &str) -> Option<&str> {
    why.strip_prefix("Server returned error response: ")?.split([':', ' ']).next()
}

/// Whether what a token endpoint says of a renewal is said of this client or this login, and so will be said again until a person logs in: only
/// what is wrong with the endpoint itself passes. The client library takes nothing but `invalid_grant` for that.
fn is_for_good(why: &str) -> bool {
    const CODES: [&str; 7] = [
        "access_denied",
        "invalid_client",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
    ];
    code_in(why).is_some_and(|code| CODES.contains(&code))
}

/// What it means that no token came of what a person brought back.
fn not_exchanged(why: &str, text: String) -> LoginError {
    match code_in(why) {
        // What was brought back is used up or too old, or somebody has taken it back.
        Some("invalid_grant" | "access_denied") => LoginError::Denied(text),
        Some(_) if is_for_good(why) => LoginError::Refused(text),
        // `temporarily_unavailable`, `server_error`, `slow_down`, and whatever else passes.
        Some(_) => LoginError::Unreachable(text),
        None if is_unreadable(why) => LoginError::Refused(format!(
            "the answer of its authorization server cannot be read ({why}): by OAuth (RFC 6749, 5.1) `access_token` and `token_type` are texts and \
             `expires_in` is a whole number of seconds, so its operator has to correct it"
        )),
        // A page of something in front of it, nothing at all, or no connection.
        None => LoginError::Unreachable(format!(
            "its authorization server gave no token, and no reason that can be read ({why})"
        )),
    }
}

/// Whether an answer with a token came and could not be read, as the client library says it.
fn is_unreadable(why: &str) -> bool {
    ["invalid type", "invalid value", "missing field"].iter().any(|start| why.starts_with(start))
}

/// The same of the answer that a browser came back with, which names who it is of (RFC 9207): the library has one word for that and for a
/// description of another address.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other word means here what it means elsewhere")]
pub(super) fn said_of_answer(error: &AuthError) -> LoginError {
    match error {
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => LoginError::Denied(format!(
            "the browser came back with the answer of another authorization server ({}) than the one where the login was begun ({}), as happens where \
             somebody steals logins, so nothing was sent anywhere",
            ua_core::in_a_sentence(received_issuer),
            ua_core::in_a_sentence(expected_issuer)
        )),
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => LoginError::Denied(format!(
            "the browser came back with an answer that does not say of which authorization server it is (`iss`), though {} says that its answers do",
            ua_core::in_a_sentence(expected_issuer)
        )),
        _ => said(error),
    }
}

/// What the client library says, as one of ours.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's errors grow; what is new is a refusal until somebody looks"
)]
pub(super) fn said(error: &AuthError) -> LoginError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    match error {
        AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) | AuthError::TokenExpired => {
            LoginError::Ended(text)
        }
        AuthError::TokenRefreshFailed(why) if is_for_good(why) => LoginError::Ended(text),
        AuthError::TokenExchangeFailed(why) => not_exchanged(why, text),
        AuthError::InvalidTokenType(why) if why == NOT_SENT => LoginError::Refused(why.clone()),
        AuthError::HttpError(_) | AuthError::DiscoveryRequestFailed { .. } | AuthError::TokenRefreshFailed(_) => {
            LoginError::Unreachable(text)
        }
        AuthError::AuthorizationServerMismatch { .. } => LoginError::Refused(format!("{text}; {NAMES_NONE}")),
        AuthError::CredentialStoreError(why) => LoginError::Vault(why.clone()),
        _ => LoginError::Refused(text),
    }
}
