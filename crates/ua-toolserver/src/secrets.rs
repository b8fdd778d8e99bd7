//! Credentials: read from the environment, never from the command line, where every process of the machine sees them.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use secrecy::{ExposeSecret as _, SecretString};
use ua_core::Redactor;

/// What the transports of the tools sign in with. Printing it shows no secret.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// `UA_MAIL_USER`: whom SMTP signs in as; nobody when left out.
    pub mail_user: Option<String>,
    /// `UA_MAIL_PASSWORD`: the password that belongs to it.
    pub mail_password: Option<SecretString>,
    /// `UA_MAIL_API_KEY`: the bearer token of a mail API.
    pub mail_api_key: Option<SecretString>,
    /// `AWS_ACCESS_KEY_ID`: the public half of the object store's key.
    pub s3_access_key_id: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`: its secret half.
    pub s3_secret_access_key: Option<SecretString>,
    /// `AWS_SESSION_TOKEN`: what goes with temporary keys.
    pub s3_session_token: Option<SecretString>,
    /// `UA_SEARCH_API_KEY`: what the search engine knows this server by.
    pub search_api_key: Option<SecretString>,
    /// `UA_IMAGE_API_KEY`: what the image API knows this server by.
    pub image_api_key: Option<SecretString>,
    /// `COMPOSIO_API_KEY`: what Composio knows this server by.
    pub composio_api_key: Option<SecretString>,
}

/// The variables, each with the setting without which nobody needs it.
const VARIABLES: [(&str, &str); 9] = [
    ("UA_MAIL_USER", "UA_MAIL"),
    ("UA_MAIL_PASSWORD", "UA_MAIL"),
    ("UA_MAIL_API_KEY", "UA_MAIL"),
    ("AWS_ACCESS_KEY_ID", "UA_OBJECTS"),
    ("AWS_SECRET_ACCESS_KEY", "UA_OBJECTS"),
    ("AWS_SESSION_TOKEN", "UA_OBJECTS"),
    ("UA_SEARCH_API_KEY", "UA_SEARCH"),
    ("UA_IMAGE_API_KEY", "UA_IMAGE_API"),
    ("COMPOSIO_API_KEY", "UA_COMPOSIO"),
];

/// Whether a server with these settings needs `variable`; so it does when that is no credential.
pub(crate) fn is_needed(variable: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    let Some((_, setting)) = VARIABLES.iter().find(|(name, _)| *name == variable) else { return true };
    // A store in a directory asks for no key.
    read(setting).is_some_and(|value| *setting != "UA_OBJECTS" || value.starts_with("s3:"))
}

impl Secrets {
    /// What these variables hold.
    pub(crate) fn of_variables(variables: &BTreeMap<String, String>) -> Self {
        let plain = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let secret = |name: &str| plain(name).map(SecretString::from);
        Self {
            mail_user: plain("UA_MAIL_USER"),
            mail_password: secret("UA_MAIL_PASSWORD"),
            mail_api_key: secret("UA_MAIL_API_KEY"),
            s3_access_key_id: plain("AWS_ACCESS_KEY_ID"),
            s3_secret_access_key: secret("AWS_SECRET_ACCESS_KEY"),
            s3_session_token: secret("AWS_SESSION_TOKEN"),
            search_api_key: secret("UA_SEARCH_API_KEY"),
            image_api_key: secret("UA_IMAGE_API_KEY"),
            composio_api_key: secret("COMPOSIO_API_KEY"),
        }
    }

    /// Takes them out of what another side says before it is kept: a server may repeat what it was given.
    pub(crate) fn redactor(&self) -> Redactor {
        let Self {
            mail_user: _,
            mail_password,
            mail_api_key,
            s3_access_key_id: _,
            s3_secret_access_key,
            s3_session_token,
            search_api_key,
            image_api_key,
            composio_api_key,
        } = self;
        let all = [
            ("UA_MAIL_PASSWORD", mail_password),
            ("UA_MAIL_API_KEY", mail_api_key),
            ("AWS_SECRET_ACCESS_KEY", s3_secret_access_key),
            ("AWS_SESSION_TOKEN", s3_session_token),
            ("UA_SEARCH_API_KEY", search_api_key),
            ("UA_IMAGE_API_KEY", image_api_key),
            ("COMPOSIO_API_KEY", composio_api_key),
        ];
        let set = all.into_iter().filter_map(|(name, secret)| Some((name, secret.as_ref()?.expose_secret())));
        Redactor::new(set.map(|(name, secret)| (name.to_owned(), secret.to_owned())))
    }

    fn read(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        if let Some((name, _)) = VARIABLES.iter().find(|(name, _)| given(name)) {
            let why = format!("{name} is a credential: put it into the environment, not on the command line\n");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
        }
        let plain = |name: &str| matches.get_one::<String>(name).filter(|value| !value.is_empty()).cloned();
        let secret = |name: &str| plain(name).map(SecretString::from);
        Ok(Self {
            mail_user: plain("UA_MAIL_USER"),
            mail_password: secret("UA_MAIL_PASSWORD"),
            mail_api_key: secret("UA_MAIL_API_KEY"),
            s3_access_key_id: plain("AWS_ACCESS_KEY_ID"),
            s3_secret_access_key: secret("AWS_SECRET_ACCESS_KEY"),
            s3_session_token: secret("AWS_SESSION_TOKEN"),
            search_api_key: secret("UA_SEARCH_API_KEY"),
            image_api_key: secret("UA_IMAGE_API_KEY"),
            composio_api_key: secret("COMPOSIO_API_KEY"),
        })
    }
}

impl clap::FromArgMatches for Secrets {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::read(matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches)?;
        Ok(())
    }
}

impl clap::Args for Secrets {
    fn augment_args(command: Command) -> Command {
        // An argument needs a flag, or it would be positional; these flags are hidden and refused.
        let arguments =
            VARIABLES.iter().map(|(name, _)| Arg::new(*name).long(*name).env(*name).hide(true).hide_env_values(true));
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        secrets: Secrets,
    }

    #[test]
    fn a_credential_on_the_command_line_is_refused() {
        let error = Program::try_parse_from(["toolserver", "--UA_MAIL_PASSWORD", "hunter2"]).unwrap_err().to_string();
        assert!(error.contains("UA_MAIL_PASSWORD") && error.contains("environment"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let secrets = Secrets { mail_password: Some("hunter2".into()), ..Secrets::default() };
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }
}
