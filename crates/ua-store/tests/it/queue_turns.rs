//! Lines take turns among what is ready, whatever else is in the queue: many drawn queues, and the short ones first.

use ua_store::MemStore;
use ua_store::conformance::Turns;

#[tokio::test]
async fn lines_take_turns_in_every_queue_that_is_drawn() {
    for (seed, steps) in (0..400).zip((5_u32..).flat_map(|steps| [steps; 4])) {
        let store = MemStore::default();
        if let Err(why) = Turns::begin(&store, seed).await.play(steps).await {
            panic!("seed {seed}: {why}");
        }
    }
}
