//! A configuration of tool servers is read or refused by name, and no reference is filled twice.

use ua_mcp::{McpConfig, Reach, references};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match McpConfig::parse(text, "servers.json") {
        Ok(config) => config,
        Err(error) => {
            assert!(error.to_string().contains("servers.json"), "{error}");
            return;
        }
    };
    for (name, _) in &config.servers {
        assert!(!name.contains("__") && name != "ua" && !name.is_empty(), "{name}");
    }
    let expanded =
        config.expand(|_| Some("$\u{7b}SECOND}".to_owned())).unwrap_or_else(|e| panic!("every name is known: {e}"));
    for (_, reach) in expanded.servers {
        let texts: Vec<String> = match reach {
            Reach::Stdio { args, env, .. } => args.into_iter().chain(env.into_values()).collect(),
            Reach::Http { headers, client, .. } => {
                let of_client = |client: Box<ua_mcp::ClientCredentials>| [client.secret.written().clone(), client.id];
                headers.into_values().chain(client.into_iter().flat_map(of_client)).collect()
            }
        };
        for text in texts {
            assert!(references(&text).iter().all(|name| name == "SECOND"), "{text}");
        }
    }
}
