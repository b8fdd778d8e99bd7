//! Logins at remote tool servers: OAuth 2.1, as the authorization part of MCP wants it.
//!
//! Where a person logs in is found out from the server itself (protected resource metadata, then the metadata of its authorization server);
//! the client library does that, PKCE, registration and the exchange, and refuses what would let another server have a code or a token.
//! What is ours is what stands around it: a login has an identity of its own ([`LoginFacts::identity`]), by which another account is told from a
//! renewed token, and requests of one session all go with one login; it belongs to the exact address it was made for, so a configuration that sends a name
//! elsewhere sends no token there; one process at a time renews it; whoever keeps secrets out of records learns a token before it is used. Where a server
//! has a client of its own for this program, no person logs in (`client`); all else is the same.
//!
//! Invariants: nothing that a server names is opened or sent to unless it is https, or on this machine; no token goes over plain HTTP to another machine; no request is posted again by anything here. A server that refuses a token
//! by a challenge has not begun with the request: the login is renewed, and whoever sent decides whether to send again. Proved by: `tests::logins`, and the
//! authorization scenarios of the conformance suite (`reference_servers` of the end-to-end tests).

mod assertion;
mod begin;
mod client;
mod kept;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use rmcp::transport::auth::AuthorizationMetadata;
use tokio::sync::Mutex;
use ua_core::{Busy, Env, Redactor, Timestamp, span_in_words};

pub use self::assertion::{ClientKey, KeySource};
pub use self::begin::{LoginRequest, OwnClient, PendingLogin};
use self::client::Client;
pub(crate) use self::client::SIGNED;
pub use self::client::{ClientCredentials, ClientProof, ClientSecret};
use self::kept::Kept;
pub use self::kept::LoginFacts;
use crate::http::is_this_machine;

/// How long is waited before each further try to renew a login whose server is not reached, or fails.
const OUTAGE: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
];

/// How long the client library waits for each answer of an authorization server, and how long what is asked here waits for one.
const ANSWER: Duration = Duration::from_secs(30);

/// What limits the wait for an authorization server, as people are told.
fn a_request() -> String {
    format!("at most {} for each of its answers", span_in_words(ANSWER))
}

/// How long before its end a token is renewed.
const MARGIN_MILLIS: i64 = 30_000;

/// Where logins are kept between processes. All of it may wait for files and programs; it is called on a thread that may.
pub trait Vault: Send + Sync {
    /// The login at an address, as it was saved.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    fn load(&self, address: &str) -> Result<Option<String>, String>;
    /// What may be shown of the login at an address, had without the login itself where that takes longer. It is asked on any thread.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    fn facts(&self, address: &str) -> Result<Option<LoginFacts>, String> {
        self.load(address)?.map(|login| Kept::parse(&login).map(|kept| kept.facts())).transpose()
    }
    /// Keeps the login at an address in the place of what is there. `facts` is what may be shown of it.
    ///
    /// # Errors
    /// Why it cannot be kept, in words.
    fn save(&self, address: &str, login: &str, facts: &LoginFacts) -> Result<(), String>;
    /// The same, of the server with this name, where it is known.
    ///
    /// # Errors
    /// Why it cannot be kept, in words.
    fn save_of(&self, _server: &str, address: &str, login: &str, facts: &LoginFacts) -> Result<(), String> {
        self.save(address, login, facts)
    }
    /// Keeps every other process from renewing the same login, until what is returned is dropped.
    ///
    /// # Errors
    /// Why that cannot be had, in words.
    fn lock(&self, address: &str) -> Result<Box<dyn Send>, String>;
    /// Hears of each secret, by a name that may be shown, before it is used.
    fn learn(&self, secrets: Vec<(String, String)>);
}

