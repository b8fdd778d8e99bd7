//! Who says how a run is started: this user's `ua`, or the database alone.
//!
//! The digests of what a person named lie in the same row as the names, so they tell a file that changed, and not a row that somebody wrote. What
//! decides which programs are started, how far they reach and what is asked about gets a seal: a digest (HMAC-SHA256) under a key in the user's
//! state folder, bound to the place of the database and to the first run of the lineage, or to the schedule with its name and its times, beside the
//! launch of a run and of a schedule, and beside what a person accepted of them. So it is good where it was given and for what, and nobody who has
//! a copy of one moves it. What has none, or another one, was found and not said: its servers ask as those of a file that was found do, its
//! policies only raise caution, and nothing private is reached. What a person says for one command is no word for what that command stores: it gets
//! no seal. On a server that several users and machines share the database is believed, as they have configured it.
//! Why so: `docs/adr/0047-a-seal-says-for-what-and-where.md`.
//! Proved by: this file's tests, `tests/e2e/adopted.rs`, the attacks 3l, 3m and 3t to 3v.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use ua_core::{Component, RunId};
use ua_store::{
    FleetStore as _, OverrideKind, OverrideRecord, RunQuery, RunRecord, RunStore as _, ScheduleRecord, Store as _,
};

use super::accepted_policy::VERSION;
use super::{Configured, Launch};
use crate::error::HostError;
use crate::fleet::CHANGED;
use crate::home::{self, Home};
use crate::host::Host;
use crate::roots::Earlier;
use crate::settings::Settings;
use crate::{policies, pricing};

/// Where the seal stands in what it is about.
pub(crate) const SEAL: &str = "seal";
/// Of an earlier version's runs that have ended so many count, the newest: one may be forked.
const ENDED: usize = 1000;

/// What a refusal adds that is about a run of which nobody said how it is started.
pub(super) const UNSAID: &str = "your own ua did not begin this run, or before its folder was yours, or its database was in another place then, or the key (`launches.key` in the state folder) is another one by now, so what is stored of its start counts as found";

/// What a seal is about; one is never taken for another.
#[derive(Debug, Clone, Copy)]
enum About {
    /// How the runs of a lineage are started.
    Run,
    /// How the job of a schedule is.
    Schedule,
    /// Which servers a person accepted for a run.
    Servers,
    /// Which rules.
    Policy,
}

impl About {
    fn name(self) -> &'static str {
        match self {
            Self::Run => "ua.launch.v2",
            Self::Schedule => "ua.schedule.v2",
            Self::Servers => "ua.accepted-servers.v2",
            Self::Policy => "ua.accepted-policy.v2",
        }
    }
}

/// Who says how something is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaidBy {
    /// This user.
    User,
    /// The database, which a person believes for the command that is at work.
    BelievedNow,
    /// The database alone.
    Database,
}

/// What tells the user's own word from the database's.
pub(crate) struct Vouched<'h> {
    home: &'h Home,
    key: Option<String>,
    /// The place of the database, which seals are good for.
    place: String,
    /// What the word of the database is as good as.
    of_database: SaidBy,
}

impl<'h> Vouched<'h> {
    pub(crate) fn of(host: &'h Host) -> Self {
        let home = host.home();
        let key = home.launch_key();
        Self { home, of_database: home.word_of_database(key.is_some()), place: home.place_of_launches(), key }
    }

    /// How a run of the lineage that begins with `first` is started, with its seal.
    pub(crate) fn seal_run(&self, first: &RunId, launch: Value) -> Value {
        self.sealed(About::Run, first.as_str(), launch)
    }

    /// What a person accepted for a run, with its seal.
    pub(super) fn seal_accepted(&self, run: &RunId, component: Component, accepted: Value) -> Value {
        let about = if component == Component::Servers { About::Servers } else { About::Policy };
        self.sealed(about, run.as_str(), accepted)
    }

