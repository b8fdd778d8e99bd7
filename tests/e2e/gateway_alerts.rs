//! A person is told elsewhere that the gateway waits for them, by the alerts that runs have; and no call cares how that went.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

/// A client without a dialogue, whose mails need a person's word.
const CLIENT: &str = r#"
greeted() {
  printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{'"$1"'},"clientInfo":{"name":"probe","version":"1"}}}'
  printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}'
}
mail() { printf '%s\n' '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"'"$2"'","body":"x"}}}'; }
hear() { read -r -t 25 reply <&"${G[0]}" && echo "$reply"; }
gone() { eval "exec ${G[1]}>&-"; wait "$G_PID"; }
told() { [ "$(cat told.jsonl 2>/dev/null | wc -l)" = "$1" ]; }
stop() { "$1" "$2" "$3" gateway stop; while "$1" "$2" "$3" gateway status | grep -q '^broker'; do sleep 0.02; done; }
"#;

/// A gateway with an alert of its own, at which mails need a person's word.
fn world(alert: &str, hold_wait: &str) -> TestEnv {
    let env = env().with_approver();
    let root = env.root();
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    std::fs::write(root.join("asked.toml"), policy).unwrap();
    let config =
        format!("hold_wait = \"{hold_wait}\"\npolicies = [\"asked.toml\"]\n\n[env]\nUA_ALERT_COMMAND = '{alert}'\n");
    std::fs::write(root.join("gateway.toml"), config).unwrap();
    env
}

/// An alert that is written into a file.
fn written(env: &TestEnv) -> String {
    json!(["/bin/sh", "-c", format!("cat >> {}", env.arg("work/told.jsonl"))]).to_string()
}

fn with_written(hold_wait: &str) -> TestEnv {
    let env = world("", hold_wait);
    let config = env.root().join("gateway.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("''", &format!("'{}'", written(&env)));
    std::fs::write(config, text).unwrap();
    env
}

fn told(env: &TestEnv) -> Vec<Value> {
    env.read("work/told.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn mails(env: &TestEnv) -> usize {
    std::fs::read_dir(env.path("work/outbox/new")).map_or(0, Iterator::count)
}

/// Each question is told of once, in the words of a run's, whichever broker has it.
#[test]
fn a_question_of_the_gateway_is_told_of_once_as_those_of_runs_are() {
    let env = with_written("0s");
    let script = format!(
        "{CLIENT}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
greeted >&"${G[1]}"
hear
mail 2 One >&"${G[1]}"
hear
until told 1; do sleep 0.02; done
"$1" "$2" "$3" gateway restart
mail 3 Two >&"${G[1]}"
hear
until told 2; do sleep 0.02; done
gone
stop "$1" "$2" "$3"
"#
    );
    let said = env.run_by_bash(&script).code(0).stdout;
    assert_eq!(said.matches("A person has to decide first").count(), 2, "{said}");
    let told = told(&env);
    let open = env.run(&["questions", "--json"]).code(0).json();
    let ids = |of: &[Value]| -> Vec<Value> { of.iter().map(|one| one["question_id"].clone()).collect() };
    assert_eq!(ids(&told), ids(open.as_array().unwrap()), "{told:?}");
    let id = told[0]["question_id"].as_str().unwrap();
    let answer = format!("ua answer {id} approve --root {}", env.root().display());
    let commands = told[0]["commands"].as_array().unwrap();
    assert!(commands.contains(&json!(answer)), "{commands:?}");
    assert_eq!((told[0]["event"].as_str(), told[0]["kind"].as_str()), (Some("waiting"), Some("approval")));
    assert!(told[0]["text"].as_str().unwrap().contains("send_email"), "{}", told[0]);
    assert!(told[0]["objective"].as_str().unwrap().starts_with("Tool calls of probe to `mail`"), "{}", told[0]);
    assert_eq!(mails(&env), 0);
}

/// Whoever sits in front of the client's dialogue is not told elsewhere what that shows; once it is left undecided there, they are.
#[test]
fn what_a_dialogue_shows_is_told_of_elsewhere_once_it_is_left() {
    let env = with_written("1h");
    let script = format!(
        "{CLIENT}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
greeted '"elicitation":{}' >&"${G[1]}"
hear
mail 2 Shown >&"${G[1]}"
until [[ "$reply" == *elicitation/create* ]]; do hear; done
[[ $reply =~ \"id\":\"([^\"]+)\" ]]
{ greeted; mail 2 Hidden; until told 1; do sleep 0.02; done; } |
  "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox >/dev/null
printf '%s\n' '{"jsonrpc":"2.0","id":"'"${BASH_REMATCH[1]}"'","result":{"action":"decline"}}' >&"${G[1]}"
hear
until told 2; do sleep 0.02; done
gone
stop "$1" "$2" "$3"
"#
    );
    let said = env.run_by_bash(&script).code(0).stdout;
    assert!(said.contains("A person has to decide first"), "{said}");
    let told = told(&env);
    let order: Vec<bool> = told.iter().map(|one| one["text"].as_str().unwrap().contains("Shown")).collect();
    assert_eq!(order, [false, true], "{told:?}");
}

/// An alert that fails, one that never ends, and one whose program is not there: the call is made when a person says so.
#[test]
fn a_broken_alert_costs_no_call() {
    let missing = "`no-such-program`";
    for (alert, in_log) in [
        ("/bin/false", "alert by command: /bin/false ended with"),
        ("/bin/sleep 600", ""),
        ("no-such-program", missing),
    ] {
        let env = world(alert, "1h");
        let script = format!(
            "{CLIENT}{}",
            r#"
"$1" "$2" "$3" gateway start
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
greeted >&"${G[1]}"
hear
mail 2 One >&"${G[1]}"
logged() { [ -z "$1" ] || grep -q "$1" "$2"; }
until logged 'IN_LOG' "$3/gateway.log" && "$1" "$2" "$3" questions --json | grep -q q_; do sleep 0.02; done
"$1" "$2" "$3" gateway status
"$1" "$2" "$3" answer "$("$1" "$2" "$3" questions --json | grep -oE 'q_[0-9a-f-]{20,}' | head -1)" approve
hear
gone
stop "$1" "$2" "$3"
"#
        );
        let said = env.run_by_bash(&script.replace("IN_LOG", in_log)).code(0);
        assert!(said.stdout.contains("\"isError\":false") && mails(&env) == 1, "{alert}: {}", said.stdout);
        let is_said = said.stdout.contains(missing) && said.stderr.contains(missing);
        assert_eq!(is_said, in_log == missing, "{alert}: {}{}", said.stdout, said.stderr);
        let doctor = env.run(&["doctor", "--json"]).json().to_string();
        assert_eq!(doctor.contains(missing), in_log == missing, "{alert}: {doctor}");
    }
}
