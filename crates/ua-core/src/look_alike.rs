//! Characters that pass for others.
//!
//! Two texts that a person takes for one are told apart by what is here: subjects that only look different, addresses that only look the same.

use crate::unseen::is_unseen;

/// Letters of other alphabets and small capitals, and the Latin one that each looks like.
const LOOK_ALIKES: [(&str, char); 26] = [
    ("αаɑᴀ", 'a'),
    ("вβьƅʙ", 'b'),
    ("сϲᴄ", 'c'),
    ("ԁᴅ", 'd'),
    ("еёεҽᴇ", 'e'),
    ("ƒꜰ", 'f'),
    ("ɡցɢ", 'g'),
    ("һнηհʜ", 'h'),
    ("іїιıɩɪ", 'i'),
    ("јᴊ", 'j'),
    ("кκᴋ", 'k'),
    ("ӏʟ", 'l'),
    ("мμᴍ", 'm'),
    ("пոɴ", 'n'),
    ("оοσօᴏ", 'o'),
    ("рρᴘ", 'p'),
    ("ԛ", 'q'),
    ("гʀ", 'r'),
    ("ѕꜱ", 's'),
    ("тτᴛ", 't'),
    ("υսᴜ", 'u'),
    ("ѵνᴠ", 'v'),
    ("ѡωԝᴡ", 'w'),
    ("хχ", 'x'),
    ("уүγʏ", 'y'),
    ("ᴢ", 'z'),
];

/// Small letters with a mark, and those without.
const MARKED: [(&str, char); 20] = [
    ("àáâãäåāăąǎȧạảấầẩẫậắằẳẵặ", 'a'),
    ("çćĉċč", 'c'),
    ("ďđḍ", 'd'),
    ("èéêëēĕėęěẹẻẽếềểễệ", 'e'),
    ("ĝğġģǧ", 'g'),
    ("ĥħḥ", 'h'),
    ("ìíîïĩīĭįǐỉị", 'i'),
    ("ĵ", 'j'),
    ("ķǩ", 'k'),
    ("ĺļľŀł", 'l'),
    ("ñńņňǹ", 'n'),
    ("òóôõöøōŏőǒọỏốồổỗộớờởỡợơ", 'o'),
    ("ŕŗř", 'r'),
    ("śŝşšș", 's'),
    ("ţťŧț", 't'),
    ("ùúûüũūŭůűųǔụủứừửữựư", 'u'),
    ("ŵẁẃẅ", 'w'),
    ("ẋẍ", 'x'),
    ("ýÿŷỳỵỷỹ", 'y'),
    ("źżžẑẓ", 'z'),
];

