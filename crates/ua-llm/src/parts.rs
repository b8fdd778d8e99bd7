//! What is made of each message of a conversation, made once.
//!
//! Each request of a run has the messages of the one before, but for some that are left out and some behind them. So whatever is made of a
//! message for a request, its digest or its words on a wire, is kept for the next one.

use std::collections::VecDeque;

use ua_core::Message;

/// Messages of the request before, in order, each with what was made of it.
#[derive(Debug)]
pub(crate) struct Parts<T>(Vec<Part<T>>);

/// A message, and what was made of it.
#[derive(Debug)]
pub(crate) struct Part<T> {
    of: Message,
    pub(crate) made: T,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Parts<T> {
    /// Takes the messages of the next request, and makes of each new one what `make` does. Says how many at the beginning are those of before.
    pub(crate) fn renew(&mut self, messages: &[Message], make: impl Fn(&Message) -> T) -> usize {
        let same = self.0.iter().zip(messages).take_while(|(part, message)| part.of == **message).count();
        let mut before: VecDeque<Part<T>> = self.0.split_off(same).into();
        for message in &messages[same..] {
            let known = before.iter().position(|part| part.of == *message);
            let part = known.and_then(|left_out| before.drain(..=left_out).next_back());
            self.0.push(part.unwrap_or_else(|| Part { of: message.clone(), made: make(message) }));
        }
        same
    }

    /// What was made of each message.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|part| &part.made)
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|part| &mut part.made)
    }

    /// Whether a conversation that begins with these messages may be the one that these are of.
    pub(crate) fn begin_like(&self, messages: &[Message]) -> bool {
        self.0.first().zip(messages.first()).is_some_and(|(part, first)| part.of == *first)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ua_core::Origin;

    use super::*;

    #[test]
    fn of_each_message_it_is_made_once() {
        let (made, mut parts) = (Cell::new(0), Parts::default());
        let mut renew = |texts: &str| {
            let messages: Vec<Message> =
                texts.chars().map(|text| Message::user(Origin::Prompt, text.to_string())).collect();
            let make = |message: &Message| {
                made.set(made.get() + 1);
                message.text()
            };
            let same = parts.renew(&messages, make);
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