/// Why there is no token although there was a login, or why a person cannot log in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// Nobody is logged in any more.
    #[error("the login there has ended: {0}")]
    Ended(String),
    /// It may work another time.
    #[error("{0}")]
    Unreachable(String),
    /// This time nobody was let in: a person or the authorization server said no, or another one answered in its place.
    #[error("{0}")]
    Denied(String),
    /// What the servers say, or were asked, cannot work.
    #[error("{0}")]
    Refused(String),
    /// The login cannot be read or kept here.
    #[error("{0}")]
    Vault(String),
}

/// The logins of one user. Clones share them.
#[derive(Clone)]
pub struct Logins {
    vault: Arc<dyn Vault>,
    env: Env,
    /// What was looked up, by address; `None` where nobody is logged in.
    tokens: Arc<Mutex<BTreeMap<String, Option<Token>>>>,
    /// Which logins these are of, for whoever cannot wait for a renewal.
    identities: Arc<std::sync::Mutex<BTreeMap<String, Option<String>>>>,
    /// Why a login is not renewed yet, by address: it is said by whoever gives up waiting.
    renewing: Arc<std::sync::Mutex<BTreeMap<String, String>>>,
    /// The clients by which this program is let in without a person, by address.
    clients: Arc<std::sync::Mutex<BTreeMap<String, Arc<Client>>>>,
}

#[derive(Clone)]
struct Token {
    secret: String,
    /// When it ends, if that was said.
    until: Option<Timestamp>,
    /// The identity of its login.
    login: String,
}

/// What a request is let in with.
#[derive(Clone)]
pub(crate) struct Pass {
    /// The token.
    pub(crate) token: String,
    /// The identity of the login that it is of.
    pub(crate) login: String,
}

impl Token {
    fn is_good_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until.as_millis() - now.as_millis() > MARGIN_MILLIS)
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}

