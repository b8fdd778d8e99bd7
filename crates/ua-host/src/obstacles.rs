//! What stands in the way of a start, as far as it can be known at once.
//!
//! Whoever prepares a start does not stop at the first thing that is missing: a person who is told of the key today is told of the price, the
//! server and the file as well, in one answer. Each step that the others do not need is taken through [`Obstacles::past`].
//!
//! Proved by: the end-to-end tests `check`.

use crate::error::HostError;

/// What was found to be in the way, in the order in which it was looked for.
#[derive(Debug, Default)]
pub(crate) struct Obstacles(Vec<HostError>);

impl Obstacles {
    /// What came of a step, or nothing where something is in the way of it, which is kept.
    pub(crate) fn past<T>(&mut self, step: Result<T, HostError>) -> Option<T> {
        step.map_err(|error| self.0.push(error)).ok()
    }

    /// The same of one that may find something in the way.
    pub(crate) fn meet(&mut self, found: impl IntoIterator<Item = HostError>) {
        self.0.extend(found);
    }

    /// The same of a step that may fail for what was met already: it is said once.
    pub(crate) fn past_anew<T: Default>(&mut self, step: Result<T, HostError>) -> T {
        step.unwrap_or_else(|error| {
            if self.0.is_empty() {
                self.0.push(error);
            }
            T::default()
        })
    }

    /// Whether nothing is in the way, as far as anybody looked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it as one error, which is about the first; `None` where nothing is in the way.
    pub(crate) fn into_error(self) -> Option<HostError> {
        HostError::all_of(self.0)
    }

    /// Lets past whoever met nothing.
    ///
    /// # Errors
    /// Whatever is in the way.
    pub(crate) fn end(&mut self) -> Result<(), HostError> {
        std::mem::take(self).into_error().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use ua_core::RunId;

    use super::*;

    #[test]
    fn whoever_meets_several_obstacles_is_told_of_all_of_them() {
        let mut obstacles = Obstacles::default();
        assert_eq!(obstacles.past(Ok(1)), Some(1));
        assert_eq!(obstacles.past::<u8>(Err(HostError::usage("no key").not_begun())), None);
        let mut inner = Obstacles::default();
        inner.meet([
            HostError::usage("no price").not_begun(),
            HostError::waiting("no server"),
            HostError::usage("no key"),
        ]);
        obstacles.past(inner.end());
        let error = obstacles.end().unwrap_err();
        let told = |error: &HostError| {
            let all = std::iter::once(error).chain(error.others());
            all.map(|one| (one.message().to_owned(), one.hint_text().map(str::to_owned))).collect::<Vec<_>>()
        };
        let hint = |words: &str| Some(words.to_owned());
        assert_eq!(
            told(&error),
            [
                ("no key".to_owned(), hint("nothing was started")),
                ("no price".to_owned(), hint("nothing was started")),
                ("no server".to_owned(), None),
            ]
        );
        // Of a run that is stored, none of them says that nothing was started.
        let told = told(&error.of_run(&RunId::parse("run_1").unwrap(), false));
        assert_eq!(told[1].1, hint("nothing was sent"));
        assert!(Obstacles::default().end().is_ok());
    }
}
