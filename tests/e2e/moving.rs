//! A database that moves to a server is in one place, wherever its mover is killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use ua_e2e::TestEnv;
use ua_store_postgres::{Filling, PostgresConfig};
use ua_store_sqlite::{Copying, Departure, Standing};

use super::env;
use super::server_database::{cluster, comment_job, cut_all};
use crate::cluster::{blocking, skipped};

/// How far a mover gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    File,
    Server,
    Rows,
    Whole,
    Given,
    Committed,
    Arrived,
}

const ALL: [Reached; 8] = [
    Reached::Nothing,
    Reached::File,
    Reached::Server,
    Reached::Rows,
    Reached::Whole,
    Reached::Given,
    Reached::Committed,
    Reached::Arrived,
];

/// What `ua db copy` does, as far as it gets; what it held is let go then as a kill does it.
fn moved_as_far_as(reached: Reached, file: &Path, url: &str, copy: &str) {
    let at = ua_core::system::env().now();
    let config = PostgresConfig::from_url(url).unwrap();
    if reached < Reached::File {
        return;
    }
    let departure = Departure::begin(file).unwrap();
    if reached < Reached::Server {
        return;
    }
    let mut filling = blocking(Filling::begin(&config)).unwrap();
    let to = filling.database().to_owned();
    if reached < Reached::Rows {
        return;
    }
    blocking(filling.make_room()).unwrap();
    for (table, columns) in departure.tables().unwrap() {
        let (_, rows) = departure.rows(&table, &columns, 0, 100_000).unwrap();
        blocking(filling.rows(&table, &columns, rows)).unwrap();
    }
    if reached < Reached::Whole {
        return;
    }
    blocking(filling.check(copy)).unwrap();
    if reached < Reached::Given {
        return;
    }
    let under_way = departure.leave(Copying { id: copy.to_owned(), to, shown: config.shown() }).unwrap();
    if reached < Reached::Committed {
        return;
    }
    blocking(filling.commit()).unwrap();
    if reached == Reached::Arrived {
        under_way.arrived(at).unwrap();
    }
}

/// A root with a run in its database, and fresh databases on the server with the schema.
struct World {
    env: TestEnv,
    before: Vec<u8>,
    /// The empty database that each of its own is made of.
    template: &'static str,
    fresh: u32,
}

impl World {
    fn new(template: &'static str) -> Option<Self> {
        let Some(cluster) = cluster() else {
            skipped("PostgreSQL is not installed");
            return None;
        };
        let env = env().with_forum();
        env.run(&["job", &comment_job(&env), "--run-id", "r"]).code(0);
        cluster.create(template, "");
        env.run(&["db", "migrate", "--database-url", &cluster.url(template, 5432)]).code(0);
        let before = fs::read(env.database_path()).unwrap();
        assert!(!env.root().join("runtime_state.db-wal").exists(), "all of it is in the file");
        Some(Self { env, before, template, fresh: 0 })
    }

    /// As before any move, and an empty database on the server: its name and its URL.
    fn begin(&mut self) -> (String, String) {
        for entry in fs::read_dir(self.env.root()).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("runtime_state.db") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        fs::write(self.env.database_path(), &self.before).unwrap();
        let only_ours = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(self.env.database_path(), only_ours).unwrap();
        self.fresh += 1;
        let name = format!("{}_{}", self.template, self.fresh);
        let cluster = cluster().unwrap();
        cluster.create(&name, &format!("TEMPLATE {}", self.template));
        let url = cluster.url(&name, 5432);
        (name, url)
    }

    /// Moved as far as that, and killed.
    fn killed_at(&mut self, reached: Reached) -> String {
        let (name, url) = self.begin();
        moved_as_far_as(reached, &self.env.database_path(), &url, "first");
        cut_all(&name);
        url
    }

    fn is_in_file(&self) -> bool {
        let listed = self.env.run(&["runs", "list", "--json"]);
        listed.stdout.contains("\"run_id\":\"r\"") || listed.stdout.contains("\"run_id\": \"r\"")
    }

