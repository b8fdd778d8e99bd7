//! The outside world: effects happen here, and are written down here and nowhere else.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use ua_core::Timestamp;

use crate::options::{Options, Outcome};

/// How long what was done does not show to those who ask.
const LAG: Duration = Duration::from_millis(150);

/// What is remembered of one cell: by its log.
#[derive(Default)]
struct Effects {
    by_key: HashMap<String, Value>,
    counts: BTreeMap<String, u64>,
    /// What was done, as a listing shows it.
    done: Vec<(Timestamp, Value)>,
}

impl Effects {
    /// What shows by now.
    fn listing(&self, now: Timestamp) -> Value {
        let shown = self.done.iter().filter(|(at, _)| at.plus(LAG) <= now);
        json!({"items": shown.map(|(_, item)| item).collect::<Vec<_>>(), "more": false})
    }
}

/// Serves every cell of one harness thread until it is killed.
pub(crate) fn serve(options: &Options) -> Outcome<()> {
    let listener = UnixListener::bind(options.need("socket")?)?;
    let worlds: Arc<Mutex<HashMap<String, Effects>>> = Arc::default();
    for connection in listener.incoming() {
        let (connection, worlds) = (connection?, Arc::clone(&worlds));
        std::thread::spawn(move || {
            if let Err(error) = answer(connection, &worlds) {
                eprintln!("observer: {error}");
            }
        });
    }
    Ok(())
}

/// One request on one connection: `{"log", "tool", "effect", "key", "arguments"}` → what the tool says.
fn answer(connection: UnixStream, worlds: &Mutex<HashMap<String, Effects>>) -> Outcome<()> {
    let mut line = String::new();
    BufReader::new(connection.try_clone()?).read_line(&mut line)?;
    let request: Value = serde_json::from_str(&line)?;
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let (log, tool, key) = (text("log"), text("tool"), text("key"));
    let now = ua_core::system::env().now();
    let reply = {
        let mut worlds = worlds.lock().unwrap_or_else(PoisonError::into_inner);
        let world = worlds.entry(log.clone()).or_default();
        let known = match request["effect"].as_str() {
            Some("read") => Some(json!({"page": "the same for ever"})),
            Some("listing") => Some(world.listing(now)),
            Some("keyed") => world.by_key.get(&key).cloned(),
            _ => None,
        };
        if let Some(known) = known {
            known
        } else {
            let count = world.counts.entry(tool.clone()).or_default();
            *count += 1;
            let reply = match request["effect"].as_str() {
                Some("replace") => json!({"written": request["arguments"]["path"]}),
                _ => json!({"id": format!("{tool}-{count}")}),
            };
            let line = json!({"tool": tool, "key": key, "arguments": request["arguments"]});
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
            file.write_all(format!("{line}\n").as_bytes())?;
            world.by_key.insert(key, reply.clone());
            let item = json!({"id": format!("{tool}-{}", world.done.len()), "arguments": request["arguments"]});
            world.done.push((now, item));
            reply
        }
    };
    let mut connection = connection;
    connection.write_all(format!("{reply}\n").as_bytes())?;
    Ok(())
}
