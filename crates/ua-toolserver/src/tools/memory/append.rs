//! `core_memory_append`: a line more in a short labelled text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Memory;
use super::core::canonical;
use crate::answer::{Answer, Failure};
use crate::context::{Context, Order, Setup};
use crate::tool::{Description, Effect, Opened, Tool};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The block, for example `human` or `project`: letters, digits, `_`, `-` and `.`. It is made when missing.
    #[schemars(length(min = 1, max = 64))]
    label: String,
    /// The text to add, as a line of its own.
    #[schemars(length(min = 1))]
    text_to_append: String,
}

#[derive(Debug)]
pub(in crate::tools) struct CoreMemoryAppend(Memory);

impl Tool for CoreMemoryAppend {
    const NAME: &'static str = "core_memory_append";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &["UA_MEMORY"]
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Memory::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Add to core memory",
            "Adds a line to a block of the core memory. With an idempotency key in _meta it is added exactly once.",
            Effect::Adds,
        )
    }

    async fn call(&self, _: &Context, given: Arguments, order: Order<'_>) -> Answer {
        if given.text_to_append.is_empty() {
            return Err(Failure::refused("the text is empty", "give the text to add"));
        }
        let arguments = canonical(&given)?;
        let Arguments { label, text_to_append } = given;
        let edit = move |old: Option<String>| match old {
            Some(old) if !old.is_empty() => format!("{old}\n{text_to_append}"),
            Some(_) | None => text_to_append,
        };
        self.0.change(Self::NAME, order.key, arguments, label, edit).await
    }
}
