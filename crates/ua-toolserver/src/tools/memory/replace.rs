//! `core_memory_replace`: another text in the place of a short labelled one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Memory;
use super::core::canonical;
use crate::answer::Answer;
use crate::context::{Context, Order, Setup};
use crate::tool::{Description, Effect, Opened, Tool};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The block, for example `human` or `project`: letters, digits, `_`, `-` and `.`. It is made when missing.
    #[schemars(length(min = 1, max = 64))]
    label: String,
    /// The whole new text. An empty one removes the block.
    new_value: String,
}

#[derive(Debug)]
pub(in crate::tools) struct CoreMemoryReplace(Memory);

impl Tool for CoreMemoryReplace {
    const NAME: &'static str = "core_memory_replace";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &["UA_MEMORY"]
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Memory::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Replace in core memory",
            "Replaces a block of the core memory. With an idempotency key in _meta it is replaced exactly once, so a late repeat undoes nothing.",
            Effect::Replaces,
        )
    }

    async fn call(&self, _: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let arguments = canonical(&given)?;
        let Arguments { label, new_value } = given;
        self.0.change(Self::NAME, order.key, arguments, label, move |_| new_value).await
    }
}
