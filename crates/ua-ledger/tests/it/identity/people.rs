//! What a person's word is good for, and who has to be asked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use ua_core::{CallId, CallStatus, EffectKind, MailAddress, Resolution, ScopeRule, Sha256, sha256};
use ua_ledger::{Admission, Facts, PeopleRules, RecipientRule, SentFiles, SincePlanned};
use ua_store::{CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, RunStore as _};

use super::member::{Ask, ELSEWHERE, FIRST, Fate, Member, OTHER_WORDS, lineage};

const CAREFUL: Ask = Ask { needs_approval: true, ..FIRST };

impl Member {
    pub(crate) fn asking(self, people: PeopleRules) -> Self {
        Self { ledger: self.ledger.with_people(people), ..self }
    }

    /// The same run after a start in which the mail tool is defined like this.
    fn with_definition(self, digest: Sha256) -> Self {
        let definitions = BTreeMap::from([("mcp__mail__send".to_owned(), digest)]);
        Self { ledger: self.ledger.with_definitions(definitions), ..self }
    }

    async fn status(&self, question: &QuestionRecord) -> QuestionStatus {
        self.store.question(&question.question_id).await.unwrap().status
    }

    async fn approved(&self, ask: &Ask) -> (CallId, QuestionRecord) {
        let id = self.plan(ask).await;
        let question = self.held(&id, ask, QuestionKind::Approval).await;
        self.answer(&question, Choice::Execute).await;
        (id, question)
    }
}

fn recipients(named: &[&str], allowed: &[&str]) -> PeopleRules {
    let named: BTreeSet<MailAddress> = named.iter().map(|address| MailAddress::parse(address).unwrap()).collect();
    let allowed = allowed.iter().map(|entry| (*entry).to_owned()).collect();
    PeopleRules {
        recipients: RecipientRule::Ask { named, text: "Tell Ana, +49 30 1234567 and #general.".into(), allowed },
        ..PeopleRules::default()
    }
}

#[tokio::test]
async fn an_approval_is_good_for_one_call_through_its_definite_failures() {
    let (run, _child) = lineage().await;
    let (id, question) = run.approved(&CAREFUL).await;
    assert_eq!(run.run(&id, &CAREFUL, Fate::NotSent).await.status, CallStatus::FailedDefinite);
    assert_eq!(run.status(&question).await, QuestionStatus::Closed);
    assert_eq!(run.run(&id, &CAREFUL, Fate::Done).await.status, CallStatus::Succeeded);
    // Another call is another question, even of the same tool.
    let other = Ask { needs_approval: true, ..ELSEWHERE };
    let id = run.plan(&other).await;
    run.held(&id, &other, QuestionKind::Approval).await;
}

#[tokio::test]
async fn a_question_says_what_would_be_sent_and_what_the_answer_is_bound_to() {
    let (run, _child) = lineage().await;
    let run = run.with_definition(sha256("as offered"));
    let id = run.plan(&CAREFUL).await;
    let question = run.held(&id, &CAREFUL, QuestionKind::Approval).await;
    for shown in
        ["`send`", "boss@example.test", "Dear boss", "email.send", "attachments[0]", &sha256("report").to_hex()]
    {
        assert!(question.text.contains(shown), "{shown}: {}", question.text);
    }
    assert_eq!(question.detail["binding"]["tool_digest"], json!(sha256("as offered")));
    assert_eq!(question.detail["arguments"]["body"], "Dear boss");
}

