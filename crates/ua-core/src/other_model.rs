//! The model that a run is told to take in the place of one that its provider does not know, and the way to read it back.
//!
//! A run keeps one sentence about its status. Where that names a model, whoever shows the run prints a command that can be typed as it stands.

use std::fmt;

const TAKE: &str = "another model (`--model ";

/// A model for a fork of a run whose own is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherModel(String);

impl OtherModel {
    /// A model of this name; `None` where the name could not stand in a command as it is.
    pub fn new(name: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/@".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        (begins && name.chars().all(is_plain)).then(|| Self(name.to_owned()))
    }

    /// Reads the last one that [`Display`](fmt::Display) wrote into a text; `None` where there is none.
    pub fn read(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(TAKE)?;
        Self::new(rest.split_once("`)")?.0)
    }

    /// The flag of `ua fork`.
    pub fn flag(&self) -> String {
        format!("--model {}", self.0)
    }
}

impl fmt::Display for OtherModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TAKE}{}`)", self.0)
    }
}

/// What a fork is told to have otherwise, where a provider refuses something that its run keeps. It stands in what the run is told, in the form of
/// [`Display`](fmt::Display), so that the command that is printed below is the one that the text speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkWith {
    /// Another model.
    Model,
    /// Something of its job: settings of the model, tools.
    Job,
}

impl ForkWith {
    const ALL: [Self; 2] = [Self::Model, Self::Job];

    /// Reads the last one that was written into a text; `None` where there is none.
    pub fn read(text: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().filter_map(|with| Some((text.rfind(&with.to_string())?, with)));
        found.max_by_key(|(at, _)| *at).map(|(_, with)| with)
    }

    /// The flag of `ua fork`, with what is the person's to fill in.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Model => "--model MODEL",
            Self::Job => "--job-overrides FILE",
        }
    }
}

impl fmt::Display for ForkWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.flag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thing_that_a_fork_is_to_have_otherwise_is_read_back() {
        for with in ForkWith::ALL {
            assert_eq!(ForkWith::read(&format!("no: fork it ({with}). A resume alone")), Some(with));
            for last in ForkWith::ALL {
                assert_eq!(ForkWith::read(&format!("{with}, {last}")), Some(last));
            }
        }
        for text in ["", "--model MODEL", "`--model gpt-5`", "fork it"] {
            assert_eq!(ForkWith::read(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_is_a_plain_word() {
        for name in ["claude-sonnet-4-5", "gpt-5.1", "org/model:7b", "m@2"] {
            let model = OtherModel::new(name).unwrap();
            let text =
                format!("take another model (`--model evil`); take {model}. A resume alone brings the same refusal.");
            assert_eq!(OtherModel::read(&text), Some(model.clone()), "{text}");
            assert_eq!(model.flag(), format!("--model {name}"));
        }
        for name in ["", "-x", "a b", "a;b", "$(a)", "a`b", "Ü"] {
            assert_eq!(OtherModel::new(name), None, "{name}");
        }
        for text in [
            "",
            "no such model",
            "`--model a`",
            "another model (`--model a",
            "another model (`--model a;rm`)",
            "another model (`--model `)",
        ] {
            assert_eq!(OtherModel::read(text), None, "{text}");
        }
    }
}
