//! Which tool server, which project, and which call of a session: pairs of sessions, and moments at which the second one asks.

use std::fs;

use serde_json::{Value, json};
use ua_store::Choice;

use crate::world::{Client, GatewayWorld, mail, notice, text, told, until};

/// How the second session differs from the first.
#[derive(Debug, Clone, Copy)]
struct Differs {
    account: Option<&'static str>,
    name: &'static str,
    more: &'static [&'static str],
    folder: &'static str,
}

const FIRST: Differs = Differs { account: Some("a"), name: "stub", more: &[], folder: "project" };

fn client(world: &GatewayWorld, session: &str, of: Differs) -> Client {
    let env: Vec<(&str, &str)> = of.account.iter().map(|account| ("STUB_SECRET", *account)).collect();
    let mut client = Client::start_as(world, of.folder, &env, of.name, of.more);
    client.session = Some(session.to_owned());
    client.greet()
}

fn world() -> GatewayWorld {
    let world = GatewayWorld::new();
    fs::create_dir_all(world.path("project/.git")).unwrap();
    fs::create_dir_all(world.path("project/sub/deep")).unwrap();
    world
}

/// The moment at which the second asks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    UnderWay,
    Done,
    InDoubt,
}

/// Another account, program or name: whatever the moment, nobody is told that it was made, and what may be a repeat waits for a person. From a
/// subfolder of the repository it is the same server.
#[test]
fn another_server_of_the_name_is_asked_about_and_the_same_one_is_found_from_everywhere() {
    let others = [
        Differs { account: Some("b"), ..FIRST },
        Differs { account: None, ..FIRST },
        Differs { more: &["--other"], ..FIRST },
        Differs { name: "stub2", ..FIRST },
        Differs { account: Some("b"), folder: "project/sub", ..FIRST },
    ];
    let same = [FIRST, Differs { folder: "project/sub/deep", ..FIRST }];
    for (second, is_same) in others.map(|one| (one, false)).into_iter().chain(same.map(|one| (one, true))) {
        for moment in [Moment::UnderWay, Moment::Done, Moment::InDoubt] {
            let world = world();
            world.behave(if moment == Moment::InDoubt { "die" } else { "hold" });
            let mut one = client(&world, "s", FIRST);
            let first = one.call("send_email", &mail());
            world.until_effects(1);
            if moment == Moment::Done {
                world.let_go();
                assert_eq!(text(&one.answer(first)["result"]), "done, 1 so far");
                one.result("read_page", &json!({}));
            } else if moment == Moment::InDoubt {
                assert_eq!(told(&one.answer(first)["result"]), "unknown");
                let _gone = fs::remove_file(world.path("stub/die"));
            }
            let mut two = client(&world, "s", second);
            let asked = two.call("send_email", &mail());
            if is_same {
                if moment == Moment::UnderWay {
                    world.until_askers(2);
                    world.let_go();
                }
                let answer = two.answer(asked)["result"].clone();
                match moment {
                    Moment::InDoubt => assert_eq!(told(&answer), "unknown", "{second:?}"),
                    Moment::UnderWay | Moment::Done => assert!(text(&answer).starts_with("done, 1 so far"), "{answer}"),
                }
                assert_eq!(world.effects().len(), 1, "{second:?} {moment:?}");
                continue;
            }
            let answer = two.answer(asked)["result"].clone();
            assert!(matches!(told(&answer), "held" | "rival"), "{second:?} {moment:?}: {answer}");
            assert_eq!(world.effects().len(), 1, "{second:?} {moment:?}");
            // It is a call of its own, so a person may say that it is meant.
            let own = |question: &ua_store::QuestionRecord| question.text.contains("May `send_email` run?");
            let question = world.questions().into_iter().find(own).unwrap();
            assert!(question.text.contains("look before you let it be sent"), "{}", question.text);
            world.answer(&question, Choice::Execute);
            if moment == Moment::UnderWay {
                world.let_go();
                one.answer(first);
            }
            let sent = until("the second to be sent", || {
                let answer = two.result("send_email", &mail());
                text(&answer).starts_with("done, 2 so far").then_some(answer)
            });
            assert_ne!(notice(&sent), "late", "{sent}");
            assert_eq!(world.effects().len(), 2, "{second:?} {moment:?}");
            two.done();
            world.check();
        }
    }
}

/// An approval is for the account that asked for it.
#[test]
fn an_approval_is_good_for_one_account() {
    let world = world();
    let wire = json!({"amount": 9});
    let (mut one, mut two) =
        (client(&world, "s1", FIRST), client(&world, "s2", Differs { account: Some("b"), ..FIRST }));
    assert_eq!(told(&one.result("wire_money", &wire)), "held");
    assert_eq!(told(&two.result("wire_money", &wire)), "held");
    let questions = world.questions();
    assert_eq!(questions.len(), 2);
    let first = questions.iter().min_by_key(|question| question.created_at).unwrap();
    world.answer(first, Choice::Execute);
    assert_eq!(text(&one.result("wire_money", &wire)), "done, 1 so far");
    assert_eq!(told(&two.result("wire_money", &wire)), "held");
    assert_eq!(world.effects().len(), 1);
}

/// No value stands in anything that is stored.
#[test]
fn what_an_account_is_known_by_is_stored_nowhere() {
    let world = world();
    let of = Differs { account: Some("a-token-of-somebody"), ..FIRST };
    let mut one = client(&world, "s", of);
    one.result("append_line", &json!({"text": "a"}));
    one.done();
    let holds = |path: &std::path::Path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(19).any(|part| part == b"a-token-of-somebody")
    };
    for entry in fs::read_dir(world.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!holds(&path), "{}", path.display());
    }
}

/// A client that gives up without a word and asks again while the call is under way: one effect, however often, with or without names of its
/// tool uses; and one more when it asks behind the answer, or says that it means two.
#[test]
fn a_silent_time_out_sends_nothing_beside_the_first() {
    let line = json!({"text": "a"});
    for (name, field) in
        [("mcp-of-somebody", None), ("codex-mcp-client", Some("callId")), ("claude-code", Some("claudecode/toolUseId"))]
    {
        let world = world();
        world.behave("hold");
        let mut client = world.session("s");
        client.info = json!({"name": name, "version": "1"});
        let mut client = client.greet();
        let call = |client: &mut Client, field: Option<&str>, use_id: &str| {
            let mut meta = json!({"dev.universal-agent/session": "s"});
            if let Some(field) = field {
                meta[field] = json!(use_id);
            }
            client.request("tools/call", &json!({"name": "append_line", "arguments": line, "_meta": meta}))
        };
        let asked: Vec<u64> = ["u1", "u2", "u3"].iter().map(|id| call(&mut client, field, id)).collect();
        world.until_askers(3);
        world.let_go();
        let mut notices: Vec<String> =
            asked.iter().map(|id| notice(&client.answer(*id)["result"]).to_owned()).collect();
        notices.sort();
        assert_eq!((notices, world.effects().len()), (vec![String::new(), "once".into(), "once".into()], 1), "{name}");
        world.behave("hold");
        let two = ["m1", "m2"].map(|id| call(&mut client, Some("dev.universal-agent/call"), id));
        world.until_calls(2);
        world.let_go();
        let answers: Vec<Value> = two.iter().map(|id| client.answer(*id)["result"].clone()).collect();
        assert!(answers.iter().all(|answer| notice(answer).is_empty()), "{answers:?}");
        assert_eq!(world.effects().len(), 3, "{name}");
        client.done();
        world.check();
    }
}
