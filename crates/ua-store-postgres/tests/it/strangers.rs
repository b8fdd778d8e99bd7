//! Other roles in the same database: what they own is not read, and what they put where names are looked for is not run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use ua_core::{CallStatus, sha256};
use ua_store::RunStore as _;
use ua_store::conformance::Scene;
use ua_store_postgres::{PostgresConfig, PostgresStore, migrate};

use crate::cluster::blocking;
use crate::database::Database;

/// A database that two roles may make schemas in, one of which is this program's.
struct Shared {
    database: Database,
    by_hand: Client,
    eve: String,
    own: String,
}

impl Shared {
    fn empty() -> Option<Self> {
        let database = Database::empty()?;
        let (by_hand, name) = (database.by_hand(), &database.name);
        let (eve, own) = (format!("eve_{name}"), format!("own_{name}"));
        let roles = format!(
            "CREATE ROLE {eve} LOGIN; CREATE ROLE {own} LOGIN; GRANT CREATE ON DATABASE {name} TO {eve}, {own}"
        );
        blocking(by_hand.batch_execute(&roles)).unwrap();
        Some(Self { database, by_hand, eve, own })
    }

    /// As a superuser.
    fn run(&self, sql: &str) {
        blocking(self.by_hand.batch_execute(sql)).unwrap();
    }

    /// As the other role.
    fn as_eve(&self, sql: &str) {
        self.run(&format!("SET ROLE {}; {sql}; RESET ROLE", self.eve));
    }

    fn config(&self) -> PostgresConfig {
        let url = self.database.url_at(crate::postgres::SERVER).replace("user=ua", &format!("user={}", self.own));
        PostgresConfig::from_url(&url).unwrap()
    }

    /// Whether the other role could make this program's a member of it.
    fn lets_in(&self) -> bool {
        let mut server = tokio_postgres::Config::new();
        server
            .host_path(self.database.folder())
            .user(&self.eve)
            .dbname(&self.database.name)
            .port(crate::postgres::SERVER);
        let grant = format!("GRANT {} TO {}", self.eve, self.own);
        blocking(async move {
            let (client, connection) = server.connect(NoTls).await.unwrap();
            drop(tokio::spawn(connection));
            client.batch_execute(&grant).await.is_ok()
        })
    }