    /// A schedule with the seal of what it starts and when.
    pub(crate) fn seal_schedule(&self, mut schedule: ScheduleRecord) -> ScheduleRecord {
        let seal = self.seal(About::Schedule, &schedule.name, &of_schedule(&schedule));
        if let (Some(seal), Some(fields)) = (seal, schedule.job.as_object_mut()) {
            fields.insert(SEAL.to_owned(), json!(seal));
        }
        schedule
    }

    /// Whose word it is how a run is started.
    pub(super) async fn word_on_run(&self, run: &RunRecord) -> SaidBy {
        self.word_on(About::Run, run.root_run_id.as_str(), &run.launch).await
    }

    /// The same of the job of a schedule, as it is stored.
    pub(crate) async fn word_on_schedule(&self, schedule: &ScheduleRecord) -> SaidBy {
        let mut said = of_schedule(schedule);
        said[SEAL] = schedule.job[SEAL].clone();
        self.word_on(About::Schedule, &schedule.name, &said).await
    }

    /// What was accepted for runs, without what nobody but the database says of it.
    pub(super) async fn known(&self, changes: Vec<OverrideRecord>) -> Vec<OverrideRecord> {
        let mut known = Vec::new();
        for row in changes {
            let is_known = match about_accepted(&row) {
                Some(about) => self.word_on(about, row.run_id.as_str(), &row.value).await != SaidBy::Database,
                None => true,
            };
            if is_known {
                known.push(row);
            }
        }
        known
    }

    async fn word_on(&self, about: About, whose: &str, value: &Value) -> SaidBy {
        if self.of_database == SaidBy::User {
            return SaidBy::User;
        }
        let Some(seal) = self.seal(about, whose, value) else { return self.of_database };
        let is_own = match value[SEAL].as_str() {
            Some(said) => said == seal,
            None => Box::pin(self.earlier()).await.contains(&seal),
        };
        if is_own { SaidBy::User } else { self.of_database }
    }

    fn sealed(&self, about: About, whose: &str, mut value: Value) -> Value {
        let seal = self.seal(about, whose, &value);
        if let (Some(seal), Some(fields)) = (seal, value.as_object_mut()) {
            fields.insert(SEAL.to_owned(), json!(seal));
        }
        value
    }

    /// The seal of a value, whatever seal it has.
    fn seal(&self, about: About, whose: &str, value: &Value) -> Option<String> {
        let mut bare = value.clone();
        if let Some(fields) = bare.as_object_mut() {
            fields.remove(SEAL);
        }
        let mut seal = Hmac::<sha2::Sha256>::new_from_slice(self.key.as_ref()?.as_bytes()).ok()?;
        for part in [about.name(), "\0", self.place.as_str(), "\0", whose, "\0", bare.to_string().as_str()] {
            seal.update(part.as_bytes());
        }
        Some(ua_core::Sha256::from_bytes(seal.finalize().into_bytes().into()).to_hex())
    }

    /// The seals of what a version stored that made none.
    async fn earlier(&self) -> BTreeSet<String> {
        match self.home.earlier_launches() {
            Earlier::Made(seals) => seals,
            Earlier::ToBeMade => match Box::pin(self.seals_of_all()).await {
                Ok(seals) => {
                    self.home.keep_earlier_launches(&seals);
                    seals
                }
                Err(error) => {
                    tracing::warn!(%error, "it cannot be read how the runs of an earlier version were started");
                    BTreeSet::new()
                }
            },
        }
    }

