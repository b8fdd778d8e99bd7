//! Whom a message about a run speaks to.

/// Whoever works on a run and reads what is said about it: a message names the commands and settings that exist there, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    /// Somebody at a terminal, with a job file and the command `ua`.
    #[default]
    Terminal,
    /// A program that uses the library.
    Program,
}

impl Audience {
    /// The `entrypoint` of runs that a program started.
    pub const LIBRARY: &str = "library";

    /// The audience of a run with this `entrypoint`.
    pub fn of(entrypoint: &str) -> Self {
        if entrypoint == Self::LIBRARY { Self::Program } else { Self::Terminal }
    }

    /// What its run carries out, as a noun: a program has no job.
    pub fn work(self) -> &'static str {
        self.pick("job", "step")
    }

    /// Who asked a run to stop gently.
    pub fn interrupted_by(self) -> &'static str {
        self.pick("Ctrl-C or another signal", "its program stopped it (`Runs::stop`)")
    }

    /// What is said to a terminal, or to a program.
    pub fn pick<T>(self, terminal: T, program: T) -> T {
        match self {
            Self::Terminal => terminal,
            Self::Program => program,
        }
    }
}