#[tokio::test]
async fn an_approval_is_asked_for_again_when_the_tool_or_a_file_is_another_one() {
    for sent_before in [false, true] {
        let (run, _child) = lineage().await;
        let run = run.with_definition(sha256("as offered"));
        let (id, first) = run.approved(&CAREFUL).await;
        if sent_before {
            run.run(&id, &CAREFUL, Fate::NotSent).await;
        }
        let run = run.with_definition(sha256("rewritten"));
        let second = run.held(&id, &CAREFUL, QuestionKind::Approval).await;
        assert_ne!(first.question_id, second.question_id);
        assert_eq!(run.status(&first).await, QuestionStatus::Closed);
        run.answer(&second, Choice::Execute).await;
        // What is attached is what was shown, too.
        let other_file =
            Facts { files: SentFiles::of_digests([("attachments[0]".to_owned(), sha256("other"))]), ..CAREFUL.facts() };
        let admission = run.ledger.admit(&id, other_file).await.unwrap();
        let Admission::Held(third) = admission else { panic!("not held: {admission:?}") };
        assert_ne!(third.question_id, second.question_id);
        run.answer(&third, Choice::Skip).await;
        let call = run.settled(&id, &CAREFUL).await;
        let expected = if sent_before { CallStatus::FailedDefinite } else { CallStatus::Cancelled };
        assert_eq!(call.status, expected);
        assert_eq!(run.settled(&id, &CAREFUL).await.status, expected);
    }
}

/// Whoever approved what was looked at did not approve what cannot be looked at any more, nor the other way round; whoever was told that
/// nobody can look at it approved whatever it is.
#[tokio::test]
async fn an_approval_of_a_file_that_was_looked_at_is_none_of_one_that_cannot_be() {
    let (run, _child) = lineage().await;
    let (id, first) = run.approved(&CAREFUL).await;
    let Admission::Held(second) = run.ledger.admit(&id, CAREFUL.unseen()).await.unwrap() else { panic!("not held") };
    assert_ne!(first.question_id, second.question_id);
    assert!(second.text.contains("file://elsewhere/report.pdf") && second.text.contains("could not be looked at"));
    run.answer(&second, Choice::Execute).await;
    let third = run.held(&id, &CAREFUL, QuestionKind::Approval).await;
    assert_ne!(second.question_id, third.question_id);
    run.answer(&third, Choice::Execute).await;
    run.run(&id, &CAREFUL, Fate::Done).await;

    let (id, _) = run.approved(&Ask { needs_approval: true, ..ELSEWHERE }).await;
    let Admission::Held(unseen) = run.ledger.admit(&id, ELSEWHERE.unseen()).await.unwrap() else { panic!("not held") };
    run.answer(&unseen, Choice::Execute).await;
    assert_eq!(run.take(&id, &ELSEWHERE.unseen(), Fate::Done).await.status, CallStatus::Succeeded);
}

/// Policies that a person accepted for a run hold for what was planned before them, as far as they are stricter.
#[tokio::test]
async fn what_is_planned_and_not_sent_follows_stricter_policies() {
    let (run, _child) = lineage().await;
    let now = |since_planned| Facts { since_planned, ..FIRST.facts() };
    let id = run.plan(&FIRST).await;
    let admission = run.ledger.admit(&id, now(SincePlanned::Asks)).await.unwrap();
    let Admission::Held(question) = admission else { panic!("not held: {admission:?}") };
    assert_eq!(question.kind, QuestionKind::Approval);
    run.answer(&question, Choice::Execute).await;
    let call = run.take(&id, &now(SincePlanned::Asks), Fate::NotSent).await;
    assert_eq!(call.status, CallStatus::FailedDefinite);
    assert_eq!(run.take(&id, &now(SincePlanned::Asks), Fate::Done).await.status, CallStatus::Succeeded);

    let id = run.plan(&ELSEWHERE).await;
    let stricter = Facts { since_planned: SincePlanned::Stricter, ..ELSEWHERE.facts() };
    let Admission::Settled(call) = run.ledger.admit(&id, stricter).await.unwrap() else { panic!("not refused") };
    assert_eq!((call.status, call.attempt), (CallStatus::Cancelled, 0));
    assert_eq!(call.error_code.as_deref(), Some("policy_changed"));
}

