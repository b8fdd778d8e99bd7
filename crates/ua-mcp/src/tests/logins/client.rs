//! A client that is let in without a person: what is asked, what is kept, and what is said where there is no token.

use serde_json::json;

use super::*;
use crate::logins::{ClientCredentials, ClientProof, ClientSecret};

/// Id and secret with characters that a form writes in another way, and both as a header has them.
pub(super) const ID: &str = "machine/1";
const SECRET: &str = "cs canary/0123456";
const BASIC: &str = "Basic bWFjaGluZSUyRjE6Y3MrY2FuYXJ5JTJGMDEyMzQ1Ng==";

/// Whether a request comes from that client, however it proves it.
pub(super) fn is_from_client(seen: &Seen) -> bool {
    let in_body =
        || (seen.field("client_id").as_deref(), seen.field("client_secret").as_deref()) == (Some(ID), Some(SECRET));
    seen.headers.get("authorization").map_or_else(in_body, |basic| basic == BASIC)
}

pub(super) fn client() -> ClientCredentials {
    ClientCredentials {
        id: ID.to_owned(),
        secret: ClientSecret::Shared(SECRET.to_owned()),
        token_url: None,
        scopes: Vec::new(),
        resource: None,
        proof: None,
        private_network: false,
    }
}

/// The logins of a process that knows this client.
pub(super) fn with(shelves: &Arc<Shelves>, site: &Site, client: &ClientCredentials) -> Logins {
    let own = logins(shelves);
    own.add_client("web", &site.url, client);
    own
}

#[tokio::test]
async fn a_client_is_let_in_without_a_person() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = with(&shelves, &site, &client());
    assert_eq!(own.identity(&site.url).unwrap().as_deref(), Some("client machine/1"), "before anybody has asked");
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
    assert_eq!(site.calls()[0].token(), Some("at-canary-00000001"));
    let asked = site.seen("/token");
    assert_eq!(asked.len(), 1);
    for (field, value) in [("grant_type", "client_credentials"), ("resource", site.url.as_str()), ("scope", "tools")] {
        assert_eq!(asked[0].field(field).as_deref(), Some(value), "{field}");
    }
    assert_eq!((asked[0].headers["authorization"].as_str(), asked[0].field("client_secret")), (BASIC, None));
    assert!(site.seen("/register").is_empty() && site.seen("/authorize").is_empty());
    // What is kept has the token, and never the secret; both are known to whoever keeps them out of records.
    let kept = format!("{:?}", shelves.kept.lock().unwrap());
    assert!(kept.contains("at-canary-00000001") && !kept.contains("cs canary"), "{kept}");
    for secret in ["at-canary-00000001", SECRET] {
        assert!(shelves.learned.lock().unwrap().iter().any(|learned| learned == secret), "{secret}");
    }
    assert!(!format!("{own:?} {:?}", client()).contains("canary"));
    // Another process finds it; whoever has not this client is not logged in by it, and whoever asks for something else asks anew.
    assert_eq!(with(&shelves, &site, &client()).token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000001"));
    assert_eq!(logins(&shelves).token(&site.url).await.unwrap(), None);
    let other = ClientCredentials { scopes: vec!["mail".to_owned(), "tools".to_owned()], ..client() };
    assert_eq!(with(&shelves, &site, &other).token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000002"));
    assert_eq!(site.seen("/token")[1].field("scope").as_deref(), Some("mail tools"));
}

#[tokio::test]
async fn a_person_at_the_same_address_keeps_a_login_of_their_own() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    let own = with(&shelves, &site, &client());
    let token = own.token(&site.url).await.unwrap();
    assert_eq!(own.identity(&site.url).unwrap().as_deref(), Some("client machine/1"));
    assert_ne!(logins(&shelves).token(&site.url).await.unwrap(), token);
}

#[tokio::test]
async fn one_process_asks_for_a_token_and_again_when_it_ends_or_is_refused() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let processes: Vec<Logins> = (0..5).map(|_| with(&shelves, &site, &client())).collect();
    let tokens = futures_util::future::join_all(processes.iter().map(|one| one.token(&site.url))).await;
    let tokens: BTreeSet<Option<String>> = tokens.into_iter().map(Result::unwrap).collect();
    assert_eq!((tokens.len(), site.seen("/token").len()), (1, 1), "{tokens:?}");
    let world = world(&site, &processes[0]);
    let (_, connection) = world.ready().await;
    site.revoke(true);
    let refused = call(&connection, "send", json!({})).await;
    assert!(matches!(&refused, Outcome::NotSent { why } if why.contains("was renewed")), "{refused:?}");
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent", "in the same session: it is the same client");
    assert_eq!((site.calls().len(), site.seen("/token").len()), (2, 2));
    // One that is about to end is asked for anew before it is sent.
    let ending = Arc::new(Shelves::default());
    site.let_tokens_last(20);
    with(&ending, &site, &client()).token(&site.url).await.unwrap();
    site.let_tokens_last(3_600);
    let later = with(&ending, &site, &client());
    assert_eq!(later.token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000004"));
    assert_eq!(later.token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000004"));
    assert_eq!(site.seen("/token").len(), 4);
}

#[tokio::test]
async fn a_client_proves_who_it_is_as_the_server_takes_it_or_as_it_is_told() {
    let offered = |methods: Value| ("token_endpoint_auth_methods_supported".to_owned(), methods);
    for (methods, proof, in_body) in [
        (json!(["private_key_jwt", "client_secret_post"]), None, true),
        (json!(["client_secret_post", "client_secret_basic"]), None, false),
        (json!(["client_secret_basic"]), Some(ClientProof::Post), true),
        (json!(["private_key_jwt"]), Some(ClientProof::Basic), false),
    ] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        site.state.metadata.lock().unwrap().extend([offered(methods.clone())]);
        let own = with(&shelves, &site, &ClientCredentials { proof, ..client() });
        assert!(own.token(&site.url).await.unwrap().is_some(), "{methods}");
        let asked = &site.seen("/token")[0];
        assert_eq!(asked.field("client_secret").is_some(), in_body, "{methods}");
        assert_eq!(asked.headers.contains_key("authorization"), !in_body, "{methods}");
    }
}

