//! What kind of thing a tool call is, decided before it runs: its side-effect class, what happens when its outcome is
//! lost, how its idempotency key travels, and which of its arguments name the effect.
//!
//! Durable Jobs v1 spec §7 (classification) and §8.2 (`side_effect_scope`). Tool catalogs are huge and change by the
//! day, so nothing here needs a list of every tool; what nobody vouches for is external and never repeated. The sources
//! of a class, the strongest first; the first one that says something decides:
//!
//! 1. the user's policy files, in order, the first matching rule first;
//! 2. policy files of a job that a person trusted;
//! 3. `side_effect_denylist`, then `read_only_allowlist`;
//! 4. the shipped rules about our own tools and Composio's;
//! 5. the pack about the server, where somebody vouches for it;
//! 6. MCP annotations, which may only raise caution, and of servers that are trusted so far confirm what a name suggests;
//! 7. the words in the name;
//! 8. `external`.
//!
//! Over what was decided so the policy files of a job may raise caution, whoever trusts them.
//!
//! ```
//! use std::collections::HashSet;
//!
//! use serde_json::json;
//! use ua_classify::{Classifier, Lists, PolicyRules};
//! use ua_core::{OnUnknown, SideEffectClass, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
//!
//! let policy = r#"
//!     [[rule]]
//!     id = "tracker-create"
//!     server = "tracker"
//!     name = "create_ticket"
//!     side_effect_class = "external"
//!     key_channel = { argument = "client_token" }
//! "#;
//! let rules = PolicyRules::parse(policy, "policy.toml")?;
//! let classifier = Classifier::new(vec![rules], &Lists::default(), HashSet::new())?;
//!
//! let tool = |name: &str| ToolSpec {
//!     name: ToolName::qualified(ToolNamespace::Mcp, "tracker", name),
//!     description: String::new(),
//!     input_schema: json!({"type": "object"}),
//!     annotations: ToolAnnotations::default(),
//! };
//! let create = classifier.classify(&tool("create_ticket"), None);
//! assert_eq!((create.class, create.on_unknown), (SideEffectClass::External, OnUnknown::RedoKeyed));
//! assert_eq!(classifier.classify(&tool("list_tickets"), None).class, SideEffectClass::ReadOnly);
//! // Nobody said anything about this one.
//! assert_eq!(classifier.classify(&tool("sprint"), None).on_unknown, OnUnknown::Hold);
//! # Ok::<(), ua_classify::PolicyError>(())
//! ```

mod classifier;
mod composite;
mod encoded_words;
mod error;
mod explain;
mod job;
mod key_argument;
mod name;
mod packs;
mod parse;
mod parse_probe;
mod rule;
mod scope;
mod wording;

pub use classifier::{Classifier, Lists, Misnamed, names_file_address};
pub use error::PolicyError;
pub use explain::{Considered, Explanation, IdleCaution, Verdict, when_in_doubt};
pub use job::{JobPolicy, is_more_careful};
pub use key_argument::{declared_keys, likely_key_arguments, without_argument, without_key_argument};
pub use packs::Pack;
pub use rule::PolicyRules;
pub use scope::{digest_in_plain_words, file_arguments, project_scope};