    async fn seals_of_all(&self) -> Result<BTreeSet<String>, HostError> {
        let store = self.home.open_read_only()?;
        let query = RunQuery { limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
        let heads = store.find_runs(&query).await.map_err(|e| HostError::store("list the runs", &e))?;
        let mut seals = BTreeSet::new();
        for (place, head) in heads.iter().enumerate() {
            if head.status.is_terminal() && place >= ENDED {
                continue;
            }
            let run = store.run(&head.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
            seals.extend(self.seal(About::Run, run.root_run_id.as_str(), &run.launch));
            let accepted = store.overrides(&run.run_id).await;
            for row in accepted.map_err(|e| HostError::store("read what was accepted", &e))? {
                let about = about_accepted(&row);
                seals.extend(about.and_then(|about| self.seal(about, row.run_id.as_str(), &row.value)));
            }
        }
        let fleet = store.fleet_state(0).await.map_err(|e| HostError::store("read the schedules", &e))?;
        let of_schedules = fleet.schedules.iter();
        seals.extend(of_schedules.filter_map(|one| self.seal(About::Schedule, &one.name, &of_schedule(one))));
        home::close(store);
        Ok(seals)
    }
}

/// What a row of what was accepted is a word about, if it is one: what a step is pinned to anew is compared with what is there, and no word.
fn about_accepted(row: &OverrideRecord) -> Option<About> {
    let is_of = |component: Component| row.kind == OverrideKind::Pin && row.component == component.as_str();
    if is_of(Component::Servers) && row.value.get("servers").is_some() {
        return Some(About::Servers);
    }
    (is_of(Component::Policy) && row.value.get(VERSION).is_some()).then_some(About::Policy)
}

/// What of a schedule decides what is started, when and how it is queued: all of it but who changed it, how far it is, and whether it is paused.
fn of_schedule(schedule: &ScheduleRecord) -> Value {
    let ScheduleRecord { name: _, cron, time_zone, job, catch_up, is_paused: _, next_at: _ } = schedule;
    let mut job = job.clone();
    if let Some(fields) = job.as_object_mut() {
        fields.remove(CHANGED);
        fields.remove(SEAL);
    }
    json!({"cron": cron, "time_zone": time_zone, "catch_up": catch_up, "job": job})
}

/// What the start of a run names that a person has to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The file with its tool servers.
    pub(crate) servers: Option<PathBuf>,
    /// Its policy files.
    pub(crate) policies: Vec<PathBuf>,
    /// It may reach loopback and private addresses.
    pub(crate) reaches_private: bool,
}

impl Configured {
    /// What it names.
    pub(crate) fn names(&self) -> Names {
        Names {
            servers: self.mcp_config.clone(),
            policies: self.policies.clone(),
            reaches_private: self.allow_private_addresses,
        }
    }
}

impl Launch {
    /// What it names.
    pub(crate) fn names(&self) -> Names {
        let (mut policies, of_job) = self.named_policies();
        policies.extend(of_job);
        Names { servers: self.mcp_config.clone(), policies, reaches_private: self.allow_private_addresses }
    }

    /// As it is stored with a run of the lineage that begins with `first`: with this user's seal, unless it is the database that says it, and a
    /// person believed that for one command. Who trusted a folder for a moment has not read what somebody else wrote in it.
    pub(crate) fn stored_for(&self, host: &Host, first: &RunId) -> Value {
        let stored = self.to_stored();
        if self.is_for_now { stored } else { Vouched::of(host).seal_run(first, stored) }
    }

    /// Whether nobody but the database says how the run is started, and it says something that a person has to.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.is_unsaid
    }

    /// Takes it for what was found: nothing of it is this user's word. What this user has configured by now counts in its place.
    pub(super) fn take_as_found(&mut self, settings: &Settings) {
        let whole = |path: &str| settings.absolute(Path::new(path)).ok();
        let (of_settings, (of_user, mut of_job)) =
            (policies::configured(settings).unwrap_or_default(), self.named_policies());
        let named: Vec<PathBuf> = of_user.into_iter().filter(|file| !of_settings.contains(file)).collect();
        self.is_unsaid = self.mcp_config.is_some()
            || !named.is_empty()
            || self.record.is_some()
            || (self.allow_private_addresses && !settings.is_on("UA_ALLOW_PRIVATE_ADDRESSES"));
        of_job.extend(named);
        (self.policies, self.job_policies, self.known_policies) = (of_settings, Some(of_job), None);
        if let Some(file) = &self.mcp_config {
            // The file that this user has for every folder is theirs, whoever else names it.
            let standing = settings.var("UA_MCP_CONFIG").and_then(|file| whole(&file));
            self.mcp_config_is_standing = standing.as_ref() == Some(file);
            self.mcp_config_is_found = !self.mcp_config_is_standing;
        }
        self.known_servers = None;
        self.accepted_policy = None;
        // At which relative paths of the settings start.
        self.folder = whole(".");
        self.allow_private_addresses = settings.is_on("UA_ALLOW_PRIVATE_ADDRESSES");
        self.record = None;
        let own = pricing::file(settings, None).ok().flatten();
        self.pricing_is_the_projects =
            if self.pricing == own { pricing::is_the_projects(settings, None) } else { self.pricing.is_some() };
    }

