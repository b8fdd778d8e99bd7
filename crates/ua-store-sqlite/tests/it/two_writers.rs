//! Two stores on one database, as two processes have: whoever comes second waits for its turn and is not refused.

use ua_core::{RunId, Timestamp};
use ua_store::RunStore as _;
use ua_store::conformance::samples;
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// Writes of each store; each reads before it writes, so a transaction that begins as a reader would find the other one's
/// commit in its way.
const WRITES: u64 = 120;

#[test]
fn a_write_that_reads_first_is_never_refused_because_another_process_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let writer = |name: &'static str| {
        let store = SqliteStore::open(SqliteConfig::new(path.clone())).unwrap();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let run = RunId::parse(name).unwrap();
                store.submit_run(samples::new_run(name)).await.unwrap();
                for epoch in 1..=WRITES {
                    let (lease, _) =
                        store.acquire_run(&run, &samples::owner(1), Timestamp::from_millis(1)).await.unwrap();
                    assert_eq!(lease.epoch, epoch, "{name}");
                }
            });
        }
    };
    let (one, other) = (writer("run_one"), writer("run_other"));
    let one = std::thread::spawn(one);
    other();
    one.join().unwrap();
}
