//! Sessions at the gateway and their arrivals.

use ua_core::{CallStatus, Timestamp};

use super::{calls_planned, conflict, not_found};
use crate::error::StoreError;
use crate::gateway::{ArrivalRecord, Delivery, NewArrival, SessionRecord, is_gateway};
use crate::record::{CallRecord, RunLease, RunRecord, StepRecord};

/// The rows that an arrival makes.
#[derive(Debug)]
pub struct Arrived {
    /// The arrival; `None` when it is there already.
    pub arrival: Option<ArrivalRecord>,
    /// Its call, if it is a new one.
    pub call: Option<CallRecord>,
}

/// Refuses a session whose run is not one.
pub fn check_session(session: &SessionRecord, run: &RunRecord) -> Result<(), StoreError> {
    if !is_gateway(run) || session.run_id != run.run_id || run.parent_run_id.is_some() {
        return Err(conflict("gateway_sessions", &run.run_id, "its run is not a session of the gateway"));
    }
    Ok(())
}

/// An arrival of a session. `stored` is the arrival of that id, `call` the call that it names, if these are there.
pub fn arrived(
    run: &RunRecord,
    step: Option<&StepRecord>,
    stored: Option<ArrivalRecord>,
    call: Option<CallRecord>,
    new: NewArrival,
) -> Result<Arrived, StoreError> {
    let NewArrival { arrival, call: planned, step: wanted } = new;
    if !is_gateway(run) || arrival.run_id != run.run_id {
        return Err(conflict("gateway_arrivals", &arrival.arrival_id, "it is not a request of this session"));
    }
    if let Some(stored) = stored {
        // Whoever lost the answer to this write makes it again.
        return if stored.call_id == arrival.call_id && stored.run_id == arrival.run_id {
            Ok(Arrived { arrival: None, call: None })
        } else {
            Err(conflict("gateway_arrivals", &arrival.arrival_id, format!("it is already call {}", stored.call_id)))
        };
    }
    let call = match (planned, call) {
        (None, Some(_)) => None,
        (None, None) => return Err(not_found("tool_calls", &arrival.call_id)),
        (Some(planned), None) if planned.call_id == arrival.call_id => {
            let step = step.filter(|step| step.run_id == run.run_id);
            let step = step.ok_or_else(|| not_found("run_steps", &wanted))?;
            calls_planned(run, &step.step_id, vec![*planned], arrival.arrived_at).pop()
        }
        (Some(planned), _) => {
            return Err(conflict("tool_calls", &planned.call_id, "it is not a new call of this request"));
        }
    };
    Ok(Arrived { arrival: Some(arrival), call })
}

/// The arrival, whose answer was written to the client, is known to have reached it, or was not taken. What was noted first stays; what its client
/// has, it has.
pub fn delivered(
    mut arrival: ArrivalRecord,
    lease: &RunLease,
    delivery: Delivery,
    at: Timestamp,
) -> Result<ArrivalRecord, StoreError> {
    if arrival.run_id != lease.run_id {
        return Err(not_found("gateway_arrivals", &arrival.arrival_id));
    }
    match delivery {
        Delivery::Written => (arrival.answered_at, arrival.unread_until) = (arrival.answered_at.or(Some(at)), None),
        Delivery::Had => {
            arrival.unread_until = None;
            arrival.answered_at = arrival.answered_at.or(Some(at));
            arrival.acknowledged_at = arrival.acknowledged_at.or(Some(at));
        }
        Delivery::NotTaken if arrival.acknowledged_at.is_none() => {
            (arrival.answered_at, arrival.unread_until) = (None, None);
        }
        Delivery::Unread { until } if arrival.acknowledged_at.is_none() => arrival.unread_until = Some(until),
        Delivery::NotTaken | Delivery::Unread { .. } => {}
    }
    Ok(arrival)
}

/// Whether `other`, a call of another session of the project, reaches a call of the tool `raw` beyond its family: nobody knows what came of it.
/// The same call that is being sent is not one: whoever asks for it again is told apart before.
pub fn reaches_project(call: &CallRecord, other: &CallRecord) -> bool {
    let is_same = other.name.raw == call.name.raw && other.args_hash == call.args_hash;
    let is_sent = other.status == CallStatus::Running && !is_same;
    other.status == CallStatus::Unknown || other.doubt.is_some() || is_sent
}
