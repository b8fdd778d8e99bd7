//! Tool calls: each comes with a permit, is sent to the process that it was committed for or not at all, and its answer is handed to the
//! ledger.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{
    CallId, Destination, Env, Handle, KeyChannel, Outcome, RawReply, RunId, SideEffectClass, Timestamp,
    ToolAnnotations, ToolName, ToolNamespace, ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, LookAt, MayAct, Payload, Permit, ToolTransport, TransportError, verify_key};
use ua_mcp::{
    Horizon, LONGEST_FOR_OTHERS, LockDir, PATIENCE_FOR_READS, UNKNOWN, argument_headers, destination_of_login,
    out_of_time, time_of,
};

use super::process::{Process, Unanswered};
use super::{PATIENCE, Reach, Upstream, lock};
use crate::era;
use crate::given::Given;
use crate::incoming::CALL;
use crate::live::Sent;

/// How often a tool may ask for something before it has a result.
pub(super) const MOST_ROUNDS: u32 = 20;

/// Of how many calls it is kept what their errors said beside their words.
const MOST_KEPT: usize = 1_000;

/// The tool server of a connection as one road to it knows it: as long as its tools are those that were listed. When they are others, nothing
/// goes this way any more, since what was decided about each call was decided about the tool that was listed.
pub(crate) struct AsListed {
    upstream: Arc<Upstream>,
    edition: OnceLock<u64>,
}

impl AsListed {
    pub(crate) fn new(upstream: Arc<Upstream>) -> Self {
        Self { upstream, edition: OnceLock::new() }
    }

    /// Whether its tools are those that were listed, as far as is known.
    fn is_current(&self) -> bool {
        self.edition.get().is_some_and(|edition| self.upstream.tools().is_edition(*edition))
    }

    /// Whether calls may be planned by what was listed: nobody knows of another edition. Whether there is one is looked at before anything is
    /// sent.
    pub(crate) fn may_be_planned_by(&self) -> bool {
        self.edition.get().is_some_and(|edition| self.upstream.tools().is_newest(*edition))
    }

    /// Why nothing goes this way.
    fn changed(&self) -> String {
        let what = self.upstream.tools().last_change();
        format!(
            "they changed since they were listed{what}. Look at them again, and make the call again if it is still wanted"
        )
    }
}

#[async_trait]
impl ToolTransport for AsListed {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let server = &self.upstream.launch.name;
        let listed = self.upstream.list().await;
        let (edition, tools) = listed.map_err(|why| TransportError::NotListed { server: server.clone(), why })?;
        let _first = self.edition.set(edition);
        Ok(tools.iter().filter_map(|tool| spec(server, tool)).collect())
    }

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        self.upstream.working_folder()
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.upstream.look_after_silence().await;
        let ready = self.upstream.looked_at().await;
        let (process, edition) = ready.map_err(|why| TransportError::NotStarted {
            server: server.to_owned(),
            why,
            may_pass: true,
            look_at: LookAt::Command,
        })?;
        if self.edition.get() != Some(&edition) {
            return Err(TransportError::Changed { server: server.to_owned(), why: self.changed() });
        }
        Ok(self.upstream.generation_of(&process))
    }

    fn running(&self, _server: &str) -> Option<String> {
        let process = self.upstream.process.try_lock().ok()?.clone()?;
        let is_so = !process.has_ended() && process.is_looked_at() && self.is_current();
        is_so.then(|| self.upstream.generation_of(&process))
    }

    fn is_silent(&self, _server: &str) -> bool {
        let process = self.upstream.process.try_lock();
        process.is_ok_and(|process| process.as_ref().is_some_and(|process| process.is_silent()))
    }

    /// A session has one tool server, known by where it sends and as whom (`server_id.rs`): with another one it is another
    /// session. A login there (`ua login`) makes no other session, where an equal effect would be made again for whoever only logged in anew; what
    /// is in doubt is asked about when it is another one.
    fn destination(&self, _tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.upstream.destination().map_err(|why| {
            let server = self.upstream.launch.name.clone();
            TransportError::NotIdentified { server, why }
        })
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        if !self.is_current() {
            return Outcome::NotSent { why: self.changed() };
        }
        self.upstream.send(permit).await
    }

    /// What is asked of a task only looks, whatever the tools are by now.
    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let outcome = self.upstream.follow(permit, handle).await?;
        self.upstream.note_reply(&permit.call().call_id, &outcome);
        Ok(outcome)
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.upstream.abandon(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let params = json!({"name": enquiry.tool().tool, "arguments": enquiry.arguments()});
        let asked = async {
            let (process, edition) = self.upstream.looked_at().await?;
            // What was a read when it was listed may be none any more.
            if self.edition.get() != Some(&edition) {
                return Err(self.changed());
            }
            self.upstream.check_login(&process, enquiry.destination()).await?;
            let result = self.upstream.look(&process, "tools/call", &params).await?;
            // One that asks, or goes on with it as a task, has not answered.
            Upstream::outcome_of(&process, result).map_err(|why| why.to_string())
        };
        asked.await.unwrap_or_else(|why| Outcome::NotSent { why })
    }

    fn horizon(&self, _server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        let remote = generation.split_once('/').map(|(_, own)| own).filter(|own| Horizon::is_remote(own));
        remote.map_or(Duration::ZERO, |own| self.upstream.launch.horizon.left(own, lost_at))
    }

    fn may_act(&self, _server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.upstream.may_act(generation, ended_at)
    }

    fn generation_unknown(&self, _server: &str) -> Option<String> {
        let is_remote = matches!(self.upstream.launch.reach, Reach::Url { .. });
        is_remote.then(|| format!("{}/{}", self.upstream.launch.holder, Horizon::generation(UNKNOWN)))
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if self.upstream.is_used(generation).await {
            return Fence::Gone;
        }
        self.fence(server, generation, lost_at).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.upstream.fence(server, generation, lost_at).await
    }
}

