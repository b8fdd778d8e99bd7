//! Making text harmless for a terminal. Nothing of ours but this: the fuzz target `terminal` includes the file as it is.

/// Makes foreign text harmless for a terminal: control characters (escape sequences among them), bidirectional overrides
/// and whatever else nobody sees are shown as what they are. Line breaks and tabs stay.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a character drives a terminal, or hides.
pub fn is_hidden(c: char) -> bool {
    // Separators of lines and paragraphs break a line where nobody sees it.
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{FFF9}'..='\u{FFFB}')
        || is_default_ignorable(c)
}

/// Whether nothing is drawn for a character (Unicode's `Default_Ignorable_Code_Point`): words that nobody sees, and two names that look alike.
fn is_default_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFF8}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}

/// JSON in which no character drives a terminal: what may stand unescaped in a string, and should not be seen raw, is escaped.
pub fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            // Beyond the first plane JSON writes a pair.
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}