/// Letters and digits in another form, from the first of each row to the last: the alphabets of mathematics, in circles, brackets and squares,
/// raised and lowered digits, those of other scripts. Each row repeats what its plain form is.
const FORMS: [(u32, u32, &str); 17] = [
    (0x1d400, 0x1d6a3, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
    (0x1d7ce, 0x1d7ff, "0123456789"),
    (0x249c, 0x24b5, "abcdefghijklmnopqrstuvwxyz"),
    (0x24b6, 0x24cf, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (0x24d0, 0x24e9, "abcdefghijklmnopqrstuvwxyz"),
    (0x1f130, 0x1f149, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (0x1f150, 0x1f169, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (0x1f170, 0x1f189, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (0x1f1e6, 0x1f1ff, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (0x2460, 0x2468, "123456789"),
    (0x2080, 0x2089, "0123456789"),
    (0x2074, 0x2079, "456789"),
    (0x0660, 0x0669, "0123456789"),
    (0x06f0, 0x06f9, "0123456789"),
    (0x0966, 0x096f, "0123456789"),
    (0x2776, 0x277e, "123456789"),
    (0x2780, 0x2788, "123456789"),
];

/// Single letters and digits in another form.
const SINGLE_FORMS: [(&str, char); 31] = [
    ("ℬ", 'B'),
    ("ℂℭⅭ", 'C'),
    ("Ⅾⅅ", 'D'),
    ("ℰ", 'E'),
    ("ℱ", 'F'),
    ("ℋℌℍ", 'H'),
    ("ℐℑⅠ", 'I'),
    ("ℒⅬ", 'L'),
    ("ℳⅯ", 'M'),
    ("ℕ", 'N'),
    ("ℙ", 'P'),
    ("ℚ", 'Q'),
    ("ℛℜℝ", 'R'),
    ("Ⅴ", 'V'),
    ("Ⅹ", 'X'),
    ("ℤℨ", 'Z'),
    ("ª", 'a'),
    ("ⅽ", 'c'),
    ("ⅾⅆ", 'd'),
    ("ℯⅇ", 'e'),
    ("ℊ", 'g'),
    ("ℎ", 'h'),
    ("ℹⅈⅰⁱ", 'i'),
    ("ⅉ", 'j'),
    ("ℓⅼ", 'l'),
    ("ⅿ", 'm'),
    ("ⁿ", 'n'),
    ("ℴº", 'o'),
    ("⁰⓪", '0'),
    ("¹", '1'),
    ("²", '2'),
];

/// Several letters in one sign, spelt out.
const SEVERAL: [(char, &str); 19] = [
    ('ﬀ', "ff"),
    ('ﬁ', "fi"),
    ('ﬂ', "fl"),
    ('ﬃ', "ffi"),
    ('ﬄ', "ffl"),
    ('ﬅ', "st"),
    ('ﬆ', "st"),
    ('Ⅱ', "II"),
    ('Ⅲ', "III"),
    ('Ⅳ', "IV"),
    ('Ⅵ', "VI"),
    ('Ⅶ', "VII"),
    ('Ⅷ', "VIII"),
    ('Ⅸ', "IX"),
    ('Ⅺ', "XI"),
    ('Ⅻ', "XII"),
    ('№', "No"),
    ('™', "TM"),
    ('ß', "ss"),
];

/// The usual form of a letter or digit that is written in another one (full-width, in a circle, as mathematics has it); any other character as
/// it is.
pub fn narrow(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    let number = u32::from(c);
    if (0xff01..=0xff5e).contains(&number) {
        return char::from_u32(number - 0xfee0).unwrap_or(c);
    }
    let row = FORMS.iter().find(|(first, last, _)| (*first..=*last).contains(&number));
    let of_row = row.and_then(|(first, _, plain)| {
        let place = usize::try_from(number - first).ok()? % plain.len();
        plain.as_bytes().get(place).map(|letter| char::from(*letter))
    });
    let single = || SINGLE_FORMS.iter().find(|(forms, _)| forms.contains(c)).map(|(_, plain)| *plain);
    of_row.or_else(single).unwrap_or(if c == '³' { '3' } else { c })
}

/// What several letters in one sign stand for; `None` for any other character.
pub fn spelt_out(c: char) -> Option<&'static str> {
    SEVERAL.iter().find(|(sign, _)| *sign == c).map(|(_, letters)| *letters)
}

/// A small letter without the mark that it has (`é`, `ł`); any other character as it is.
pub fn unmarked(c: char) -> char {
    if c.is_ascii() { c } else { MARKED.iter().find(|(marked, _)| marked.contains(c)).map_or(c, |(_, plain)| *plain) }
}

/// Whether a character is a mark over, under or through the one before it.
pub fn is_mark(c: char) -> bool {
    matches!(u32::from(c), 0x300..=0x36f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20ff | 0xfe20..=0xfe2f)
}

/// The Latin letter that a small letter of another alphabet, or one in another form, looks like.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_in_any_form_is_the_plain_one() {
        let of = |text: &str| text.chars().map(narrow).collect::<String>();
        for (form, plain) in [
            ("𝗜𝗻𝘃𝗼𝗶𝗰𝗲 𝟭𝟳", "Invoice 17"),
            ("𝐈nvoice", "Invoice"),
            ("𝒜𝓏𝔄𝔷𝕬𝖟𝖠𝗓𝘈𝘻𝙰𝚣", "AzAzAzAzAzAz"),
            ("Ⓘⓝ⒜🄰🅐🅰", "InaAAA"),
            ("Ⅰnvoice", "Invoice"),
            ("ℋℓℴ", "Hlo"),
            ("①²³⁴₅٦۷८", "12345678"),
            ("Ｉｎｖｏｉｃｅ　１", "Invoice　1"),
            ("Grüße, мир", "Grüße, мир"),
        ] {
            assert_eq!(of(form), plain, "{form}");
        }
        assert_eq!((unmarked('é'), unmarked('ł'), unmarked('e'), unmarked('й')), ('e', 'l', 'e', 'й'));
        assert_eq!((spelt_out('ﬀ'), spelt_out('f')), (Some("ff"), None));
        assert!(is_mark('\u{301}') && !is_mark('e'));
    }

    #[test]
    fn no_letter_is_in_two_rows() {
        let rows = LOOK_ALIKES.iter().chain(&MARKED).chain(&SINGLE_FORMS);
        let all: Vec<char> = rows.flat_map(|(letters, _)| letters.chars()).collect();
        for (place, letter) in all.iter().enumerate() {
            assert!(!letter.is_ascii() && !all[..place].contains(letter), "{letter}");
        }
    }
}