/// Where the token endpoint is named nothing is looked for.
#[tokio::test]
async fn a_token_endpoint_that_is_named_is_asked_at_once() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let token_url = Some(site.url.replace("/mcp", "/token"));
    let own = with(&shelves, &site, &ClientCredentials { token_url, ..client() });
    assert!(own.token(&site.url).await.unwrap().is_some());
    assert_eq!(site.state.seen.lock().unwrap().len(), 1);
    assert_eq!(site.seen("/token")[0].field("scope"), None);
}

/// A tool server that somebody took over names an endpoint of theirs: a secret would be theirs with the next token.
#[tokio::test]
async fn a_secret_goes_to_no_other_token_endpoint_because_the_tool_server_names_it() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = with(&shelves, &site, &client());
    let token = own.token(&site.url).await.unwrap();
    let names = |path: &str| {
        let endpoint = site.url.replace("/mcp", path);
        site.state.metadata.lock().unwrap().insert("token_endpoint".to_owned(), json!(endpoint));
    };
    names("/elsewhere");
    // Whoever asks next, in another process and for something else, too.
    let scopes = ClientCredentials { scopes: vec!["mail".to_owned()], ..client() };
    for refused in [
        own.another(&site.url, token.as_deref()).await.map(drop),
        with(&shelves, &site, &scopes).token(&site.url).await.map(drop),
    ] {
        let Err(LoginError::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("/elsewhere) than the one that gave its tokens until now (http://127.0.0.1:"), "{why}");
        assert!(why.contains("nothing was sent there; if its operator") && why.contains("`ua logout web`"), "{why}");
    }
    assert_eq!((site.seen("/elsewhere").len(), site.seen("/token").len()), (0, 1));
    // A person may name it, and what is named holds from then on.
    let named = ClientCredentials { token_url: Some(site.url.replace("/mcp", "/elsewhere")), ..client() };
    with(&shelves, &site, &named).token(&site.url).await.unwrap_err();
    assert_eq!(site.seen("/elsewhere").len(), 1);
    names("/token");
    assert!(own.another(&site.url, token.as_deref()).await.unwrap(), "the first one gives tokens again");
    // Or forget the client's token: it is a new client then.
    names("/elsewhere");
    shelves.kept.lock().unwrap().clear();
    with(&shelves, &site, &client()).token(&site.url).await.unwrap_err();
    assert_eq!(site.seen("/elsewhere").len(), 2);
}

/// What an earlier version kept says nothing of who gave it: the next one that does is kept with it.
#[tokio::test]
async fn a_token_of_an_earlier_version_is_bound_to_who_gives_the_next_one() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = with(&shelves, &site, &client());
    let token = own.token(&site.url).await.unwrap();
    for kept in shelves.kept.lock().unwrap().values_mut() {
        let mut before: Value = serde_json::from_str(kept).unwrap();
        assert!(before.as_object_mut().unwrap().remove("endpoint").is_some());
        *kept = before.to_string();
    }
    assert_eq!(with(&shelves, &site, &client()).token(&site.url).await.unwrap(), token);
    assert!(own.another(&site.url, token.as_deref()).await.unwrap());
    assert!(shelves.kept.lock().unwrap().values().all(|kept| kept.contains("/token")));
}

#[tokio::test]
async fn a_secret_goes_to_no_token_endpoint_that_is_not_safe() {
    for (endpoint, why) in [
        ("http://login.example/token", "(http:…) must be https, or http on this machine"),
        ("ftp://127.0.0.1/token", "(ftp:…) must be https, or http on this machine"),
        ("https://crm.example@login.example/token", "has a user name in front of its host"),
        ("nowhere", "names no usable token endpoint"),
    ] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        site.state.metadata.lock().unwrap().insert("token_endpoint".to_owned(), json!(endpoint));
        let refused = with(&shelves, &site, &client()).token(&site.url).await.unwrap_err();
        assert!(matches!(refused, LoginError::Refused(_)), "nobody waits for it: {refused:?}");
        assert!(refused.to_string().contains(why), "{endpoint}: {refused}");
        assert!(site.seen("/token").is_empty() && shelves.kept.lock().unwrap().is_empty(), "{endpoint}");
    }
}

