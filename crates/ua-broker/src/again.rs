//! A request of which nothing is left but the name under which it came: an earlier broker had it, and its client waits for the answer anew.
//!
//! Which call it is was decided when it came, and stands in the store. Nothing is begun for it that was not begun before.

use std::sync::Arc;

use ua_core::{CallStatus, Resolution};
use ua_store::{ArrivalRecord, ArrivalsOf, CallRecord, GatewayStore as _};

use crate::ask::{Answered, Reply};
use crate::broker::{Broken, Unanswerable};
use crate::connection::Connection;
use crate::open_requests::Asker;
use crate::posted::Posted;
use crate::queue::Place;
use crate::rules::Rule;
use crate::session::InUse;

impl Connection {
    /// The answer to a request that came under this name before, with the session that asked.
    pub(crate) async fn found_again(
        self: &Arc<Self>,
        asker: &Asker,
        place: Place<()>,
    ) -> (Option<InUse>, Result<Answered, Unanswerable>) {
        let (session, arrival) = match self.arrival_of(&asker.name).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let message = "nothing is known of this request any more; make it again in this session".to_owned();
                let reply = Some(Reply::Refused { code: -32603, message });
                return (None, Ok(Answered { request: None, reply }));
            }
            Err(error) => return (None, Err(Unanswerable::Before(error))),
        };
        let known = self.stands(&arrival.call_id, Rule::Exact, None).await;
        drop(place);
        let reply = match known {
            // Whoever takes a stream up again wants that answer, and knows it.
            Ok(known) => self.reply(known, false, asker).await,
            Err(error) => Err(error),
        };
        (session, reply.map(|reply| Answered { request: Some(arrival.arrival_id), reply }))
    }

    /// A request of a client of this tool server, with its session as long as nobody ended it.
    async fn arrival_of(&self, name: &str) -> Result<Option<(Option<InUse>, ArrivalRecord)>, Broken> {
        let broker = &self.broker;
        // What came just now may wait to be written.
        broker.flush(&self.project).await?;
        let of = ArrivalsOf::One(name.to_owned());
        let mut found = broker.store.arrivals_of(of).await.map_err(Broken::at("look for the same request"))?.pop();
        if found.is_none()
            && let Some(posted) = Posted::of_sending(name)
        {
            // A read is stored under the name of its sending; what has an effect, under that of what was sent.
            found = self.newest(&posted).await?.map(|(_, arrival)| arrival);
        }
        let Some(arrival) = found.filter(|arrival| arrival.project == self.project) else { return Ok(None) };
        if broker.has_ended(&arrival.run_id).await {
            return Ok(Some((None, arrival)));
        }
        let session = broker.session_of(&arrival.run_id).await?;
        let is_here = session.record.server == self.hello.name && session.record.reach == self.reach;
        Ok(is_here.then_some((Some(session), arrival)))
    }
}

/// Whether a call that nobody has under way is to be decided.
pub(crate) fn is_open(call: &CallRecord) -> bool {
    match call.status {
        CallStatus::Prepared | CallStatus::Running => true,
        CallStatus::Unknown => call.resolution != Some(Resolution::Skipped),
        CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported | CallStatus::Cancelled => {
            false
        }
    }
}
