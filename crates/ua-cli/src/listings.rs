//! Every table that this program shows: its columns, and how each gives way on a narrow terminal.
//!
//! A table is declared here or it cannot be printed ([`crate::table::print_table`]), and what is declared here is laid out at every width
//! by `table::tests`. Whole is what a person acts on: the id that a command takes, the status, when it comes next. Of columns that say less,
//! the first is left out last.

use crate::table::{Column, Listing};

macro_rules! listings {
    ($($(#[$doc:meta])* $name:ident = $called:literal: [$($column:expr),+ $(,)?];)+) => {
        $($(#[$doc])* pub(crate) const $name: Listing = Listing { name: $called, columns: &[$($column),+] };)+

        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Listing] = &[$($name),+];
    };
}

/// An id as a person is shown it.
const ID: &str = "7dc39827";
/// A tool's name, as long as ours are.
const TOOL: &str = "mcp__ua__get_core_memory_blocks";
/// The beginning of what somebody wrote.
const WORDS: &str =
    "Write a short, sourced report about tide mills from the given pages, publish it, and tell the team";
/// A place on the disk.
const PLACE: &str = "/home/somebody/projects/reports/jobs/a-report-about-tide-mills.json";

const fn whole(head: &'static str, widest: &'static str) -> Column {
    Column::whole(head, widest)
}

const fn text(head: &'static str, widest: &'static str) -> Column {
    Column::text(head, widest)
}

const fn name(head: &'static str, widest: &'static str) -> Column {
    Column::name(head, widest)
}

const fn place(head: &'static str, widest: &'static str) -> Column {
    Column::place(head, widest)
}

const fn extra(head: &'static str, widest: &'static str) -> Column {
    Column::extra(head, widest)
}

const fn aside(head: &'static str, widest: &'static str) -> Column {
    Column::aside(head, widest)
}

listings! {
    /// `ua runs list`.
    RUNS = "ua runs list": [
        whole("RUN", ID), whole("STATUS", "stopped (setup changed)"), extra("USED", "0.0123 USD + ?"),
        extra("TURNS", "12 (iteration 3/10)"), extra("UPDATED", "59 min ago"), text("OBJECTIVE", WORDS),
    ];
    /// The same of runs of one status, whose reasons a person looks for.
    RUNS_AND_WHY = "ua runs list, with reasons": [
        whole("RUN", ID), whole("STATUS", "stopped (setup changed)"), text("WHY", WORDS), extra("USED", "0.0123 USD + ?"),
        extra("TURNS", "12 (iteration 3/10)"), extra("UPDATED", "59 min ago"), aside("OBJECTIVE", WORDS),
    ];
    /// `ua status`.
    STATUS = "ua status": [
        whole("RUN", ID), whole("STATUS", "stopped (setup changed)"), extra("USED", "0.0123 USD + ?"), extra("TURNS", "12"),
        extra("UPDATED", "59 min ago"), text("OBJECTIVE", WORDS),
    ];
    /// `ua calls list`.
    CALLS = "ua calls list": [
        whole("CALL", ID), extra("WHEN", "59 min ago"), extra("TURN", "12.3"), extra("SERVER", "github"),
        name("TOOL", TOOL), extra("CLASS", "read_only"), whole("STATUS", ua_evidence::FAILED_PERHAPS),
        extra("TRIES", "1"), text("FOR", WORDS), text("RECEIPT OR ERROR", WORDS),
    ];
    /// The same of all runs.
    CALLS_OF_ALL = "ua calls list, of all runs": [
        whole("CALL", ID), extra("WHEN", "59 min ago"), extra("RUN", ID), extra("TURN", "call 12"), extra("SERVER", "github"),
        name("TOOL", TOOL), extra("CLASS", "read_only"), whole("STATUS", ua_evidence::FAILED_PERHAPS),
        extra("TRIES", "1"), text("FOR", WORDS), text("RECEIPT OR ERROR", WORDS),
    ];
    /// The same of sessions of clients at the gateway.
    CALLS_OF_SESSIONS = "ua calls list, of sessions at the gateway": [
        whole("CALL", ID), extra("WHEN", "59 min ago"), extra("RUN", ID), extra("PROJECT", "a-project"),
        extra("TURN", "call 12"), extra("SERVER", "github"), name("TOOL", TOOL),
        extra("CLASS", "read_only"), whole("STATUS", ua_evidence::FAILED_PERHAPS), extra("TRIES", "1"), text("FOR", WORDS),
        text("RECEIPT OR ERROR", WORDS),
    ];
    /// `ua questions --answered`.
    ANSWERED = "ua questions --answered": [
        whole("QUESTION", ID), extra("ANSWERED", "59 min ago"), whole("ANSWER", "happened"), text("BY", "alice (as ua)"),
        extra("RUN", ID), text("QUESTION WAS", WORDS), aside("WORDS", WORDS),
    ];
    /// `ua queue depth`.
    QUEUE_DEPTH = "ua queue depth": [
        whole("QUEUE", "default"), whole("READY", "1234"), whole("LATER", "12"), whole("CLAIMED", "12"),
        whole("PARKED", "12"), extra("OLDEST", "59 min ago"),
    ];
    /// `ua queue list`.
    QUEUE = "ua queue list": [
        whole("RUN", ID), extra("QUEUE", "default"), whole("STATE", "claimed"), extra("PRIORITY", "-10"),
        extra("KEY", "acme:2"), text("NOTE", "from Wed 08:00 (in 59 min), the machine that began it is not there"),
    ];
    /// `ua workers list`.
    WORKERS = "ua workers list": [
        whole("WORKER", ID), whole("STATUS", "draining"), whole("RUNS", "12/16"), extra("QUEUES", "default, night"),
        text("PROCESS", "123456 on a-machine.example.org"),
    ];
    /// `ua schedule list`.
    SCHEDULES = "ua schedule list": [
        whole("NAME", "nightly-report"), extra("CRON", "*/15 8-18 * * mon-fri"), extra("TIME ZONE", "Europe/Berlin"),
        whole("NEXT", "Wed 08:00 CEST in 59 min"), extra("LAST RUN", "stopped (setup changed)"), place("JOB", PLACE),
    ];
    /// `ua tools list`.
    TOOLS = "ua tools list": [
        whole("TOOL", "get_core_memory_blocks"), text("CLASS", "read_only"), extra("ON UNKNOWN", "redo_keyed"), aside("WHY", WORDS),
    ];
    /// `ua tools audit`.
    AUDIT = "ua tools audit": [
        whole("TOOL", TOOL), text("CLASS", "external by a rule now"), extra("FIRST RUN", ID), text("WHY", WORDS),
    ];
    /// `ua tools packs`.
    PACKS = "ua tools packs": [
        whole("PACK", "google-calendar"), extra("VERSION", "2026.11.1"), extra("RULES", "12"),
        name("COUNTS FOR", "@modelcontextprotocol/server-filesystem"), text("ABOUT", WORDS),
    ];
    /// The tools that `ua doctor --verbose` shows.
    DOCTOR_TOOLS = "ua doctor": [whole("TOOL", TOOL), text("CLASS", "read_only"), text("WHY", WORDS)];
    /// `ua config show`.
    SETTINGS = "ua config show": [
        whole("SETTING", "tools.image_generation_model"), place("VALUE", PLACE), text("SOURCE", "environment (UA_ROOT)"),
    ];
    /// `ua models list`.
    MODELS = "ua models list": [
        text("PROVIDER", "openai-chat"), whole("MODEL", "claude-sonnet-4-5-20250929"), extra("$/M IN", "15.00"),
        extra("$/M OUT", "75.00"), extra("CONTEXT", "1000000"), extra("MAX OUTPUT", "128000"), extra("SOURCE", "this version"),
    ];
    /// `ua trust --list`.
    TRUSTED = "ua trust --list": [
        whole("SERVER", "github"), whole("STATE", "changed since"), extra("SINCE", "59 min ago"), place("FILE", PLACE),
    ];
    /// `ua login --list`.
    LOGINS = "ua login --list": [
        whole("SERVER", "github"), place("ADDRESS", "https://mcp.example.org/v1/mcp"), extra("SCOPES", "read write"),
        whole("UNTIL", "renewed automatically"), extra("KEPT IN", "keyring"),
    ];
    /// What a session of the gateway was asked for.
    ASKED = "ua runs show SESSION": [
        whole("CALL", ID), extra("ASKED", "59 min ago"), name("TOOL", TOOL),
        whole("STATUS", ua_evidence::FAILED_PERHAPS), extra("ANSWER", "written to the client"), text("WHAT IT WAS", WORDS),
    ];
    /// Clients of the gateway.
    BRIDGES = "ua gateway status": [
        whole("SERVER", "github"), text("CLIENT", "claude-code 2.1.329"), extra("BY", "stdio"),
        name("SESSION", "0197a2c4-1111-7222-8333-944445555666"), place("PROJECT", PLACE),
    ];
    /// Calls of the gateway that are under way.
    UNDER_WAY = "ua gateway status, calls": [
        whole("CALL", ID), name("TOOL", TOOL), extra("SERVER", "github"), extra("SINCE", "59 min ago"),
        whole("NOW", "waits for you"), extra("CLIENTS WAITING", "1"),
    ];
    /// Two runs side by side.
    SIDES = "ua runs diff": [whole("", "own tokens"), text("A", WORDS), text("B", WORDS)];
    /// Their turns.
    TURNS_OF_TWO = "ua runs diff, turns": [whole("TURN", "12 ="), text("A", WORDS), text("B", WORDS)];
    /// Their files.
    FILES_OF_TWO = "ua runs diff, files": [place("FILE", PLACE), whole("A", "085e3b7525"), whole("B", "085e3b7525")];
}
