//! Places within a word: what a program may take for a path in an option, a list of paths, or a value.

use std::path::{Path, PathBuf};

/// The pieces of a word that may each be a path, the word itself among them: behind `=`, in lists with `:`, `;` or `,`, behind the letter of an
/// option (`-Ilib`), behind `@` and `!`, and the folder in front of a pattern (`lib/?.lua`, `lib/*`).
pub(super) fn pieces(word: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ':' | ';' | ',' | '=');
    let mut all = vec![word];
    for part in word.split(ends) {
        let part = part.trim_matches(['"', '\'', '`']).trim_start_matches(['@', '!']);
        all.push(part);
        if let Some(letters) = part.strip_prefix('-').filter(|rest| !rest.starts_with('-')) {
            all.extend(letters.char_indices().nth(1).map(|(at, _)| letters[at..].trim_start_matches('@')));
        }
        if let Some(at) = part.find(['?', '*']) {
            all.extend(part[..at].rfind('/').map(|end| &part[..end]));
        }
    }
    all.retain(|piece| !piece.is_empty());
    all.dedup();
    all
}

/// The same of a word whose blanks belong to it: the word, what is behind `=`, and behind the letter of an option.
pub(super) fn whole_pieces(word: &str) -> impl Iterator<Item = &str> {
    let value = word.split_once('=').map(|(_, value)| value);
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let behind = letters.and_then(|rest| rest.char_indices().nth(1).map(|(at, _)| &rest[at..]));
    [Some(word), value, behind].into_iter().flatten().filter(|piece| !piece.is_empty())
}

/// Where a piece leads that is there and belongs to the checkout: it is relative, or below the folder that the program works in. The system's
/// own folders do not change by a checkout.
pub(super) fn inside(base: &Path, piece: &str) -> Option<PathBuf> {
    let path = base.join(piece);
    let is_ours = Path::new(piece).is_relative() || path.starts_with(base);
    (is_ours && path.exists()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_wherever_it_stands_in_a_word() {
        for word in [
            "lib",
            "-Ilib",
            "@lib",
            "--a=lib",
            "a:lib",
            "lib:a",
            "/no:lib",
            "EXEC:lib",
            "-javaagent:lib",
            "x;lib,y",
            "!lib",
            "a=!lib",
            "--require lib",
            "lib/*",
            "lib/?.lua",
            "\"lib\"",
            "type=bind,source=lib,target=/p",
            "-r@lib",
        ] {
            assert!(pieces(word).contains(&"lib"), "{word}: {:?}", pieces(word));
        }
        assert_eq!(pieces(""), [""; 0]);
        assert!(!pieces("--lib").contains(&"lib") && !pieces("mylib").contains(&"lib"));
    }
}
