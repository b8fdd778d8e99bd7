//! The decision: whom to believe about a tool, and what follows for a call.
//!
//! Durable Jobs v1 spec §7.2 (default to side effect), §7.3 (known tools), §7.4 (heuristic and overrides).
//! Invariants: the first source that names a class decides; a server that is not trusted can raise caution and never
//! lower it; a pack lowers it only for a server that somebody vouches for; what a rule says about lost outcomes beside one
//! class is never applied to another class.
//! Proved by: `tests/it/classify/sources.rs`, `tests/it/classify/names.rs`, `tests/it/classify/packs.rs`,
//! `tests/it/classify/job_policies.rs`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use serde_json::Value;
use ua_core::{
    CallPolicy, ClassSource, EffectKind, KeyBuilder, KeyChannel, OnUnknown, Reads, ScopeRule, Sha256, SideEffectClass,
    ToolNamespace, ToolSpec,
};

use crate::error::PolicyError;
use crate::explain::{Considered, Explanation, IdleCaution, Verdict, hints};
use crate::job::{self, JobPolicy};
use crate::name::{NameSays, creates_by, made_by_name, made_by_word, read_name, vocabulary};
use crate::packs::Pack;
use crate::rule::{MarkerSetting, Patterns, PolicyRules, Rule, Settings};

pub(crate) const SHIPPED: &str = include_str!("shipped_policy.toml");
/// No id of a user's rule contains a colon.
const SHIPPED_PREFIX: &str = "shipped:";
const SHIPPED_FILE: &str = "the built-in policy";

/// Raised when classification changes in a way that neither rules nor vocabulary show.
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
    shipped: PolicyRules,
    denylist: Patterns,
    allowlist: Patterns,
    /// Servers whose annotations are the word of whoever composes the program: functions of its own.
    trusted_servers: HashSet<String>,
    /// Servers whose annotations may confirm what names suggest.
    confirming_servers: BTreeSet<String>,
    packs: Packs,
}

/// How far the annotations of a server are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Believed {
    /// When they raise caution.
    Untrusted,
    /// Also when they say what the name suggests.
    Confirming,
    /// As the caller's own word.
    Trusted,
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

/// What one source has to say about one tool.
pub(crate) struct Opinion<'a> {
    source: ClassSource,
    rule_id: String,
    file: Option<&'a str>,
    /// Whether it is about this tool at all.
    applies: bool,
    class: Option<SideEffectClass>,
    /// Set for policy rules: what else they say.
    settings: Option<Cow<'a, Settings>>,
    note: String,
}

/// All opinions, and what follows from them.
struct Decision<'a> {
    opinions: Vec<Opinion<'a>>,
    /// The opinion that decided the class.
    winner: usize,
    policy: CallPolicy,
    /// Per opinion, the fields of the policy that came from it.
    used: Vec<Vec<&'static str>>,
    /// Programs that make a call with an `argv` read-only, and the opinion that says so.
    harmless: Option<(usize, Vec<String>)>,
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

