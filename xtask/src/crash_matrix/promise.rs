//! The tables of `docs/reliability.md` that follow from what the verdicts are judged by.

use super::boundaries::{Window, windows};
use super::classes::{CLASSES, Guarantee};

/// Each class of tools, and what is promised of a call whose answer was lost.
pub(crate) fn classes() -> String {
    let mut text = String::from("| class of tools | when the answer of a call is lost | promise |\n|---|---|---|\n");
    for class in &CLASSES {
        let (done, promise) = match class.guarantee {
            Guarantee::Harmless => ("it is repeated", "at least once, harmless: it only looks"),
            Guarantee::ExactlyOnce => (class.settled_by(), "exactly once, without a question"),
            Guarantee::Asked => (class.shape.asked_about(), "at most once; answered truthfully, exactly once"),
        };
        // A memory tool of another server takes no key unless a policy says so.
        let name = if class.name == "memory" { "memory, by the tools of `ua` itself" } else { class.name };
        text.push_str(&format!("| {name} | {done} | {promise} |\n"));
    }
    text
}

/// Each window of a turn, and what a resume does there for each kind of promise.
pub(crate) fn windows_and_promises() -> String {
    let mut text =
        String::from("| window of a turn | dies | harmless | exactly once | at most once |\n|---|---|---|---|---|\n");
    for Window { step, moment, in_flight } in windows() {
        let what = if in_flight { "repeated | settled by itself | **a person is asked**" } else { "– | – | –" };
        text.push_str(&format!("| {step} | {moment} | {what} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_asked_between_running_and_its_receipt_and_nowhere_else() {
        let table = windows_and_promises();
        let asked: Vec<&str> = table.lines().filter(|line| line.contains("a person is asked")).collect();
        // The write that records the reply starts the first call that it asks for.
        assert!(asked[0].contains("after `store.record_turn`"), "{}", asked[0]);
        assert!(asked[asked.len() - 1].contains("before `store.settle_attempt`"), "{}", asked[asked.len() - 1]);
        assert_eq!(asked.len(), 8);
    }
}
