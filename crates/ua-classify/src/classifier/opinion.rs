//! An opinion: what one source says about one tool.
//!
//! Durable Jobs v1 spec §7.2 and §7.4. Invariant: of a server of others `readOnlyHint` is never believed alone; what raises caution is.

use std::borrow::Cow;

use ua_core::{ClassSource, SideEffectClass, ToolSpec};

use super::SHIPPED_PREFIX;
use crate::name::NameSays;
use crate::rule::{Rule, Settings};

/// What one source has to say about one tool.
pub(crate) struct Opinion<'a> {
    pub(super) source: ClassSource,
    pub(super) rule_id: String,
    pub(super) file: Option<&'a str>,
    /// Whether it is about this tool at all.
    pub(super) applies: bool,
    /// Whether it may only raise caution: nothing that is known without it gets lost by it.
    pub(super) only_raises: bool,
    pub(super) class: Option<SideEffectClass>,
    /// Set for policy rules: what else they say.
    pub(super) settings: Option<Cow<'a, Settings>>,
    pub(super) note: String,
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
            only_raises: true,
            class: settings.side_effect_class,
            settings: Some(Cow::Owned(settings)),
            note,
        }
    }
}

impl Opinion<'_> {
    /// Whether something is more careful for its sake.
    pub(super) fn raises(&self) -> bool {
        self.only_raises && (self.class.is_some() || self.settings.is_some())
    }

    pub(super) fn name(&self) -> String {
        match self.file {
            Some(file) => format!("rule {} of {file}", self.rule_id.rsplit(':').next().unwrap_or_default()),
            None => self.rule_id.clone(),
        }
    }
}

/// How far the annotations of a server are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Believed {
    /// When they raise caution.
    Untrusted,
    /// Also when they say what the name suggests.
    Confirming,
    /// As the caller's own word.
    Trusted,
}

pub(super) fn rule_opinion<'a>(rule: &'a Rule, source: ClassSource, file: &'a str, tool: &ToolSpec) -> Opinion<'a> {
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
        (false, _) => "it matches other tools".to_owned(),
        (true, None) => "it sets no class".to_owned(),
        (true, Some(class)) if source == ClassSource::JobPolicy => {
            format!("rule {} of the job's {file}, which is trusted, calls it {class}", rule.id)
        }
        (true, Some(class)) => format!("rule {} of {file} calls it {class}", rule.id),
    };
    let settings = applies.then_some(Cow::Borrowed(&rule.settings));
    Opinion { source, rule_id, file: Some(file), applies, only_raises: false, class, settings, note }
}

/// What the server says. MCP tells clients to distrust it; a lie that raises caution does no harm. Of a server of others `readOnlyHint` is
/// never believed alone: servers set it on what starts a recording or writes a file.
pub(super) fn annotation_opinion(tool: &ToolSpec, believed: Believed, name: &NameSays) -> Opinion<'static> {
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
        (Some(true), _) => (
            "readOnlyHint",
            None,
            "its server says readOnlyHint = true, but is not trusted, so that does not lower the class",
        ),
        (None, _) => ("none", None, "its server says neither readOnlyHint nor destructiveHint = true"),
    };
    Opinion {
        source: ClassSource::Annotation,
        rule_id: format!("annotation:{rule_id}"),
        file: None,
        applies: claims.read_only.is_some() || claims.destructive == Some(true),
        only_raises: believed != Believed::Trusted && class == Some(SideEffectClass::External),
        class,
        settings: None,
        note: note.to_owned(),
    }
}

pub(super) fn name_opinion(says: &NameSays) -> Opinion<'static> {
    let (word, class, note) = match says {
        NameSays::Effect(word) => {
            let note = format!("its name contains the side-effect word {word:?}");
            (word.as_str(), Some(SideEffectClass::External), note)
        }
        NameSays::Joins(word) => {
            let note = format!("its name joins actions ({word:?}), and any of them may change something");
            (word.as_str(), Some(SideEffectClass::External), note)
        }
        NameSays::Read(word) => {
            let note = format!("its name suggests a read ({word:?})");
            (word.as_str(), Some(SideEffectClass::ReadOnly), note)
        }
        NameSays::MayRead(word) => {
            let note = format!("its name suggests a read, by {word:?}, which is no proof");
            ("none", None, note)
        }
        NameSays::Nothing => ("none", None, "its name suggests neither a read nor a change".to_owned()),
    };
    Opinion {
        source: ClassSource::Name,
        rule_id: format!("name:{word}"),
        file: None,
        applies: class.is_some() || matches!(says, NameSays::MayRead(_)),
        only_raises: false,
        class,
        settings: None,
        note,
    }
}
