//! `ua db copy`: the database moves from its file to a server, and is in one of them at any moment.

use std::path::Path;

use ua_host::home::Home;
use ua_store::{RunStore as _, StoreError};
use ua_store_postgres::{Filling, PostgresConfig};
use ua_store_sqlite::{Copying, Departure, Standing, UnderWay};

use crate::error::{HostError, OK};
use crate::output::{say, tell};
use crate::view::{DbMoved, DbTakenBack};
use ua_core::ShowPath as _;

/// Rows that are sent at once.
const CHUNK: usize = 2_000;

/// Moves what the file in the root holds to the server; finishes or begins again what was killed. What only `effects.log` knows is left behind where a
/// person says so.
pub(super) async fn copy(home: &Home, server: &PostgresConfig, without_lost: bool) -> Result<u8, HostError> {
    super::no_broker(home)?;
    let departure = departure(home)?;
    super::nobody_drives(home)?;
    let mut filling = received(home, server).await?;
    let gone = |shown: &str| {
        HostError::usage(format!(
            "{} was given to the {shown}, and the {} is another one",
            home.database().shown(),
            server.shown()
        ))
    };
    match departure.standing().clone() {
        Standing::Leaving(copy) | Standing::Left(Some(copy)) if filling.has(&copy.id) => {
            return finished(home, server, departure.under_way(copy), 0);
        }
        Standing::Here => {
            super::refuse_older_copy(home).await?;
            refuse_copies(home).await?;
            if !without_lost {
                refuse_lost(home).await?;
            }
        }
        // Whoever killed that copy took the transaction with it: nothing of it will ever arrive here.
        Standing::Leaving(copy) if filling.database() == copy.to => {}
        Standing::Leaving(Copying { shown, .. }) => {
            return Err(gone(&shown).hint(
                "with the URL of that one `ua db copy` finishes it, and `ua db copy --undo` keeps the database in the file; if that server is gone \
                 for good and nothing was done there, `ua db copy --undo --force` does; nothing was changed",
            ));
        }
        Standing::Left(copy) => {
            let shown = copy.map_or_else(|| "server".to_owned(), |copy| copy.shown);
            return Err(gone(&shown).hint(FORCED));
        }
    }
    filling.make_room().await.map_err(|e| failed(&e))?;
    let copy =
        Copying { id: ua_core::system::env().uuid_v7(), to: filling.database().to_owned(), shown: server.shown() };
    let mut rows = 0;
    for (table, columns) in departure.tables().map_err(|e| failed(&e))? {
        let mut behind = 0;
        loop {
            let (last, chunk) = departure.rows(&table, &columns, behind, CHUNK).map_err(|e| failed(&e))?;
            if chunk.is_empty() {
                break;
            }
            (behind, rows) = (last, rows + chunk.len() as u64);
            filling.rows(&table, &columns, chunk).await.map_err(|e| failed(&e))?;
        }
    }
    filling.check(&copy.id).await.map_err(|e| failed(&e))?;
    // The file first: it takes nothing any more that the server would not have.
    let under_way = departure.leave(copy).map_err(|e| failed(&e))?;
    filling.commit().await.map_err(|e| {
        HostError::store("copy the database", &e).hint(
            "it is unknown whether the copy was completed: the same command looks, and finishes it; until then no run is driven from the file or \
             the server",
        )
    })?;
    finished(home, server, under_way, rows)
}

/// Refuses a database of which another copy lies where its runs have their workspaces: that one may be at work.
async fn refuse_copies(home: &Home) -> Result<(), HostError> {
    let store = home.open_file()?;
    let runs = store.runs(u32::MAX).await.map_err(|e| HostError::store("list the runs", &e))?;
    for run in runs.iter().filter(|run| !run.status.is_terminal()) {
        home.refuse_another_file(run)?;
    }
    Ok(())
}