#[tokio::test]
async fn each_reason_for_no_token_names_the_server_and_what_to_change() {
    let refusal = async |error: Option<&'static str>, metadata: &[(&str, Value)], client: ClientCredentials| {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        *site.state.exchange.lock().unwrap() = error;
        let said = metadata.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        site.state.metadata.lock().unwrap().extend(said);
        let client =
            ClientCredentials { token_url: client.token_url.map(|_| site.url.replace("/mcp", "/nowhere")), ..client };
        let refused = with(&shelves, &site, &client).token(&site.url).await.unwrap_err();
        assert!(matches!(refused, LoginError::Refused(_)), "nobody waits for it: {refused:?}");
        let said = refused.to_string();
        assert!(said.starts_with("the client `machine/1` (`client_credentials` of `web`) gets no token: "), "{said}");
        assert!(!said.contains("canary"), "{said}");
        assert!(shelves.kept.lock().unwrap().is_empty());
        said
    };
    let wrong = ClientCredentials { secret: ClientSecret::Shared("another canary".to_owned()), ..client() };
    assert!(refusal(None, &[], wrong).await.contains("(invalid_client); correct `id` and `secret`"));
    for (error, scopes, advice) in [
        ("invalid_client", "", "correct `id` and `secret`"),
        ("unauthorized_client", "", "have the grant `client_credentials` allowed for it"),
        ("unsupported_grant_type", "", "or remove them here and have a person log in"),
        ("invalid_scope", "mail:all", "the scopes `mail:all` (invalid_scope); correct `scope`"),
        ("invalid_target", "", "say with `resource` what the tool server is called there"),
        ("what_is_this", "", "its authorization server refuses (what_is_this)"),
    ] {
        let scopes = scopes.split_whitespace().map(str::to_owned).collect();
        let said = refusal(Some(error), &[], ClientCredentials { scopes, ..client() }).await;
        assert!(said.contains(advice), "{said}");
    }
    let nowhere = ClientCredentials { token_url: Some(String::new()), ..client() };
    let said = refusal(None, &[], nowhere).await;
    assert!(said.contains("there is no token endpoint at http://127.0.0.1:") && said.contains("`token_url`"), "{said}");
    let said = refusal(None, &[("token_endpoint", json!(""))], client()).await;
    assert!(said.contains("name the token endpoint with `token_url`"), "{said}");
    let methods = [("token_endpoint_auth_methods_supported", json!(["private_key_jwt"]))];
    let said = refusal(None, &methods, client()).await;
    assert!(said.contains("takes clients by `private_key_jwt` alone") && said.contains("`private_key_file`"), "{said}");
    let methods = [("token_endpoint_auth_methods_supported", json!(["tls_client_auth"]))];
    let said = refusal(None, &methods, client()).await;
    assert!(said.contains("takes clients by `tls_client_auth` alone") && said.contains("in `headers`"), "{said}");
}

/// A run that starts the server, and one in the middle of its calls, are told the same.
#[tokio::test]
async fn who_starts_or_calls_the_server_reads_what_to_change() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = with(&shelves, &site, &client());
    let world = world(&site, &own);
    *site.state.exchange.lock().unwrap() = Some("invalid_client");
    let why = world.refusal().await;
    assert!(why.contains("`web`") && why.contains("correct `id` and `secret`") && !why.contains("log in"), "{why}");
    *site.state.exchange.lock().unwrap() = None;
    let (_, connection) = world.ready().await;
    let forbidden = call(&connection, "forbidden", json!({})).await;
    let Outcome::Raw(RawReply::HttpStatus { status: 403, body, .. }) = forbidden else { panic!("{forbidden:?}") };
    assert!(body.contains("add \"mail:send\" to its `scope`"), "{body}");
    site.revoke(true);
    *site.state.exchange.lock().unwrap() = Some("invalid_client");
    let ended = call(&connection, "send", json!({})).await;
    let Outcome::Raw(RawReply::HttpStatus { status: 401, body, .. }) = ended else { panic!("{ended:?}") };
    assert!(body.contains("correct `id` and `secret`") && !body.contains("ua login"), "{body}");
}

/// A program that embeds this has no logins of a user: its tokens end with it.
#[tokio::test]
async fn without_logins_of_a_user_the_tokens_are_the_processs() {
    let site = Site::start().await;
    let redactor = ua_core::Redactor::default();
    let own = Logins::of_process(redactor.clone(), ua_core::system::env());
    own.add_client("web", &site.url, &client());
    let token = own.token(&site.url).await.unwrap().unwrap();
    assert!(own.another(&site.url, Some(&token)).await.unwrap(), "one that is refused is asked for anew");
    assert_eq!(site.seen("/token").len(), 2);
    assert!(!redactor.text(&format!("{token} {SECRET}")).contains("canary"));
}