    /// Asked from another root: this one is refused with a server while the file has its runs.
    fn is_on_server(&self, url: &str) -> bool {
        let looker = self.env.arg("looker");
        let listed = self.env.run(&["runs", "list", "--json", "--root", &looker, "--database-url", url]);
        listed.stdout.contains("\"run_id\":\"r\"") || listed.stdout.contains("\"run_id\": \"r\"")
    }
}

#[test]
fn a_move_that_is_killed_anywhere_is_finished_by_the_same_command() {
    let Some(mut world) = World::new("to_be_finished") else { return };
    for reached in ALL {
        let url = world.killed_at(reached);
        let is_told = matches!(reached, Reached::Given | Reached::Committed);
        assert!(!(world.is_in_file() && world.is_on_server(&url)), "{reached:?}: it is in both");
        assert_eq!(world.is_in_file(), reached < Reached::Given, "{reached:?}");
        if is_told {
            let what = ["has not finished", "`ua db copy`", "`ua db copy --undo`"];
            world.env.run(&["resume", "r"]).refused(74, &what);
            world.env.run(&["job", &comment_job(&world.env), "--new"]).refused(74, &what);
            world.env.run(&["resume", "r", "--database-url", &url]).refused(74, &what);
            world.env.run(&["job", &comment_job(&world.env), "--new", "--database-url", &url]).refused(74, &what);
        }
        let again = world.env.run(&["db", "copy", "--database-url", &url]);
        match reached {
            Reached::Arrived => drop(again.refused(2, &["was moved to a server already"])),
            Reached::Committed => drop(again.code(0).shows(&["an earlier copy had arrived"])),
            Reached::Nothing | Reached::File | Reached::Server | Reached::Rows | Reached::Whole | Reached::Given => {
                drop(again.code(0).shows(&["rows are in the database"]));
            }
        }
        assert!(world.is_on_server(&url) && !world.is_in_file(), "{reached:?}");
        let whole = world.env.run(&["db", "check", "--invariants", "--json", "--database-url", &url]).json();
        assert_eq!((&whole["violations"], &whole["checked_runs"]), (&serde_json::json!([]), &serde_json::json!(1)));
    }
}

#[test]
fn a_move_that_is_killed_anywhere_is_taken_back_unless_it_arrived() {
    let Some(mut world) = World::new("to_be_taken_back") else { return };
    for reached in ALL {
        let url = world.killed_at(reached);
        let back = world.env.run(&["db", "copy", "--undo", "--database-url", &url]);
        match reached {
            Reached::Arrived => drop(back.refused(2, &["was moved to a server already"])),
            Reached::Committed => drop(back.refused(2, &["the copy arrived", "`ua db copy`"])),
            Reached::Given => drop(back.code(0).shows(&["is in use again"])),
            Reached::Nothing | Reached::File | Reached::Server | Reached::Rows | Reached::Whole => {
                drop(back.code(0).shows(&["was not being moved"]));
            }
        }
        assert_eq!(world.is_in_file(), reached < Reached::Committed, "{reached:?}");
        if reached < Reached::Committed {
            assert!(!world.is_on_server(&url), "{reached:?}");
            world.env.run(&["db", "check", "--invariants"]).code(0).shows(&["1 run, 0 violations"]);
            // It is as it was, and moves like any other.
            world.env.run(&["db", "copy", "--database-url", &url]).code(0);
            assert!(world.is_on_server(&url) && !world.is_in_file(), "{reached:?}");
        }
    }
}

/// What lies beside the file is not moved, so what it says is heard before.
#[test]
fn a_database_that_went_back_in_time_is_not_moved_before_somebody_looked() {
    let Some(mut world) = World::new("gone_back") else { return };
    world.env.run(&["job", &comment_job(&world.env), "--new", "--run-id", "later"]).code(0);
    let (_, url) = world.begin();
    let refused = world.env.run(&["db", "copy", "--database-url", &url]);
    refused.refused(2, &["is an older copy", "effects.log knows", "ua db accept", "nothing was changed"]);
    assert!(world.is_in_file() && !world.is_on_server(&url));
    world.env.run(&["db", "accept", "later"]).code(0);
    // Whoever begins on the server would not be asked before it does what that run did.
    let refused = world.env.run(&["db", "copy", "--database-url", &url]);
    refused.code(2).says(&["before something like what was accepted is done again", "--without-lost"]);
    assert!(world.is_in_file() && !world.is_on_server(&url));
    world.env.run(&["db", "copy", "--without-lost", "--database-url", &url]).code(0);
    assert!(world.is_on_server(&url) && !world.is_in_file());
}

