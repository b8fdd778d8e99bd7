//! `ua db prune`: let go of large results that only finished runs refer to.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use ua_core::Timestamp;
use ua_host::home::Home;
use ua_store::{BlobPrune, BlobPruned, RunStore};

use crate::args::parse_span;
use crate::error::{HostError, OK};
use crate::output::{did, print, print_json};

/// `ua db prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua db prune --dry-run                         show what would be deleted
  ua db prune --older-than 7d --max-bytes 1000000000

Nothing is deleted that an unfinished run, or a run of its lineage, refers to. Without --older-than and --max-bytes, results that finished \
runs have not used for 30 days are deleted. The receipts stay: only the text of large results is deleted, and its space in the \
database is reused.")]
pub struct PruneArgs {
    /// What finished runs have not used for this long: a number and d, h, m or s, for example 30d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub older_than: Option<std::time::Duration>,
    /// Those unused the longest, until at most this many bytes are left
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
    /// Only show what would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How long what finished runs refer to is kept, when nobody says otherwise.
const KEPT_FOR: Duration = Duration::from_hours(30 * 24);

pub(crate) async fn run(home: &Home, args: &PruneArgs) -> Result<u8, HostError> {
    let now = ua_core::system::env().now();
    let older_than = args.older_than.or(args.max_bytes.is_none().then_some(KEPT_FOR));
    let prune = BlobPrune {
        used_before: older_than.map(|span| before(now, span)),
        max_bytes: args.max_bytes,
        dry_run: args.dry_run,
        at: now,
    };
    // Looked at read-only first, which also refuses to make a database where there is none.
    let look = home.open_read_only()?;
    let fail = |error: &ua_store::StoreError| HostError::store("prune large results", error);
    let mut pruned = look.prune_blobs(BlobPrune { dry_run: true, ..prune.clone() }).await.map_err(|e| fail(&e))?;
    ua_host::home::close(look);
    if !args.dry_run && !pruned.freed.is_empty() {
        let store = home.open_from_anywhere()?;
        pruned = store.prune_blobs(prune.clone()).await.map_err(|e| fail(&e))?;
        ua_host::home::close(store);
    }
    if !args.dry_run {
        did(in_words(&pruned, &prune));
    }
    if args.json {
        print_json(&as_json(&pruned, &prune))?;
    } else {
        print(in_words(&pruned, &prune))?;
    }
    Ok(OK)
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// The stable JSON of a prune.
fn as_json(pruned: &BlobPruned, prune: &BlobPrune) -> serde_json::Value {
    let freed = pruned.freed.iter().map(|blob| json!({"blob_id": blob.blob_id, "size_bytes": blob.size}));
    json!({
        "dry_run": prune.dry_run, "used_before": prune.used_before, "max_bytes": prune.max_bytes,
        "freed": freed.collect::<Vec<_>>(), "freed_bytes": pruned.freed_bytes(),
        "kept": pruned.kept, "kept_bytes": pruned.kept_bytes, "live": pruned.live, "live_bytes": pruned.live_bytes,
    })
}

fn in_words(pruned: &BlobPruned, prune: &BlobPrune) -> String {
    let verb = if prune.dry_run { "would free" } else { "freed" };
    let mut out = String::new();
    for blob in &pruned.freed {
        out.push_str(&format!("  {} {} bytes\n", blob.blob_id, blob.size));
    }
    out.push_str(&format!(
        "{verb} {}, {} bytes\n",
        ua_core::counted(pruned.freed.len(), "large result"),
        pruned.freed_bytes()
    ));
    out.push_str(&format!(
        "kept {}, {} bytes; {} of them, {} bytes, belong to runs that are not finished\n",
        pruned.kept, pruned.kept_bytes, pruned.live, pruned.live_bytes
    ));
    if let Some(max) = prune.max_bytes.filter(|max| pruned.kept_bytes > *max) {
        out.push_str(&format!("that is more than {max} bytes: what unfinished runs refer to is never deleted\n"));
    }
    out
}
