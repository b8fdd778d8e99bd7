//! What is made of the messages of a conversation, made once.
//!
//! Each request of a run has the messages of the one before, but for some that are left out and some behind them. So whatever is made of a
//! message for a request, its digest or its words on a wire, is kept for the next one.

use std::collections::VecDeque;

use ua_core::Message;

/// Pieces of the request before, in order, each with what was made of it. A piece is a message, or neighbours that a wire says as one.
#[derive(Debug)]
pub(crate) struct Parts<T>(Vec<Part<T>>);

#[derive(Debug)]
struct Part<T> {
    of: Vec<Message>,
    made: T,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Parts<T> {
    /// Takes the pieces of the next request, and makes of each new one what `make` does. Says how many at the beginning are those of before.
    pub(crate) fn renew<'m>(
        &mut self,
        pieces: impl Iterator<Item = &'m [Message]>,
        make: impl Fn(&'m [Message]) -> T,
    ) -> usize {
        let mut pieces = pieces.peekable();
        let mut same = 0;
        while pieces.next_if(|piece| self.0.get(same).is_some_and(|part| part.of == **piece)).is_some() {
            same += 1;
        }
        let mut before: VecDeque<Part<T>> = self.0.split_off(same).into();
        for piece in pieces {
            let known = before.iter().position(|part| part.of == *piece);
            let part = known.and_then(|left_out| before.drain(..=left_out).next_back());
            self.0.push(part.unwrap_or_else(|| Part { of: piece.to_vec(), made: make(piece) }));
        }
        same
    }

    /// What was made of each piece.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|part| &part.made)
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|part| &mut part.made)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ua_core::Origin;

    use super::*;

    #[test]
    fn of_each_piece_it_is_made_once() {
        let (made, mut parts) = (Cell::new(0), Parts::default());
        let mut renew = |texts: &str| {
            let messages: Vec<Message> =
                texts.chars().map(|text| Message::user(Origin::Prompt, text.to_string())).collect();
            let make = |piece: &[Message]| {
                made.set(made.get() + 1);
                piece[0].text()
            };
            let same = parts.renew(messages.chunks(1), make);
            let all: String = parts.iter().map(String::as_str).collect();
            (all, same, made.replace(0))
        };
        assert_eq!(renew("jab"), ("jab".to_owned(), 0, 3));
        assert_eq!(renew("jabcd"), ("jabcd".to_owned(), 3, 2));
        assert_eq!(renew("j1cde"), ("j1cde".to_owned(), 1, 2), "two are left out, and one stands for them");
        assert_eq!(renew("j1cdece"), ("j1cdece".to_owned(), 5, 2));
        assert_eq!(renew("x"), ("x".to_owned(), 0, 1));
        assert_eq!(renew(""), (String::new(), 0, 0));
    }
}
