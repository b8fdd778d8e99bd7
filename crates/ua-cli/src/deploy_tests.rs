//! What `deploy/` has is well formed, and says only what this program takes: commands and flags, features, paths of the health server, and a
//! time to end in that is longer than the drain.

#![expect(clippy::disallowed_methods, reason = "tests make and read the files that they look at")]

use std::fs;
use std::path::PathBuf;
use std::process::Command as Process;
use std::time::Duration;

use clap::Parser as _;
use serde::Deserialize as _;
use serde_yaml::Value;
use ua_testkit::workspace_root;

use crate::Cli;
use crate::args::Command;
use crate::commands::fleet::WorkerArgs;

fn read(name: &str) -> String {
    fs::read_to_string(workspace_root().join("deploy").join(name)).unwrap()
}

/// The command line of `ua` that these words are.
fn parsed(words: &[String]) -> Command {
    let all = std::iter::once("ua".to_owned()).chain(words.iter().cloned());
    Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{words:?}: {error}")).command
}

/// The worker that these words start.
fn worker(words: &[String]) -> WorkerArgs {
    let command = parsed(words);
    let Command::Worker(worker) = command else { panic!("{words:?} is no worker: {command:?}") };
    worker
}

/// What a worker takes at most to end, besides its drain: snapshots of state, its children, and the answer of the database.
const REST: Duration = Duration::from_secs(35);

// --- systemd.

/// The settings of a unit: section, name, value.
fn unit(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
            found.push((section.clone(), name.to_owned(), value.to_owned()));
        }
    }
    found
}

#[test]
fn the_unit_starts_a_worker_and_gives_it_time_to_end() {
    let unit = unit(&read("ua-worker.service"));
    let value = |wanted: &str| {
        let mut all = unit
            .iter()
            .filter(|(_, name, _)| name == wanted)
            .map(|(section, _, value)| (section.as_str(), value.as_str()));
        let found = all.next().unwrap_or_else(|| panic!("no {wanted}"));
        assert!(all.next().is_none(), "{wanted} stands there twice");
        found
    };
    let (section, line) = value("ExecStart");
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    assert_eq!((section, words[0].as_str()), ("Service", "/usr/local/bin/ua"));
    let worker = worker(&words[1..]);
    assert!(worker.listen.is_some_and(|address| address.ip().is_loopback()), "{worker:?}");
    let stops_after = Duration::from_secs(value("TimeoutStopSec").1.parse().unwrap());
    assert!(stops_after >= worker.drain + REST, "{stops_after:?}");
    assert_eq!((value("KillMode").1, value("Restart").1), ("mixed", "always"));
    // Otherwise one tool server that takes all memory ends the worker with all of its runs.
    assert_eq!(value("OOMPolicy").1, "continue");
    assert_eq!(value("StateDirectory").1, "ua", "its root lies below /var/lib");
}

#[test]
fn the_unit_of_the_gateway_starts_its_broker_and_gives_it_time_to_end() {
    let unit = unit(&read("ua-gateway.service"));
    let value = |wanted: &str| {
        let found = unit.iter().find(|(_, name, _)| name == wanted);
        found.map_or_else(|| panic!("no {wanted}"), |(_, _, value)| value.as_str())
    };
    let words: Vec<&str> = value("ExecStart").split(' ').collect();
    assert_eq!(words[0], "/usr/local/bin/ua");
    let parsed = Cli::try_parse_from(std::iter::once("ua").chain(words[1..].iter().copied()));
    assert!(parsed.is_ok(), "{parsed:?}");
    assert_eq!((value("KillMode"), value("WantedBy")), ("mixed", "default.target"));
    assert_eq!(value("OOMPolicy"), "continue");
    // A broker waits for half a minute for the calls in flight.
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() >= 40);
}

/// What systemd itself says, where it is installed.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let folder = tempfile::tempdir().unwrap();
    // The program need not be installed here.
    let program = ["/bin/true", "/usr/bin/true"].into_iter().find(|path| PathBuf::from(path).exists()).unwrap();
    for name in ["ua-worker.service", "ua-gateway.service"] {
        let path = folder.path().join(name);
        fs::write(&path, read(name).replace("/usr/local/bin/ua", program)).unwrap();
        match Process::new("systemd-analyze").arg("verify").arg(&path).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let ours: Vec<&str> = said.lines().filter(|line| line.contains(name)).collect();
                assert!(output.status.success() && ours.is_empty(), "{said}");
            }
            Err(error) => ua_testkit::skipped(&format!("systemd-analyze cannot be run ({error})")),
        }
    }
}

// --- The image.

/// The instructions of a Dockerfile, with lines that go on joined.
fn instructions(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
        .collect()
}