/// What a tool of others brings in when no rule says it: what it reads, or may read because nobody knows what it does, others wrote.
fn reads_of(tool: &ToolSpec, class: SideEffectClass, decided: &Opinion<'_>) -> Vec<Reads> {
    let is_foreign = tool.name.namespace != ToolNamespace::Local;
    let may_read = class == SideEffectClass::ReadOnly || decided.source == ClassSource::Default;
    if is_foreign && may_read { vec![Reads::Untrusted] } else { Vec::new() }
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
            shipped: PolicyRules::shipped(SHIPPED, SHIPPED_FILE, None)?,
            denylist: compile("side_effect_denylist", &lists.side_effect_denylist)?,
            allowlist: compile("read_only_allowlist", &lists.read_only_allowlist)?,
            trusted_servers,
            confirming_servers: BTreeSet::new(),
            packs: Packs::default(),
        })
    }

    /// A classifier that knows no server: annotations, names, and nothing that was written for somebody's tools.
    pub fn without_packs() -> Result<Self, PolicyError> {
        let mut plain = Self::shipped()?;
        plain.shipped.rules.clear();
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
            policy.effect_kind = None;
            policy.kind_is_guessed = false;
            policy.scope = ScopeRule::default();
            policy.sends_files = Vec::new();
            (policy.probe, policy.marker, policy.horizon) = (None, None, None);
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
        let hints = hints(tool, &policy);
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

    /// The rules of these files that call for care by the exact name of a tool, and are about none of `tools`: a misspelt name protects from
    /// nothing. Patterns are left out, which may well be about nothing here.
    pub fn idle_cautions(&self, files: &[String], tools: &[ToolSpec]) -> Vec<IdleCaution> {
        let of_files = self.user.iter().chain(self.job.iter().map(|job| &job.rules));
        let rules =
            of_files.filter(|of| files.contains(&of.file)).flat_map(|of| of.rules.iter().map(move |rule| (of, rule)));
        let idle = rules.filter(|(_, rule)| {
            rule.settings.calls_for_care() && !tools.iter().any(|tool| rule.selector.matches_name(&tool.name))
        });
        idle.filter_map(|(of, rule)| {
            Some(IdleCaution { file: of.file.clone(), rule_id: rule.id.clone(), name: rule.selector.exact_name()? })
        })
        .collect()
    }

    /// Whether some tool can have this kind of effect: a rule or a pack says it, or a name can. The error is the nearest of those that rules
    /// and packs say, if one is near: what no call can be counted as limits nothing.
    ///
    /// # Errors
    /// See above.
    pub fn can_be_effect(&self, kind: &str) -> Result<(), Option<String>> {
        let packs = Pack::all().unwrap_or_default().iter().filter_map(|pack| pack.rules().ok());
        let job = self.job.iter().map(|file| &file.rules);
        let rules = self.user.iter().chain([&self.shipped]).chain(job).chain(packs).flat_map(|file| &file.rules);
        let known: BTreeSet<&str> =
            rules.filter_map(|rule| rule.settings.effect_kind.as_ref()).map(EffectKind::as_str).collect();
        let verb = kind.rsplit_once('.').map(|(_, verb)| verb);
        if known.contains(kind) || (EffectKind::parse(kind).is_some() && verb.is_some_and(creates_by)) {
            return Ok(());
        }
        let likeness = |name: &&str| strsim::jaro_winkler(kind, name);
        let nearest = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        Err(nearest.filter(|name| likeness(name) > 0.8).map(str::to_owned))
    }

    /// What a tool says of itself in rules ([`PolicyRules::of_the_tools`]), by the names of their settings; what is not said is left out.
    pub fn declared_by(&self, tool: &ToolSpec) -> BTreeMap<String, Value> {
        let own = self.user.iter().filter(|file| file.is_of_tools).flat_map(|file| &file.rules);
        let settings = own.filter(|rule| rule.selector.matches(tool)).map(|rule| serde_json::to_value(&rule.settings));
        let fields = settings.filter_map(|said| if let Ok(Value::Object(said)) = said { Some(said) } else { None });
        fields.flatten().filter(|(_, value)| !value.is_null()).collect()
    }

    /// The digest of everything that decides (`policy_version`), but for what tools say of themselves: rules, lists, trusted servers and vocabulary. File
    /// names, comments and layout do not count.
    pub fn version(&self) -> Sha256 {
        let mut key = KeyBuilder::new("ua.policy.v1").field("algorithm", ALGORITHM).field("words", &vocabulary());
        let policies = self.user.iter().filter(|file| !file.is_of_tools);
        for rule in policies.chain([&self.shipped]).flat_map(|file| &file.rules) {
            // A rule is made of texts, numbers and enums, which serde_json always can write.
            key = key.field("rule", &serde_json::to_string(rule).unwrap_or_else(|_| format!("{rule:?}")));
        }
        for file in &self.job {
            let label = if file.is_trusted { "trusted job rule" } else { "job rule" };
            for rule in &file.rules.rules {
                key = key.field(label, &serde_json::to_string(rule).unwrap_or_else(|_| format!("{rule:?}")));
            }
        }
        let denylist: BTreeSet<_> = self.denylist.texts().iter().collect();
        let allowlist: BTreeSet<_> = self.allowlist.texts().iter().collect();
        let trusted: BTreeSet<_> = self.trusted_servers.iter().collect();
        let confirming: BTreeSet<_> = self.confirming_servers.iter().collect();
        for (label, names) in
            [("denylist", denylist), ("allowlist", allowlist), ("trusted", trusted), ("confirming", confirming)]
        {
            for name in names {
                key = key.field(label, name);
            }
        }
        for (server, pack) in &self.packs.chosen {
            key = key.field("pack of", server).field("pack", pack.map_or("", Pack::id));
        }
        if !self.packs.are_off {
            for pack in Pack::all().unwrap_or_default() {
                key = key.field("pack", pack.id()).field("text", pack.text());
            }
        }
        key.digest()
    }

    fn decide<'a>(&'a self, tool: &ToolSpec) -> Decision<'a> {
        let without = self.weigh(tool, self.opinions(tool));
        let mut opinions = job::raising(&self.job, tool, &without.policy);
        if opinions.is_empty() {
            return without;
        }
        let raised_by: Vec<String> = opinions.iter().map(|opinion| opinion.note.clone()).collect();
        opinions.extend(without.opinions);
        let mut decision = self.weigh(tool, opinions);
        job::keep_caution(&mut decision.policy, &without.policy);
        if decision.winner >= raised_by.len() {
            decision.policy.reason = format!("{}; {}", decision.policy.reason, raised_by.join("; "));
        }
        decision
    }

    fn weigh<'a>(&'a self, tool: &ToolSpec, opinions: Vec<Opinion<'a>>) -> Decision<'a> {
        // The last opinion, the default, always has a class.
        let winner = opinions.iter().position(|opinion| opinion.class.is_some()).unwrap_or(opinions.len() - 1);
        let decided = &opinions[winner];
        let class = decided.class.unwrap_or(SideEffectClass::External);
        let is_idempotent =
            self.trusted_servers.contains(&tool.name.server) && tool.annotations.idempotent == Some(true);

        let mut picker = Picker { opinions: &opinions, used: vec![Vec::new(); opinions.len()] };
        let mut policy = CallPolicy {
            class,
            key_channel: picker.first("key_channel", |settings| settings.key_channel.clone()),
            key_ttl: picker.first("key_ttl", |settings| settings.key_ttl),
            volatile_fields: picker
                .first("volatile_fields", |settings| settings.volatile_fields.clone())
                .unwrap_or_default(),
            timeout: picker.first("timeout", |settings| settings.timeout),
            needs_approval: picker.first("approval", |settings| settings.approval).unwrap_or_default(),
            reads: picker
                .first("reads", |settings| settings.reads.clone())
                .unwrap_or_else(|| reads_of(tool, class, decided)),
            composite: picker.first("composite", |settings| settings.composite.clone()).map(Box::new),
            rule_id: decided.rule_id.clone(),
            class_source: decided.source,
            reason: decided.note.clone(),
            ..CallPolicy::unclassified()
        };
        if let Some(KeyChannel::Argument(name)) = &policy.key_channel
            && !policy.volatile_fields.contains(name)
        {
            // The key is computed over the arguments, so it can not be one of them.
            policy.volatile_fields.push(name.clone());
        }
        if class.has_effect() {
            let required = picker.first("requires_idempotency_key", |settings| settings.requires_idempotency_key);
            policy.requires_idempotency_key = required.unwrap_or_default();
            policy.effect_kind = picker.first("effect_kind", |settings| settings.effect_kind.clone());
            if policy.effect_kind.is_none() {
                let is_believed = self.believed(&tool.name.server) != Believed::Untrusted;
                policy.effect_kind = picker.made(tool, class, decided.source, is_believed);
                policy.kind_is_guessed = policy.effect_kind.is_some();
            }
            policy.scope = picker.first("scope", |settings| settings.scope.clone()).unwrap_or_default();
            policy.sends_files =
                picker.first("sends_files", |settings| settings.sends_files.clone()).unwrap_or_default();
            let proofs = picker.first("errors_without_effect", |settings| settings.errors_without_effect.clone());
            policy.errors_without_effect = proofs.unwrap_or_default();
            policy.probe = picker.first("probe", |settings| settings.probe.clone());
            policy.marker = match picker.first("marker", |settings| settings.marker.clone()) {
                Some(MarkerSetting::Mark(marker)) => Some(marker),
                Some(MarkerSetting::Nothing) | None => None,
            };
            policy.horizon = picker.first("horizon", |settings| settings.horizon);
            if let Some(on_conflict) = picker.first("on_scope_conflict", |settings| settings.on_scope_conflict) {
                policy.on_scope_conflict = on_conflict;
            }
        }
        // Beside a class, `on_unknown` was written about that class: shipped `redo` is no licence for a tool that the
        // user calls external.
        let said = picker.first("on_unknown", |settings| {
            settings.on_unknown.filter(|_| settings.side_effect_class.is_none_or(|its| its == class))
        });
        policy.on_unknown = said.unwrap_or_else(|| default_on_unknown(class, &policy, is_idempotent));
        Self::take_back(tool, &opinions, &mut policy);
        Self::watch_fetches(tool, &opinions, &mut policy);
        // A list of harmless programs lowers the class, so it counts only from the deciding rule or a stronger one.
        let harmless = opinions[..=winner].iter().enumerate().find_map(|(index, opinion)| {
            let programs = opinion.settings.as_ref().and_then(|settings| settings.harmless_programs.clone());
            programs.map(|programs| (index, programs))
        });
        let mut used = picker.used;
        if let Some((index, _)) = &harmless {
            used[*index].push("harmless_programs");
        }
        Decision { opinions, winner, policy, used, harmless }
    }

    /// Has a tool that says it fetches bring in words of others, whatever rule forgot to say so: reads of such a tool are a way out, too. A
    /// user's own word stands.
    fn watch_fetches(tool: &ToolSpec, opinions: &[Opinion<'_>], policy: &mut CallPolicy) {
        let says_user = |opinion: &Opinion<'_>| {
            opinion.source == ClassSource::UserPolicy
                && opinion.settings.as_ref().is_some_and(|settings| settings.reads.is_some())
        };
        let is_forgotten = tool.annotations.fetches == Some(true) && !policy.reads.contains(&Reads::Untrusted);
        if is_forgotten && policy.class != SideEffectClass::External && !opinions.iter().any(says_user) {
            policy.reads.push(Reads::Untrusted);
        }
    }

    /// Takes back what a tool of our own server says it cannot promise: its transports differ, and only it knows which one it
    /// was given. An external tool that honours no keys is held when in doubt; a time to live caps ours. A
    /// user's own word stands.
    fn take_back(tool: &ToolSpec, opinions: &[Opinion<'_>], policy: &mut CallPolicy) {
        let says_user = |opinion: &Opinion<'_>| {
            matches!(opinion.source, ClassSource::UserPolicy | ClassSource::JobPolicy)
                && opinion.settings.as_ref().is_some_and(|settings| settings.on_unknown.is_some())
        };
        if policy.on_unknown != OnUnknown::RedoKeyed || opinions.iter().any(says_user) {
            return;
        }
        let is_own = tool.name.namespace == ToolNamespace::Local && policy.class == SideEffectClass::External;
        if is_own && tool.annotations.honours_keys == Some(false) {
            policy.on_unknown = OnUnknown::Hold;
            policy.reason =
                format!("{}; the way it is set up cannot honour a key, so a lost call is held", policy.reason);
        }
        if let Some(seconds) = tool.annotations.key_ttl_seconds {
            let said = Duration::from_secs(seconds);
            policy.key_ttl = Some(policy.key_ttl.map_or(said, |ours| ours.min(said)));
        }
    }

    /// Every opinion, the strongest first; the last one always has a class.
    fn opinions<'a>(&'a self, tool: &ToolSpec) -> Vec<Opinion<'a>> {
        let mut opinions = Vec::new();
        for file in &self.user {
            opinions
                .extend(file.rules.iter().map(|rule| rule_opinion(rule, ClassSource::UserPolicy, &file.file, tool)));
        }
        for file in &self.job {
            opinions.extend(file.rules.rules.iter().map(|rule| {
                let mut opinion = rule_opinion(rule, ClassSource::JobPolicy, &file.rules.file, tool);
                if opinion.applies && !file.is_trusted {
                    (opinion.class, opinion.settings) = (None, None);
                    opinion.note = format!("the job's {} is not trusted, so it lowers nothing", file.rules.file);
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
            if !is_vouched && opinion.applies {
                opinion.class = opinion.class.filter(|class| *class > without_pack);
                "nothing in the configuration says that this server is what the pack is about, so it may only raise caution"
                    .clone_into(&mut opinion.note);
            }
            opinion
        });
        judged.collect()
    }
}

impl<'a> Opinion<'a> {
    /// A rule of a job's policy file that raises the caution of what else was decided.
    pub(crate) fn raising(rule: &'a Rule, file: &'a str, settings: Settings, fields: &[&'static str]) -> Self {
        let note = match settings.side_effect_class {
            Some(class) => format!("rule {} of the job's {file} raises it to {class}", rule.id),
            None => format!("rule {} of the job's {file} raises {}", rule.id, fields.join(", ")),
        };
        Self {
            source: ClassSource::JobPolicy,
            rule_id: rule.id.clone(),
            file: Some(file),
            applies: true,
            class: settings.side_effect_class,
            settings: Some(Cow::Owned(settings)),
            note,
        }
    }
}

impl Opinion<'_> {
    fn name(&self) -> String {
        match self.file {
            Some(file) => format!("rule {} of {file}", self.rule_id.rsplit(':').next().unwrap_or_default()),
            None => self.rule_id.clone(),
        }
    }
}

/// Takes each field from the strongest rule that sets it, and remembers which one that was.
struct Picker<'a> {
    opinions: &'a [Opinion<'a>],
    used: Vec<Vec<&'static str>>,
}

