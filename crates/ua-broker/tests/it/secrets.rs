//! What an entry keeps secret: sent as it is given, told as it is said, and stored nowhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ua_store::Choice;

use crate::world::{Client, GatewayWorld, text, told};

const SECRET: &str = "hush-4711-0815-hush";

fn client(world: &GatewayWorld, name: &str, secret: &str) -> Client {
    Client::start_as(world, "project", &[("STUB_SECRET", secret)], name, &[]).greet()
}

/// No file of the gateway has the secret. What the tool server writes for these tests is its own.
fn is_stored_nowhere(world: &GatewayWorld) {
    fn look(folder: &Path, looked_at: &mut usize) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                if !path.ends_with("stub") {
                    look(&path, looked_at);
                }
                continue;
            }
            // Nobody writes into the pipe by which it is told that a tool server lives.
            let Some(bytes) = path.is_file().then(|| fs::read(&path).ok()).flatten() else { continue };
            let is_there = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!is_there, "{}", path.display());
            *looked_at += 1;
        }
    }
    let mut looked_at = 0;
    look(world.folder.path(), &mut looked_at);
    assert!(looked_at > 3);
}

/// G17: what an entry gives its tool server is kept out of all that is stored, wherever it stands: in what the client says, in whatever the tool
/// server answers, and in what that writes to its log. Both of them have it in the other's own words.
#[test]
fn what_an_entry_keeps_secret_is_stored_nowhere() {
    for how in ["me", "error", "rpc", "die"] {
        let world = GatewayWorld::new();
        let mut client = client(&world, "stub", SECRET);
        let arguments = json!({"to": how, "pw": SECRET, "in": [{"deep": format!("user:{SECRET}@host")}], SECRET: 1});
        let id = client.call("tell_secret", &arguments);
        let answer = client.answer(id);
        let said = format!("it is {SECRET}");
        match how {
            "rpc" => assert_eq!(answer["error"]["message"], "it is [secret STUB_SECRET]"),
            "die" => assert_eq!(self::told(&answer["result"]), "unknown", "{answer}"),
            _ => assert_eq!(text(&answer["result"]), said),
        }
        let sent: Vec<Value> = world.lines("told").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(sent, [arguments], "{how}");
        // Arguments that the tool does not take are quoted to whoever gave them.
        let refused = client.result("send_email", &json!({"to": [SECRET]}));
        assert!(text(&refused).contains("do not fit"), "{refused}");
        // So is the name of a tool that is not there.
        let id = client.call(&format!("tell_{SECRET}"), &json!({}));
        let unknown = client.answer(id);
        assert!(unknown["error"].is_object() || unknown["result"]["isError"] == true, "{unknown}");
        client.done();
        world.check();
        is_stored_nowhere(&world);
    }
}

/// What a person has sent once more is answered in the tool's own words as well.
#[test]
fn what_is_sent_once_more_is_told_as_it_is_said() {
    let world = GatewayWorld::new();
    let mut client = client(&world, "stub", SECRET);
    fs::write(world.path("stub/raw"), "{'jsonrpc': '2.0', 'id': ID, 'result': {}}").unwrap();
    let arguments = json!({"to": "me"});
    assert_eq!(told(&client.result("tell_secret", &arguments)), "unknown");
    fs::remove_file(world.path("stub/raw")).unwrap();
    world.answer(&world.questions()[0], Choice::Execute);
    assert_eq!(text(&client.result("tell_secret", &arguments)), format!("it is {SECRET}"));
    assert_eq!(world.lines("told").len(), 2);
    client.done();
    world.check();
    is_stored_nowhere(&world);
}

/// A call is known by what was given, although that is not stored: by an equal one, from another client and behind a restart, and whatever
/// else is known to be secret by then. One that differs in the secret alone is another one.
#[test]
fn a_call_with_a_secret_is_the_same_call_again() {
    let with = |secret: &str| json!({"text": format!("login with {secret} now")});
    for is_restarted in [false, true] {
        for is_secret_of_another_entry in [false, true] {
            let what = format!("restarted {is_restarted}, of another entry {is_secret_of_another_entry}");
            let world = GatewayWorld::new();
            let own = if is_secret_of_another_entry { "something-else" } else { SECRET };
            let other = is_secret_of_another_entry.then(|| client(&world, "other", SECRET));
            let mut first = client(&world, "stub", own);
            world.behave("die");
            assert_eq!(told(&first.result("append_line", &with(SECRET))), "unknown", "{what}");
            first.killed();
            is_stored_nowhere(&world);
            drop(other);
            if is_restarted {
                world.kill_broker();
            }
            let mut second = client(&world, "stub", own);
            assert_eq!(told(&second.result("append_line", &with(SECRET))), "unknown", "{what}");
            assert_eq!(world.effects().len(), 1, "{what}");
            let another = second.result("append_line", &with("hush-0000-0000-hush"));
            assert!(text(&another).starts_with("done, 2 so far"), "{what}: {another}");
            // A person has it sent once more: the arguments are those of whoever waits for it.
            let question = world.questions().pop().unwrap();
            world.answer(&question, Choice::Execute);
            let sent = second.result("append_line", &with(SECRET));
            assert!(text(&sent).starts_with("done, 3 so far"), "{what}: {sent}");
            let effects = world.effects();
            let words: Vec<&str> = effects.iter().map(|line| line.split('"').nth(3).unwrap()).collect();
            let (one, two) = (with(SECRET), with("hush-0000-0000-hush"));
            let (one, two) = (one["text"].as_str().unwrap(), two["text"].as_str().unwrap());
            assert_eq!(words, [one, two, one], "{what}");
            second.done();
            world.check();
        }
    }
}

/// What may be repeated under its key is repeated with what was given, not with what is stored.
#[test]
fn a_keyed_call_with_a_secret_is_repeated_as_it_was_given() {
    let world = GatewayWorld::new();
    let charge = json!({"amount": 7, "pin": SECRET});
    let mut first = client(&world, "stub", SECRET);
    world.behave("hold");
    first.call("charge_card", &charge);
    world.until_effects(1);
    world.kill_broker();
    world.let_go();
    first.killed();
    let mut second = client(&world, "stub", SECRET);
    let result = second.result("charge_card", &charge);
    assert!(text(&result).starts_with("done, 1 so far"), "{result}");
    // The tool server took both for one: same words, same key.
    assert_eq!(world.effects().len(), 1);
    assert!(world.effects()[0].contains(SECRET));
    second.done();
    world.check();
    is_stored_nowhere(&world);
}