#[test]
fn the_image_builds_what_there_is_and_starts_a_worker_that_is_not_root() {
    let all = instructions(&read("Dockerfile"));
    let known =
        ["FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD", "ENV", "ARG", "LABEL"];
    assert!(all.iter().all(|(name, _)| known.contains(&name.as_str())), "{all:?}");
    let of =
        |wanted: &str| all.iter().filter(|(name, _)| name == wanted).map(|(_, rest)| rest.as_str()).collect::<Vec<_>>();
    let words =
        |name: &str| -> Vec<String> { serde_json::from_str(of(name)[0]).unwrap_or_else(|e| panic!("{name}: {e}")) };
    assert_eq!(words("ENTRYPOINT"), ["/usr/local/bin/ua"]);
    let worker = worker(&words("CMD"));
    let port = worker.listen.unwrap().port().to_string();
    assert_eq!(of("EXPOSE"), [port.as_str()]);
    assert!(of("VOLUME").contains(&"/var/lib/ua") && words("CMD").contains(&"/var/lib/ua".to_owned()));
    assert!(
        of("USER").iter().all(|user| user.parse::<u32>().is_ok_and(|user| user > 0)),
        "a number, so that Kubernetes sees it"
    );
    // The stage that is copied from has a name, and builds features that there are.
    assert!(of("FROM")[0].ends_with(" AS build") && of("COPY").iter().any(|copy| copy.starts_with("--from=build ")));
    let build = of("RUN").into_iter().find(|run| run.starts_with("cargo build")).unwrap();
    let manifest = fs::read_to_string(workspace_root().join("crates/ua-cli/Cargo.toml")).unwrap();
    let features = build.split("--features ").nth(1).unwrap().split(' ').next().unwrap();
    for feature in features.split(',') {
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
    assert!(build.contains("--locked"));
    // A job that runs beside it runs in the image as well.
    let default = manifest.split("\ndefault = ").nth(1).unwrap().lines().next().unwrap();
    let default: Vec<String> = serde_json::from_str(default).unwrap();
    assert!(default.iter().all(|feature| features.split(',').any(|built| built == feature)), "{features}");
}

// --- Kubernetes.

fn documents(name: &str) -> Vec<Value> {
    let text = read(name);
    let all = serde_yaml::Deserializer::from_str(&text);
    all.map(|document| Value::deserialize(document).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

/// The value behind a path of keys and numbers.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('/').fold(value, |value, step| {
        let found = step.parse::<usize>().map_or_else(|_| value.get(step), |place| value.get(place));
        found.unwrap_or_else(|| panic!("no {path} in {value:?}"))
    })
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).as_str().unwrap_or_else(|| panic!("{path} is no text"))
}