/// Another server knows nothing of it, and says neither that it arrived nor that it did not.
#[test]
fn a_move_that_was_killed_asks_the_server_that_it_went_to() {
    let Some(mut world) = World::new("to_be_asked") else { return };
    for reached in [Reached::Given, Reached::Committed] {
        let url = world.killed_at(reached);
        let elsewhere = format!("elsewhere_{}", world.fresh);
        cluster().unwrap().create(&elsewhere, &format!("TEMPLATE {}", world.template));
        let other = cluster().unwrap().url(&elsewhere, 5432);
        // A template has the same identity: this one is made another, as each server's own is.
        let sql = "UPDATE ua.meta SET value = 'another' WHERE key = 'db_uuid'";
        cluster().unwrap().sql(&elsewhere, sql).unwrap();
        world.env.run(&["db", "copy", "--database-url", &other]).refused(2, &["is another one", "--undo --force"]);
        world.env.run(&["db", "copy", "--undo", "--database-url", &other]).refused(2, &["is another one", "--force"]);
        world.env.run(&["db", "copy", "--undo"]).refused(2, &["--database-url", "--force"]);
        assert!(!world.is_in_file());
        world.env.run(&["db", "copy", "--database-url", &url]).code(0);
    }
    // A file that was moved, under its old name again: finished as far as it knows, and usable for whoever says so.
    let kept = fs::read_dir(world.env.root()).unwrap().map(|entry| entry.unwrap().path());
    let is_kept = |path: &std::path::PathBuf| {
        let name = path.display().to_string();
        name.contains(".moved-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    };
    let kept = kept.into_iter().find(is_kept).unwrap();
    fs::rename(kept, world.env.database_path()).unwrap();
    assert!(matches!(Standing::of(&world.env.database_path()), Ok(Standing::Left(Some(_)))));
    world.env.run(&["db", "copy", "--undo"]).refused(2, &["was moved to a server", "--undo --force"]);
    world.env.run(&["db", "copy", "--undo", "--force"]).code(0).shows(&["is in use again"]);
    assert!(world.is_in_file());
}

/// A process that has the file open asked long ago what it is; nothing of what it writes then is lost, because nothing is taken.
#[test]
fn a_file_that_is_given_away_takes_nothing_from_whoever_has_it_open() {
    let Some(mut world) = World::new("given_away") else { return };
    let (name, url) = world.begin();
    let open = rusqlite::Connection::open(world.env.database_path()).unwrap();
    let write = || open.execute("UPDATE runs SET updated_at = updated_at", []);
    assert_eq!(write().unwrap(), 1);
    moved_as_far_as(Reached::Given, &world.env.database_path(), &url, "first");
    cut_all(&name);
    for sql in ["UPDATE runs SET updated_at = updated_at", "DELETE FROM runs", "INSERT INTO meta VALUES ('a', 'b')"] {
        let refused = open.execute(sql, []).unwrap_err().to_string();
        assert!(refused.contains("was given to a server"), "{refused}");
    }
    world.env.run(&["db", "copy", "--undo", "--database-url", &url]).code(0);
    assert_eq!(write().unwrap(), 1);
}

/// A root in which nothing was begun yet has nothing but the moved file to tell by: without the server's name nothing is begun beside it.
#[test]
fn a_moved_database_is_not_begun_beside_its_server() {
    let Some(mut world) = World::new("begun_beside") else { return };
    let (_, url) = world.begin();
    // As if its runs had only been submitted.
    for entry in fs::read_dir(world.env.root()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("session_") {
            fs::remove_dir_all(entry.path()).unwrap();
        } else if name == "effects.log" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    world.env.run(&["db", "copy", "--database-url", &url]).code(0);
    let job = comment_job(&world.env);
    let said = ["moved to a server", "--database-url"];
    for command in
        [&["submit", &job, "--new"][..], &["job", &job, "--new"], &["runs", "list"], &["worker", "--until-empty"]]
    {
        world.env.run(command).refused(74, &said);
    }
    assert!(!world.env.database_path().exists());
    // Nor beside a copy of before.
    fs::write(world.env.database_path(), &world.before).unwrap();
    let only_ours = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(world.env.database_path(), only_ours).unwrap();
    for command in [&["submit", &job, "--new"][..], &["runs", "list"], &["resume", "r"]] {
        world.env.run(command).refused(74, &said);
    }
}

/// Whoever names a server and forgets the move is told, whatever is asked for: nothing that the file knows is done again, and what waits there is
/// not taken for done.
#[test]
fn a_server_is_not_used_where_the_file_has_the_runs() {
    let Some(mut world) = World::new("not_moved") else { return };
    let (_, url) = world.begin();
    let job = comment_job(&world.env);
    let with_url = |words: &[&str]| world.env.run(&[words, &["--database-url", &url]].concat());
    world.env.run(&["submit", &job, "--new", "--run-id", "waiting"]).code(0);
    assert_eq!(world.env.comments().len(), 1);
    let said =
        ["are in the file", "runtime_state.db", "`ua db copy`", "--database-url", "--root", "nothing was changed"];
    for command in [
        &["job", &job, "--run-id", "r"][..],
        &["job", &job, "--new"],
        &["job", "--check", &job],
        &["submit", &job, "--new"],
        &["resume", "waiting"],
        &["worker", "--until-empty"],
        &["queue", "list"],
        &["runs", "list"],
        &["status"],
    ] {
        with_url(command).refused(2, &said);
    }
    assert_eq!(world.env.comments().len(), 1);
    assert!(!world.env.root().join("locks/root_id").exists(), "the root belongs to no server");
    // What looks at the server alone tells of it, and where they are they can be used.
    with_url(&["db", "migrate"]).code(0);
    with_url(&["db", "check"]).says(&["are in the file"]);
    with_url(&["doctor"]).shows(&["are in the file"]);
    assert!(world.is_in_file());
    with_url(&["db", "copy"]).code(0);
    with_url(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(world.env.comments().len(), 1);
    with_url(&["worker", "--until-empty"]).code(0);
    assert_eq!(world.env.comments().len(), 2);
}

/// A server whose URL is another one than before knows nothing of what was done from the root: nothing begins there, and what looks may look.
#[test]
fn a_root_is_not_used_with_another_server_than_before() {
    let Some(cluster) = cluster() else {
        return skipped("PostgreSQL is not installed");
    };
    let env = env().with_forum();
    let [first, second] = ["one_server", "other_server"].map(|name| {
        cluster.create(name, "");
        let url = cluster.url(name, 5432);
        env.run(&["db", "migrate", "--database-url", &url]).code(0);
        url
    });
    let with = |url: &str, words: &[&str]| env.run(&[words, &["--database-url", url]].concat());
    let job = comment_job(&env);
    with(&first, &["job", &job, "--run-id", "r"]).code(0);
    let said = ["is used with another database on a server", "locks/database_id"];
    for command in [&["job", &job, "--run-id", "r"][..], &["submit", &job, "--new"], &["worker", "--until-empty"]] {
        with(&second, command).refused(74, &said);
    }
    with(&second, &["runs", "list"]).code(0);
    with(&second, &["db", "check"]).says(&["is used with another database on a server"]);
    assert_eq!(env.comments().len(), 1);
    with(&first, &["job", &job, "--run-id", "r"]).code(0);
    // Another root is nobody's yet, and the word of a person counts.
    with(&second, &["submit", &job, "--root", &env.arg("fresh"), "--run-id", "s"]).code(0);
    fs::remove_file(env.root().join("locks/database_id")).unwrap();
    with(&second, &["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 2);
    with(&first, &["job", &job, "--new"]).refused(74, &said);
    // What begins nothing here is written from anywhere.
    with(&first, &["submit", &job, "--new", "--root", &env.arg("third"), "--run-id", "t"]).code(0);
    with(&first, &["queue", "move", "t"]).code(0);
    with(&first, &["runs", "cancel", "t", "--yes"]).code(0);
    // A note that cannot be read is no leave.
    fs::write(env.root().join("locks/database_id"), [0xff]).unwrap();
    with(&first, &["job", &job, "--new"]).refused(74, &["cannot be read", "locks/database_id"]);
}
