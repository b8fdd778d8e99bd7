//! Whose the schema is: whoever owns a part of it has this program's role run what they write, by a trigger, a view or an operator.
//!
//! In a database that other programs use as well, one of their roles may have made the schema `ua` first, and given the right to use it. So before
//! anything in it is read it is asked whose it, and all that is in it, is. A role is trusted that this one is, or was made a member of by somebody
//! else than that role itself (which it could do itself before PostgreSQL 16), and superusers and the owner of the database, who can do all that
//! anyway; in a schema of one of these, who was given the right to make things in it, too. A role that makes no schemas, as a worker's, knows none of
//! that: of a schema that is another role's it asks that all of it is that role's, or its members'. That role is whoever gave it the right to use
//! the schema, and is not judged here.
//!
//! It is asked with nothing but the server's own functions and operators in reach, since those of others would be run by asking. So is whatever else
//! is asked outside of a transaction that begins with the schema as its path; a session is set to nothing, since a pooler lends it to others.
//!
//! Invariant: no statement is sent that finds functions, operators or types by a path that the server or the role happens to have. Proved by:
//! `tests/it/strangers.rs`.

use tokio_postgres::{Client, Row};
use ua_store::StoreError;

use crate::db::Db;
use crate::error::{DbError, refused, sql_error};
use crate::value::params;

/// Begins a transaction that reads, in which a name without a schema is one of the server's own.
pub(crate) const APART: &str = "BEGIN READ ONLY; SET LOCAL search_path = pg_catalog";

/// What belongs to a role that is not trusted, with its owner, that of the schema, and this role; and `PUBLIC`, where each role may make things.
const STRANGERS: &str = "WITH RECURSIVE \
    place AS (SELECT n.oid, n.nspowner, n.nspacl FROM pg_namespace n WHERE n.nspname = 'ua'), \
    held AS (SELECT r.oid FROM pg_roles r WHERE r.rolname IN (current_user, session_user) \
      UNION SELECT m.roleid FROM pg_auth_members m JOIN held h ON h.oid = m.member WHERE m.grantor <> m.roleid), \
    members AS (SELECT p.nspowner AS oid FROM place p \
      UNION SELECT m.member FROM pg_auth_members m JOIN members o ON o.oid = m.roleid WHERE m.grantor <> m.roleid), \
    admins AS (SELECT r.oid FROM pg_roles r WHERE r.rolsuper OR r.rolname = 'pg_database_owner' \
      UNION SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()), \
    makers AS (SELECT a.grantee AS oid FROM place p CROSS JOIN LATERAL aclexplode(p.nspacl) a WHERE a.privilege_type = 'CREATE'), \
    known AS (SELECT EXISTS (SELECT FROM place p JOIN (SELECT oid FROM held UNION SELECT oid FROM admins) t ON t.oid = p.nspowner) AS is_known), \
    things AS (SELECT 0 AS rank, 'the schema ua'::text AS what, p.nspowner AS owner FROM place p \
      UNION ALL SELECT 1, CASE WHEN c.relkind IN ('v', 'm') THEN 'the view '::text ELSE 'the table '::text END || quote_ident(c.relname), c.relowner \
        FROM pg_class c JOIN place p ON p.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') \
      UNION ALL SELECT 2, 'the function '::text || quote_ident(f.proname), f.proowner FROM pg_proc f JOIN place p ON p.oid = f.pronamespace \
      UNION ALL SELECT 3, 'the function '::text || quote_ident(f.proname) || ' of the trigger '::text || quote_ident(t.tgname), f.proowner \
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN place p ON p.oid = c.relnamespace JOIN pg_proc f ON f.oid = t.tgfoid \
        WHERE NOT t.tgisinternal \
      UNION ALL SELECT 4, 'the operator '::text || o.oprname::text, o.oprowner FROM pg_operator o JOIN place p ON p.oid = o.oprnamespace \
      UNION ALL SELECT 5, 'the type '::text || quote_ident(y.typname), y.typowner FROM pg_type y JOIN place p ON p.oid = y.typnamespace \
        WHERE y.typrelid = 0 AND y.typcategory <> 'A') \
    SELECT s.what, s.owner, quote_ident(pg_get_userbyid(p.nspowner)), quote_ident(current_user) FROM ( \
      SELECT t.rank, t.what, quote_ident(pg_get_userbyid(t.owner)) AS owner FROM things t CROSS JOIN place p CROSS JOIN known k \
        WHERE NOT (t.owner IN (SELECT oid FROM admins) OR t.owner IN (SELECT oid FROM members) \
          OR (k.is_known AND (t.owner IN (SELECT oid FROM held) OR t.owner IN (SELECT oid FROM makers)))) \
        OR (t.rank = 0 AND NOT k.is_known \
          AND (has_database_privilege(current_database(), 'CREATE') OR has_schema_privilege(p.oid, 'CREATE'))) \
      UNION ALL SELECT 9, 'PUBLIC'::text, ''::text FROM makers m WHERE m.oid = 0) s CROSS JOIN place p ORDER BY s.rank, s.what LIMIT 5";

