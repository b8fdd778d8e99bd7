//! A step: a model, tools, an input, and limits.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{
    Budgets, Constraints, Env, Escalation, PriceTable, Redactor, StopCondition, ToolName, ToolNamespace, ToolSpec,
};
use ua_dispatch::{LocalTools, ToolTransport};
use ua_llm::ModelExtras;
use ua_runner::{Agent, GranularStep, ResultCheck};

use crate::error::Error;
use crate::joined::{Joined, Part};
use crate::model::Model;
use crate::tool::{SERVER, Tool};

/// The most output tokens of one reply, unless the step says otherwise.
const MAX_OUTPUT_TOKENS: u32 = 8192;

/// The highest temperature that a provider takes, in thousandths.
const MOST_TEMPERATURE: u32 = 2000;

/// What stands for one that is below 0 or no number.
const NO_TEMPERATURE: u32 = u32::MAX;

/// A temperature in thousandths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a whole number within bounds there")]
fn in_thousandths(temperature: f64) -> u32 {
    let thousandths = (temperature * 1_000.0).round();
    // Also where it is no number: that is in no range.
    if thousandths >= 0.0 { thousandths.min(f64::from(NO_TEMPERATURE - 1)) as u32 } else { NO_TEMPERATURE }
}

/// What an agent is to reach, with which tools, within which limits. The definition belongs to the id it is run under: another one under
/// the same id is refused with what differs, from what to what.
#[derive(Clone)]
#[must_use = "a step does nothing until `Runs::run` runs it"]
pub struct Step {
    name: String,
    pub(crate) model: Option<Model>,
    system: String,
    input: Value,
    tools: Vec<Tool>,
    #[cfg(feature = "mcp")]
    pub(crate) servers: Option<crate::servers::Servers>,
    others: Vec<(Vec<String>, Arc<dyn ToolTransport>)>,
    policies: Vec<String>,
    max_turns: u32,
    max_output_tokens: Option<u32>,
    temperature_milli: Option<u32>,
    seed: Option<u64>,
    extras: ModelExtras,
    output_schema: Option<Value>,
    accepts: Option<ResultCheck>,
    history_max_tokens: Option<u64>,
    blob_threshold_bytes: Option<u64>,
    enforce_idempotency: bool,
    degraded_replay: bool,
    prices: PriceTable,
    stop_conditions: Vec<StopCondition>,
    budgets: Budgets,
    constraints: Constraints,
    escalation: Escalation,
}