    /// Why this program's role does not use the schema.
    fn refusal(&self) -> String {
        blocking(PostgresStore::open(&self.config())).err().unwrap().to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_another_role_made_first_is_not_filled() {
    let Some(shared) = Shared::empty() else { return };
    let Shared { eve, own, .. } = &shared;
    shared.as_eve(&format!("CREATE SCHEMA ua; GRANT ALL ON SCHEMA ua TO {own}"));
    // Before PostgreSQL 16 a role lets in whomever it wants, in a session of its own.
    let was_let_in = shared.lets_in();
    let refused = blocking(migrate(&shared.config())).err().unwrap().to_string();
    assert!(refused.contains(&format!("the schema ua belongs to the role {eve}, and whoever owns")), "{refused}");
    assert!(refused.contains(&format!("ALTER SCHEMA ua OWNER TO {own};")), "{refused}");
    // A superuser may say that it is fine, and think otherwise later.
    if was_let_in {
        shared.run(&format!("REVOKE {eve} FROM {own}"));
    }
    shared.run(&format!("GRANT {eve} TO {own}"));
    blocking(migrate(&shared.config())).unwrap();
    drop(blocking(PostgresStore::open(&shared.config())).unwrap());
    shared.run(&format!("REVOKE {eve} FROM {own}"));
    let refused = shared.refusal();
    assert!(
        refused.contains(&format!("the role {eve} (in it, the table ")) && refused.contains(&format!(" to {own}")),
        "{refused}"
    );
    // A role that makes no schemas sees it by what is in it: a table of another one's.
    shared.run(&format!(
        "REVOKE CREATE ON DATABASE {} FROM {own}; REVOKE CREATE ON SCHEMA ua FROM {own}",
        shared.database.name
    ));
    let refused = shared.refusal();
    assert!(refused.contains(&format!("the role {eve} (in it, the table ")), "{refused}");
    shared.run(&format!("ALTER SCHEMA ua OWNER TO {own}"));
    assert!(blocking(PostgresStore::open(&shared.config())).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_role_put_into_the_schema_is_named_and_not_run() {
    let Some(shared) = Shared::empty() else { return };
    let Shared { eve, own, .. } = &shared;
    blocking(migrate(&shared.config())).unwrap();
    assert!(blocking(PostgresStore::open(&shared.config())).is_ok());
    let not_trusted = |word: &str| {
        let refused = shared.refusal();
        assert!(refused.contains(word), "{word}: {refused}");
    };
    // A trigger whose function is elsewhere.
    shared.run(&format!("GRANT USAGE ON SCHEMA ua TO {eve}; GRANT TRIGGER ON ua.workers TO {eve}"));
    shared.as_eve(
        "CREATE SCHEMA hers; CREATE FUNCTION hers.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; \
         CREATE TRIGGER t BEFORE INSERT ON ua.workers FOR EACH ROW EXECUTE FUNCTION hers.f()",
    );
    not_trusted(&format!("the schema ua belongs to the role {own} (in it, the function f of the trigger t to {eve})"));
    shared.run("DROP TRIGGER t ON ua.workers");
    // A view in the place of a table, of which she was made the owner.
    shared.run(&format!("CREATE VIEW ua.more AS SELECT 1 AS one; ALTER VIEW ua.more OWNER TO {eve}"));
    not_trusted(&format!("the view more to {eve}"));
    shared.run("DROP VIEW ua.more; GRANT CREATE ON SCHEMA ua TO PUBLIC");
    not_trusted("REVOKE CREATE ON SCHEMA ua FROM PUBLIC;");
    shared.run("REVOKE CREATE ON SCHEMA ua FROM PUBLIC");
    assert!(blocking(PostgresStore::open(&shared.config())).is_ok());
}

/// A function that fits better than the server's own is found first by whoever names no schema (CVE-2018-1058).
#[tokio::test(flavor = "multi_thread")]
async fn a_function_or_operator_in_public_is_not_run() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    let trap = |name: &str, of: &str, gives: &str| {
        format!(
            "CREATE FUNCTION public.{name}({of}) RETURNS {gives} LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_catalog.nextval('public.trapped'); RAISE 'trapped'; END $$;"
        )
    };
    let traps = [
        "CREATE SEQUENCE public.trapped;".to_owned(),
        trap("hashtextextended", "text, int", "bigint"),
        trap("joined", "text, oid", "text"),
        "CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = oid, FUNCTION = public.joined);".to_owned(),
        trap("same", "oid, int", "boolean"),
        "CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = int, FUNCTION = public.same);".to_owned(),
    ];
    blocking(by_hand.batch_execute(&traps.concat())).unwrap();
    // They are found by whoever looks there.
    for caught in ["'x'::text || 1::oid", "1::oid = 1", "hashtextextended('x'::text, 1)"] {
        let sql = format!("SET search_path = public; SELECT {caught}");
        assert!(blocking(by_hand.batch_execute(&sql)).is_err(), "{caught}");
    }
    blocking(by_hand.batch_execute("SELECT setval('public.trapped', 1, false)")).unwrap();
    let mut config = database.direct();
    let locks = tempfile::tempdir().unwrap();
    config.alone_beside = Some(locks.path().to_owned());
    blocking(migrate(&config)).unwrap();
    let store = blocking(PostgresStore::open(&config)).unwrap();
    let wait = Duration::from_secs(30);
    let asked = store.clone();
    let held = blocking(async move { asked.only_one(sha256("a job"), wait).await.unwrap() });
    assert!(held.is_some());
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    let asked = store.clone();
    blocking(async move {
        asked.note_history().await.unwrap();
        asked.examine().await.unwrap();
    });
    assert_eq!(store.runs(9).await.unwrap().len(), 1);
    let row = blocking(by_hand.query_one("SELECT is_called FROM public.trapped", &[])).unwrap();
    assert!(!row.get::<_, bool>(0));
}

/// Whatever is sent begins a transaction with a path, or stands behind one that did. What sends is counted, so that whoever adds something looks how
/// its names are found: `owners::said`, or a transaction of `Db`.
#[test]
fn nothing_is_sent_that_looks_for_names_where_others_may_put_some() {
    let sends = [".batch_execute(", ".simple_query(", ".query", ".prepare(", ".transaction()"];
    let known = [
        ("db.rs", 3),
        ("doubts.rs", 5),
        ("filling.rs", 7),
        ("only_one.rs", 1),
        ("owners.rs", 3),
        ("schema.rs", 5),
        ("store.rs", 5),
    ];
    let mut found = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for (at, _) in text.match_indices("\"BEGIN") {
            let begun = text[at..].split(';').nth(1).unwrap_or_default();
            assert!(begun.contains("SET LOCAL search_path = "), "{name}: {}", &text[at..].lines().next().unwrap());
        }
        let count = sends.iter().map(|send| text.matches(send).count()).sum::<usize>();
        if count > 0 {
            found.push((name, count));
        }
    }
    found.sort();
    let found: Vec<(&str, usize)> = found.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(found, known);
}