#[tokio::test]
async fn what_a_person_says_about_a_declined_call_reaches_the_model() {
    let (run, _child) = lineage().await;
    let id = run.plan(&CAREFUL).await;
    let question = run.held(&id, &CAREFUL, QuestionKind::Approval).await;
    let mut answer = ua_store::conformance::samples::answer(question.question_id.as_str(), Choice::Skip);
    answer.answer.text = Some("the board decides first".to_owned());
    run.store.insert_answer(answer).await.unwrap();
    let call = run.settled(&id, &CAREFUL).await;
    assert_eq!((call.status, call.resolution), (CallStatus::Cancelled, Some(Resolution::Skipped)));
    let told = ua_ledger::answer_for(&call, None, ua_core::Audience::Terminal).unwrap();
    assert!(told.is_error && told.text.to_string().contains("the board decides first"), "{:?}", told.text);
}

#[tokio::test]
async fn an_address_that_nobody_named_is_asked_about_once() {
    let (run, _child) = lineage().await;
    let run = run.asking(recipients(&["ana@example.test"], &["@example.org"]));
    let id = run.plan(&FIRST).await;
    let question = run.held(&id, &FIRST, QuestionKind::AmbiguousRecipient).await;
    assert!(question.text.contains("Neither the job nor a person named boss@example.test"), "{}", question.text);
    run.answer(&question, Choice::Execute).await;
    run.run(&id, &FIRST, Fate::Done).await;
    // A person let it be used, so from now on it is known.
    assert_eq!(run.sent(&ELSEWHERE, Fate::Done).await.status, CallStatus::Succeeded);
}

#[tokio::test]
async fn an_address_that_the_job_names_or_allows_needs_no_question() {
    for rules in [recipients(&["boss@example.test"], &[]), recipients(&[], &["@example.test"]), PeopleRules::default()]
    {
        let (run, _child) = lineage().await;
        assert_eq!(run.asking(rules).sent(&FIRST, Fate::Done).await.status, CallStatus::Succeeded);
    }
}

/// A message to somebody.
async fn message_to(run: &Member, to: &str) -> (CallId, Admission) {
    let id = run
        .plan_as(|id, turn| {
            let mut call = FIRST.planned(id, turn);
            call.policy.effect_kind = EffectKind::parse("message.send");
            call.policy.scope = ScopeRule::default();
            call.arguments = json!({"to": to, "text": "Hi"}).into();
            call
        })
        .await;
    let admission = run.admit(&id, &FIRST).await;
    (id, admission)
}

/// A number or a name counts as an address does, and is known as one is: by the job's words and entries, or because a person let it go.
#[tokio::test]
async fn a_number_or_a_name_that_nobody_named_is_asked_about_once() {
    let rules = || recipients(&[], &["#dev"]);
    for known in ["ana", "+49301234567", "030 1234567", "#general", "#dev"] {
        let (run, _child) = lineage().await;
        let (_, admission) = message_to(&run.asking(rules()), known).await;
        assert!(!matches!(admission, Admission::Held(_)), "{known}: {admission:?}");
    }
    for unknown in ["@eve", "+15551234567"] {
        let (run, _child) = lineage().await;
        let run = run.asking(rules());
        let (id, admission) = message_to(&run, unknown).await;
        let Admission::Held(question) = admission else { panic!("nobody is asked: {admission:?}") };
        assert_eq!(question.kind, QuestionKind::AmbiguousRecipient);
        let said = format!("Neither the job nor a person named {unknown}.");
        assert!(question.text.contains(&said), "{}", question.text);
        run.answer(&question, Choice::Execute).await;
        run.run(&id, &FIRST, Fate::Done).await;
        let (_, admission) = message_to(&run, unknown).await;
        let asked = matches!(&admission, Admission::Held(question) if question.text.contains(&said));
        assert!(!asked, "{admission:?}");
    }
}

/// A mail to a name.
async fn to_a_name(run: &Member) -> (CallId, Admission) {
    let id = run
        .plan_as(|id, turn| {
            let mut call = FIRST.planned(id, turn);
            call.arguments = json!({"to": "the boss", "body": "Dear boss"}).into();
            call
        })
        .await;
    let admission = run.admit(&id, &FIRST).await;
    (id, admission)
}

