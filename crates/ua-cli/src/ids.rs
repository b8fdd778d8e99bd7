//! Short ids, as people are shown them and may type them.
//!
//! An id that was made up begins with the time, which all ids of a day share, and ends with chance. So its end is what tells it from
//! others: eight letters, and more where two ids of one list end alike. Ids that a person chose (`--run-id`) stay as they are. Every place
//! that takes an id takes its end as well ([`crate::find`]); machines, files and whoever reads without a terminal get whole ids.

use std::borrow::Cow;

/// How many letters of an id's end are shown at least.
const FEW: usize = 8;
/// How many letters the part of an id has that was made up.
const MADE_UP: usize = 32;

/// The made-up part of an id; nothing for one that a person chose.
fn made_up(id: &str) -> Option<&str> {
    let (kind, rest) = match id.strip_prefix("run_task_") {
        // A sub-agent's run has the made-up part of the call that it works on.
        Some(rest) => ("run", rest),
        None => id.split_once('_')?,
    };
    let is_made_up = rest.len() == MADE_UP && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_made_up && matches!(kind, "run" | "call" | "q" | "step" | "ckpt" | "worker")).then_some(rest)
}

/// The short form of an id where a person reads, the whole one elsewhere.
pub(crate) fn short(id: &str) -> &str {
    if crate::terminal::is_read_by_person() { end_of(id, FEW) } else { id }
}

/// The short form of an id, whoever reads.
pub(crate) fn end(id: &str) -> &str {
    end_of(id, FEW)
}

fn end_of(id: &str, letters: usize) -> &str {
    made_up(id).map_or(id, |rest| &rest[rest.len() - letters.min(rest.len())..])
}

/// Short forms of the ids of one list: as long as it takes to tell them from each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortIds {
    letters: usize,
}

impl ShortIds {
    /// For a list with these ids.
    pub(crate) fn of<'a>(ids: &(impl Iterator<Item = &'a str> + Clone)) -> Self {
        if !crate::terminal::is_read_by_person() {
            return Self { letters: MADE_UP };
        }
        Self { letters: letters_for(ids) }
    }

    /// The form of one of them.
    pub(crate) fn get(self, id: &str) -> &str {
        if self.letters >= MADE_UP { id } else { end_of(id, self.letters) }
    }
}

fn letters_for<'a>(ids: &(impl Iterator<Item = &'a str> + Clone)) -> usize {
    let is_enough = |letters: &usize| {
        let mut ends: Vec<&str> = ids.clone().map(|id| end_of(id, *letters)).collect();
        let count = ends.len();
        ends.sort_unstable();
        ends.dedup();
        ends.len() == count
    };
    (FEW..MADE_UP).find(is_enough).unwrap_or(MADE_UP)
}

/// A text of ours in which these ids, wherever it names them, are short where a person reads.
pub(crate) fn shortened<'a>(text: &'a str, ids: &[&str]) -> Cow<'a, str> {
    if !crate::terminal::is_read_by_person() {
        return Cow::Borrowed(text);
    }
    let ids = ids.iter().filter(|id| made_up(id).is_some());
    ids.fold(Cow::Borrowed(text), |text, id| Cow::Owned(text.replace(id, end_of(id, FEW))))
}

/// A sentence of ours with every whole made-up id in it as a person is shown ids; those within paths stay.
pub(crate) fn in_sentence(text: &str) -> Cow<'_, str> {
    if crate::terminal::is_read_by_person() { in_sentence_of(text) } else { Cow::Borrowed(text) }
}