impl Picker<'_> {
    fn first<T>(&mut self, field: &'static str, get: impl Fn(&Settings) -> Option<T>) -> Option<T> {
        let mut set = self.opinions.iter().enumerate();
        let (index, value) = set.find_map(|(index, opinion)| Some((index, get(opinion.settings.as_deref()?)?)))?;
        self.used[index].push(field);
        Some(value)
    }
}

impl Picker<'_> {
    /// What a call makes when no rule names its kind: by a rule's `creates`, else by the tool's name, or by the word of a server that is
    /// believed (it only adds, and a repeat adds again), unless a rule decided the class and so knows the tool better than its name does.
    fn made(
        &mut self,
        tool: &ToolSpec,
        class: SideEffectClass,
        decided_by: ClassSource,
        is_believed: bool,
    ) -> Option<EffectKind> {
        if let Some(creates) = self.first("creates", |settings| settings.creates) {
            return if creates { made_by_word(&tool.name) } else { None };
        }
        let is_guess = matches!(
            decided_by,
            ClassSource::List | ClassSource::Annotation | ClassSource::Name | ClassSource::Default
        );
        if !is_guess || class != SideEffectClass::External || tool.name.namespace == ToolNamespace::Local {
            return None;
        }
        let hints = &tool.annotations;
        let adds = hints.destructive == Some(false) && hints.idempotent == Some(false) && hints.read_only != Some(true);
        if let Some(kind) =
            made_by_word(&tool.name).filter(|_| is_believed && adds && made_by_name(&tool.name).is_none())
        {
            if let Some(said) = self.opinions.iter().position(|opinion| opinion.source == ClassSource::Annotation) {
                self.used[said].push("effect_kind");
            }
            return Some(kind);
        }
        let kind = made_by_name(&tool.name)?;
        if let Some(name) = self.opinions.iter().position(|opinion| opinion.source == ClassSource::Name) {
            self.used[name].push("effect_kind");
        }
        Some(kind)
    }
}