impl Logins {
    /// The logins in `vault`.
    pub fn new(vault: Arc<dyn Vault>, env: Env) -> Self {
        Self {
            vault,
            env,
            tokens: Arc::default(),
            identities: Arc::default(),
            renewing: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// Logins that are kept by this process alone, and forgotten with it; `redactor` learns their secrets.
    pub(crate) fn of_process(redactor: Redactor, env: Env) -> Self {
        Self::new(Arc::new(ProcessVault { redactor, kept: std::sync::Mutex::default() }), env)
    }

    /// From now on requests to an address are those of a client of the tool server there, which is let in without a person.
    pub fn add_client(&self, server: &str, address: &str, credentials: &ClientCredentials) {
        let (server, at) = (server.to_owned(), address.to_owned());
        let client = Client { server, address: at, credentials: credentials.clone() };
        self.vault.learn(client.secrets());
        self.clients().insert(address.to_owned(), Arc::new(client));
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, address: &str) -> Option<Arc<Client>> {
        self.clients().get(address).cloned()
    }

    /// The client by which this program is let in at an address, as people are told; `None` where a person logs in.
    pub(crate) fn client_words(&self, address: &str) -> Option<String> {
        let client = self.client(address)?;
        let id = ua_core::in_a_sentence(&client.credentials.id);
        Some(format!("the client `{id}` (`client_credentials` of `{}`)", client.server))
    }

    /// The identity of the login that the next request to an address goes with, as far as this process knows; `None` where nobody is logged in.
    /// Asks nobody but the files of this machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn identity(&self, address: &str) -> Result<Option<String>, LoginError> {
        if let Some(client) = self.client(address) {
            return Ok(Some(client.identity()));
        }
        if let Some(known) = self.identities().get(address) {
            return Ok(known.clone());
        }
        let facts = self.vault.facts(address).map_err(LoginError::Vault)?;
        Ok(facts.map(|facts| facts.identity()))
    }

    /// Whether this process has looked up a token for an address since, and it is of another login than `login`.
    pub(crate) fn uses_another(&self, address: &str, login: Option<&str>) -> bool {
        self.identities().get(address).is_some_and(|now| now.as_deref() != login)
    }

    fn identities(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewing(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the login at an address was not renewed, in words, where that was given up before it came to an end. Said once.
    pub(crate) fn given_up(&self, address: &str) -> Option<String> {
        self.renewing().remove(address)
    }

    /// From now on requests go with this.
    fn use_from_now(&self, tokens: &mut BTreeMap<String, Option<Token>>, address: &str, token: Option<Token>) {
        self.identities().insert(address.to_owned(), token.as_ref().map(|token| token.login.clone()));
        tokens.insert(address.to_owned(), token);
    }

    /// The token for requests to an address; `None` where nobody is logged in. One that is about to end is renewed first.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub async fn token(&self, address: &str) -> Result<Option<String>, LoginError> {
        Ok(self.pass(address).await?.map(|pass| pass.token))
    }

    /// The same, and which login it is of.
    ///
    /// # Errors
    /// Those of [`Logins::token`].
    pub(crate) async fn pass(&self, address: &str) -> Result<Option<Pass>, LoginError> {
        let mut tokens = self.tokens.lock().await;
        let client = self.client(address);
        let is_its = |token: &Token| client.as_ref().is_none_or(|client| client.identity() == token.login);
        let known = match tokens.get(address) {
            Some(known) => known.clone().filter(is_its),
            None => self.look_up(address, client.as_deref()).await?,
        };
        let token = match known {
            Some(token) if !token.is_good_at(self.env.now()) => Some(self.renew(address, &token.secret).await?),
            // Nobody has to log in for it.
            None if client.is_some() => Some(self.renew(address, "").await?),
            known => known,
        };
        self.use_from_now(&mut tokens, address, token.clone());
        Ok(token.map(|Token { secret, login, .. }| Pass { token: secret, login }))
    }

    /// After a server refused `refused` (`None`: it was sent nothing): whether there is another token now. It may have been renewed, or a
    /// person has logged in meanwhile.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub async fn another(&self, address: &str, refused: Option<&str>) -> Result<bool, LoginError> {
        let mut tokens = self.tokens.lock().await;
        let client = self.client(address);
        let kept = self.look_up(address, client.as_deref()).await?;
        let token = match (kept, refused) {
            (None, refused) if client.is_some() => Some(self.renew(address, refused.unwrap_or_default()).await?),
            (None, _) => None,
            (Some(token), Some(refused)) if token.secret == refused => Some(self.renew(address, refused).await?),
            (Some(token), _) if !token.is_good_at(self.env.now()) => Some(self.renew(address, &token.secret).await?),
            (token, _) => token,
        };
        let is_another = token.as_ref().is_some_and(|token| Some(token.secret.as_str()) != refused);
        self.use_from_now(&mut tokens, address, token);
        Ok(is_another)
    }

    /// What may be shown of the login at an address.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn facts(&self, address: &str) -> Result<Option<LoginFacts>, LoginError> {
        Ok(self.load(address).await?.map(|kept| kept.facts()))
    }

    /// Renews a login whose token is `ending`, unless another process just did.
    async fn renew(&self, address: &str, ending: &str) -> Result<Token, LoginError> {
        let host = host_of(address).unwrap_or_default();
        let waiting = Waiting { logins: self, address, busy: Busy::with("") };
        waiting.is_for(
            format!("waiting for another process that renews the login at {host}"),
            "another process renews it",
        );
        let place = self.client(address).map_or_else(|| address.to_owned(), |client| client.shelf());
        let (vault, of) = (Arc::clone(&self.vault), place);
        let renewed = async {
            let _alone = blocking(move || vault.lock(&of)).await?;
            self.renew_alone(address, ending, &waiting).await
        };
        let renewed = renewed.await;
        // Not where this is dropped before: whoever does that says what was waited for.
        self.renewing().remove(address);
        renewed
    }