/// What is left of a generation of whichever connection or run, which nobody ends for that.
pub(crate) fn may_act_of_another(
    horizon: &Horizon,
    locks: &LockDir,
    generation: &str,
    ended_at: Option<Timestamp>,
) -> MayAct {
    let own = generation.rsplit_once('/').map_or(generation, |(_, own)| own);
    if Horizon::is_remote(own) {
        return horizon.of_another(own, ended_at);
    }
    if locks.is_there(own) { MayAct::Yes } else { MayAct::No }
}

/// Ends what is left of a process that another connection started. `locks` is where locks are.
pub(crate) async fn fence_of_another(locks: &Path, env: &Env, server: &str, generation: &str) -> Fence {
    let Some((Ok(holder), own)) = generation.split_once('/').map(|(holder, own)| (RunId::parse(holder), own)) else {
        return Fence::Alive { detail: format!("`{generation}` names no process of the gateway") };
    };
    match LockDir::new(locks, holder, env.clone()) {
        Ok(locks) => locks.fence(server, own).await,
        Err(error) => Fence::Alive { detail: format!("its lock cannot be found: {error}") },
    }
}

impl Upstream {
    /// Where calls go, as far as the session does not say it: with which login.
    fn destination(&self) -> Result<Option<Destination>, String> {
        let (Reach::Url { url, .. }, Some(key), Some(logins)) =
            (&self.launch.reach, &self.launch.login_key, &self.launch.logins)
        else {
            return Ok(None);
        };
        let login = logins.identity(url).map_err(|error| error.to_string())?;
        Ok(destination_of_login(key, login.as_deref()))
    }

    /// Checks that what is sent to a process goes with the login that it was decided for. The error says why nothing is sent.
    pub(super) async fn check_login(&self, process: &Process, decided: Option<&Destination>) -> Result<(), String> {
        let (Some(decided), Some(key)) = (decided, &self.launch.login_key) else { return Ok(()) };
        let login = process.login().await?;
        if destination_of_login(key, login.as_deref()).as_ref() == Some(decided) {
            return Ok(());
        }
        Err("the login at its tool server is another one than when it was decided".to_owned())
    }

    /// What is left of a generation of whichever connection or run.
    pub(crate) fn may_act(&self, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        may_act_of_another(&self.launch.horizon, &self.locks, generation, ended_at)
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if let Some((_, own)) = generation.split_once('/')
            && Horizon::is_remote(own)
        {
            self.launch.horizon.pass(own, lost_at).await;
            return Fence::Gone;
        }
        match generation.split_once('/') {
            Some((holder, own)) if holder == self.launch.holder.as_str() => {
                self.take_away(own).await;
                self.locks.fence(server, own).await
            }
            Some(_) | None => fence_of_another(&self.launch.locks, &self.env, server, generation).await,
        }
    }

    /// Takes a process of this connection away from new calls, once no call with an effect is under way in it, or after so long as these are waited
    /// for.
    async fn take_away(&self, generation: &str) {
        let until = self.env.now().plus(LONGEST_FOR_OTHERS);
        loop {
            let mut running = self.process.lock().await;
            let Some(process) = running.clone().filter(|process| process.generation == generation) else { return };
            if process.has_ended() || !process.effects.are_under_way() || self.env.now() >= until {
                process.ends_for_another();
                *running = None;
                return;
            }
            drop(running);
            process.effects.over(until, &self.env).await;
        }
    }

    /// Looks whether a session is still known that has been silent for long; the next one is begun where it is not.
    async fn look_after_silence(&self) {
        let process = self.process.lock().await.clone();
        if let Some(process) = process.filter(|process| !process.has_ended() && process.is_silent()) {
            process.look().await;
        }
    }

