//! Words in a scope, whatever their dress.
//!
//! A model that is asked again writes `Re: invoice 17!` for `Invoice 17`. Somebody who reads both sees one subject, so they have one
//! scope, and the second mail is asked about. What is folded: letter case, spaces, punctuation, marks of answers and forwards in front,
//! characters that nobody sees, letters and digits in other forms (full-width, in circles, as mathematics has them, several in one sign),
//! accents, letters of other alphabets that look like Latin ones, and the encoded words of mail (`=?utf-8?q?Invoice_17?=`). Digits and other wording (`Your invoice no. 17`) stay apart, and so do
//! Latin letters that look like others in some types (`l` and `I`).

use ua_core::{is_mark, is_unseen, latin_look_alike, narrow, spelt_out, unmarked};

use crate::encoded_words;

/// Arguments that hold words for people, of effects that send words to people.
const WORDS: [&str; 14] = [
    "body",
    "caption",
    "comment",
    "content",
    "html",
    "markdown",
    "markdown_text",
    "message",
    "msg",
    "note",
    "reply",
    "subject",
    "text",
    "title",
];
/// Verbs of effects that tell people something, whatever it is called: `discord.send`, `sms.send`, `ticket.reply`.
const TELLING: [&str; 6] = ["comment", "forward", "notify", "post", "reply", "send"];
/// What is for people to read, whatever is done with it: `text_message.create`.
const MESSAGES: [&str; 5] = ["email", "mail", "message", "notification", "sms"];

/// Whether the argument `name` of a call with this effect is worded for people.
pub(crate) fn is_wording(effect: &str, name: &str) -> bool {
    let Some((object, verb)) = effect.split_once('.') else { return false };
    let sends_words = TELLING.contains(&verb) || object.split('_').any(|word| MESSAGES.contains(&word));
    sends_words && WORDS.contains(&name)
}

/// Marks of answers and forwards, as mail programs of several languages write them.
const MARKS: [&str; 10] = ["antw", "aw", "fw", "fwd", "re", "ref", "rv", "sv", "vs", "wg"];

/// The words of `text`; its pictures and other signs when it has none, and nothing when it is of spaces, punctuation and marks of answers.
pub(crate) fn fold(text: &str) -> String {
    let shown = if text.contains("=?") { encoded_words::decoded(text) } else { text.to_owned() };
    let letters: String = shown
        .chars()
        .filter(|c| !is_unseen(*c) && !is_mark(*c))
        .flat_map(|c| spelt_out(c).map_or_else(|| vec![narrow(c)], |letters| letters.chars().collect()))
        .flat_map(char::to_lowercase)
        .filter(|c| !is_mark(*c))
        .map(|c| unmarked(latin_look_alike(c).unwrap_or(c)))
        .collect();
    // Behind the marks, so that a subject that only has words like them keeps them.
    let unmarked = without_marks(&letters);
    let folded = words(unmarked);
    if !folded.is_empty() {
        return folded;
    }
    unmarked.chars().filter(|c| !c.is_whitespace() && !is_punctuation(*c)).collect()
}

/// Punctuation of any script that is used in letters to people; a picture is none.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c, '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}' | '\u{2010}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}')
}

fn words(text: &str) -> String {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Takes `re:`, `fwd[2]:` and the like from the front.
fn without_marks(mut text: &str) -> &str {
    while let Some((mark, rest)) = text.split_once(':') {
        let mark =
            mark.trim().trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '[' | ']' | '(' | ')' | '^'));
        if !MARKS.contains(&mark.trim()) {
            break;
        }
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subject_in_many_dresses_is_one() {
        for dress in [
            "Invoice 17",
            "INVOICE 17",
            "  Invoice\t 17 ",
            "Invoice 17!",
            "\"Invoice: 17\"",
            "Re: Invoice 17",
            "AW: Fwd: RE[2]: Invoice 17",
            "Invo\u{200b}ice\u{ad} 17",
            "Inv\u{43e}ic\u{435} 17",
            "Ｉｎｖｏｉｃｅ １７",
            "\u{202e}Invoice 17",
            "𝗜𝗻𝘃𝗼𝗶𝗰𝗲 𝟭𝟳",
            "𝐈nvoice 17",
            "Ⓘnvoice 17",
            "Ⅰnvoice ①⑦",
            "Invoíce 17",
            "Invoi\u{301}ce 17",
            "ɪɴᴠᴏɪᴄᴇ 17",
            "=?utf-8?q?Invoice_17?=",
            "Re: =?utf-8?b?SW52b2ljZSAxNw==?=",
            "=?utf-8?q?Inv?= =?utf-8?q?oice?= 17",
            "=?utf-8?q?Re=3A_Invoice_17?=",
        ] {
            assert_eq!(fold(dress), "invoice 17", "{dress:?}");
        }
    }

    #[test]
    fn what_means_another_thing_stays_apart() {
        for other in
            ["Invoice 18", "Invoice 1 7", "Invoice 1.7", "Your invoice no. 17", "Re", "Re:", "!!!", "?", "Счёт 17"]
        {
            assert_ne!(fold(other), "invoice 17", "{other:?}");
        }
        assert_eq!((fold("Maу oﬀers"), fold("Straße")), (fold("May offers"), fold("strasse")));
        assert_ne!(fold("👍"), fold("👎"));
        assert_eq!((fold("Re"), fold("👍!").as_str()), ("re".to_owned(), "👍"));
        for nothing in ["", " ", "!!!", "?", "Re:", "Fwd: AW:", "re: !", "\u{200b}", "…", "—", "\u{a0}", "»«"] {
            assert_eq!(fold(nothing), "", "{nothing:?}");
        }
        assert!(is_wording("email.send", "subject") && is_wording("message.post", "text"));
        for effect in ["discord.send", "whatsapp.reply", "text_message.create", "sms.send", "issue.comment"] {
            assert!(is_wording(effect, "text") && !is_wording(effect, "channel"), "{effect}");
        }
        assert!(!is_wording("file.upload", "text") && !is_wording("email.send", "amount"));
    }
}
