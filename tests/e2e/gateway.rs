//! A session of a client at the gateway, looked at as a run is.

use serde_json::Value;

use super::env;

/// Asks through the gateway for one mail twice, and for another one.
pub(crate) const CLIENT: &str = r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&"${G[1]}"
mail() { ask '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"'"$2"'","body":"x"}}}'; }
mail 2 One
mail 3 One
mail 4 Two
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop
"#;

#[test]
fn a_session_shows_who_asked_what_went_out_and_what_was_handed_out_again() {
    let env = env();
    let said = env.run_by_bash(CLIENT).code(0).stdout;
    assert_eq!(said.matches("\"isError\":true").count(), 0, "{said}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 2);

    let shown = env.run(&["runs", "show", "last"]).code(0);
    shown.shows(&["Tool calls of probe to `mail`", "a new call", "the same result was handed out, nothing was sent"]);
    let text = env.run(&["runs", "show", "last"]).code(0).stdout;
    assert!(!text.contains("Resume with") && !text.contains("Workspace"), "{text}");

    let document = env.run(&["runs", "export", "last", "--json"]).code(0).json();
    let rules: Vec<&str> = document["arrivals"].as_array().unwrap().iter().filter_map(|a| a["rule"].as_str()).collect();
    assert_eq!(rules, ["new", "repeat", "new"]);
    assert_eq!(document["artifacts"], Value::Null, "the client's folder is not looked through");

    let page = env.path("page.html");
    env.run(&["runs", "export", "last", "--html", &page.display().to_string()]).code(0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the same result was handed out, nothing was sent"));
    // Without a place for it the page has none: the client's folder is not ours to write to.
    env.run(&["runs", "export", "last", "--html"]).refused(2, &["has no folder of its own"]);
}
