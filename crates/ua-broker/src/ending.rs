//! Lines, and what is none: bytes that come without the end of a line are never taken for what somebody said.
//!
//! Whoever is killed in the middle of a line leaves its beginning behind, and so does whoever is killed in front of the line's end. The
//! beginning of a message may be a message, and whoever wrote it did not get to the end of what it was about to do. So there is one reader for all
//! lines that come to the broker, and it tells the two apart; what is torn has to be taken out of its own variant.
//!
//! Proved by: this file's tests, `tests/it/torn.rs`.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// The longest line that is heard, in bytes: a message of more is one that nobody could pass on either.
pub(crate) const LONGEST: usize = 64 * 1024 * 1024;

/// What came up to the end of a line, or of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// The beginning of one whose end never came.
    Torn(Vec<u8>),
}

/// The lines of somebody.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    from: R,
    /// What came of the next line by now; whoever stops waiting for the rest loses none of it.
    begun: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Those that come from here.
    pub(crate) fn of(from: R) -> Self {
        Self { from, begun: Vec::new() }
    }

    /// The next one; `None` at the end. Nothing is lost if this is not waited for to its end.
    ///
    /// # Errors
    /// What comes cannot be read, or is a line of more than [`LONGEST`] bytes ([`io::ErrorKind::FileTooLarge`]); what follows that is no line.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        let room = LONGEST.saturating_sub(self.begun.len());
        (&mut self.from).take(room as u64).read_until(b'\n', &mut self.begun).await?;
        if self.begun.len() >= LONGEST && !self.begun.ends_with(b"\n") {
            self.begun = Vec::new();
            let why = format!("a line of more than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let mut line = std::mem::take(&mut self.begun);
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
            return Ok(Some(Line::Whole(line)));
        }
        Ok((!line.is_empty()).then_some(Line::Torn(line)))
    }

    /// The next line, if it is whole and a text; `None` for everything else, behind which nothing is to be expected.
    pub(crate) async fn next_text(&mut self) -> Option<String> {
        match self.next().await {
            Ok(Some(Line::Whole(line))) => String::from_utf8(line).ok(),
            Ok(Some(Line::Torn(begun))) => {
                tracing::warn!(bytes = begun.len(), "a line without its end was dropped");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the connection to a client broke; nothing more is read from it");
                None
            }
            Ok(None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, BufReader};

    use super::*;

    /// Cut at each place, what comes is the lines that were whole by then, and the beginning of one.
    #[tokio::test]
    async fn cut_anywhere_only_whole_lines_are_lines() {
        let text = b"12\r\n\n{\"a\":1}\n3";
        for cut in 0..=text.len() {
            let said = &text[..cut];
            let (mut whole, mut torn) = (Vec::new(), Vec::new());
            let mut lines = Lines::of(said);
            while let Some(line) = lines.next().await.unwrap() {
                match line {
                    Line::Whole(line) => whole.push(line),
                    Line::Torn(begun) => torn.push(begun),
                }
            }
            let ends = said.split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(whole, [&b"12"[..], b"", b"{\"a\":1}"][..ends].to_vec(), "{cut}");
            let rest = said.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let expected: Vec<&[u8]> = [rest].into_iter().filter(|rest| !rest.is_empty()).collect();
            assert_eq!(torn, expected, "{cut}");
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_given_up_before_it_fills_the_memory() {
        let mut lines = Lines::of(BufReader::new(tokio::io::repeat(b'x')));
        let refused = lines.next().await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert!(lines.begun.capacity() == 0, "what came of it is not kept");
        // The longest that is heard.
        let mut long = vec![b'x'; LONGEST - 1];
        long.extend(b"\n12\n");
        let mut lines = Lines::of(&long[..]);
        assert!(matches!(lines.next().await, Ok(Some(Line::Whole(line))) if line.len() == LONGEST - 1));
        assert_eq!(lines.next_text().await.as_deref(), Some("12"));
    }

    /// However what comes is parted, and however often it is waited for in vain, no byte of it is lost.
    #[tokio::test]
    async fn who_stops_waiting_loses_nothing() {
        for first in 0..6 {
            let (mut end, other) = tokio::io::duplex(64);
            let mut lines = Lines::of(BufReader::new(other));
            end.write_all(&b"first\n"[..first]).await.unwrap();
            tokio::select! {
                biased;
                line = lines.next() => panic!("{line:?}"),
                () = tokio::task::yield_now() => {}
            }
            end.write_all(&b"first\n"[first..]).await.unwrap();
            end.write_all(b"second").await.unwrap();
            assert_eq!(lines.next_text().await.as_deref(), Some("first"), "{first}");
            drop(end);
            assert_eq!(lines.next_text().await, None, "{first}");
        }
    }
}