    /// Whether a call with an effect is under way in this generation.
    async fn is_used(&self, generation: &str) -> bool {
        let running = self.process.lock().await.clone();
        let own = generation.rsplit_once('/').map_or(generation, |(_, own)| own);
        running
            .is_some_and(|process| process.generation == own && !process.has_ended() && process.effects.are_under_way())
    }

    /// One request of our own, which only looks.
    pub(super) async fn look(&self, process: &Process, method: &str, params: &Value) -> Result<Value, String> {
        let answer = tokio::select! {
            answer = process.request(method, self.prepared(process, params.clone())) => {
                answer.map_err(|why| why.to_string())?
            }
            () = self.env.clock.sleep(PATIENCE) => return Err(format!("it did not answer {method} in time")),
        };
        match (answer.get("result"), answer.get("error")) {
            (Some(result), _) => Ok(result.clone()),
            (None, error) => {
                Err(error.map_or_else(|| "it answered nothing".to_owned(), |error| error["message"].to_string()))
            }
        }
    }

    async fn send(&self, permit: &Permit) -> Outcome {
        let running = self.process.lock().await;
        let process = running
            .clone()
            .filter(|process| !process.has_ended() && self.generation_of(process) == permit.generation());
        let Some(process) = process else {
            return Outcome::NotSent { why: "the process it was meant for has ended".to_owned() };
        };
        // Under the lock by which a process is taken away from new calls.
        let _effect = (!permit.call().policy.is_free_read()).then(|| process.effects.one());
        drop(running);
        if let Err(why) = self.check_login(&process, permit.destination()).await {
            return Outcome::NotSent { why };
        }
        let given = lock(&self.given).get(&permit.call().call_id).cloned();
        // What is stored is without the secrets that the client put in; what is sent is as the client gave it.
        let whole = match &given {
            Some(given) => given.whole(permit.arguments()),
            None => Given::nothing(permit.arguments()),
        };
        let arguments = match whole {
            Ok(arguments) => arguments,
            Err(why) => return Outcome::NotSent { why },
        };
        let mut meta = given.map(|given| given.meta).unwrap_or_default();
        meta.extend(permit.meta());
        let header = match &permit.call().policy.key_channel {
            Some(KeyChannel::Header(name)) if process.is_remote() => Some((name.as_str(), permit.key().as_str())),
            Some(KeyChannel::Header(name)) => {
                tracing::debug!(name, "a header carries no key over a pipe");
                None
            }
            Some(KeyChannel::Argument(_) | KeyChannel::Meta) | None => None,
        };
        if let Err(why) = verify_key(permit, Payload { arguments: &arguments, meta: &meta, header }) {
            return Outcome::NotSent { why };
        }
        let mut headers: Vec<(String, String)> =
            header.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        if process.is_stateless() && process.is_remote() {
            let schemas = lock(&self.schemas);
            let marked = schemas.get(&permit.name().tool).map(|schema| argument_headers(schema, &arguments));
            match marked.transpose() {
                Ok(marked) => headers.extend(marked.unwrap_or_default()),
                Err(why) => return Outcome::NotSent { why },
            }
        }
        let call = &permit.call().call_id;
        let live = lock(&self.live).get(call).cloned();
        // From here on nobody says that it was not sent, but for this very function.
        // The time is that of the attempt's record, so that whoever is told of it later reads the same.
        let sent = Sent { at: permit.call().updated_at, attempt: permit.call().attempt };
        let before = live.as_ref().and_then(|live| live.is_sent(sent));
        lock(&self.replies).remove(call);
        let params = json!({"name": permit.name().tool, "arguments": arguments, "_meta": meta});
        let mut params = self.prepared(&process, params);
        self.says_tasks(&mut params, true);
        self.ask_for_task(&process, &permit.name().tool, &mut params);
        let limit = time_of(&permit.call().policy, Some(PATIENCE_FOR_READS));
        let answer = self.rounds(&process, call, params, &headers, limit);
        let answer = answer.await.and_then(|mut answer| {
            match (answer.get_mut("result").map(Value::take), answer.get("error")) {
                (Some(result), _) => Self::outcome_of(&process, result),
                (None, Some(error)) => {
                    if let Some(data) = error.get("data") {
                        self.keep_error_data(call, data);
                    }
                    Ok(Outcome::Raw(RawReply::RpcError {
                        code: error["code"].as_i64().unwrap_or(0),
                        message: error["message"].as_str().unwrap_or_default().to_owned(),
                    }))
                }
                (None, None) => Ok(Outcome::Lost { why: "it answered neither a result nor an error".to_owned() }),
            }
        });
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(Unanswered::NotSent(why)) => Outcome::NotSent { why },
            // A read would be made again, and be answered so again.
            Err(Unanswered::Unreadable(why)) if permit.call().policy.class == SideEffectClass::ReadOnly => {
                Outcome::Raw(RawReply::RpcError { code: -32700, message: why })
            }
            Err(Unanswered::Lost(why) | Unanswered::Unreadable(why)) => Outcome::Lost { why },
            Err(Unanswered::Refused { doubt: Some(why), .. }) if !permit.call().policy.may_simply_be_repeated() => {
                Outcome::Lost { why }
            }
            Err(Unanswered::Refused { status, body, of_session, retry_after, doubt: _ }) => {
                Outcome::Raw(RawReply::HttpStatus { status, body, of_session, retry_after })
            }
        };
        self.note_reply(call, &outcome);
        if let (Outcome::NotSent { .. }, Some(live)) = (&outcome, &live) {
            live.was_not_sent(before);
        }
        match &outcome {
            Outcome::Raw(RawReply::ToolResult { .. }) | Outcome::NotSent { .. } | Outcome::Continues(_) => {}
            // A status or an error of the protocol may still be read as an unknown outcome.
            Outcome::Lost { .. } | Outcome::Raw(_) => self.launch.horizon.given_up(&process.generation),
        }
        outcome
    }

    /// Keeps what a tool answered, for whoever waits.
    fn note_reply(&self, call: &CallId, outcome: &Outcome) {
        if let Outcome::Raw(reply @ RawReply::ToolResult { .. }) = outcome {
            lock(&self.replies).insert(call.clone(), reply.clone());
        }
    }

    /// Keeps what an error says beside its words, for whoever waits.
    pub(super) fn keep_error_data(&self, call: &CallId, data: &Value) {
        let mut kept = lock(&self.error_data);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(call.clone(), data.clone());
    }

    /// A call, and what its tool asks for before it has a result. Each round goes on with the call that was begun; nothing is begun anew.
    /// `limit` is how long the tool server may take for each: whoever it asks has their own time.
    async fn rounds(
        &self,
        process: &Arc<Process>,
        call: &CallId,
        mut params: Value,
        headers: &[(String, String)],
        limit: Option<Duration>,
    ) -> Result<Value, Unanswered> {
        for round in 0..MOST_ROUNDS {
            let number = AtomicU64::new(0);
            let named = |id| number.store(id, Ordering::Relaxed);
            let answered = tokio::select! {
                biased;
                answered = process.request_named(CALL, params.clone(), headers, &named) => answered,
                () = self.env.sleep_or_never(limit) => {
                    tracing::warn!(%call, server = self.launch.name, round, "a call was not answered in time");
                    process.is_not_waited_for(number.load(Ordering::Relaxed));
                    Err(Unanswered::Lost(out_of_time(limit.unwrap_or_default())))
                }
            };
            let answer = match answered {
                // The first round was taken, so nothing that is said to a later one proves that nothing happened.
                Err(Unanswered::NotSent(why)) if round > 0 => return Err(Unanswered::Lost(why)),
                Err(refused @ Unanswered::Refused { .. }) if round > 0 => {
                    return Err(Unanswered::Lost(refused.to_string()));
                }
                answered => answered?,
            };
            let Some(requests) = answer.get("result").and_then(era::asked_for) else { return Ok(answer) };
            let live = lock(&self.live).get(call).cloned();
            let answers = match live {
                Some(live) => live.ask_for(requests, &self.env).await,
                None => None,
            };
            let Some(answers) = answers else {
                return Err(Unanswered::Lost("it asked for something that nobody could answer".to_owned()));
            };
            params["inputResponses"] = Value::Object(answers);
            match answer["result"].get("requestState") {
                Some(state) => params["requestState"] = state.clone(),
                None => drop(params.as_object_mut().and_then(|params| params.remove("requestState"))),
            }
        }
        Err(Unanswered::Lost("it does not stop asking".to_owned()))
    }

    /// A generation's name in the ledger says whose lock it has, since the next broker knows nothing of this connection.
    pub(super) fn generation_of(&self, process: &Process) -> String {
        format!("{}/{}", self.launch.holder, process.generation)
    }
}

/// A tool as the server describes it.
pub(crate) fn spec(server: &str, tool: &Value) -> Option<ToolSpec> {
    let name = tool["name"].as_str()?;
    let hint = |name: &str| tool["annotations"][name].as_bool();
    let ours = |name: &str| tool["_meta"].get(format!("dev.universal-agent/{name}"));
    Some(ToolSpec {
        name: ToolName::qualified(ToolNamespace::Mcp, server, name),
        description: tool["description"].as_str().unwrap_or_default().to_owned(),
        input_schema: tool.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"})),
        annotations: ToolAnnotations {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
            honours_keys: ours("honours-keys").and_then(Value::as_bool),
            key_ttl_seconds: ours("key-ttl-seconds").and_then(Value::as_u64),
            fetches: ours("fetches").and_then(Value::as_bool),
        },
    })
}
