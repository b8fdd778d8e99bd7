//! How well tools are classified, measured on labelled tools.
//!
//! The data is a file of JSON lines that lies elsewhere, one tool a line: `server`, `name`, `annotations`, `input_keys`, and as a person
//! labelled it `class`, `creates` and `effect_kind`. What is measured:
//!
//! - *dangerous*: labelled as an effect and classified as `read_only`, so a lost call would be sent again;
//! - *needless hold*: labelled as a read and classified otherwise, of all reads;
//! - *missing kind*: an effect outside that is labelled as creating and has no effect kind, of all of those;
//! - *false kind*: an effect kind on an effect that is labelled as creating nothing, of all of those;
//! - *settled*: creating effects outside whose lost call a key or a probe can settle.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use ua_classify::{Classifier, Pack};
use ua_core::{CallPolicy, OnUnknown, SideEffectClass, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The labelled tools, a JSON object a line
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Judge by general rules alone: none that was written for a server
    #[arg(long)]
    without_packs: bool,
    /// Whether the annotations of servers may confirm what names suggest
    #[arg(long, value_enum, default_value_t = Annotations::Untrusted)]
    annotations: Annotations,
    /// Name the tools behind each number
    #[arg(long)]
    names: bool,
}

/// Whether a person trusts the annotations of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Annotations {
    /// They may only raise caution.
    Untrusted,
    /// They may confirm what names suggest.
    Trusted,
}

/// One labelled tool.
struct Labelled {
    spec: ToolSpec,
    class: SideEffectClass,
    creates: bool,
}

impl Labelled {
    fn read(line: &str, without_packs: bool) -> anyhow::Result<Self> {
        let line: Value = serde_json::from_str(line)?;
        let text = |field: &str| line[field].as_str().with_context(|| format!("a line has no `{field}`"));
        let hint = |name: &str| line["annotations"][name].as_bool();
        let (server, name) = (text("server")?, text("name")?);
        // That a toolkit's name begins the name of its actions is known of Composio alone.
        let is_router = server == "composio" && !without_packs;
        let namespace = if is_router { ToolNamespace::Composio } else { ToolNamespace::Mcp };
        Ok(Self {
            spec: ToolSpec {
                name: ToolName::qualified(namespace, server, name),
                description: String::new(),
                input_schema: schema(&line["input_keys"]),
                annotations: ToolAnnotations {
                    read_only: hint("readOnlyHint"),
                    destructive: hint("destructiveHint"),
                    idempotent: hint("idempotentHint"),
                    open_world: hint("openWorldHint"),
                    ..ToolAnnotations::default()
                },
            },
            class: text("class")?.parse().map_err(anyhow::Error::msg)?,
            creates: line["creates"].as_bool().context("a line has no `creates`")?,
        })
    }

    fn is_read(&self) -> bool {
        !self.class.has_effect()
    }

    /// An effect outside of which a repeat makes a second one.
    fn makes_outside(&self) -> bool {
        self.class == SideEffectClass::External && self.creates
    }
}

/// A schema with these arguments. None are those of a tool whose schema was not at hand: it says nothing of its arguments, and not that there are
/// none.
fn schema(keys: &Value) -> Value {
    let keys = keys.as_array().into_iter().flatten().filter_map(Value::as_str);
    let properties: serde_json::Map<String, Value> = keys.map(|key| (key.to_owned(), json!({}))).collect();
    if properties.is_empty() {
        return json!({"type": "object"});
    }
    json!({"type": "object", "properties": properties})
}

/// One number, and the tools behind it.
struct Measure {
    what: &'static str,
    found: Vec<String>,
    of: usize,
}

impl Measure {
    fn percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are hundreds of tools, not quadrillions")]
        let share = self.found.len() as f64 / self.of.max(1) as f64;
        share * 100.0
    }
}

