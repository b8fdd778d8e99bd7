//! How this program proves to a token endpoint that it is the client that it registered as (RFC 7591 §3.2.1).

use serde_json::json;

use super::*;

/// What a registration says holds, whatever the server offers besides: for the first exchange, and for each renewal of another process.
#[tokio::test]
async fn a_client_proves_who_it_is_as_its_registration_says() {
    for offered in
        [json!(null), json!(["none", "client_secret_basic", "client_secret_post"]), json!(["client_secret_post"])]
    {
        for (method, in_header, in_body) in
            [("none", false, false), ("client_secret_basic", true, false), ("client_secret_post", false, true)]
        {
            let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
            if !offered.is_null() {
                let name = "token_endpoint_auth_methods_supported".to_owned();
                site.state.metadata.lock().unwrap().insert(name, offered.clone());
            }
            let name = "token_endpoint_auth_method".to_owned();
            site.state.registers.lock().unwrap().insert(name, json!(method));
            site.let_tokens_last(20); // less than the margin
            site.log_in(&logins(&shelves), site.request()).await.unwrap();
            assert!(logins(&shelves).token(&site.url).await.unwrap().is_some());
            let exchanges = site.seen("/token");
            assert!(exchanges.len() > 1, "it was renewed");
            for seen in exchanges {
                assert_eq!(seen.headers.contains_key("authorization"), in_header, "{method} of {offered}");
                assert_eq!(seen.field("client_secret").is_some(), in_body, "{method} of {offered}");
                assert!(
                    in_header || seen.field("client_id").as_deref() == Some("client-of-ua"),
                    "{method} of {offered}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_client_whose_id_is_a_number_is_one() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.state.registers.lock().unwrap().insert("client_id".to_owned(), json!(17));
    let facts = site.log_in(&logins(&shelves), site.request()).await.unwrap();
    assert_eq!(facts.client_id, "17");
}
