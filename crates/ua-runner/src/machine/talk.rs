//! What the model has said since it last asked for a tool: its answer in the making.
//!
//! A reply that was cut at its length limit, or paused, is a piece of an answer, and the replies that continue it are the other pieces. The
//! answer is all of them, joined without anything between. [`Talk::take`] is the only place where a reply becomes a piece, an answer or
//! neither; the machine feeds it the replies as they come, and a resume those that are stored, so that both hold the same. What follows
//! from an answer (its evidence, its schema, the run's result) reads a [`Word`], which no single reply can be taken for.

use ua_core::StopReason;

use super::ReplyEnd;
use super::reply_end::is_unread;

/// What the model said in one reply, or in several that continue each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    text: String,
    replies: u32,
}

impl Word {
    /// What one reply said.
    pub fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), replies: 1 }
    }

    /// The same, continued by another reply. What only had spaces so far has not begun.
    #[must_use]
    fn and(mut self, text: &str) -> Self {
        if is_unread(&self.text) {
            return Self::of(text);
        }
        self.text.push_str(text);
        self.replies = self.replies.saturating_add(1);
        self
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it came in more than one reply.
    pub fn is_joined(&self) -> bool {
        self.replies > 1
    }
}

/// The replies since the model last asked for a tool, or gave an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Talk {
    so_far: Word,
    /// Replies in a row that were no answer, since a person was last asked about them.
    vain: u32,
}

impl Talk {
    /// Of so many replies in a row that were no answer and left no piece of one.
    pub fn after_vain(vain: u32) -> Self {
        Self { vain, ..Self::default() }
    }

    /// Replies in a row that were no answer, since a person was last asked about them.
    pub fn vain(&self) -> u32 {
        self.vain
    }

    /// A reply asked for tools: what was said before it was no answer, and never will be.
    pub fn asked_for_tools(&mut self) {
        *self = Self::default();
    }

    /// Takes a reply that asks for nothing, or was refused whatever it asks for. The answer, if this one ends it.
    ///
    /// # Errors
    /// How the reply ended that is no answer.
    pub fn take(&mut self, stop_reason: StopReason, text: &str) -> Result<Word, ReplyEnd> {
        let so_far = std::mem::take(&mut self.so_far);
        let is_unsaid = ReplyEnd::of(stop_reason, text) == ReplyEnd::Unsaid;
        // Thoughts that were cut are no piece of an answer; a space between two pieces is one.
        let said = if is_unsaid && !is_unread(text) { so_far } else { so_far.and(text) };
        let end = if is_unsaid { ReplyEnd::Unsaid } else { ReplyEnd::of(stop_reason, said.text()) };
        match end {
            ReplyEnd::Whole => {
                self.vain = 0;
                return Ok(said);
            }
            ReplyEnd::Cut | ReplyEnd::Unsaid => self.so_far = said,
            // The answer is asked for anew.
            ReplyEnd::Refused | ReplyEnd::Empty | ReplyEnd::Odd => {}
        }
        self.vain = self.vain.saturating_add(1);
        Err(end)
    }

    /// The context begins anew: nothing that was said can be continued.
    pub fn begin_anew(&mut self) {
        self.so_far = Word::default();
    }

    /// A person was asked about the replies that were no answer.
    pub(crate) fn forgive(&mut self) {
        self.vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that is cut wherever a reply may be cut is the answer, whatever cut it and in how many pieces.
    #[test]
    fn an_answer_is_all_its_pieces_wherever_they_were_cut() {
        for whole in ["The first half, and the second.", "{\"a\": [1, \"zwölf\"], \"b\": null}", "1234"] {
            let cuts: Vec<usize> = whole.char_indices().map(|(at, _)| at).chain([whole.len()]).collect();
            for (n, first) in cuts.iter().enumerate() {
                for second in &cuts[n..] {
                    for reason in [StopReason::MaxTokens, StopReason::PauseTurn] {
                        let mut talk = Talk::default();
                        for piece in [&whole[..*first], &whole[*first..*second]] {
                            let is_unsaid = reason == StopReason::MaxTokens && piece.trim().is_empty();
                            let end = if is_unsaid { ReplyEnd::Unsaid } else { ReplyEnd::Cut };
                            assert_eq!(talk.take(reason, piece), Err(end));
                        }
                        let answer = talk.take(StopReason::EndTurn, &whole[*second..]).unwrap();
                        assert_eq!((answer.text(), talk), (whole, Talk::default()), "cut at {first} and {second}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_said_before_tools_a_refusal_an_answer_or_a_new_context_is_no_piece() {
        let pieces = || {
            let mut talk = Talk::default();
            talk.take(StopReason::MaxTokens, "Once, ").unwrap_err();
            talk
        };
        let after = |mut talk: Talk| talk.take(StopReason::EndTurn, "done.").unwrap();
        let mut asked = pieces();
        asked.asked_for_tools();
        let mut refused = pieces();
        assert_eq!(refused.take(StopReason::Refusal, "no"), Err(ReplyEnd::Refused));
        let mut thought = Talk::default();
        thought.take(StopReason::MaxTokens, "The first half, ").unwrap_err();
        assert_eq!(thought.take(StopReason::MaxTokens, "<think>What was the second"), Err(ReplyEnd::Unsaid));
        let answer = thought.take(StopReason::EndTurn, "and the second.").unwrap();
        assert_eq!(answer.text(), "The first half, and the second.");
        assert_eq!(refused.vain(), 2);
        let mut answered = pieces();
        assert!(answered.take(StopReason::EndTurn, "told.").unwrap().is_joined());
        let mut anew = pieces();
        anew.begin_anew();
        for talk in [asked, refused, answered, anew] {
            assert_eq!(after(talk), Word::of("done."));
        }
        assert_eq!(after(pieces()).text(), "Once, done.");
    }
}