    /// The folder in which servers are started: that of the run's start, and of a file that was found its own, whatever a row says.
    pub(super) fn folder_of_servers(&self) -> Option<&Path> {
        let of_file = self.mcp_config.as_deref().filter(|_| self.mcp_config_is_found);
        of_file.and_then(Path::parent).or(self.folder.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use ua_core::{Redactor, Timestamp};
    use ua_evidence::testing::Story;
    use ua_store::conformance::Scene;
    use ua_store::{CatchUp, MemStore};

    use super::*;
    use crate::env::Process;
    use crate::launch::LaunchOptions;

    /// A front door whose user has this home.
    fn host(folder: &Path, home: Option<&str>, variables: &[(&str, &str)]) -> Host {
        let home = home.map(|home| ("HOME".to_owned(), folder.join(home).display().to_string()));
        let more = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let process = Process {
            folder: Some(folder.to_path_buf()),
            variables: home.into_iter().chain(more).collect(),
            ..Process::default()
        };
        Host::new(Arc::new(Settings::read(process)), Some(&folder.join("root")), Redactor::default()).unwrap()
    }

    /// The same at another root of this user's.
    fn elsewhere(host: &Host, root: &Path) -> Host {
        Host::new(Arc::new(host.settings().clone()), Some(root), Redactor::default()).unwrap()
    }

    #[tokio::test]
    async fn s9_a_seal_is_of_one_user_one_place_one_lineage_and_one_kind() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, theirs) = (host(dir.path(), Some("me"), &[]), host(dir.path(), Some("them"), &[]));
        home::close(mine.home().open().unwrap());
        let launch = json!({"mcp_config": "servers.json", "policies": [], "known_servers": {"a": 1}});
        let first = RunId::parse("run_1").unwrap();
        let stored = Vouched::of(&mine).seal_run(&first, launch.clone());
        let vouched = Vouched::of(&mine);
        let word = |about, whose: &'static str, value: Value| {
            let vouched = &vouched;
            async move { vouched.word_on(about, whose, &value).await }
        };
        assert_eq!(word(About::Run, "run_1", stored.clone()).await, SaidBy::User);
        assert_eq!(word(About::Run, "run_2", stored.clone()).await, SaidBy::Database, "of another lineage");
        assert_eq!(word(About::Schedule, "run_1", stored.clone()).await, SaidBy::Database, "of another kind");
        let other = elsewhere(&mine, &dir.path().join("other root"));
        for (host, whose) in [(&theirs, "of another user"), (&other, "of another place")] {
            let word = Vouched::of(host).word_on(About::Run, "run_1", &stored).await;
            assert_eq!(word, SaidBy::Database, "{whose}");
        }
        let again = vouched.seal_run(&first, stored.clone());
        assert_eq!(again, stored, "the seal is about the rest");
        for (field, value) in
            [("mcp_config", json!("other.json")), ("known_servers", json!(null)), ("new", json!(true))]
        {
            let mut changed = stored.clone();
            changed[field] = value;
            assert_eq!(word(About::Run, "run_1", changed).await, SaidBy::Database, "{field}");
        }
        // Nor is one believed that has none, in a database that this version has made.
        assert_eq!(word(About::Run, "run_1", launch.clone()).await, SaidBy::Database);
        // What a person says with the command counts for it, and so does the name of a root where nothing can be noted.
        let trusting = mine.clone().trusting_root();
        for (value, said_by) in [(&launch, SaidBy::BelievedNow), (&stored, SaidBy::User)] {
            assert_eq!(Vouched::of(&trusting).word_on(About::Run, "run_1", value).await, said_by);
        }
        let homeless = host(dir.path(), None, &[]);
        assert_eq!(Vouched::of(&homeless).word_on(About::Run, "run_1", &launch).await, SaidBy::User);
    }

    /// What somebody does to a schedule.
    type Change = fn(&mut ScheduleRecord);

    /// A schedule as a database has it.
    fn schedule() -> ScheduleRecord {
        ScheduleRecord {
            name: "nightly".to_owned(),
            cron: "0 3 * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            job: json!({"file": "job.json", "queue": "a", "priority": 0, "configured": {"mcp_config": "servers.json"}}),
            catch_up: CatchUp::Last,
            is_paused: false,
            next_at: Timestamp::from_millis(0),
        }
    }

    /// All of a schedule is sealed but how far it is: nobody has what it starts started under another name, at other times or elsewhere.
    #[tokio::test]
    async fn s9_a_schedule_is_sealed_with_its_name_its_times_its_job_and_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let mine = host(dir.path(), Some("me"), &[]);
        home::close(mine.home().open().unwrap());
        let vouched = Vouched::of(&mine);
        assert_eq!(vouched.word_on_schedule(&schedule()).await, SaidBy::Database);
        let sealed = vouched.seal_schedule(schedule());
        assert_eq!(vouched.seal_schedule(sealed.clone()), sealed, "the seal is about the rest");
        let harmless: [Change; 3] = [
            |one| one.job["changed"] = json!({"by": "somebody"}),
            |one| one.is_paused = true,
            |one| one.next_at = Timestamp::from_millis(1),
        ];
        for change in harmless {
            let mut changed = sealed.clone();
            change(&mut changed);
            assert_eq!(vouched.word_on_schedule(&changed).await, SaidBy::User, "{changed:?}");
        }
        let moved: [Change; 9] = [
            |one| one.name = "hourly".to_owned(),
            |one| one.cron = "* * * * *".to_owned(),
            |one| one.time_zone = "Europe/Rome".to_owned(),
            |one| one.catch_up = CatchUp::All,
            |one| one.job["file"] = json!("other.json"),
            |one| one.job["queue"] = json!("b"),
            |one| one.job["priority"] = json!(-1),
            |one| one.job["configured"]["mcp_config"] = json!("other.json"),
            |one| one.job["new"] = json!(true),
        ];
        for change in moved {
            let mut changed = sealed.clone();
            change(&mut changed);
            assert_eq!(vouched.word_on_schedule(&changed).await, SaidBy::Database, "{changed:?}");
        }
        let other = elsewhere(&mine, &dir.path().join("other root"));
        assert_eq!(Vouched::of(&other).word_on_schedule(&sealed).await, SaidBy::Database);
    }

    /// Which command seals what: what its user says with it, and what they had said before; nothing that somebody else wrote, however far they
    /// trust the folder for now. What was found is sealed as that.
    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    async fn s9_what_is_believed_for_one_command_is_stored_without_a_seal() {
        let dir = tempfile::tempdir().unwrap();
        let mine = host(dir.path(), Some("me"), &[]);
        let trusting = mine.clone().trusting_root();
        let store = MemStore::new();
        let mut run = Story::new(r#"{"objective": "x"}"#).records.run;
        let _kept = Scene::begin(&store, run.run_id.as_str()).await;
        let mut launch = Launch::for_inspection(dir.path().to_path_buf());
        launch.mcp_config = Some(dir.path().join("servers.json"));
        let (first, found) = (run.root_run_id.clone(), launch.to_stored());
        let said = Vouched::of(&mine).seal_run(&first, found.clone());
        // (what the row of the parent says, who forks it, whether the fork has a seal, whether its servers are this user's word later)
        for (row, host, has_seal, is_said) in [
            (&said, &mine, true, true),
            (&said, &trusting, true, true),
            (&found, &mine, true, false),
            (&found, &trusting, false, false),
        ] {
            run.launch = row.clone();
            let parent = Launch::of_run(host, &store, &run).await.unwrap();
            let options = LaunchOptions::default();
            let fork = Launch::for_fork(host.settings(), parent, &run, &run.spec, &options).unwrap();
            run.launch = fork.stored_for(host, &first);
            assert_eq!(run.launch.get(SEAL).is_some(), has_seal, "{row}");
            let later = Launch::of_run(&mine, &store, &run).await.unwrap();
            assert_eq!(!later.mcp_config_is_found, is_said, "{row}");
        }
        // The same of the run of a schedule, and of a job, which its user starts.
        fs::write(dir.path().join("job.json"), "{}").unwrap();
        for (said_by, has_seal) in [(SaidBy::User, true), (SaidBy::BelievedNow, false), (SaidBy::Database, true)] {
            let options = LaunchOptions { provider: Some("scripted".to_owned()), ..LaunchOptions::default() };
            let mut configured = Configured::now(mine.settings(), &run.spec, &options).unwrap();
            configured.is_unsaid = said_by == SaidBy::Database;
            configured.is_for_now = said_by == SaidBy::BelievedNow;
            let launch = Launch::of(mine.settings(), &dir.path().join("job.json"), &run.spec, configured).unwrap();
            let stored = launch.stored_for(&trusting, &first);
            assert_eq!(stored.get(SEAL).is_some(), has_seal, "{said_by:?}");
        }
        assert_eq!(Vouched::of(&trusting).word_on_schedule(&schedule()).await, SaidBy::BelievedNow);
    }

    /// Whatever the row says: its servers ask, its policies come with the job, and nothing private is reached.
    #[test]
    fn s9_what_nobody_said_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [servers, named, own] = ["a/servers.json", "a/named.toml", "own.toml"].map(|name| dir.path().join(name));
        fs::create_dir(dir.path().join("a")).unwrap();
        let launch = || {
            let mut launch = Launch::for_inspection(dir.path().join("job"));
            launch.mcp_config = Some(servers.clone());
            launch.policies = vec![named.clone(), own.clone()];
            launch.job_policies = Some(Vec::new());
            launch.allow_private_addresses = true;
            launch.record = Some(dir.path().join("tape"));
            launch.pricing = Some(dir.path().join("prices.toml"));
            launch.folder = Some("/elsewhere".into());
            launch
        };
        let settings = |more: &[(&str, &str)]| host(dir.path(), Some("me"), more).settings().clone();
        let mut found = launch();
        found.take_as_found(&settings(&[("UA_POLICY", own.to_str().unwrap())]));
        assert!(found.is_unsaid() && found.mcp_config_is_found && !found.allow_private_addresses);
        assert_eq!((&found.policies, &found.job_policies), (&vec![own.clone()], &Some(vec![named.clone()])));
        assert_eq!(found.folder_of_servers(), servers.parent());
        assert_eq!((&found.folder, &found.record), (&Some(dir.path().to_path_buf()), &None));
        assert!(found.pricing_is_the_projects);
        // Stored with a fork, it is the user's word that it was found.
        let forked = Launch::from_stored(&found.to_stored()).unwrap();
        assert!(forked.mcp_config_is_found && forked.policies == [own.clone()]);
        assert_eq!(forked.folder_of_servers(), servers.parent());
        // What this user has for every folder is theirs, and what they say of private addresses.
        let mut standing = launch();
        let (file, yes) = (servers.to_str().unwrap(), ("UA_ALLOW_PRIVATE_ADDRESSES", "1"));
        standing.take_as_found(&settings(&[("UA_MCP_CONFIG", file), yes]));
        assert!(!standing.mcp_config_is_found && standing.mcp_config_is_standing && standing.allow_private_addresses);
        assert_eq!(standing.folder_of_servers(), Some(dir.path()));
        // What says nothing that a person has to is passed over in silence.
        let mut plain = Launch::for_inspection(dir.path().to_path_buf());
        plain.take_as_found(&settings(&[]));
        assert!(!plain.is_unsaid());
    }
}