impl Step {
    /// A step called `name`: 20 turns, 128,000 tokens of history or what the model reads, blobs over 20,000 bytes.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            model: None,
            system: String::new(),
            input: Value::Null,
            tools: Vec::new(),
            #[cfg(feature = "mcp")]
            servers: None,
            others: Vec::new(),
            policies: Vec::new(),
            max_turns: 20,
            max_output_tokens: None,
            temperature_milli: None,
            seed: None,
            extras: ModelExtras::default(),
            output_schema: None,
            accepts: None,
            history_max_tokens: None,
            blob_threshold_bytes: None,
            enforce_idempotency: false,
            degraded_replay: false,
            prices: PriceTable::default(),
            stop_conditions: Vec::new(),
            budgets: Budgets::default(),
            constraints: Constraints::default(),
            escalation: Escalation::default(),
        }
    }

    /// Who is asked.
    pub fn model(mut self, model: Model) -> Self {
        self.model = Some(model);
        self
    }

    /// The system prompt.
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.system = prompt.into();
        self
    }

    /// What is asked of the model: a text, or any other JSON value, which it reads under the step's name. It is part of the definition, and
    /// in the first message of the run. The whole definition has at most 16 MiB as JSON, which is more than any model reads at once: what
    /// is longer is read by a tool, part by part. One that is empty, too long or has a secret in it is refused ([`Error::Input`]).
    pub fn input(mut self, input: impl Into<Value>) -> Self {
        self.input = input.into();
        self
    }

    /// Refuses what would be kept as it is, or sent to the model, with a secret in it; `id` is what it is run under.
    pub(crate) fn refuse_secrets(&self, redactor: &Redactor, id: &str) -> Result<(), Error> {
        if redactor.is_empty() {
            return Ok(());
        }
        let json = |part: &str, value: Value| (part.to_owned(), value);
        let said = [
            json("run id", json!(id)),
            json("name", json!(self.name)),
            json("system prompt", json!(self.system)),
            json("output schema", json!(self.output_schema)),
            json("stop conditions", json!(self.stop_conditions)),
            json("constraints", json!(self.constraints)),
            json("escalation", json!(self.escalation)),
            json("headers", json!(self.extras.headers)),
        ];
        let tools = self.tools.iter().map(|tool| {
            let ToolSpec { name, description, input_schema, .. } = &tool.spec;
            json(&format!("tool `{}`", name.tool), json!([description, input_schema]))
        });
        let policies = self.policies.iter().map(|policy| ("policy".to_owned(), json!(policy)));
        let found = |part: &str, value: &Value| {
            let name = redactor.found_in_json(value)?;
            Some(format!(
                "the value of {name} is in its {part}, and would be stored or sent to the model; leave it out: a tool of the program has it \
                 without the model"
            ))
        };
        if let Some(why) = said.into_iter().chain(tools).chain(policies).find_map(|(part, value)| found(&part, &value))
        {
            return Err(Error::Step(why));
        }
        // At last: who gave the input is not told of what is wrong with the program.
        found("input", &self.input).map_or(Ok(()), |why| Err(Error::Input(why)))
    }

    /// Refuses a result of another form than that which a typed run asks for.
    pub(crate) fn check_result_is(&self, schema: &Value) -> Result<(), Error> {
        match &self.output_schema {
            Some(own) if own != schema => Err(Error::Step(format!(
                "the step `{}` has an `output_schema`, and is run for a result of another one; leave out one of them",
                self.name
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// A tool of the program; the model sees it as `mcp__program__<name>`.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Tool servers over MCP, beside the program's own tools; those of several files are all there.
    #[cfg(feature = "mcp")]
    pub fn servers(mut self, servers: crate::servers::Servers) -> Self {
        self.servers = Some(match self.servers.take() {
            Some(before) => before.and(servers),
            None => servers,
        });
        self
    }

    /// Any other transport, with the names of its servers. What its tools are is decided as for servers of others.
    pub fn transport<N: Into<String>>(
        mut self,
        servers: impl IntoIterator<Item = N>,
        transport: Arc<dyn ToolTransport>,
    ) -> Self {
        self.others.push((servers.into_iter().map(Into::into).collect(), transport));
        self
    }

    /// What the runner may rely on about tools, in the words of a policy file. The first one said counts, before what tools say.
    pub fn policy(mut self, toml: impl Into<String>) -> Self {
        self.policies.push(toml.into());
        self
    }

    /// The most turns, over all runs of an id.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.max_turns = turns;
        self
    }

    /// The most output tokens of one reply, at least 1; 8192, or what the model writes if that is less, unless it is said. A step that does
    /// not say it keeps what its run was begun with, also when a later version knows the model otherwise.
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// The sampling temperature, 0 to 2. Its thousandths count, so that the same step is the same whoever computes it; one that is no such number is
    /// refused ([`Error::Step`]).
    pub fn temperature(self, temperature: f64) -> Self {
        self.temperature_milli(in_thousandths(temperature))
    }

    /// The sampling temperature, in thousandths: 0 to 2000.
    pub fn temperature_milli(mut self, temperature: u32) -> Self {
        self.temperature_milli = Some(temperature);
        self
    }

    /// What sampling starts from. A model whose provider takes no seed refuses it ([`Error::Step`]); a script says the same with any.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How much effort the model makes: an [`Effort`](crate::Effort), or its provider's word, `low`, `medium`, `high`.
    pub fn effort(mut self, effort: impl Into<String>) -> Self {
        self.extras.effort = Some(effort.into());
        self
    }

    /// How the model thinks: `adaptive`, as much as it deems right, or `off`, for models that are told so (`Anthropic`); others refuse it
    /// ([`Error::Step`]).
    pub fn thinking(mut self, how: impl Into<String>) -> Self {
        self.extras.thinking = Some(how.into());
        self
    }

    /// The most tokens of thoughts before a reply, for models that are told so (`Anthropic`); others refuse it ([`Error::Step`]).
    pub fn thinking_tokens(mut self, tokens: u32) -> Self {
        self.extras.thinking_tokens = Some(tokens);
        self
    }

    /// A [`ToolChoice`](crate::ToolChoice), or its word: `auto`, `any`, `none`, or the name of the tool that every reply calls, as the model sees it: `mcp__program__<name>` for one of the program's.
    /// Another name of one of these is refused ([`Error::Step`]). A choice holds for every reply of the run. With `any` or a tool each of
    /// them calls one, and a step is complete with a reply that calls none: so it stops at a limit ([`Step::max_turns`]), and what it did
    /// is in [`Runs::calls`](crate::Runs::calls).
    pub fn tool_choice(mut self, choice: impl Into<String>) -> Self {
        self.extras.tool_choice = Some(choice.into());
        self
    }

    /// A header that every request to the model has besides; may be said several times. It is part of the definition and kept as it is, so no key.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extras.headers.insert(name.into(), value.into());
        self
    }

    /// The JSON Schema of the result; [`Runs::run_for`](crate::Runs::run_for) takes that of a type. The model's last message has to be a JSON
    /// value that fits it, and is asked for again until it is.
    pub fn output_schema(mut self, schema: impl Into<Value>) -> Self {
        self.output_schema = Some(schema.into());
        self
    }

    /// The same for a result that is a `T`, as [`Runs::run_for`](crate::Runs::run_for) runs it: with its schema, and what fits that and cannot be
    /// read as a `T` is told to the model and asked for again. What is forked for a typed result is this step.
    pub fn output<T: DeserializeOwned + JsonSchema>(self) -> Self {
        // Its schema says less than `T` where `T` is read in a way of its own, so the model is asked again by `T` itself.
        let reads = |value: &Value| serde_json::from_value::<T>(value.clone()).map(drop).map_err(|why| why.to_string());
        let mut step = self.output_schema(crate::tool::result_schema_of::<T>());
        step.accepts = Some(Arc::new(reads));
        step
    }

    /// The most tokens of history that a request carries; beyond it the middle is left out.
    pub fn history_max_tokens(mut self, tokens: u64) -> Self {
        self.history_max_tokens = Some(tokens);
        self
    }

    /// Results over this many bytes are kept apart.
    pub fn blob_threshold_bytes(mut self, bytes: u64) -> Self {
        self.blob_threshold_bytes = Some(bytes);
        self
    }

    /// Every tool that does harm when repeated has to take a key; with one that cannot, nothing starts.
    pub fn enforce_idempotency(mut self) -> Self {
        self.enforce_idempotency = true;
        self
    }

    /// Continues when the stored result of a call that may be repeated is gone, with a note in its place.
    pub fn degraded_replay(mut self) -> Self {
        self.degraded_replay = true;
        self
    }

    /// What tokens cost, as in a price file. This alone counts for `max_cost`; a price among the facts of a model does not.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # fn priced(step: Step) -> Result<Step, Error> {
    /// const PRICES: &str = r#"
    /// [providers.anthropic."claude-sonnet-*"]
    /// input = 3.00    # dollars per million tokens
    /// output = 15.00
    /// "#;
    /// let prices = ua_sdk::PriceTable::parse("prices.toml", PRICES)?;
    /// # Ok(step.prices(prices))
    /// # }
    /// # priced(Step::new("priced")).unwrap();
    /// ```
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// What must hold, over receipts and files, before the step counts as complete; may be said several times.
    pub fn stop_when(mut self, condition: StopCondition) -> Self {
        self.stop_conditions.push(condition);
        self
    }

    /// Further limits. Turns are limited by [`Step::max_turns`] alone: another number here is refused ([`Error::Step`]).
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// What must not happen.
    pub fn constraints(mut self, constraints: Constraints) -> Self {
        self.constraints = constraints;
        self
    }

    /// When a person is asked.
    pub fn escalation(mut self, escalation: Escalation) -> Self {
        self.escalation = escalation;
        self
    }

    /// The step as the runner knows it. `servers` is the transport of tool servers, where there are any.
    pub(crate) fn granular(&self, env: &Env, servers: Option<Arc<dyn ToolTransport>>) -> Result<GranularStep, Error> {
        let Some(model) = &self.model else {
            return Err(Error::Step(format!("the step `{}` has no model; give it one with `Step::model`", self.name)));
        };
        if self.input.is_null() {
            return Err(Error::Step(format!(
                "the step `{}` has no input; say with `Step::input` what to do",
                self.name
            )));
        }
        self.check_numbers()?;
        self.check_servers()?;
        self.check_tool_choice()?;
        let (rules, own) = self.own_tools(env)?;
        // Whether it has tools or not: that is no matter of policy.
        let trusted = HashSet::from([SERVER.to_owned()]);
        let classifier = self.vouched(Classifier::new(rules, &Lists::default(), trusted)?)?;
        let mut parts = vec![Part { servers: Some(vec![SERVER.to_owned()]), transport: Arc::new(own) }];
        for (names, transport) in &self.others {
            if names.iter().any(|name| name == SERVER) {
                return Err(Error::Step(format!(
                    "`{SERVER}` is the name of the program's own tools, and of no server"
                )));
            }
            if let Some(name) = names.iter().find(|name| ToolName::is_built_in_server(name)) {
                return Err(Error::Step(format!("`{name}` is the name of built-in tools, and of no other server")));
            }
            parts.push(Part { servers: Some(names.clone()), transport: transport.clone() });
        }
        parts.extend(servers.map(|transport| Part { servers: None, transport }));
        let tools = Arc::new(Joined { parts });
        if model.name.trim().is_empty() {
            return Err(Error::Model("the name of the model is empty".to_owned()));
        }
        let provider = model.provider_with(&self.extras)?;
        let mut agent = Agent::new(provider, model.name.clone(), tools, Arc::new(classifier));
        agent.extras = self.extras.clone();
        agent.system.clone_from(&self.system);
        agent.max_output_tokens =
            self.max_output_tokens.unwrap_or_else(|| model.facts.output_tokens(MAX_OUTPUT_TOKENS));
        agent.max_output_is_default = self.max_output_tokens.is_none();
        agent.seed = self.seed;
        agent.structured = model.facts.structured;
        agent.images = model.facts.images;
        agent.temperature_milli = self.temperature_milli;
        agent.prices = self.prices.clone();
        agent.history_tokens = model.facts.history_tokens(agent.max_output_tokens);
        let mut step = GranularStep::new(self.name.clone(), agent, self.input.clone());
        step.max_turns = self.max_turns;
        step.history_max_tokens = self.history_max_tokens.unwrap_or(step.history_max_tokens);
        step.blob_threshold_bytes = self.blob_threshold_bytes.unwrap_or(step.blob_threshold_bytes);
        step.enforce_idempotency = self.enforce_idempotency;
        step.degraded_replay = self.degraded_replay;
        step.output_schema.clone_from(&self.output_schema);
        step.accepts.clone_from(&self.accepts);
        step.stop_conditions.clone_from(&self.stop_conditions);
        step.budgets = self.budgets.clone();
        step.constraints = self.constraints.clone();
        step.escalation = self.escalation.clone();
        Ok(step)
    }

    /// Refuses two servers of one name: one would be listed, and the other called.
    fn check_servers(&self) -> Result<(), Error> {
        let names = self.others.iter().flat_map(|(names, _)| names).map(String::as_str);
        #[cfg(feature = "mcp")]
        let names = names.chain(self.servers.iter().flat_map(crate::servers::Servers::names));
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(Error::Servers(format!("two tool servers are called `{name}`; rename one")));
            }
        }
        Ok(())
    }

    /// Whether every reply has to call a tool, so that none ends the step.
    pub(crate) fn forces_calls(&self) -> bool {
        self.extras.tool_choice.as_deref().is_some_and(|choice| !matches!(choice, "auto" | "none"))
    }

    /// Refuses a choice of one of the program's tools under a name that no request offers: it would count for nothing.
    fn check_tool_choice(&self) -> Result<(), Error> {
        let Some(choice) = &self.extras.tool_choice else { return Ok(()) };
        // A tool that is called so as well is meant by the name under which the model sees it.
        if matches!(choice.as_str(), "auto" | "any" | "none") {
            return Ok(());
        }
        let is_offered = self.tools.iter().any(|tool| tool.spec.name.raw == *choice);
        if is_offered {
            return Ok(());
        }
        if let Some(meant) = self.tools.iter().find(|tool| tool.spec.name.tool == *choice) {
            return Err(Error::Step(format!(
                "its `tool_choice` is `{choice}`, and the model sees that tool as `{}`; name it so",
                meant.spec.name.raw
            )));
        }
        if choice.starts_with(&ToolName::qualified(ToolNamespace::Local, SERVER, "").raw) {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.spec.name.raw.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Error::Step(format!(
                "its `tool_choice` is `{choice}`, and the program has no such tool; its tools are: {names}"
            )));
        }
        Ok(())
    }

    /// Refuses numbers that no request could be made with, or that count for nothing.
    fn check_numbers(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Step(format!("the step `{}` {why}", self.name)));
        if let Some(turns) = self.budgets.max_turns.filter(|turns| *turns != self.max_turns) {
            return wrong(format!(
                "has `max_turns` {turns} in its budgets, which does not count: say it with `Step::max_turns`"
            ));
        }
        if self.max_output_tokens == Some(0) {
            return wrong("has `max_output_tokens` 0: a reply needs at least one".to_owned());
        }
        if self.temperature_milli == Some(NO_TEMPERATURE) {
            return wrong("has a `temperature` that is below 0, or no number".to_owned());
        }
        if let Some(temperature) = self.temperature_milli.filter(|temperature| *temperature > MOST_TEMPERATURE) {
            return wrong(format!(
                "has `temperature_milli` {temperature}: it is in thousandths, and no provider takes more than {MOST_TEMPERATURE}"
            ));
        }
        Ok(())
    }

    /// The program's tools, and the policies in the order in which they count.
    fn own_tools(&self, env: &Env) -> Result<(Vec<PolicyRules>, LocalTools), Error> {
        let mut rules = Vec::new();
        for (index, text) in self.policies.iter().enumerate() {
            rules.push(PolicyRules::parse(text, &format!("policy {} of the step", index + 1))?);
        }
        let (mut tools, mut said) = (LocalTools::new(env.clone()), String::new());
        for tool in &self.tools {
            if self.tools.iter().filter(|other| other.spec.name == tool.spec.name).count() > 1 {
                return Err(Error::Step(format!("two tools are called `{}`", tool.spec.name.tool)));
            }
            said.push_str(&tool.rule()?);
            let (run, only_reads) = (tool.run.clone(), tool.only_reads());
            tools = tools.with(tool.spec.clone(), move |call| run(call, only_reads));
        }
        rules.push(PolicyRules::parse(&said, "what the program says of its tools")?.of_the_tools());
        Ok((rules, tools))
    }

    #[cfg(feature = "mcp")]
    fn vouched(&self, classifier: Classifier) -> Result<Classifier, Error> {
        match &self.servers {
            None => Ok(classifier),
            Some(servers) => servers.vouch(classifier),
        }
    }

    #[cfg(not(feature = "mcp"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the other form needs them")]
    fn vouched(&self, classifier: Classifier) -> Result<Classifier, Error> {
        Ok(classifier)
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step").field("name", &self.name).field("tools", &self.tools).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::ToolChoice;

    #[test]
    fn a_choice_that_is_no_tools_name_counts_also_beside_a_tool_that_is_called_so() {
        use crate::tool::{Call, Failure, tool};
        let named = |name: &str| tool(name, "Looks.", async |_: Call, (): ()| Ok::<_, Failure>(()));
        let step =
            || ["any", "auto", "none", "look"].into_iter().fold(Step::new("s"), |step, name| step.tool(named(name)));
        for (choice, forces) in [
            (ToolChoice::Any, true),
            (ToolChoice::Auto, false),
            (ToolChoice::None, false),
            (ToolChoice::Own("any".to_owned()), true),
            (ToolChoice::Own("look".to_owned()), true),
        ] {
            let step = step().tool_choice(choice.clone());
            assert!(step.check_tool_choice().is_ok() && step.forces_calls() == forces, "{choice:?}");
        }
        assert!(!step().forces_calls());
        let bare = step().tool_choice("look").check_tool_choice().unwrap_err().to_string();
        assert!(bare.contains("mcp__program__look"), "{bare}");
    }

    #[test]
    fn a_temperature_counts_in_thousandths_and_what_is_none_is_refused() {
        for (said, counts) in [(0.0, 0), (0.2, 200), (0.7, 700), (1.0, 1_000), (0.29, 290), (2.0, 2_000)] {
            assert_eq!(in_thousandths(said), counts, "{said}");
            assert!(Step::new("s").temperature(said).check_numbers().is_ok(), "{said}");
        }
        for (wrong, told) in [
            (-0.1, "below 0"),
            (f64::NAN, "no number"),
            (f64::NEG_INFINITY, "below 0"),
            (f64::INFINITY, "thousandths"),
            (2.1, "2100"),
        ] {
            let refused = Step::new("s").temperature(wrong).check_numbers().unwrap_err().to_string();
            assert!(refused.contains(told), "{wrong}: {refused}");
        }
    }
}