fn words(value: &Value, path: &str) -> Vec<String> {
    at(value, path).as_sequence().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_manifest_is_of_a_kind_that_there_is() {
    let kinds = [
        ("v1", "Service"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("policy/v1", "PodDisruptionBudget"),
        ("keda.sh/v1alpha1", "TriggerAuthentication"),
        ("keda.sh/v1alpha1", "ScaledObject"),
    ];
    let mut count = 0;
    for entry in fs::read_dir(workspace_root().join("deploy/kubernetes")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for document in documents(&format!("kubernetes/{name}")) {
            let kind = (text(&document, "apiVersion"), text(&document, "kind"));
            assert!(kinds.contains(&kind), "{name}: {kind:?}");
            assert!(!text(&document, "metadata/name").is_empty());
            count += 1;
        }
    }
    assert_eq!(count, 6);
}

#[test]
fn the_workers_of_the_manifest_have_a_volume_each_and_time_to_end() {
    let all = documents("kubernetes/worker.yaml");
    let (service, set, budget) = (&all[0], &all[1], &all[2]);
    let pod = at(set, "spec/template/spec");
    let container = at(pod, "containers/0");
    let arguments = words(container, "args");
    let worker = worker(&arguments);
    let grace = Duration::from_secs(at(pod, "terminationGracePeriodSeconds").as_u64().unwrap());
    assert!(grace >= worker.drain + REST, "{grace:?}");
    // One name for the pods, from all who look for them.
    let labels = at(set, "spec/template/metadata/labels");
    assert_eq!((at(set, "spec/selector/matchLabels"), at(service, "spec/selector")), (labels, labels));
    // Whoever empties nodes takes some of the pods at a time, and is not kept from it by those that cannot work.
    assert_eq!(at(budget, "spec/selector/matchLabels"), labels);
    let at_once = at(budget, "spec/maxUnavailable").as_u64().unwrap();
    assert!(at_once > 0 && at_once < at(set, "spec/replicas").as_u64().unwrap(), "{at_once}");
    assert_eq!(text(budget, "spec/unhealthyPodEvictionPolicy"), "AlwaysAllow");
    assert_eq!(text(set, "spec/serviceName"), text(service, "metadata/name"));
    // Probes go where the health server listens, and ask for what it answers.
    let port = u64::from(worker.listen.unwrap().port());
    assert_eq!(at(container, "ports/0/containerPort").as_u64(), Some(port));
    assert_eq!(at(service, "spec/ports/0/port").as_u64(), Some(port));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(text(container, &format!("{probe}/httpGet/path")), path);
        assert_eq!(text(container, &format!("{probe}/httpGet/port")), text(container, "ports/0/name"));
    }
    // The root is below the volume that the pod keeps.
    let root = arguments.iter().skip_while(|word| *word != "--root").nth(1).unwrap();
    let mount = at(container, "volumeMounts/0");
    assert!(root.starts_with(text(mount, "mountPath")), "{root}");
    assert_eq!(text(mount, "name"), text(set, "spec/volumeClaimTemplates/0/metadata/name"));
    assert_eq!(words(set, "spec/volumeClaimTemplates/0/spec/accessModes"), ["ReadWriteOnce"]);
}

/// Whatever pod runs `ua`: nothing in it becomes more than its user, or finds a token of the cluster.
#[test]
fn every_pod_of_the_manifests_has_no_right_that_it_does_not_need() {
    let mut count = 0;
    for entry in fs::read_dir(workspace_root().join("deploy/kubernetes")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for document in documents(&format!("kubernetes/{name}")) {
            let pod = document.get("spec").and_then(|spec| spec.get("template")).and_then(|pod| pod.get("spec"));
            let Some(pod) = pod else { continue };
            let off = |path: &str| assert_eq!(at(pod, path).as_bool(), Some(false), "{name}: {path}");
            off("automountServiceAccountToken");
            off("containers/0/securityContext/allowPrivilegeEscalation");
            assert_eq!(words(pod, "containers/0/securityContext/capabilities/drop"), ["ALL"], "{name}");
            assert_eq!(at(pod, "securityContext/runAsNonRoot").as_bool(), Some(true), "{name}");
            // With that a namespace takes it that enforces the standard `restricted`.
            assert_eq!(text(pod, "securityContext/seccompProfile/type"), "RuntimeDefault", "{name}");
            count += 1;
        }
    }
    assert_eq!(count, 2);
}

#[test]
fn the_schema_is_made_by_a_job_and_workers_are_scaled_by_their_queue() {
    let job = &documents("kubernetes/migrate.yaml")[0];
    let arguments = words(job, "spec/template/spec/containers/0/args");
    assert!(matches!(parsed(&arguments), Command::Db(_)), "{arguments:?}");
    // A job that stays under its name keeps that of the next version from being applied.
    assert!(at(job, "spec/ttlSecondsAfterFinished").as_u64().is_some());
    let workers = &documents("kubernetes/worker.yaml")[1];
    let keda = documents("kubernetes/keda.yaml");
    let scaled = &keda[1];
    assert_eq!(text(scaled, "spec/scaleTargetRef/name"), text(workers, "metadata/name"));
    assert_eq!(text(scaled, "spec/scaleTargetRef/kind"), text(workers, "kind"));
    let trigger = at(scaled, "spec/triggers/0");
    assert_eq!(text(trigger, "authenticationRef/name"), text(&keda[0], "metadata/name"));
    let worker = worker(&words(workers, "spec/template/spec/containers/0/args"));
    assert_eq!(text(trigger, "metadata/targetQueryValue"), worker.concurrency.to_string());
    // What the query names is in the schema.
    let query = text(trigger, "metadata/query");
    let schema = fs::read_to_string(workspace_root().join("migrations/postgres/V3__fleet.sql")).unwrap();
    assert!(query.contains("FROM ua.run_queue") && schema.contains("CREATE TABLE run_queue"));
    assert!(schema.contains("state IN ('ready', 'claimed', 'parked')"), "{query}");
    // What is for later needs no worker now, and times are compared in the form in which they are stored.
    let stored = ua_core::Timestamp::from_millis(0).to_string();
    assert_eq!(stored, "1970-01-01T00:00:00.000Z");
    assert!(
        query.contains(r#"AND run_after <= to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"#),
        "{query}"
    );
    assert!(schema.contains("run_after         text COLLATE"), "{query}");
    // A pod that holds a run which has not ended is kept: that is read from the end of its place, where the pod's name is.
    let of_pod = format!(
        "{} * coalesce(max(1 + substring(place_shown FROM ' on {}-([0-9]+)$')::int), 0)",
        worker.concurrency,
        text(workers, "metadata/name")
    );
    assert!(query.contains(&of_pod), "{query}");
    assert!(query.contains("FROM ua.lineage_places JOIN ua.runs USING (root_run_id)"), "{query}");
    assert!(schema.contains("CREATE TABLE lineage_places") && schema.contains("place_shown text"), "{query}");
}
