//! The measure of `cargo xtask tools` on a small part of such data: names and labels, so that a rule that makes a dangerous error fails here.
//!
//! The limits are those of docs/classification.md, for the tools of this file; a third of the servers here has
//! no pack.

use std::collections::BTreeMap;

use serde_json::json;
use ua_classify::{Classifier, Pack};
use ua_core::{SideEffectClass, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};

const TOOLS: &str = include_str!("tools.tsv");

struct Labelled {
    spec: ToolSpec,
    class: SideEffectClass,
    makes: bool,
}

fn labelled() -> Vec<Labelled> {
    let lines = TOOLS.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let [server, name, class, makes, read_only, destructive] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} has six fields")
        };
        let annotations = ToolAnnotations {
            read_only: match read_only {
                "r" => Some(true),
                "w" => Some(false),
                _ => None,
            },
            destructive: (destructive == "d").then_some(true),
            ..ToolAnnotations::default()
        };
        Labelled {
            spec: ToolSpec {
                name: ToolName::qualified(ToolNamespace::Mcp, server, name),
                description: String::new(),
                input_schema: json!({"type": "object"}),
                annotations,
            },
            class: class.parse().unwrap(),
            makes: makes == "makes",
        }
    });
    read.collect()
}

fn servers(tools: &[Labelled]) -> Vec<String> {
    tools.iter().map(|tool| tool.spec.name.server.clone()).collect()
}

/// Each server judged by its pack, as if its configuration named the package.
fn with_packs(tools: &[Labelled]) -> Classifier {
    let packs = Pack::all().unwrap();
    let pack_of = |server: &String| packs.iter().find(|pack| pack.id() == server || pack.servers().contains(server));
    let chosen: BTreeMap<String, Option<String>> = servers(tools)
        .into_iter()
        .filter_map(|server| Some((server.clone(), Some(pack_of(&server)?.id().to_owned()))))
        .collect();
    Classifier::shipped().unwrap().with_packs(&chosen).unwrap()
}

#[test]
fn no_effect_is_read_as_a_read() {
    let tools = labelled();
    let trusted = |classifier: Classifier| classifier.trusting_annotations_of(servers(&tools));
    for (what, classifier) in [
        ("general rules", Classifier::without_packs().unwrap()),
        ("general rules, trusted annotations", trusted(Classifier::without_packs().unwrap())),
        ("nobody vouches for a pack", Classifier::shipped().unwrap()),
        ("packs", with_packs(&tools)),
        ("packs, trusted annotations", trusted(with_packs(&tools))),
    ] {
        let effects = tools.iter().filter(|tool| tool.class.has_effect());
        let dangerous: Vec<&str> = effects
            .filter(|tool| !classifier.classify(&tool.spec, None).class.has_effect())
            .map(|tool| tool.spec.name.raw.as_str())
            .collect();
        assert_eq!(dangerous, [""; 0], "{what}");
    }
}

/// What docs/guide/policies.md says of hosted servers that no pack is about: their tools' names say enough.
#[test]
fn the_tools_of_hosted_servers_are_known_by_their_names() {
    let classifier = Classifier::shipped().unwrap();
    let judged = |name: &str| {
        let spec = ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, "hosted", name),
            description: String::new(),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        classifier.classify(&spec, None)
    };
    for name in [
        "notion-search",
        "notion-fetch",
        "notion-get-comments",
        "notion-get-users",
        "getJiraIssue",
        "searchJiraIssuesUsingJql",
        "getConfluencePage",
        "getAccessibleAtlassianResources",
    ] {
        assert_eq!(judged(name).class, SideEffectClass::ReadOnly, "{name}");
    }
    for name in [
        "notion-create-pages",
        "notion-create-comment",
        "notion-duplicate-page",
        "createJiraIssue",
        "addCommentToJiraIssue",
        "createConfluencePage",
    ] {
        let policy = judged(name);
        assert!(policy.class.has_effect() && policy.effect_kind.is_some(), "{name}");
    }
}

/// Of the tools that `of` picks, how many out of a hundred are judged as `wrong` says, and which they are.
fn share(
    tools: &[Labelled],
    classifier: &Classifier,
    of: impl Fn(&Labelled) -> bool,
    wrong: impl Fn(&ua_core::CallPolicy) -> bool,
) -> (usize, Vec<String>) {
    let picked: Vec<&Labelled> = tools.iter().filter(|tool| of(tool)).collect();
    let found = picked.iter().filter(|tool| wrong(&classifier.classify(&tool.spec, None)));
    let found: Vec<String> = found.map(|tool| tool.spec.name.raw.clone()).collect();
    (found.len() * 100 / picked.len(), found)
}

#[test]
fn most_reads_are_known_and_most_that_make_something_have_a_kind() {
    let tools = labelled();
    let is_read = |tool: &Labelled| !tool.class.has_effect();
    let makes = |tool: &Labelled| tool.makes && tool.class == SideEffectClass::External;
    let makes_nothing = |tool: &Labelled| tool.class.has_effect() && !tool.makes;
    for (what, classifier, limits) in [
        ("general rules", Classifier::without_packs().unwrap(), [20, 20, 6]),
        ("packs", with_packs(&tools), [16, 12, 6]),
    ] {
        let held = share(&tools, &classifier, is_read, |policy| policy.class.has_effect());
        let missing = share(&tools, &classifier, makes, |policy| policy.effect_kind.is_none());
        let wrong = share(&tools, &classifier, makes_nothing, |policy| policy.effect_kind.is_some());
        for (measure, (percent, names), limit) in
            [("held", held, limits[0]), ("without a kind", missing, limits[1]), ("with a wrong kind", wrong, limits[2])]
        {
            assert!(percent <= limit, "{what}: {percent} % {measure}: {names:?}");
        }
    }
}
