//! The decision: whom to believe about a tool, and what follows for a call.
//!
//! Durable Jobs v1 spec §7.2 (default to side effect), §7.3 (known tools), §7.4 (heuristic and overrides).
//! Invariants: the first source that names a class decides; a server that is not trusted can raise caution and never
//! lower it; a pack lowers it only for a server that somebody vouches for; what a rule says about lost outcomes beside one
//! class is never applied to another class; a word that may only raise caution takes none away.
//! Proved by: `tests/it/classify/sources.rs`, `tests/it/classify/names.rs`, `tests/it/classify/packs.rs`,
//! `tests/it/classify/job_policies.rs`, `tests/it/classify/raising.rs`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use ua_core::{
    CallPolicy, ClassSource, EffectKind, OnUnknown, Reads, ScopeRule, SideEffectClass, ToolName, ToolNamespace,
    ToolSpec,
};

mod misnamed;
mod opinion;
mod version;
mod weigh;

pub use self::misnamed::Misnamed;
pub(crate) use self::opinion::Opinion;
use self::opinion::{Believed, annotation_opinion, name_opinion, rule_opinion};
use self::weigh::Decision;
use crate::error::PolicyError;
use crate::explain::{Considered, Explanation, IdleCaution, Verdict, hints};
use crate::job::JobPolicy;
use crate::name::{creates_by, kind_by_names, read_name};
use crate::packs::Pack;
use crate::rule::{Patterns, PolicyRules, Rule};

pub(crate) const SHIPPED: &str = include_str!("shipped_policy.toml");
/// No id of a user's rule contains a colon.
const SHIPPED_PREFIX: &str = "shipped:";

/// What is made of it, once: the same for every classifier of a process.
static SHIPPED_RULES: LazyLock<Result<Arc<PolicyRules>, PolicyError>> =
    LazyLock::new(|| PolicyRules::shipped(SHIPPED, SHIPPED_FILE, None).map(Arc::new));
const SHIPPED_FILE: &str = "the built-in policy";

/// Raised when classification changes in a way that neither rules nor vocabulary show, and less is asked for it: a run from before is not
/// resumed under it unless a person accepts that. Where more is asked, it is resumed, and asks more.
const ALGORITHM: &str = "3";

/// Tools named in the configuration: names or globs, meant as the bare name or as the raw one
/// (Durable Jobs v1 spec §7.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// These are external, whatever their names say. Wins over the other list.
    pub side_effect_denylist: Vec<String>,
    /// These only look.
    pub read_only_allowlist: Vec<String>,
}

/// Classifies tools and calls; made once per process from everything that has a say.
#[derive(Debug)]
pub struct Classifier {
    user: Vec<PolicyRules>,
    /// Files that come with a job; of those that nobody trusted only what raises caution counts.
    job: Vec<JobPolicy>,
    /// Read once in a process: they are the same for all.
    shipped: Arc<PolicyRules>,
    denylist: Patterns,
    allowlist: Patterns,
    /// Servers whose annotations are the word of whoever composes the program: functions of its own.
    trusted_servers: HashSet<String>,
    /// Servers whose annotations may confirm what names suggest.
    confirming_servers: BTreeSet<String>,
    /// Servers that are spoken to over pipes, which no header reaches.
    over_pipes: HashSet<String>,
    /// Programs of `run_command` can reach the network.
    commands_reach_out: bool,
    packs: Packs,
}

/// Which servers are judged by which packs.
#[derive(Debug, Default)]
struct Packs {
    /// No pack counts, not even for caution.
    are_off: bool,
    /// The pack that somebody vouches for, or that there is to be none, by the server's name.
    chosen: BTreeMap<String, Option<&'static Pack>>,
}

