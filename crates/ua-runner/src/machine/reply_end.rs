//! How a reply that asks for nothing ended, and what that means for the run.
//!
//! | the reply | what happens |
//! |---|---|
//! | says something and ended by itself | it is the model's last word, behind what was cut before it: the evidence is checked |
//! | was cut at a limit, or paused | the model is told to go on, a few times in a row |
//! | was cut at a limit before it said anything: thoughts took all of it | the model is told so, a few times; replies may be longer then |
//! | was refused or filtered, is empty, or ended for a reason that nobody knows | the model is told so, once; then a person is asked, or the run has failed |
//!
//! None but the first is ever the end of a run that succeeded. A pure function of what is stored of the reply, so a resume reads the same.

use ua_core::{Audience, StopReason, is_unseen};
use ua_llm::CALL_IN_TEXT;

/// How often in a row a reply may be cut before that is no progress any more.
const MAX_CUTS: u32 = 8;
/// How often in a row a reply may be used up before it says anything; what else may be wrong is too full a context, which takes a few cuts.
const MAX_UNSAID: u32 = 3;
/// How often in a row a reply may be no answer before a person is asked.
const MAX_VAIN: u32 = 1;
/// The words of providers for a reply that ended by itself, whatever it says.
const ENDS_BY_ITSELF: [&str; 6] = ["completed", "stop", "end_turn", "stop_sequence", "eos", "STOP"];
/// As much of a refusal as is quoted.
const MAX_QUOTED: usize = 600;

/// How a reply that asks for no tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// By itself, with something said.
    Whole,
    /// At a limit, or in a pause.
    Cut,
    /// At a limit, with nothing said.
    Unsaid,
    /// The model, or a filter of its provider, refused.
    Refused,
    /// By itself, with nothing said.
    Empty,
    /// It says that it asks for a tool, and asks for none; or its reason is one that nobody knows.
    Odd,
}

impl ReplyEnd {
    /// What a reply without tool uses is.
    pub fn of(stop_reason: StopReason, text: &str) -> Self {
        match stop_reason {
            StopReason::MaxTokens if is_unsaid(text) => Self::Unsaid,
            StopReason::MaxTokens | StopReason::PauseTurn => Self::Cut,
            StopReason::Refusal => Self::Refused,
            StopReason::ToolUse | StopReason::Other => Self::Odd,
            StopReason::EndTurn | StopReason::StopSequence if says_nothing(text) => Self::Empty,
            StopReason::EndTurn | StopReason::StopSequence => Self::Whole,
        }
    }

    /// What the model is told; nothing after a whole reply.
    pub fn guidance(self, audience: Audience) -> String {
        let work = audience.work();
        match self {
            Self::Whole => String::new(),
            Self::Cut => {
                "Your reply was cut short. Continue exactly where it ends and repeat nothing: both are joined to one answer. If it was a tool \
                 call that was cut, make it in smaller pieces."
                    .to_owned()
            }
            Self::Unsaid => {
                "Your last reply reached its longest length before it said anything. Think less and say it shorter; if it was a tool call that \
                 was cut, make it in smaller pieces."
                    .to_owned()
            }
            Self::Refused => format!(
                "Your last reply was a refusal, or was withheld by a filter. If part of the {work} can be done, do that part; if not, say in one \
                 sentence why not."
            ),
            Self::Empty => format!(
                "Your last reply was empty. If the {work} is done, say in a sentence what was done; if not, go on with it."
            ),
            Self::Odd => {
                "Your last reply ended in a way that cannot be read as an answer. Say it again: call the tools you need (as tool calls, \
                 not in your text), or say in a sentence what was done."
                    .to_owned()
            }
        }
    }

    /// Whether the model is not told once more after so many replies in a row that were no answer, this one included.
    pub(super) fn is_given_up(self, in_a_row: u32) -> bool {
        match self {
            Self::Whole => false,
            Self::Cut => in_a_row > MAX_CUTS,
            Self::Unsaid => in_a_row > MAX_UNSAID,
            Self::Refused | Self::Empty | Self::Odd => in_a_row > MAX_VAIN,
        }
    }