/// Refuses where calls were accepted of which the database has nothing: what knows of them stays behind.
async fn refuse_lost(home: &Home) -> Result<(), HostError> {
    let lost = home.open_file()?.lost_to_families(ua_core::system::env().now()).await;
    let lost = lost.map_err(|e| HostError::store("compare the database with effects.log", &e))?;
    if lost.is_empty() {
        return Ok(());
    }
    for known in &lost {
        tell(format!("accepted: {known}"));
    }
    Err(HostError::usage(format!(
        "you are asked before something like what was accepted is done again, and on a server you would not be: effects.log alone knows {} of it, and is \
         not moved with the database",
        ua_core::counted(lost.len(), "call")
    ))
    .hint(
        "first let the runs that may do it again continue here (`ua resume RUN`), until they have asked you; if you know that none of it \
         will be done again, `ua db copy --without-lost` moves the database without it; nothing was changed",
    ))
}

const FORCED: &str =
    "if nothing was done there, `ua db copy --undo --force` makes the file usable again; nothing was changed";

/// Keeps the database in its file where it is known not to have arrived at a server.
pub(super) async fn undo(home: &Home, server: Option<&PostgresConfig>, is_forced: bool) -> Result<u8, HostError> {
    let departure = departure(home)?;
    match departure.standing() {
        Standing::Here => return taken_back(home.database(), false),
        Standing::Leaving(_) | Standing::Left(_) if is_forced => {}
        Standing::Leaving(copy) => {
            let Some(server) = server else {
                return Err(HostError::usage(format!("whether the copy arrived, the {} knows", copy.shown)).hint(
                    "name it with --database-url, or in UA_DATABASE_URL; if it is gone for good and nothing was done there, add --force",
                ));
            };
            let filling = received(home, server).await?;
            if filling.has(&copy.id) {
                return Err(HostError::usage(format!("the copy arrived: everything is in the {}", server.shown()))
                    .hint("`ua db copy` puts the file out of the way; nothing was changed"));
            }
            if filling.database() != copy.to {
                return Err(HostError::usage(format!(
                    "whether the copy arrived, the {} knows, and the {} is another one",
                    copy.shown,
                    server.shown()
                ))
                .hint("if that one is gone for good and nothing was done there, add --force; nothing was changed"));
            }
            departure.take_back().map_err(|e| failed(&e))?;
            home.forget_the_server()?;
            drop(filling);
            return taken_back(home.database(), true);
        }
        Standing::Left(_) => {
            return Err(HostError::usage(format!("{} was moved to a server", home.database().shown())).hint(FORCED));
        }
    }
    departure.take_back().map_err(|e| failed(&e))?;
    home.forget_the_server()?;
    taken_back(home.database(), true)
}

fn departure(home: &Home) -> Result<Departure, HostError> {
    let file = home.database();
    if !file.exists() {
        return Err(home.moved_already().unwrap_or_else(|| home.no_file()));
    }
    home.refuse_foreign()?;
    Departure::begin(file).map_err(|e| failed(&e))
}

async fn received(home: &Home, server: &PostgresConfig) -> Result<Filling, HostError> {
    let mut config = server.clone();
    config.place = Some(home.place()?);
    Filling::begin(&config).await.map_err(|e| failed(&e))
}

fn failed(error: &StoreError) -> HostError {
    HostError::store("move the database", error).hint("nothing was changed")
}

fn finished(home: &Home, server: &PostgresConfig, under_way: UnderWay, rows: u64) -> Result<u8, HostError> {
    let kept = under_way.arrived(ua_core::system::env().now()).map_err(|e| {
        HostError::store("put the file out of the way", &e)
            .hint(format!("everything is in the {}; give the command again once that is corrected", server.shown()))
    })?;
    home.forget_the_server()?;
    let words = if rows == 0 {
        format!("everything is in the {}: an earlier copy had arrived\n", server.shown())
    } else {
        format!("{rows} rows are in the {}\n", server.shown())
    };
    say(&DbMoved { path: server.shown().into(), rows, kept: kept.clone() }, words)?;
    if crate::terminal::is_json() {
        return Ok(OK);
    }
    tell(format!("the file is kept as {}; every command needs the URL of the server from now on", kept.shown()));
    Ok(OK)
}

fn taken_back(file: &Path, was_leaving: bool) -> Result<u8, HostError> {
    let what = if was_leaving { "is in use again" } else { "was not being moved; nothing was changed" };
    let words = format!("{} {what}\n", file.shown());
    say(&DbTakenBack { path: file.to_path_buf(), was_leaving }, words)?;
    Ok(OK)
}