/// What happens to a lost call when no rule says it.
fn default_on_unknown(class: SideEffectClass, policy: &CallPolicy, is_idempotent: bool) -> OnUnknown {
    let has_key = policy.key_channel.is_some();
    match class {
        SideEffectClass::ReadOnly => OnUnknown::Redo,
        SideEffectClass::Local if is_idempotent => OnUnknown::Redo,
        SideEffectClass::Local | SideEffectClass::Memory | SideEffectClass::External if policy.probe.is_some() => {
            OnUnknown::Probe
        }
        SideEffectClass::Memory | SideEffectClass::External if has_key => OnUnknown::RedoKeyed,
        SideEffectClass::Local | SideEffectClass::Memory | SideEffectClass::External => OnUnknown::Hold,
    }
}

fn rule_opinion<'a>(rule: &'a Rule, source: ClassSource, file: &'a str, tool: &ToolSpec) -> Opinion<'a> {
    let applies = rule.selector.matches(tool);
    let rule_id = match source {
        ClassSource::Shipped => format!("{SHIPPED_PREFIX}{}", rule.id),
        ClassSource::UserPolicy
        | ClassSource::JobPolicy
        | ClassSource::List
        | ClassSource::Annotation
        | ClassSource::Name
        | ClassSource::Default => rule.id.clone(),
    };
    let class = rule.settings.side_effect_class.filter(|_| applies);
    let note = match (applies, class) {
        (false, _) => "it is about other tools".to_owned(),
        (true, None) => "it names no class".to_owned(),
        (true, Some(class)) if source == ClassSource::JobPolicy => {
            format!("rule {} of the job's {file}, which is trusted, calls it {class}", rule.id)
        }
        (true, Some(class)) => format!("rule {} of {file} calls it {class}", rule.id),
    };
    let settings = applies.then_some(Cow::Borrowed(&rule.settings));
    Opinion { source, rule_id, file: Some(file), applies, class, settings, note }
}