    /// Why the run does not go on by itself. `ended` is how the provider says that the reply ended.
    pub(super) fn question(self, in_a_row: u32, text: &str, ended: &str) -> String {
        // That a reply ended by itself is no reason why it is no answer, and beside a refusal it reads as if the job were done.
        let ended = if self == Self::Refused && ENDS_BY_ITSELF.contains(&ended) { "" } else { ended };
        let ended = if ended.is_empty() { String::new() } else { format!(" (in its provider's words: {ended})") };
        let said = match text.trim() {
            "" if ended.is_empty() => "It gave no reason.".to_owned(),
            "" => "It said nothing.".to_owned(),
            text if text.chars().count() > MAX_QUOTED => {
                format!("It said: {} …", text.chars().take(MAX_QUOTED).collect::<String>())
            }
            text => format!("It said: {text}"),
        };
        match self {
            Self::Whole => String::new(),
            // Only the last one's reason is known here, and between replies that were cut there may be some that were paused.
            Self::Cut if ended.contains(StopReason::PauseTurn.as_str()) => format!(
                "{in_a_row} replies of the model in a row had no end, the last of them paused by its provider, without asking for a tool{ended}. \
                 {said}"
            ),
            Self::Cut => format!(
                "{in_a_row} replies of the model in a row were cut at their length limit without asking for a tool{ended}. {said}"
            ),
            Self::Unsaid => format!(
                "{in_a_row} replies of the model in a row brought no answer, and the last one reached its longest length before it said \
                 anything{ended}: its thoughts took all of it. They count as part of a reply, so a higher `max_output_tokens` leaves room for an \
                 answer, and less `effort` needs less of it."
            ),
            Self::Refused => format!(
                "The model refused, or a filter of its provider withheld the reply, {}{ended}. {said}",
                times(in_a_row)
            ),
            Self::Empty => format!("The model's reply was empty {}{ended}.", times(in_a_row)),
            Self::Odd => {
                let helps = if ended.contains(CALL_IN_TEXT) {
                    "The server of the model has to read its tool calls: start it with the parser for this model, or use another model. "
                } else {
                    ""
                };
                format!(
                    "The model's reply ended for a reason that cannot be read as an answer, {}{ended}. {helps}{said}",
                    times(in_a_row)
                )
            }
        }
    }
}

/// Whether nobody would see anything of a text.
pub(super) fn is_unread(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_unseen(c))
}

/// Whether a reply that was cut has nothing beside thoughts.
pub(super) fn is_unsaid(text: &str) -> bool {
    is_unread(&without_thoughts(text))
}

/// Whether a text is no answer, whatever it is shown as: what only its model thought, marks of the end of a text that its server passed on, and
/// full stops and lines say nothing. Other signs may be what was asked for (`>=`). An empty list may well be a result.
fn says_nothing(text: &str) -> bool {
    // In small letters, as the text is by then; a longer one before its beginning.
    const MARKS: [&str; 12] = [
        "</s>",
        "<s>",
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "[pad]",
        "[eos]",
        "<end_of_turn>",
        "<start_of_turn>model",
        "<start_of_turn>",
        "<end_of_text>",
    ];
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return false;
    }
    let mut said = without_thoughts(text);
    said = without_between(&said, "<|", "|>");
    for mark in MARKS {
        said = said.replace(mark, "");
    }
    said.chars().all(|c| c.is_whitespace() || is_unseen(c) || ".…!-_*#`".contains(c))
}

/// How models and their templates mark thoughts, beside tags; a server that has no parser for them passes them on.
const MARKED: [(&str, &str); 8] = [
    ("◁", "<"),
    ("▷", ">"),
    ("[think]", "<think>"),
    ("[/think]", "</think>"),
    ("<|start_thinking|>", "<think>"),
    ("<|end_thinking|>", "</think>"),
    ("<|inner_prefix|>", "<think>"),
    ("<|inner_suffix|>", "</think>"),
];
/// The same of the Harmony format: what is not said in its last channel is no answer.
const CHANNELS: [(&str, &str); 4] = [
    ("<|channel|>analysis", "<think>"),
    ("<|channel|>commentary", "<think>"),
    ("<|channel|>final", "</think>"),
    ("<|end|>", "</think>"),
];

/// What a text says, in small letters, without what its model only thought. Thoughts that nothing ends reach to the text's end, and those that nothing
/// begins start where the text does: templates begin the reply with the mark themselves.
fn without_thoughts(text: &str) -> String {
    let mut text = text.to_ascii_lowercase();
    for (mark, tag) in MARKED {
        text = text.replace(mark, tag);
    }
    text = text.replace("<|start|>assistant", "");
    if text.contains(CHANNELS[0].0) || text.contains(CHANNELS[1].0) {
        for (mark, tag) in CHANNELS {
            text = text.replace(mark, tag);
        }
    } else {
        text = text.replace(CHANNELS[2].0, "");
    }
    let (mut said, mut is_thought, mut is_first) = (String::new(), false, true);
    let mut rest = text.as_str();
    while let Some(at) = rest.find('<') {
        let (before, behind) = rest.split_at(at);
        let tag = tag_of_thoughts(behind);
        if !is_thought {
            said.push_str(before);
            if tag.is_none() {
                said.push('<');
            }
        }
        rest = &behind[tag.map_or(1, |(_, length)| length)..];
        if let Some((is_end, _)) = tag {
            if is_end && is_first {
                said.clear();
            }
            (is_thought, is_first) = (!is_end, false);
        }
    }
    if !is_thought {
        said.push_str(rest);
    }
    said
}

