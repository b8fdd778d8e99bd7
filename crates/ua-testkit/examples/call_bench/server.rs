//! The same on a PostgreSQL server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde_json::json;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};
use ua_core::{Message, Origin, RunId, RunSpec};
use ua_runner::owner_stamp;
use ua_store::fleet::LEASE;
use ua_store::{FleetChange, FleetStore as _, NewRun, QueueOptions, Release, RunStore as _, WorkerRecord};
use ua_store_postgres::{PostgresConfig, PostgresStore};

use super::{Outcome, Plan, micros, one_run};

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    drop(tokio::spawn(connection));
    Ok(client)
}

fn cpu() -> Outcome<Duration> {
    Ok(Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?))
}

/// Two synced commits of one row a step, by so many clients at once, and nothing else.
pub(super) fn floor(url: &str, steps: u32, clients: u32) -> Outcome<()> {
    runtime()?.block_on(async {
        let first = connect(url).await?;
        first.batch_execute("CREATE TABLE IF NOT EXISTS floor (id bigserial PRIMARY KEY, note text)").await?;
        let each = steps / clients.max(1);
        let mut all = Vec::new();
        for _ in 0..clients {
            all.push(connect(url).await?);
        }
        let begun = Instant::now();
        try_join_all(all.iter().map(|client| steps_of(client, each))).await?;
        let taken = begun.elapsed();
        println!("{}", json!({"steps": each * clients, "micros": micros(taken)}));
        Ok(())
    })
}

async fn steps_of(client: &Client, steps: u32) -> Outcome<()> {
    for _ in 0..steps {
        for note in ["before", "after"] {
            client.query_typed("INSERT INTO floor (note) VALUES ($1)", &[(&note, Type::TEXT)]).await?;
        }
    }
    Ok(())
}

/// Runs take turns by the shipped worker, whose names begin with `name`.
pub(super) fn calls(url: &str, folder: &Path, runs: u32, plan: Plan, name: &str) -> Outcome<()> {
    runtime()?.block_on(async {
        let store = Arc::new(PostgresStore::open(&PostgresConfig::from_url(url)?).await?);
        let (begun, spent) = (Instant::now(), cpu()?);
        let names: Vec<String> = (1..=runs).map(|number| format!("{name}_{number}")).collect();
        try_join_all(names.into_iter().map(|name| one_run(store.clone(), None, folder, name, plan))).await?;
        let (taken, spent) = (begun.elapsed(), cpu()?.saturating_sub(spent));
        println!("{}", json!({"steps": plan.turns * runs, "micros": micros(taken), "cpu_micros": micros(spent)}));
        Ok(())
    })
}

/// So many claims of one run each, which goes back behind the others: how long each took.
pub(super) fn claims(url: &str, claims: u32) -> Outcome<()> {
    runtime()?.block_on(async {
        let env = ua_core::system::env();
        let store = PostgresStore::open(&PostgresConfig::from_url(url)?).await?;
        let now = store.fleet_now(env.now()).await?;
        let worker = format!("bench_{}", env.uuid_v7());
        let record = WorkerRecord {
            worker: worker.clone(),
            place: "bench".to_owned(),
            place_shown: "a benchmark".to_owned(),
            owner: owner_stamp(ua_core::Trace::new(&env)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: Vec::new(),
            slots: 1,
            started_at: now,
            lease_until: now.plus(LEASE * 100),
            is_draining: false,
        };
        store.fleet(FleetChange::Register(record)).await?;
        let mut taken = Vec::new();
        for _ in 0..claims {
            let at = store.fleet_now(env.now()).await?;
            let begun = Instant::now();
            let claim = FleetChange::Claim {
                worker: worker.clone(),
                holds: Vec::new(),
                most: 1,
                dead: Vec::new(),
                avoids: Vec::new(),
                at,
            };
            let claimed = store.fleet(claim).await?.entries;
            taken.push(micros(begun.elapsed()));
            let run = claimed.first().ok_or("nothing waits")?.run_id.clone();
            let release = Release::Ready { not_before: at, since: None, why: None, is_driven: false };
            store.fleet(FleetChange::Release { worker: worker.clone(), run, release }).await?;
        }
        store.fleet(FleetChange::Leave { worker }).await?;
        taken.sort_unstable();
        let at = |part: usize| taken.get(taken.len() * part / 100).or(taken.last()).copied();
        println!("{}", json!({"claims": claims, "median_micros": at(50), "p99_micros": at(99)}));
        Ok(())
    })
}

/// One queued run, for others to be copied from.
pub(super) fn queued(url: &str) -> Outcome<()> {
    runtime()?.block_on(async {
        let env = ua_core::system::env();
        let store = PostgresStore::open(&PostgresConfig::from_url(url)?).await?;
        let spec = RunSpec::parse(r#"{"objective": "Wait."}"#)?;
        let run = NewRun {
            run_id: RunId::parse("run_template")?,
            created_at: env.now(),
            entrypoint: "library".into(),
            run_mode: "job".into(),
            opening: Message::user(Origin::Prompt, spec.opening_prompt()),
            spec,
            files: Vec::new(),
            job_path: None,
            workspace_dir: "/nowhere".to_owned(),
            launch: serde_json::Value::Null,
            parent_run_id: None,
        };
        let run = store.submit_run(run).await?.run_id;
        let now = store.fleet_now(env.now()).await?;
        store.fleet(FleetChange::Enqueue { run, options: QueueOptions::at(now), at: now }).await?;
        Ok(())
    })
}