/// What the server says. MCP tells clients to distrust it; a lie that raises caution does no harm. Of a server of others `readOnlyHint` is
/// never believed alone: servers set it on what starts a recording or writes a file.
fn annotation_opinion(tool: &ToolSpec, believed: Believed, name: &NameSays) -> Opinion<'static> {
    let claims = tool.annotations;
    let suggests = matches!(name, NameSays::Read(_) | NameSays::MayRead(_));
    let (rule_id, class, note) = match (claims.read_only, claims.destructive) {
        (Some(true), _) if believed == Believed::Trusted => {
            ("readOnlyHint", Some(SideEffectClass::ReadOnly), "its server is trusted and says readOnlyHint = true")
        }
        (Some(true), _) if believed == Believed::Confirming && suggests => (
            "readOnlyHint",
            Some(SideEffectClass::ReadOnly),
            "its server says readOnlyHint = true, which is trusted where the name suggests the same",
        ),
        (_, Some(true)) => {
            ("destructiveHint", Some(SideEffectClass::External), "its server says destructiveHint = true")
        }
        (Some(false), _) => ("readOnlyHint", Some(SideEffectClass::External), "its server says readOnlyHint = false"),
        (Some(true), _) if believed == Believed::Confirming => {
            ("readOnlyHint", None, "its server says readOnlyHint = true, but nothing in its name suggests that")
        }
        (Some(true), _) => {
            ("readOnlyHint", None, "its server says readOnlyHint = true, but is not trusted, so that lowers nothing")
        }
        (None, _) => ("none", None, "its server says neither readOnlyHint nor destructiveHint = true"),
    };
    Opinion {
        source: ClassSource::Annotation,
        rule_id: format!("annotation:{rule_id}"),
        file: None,
        applies: claims.read_only.is_some() || claims.destructive == Some(true),
        class,
        settings: None,
        note: note.to_owned(),
    }
}

fn name_opinion(says: &NameSays) -> Opinion<'static> {
    let (word, class, note) = match says {
        NameSays::Effect(word) => {
            let note = format!("its name contains the side-effect word {word:?}");
            (word.as_str(), Some(SideEffectClass::External), note)
        }
        NameSays::Read(word) => {
            let note = format!("its name suggests a read ({word:?})");
            (word.as_str(), Some(SideEffectClass::ReadOnly), note)
        }
        NameSays::MayRead(word) => {
            let note = format!("its name suggests that it looks, by {word:?}, which is no proof");
            ("none", None, note)
        }
        NameSays::Nothing => {
            ("none", None, "its name says neither that it looks nor that it changes something".to_owned())
        }
    };
    Opinion {
        source: ClassSource::Name,
        rule_id: format!("name:{word}"),
        file: None,
        applies: class.is_some() || matches!(says, NameSays::MayRead(_)),
        class,
        settings: None,
        note,
    }
}