/// Whether a text begins with a tag of thoughts, with or without the name of its model (`<seed:think>`): whether it is their end, and its length.
fn tag_of_thoughts(text: &str) -> Option<(bool, usize)> {
    const NAMES: [&str; 5] = ["think", "thinking", "thought", "thoughts", "reasoning"];
    let (tag, _) = text.strip_prefix('<')?.split_once('>')?;
    let (is_end, name) = tag.strip_prefix('/').map_or((false, tag), |name| (true, name));
    let (model, name) = name.split_once(':').unwrap_or(("", name));
    let is_one = NAMES.contains(&name) && model.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_one.then_some((is_end, tag.len() + 2))
}

/// A text without what stands between these two marks, or behind the first one where the second is missing.
fn without_between(text: &str, begin: &str, end: &str) -> String {
    let (mut rest, mut kept) = (text, String::new());
    while let Some((before, inner)) = rest.split_once(begin) {
        kept.push_str(before);
        rest = inner.split_once(end).map_or("", |(_, behind)| behind);
    }
    kept + rest
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice in a row".to_owned(),
        count => format!("{count} times in a row"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal that its provider sends as a whole reply (`completed`) is not said to be one; what it says of refusals is.
    #[test]
    fn a_refusal_is_not_said_to_be_completed() {
        for word in ENDS_BY_ITSELF {
            let told = ReplyEnd::Refused.question(2, "I cannot.", word);
            assert_eq!(
                told,
                "The model refused, or a filter of its provider withheld the reply, twice in a row. It said: I cannot."
            );
            assert!(ReplyEnd::Refused.question(2, "", word).ends_with("It gave no reason."), "{word}");
        }
        let told = ReplyEnd::Refused.question(2, "", "refusal (category cyber)");
        assert!(told.contains("(in its provider's words: refusal (category cyber)). It said nothing."), "{told}");
        assert!(ReplyEnd::Empty.question(2, "", "stop").contains("in its provider's words: stop"));
    }

    #[test]
    fn only_something_said_that_ended_by_itself_is_a_last_word() {
        let whole: Vec<_> =
            StopReason::ALL.iter().filter(|reason| ReplyEnd::of(**reason, "Done.") == ReplyEnd::Whole).collect();
        assert_eq!(whole, [&StopReason::EndTurn, &StopReason::StopSequence]);
        assert!(StopReason::ALL.iter().all(|reason| ReplyEnd::of(*reason, " \n") != ReplyEnd::Whole));
        for nothing in ["", "\u{200b}", "\u{2060}\n", " \u{feff} ", "\u{ad}\u{200d}"] {
            assert_eq!(ReplyEnd::of(StopReason::EndTurn, nothing), ReplyEnd::Empty, "{nothing:?}");
        }
        for result in ["[]", " {}\n", "\"\"", "[[]]", ">=", "%", "?", ":)"] {
            assert_eq!(ReplyEnd::of(StopReason::EndTurn, result), ReplyEnd::Whole, "{result}");
        }
        // Whatever is put together of what says nothing says nothing, and any word beside it does.
        let nothings = [
            "",
            "...",
            "\u{2026}",
            "!!!!!!!!!!!!",
            "<think>I should mail it.</think>",
            "<think>I should",
            "<|im_end|>",
            "<|endoftext|>",
            "</s>",
            "<pad><pad>",
            "[PAD][EOS]",
            "<end_of_turn>",
            "<start_of_turn>model",
            "```\n```",
            "```",
            "\u{200b}",
            "---",
        ];
        for one in nothings {
            for other in nothings {
                let both = format!("{one}\n{other}");
                assert_eq!(ReplyEnd::of(StopReason::EndTurn, &both), ReplyEnd::Empty, "{both:?}");
                for word in ["7", "ok", "\u{597d}", "\u{2705}", "\u{434}\u{430}"] {
                    let said = format!("{word}\n{both}");
                    assert_eq!(ReplyEnd::of(StopReason::EndTurn, &said), ReplyEnd::Whole, "{said:?}");
                }
            }
        }
    }

    /// In whatever marks: thoughts alone are no answer, and an answer beside them is one.
    #[test]
    fn thoughts_in_the_marks_of_every_model_are_no_answer() {
        for (begin, end) in [
            ("<think>", "</think>"),
            ("<thinking>", "</thinking>"),
            ("<THINK>", "</THINK>"),
            ("<thought>", "</thought>"),
            ("<reasoning>", "</reasoning>"),
            ("<seed:think>", "</seed:think>"),
            ("◁think▷", "◁/think▷"),
            ("[THINK]", "[/THINK]"),
            ("<|START_THINKING|>", "<|END_THINKING|>"),
            ("<|inner_prefix|>", "<|inner_suffix|>"),
            ("<|channel|>analysis<|message|>", "<|end|>"),
            ("<|channel|>commentary<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
            ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        ] {
            for thoughts in ["I should mail it.", "Is 3 < 5, or <b>more</b>?", "", "I think:\n1. \u{597d}"] {
                for nothing in [
                    format!("{begin}{thoughts}{end}"),
                    format!("{begin}{thoughts}"),
                    format!("{begin}{thoughts}{end}\n{begin}{thoughts}{end}\n"),
                    format!("{begin}{thoughts}{end}<|return|>"),
                ] {
                    assert_eq!(ReplyEnd::of(StopReason::EndTurn, &nothing), ReplyEnd::Empty, "{nothing:?}");
                }
                for said in [format!("{begin}{thoughts}{end}\n\nSent."), format!("Sent.\n{begin}{thoughts}{end}")] {
                    assert_eq!(ReplyEnd::of(StopReason::EndTurn, &said), ReplyEnd::Whole, "{said:?}");
                }
            }
        }
        // The template has written the mark that begins them.
        assert_eq!(ReplyEnd::of(StopReason::EndTurn, "I should mail it.\n</think>\n"), ReplyEnd::Empty);
        for said in [
            "I should mail it.\n</think>\n\nSent.",
            "Sent.<|end|>",
            "<|channel|>final<|message|>Sent.<|return|>",
            "<analysis>Sales grew.</analysis>",
            "<thinker>Rodin</thinker>",
            "1 < 2",
            "<",
        ] {
            assert_eq!(ReplyEnd::of(StopReason::EndTurn, said), ReplyEnd::Whole, "{said}");
        }
    }

    #[test]
    fn a_pause_is_not_called_a_limit() {
        let paused = ReplyEnd::Cut.question(9, "So far", "pause_turn");
        assert!(paused.contains("paused by its provider") && !paused.contains("limit"), "{paused}");
        assert!(ReplyEnd::Cut.question(9, "So far", "max_tokens").contains("cut at their length limit"));
    }

    #[test]
    fn a_reply_that_was_used_up_by_thoughts_is_no_piece_of_an_answer() {
        for text in ["", " \n", "<think>I should", "<think>I should</think>", "\u{200b}"] {
            assert_eq!(ReplyEnd::of(StopReason::MaxTokens, text), ReplyEnd::Unsaid, "{text:?}");
            assert_eq!(ReplyEnd::of(StopReason::PauseTurn, text), ReplyEnd::Cut, "{text:?}");
        }
        for text in ["So far", "<think>I should</think>So far", ".", "{"] {
            assert_eq!(ReplyEnd::of(StopReason::MaxTokens, text), ReplyEnd::Cut, "{text:?}");
        }
        assert!(!ReplyEnd::Unsaid.is_given_up(MAX_UNSAID) && ReplyEnd::Unsaid.is_given_up(MAX_UNSAID + 1));
        let question = ReplyEnd::Unsaid.question(4, "", "length");
        assert!(question.contains("`max_output_tokens`") && question.contains("words: length"), "{question}");
        assert!(!ReplyEnd::Unsaid.guidance(Audience::Terminal).contains("Continue"));
    }

    #[test]
    fn what_is_no_answer_is_told_once_and_a_cut_a_few_times() {
        for end in [ReplyEnd::Refused, ReplyEnd::Empty, ReplyEnd::Odd] {
            assert!(!end.is_given_up(1) && end.is_given_up(2) && !end.guidance(Audience::Terminal).is_empty());
        }
        assert!(!ReplyEnd::Cut.is_given_up(MAX_CUTS) && ReplyEnd::Cut.is_given_up(MAX_CUTS + 1));
        assert!(ReplyEnd::Refused.question(2, "I will not.", "").ends_with("twice in a row. It said: I will not."));
        let written = ReplyEnd::Odd.question(2, "<tool_call>", &format!("stop; {CALL_IN_TEXT}"));
        assert!(
            written.contains("start it with the parser for this model") && written.ends_with("It said: <tool_call>")
        );
        assert!(!ReplyEnd::Odd.question(2, "So far", "moon_phase").contains("parser"));
        for end in [ReplyEnd::Refused, ReplyEnd::Empty, ReplyEnd::Odd, ReplyEnd::Cut, ReplyEnd::Unsaid] {
            for text in ["", "So far"] {
                let question = end.question(2, text, "moon_phase (phase: full)");
                assert!(question.contains("moon_phase (phase: full)") && !question.contains("no reason"), "{question}");
            }
        }
    }
}