/// The pack of a server, and whether somebody vouches for it.
enum PackOf {
    Vouched(&'static Pack),
    Claimed(&'static Pack),
}

impl Packs {
    fn of(&self, tool: &ToolSpec) -> Option<PackOf> {
        if self.are_off || tool.name.namespace == ToolNamespace::Local {
            return None;
        }
        match self.chosen.get(&tool.name.server) {
            Some(chosen) => chosen.map(PackOf::Vouched),
            None => Pack::about_server(&tool.name.server).map(PackOf::Claimed),
        }
    }
}

/// Refuses files of which two have a rule of the same id.
fn ids_are_unique<'a>(files: impl Iterator<Item = &'a PolicyRules>) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        for rule in &file.rules {
            if let Some(first) = seen.insert(&rule.id, &file.file) {
                let (first, second) = (first.to_owned(), file.file.clone());
                return Err(PolicyError::DuplicateId { id: rule.id.clone(), first, second });
            }
        }
    }
    Ok(())
}

/// Whether arguments name a `file` address. White space and control characters in front and within do not count: parsers of addresses drop them.
pub fn names_file_address(arguments: &Value) -> bool {
    match arguments {
        Value::String(text) => {
            let mut kept = text.chars().filter(|c| !c.is_whitespace() && !c.is_control());
            "file:".chars().all(|wanted| kept.next().is_some_and(|found| found.to_ascii_lowercase() == wanted))
        }
        Value::Array(items) => items.iter().any(names_file_address),
        Value::Object(fields) => fields.values().any(names_file_address),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Classifier {
    /// A classifier with the shipped rules only.
    pub fn shipped() -> Result<Self, PolicyError> {
        Self::new(Vec::new(), &Lists::default(), HashSet::new())
    }

    /// Puts the sources together. `user` are the policy files, the first one strongest (overlays come first);
    /// `trusted_servers` are those whose annotations are the caller's own word, such as functions in the same program.
    ///
    /// # Errors
    /// [`PolicyError::List`] when an entry of a list is no glob, [`PolicyError::DuplicateId`] when two files use one id.
    pub fn new(user: Vec<PolicyRules>, lists: &Lists, trusted_servers: HashSet<String>) -> Result<Self, PolicyError> {
        ids_are_unique(user.iter())?;
        let compile = |list: &'static str, entries: &[String]| {
            Patterns::compile(entries.to_vec()).map_err(|(entry, why)| PolicyError::List { list, entry, why })
        };
        Ok(Self {
            user,
            job: Vec::new(),
            shipped: SHIPPED_RULES.clone()?,
            denylist: compile("side_effect_denylist", &lists.side_effect_denylist)?,
            allowlist: compile("read_only_allowlist", &lists.read_only_allowlist)?,
            trusted_servers,
            confirming_servers: BTreeSet::new(),
            over_pipes: HashSet::new(),
            commands_reach_out: false,
            packs: Packs::default(),
        })
    }

    /// A classifier that knows no server: annotations, names, and nothing that was written for somebody's tools.
    pub fn without_packs() -> Result<Self, PolicyError> {
        let mut plain = Self::shipped()?;
        Arc::make_mut(&mut plain.shipped).rules.clear();
        plain.packs.are_off = true;
        Ok(plain)
    }

    /// Hears the policy files that a job names, the first one strongest. Those that a person trusted fill in what no rule of the user says;
    /// the others only raise caution.
    ///
    /// # Errors
    /// [`PolicyError::DuplicateId`] when two files use one id.
    pub fn with_job_policies(mut self, job: Vec<JobPolicy>) -> Result<Self, PolicyError> {
        ids_are_unique(self.user.iter().chain(job.iter().map(|file| &file.rules)))?;
        self.job = job;
        Ok(self)
    }

    /// Judges servers by the packs that somebody vouches for: by the server's name, the pack's, or `None` where no pack is to count.
    ///
    /// # Errors
    /// [`PolicyError::UnknownPack`].
    pub fn with_packs(mut self, chosen: &BTreeMap<String, Option<String>>) -> Result<Self, PolicyError> {
        for (server, id) in chosen {
            let pack = match id {
                None => None,
                Some(id) => {
                    let unknown = || PolicyError::UnknownPack { server: server.clone(), pack: id.clone() };
                    let pack = Pack::named(id)?.ok_or_else(unknown)?;
                    pack.rules()?;
                    Some(pack)
                }
            };
            self.packs.chosen.insert(server.clone(), pack);
        }
        Ok(self)
    }

    /// Lets the annotations of servers of others confirm what names suggest. They are not believed alone.
    #[must_use]
    pub fn trusting_annotations_of(mut self, servers: impl IntoIterator<Item = String>) -> Self {
        self.confirming_servers.extend(servers);
        self
    }

    /// Says whether programs of `run_command` can reach the network: then what they do may be any effect.
    #[must_use]
    pub fn with_commands_that_reach_out(mut self, reach_out: bool) -> Self {
        self.commands_reach_out = reach_out;
        self
    }

    /// Decides about one call. Without `arguments` the answer is about the tool: the most careful one its calls get.
    pub fn classify(&self, tool: &ToolSpec, arguments: Option<&Value>) -> CallPolicy {
        let Decision { opinions, harmless, mut policy, .. } = self.decide(tool);
        let program = arguments.and_then(|arguments| arguments.get("argv")?.get(0)?.as_str());
        if let (Some(program), Some((index, harmless))) = (program, harmless.as_ref())
            && harmless.iter().any(|name| name == program)
            && policy.class.has_effect()
        {
            let by = &opinions[*index];
            policy.class = SideEffectClass::ReadOnly;
            policy.on_unknown = OnUnknown::Redo;
            policy.requires_idempotency_key = false;
            policy.raised_from = None;
            policy.effect_kind = None;
            (policy.kind_is_guessed, policy.makes_anew) = (false, false);
            policy.may_make = false;
            policy.scope = ScopeRule::default();
            policy.sends_files = Vec::new();
            (policy.probe, policy.marker, policy.horizon) = (None, None, None);
            policy.found_by = Vec::new();
            policy.rule_id.clone_from(&by.rule_id);
            policy.class_source = by.source;
            policy.reason = format!("{} says that the program {program:?} only looks", by.name());
        }
        // What it fetches there is a file of this machine, which nobody wrote for the world.
        let reads_files = policy.reads.contains(&Reads::Untrusted) && arguments.is_some_and(names_file_address);
        if reads_files && !policy.reads.contains(&Reads::Private) {
            policy.reads.push(Reads::Private);
        }
        policy
    }

    /// Whether a rule about this tool says what happens to near-duplicates, so that a job's own word does not count.
    pub fn says_on_scope_conflict(&self, tool: &ToolSpec) -> bool {
        let said =
            |opinion: &Opinion<'_>| opinion.settings.as_ref().is_some_and(|said| said.on_scope_conflict.is_some());
        self.decide(tool).opinions.iter().any(said)
    }

    /// Tells how the decision about a tool comes about: each rule in order, and the one that won.
    pub fn explain(&self, tool: &ToolSpec) -> Explanation {
        let Decision { opinions, winner, policy, used, harmless } = self.decide(tool);
        let mut hints = hints(tool, &policy);
        hints.extend(self.misnamed(tool, &[]).iter().map(ToString::to_string));
        let harmless_programs = harmless.map(|(_, programs)| programs).unwrap_or_default();
        let considered = opinions
            .into_iter()
            .zip(used)
            .enumerate()
            .map(|(index, (opinion, fields))| Considered {
                verdict: match opinion.class {
                    _ if !opinion.applies => Verdict::DoesNotApply,
                    Some(class) if index == winner => Verdict::Decides(class),
                    Some(class) => Verdict::ComesTooLate(class),
                    None => Verdict::NamesNoClass,
                },
                source: opinion.source,
                rule_id: opinion.rule_id,
                file: opinion.file.map(str::to_owned),
                fields,
                note: opinion.note,
            })
            .collect();
        Explanation { tool: tool.name.clone(), policy, harmless_programs, considered, hints }
    }

    /// The files in which people wrote rules: all but those of jobs, and what tools say of themselves.
    pub fn files(&self) -> Vec<String> {
        self.user.iter().filter(|file| !file.is_of_tools && !file.is_empty()).map(|file| file.file.clone()).collect()
    }

    /// The rules of these files that call for care and are about none of `tools`, nor of `more`, of which only the names are known: a misspelt
    /// name protects from nothing. A pattern may well be about nothing here, so whoever asks judges it.
    pub fn idle_cautions(&self, files: &[String], tools: &[ToolSpec], more: &[ToolName]) -> Vec<IdleCaution> {
        let of_files = self.user.iter().chain(self.job.iter().map(|job| &job.rules));
        let rules =
            of_files.filter(|of| files.contains(&of.file)).flat_map(|of| of.rules.iter().map(move |rule| (of, rule)));
        let names = || tools.iter().map(|tool| &tool.name).chain(more);
        let idle = rules.filter(|(_, rule)| {
            let is_about_one = tools.iter().any(|tool| rule.selector.matches(tool))
                || more.iter().any(|tool| rule.selector.matches_name(tool));
            rule.settings.calls_for_care() && !is_about_one
        });
        idle.map(|(of, rule)| IdleCaution {
            file: of.file.clone(),
            rule_id: rule.id.clone(),
            name: rule.selector.exact_name(),
            server: rule.selector.server.clone(),
            patterns: rule.selector.patterns.as_ref().map(|patterns| patterns.texts().to_vec()).unwrap_or_default(),
            besides: if names().any(|name| rule.selector.has_names_of(name)) {
                rule.selector.besides()
            } else {
                Vec::new()
            },
        })
        .collect()
    }

    /// Whether some tool can have this kind of effect: a rule or a pack says it, or a name can. The error is the nearest of those that rules
    /// and packs say, if one is near: what no call can be counted as limits nothing.
    ///
    /// # Errors
    /// See above.
    pub fn can_be_effect(&self, kind: &str) -> Result<(), Option<String>> {
        let known: BTreeSet<&str> = self.declared_effects().collect();
        if known.contains(kind) {
            return Ok(());
        }
        let verb = kind.rsplit_once('.').map(|(_, verb)| verb);
        if let Some(parsed) = EffectKind::parse(kind).filter(|_| verb.is_some_and(creates_by)) {
            // A rule that says `creates = true` and no kind has the one that the tool's name says, whatever words that has.
            let is_any = verb == Some("create")
                && self.rules().any(|rule| rule.settings.creates == Some(true) && rule.settings.effect_kind.is_none());
            match kind_by_names(&parsed) {
                Some(said) if said == parsed || is_any => return Ok(()),
                Some(said) => return Err(Some(said.as_str().to_owned())),
                None if is_any => return Ok(()),
                None => {}
            }
        }
        Err(ua_core::nearest(kind, known).map(str::to_owned))
    }

    /// The kinds of effects that rules and packs declare.
    pub fn declared_effects(&self) -> impl Iterator<Item = &str> {
        self.rules().filter_map(|rule| rule.settings.effect_kind.as_ref()).map(EffectKind::as_str)
    }

    /// All rules, those of packs among them.
    fn rules(&self) -> impl Iterator<Item = &Rule> {
        let packs = Pack::all().unwrap_or_default().iter().filter_map(|pack| pack.rules().ok());
        let job = self.job.iter().map(|file| &file.rules);
        self.user.iter().chain([&*self.shipped]).chain(job).chain(packs).flat_map(|file| &file.rules)
    }

    /// What a tool says of itself in rules ([`PolicyRules::of_the_tools`]), by the names of their settings; what is not said is left out.
    pub fn declared_by(&self, tool: &ToolSpec) -> BTreeMap<String, Value> {
        let own = self.user.iter().filter(|file| file.is_of_tools).flat_map(|file| &file.rules);
        let settings = own.filter(|rule| rule.selector.matches(tool)).map(|rule| serde_json::to_value(&rule.settings));
        let fields = settings.filter_map(|said| if let Ok(Value::Object(said)) = said { Some(said) } else { None });
        fields.flatten().filter(|(_, value)| !value.is_null()).collect()
    }

    /// Every opinion, the strongest first; the last one always has a class.
    fn opinions<'a>(&'a self, tool: &ToolSpec) -> Vec<Opinion<'a>> {
        let mut opinions = Vec::new();
        for file in &self.user {
            // A tool that says that it has an effect, and not which, leaves that to its name.
            let source = if file.is_of_tools { ClassSource::Annotation } else { ClassSource::UserPolicy };
            opinions.extend(file.rules.iter().map(|rule| rule_opinion(rule, source, &file.file, tool)));
        }
        for file in &self.job {
            opinions.extend(file.rules.rules.iter().map(|rule| {
                let mut opinion = rule_opinion(rule, ClassSource::JobPolicy, &file.rules.file, tool);
                if opinion.applies && !file.is_trusted {
                    (opinion.class, opinion.settings) = (None, None);
                    opinion.note =
                        format!("the job's {} is not trusted, so it cannot lower the class", file.rules.file);
                }
                opinion
            }));
        }
        for (list, patterns, class) in [
            ("side_effect_denylist", &self.denylist, SideEffectClass::External),
            ("read_only_allowlist", &self.allowlist, SideEffectClass::ReadOnly),
        ] {
            let applies = patterns.match_tool(&tool.name);
            opinions.push(Opinion {
                source: ClassSource::List,
                rule_id: format!("list:{list}"),
                file: None,
                applies,
                only_raises: class == SideEffectClass::External,
                class: applies.then_some(class),
                settings: None,
                note: if applies { format!("{list} names the tool") } else { format!("{list} does not name the tool") },
            });
        }
        let shipped = self.shipped.rules.iter();
        opinions.extend(shipped.map(|rule| rule_opinion(rule, ClassSource::Shipped, SHIPPED_FILE, tool)));
        let name = read_name(&tool.name);
        let annotation = annotation_opinion(tool, self.believed(&tool.name.server), &name);
        let name = name_opinion(&name);
        let without_pack = annotation.class.or(name.class).unwrap_or(SideEffectClass::External);
        opinions.extend(self.pack_opinions(tool, without_pack));
        opinions.extend([annotation, name]);
        let default = CallPolicy::unclassified();
        opinions.push(Opinion {
            source: ClassSource::Default,
            rule_id: default.rule_id,
            file: None,
            applies: true,
            only_raises: false,
            class: Some(default.class),
            settings: None,
            note: default.reason,
        });
        opinions
    }

    fn believed(&self, server: &str) -> Believed {
        match (self.trusted_servers.contains(server), self.confirming_servers.contains(server)) {
            (true, _) => Believed::Trusted,
            (false, true) => Believed::Confirming,
            (false, false) => Believed::Untrusted,
        }
    }

    /// What the pack of the tool's server says. Where nobody vouches for the pack, a class that is not higher than `without_pack` is no
    /// opinion.
    fn pack_opinions<'a>(&'a self, tool: &ToolSpec, without_pack: SideEffectClass) -> Vec<Opinion<'a>> {
        let (pack, rules) = match self.packs.of(tool) {
            None => return Vec::new(),
            Some(PackOf::Vouched(pack)) => (pack, pack.rules().ok()),
            Some(PackOf::Claimed(pack)) => (pack, pack.cautious_rules()),
        };
        let is_vouched = self.packs.chosen.contains_key(&tool.name.server);
        let about = rules.iter().flat_map(|rules| rules.rules.iter().map(|rule| (rule, rules.file())));
        let judged = about.map(|(rule, file)| {
            let mut opinion = rule_opinion(rule, ClassSource::Shipped, file, tool);
            opinion.rule_id = format!("pack:{}:{}", pack.id(), rule.id);
            opinion.only_raises = !is_vouched;
            if !is_vouched && opinion.applies {
                opinion.class = opinion.class.filter(|class| *class > without_pack);
                opinion.note = format!(
                    "nothing in the configuration shows that this server is the one the pack describes, so it can only raise caution; if it is, \
                     say `server_packs = \"{}={}\"` in your config.toml",
                    tool.name.server,
                    pack.id()
                );
            }
            opinion
        });
        judged.collect()
    }
}
