//! Which model a step asks, and how it is reached.

use std::sync::Arc;

use ua_core::chain;
#[cfg(any(feature = "anthropic", feature = "openai"))]
use ua_llm::ModelTable;
use ua_llm::{LlmProvider, ModelExtras, ModelFacts, Script, ScriptedProvider};

use crate::error::Error;

/// A model of a provider.
#[derive(Clone)]
#[must_use = "a model is asked when `Step::model` has it"]
pub struct Model {
    pub(crate) provider: Arc<dyn LlmProvider>,
    pub(crate) name: String,
    /// What must not be kept of what it and tools answer.
    pub(crate) secrets: Vec<(String, String)>,
    /// What is known about it: how much it reads and writes, whether it reads images and writes by a schema.
    pub(crate) facts: ModelFacts,
    /// Makes its provider with what a step says of how it is to work; not of a provider that the program made.
    maker: Option<Maker>,
}

type Maker = Arc<dyn Fn(ModelExtras) -> Result<Arc<dyn LlmProvider>, Error> + Send + Sync>;

impl Model {
    /// A model of any provider, by the provider's name of it. Nothing is taken to be known about it, its key neither: say it with
    /// [`Model::secret`], and what it is with [`Model::with_facts`].
    pub fn of(provider: Arc<dyn LlmProvider>, name: impl Into<String>) -> Self {
        Self { provider, name: name.into(), secrets: Vec::new(), facts: ModelFacts::default(), maker: None }
    }

    /// A model that says what a script says: no network, no key. For tests and for trying things out. What a step says of how its model is to work
    /// ([`Step::effort`](crate::Step::effort) and the like) belongs to its definition here as well, and changes nothing of what the script says.
    ///
    /// # Errors
    /// [`Error::Model`] when the text is no script.
    pub fn scripted(script: &str) -> Result<Self, Error> {
        let script = Script::parse(script).map_err(|error| Error::Model(chain(&error)))?;
        let provider: Arc<dyn LlmProvider> = Arc::new(ScriptedProvider::new(script));
        let played = provider.clone();
        // The same one, so that its requests are counted on.
        let maker: Maker = Arc::new(move |extras| {
            extras.check().map_err(Error::Model)?;
            Ok(played.clone())
        });
        Ok(Self { maker: Some(maker), ..Self::of(provider, "scripted") })
    }

    /// The same model, about which this is known: the tokens of its context bound the history that it is sent, and a model that is
    /// `structured` is given the schema of a typed result with each request. A price here counts for nothing:
    /// [`Step::prices`](crate::Step::prices) says what tokens cost.
    pub fn with_facts(mut self, facts: ModelFacts) -> Self {
        self.facts = facts;
        self
    }

    /// The same model, with a value that must not be kept of what it and tools answer: the key that its provider was given.
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A model of a provider that is given this key, with what is known about it.
    #[cfg(any(feature = "anthropic", feature = "openai"))]
    fn known(maker: Maker, name: &str, key: Option<&str>) -> Result<Self, Error> {
        let provider = maker(ModelExtras::default())?;
        let facts = ModelTable::shipped().find(provider.name(), name).cloned().unwrap_or_default();
        let secret = format!("key of {}", provider.name());
        let model = Self { maker: Some(maker), ..Self::of(provider, name).with_facts(facts) };
        Ok(match key {
            Some(key) => model.secret(&secret, key),
            None => model,
        })
    }

