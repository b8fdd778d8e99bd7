//! Characters that pass for others.
//!
//! Two texts that a person takes for one are told apart by what is here: subjects that only look different, addresses that only look the same.

use crate::unseen::is_unseen;

/// Letters of other alphabets, and the Latin one that each looks like.
const LOOK_ALIKES: [(&str, char); 24] = [
    ("αаａ", 'a'),
    ("вβ", 'b'),
    ("сϲ", 'c'),
    ("ԁ", 'd'),
    ("еёε", 'e'),
    ("ƒ", 'f'),
    ("ɡ", 'g'),
    ("һнη", 'h'),
    ("іїιı", 'i'),
    ("ј", 'j'),
    ("кκ", 'k'),
    ("ӏ", 'l'),
    ("мμ", 'm'),
    ("пո", 'n'),
    ("оοσօ", 'o'),
    ("рρ", 'p'),
    ("ԛ", 'q'),
    ("г", 'r'),
    ("ѕ", 's'),
    ("тτ", 't'),
    ("υս", 'u'),
    ("ѵν", 'v'),
    ("ѡω", 'w'),
    ("хχ", 'x'),
];

/// The usual form of a full-width character; any other one as it is.
pub fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        c => c,
    }
}

/// The Latin letter that a small letter of another alphabet, or a full-width one, looks like.
pub fn latin_look_alike(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    let listed = LOOK_ALIKES.iter().find(|(like, _)| like.contains(c)).map(|(_, latin)| *latin);
    listed.or_else(|| Some(narrow(c)).filter(char::is_ascii))
}

/// What a person cannot see of a text that they are asked about: which characters pass for others. `None` when it has none of these.
///
/// ```
/// assert_eq!(ua_core::look_alikes_in("team@example.org"), None);
/// let note = ua_core::look_alikes_in("t\u{435}am@example.org").unwrap();
/// assert_eq!(note, "its \u{435} is U+0435, which only looks like e");
/// ```
pub fn look_alikes_in(text: &str) -> Option<String> {
    let mut notes: Vec<String> = Vec::new();
    for c in text.chars().filter(|c| !c.is_ascii()) {
        let note = match c.to_lowercase().find_map(latin_look_alike) {
            Some(latin) => format!("its {c} is U+{:04X}, which only looks like {latin}", u32::from(c)),
            None if is_unseen(c) => format!("it contains U+{:04X}, which nobody sees", u32::from(c)),
            None => continue,
        };
        if !notes.contains(&note) && notes.len() < 5 {
            notes.push(note);
        }
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}
