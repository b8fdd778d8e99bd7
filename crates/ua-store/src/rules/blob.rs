//! What is read under a reference, and which blobs may go.

use ua_core::{BlobRef, Timestamp};

use crate::blob_store::{Blob, BlobPrune, BlobPruned, BlobUse};

/// What is found under a reference, given what the store has: the content, or when it was pruned.
pub fn blob_read(blob: &BlobRef, content: Option<String>, pruned_at: Option<Timestamp>) -> Blob {
    let Some(text) = content else { return Blob::Missing { pruned_at } };
    if blob.vouches_for(&text) {
        return Blob::Here(text);
    }
    let why = format!("its {} bytes are not the {} bytes that were stored under this name", text.len(), blob.size);
    Blob::Corrupt { why }
}

/// What a prune takes of `uses`: first what was not used for long enough, then, the longest unused first, what is over the size
/// limit. Nothing live is ever taken, even if what stays is over the limit.
pub fn blobs_pruned(mut uses: Vec<BlobUse>, prune: &BlobPrune) -> BlobPruned {
    uses.sort_by(|a, b| (a.used_at, &a.blob.blob_id).cmp(&(b.used_at, &b.blob.blob_id)));
    let mut bytes: u64 = uses.iter().map(|used| used.blob.size).sum();
    let mut pruned = BlobPruned::default();
    for used in uses {
        let is_old = prune.used_before.is_some_and(|instant| used.used_at < instant);
        let is_too_much = prune.max_bytes.is_some_and(|max| bytes > max);
        if !used.is_live && (is_old || is_too_much) {
            bytes -= used.blob.size;
            pruned.freed.push(used.blob);
            continue;
        }
        pruned.kept += 1;
        pruned.kept_bytes += used.blob.size;
        if used.is_live {
            pruned.live += 1;
            pruned.live_bytes += used.blob.size;
        }
    }
    pruned
}

#[cfg(test)]
mod tests {
    use ua_core::{BlobRef, Timestamp};

    use super::*;

    fn used(size: u64, at: i64, is_live: bool) -> BlobUse {
        let blob = BlobRef { size, ..BlobRef::of(&format!("{size} {at}")) };
        BlobUse { blob, used_at: Timestamp::from_millis(at), is_live }
    }

    fn sizes(uses: &[BlobUse], used_before: Option<i64>, max_bytes: Option<u64>) -> Vec<u64> {
        let used_before = used_before.map(Timestamp::from_millis);
        let prune = BlobPrune { used_before, max_bytes, dry_run: true, at: Timestamp::from_millis(0) };
        let pruned = blobs_pruned(uses.to_vec(), &prune);
        let all: u64 = uses.iter().map(|used| used.blob.size).sum();
        assert_eq!(pruned.freed_bytes() + pruned.kept_bytes, all);
        assert_eq!(pruned.freed.len() as u64 + pruned.kept, uses.len() as u64);
        pruned.freed.iter().map(|blob| blob.size).collect()
    }

    #[test]
    fn the_longest_unused_go_first_and_nothing_live_ever_goes() {
        let uses = [used(40, 4, false), used(10, 1, false), used(20, 2, true), used(30, 3, false)];
        assert_eq!(sizes(&uses, None, None), [0; 0]);
        assert_eq!(sizes(&uses, Some(3), None), [10]);
        assert_eq!(sizes(&uses, Some(99), None), [10, 30, 40]);
        assert_eq!(sizes(&uses, None, Some(100)), [0; 0]);
        assert_eq!(sizes(&uses, None, Some(90)), [10]);
        assert_eq!(sizes(&uses, None, Some(89)), [10, 30]);
        assert_eq!(sizes(&uses, None, Some(0)), [10, 30, 40]);
        assert_eq!(sizes(&uses, Some(2), Some(60)), [10, 30]);
    }
}
