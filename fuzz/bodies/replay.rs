//! Replays the corpus of a target: each input as it is, cut anywhere, and changed a little by chance that is always the same.

use std::path::Path;

/// Inputs made of one of the corpus by chance.
const CHANGED: u32 = 150;

/// Bytes that mean something to readers.
const MARKS: &[u8] = b"\"{}[],:\\\x1b\0\n=.$";

/// Gives every input to `check`, which panics where the code under test does not keep its word.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        usize::try_from(chance % (below.max(1) as u64)).unwrap_or(0)
    };
    for file in files {
        let input = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        check(&input);
        for cut in (0..input.len()).step_by((input.len() / 64).max(1)) {
            check(&input[..cut]);
        }
        for _ in 0..CHANGED {
            let mut changed = input.clone();
            for _ in 0..=next(4) {
                let at = next(changed.len());
                match next(4) {
                    0 if !changed.is_empty() => changed[at] = u8::try_from(next(256)).unwrap_or(0),
                    1 if !changed.is_empty() => drop(changed.remove(at)),
                    2 => changed.insert(at, MARKS[next(MARKS.len())]),
                    _ => {
                        let piece: Vec<u8> = changed.iter().skip(at).take(next(16)).copied().collect();
                        changed.extend(piece);
                    }
                }
            }
            check(&changed);
        }
    }
}
