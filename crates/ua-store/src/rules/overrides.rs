//! Changes that a person made after a run's start: inserted, never edited.

use super::conflict;
use crate::error::StoreError;
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::RunRecord;

/// The row of a change, and whether it has to be stored. `last` is the run's newest change of this kind and component; one
/// that says the same already is the change itself, whose answer was lost.
pub fn override_made(
    run: &RunRecord,
    last: Option<OverrideRecord>,
    new: NewOverride,
) -> Result<(OverrideRecord, bool), StoreError> {
    if run.status.is_terminal() {
        return Err(conflict("runs", &run.run_id, format!("it is {}; nothing about it changes any more", run.status)));
    }
    match last.filter(|last| last.value == new.value && last.made_by == new.made_by) {
        Some(same) => Ok((same, false)),
        None => Ok((
            OverrideRecord {
                run_id: new.run_id,
                kind: new.kind,
                component: new.component,
                value: new.value,
                made_by: new.made_by,
                created_at: new.at,
            },
            true,
        )),
    }
}