    async fn renew_alone(&self, address: &str, ending: &str, waiting: &Waiting<'_>) -> Result<Token, LoginError> {
        if let Some(client) = self.client(address) {
            let kept = self.look_up(address, Some(&client)).await?;
            if let Some(token) = kept.filter(|kept| kept.secret != ending && kept.is_good_at(self.env.now())) {
                return Ok(token);
            }
            let client = &client;
            return self.tried(address, waiting, move || Box::pin(client.ask(self))).await;
        }
        let gone = || LoginError::Ended("you logged out".to_owned());
        let kept = self.load(address).await?.ok_or_else(gone)?;
        let token = kept.token().ok_or_else(gone)?;
        if token.secret != ending && token.is_good_at(self.env.now()) {
            return Ok(token);
        }
        if !kept.facts().renewable {
            return Err(LoginError::Ended("it was for a limited time and cannot be renewed".to_owned()));
        }
        let kept = &kept;
        self.tried(address, waiting, move || kept.renew(Arc::clone(&self.vault))).await?;
        tracing::info!("the login at a tool server was renewed");
        let renewed = self.load(address).await?.and_then(|kept| kept.token());
        renewed.ok_or_else(gone)
    }

    /// What comes of asking the authorization server of an address, which is asked again while it is away.
    async fn tried<T, F: Future<Output = Result<T, LoginError>>>(
        &self,
        address: &str,
        waiting: &Waiting<'_>,
        once: impl Fn() -> F,
    ) -> Result<T, LoginError> {
        let of = format!("the authorization server of {}", host_of(address).unwrap_or_default());
        let (mut attempt, tries) = (1, OUTAGE.len() + 1);
        let asking = |attempt: usize| {
            format!("waiting for {of} to renew the login, attempt {attempt} of {tries}, {}", a_request())
        };
        let unanswered =
            |attempt: usize| format!("its authorization server did not answer, attempt {attempt} of {tries}");
        waiting.is_for(asking(attempt), &unanswered(attempt));
        // A day has many renewals, and their server a bad minute now and then.
        let mut waits = OUTAGE.iter();
        loop {
            let error = match once().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Some(wait) = waits.next().filter(|_| matches!(error, LoginError::Unreachable(_))) else {
                return Err(error);
            };
            tracing::info!(%error, seconds = wait.as_secs(), "a login could not be renewed, trying again");
            attempt += 1;
            let again = format!("asked again in {}, attempt {attempt} of {tries}", span_in_words(*wait));
            let refused = format!("its authorization server did not do it ({error})");
            waiting.is_for(format!("{of} did not renew the login ({error}), {again}"), &refused);
            self.env.clock.sleep(*wait).await;
            waiting.is_for(asking(attempt), &unanswered(attempt));
        }
    }

    /// The token that is kept for an address, of its client where it has one.
    async fn look_up(&self, address: &str, client: Option<&Client>) -> Result<Option<Token>, LoginError> {
        let Some(client) = client else { return Ok(self.load(address).await?.and_then(|kept| kept.token())) };
        let (vault, shelf) = (Arc::clone(&self.vault), client.shelf());
        let text = blocking(move || vault.load(&shelf)).await?;
        let token = text.and_then(|text| client.read(&text));
        let learned = token.iter().map(|token| (format!("token of {address}"), token.secret.clone()));
        self.vault.learn(learned.collect());
        Ok(token)
    }

    async fn load(&self, address: &str) -> Result<Option<Kept>, LoginError> {
        let (vault, of) = (Arc::clone(&self.vault), address.to_owned());
        let Some(text) = blocking(move || vault.load(&of)).await? else { return Ok(None) };
        let kept = Kept::parse(&text).map_err(|why| {
            LoginError::Vault(format!("the login that is kept for {address} cannot be read: {why}; log in again"))
        })?;
        if kept.address() != address {
            return Err(LoginError::Vault(format!("the login that is kept for {address} belongs to another address")));
        }
        self.vault.learn(kept.secrets());
        Ok(Some(kept))
    }
}

/// The renewal of a login, for whoever shows what is waited for, and for whoever gives it up.
struct Waiting<'a> {
    logins: &'a Logins,
    address: &'a str,
    busy: Busy,
}

