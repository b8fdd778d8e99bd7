//! Batches of a client: their messages are taken one by one, and their answers are handed back as one.
//!
//! Each request of a batch has a name of its own, made of the batch's and its place, so that a batch that comes again is the same calls.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use crate::incoming::{Incoming, Judged};
use crate::outgoing::ToClient;
use crate::sync::lock;

/// What stands between a batch's name and a place in it; no other name has it.
const BETWEEN: char = '.';

/// The name under which a request came: its own, or its batch's.
pub(crate) fn whole(name: &str) -> &str {
    name.split(BETWEEN).next().unwrap_or(name)
}

/// Batches without an answer, by name.
#[derive(Debug, Default)]
pub(crate) struct Batches(Mutex<HashMap<String, Batch>>);

#[derive(Debug)]
struct Batch {
    /// How many requests have none yet.
    waiting: usize,
    answers: Vec<Value>,
}

impl Batches {
    /// Takes a batch apart: what is taken of it, each with its name. Where nothing is waited for, its answer is there at once.
    pub(crate) fn open(&self, name: &str, messages: Vec<Judged>) -> (Vec<(String, Incoming)>, Option<ToClient>) {
        let (mut taken, mut answers) = (Vec::new(), Vec::new());
        for (place, judged) in messages.into_iter().enumerate() {
            match judged {
                Judged::Taken(incoming) => taken.push((format!("{name}{BETWEEN}{place}"), incoming)),
                Judged::Refused(refused) => answers.push(refused.as_message()),
                Judged::Dropped { why, .. } => tracing::warn!(why, "a message of a client was dropped"),
            }
        }
        let waiting = taken.iter().filter(|(_, incoming)| matches!(incoming, Incoming::Request(_))).count();
        if waiting == 0 {
            return (taken, Some(answered(name.to_owned(), answers)));
        }
        lock(&self.0).insert(name.to_owned(), Batch { waiting, answers });
        (taken, None)
    }

    /// What goes to the client: nothing while others of its batch have no answer.
    pub(crate) fn gathered(&self, item: ToClient) -> Option<ToClient> {
        let ToClient::Answer { name, answer } = item else { return Some(item) };
        let of_batch = whole(&name);
        let mut all = lock(&self.0);
        let Some(batch) = all.get_mut(of_batch).filter(|_| of_batch != name) else {
            return Some(ToClient::Answer { name, answer });
        };
        batch.answers.extend(answer);
        batch.waiting = batch.waiting.saturating_sub(1);
        if batch.waiting > 0 {
            return None;
        }
        let batch = all.remove(of_batch)?;
        Some(answered(of_batch.to_owned(), batch.answers))
    }
}

fn answered(name: String, answers: Vec<Value>) -> ToClient {
    ToClient::Answer { name, answer: (!answers.is_empty()).then_some(Value::Array(answers)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::incoming::{Read, read};

    #[test]
    fn a_batch_is_answered_once_all_of_it_is() {
        let batches = Batches::default();
        let Read::Batch(messages) = read(
            br#"[{"id":1,"method":"ping"},{"method":"tools/call"},{"id":null,"method":"ping"},{"id":2,"method":"ping"}]"#,
        ) else {
            panic!("no batch")
        };
        let (taken, answer) = batches.open("B", messages);
        assert!(answer.is_none());
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["B.0", "B.3"]);
        let answer = |name: &str, answer| batches.gathered(ToClient::Answer { name: name.to_owned(), answer });
        assert!(matches!(answer("C", None), Some(ToClient::Answer { answer: None, .. })));
        assert!(answer("B.3", Some(json!({"id": 2}))).is_none());
        let Some(ToClient::Answer { name, answer: Some(all) }) = answer("B.0", None) else { panic!("no answer") };
        assert_eq!((name.as_str(), all.as_array().map(Vec::len), &all[1]), ("B", Some(2), &json!({"id": 2})));
        let (_, answer) = batches.open("D", vec![Judged::Dropped { why: String::new(), is_call: true }]);
        assert!(matches!(answer, Some(ToClient::Answer { answer: None, .. })));
    }
}
