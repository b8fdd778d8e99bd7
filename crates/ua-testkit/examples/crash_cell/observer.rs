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

/// How long a task works, whether or not anybody asks for it.
const WORK: Duration = Duration::from_millis(60);

/// What is remembered of one cell: by its log.
#[derive(Default)]
struct Effects {
    by_key: HashMap<String, Value>,
    counts: BTreeMap<String, u64>,
    /// Tasks by name: how often each was asked, and what came of it once it is done.
    tasks: HashMap<String, (u32, Option<Value>)>,
    /// What was done, as a listing shows it.
    done: Vec<(Timestamp, Value)>,
}

impl Effects {
    /// What shows by now.
    fn listing(&self, now: Timestamp) -> Value {
        let shown = self.done.iter().filter(|(at, _)| at.plus(LAG) <= now);
        json!({"items": shown.map(|(_, item)| item).collect::<Vec<_>>(), "more": false})
    }

    /// Does what `request` asks for, and writes it down.
    fn act(&mut self, request: &Value, log: &str, now: Timestamp) -> Outcome<Value> {
        let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
        let (tool, key) = (text("tool"), text("key"));
        let count = self.counts.entry(tool.clone()).or_default();
        *count += 1;
        let reply = match request["effect"].as_str() {
            Some("replace") => json!({"written": request["arguments"]["path"]}),
            _ => json!({"id": format!("{tool}-{count}")}),
        };
        append(log, &json!({"tool": tool, "key": key, "arguments": request["arguments"]}).to_string())?;
        self.by_key.insert(key, reply.clone());
        let item = json!({"id": format!("{tool}-{}", self.done.len()), "arguments": request["arguments"]});
        self.done.push((now, item));
        Ok(reply)
    }

    /// What a task says. The first time it is always at work, so that a process can die there however slow the machine is.
    fn poll(&mut self, id: &str) -> Value {
        let Some((asked, done)) = self.tasks.get_mut(id) else {
            return json!({"error": format!("no task is called {id}")});
        };
        *asked += 1;
        let done = done.clone().filter(|_| *asked > 1);
        done.unwrap_or_else(|| json!({"working": true}))
    }
}

/// Each cell's, by its log.
type Worlds = HashMap<String, Effects>;

/// Serves every cell of one harness thread until it is killed.
pub(crate) fn serve(options: &Options) -> Outcome<()> {
    let listener = UnixListener::bind(options.need("socket")?)?;
    let worlds: Arc<Mutex<Worlds>> = Arc::default();
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

/// Begins a task, which is done after a while. Beside the log stands which ones were begun and which are done, so that a harness can wait
/// until nothing is at work.
fn begin(world: &mut Effects, worlds: &Arc<Mutex<Worlds>>, request: &Value, log: &str, tool: &str) -> Outcome<Value> {
    let id = format!("task-{}-{tool}", world.tasks.len() + 1);
    world.tasks.insert(id.clone(), (0, None));
    let (beside, begun) = (format!("{log}.tasks"), json!({"task": id}));
    append(&beside, "begun")?;
    let (worlds, request, log) = (Arc::clone(worlds), request.clone(), log.to_owned());
    std::thread::spawn(move || {
        std::thread::sleep(WORK);
        let mut worlds = worlds.lock().unwrap_or_else(PoisonError::into_inner);
        let world = worlds.entry(log.clone()).or_default();
        let done = world.act(&request, &log, ua_core::system::env().now());
        let ended = done.and_then(|done| {
            world.tasks.entry(id).or_default().1 = Some(done);
            append(&beside, "ended")
        });
        if let Err(error) = ended {
            eprintln!("observer: {error}");
        }
    });
    Ok(begun)
}

fn append(path: &str, line: &str) -> Outcome<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

/// One request on one connection: `{"log", "tool", "effect", "key", "arguments"}` → what the tool says.
fn answer(connection: UnixStream, worlds_of_all: &Arc<Mutex<Worlds>>) -> Outcome<()> {
    let mut line = String::new();
    BufReader::new(connection.try_clone()?).read_line(&mut line)?;
    let request: Value = serde_json::from_str(&line)?;
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let (log, tool, key) = (text("log"), text("tool"), text("key"));
    let now = ua_core::system::env().now();
    let reply = {
        let mut worlds = worlds_of_all.lock().unwrap_or_else(PoisonError::into_inner);
        let world = worlds.entry(log.clone()).or_default();
        let known = match request["effect"].as_str() {
            Some("read") => Some(json!({"page": "the same for ever"})),
            Some("listing") => Some(world.listing(now)),
            Some("keyed") => world.by_key.get(&key).cloned(),
            Some("poll") => Some(world.poll(&key)),
            Some("task") => Some(begin(world, worlds_of_all, &request, &log, &tool)?),
            _ => None,
        };
        if let Some(known) = known { known } else { world.act(&request, &log, now)? }
    };
    let mut connection = connection;
    connection.write_all(format!("{reply}\n").as_bytes())?;
    Ok(())
}