/// Prints the measures; an error if a dangerous one is there.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&options.data).with_context(|| format!("read {}", options.data.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let tools: Vec<Labelled> =
        lines.map(|line| Labelled::read(line, options.without_packs)).collect::<anyhow::Result<_>>()?;
    let classifier = classifier(&tools, options)?;
    let judged: Vec<(&Labelled, CallPolicy)> =
        tools.iter().map(|tool| (tool, classifier.classify(&tool.spec, None))).collect();
    let named = |wanted: &dyn Fn(&Labelled, &CallPolicy) -> bool| -> Vec<String> {
        let found = judged.iter().filter(|(tool, policy)| wanted(tool, policy));
        found.map(|(tool, _)| format!("{}:{}", tool.spec.name.server, tool.spec.name.tool)).collect()
    };
    let count = |wanted: &dyn Fn(&Labelled) -> bool| tools.iter().filter(|tool| wanted(tool)).count();
    let is_settled = |policy: &CallPolicy| matches!(policy.on_unknown, OnUnknown::Probe | OnUnknown::RedoKeyed);
    let (reads, making) = (count(&Labelled::is_read), count(&Labelled::makes_outside));
    let dangerous = named(&|tool, policy| !tool.is_read() && !policy.class.has_effect());
    let measures = [
        Measure {
            what: "needless holds",
            found: named(&|tool, policy| tool.is_read() && policy.class.has_effect()),
            of: reads,
        },
        Measure {
            what: "creating effects without a kind",
            found: named(&|tool, policy| tool.makes_outside() && policy.effect_kind.is_none()),
            of: making,
        },
        Measure {
            what: "false kinds",
            found: named(&|tool, policy| !tool.is_read() && !tool.creates && policy.effect_kind.is_some()),
            of: count(&|tool| !tool.is_read() && !tool.creates),
        },
        Measure {
            what: "creating effects that a key or a probe can settle",
            found: named(&|tool, policy| tool.makes_outside() && is_settled(policy)),
            of: making,
        },
    ];
    let servers: std::collections::BTreeSet<&str> = tools.iter().map(|tool| tool.spec.name.server.as_str()).collect();
    let packs = if options.without_packs { "without packs" } else { "with packs" };
    let annotations = if options.annotations == Annotations::Trusted { "trusted" } else { "untrusted" };
    println!("{} tools of {} servers, {packs}, annotations {annotations}", tools.len(), servers.len());
    println!("dangerous (an effect called read_only): {}", dangerous.len());
    for name in &dangerous {
        println!("    {name}");
    }
    for measure in &measures {
        println!("{}: {} of {} ({:.1} %)", measure.what, measure.found.len(), measure.of, measure.percent());
        for name in measure.found.iter().filter(|_| options.names) {
            println!("    {name}");
        }
    }
    if !dangerous.is_empty() {
        bail!("{} effect(s) would be repeated as reads: {}", dangerous.len(), dangerous.join(", "));
    }
    Ok(())
}

/// What judges: each server by its pack, as if its configuration named the package, or no pack at all.
fn classifier(tools: &[Labelled], options: &Options) -> anyhow::Result<Classifier> {
    let servers = || tools.iter().map(|tool| tool.spec.name.server.clone());
    let classifier = if options.without_packs {
        Classifier::without_packs()?
    } else {
        let packs = Pack::all()?;
        let pack_of = |server: &String| {
            let pack = packs.iter().find(|pack| pack.id() == server || pack.servers().contains(server))?;
            Some((server.clone(), Some(pack.id().to_owned())))
        };
        let chosen: BTreeMap<String, Option<String>> = servers().filter_map(|server| pack_of(&server)).collect();
        Classifier::shipped()?.with_packs(&chosen)?
    };
    Ok(match options.annotations {
        Annotations::Trusted => classifier.trusting_annotations_of(servers()),
        Annotations::Untrusted => classifier,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comment of Linear has a mark in its `body`. Where nobody knows the arguments, the rule stands; where they are known, it needs that one.
    #[test]
    fn arguments_that_nobody_knows_are_not_missing() {
        for (keys, settles) in [(json!([]), true), (json!(["issueId", "body"]), true), (json!(["issueId"]), false)] {
            let line = json!({"server": "linear-remote", "name": "create_comment", "annotations": {}, "input_keys": keys,
                              "class": "external", "creates": true});
            let tools = [Labelled::read(&line.to_string(), false).unwrap()];
            let options = Options {
                data: PathBuf::new(),
                without_packs: false,
                annotations: Annotations::Untrusted,
                names: false,
            };
            let policy = classifier(&tools, &options).unwrap().classify(&tools[0].spec, None);
            assert_eq!(policy.on_unknown == OnUnknown::Probe, settles, "{line}");
        }
    }
}