/// Something that belongs to a role that is not trusted.
#[derive(Debug, Clone)]
struct Stranger {
    /// What it is, as people are told.
    what: String,
    /// Whose it is, as SQL writes it.
    owner: String,
    /// Whose the schema is.
    schema: String,
    /// Which role this is.
    role: String,
}

impl Stranger {
    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self { what: row.try_get(0)?, owner: row.try_get(1)?, schema: row.try_get(2)?, role: row.try_get(3)? })
    }
}

/// Refuses a schema of which a part is somebody else's, on a connection without a transaction.
pub(crate) async fn judge(client: &Client) -> Result<(), StoreError> {
    let rows = said(client, STRANGERS).await.map_err(sql_error)?;
    let strangers: Result<Vec<Stranger>, _> = rows.iter().map(Stranger::of).collect();
    refusal(&strangers.map_err(sql_error)?).map_or(Ok(()), Err)
}

/// The same in a transaction whose path is the server's own.
pub(crate) fn check(db: &Db) -> Result<(), DbError> {
    let strangers = db.rows(STRANGERS, params![], |row| Ok(Stranger::of(row)?))?;
    refusal(&strangers).map_or(Ok(()), |why| Err(why.into()))
}

/// What the server says to a query of its own catalogs, on a connection without a transaction.
pub(crate) async fn said(client: &Client, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    client.batch_execute(APART).await?;
    let rows = client.query_typed(sql, &[]).await;
    // Behind an error it ends the transaction all the same.
    client.batch_execute("COMMIT").await.and(rows)
}

/// Why the schema is not used, and what to run.
fn refusal(strangers: &[Stranger]) -> Option<StoreError> {
    let Stranger { what, schema, role, .. } = strangers.first()?;
    if what == "PUBLIC" {
        return Some(refused(format!(
            "each role may make functions in the schema ua, which the role {role} would run; as its owner, {schema}: \
             REVOKE CREATE ON SCHEMA ua FROM PUBLIC;"
        )));
    }
    let parts = strangers.iter().filter(|part| !["the schema ua", "PUBLIC"].contains(&part.what.as_str()));
    let parts: Vec<String> = parts.map(|part| format!("{} to {}", part.what, part.owner)).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" (in it, {})", parts.join(", ")) };
    Some(refused(format!(
        "the schema ua belongs to the role {schema}{parts}, and whoever owns a part of it can have the role {role} run what they write, so nothing in \
         it is read; {role} trusts itself, superusers, the owner of the database, and roles that one of these made it a member of. If all of it is \
         yours, name {schema} in the database URL, or run as a superuser ALTER SCHEMA ua OWNER TO {role}; and for each part ALTER TABLE (or \
         FUNCTION …) … OWNER TO {role};. A worker's role, which makes no schemas, is not asked for that where all of it is one role's: REVOKE CREATE \
         ON DATABASE … FROM {role};. If somebody else made it, run as a superuser ALTER SCHEMA ua RENAME TO not_ours; and then `ua db migrate`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(what: &str, owner: &str) -> Stranger {
        let (what, owner) = (what.to_owned(), owner.to_owned());
        Stranger { what, owner, schema: "eve".to_owned(), role: "ua".to_owned() }
    }

    #[test]
    fn what_is_somebody_elses_is_named_with_what_to_run() {
        assert!(refusal(&[]).is_none());
        let said = refusal(&[part("the schema ua", "eve"), part("the table runs", "ua"), part("PUBLIC", "")]).unwrap();
        for word in [
            "the schema ua belongs to the role eve (in it, the table runs to ua), and",
            "have the role ua run",
            "ALTER SCHEMA ua OWNER TO ua;",
            "RENAME TO not_ours; and then `ua db migrate`",
        ] {
            assert!(said.to_string().contains(word), "{word}: {said}");
        }
        let said = refusal(&[part("the schema ua", "eve")]).unwrap().to_string();
        assert!(said.contains(": the schema ua belongs to the role eve, and"), "{said}");
        let said = refusal(&[part("PUBLIC", "")]).unwrap().to_string();
        assert!(said.ends_with("as its owner, eve: REVOKE CREATE ON SCHEMA ua FROM PUBLIC;"), "{said}");
    }
}