#[tokio::test]
async fn a_name_without_an_address_is_a_question_or_a_refusal() {
    let (run, _child) = lineage().await;
    let (_, admission) = to_a_name(&run.asking(recipients(&[], &[]))).await;
    let Admission::Held(question) = admission else { panic!("not held: {admission:?}") };
    assert_eq!(question.kind, QuestionKind::AmbiguousRecipient);

    let (run, _child) = lineage().await;
    let off = PeopleRules { recipients: RecipientRule::TellModel, ..PeopleRules::default() };
    let (_, admission) = to_a_name(&run.asking(off)).await;
    let Admission::Settled(call) = admission else { panic!("not settled: {admission:?}") };
    assert_eq!((call.status, call.error_code.as_deref()), (CallStatus::Cancelled, Some("ambiguous_recipient")));
}

async fn refused(run: &Member) -> CallRecord {
    let call = run.sent(&FIRST, Fate::Unauthorized).await;
    assert_eq!((call.status, call.error_code.as_deref()), (CallStatus::FailedDefinite, Some("http_401")));
    call
}

#[tokio::test]
async fn refused_credentials_are_a_question_instead_of_retries() {
    let asks = PeopleRules { ask_on_auth_failure: true, ..PeopleRules::default() };
    for (choice, sent) in [(Choice::Continue, true), (Choice::Skip, false)] {
        let (run, _child) = lineage().await;
        let run = run.asking(asks.clone());
        let call = refused(&run).await;
        assert!(!run.ledger.may_retry(&call));
        let question = run.held(&call.call_id, &FIRST, QuestionKind::AuthFailure).await;
        assert!(question.text.contains("HTTP 401") && question.text.contains("`mail`"), "{}", question.text);
        run.answer(&question, choice).await;
        if sent {
            assert_eq!(run.run(&call.call_id, &FIRST, Fate::Done).await.status, CallStatus::Succeeded);
        } else {
            for _ in 0..2 {
                assert_eq!(run.settled(&call.call_id, &FIRST).await.status, CallStatus::FailedDefinite);
            }
        }
        assert_eq!(run.status(&question).await, QuestionStatus::Closed);
    }
    // Switched off it is the model's to know, at once: the same request would be refused again.
    let (run, _child) = lineage().await;
    let call = refused(&run).await;
    assert!(!run.ledger.may_retry(&call));
    assert_eq!(run.settled(&call.call_id, &FIRST).await.status, CallStatus::FailedDefinite);
}

#[tokio::test]
async fn a_question_names_all_that_speaks_against_a_call_and_its_answer_is_good_for_that() {
    let (run, _child) = lineage().await;
    run.sent(&FIRST, Fate::FailedMaybe).await;
    let run = run.asking(recipients(&[], &[]));
    let ask = Ask { needs_approval: true, ..OTHER_WORDS };
    let (id, question) = run.near_duplicate(&ask).await;
    assert_eq!(question.detail["reasons"], json!(["near_duplicate", "ambiguous_recipient", "approval"]));
    for shown in ["may already have had the same effect", "named boss@example.test", "need a person's approval"] {
        assert!(question.text.contains(shown), "{shown}: {}", question.text);
    }
    run.answer(&question, Choice::Execute).await;
    assert_eq!(run.run(&id, &ask, Fate::Done).await.status, CallStatus::Succeeded);
}

#[tokio::test]
async fn a_word_about_another_call_makes_no_address_known() {
    let (run, _child) = lineage().await;
    run.sent(&FIRST, Fate::FailedMaybe).await;
    let (id, question) = run.near_duplicate(&OTHER_WORDS).await;
    run.answer(&question, Choice::Execute).await;
    run.run(&id, &OTHER_WORDS, Fate::Done).await;
    let run = run.asking(recipients(&[], &[]));
    let id = run.plan(&ELSEWHERE).await;
    run.held(&id, &ELSEWHERE, QuestionKind::AmbiguousRecipient).await;
}
