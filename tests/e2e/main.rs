//! End-to-end tests: the real program in a world of its own, judged by its exit code, by what a person reads, and by effects
//! counted outside.

mod adopted;
mod artifacts;
mod attended;
mod bad_input;
mod bad_storage;
mod blobs;
mod canary;
mod cancel;
mod check;
mod claude_code;
mod claude_sessions;
#[path = "../../crates/ua-store-postgres/tests/it/cluster.rs"]
mod cluster;
mod command_line;
mod composite;
mod config;
mod corrections;
mod ctrl_c;
mod database;
mod destination;
mod doctor;
mod enforcement;
mod export;
mod fingerprint;
mod first_minutes;
mod fleet;
mod forged_names;
mod fork;
mod front_door;
mod gateway;
mod gateway_alerts;
mod gateway_conformance;
mod guardrails;
mod guide;
mod harness;
mod http_tool_server;
mod images;
mod input_files;
mod inspect;
mod interrupt;
mod job;
mod json_schema;
mod library;
mod listings;
mod login;
mod looks;
mod lost_machine;
mod memory;
mod model;
mod model_servers;
mod moving;
mod near_duplicates;
mod newcomer;
mod next_steps;
mod packs;
mod people;
mod phases;
mod pictures;
mod placed;
mod probe;
mod prompts;
mod real_claude_code;
mod real_gateway;
mod reference_servers;
mod resume;
mod safety;
mod same_receipts;
mod sandbox;
mod secret_references;
mod secrets;
mod sent_files;
mod server_database;
mod sessions;
mod siblings;
mod sources;
mod stateless_server;
mod subagents;
mod taint;
mod telemetry;
mod terminal;
mod threats;
mod timeline;
mod tool_server;
mod trust;
mod usage;
mod went_back;
mod what_stays_known;
mod wires;
mod wrong_inputs;

use ua_e2e::TestEnv;
use ua_testkit::{postgres, skips};

/// A world with the tool server `forum` at hand.
fn env() -> TestEnv {
    TestEnv::new(env!("CARGO_BIN_EXE_ua-e2e-forum").as_ref())
}

/// A world in which nobody says that a comment makes something, not even the name of its tool: an effect that is known by its place, and not
/// by its content.
fn undeclared(env: TestEnv) -> TestEnv {
    let rule = "[[rule]]\nid = \"undeclared\"\nname = \"post_comment\"\ncreates = false\n";
    let policy = env.write("work/undeclared.toml", rule);
    env.with_env("UA_POLICY", &policy)
}

/// A file without its `mod` line is a test that never runs.
#[test]
fn every_file_of_this_folder_is_a_module() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e");
    let this = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_module = path.extension().is_some_and(|extension| extension == "rs") && name != "main";
        assert!(!is_module || this.contains(&format!("\nmod {name};\n")), "{name} is no module");
    }
}