impl Waiting<'_> {
    /// It waits for `what` from now on; given up, it is not renewed for this reason.
    fn is_for(&self, what: String, why_not: &str) {
        self.busy.now(what);
        self.logins.renewing().insert(self.address.to_owned(), why_not.to_owned());
    }
}

/// Logins of one process.
struct ProcessVault {
    redactor: Redactor,
    kept: std::sync::Mutex<BTreeMap<String, String>>,
}

impl ProcessVault {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vault for ProcessVault {
    fn load(&self, address: &str) -> Result<Option<String>, String> {
        Ok(self.kept().get(address).cloned())
    }

    fn save(&self, address: &str, login: &str, _facts: &LoginFacts) -> Result<(), String> {
        self.kept().insert(address.to_owned(), login.to_owned());
        Ok(())
    }

    fn lock(&self, _address: &str) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(())) // no other process knows them
    }

    fn learn(&self, secrets: Vec<(String, String)>) {
        self.redactor.learn(secrets);
    }
}

/// Work that may wait for files and programs.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, LoginError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(LoginError::Vault),
        Err(error) => Err(LoginError::Vault(format!("the place where logins are kept failed: {error}"))),
    }
}

/// Refuses an address that a token would cross a network to in the open.
///
/// # Errors
/// Why, in words.
pub fn check_address(address: &str) -> Result<(), LoginError> {
    let url =
        reqwest::Url::parse(address).map_err(|error| LoginError::Refused(format!("it is not an address: {error}")))?;
    if url.scheme() == "https" || is_this_machine(&url) {
        return Ok(());
    }
    Err(LoginError::Refused("a login needs https: the token would cross the network unencrypted".to_owned()))
}

/// The host of an address as it will be asked for, with a port that is not the usual one.
pub fn host_of(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Refuses an address that a server names for a step of a login, `what`: a browser is opened there, or a code, a secret or a token is sent there.
/// It has to be https, or http to this very machine, with nothing in front of the host that could pass for one.
pub(crate) fn check_endpoint(what: &str, address: &str) -> Result<(), LoginError> {
    let url = reqwest::Url::parse(address)
        .map_err(|error| LoginError::Refused(format!("its authorization server names no usable {what}: {error}")))?;
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_this_machine(&url));
    let has_user = !url.username().is_empty() || url.password().is_some();
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    let why = match (is_safe, has_user, has_host) {
        (true, false, true) => return Ok(()),
        (false, _, _) => "must be https, or http on this machine",
        (true, true, _) => "has a user name in front of its host",
        (true, false, false) => "has no host",
    };
    // Of an address that is no ordinary one nothing is repeated but its kind.
    Err(LoginError::Refused(format!("the {what} that its authorization server names ({}:…) {why}", url.scheme())))
}

/// The same for all that the metadata of an authorization server names.
pub(crate) fn check_metadata(metadata: &AuthorizationMetadata) -> Result<(), LoginError> {
    check_endpoint("login page", &metadata.authorization_endpoint)?;
    check_endpoint("token endpoint", &metadata.token_endpoint)?;
    if let Some(issuer) = &metadata.issuer {
        check_endpoint("address of its own", issuer)?;
    }
    metadata.registration_endpoint.as_deref().map_or(Ok(()), |address| check_endpoint("registration endpoint", address))
}

/// A token as the header that it is sent in; `None` of one that no request can carry.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    // The library takes other characters, which servers read in different ways; a token has none (RFC 6750, section 2.1).
    let token = Some(token).filter(|token| !token.trim().is_empty() && token.is_ascii())?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// What an endpoint has to do with logins.
#[derive(Debug, Clone)]
pub(crate) struct Bearer {
    pub(crate) logins: Logins,
    pub(crate) address: String,
}

impl Bearer {
    /// For an address that a token may go to.
    pub(crate) fn of(logins: Option<&Logins>, address: &str) -> Option<Self> {
        let logins = logins.filter(|_| check_address(address).is_ok())?.clone();
        Some(Self { logins, address: address.to_owned() })
    }
}