fn in_sentence_of(text: &str) -> Cow<'_, str> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_/-.".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_word) {
        let length = rest[begin..].find(|c| !is_of_word(c)).unwrap_or(rest.len() - begin);
        let (word, behind) = rest[begin..].split_at(length);
        // The end of a sentence is no part of its last word.
        let bare = word.trim_end_matches('.');
        out.push_str(&rest[..begin]);
        out.push_str(end_of(bare, FEW));
        out.push_str(&word[bare.len()..]);
        rest = behind;
    }
    out.push_str(rest);
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// A text of ours in which a whole made-up id says alone what it is the id of, as it does by how it begins: `run_019…`, and not `run run_019…`.
/// What it quotes are the words of others, as the arguments of a call are.
pub(crate) fn said_once(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    for kind in ["run", "call", "step", "worker"] {
        let twice = format!("{kind} {kind}_");
        let mut from = 0;
        while let Some(at) = out[from..].find(&twice).map(|at| from + at) {
            let id = at + kind.len() + 1;
            let length = out[id..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(out.len() - id);
            // The value of an option (`--run run_019…`) is no second word, and a part of a longer one is no word.
            let is_word =
                out[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric() && !"_-/".contains(c));
            from = id;
            if is_word && !is_quoted(&out[..at]) && made_up(&out[id..id + length]).is_some() {
                out.to_mut().replace_range(at..id, "");
                from = at;
            }
        }
    }
    out
}

/// Whether what follows stands within a quoted text of its line.
fn is_quoted(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in line.chars() {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
    }
    is_quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_id_is_of_is_said_once() {
        let (run, call) = ("run_01a20977c390716288a9e1c07dc39827", "call_01a20977c390716288a9e1c07dc39827");
        for (text, shown) in [
            (format!("succeeded · run {run}"), format!("succeeded · {run}")),
            (format!("run {run}: call {call} (run {run})."), format!("{run}: {call} ({run}).")),
            (format!("`ua questions --run {run}`"), format!("`ua questions --run {run}`")),
            (format!("rerun {run}"), format!("rerun {run}")),
            ("run run_1, run r and call 7".to_owned(), "run run_1, run r and call 7".to_owned()),
            (
                format!("run {run}: {{\"text\": \"run {run}, \\\"call {call}\\\"\"}} of call {call}"),
                format!("{run}: {{\"text\": \"run {run}, \\\"call {call}\\\"\"}} of {call}"),
            ),
        ] {
            assert_eq!(said_once(&text), shown);
        }
    }

    #[test]
    fn ids_in_a_sentence_are_short_and_paths_stay() {
        assert_eq!(end("run_task_01a20977c390716288a9e1c07dc39827"), "7dc39827");
        assert_eq!(end("run_task_mine"), "run_task_mine");
        let (run, short) = ("run_01a20977c390716288a9e1c07dc39827", "7dc39827");
        for (text, shown) in [
            (
                format!("answered; then resume: `ua resume {run}`"),
                format!("answered; then resume: `ua resume {short}`"),
            ),
            (format!("see {run}."), format!("see {short}.")),
            (format!("/w/job_completion_{run}.md"), format!("/w/job_completion_{run}.md")),
            (format!("locks/{run}.run"), format!("locks/{run}.run")),
            ("no id at all".to_owned(), "no id at all".to_owned()),
        ] {
            assert_eq!(in_sentence_of(&text), shown);
        }
    }

    #[test]
    fn the_end_of_an_id_stands_for_it_and_a_chosen_name_stays() {
        let made = "run_01a20977c390716288a9e1c07dc39827";
        assert_eq!(end_of(made, FEW), "7dc39827");
        for chosen in
            ["monthly-2026-11", "run_1", "run_01A20977C390716288A9E1C07DC39827", "x_01a20977c390716288a9e1c07dc39827"]
        {
            assert_eq!(end_of(chosen, FEW), chosen);
        }
    }

    #[test]
    fn ids_that_end_alike_are_shown_longer() {
        let ids = ["run_01a20977c390716288a9e1c07dc39827", "run_01a20977c390716288a9e1d07dc39827", "monthly"];
        assert_eq!(letters_for(&ids.iter().copied()), 10);
        assert_eq!(letters_for(&ids[1..].iter().copied()), FEW);
        assert_eq!(
            letters_for(&[ids[0], ids[0]].into_iter()),
            MADE_UP,
            "the same twice is told from itself by nothing"
        );
    }
}