    /// Its provider, which is told this of how the model is to work.
    pub(crate) fn provider_with(&self, extras: &ModelExtras) -> Result<Arc<dyn LlmProvider>, Error> {
        if *extras == ModelExtras::default() {
            return Ok(self.provider.clone());
        }
        match &self.maker {
            Some(maker) => maker(extras.clone()),
            None => Err(Error::Step(format!(
                "it says how its model is to work (effort, thoughts, choice of tools, headers), and `{}` is a provider of the program's own, which \
                 is told that where it is made",
                self.provider.name()
            ))),
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("provider", &self.provider.name())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(any(feature = "anthropic", feature = "openai"))]
fn key(variable: &str) -> Result<String, Error> {
    crate::env::var(variable).ok_or_else(|| Error::Model(format!("there is no API key: set {variable}")))
}

/// Models behind the Anthropic Messages API.
#[cfg(feature = "anthropic")]
#[derive(Debug)]
pub struct Anthropic;

#[cfg(feature = "anthropic")]
impl Anthropic {
    /// The model of that name, with the key in `ANTHROPIC_API_KEY`; `ANTHROPIC_BASE_URL` says where the API is, by https unless it is on
    /// this machine.
    ///
    /// # Errors
    /// [`Error::Model`] when there is no key, or key or address cannot be used.
    pub fn from_env(model: &str) -> Result<Model, Error> {
        let base_url = crate::env::var("ANTHROPIC_BASE_URL").map(|url| ("ANTHROPIC_BASE_URL", url));
        Self::made(model, &key("ANTHROPIC_API_KEY")?, base_url)
    }

    /// The model of that name behind the public API, with a key that the program has from elsewhere. It is taken out of what is kept.
    ///
    /// # Errors
    /// [`Error::Model`] when the key cannot be used.
    pub fn with_key(model: &str, key: &str) -> Result<Model, Error> {
        Self::made(model, key, None)
    }

    /// The same behind another address that speaks the Messages API, by https unless it is on this machine.
    ///
    /// # Errors
    /// [`Error::Model`] when key or address cannot be used.
    pub fn at(model: &str, base_url: &str, key: &str) -> Result<Model, Error> {
        Self::made(model, key, Some(("the address", base_url.to_owned())))
    }

    fn made(model: &str, key: &str, base_url: Option<(&str, String)>) -> Result<Model, Error> {
        if let Some((said, base_url)) = &base_url {
            check_is_private(said, base_url)?;
        }
        let (secret, base_url) = (key.to_owned(), base_url.map(|(_, base_url)| base_url));
        let maker: Maker = Arc::new(move |extras| {
            let mut config = ua_llm::AnthropicConfig::new(secret.clone().into());
            config.extras = extras;
            if let Some(base_url) = &base_url {
                config.base_url.clone_from(base_url);
            }
            Ok(Arc::new(ua_llm::AnthropicProvider::new(config, ua_core::system::env())?))
        });
        Model::known(maker, model, Some(key))
    }
}

/// A key does not leave this machine in clear text. `said` is what the address is called.
#[cfg(feature = "anthropic")]
fn check_is_private(said: &str, base_url: &str) -> Result<(), Error> {
    let address =
        url::Url::parse(base_url.trim()).map_err(|why| Error::Model(format!("{said} is not an address: {why}")))?;
    let is_here = match address.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if address.scheme() == "https" || is_here {
        return Ok(());
    }
    Err(Error::Model(format!("{said} {base_url} would send the key in clear text; use https")))
}

/// Models behind OpenAI's interfaces: its own, and those of the many servers that speak Chat Completions.
#[cfg(feature = "openai")]
#[derive(Debug)]
pub struct OpenAi;

#[cfg(feature = "openai")]
impl OpenAi {
    /// The model of that name behind the Responses API, with the key in `OPENAI_API_KEY`; `OPENAI_BASE_URL` says where the API is, by https
    /// unless it is on this machine.
    ///
    /// # Errors
    /// [`Error::Model`] when there is no key, or key or address cannot be used.
    pub fn from_env(model: &str) -> Result<Model, Error> {
        Self::made(model, &key("OPENAI_API_KEY")?, crate::env::var("OPENAI_BASE_URL"))
    }

    /// The model of that name behind OpenAI's own Responses API, with a key that the program has from elsewhere. It is taken out of what is kept.
    ///
    /// # Errors
    /// [`Error::Model`] when the key cannot be used.
    pub fn with_key(model: &str, key: &str) -> Result<Model, Error> {
        Self::made(model, key, None)
    }

    /// The same behind another address that speaks the Responses API, by https unless it is on this machine.
    ///
    /// # Errors
    /// [`Error::Model`] when key or address cannot be used.
    pub fn at(model: &str, base_url: &str, key: &str) -> Result<Model, Error> {
        Self::made(model, key, Some(base_url.to_owned()))
    }

    fn made(model: &str, key: &str, base_url: Option<String>) -> Result<Model, Error> {
        let secret = key.to_owned();
        let maker: Maker = Arc::new(move |extras| {
            let mut config = ua_llm::OpenAiConfig { extras, ..ua_llm::OpenAiConfig::new(secret.clone().into()) };
            if let Some(base_url) = &base_url {
                config.base_url.clone_from(base_url);
            }
            Ok(Arc::new(ua_llm::OpenAiProvider::new(config, ua_core::system::env())?))
        });
        Model::known(maker, model, Some(key))
    }

    /// The same behind Chat Completions, which llama.cpp, vLLM, Ollama and many others speak. A server on this machine (`OPENAI_BASE_URL`) needs
    /// no key.
    ///
    /// # Errors
    /// [`Error::Model`] when key or address cannot be used.
    pub fn chat_from_env(model: &str) -> Result<Model, Error> {
        let (secret, base_url) = (crate::env::var("OPENAI_API_KEY"), crate::env::var("OPENAI_BASE_URL"));
        if secret.is_none() && base_url.is_none() {
            return Err(Error::Model(
                "there is no API key: set OPENAI_API_KEY, or OPENAI_BASE_URL to a server on this machine, which needs none"
                    .to_owned(),
            ));
        }
        Self::chat_at(model, secret.as_deref(), base_url)
    }

    /// The same behind the Chat Completions of the server at `base_url`, by https unless it is on this machine, with a key that the program has from
    /// elsewhere, if the server takes one.
    ///
    /// # Errors
    /// [`Error::Model`] when key or address cannot be used.
    pub fn chat(model: &str, base_url: &str, key: Option<&str>) -> Result<Model, Error> {
        Self::chat_at(model, key, Some(base_url.to_owned()))
    }

    fn chat_at(model: &str, key: Option<&str>, base_url: Option<String>) -> Result<Model, Error> {
        let secret = key.map(str::to_owned);
        let maker: Maker = Arc::new(move |extras| {
            let mut config = ua_llm::ChatConfig::new(secret.clone().map(Into::into));
            config.extras = extras;
            if let Some(base_url) = &base_url {
                config.base_url.clone_from(base_url);
            }
            Ok(Arc::new(ua_llm::ChatProvider::new(config, ua_core::system::env())?))
        });
        Model::known(maker, model, key)
    }
}
