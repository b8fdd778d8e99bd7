//! An entry of a client's configuration, whatever its format, and what it becomes.

/// What an entry that goes through the gateway begins with.
const WORD: &str = "gateway";
/// The name of a header whose whole value is that of a variable, in arguments.
const FROM: &str = "--header-from";

/// What was done about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It goes through the gateway now.
    Wrapped,
    /// It did already.
    Already,
    /// It is as it was before the gateway.
    Unwrapped,
    /// An address without a header of its own: such a tool server may want its client to log in, which it cannot do behind the gateway. Wrapped
    /// where it is named.
    MayLogIn,
    /// Neither started by a command nor reached over HTTP in a way that the gateway has.
    Unreachable,
    /// Something that it is started with is not read whole, and would be lost.
    NotRead,
    /// Its name is given to two entries of one list, and only the client knows which of them it takes.
    Twice,
    /// It does not go through the gateway.
    NotWrapped,
}

impl What {
    /// Its word for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wrapped => "wrapped",
            Self::Already => "already",
            Self::Unwrapped => "unwrapped",
            Self::MayLogIn => "may_log_in",
            Self::Unreachable => "unreachable",
            Self::NotRead => "not_read",
            Self::Twice => "twice",
            Self::NotWrapped => "not_wrapped",
        }
    }
}

/// What is put in front of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The program `ua`.
    pub program: String,
    /// The gateway's folder, where it is not the user's own.
    pub root: Option<String>,
}

/// An entry, as far as it is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// What is started.
    pub(super) command: Option<String>,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// It has a list of arguments, of none perhaps.
    pub(super) has_args: bool,
    /// It says how long its client waits for a tool, where `ua` would say so otherwise.
    pub(super) has_patience: bool,
    /// The variables that it is given.
    pub(super) env: Vec<String>,
    /// Where it is, when it is reached over HTTP with requests that each have an answer.
    pub(super) url: Option<String>,
    /// What goes with each request there.
    pub(super) headers: Vec<Header>,
    /// A file with more variables that it is given.
    pub(super) env_file: Option<String>,
    /// Something of this is there and could not be read whole.
    pub(super) is_cut: bool,
}

/// A header of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Header {
    /// Its value stands in the configuration.
    Plain {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Its value is that of a variable of the client.
    Variable {
        /// Its name.
        name: String,
        /// The variable.
        variable: String,
    },
    /// A bearer's token, which is the value of a variable of the client.
    Bearer {
        /// The variable.
        variable: String,
    },
}

/// What an entry is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Becomes {
    /// Another program, with the same arguments.
    Program {
        /// What is started.
        command: String,
    },
    /// A program with words in front of its arguments, of which the last is what was started before. The arguments stay as they are typed, and so
    /// does whatever else it has.
    Behind {
        /// What is started.
        command: String,
        /// What is put in front of its arguments.
        words: Vec<String>,
    },
    /// The program that one of its arguments names, without that and all before it.
    Itself {
        /// How many arguments go.
        words: usize,
        /// What it was once, where that is known.
        once: Once,
    },
    /// A program in the place of an address.
    InPlaceOfUrl {
        /// What is started.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it is given, with their values.
        env: Vec<(String, String)>,
        /// Variables of the client that are passed on to it.
        passed: Vec<String>,
    },
    /// An address.
    Url {
        /// Where it is.
        url: String,
        /// Its headers; a plain one without a value has that of a variable of the entry, which goes.
        headers: Vec<Restored>,
        /// What it was once, where that is known.
        once: Once,
    },
}

/// What is known of an entry from before the gateway. Where nothing is, the format decides what is likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Once {
    /// Whether it had a list of arguments.
    pub(super) had_args: Option<bool>,
    /// Whether it said how long its client waits.
    pub(super) had_patience: Option<bool>,
}

impl Once {
    fn of(typed: Option<&Entry>) -> Self {
        Self { had_args: typed.map(|typed| typed.has_args), had_patience: typed.map(|typed| typed.has_patience) }
    }
}

/// A header that was a variable behind the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restored {
    /// The header's name.
    pub(super) name: String,
    /// The variable whose value it has.
    pub(super) variable: String,
    /// It is a bearer's token.
    pub(super) is_bearer: bool,
}

impl Entry {
    /// Whether it goes through a gateway.
    pub(super) fn is_wrapped(&self) -> bool {
        self.args.first().is_some_and(|first| first == WORD)
            && self.args.iter().any(|arg| arg == "--" || arg == "--url")
    }

    /// What it becomes with the gateway in front of it. `is_named`: a person named this very entry. `is_moved`: the program that it starts is not
    /// there any more. `names_in` says which variables a file of
    /// variables has, where it can be read.
    pub(super) fn wrapped(
        &self,
        server: &str,
        front: &Front,
        is_named: bool,
        is_moved: bool,
        names_in: &dyn Fn(&str) -> Option<Vec<String>>,
    ) -> (What, Option<Becomes>) {
        if self.is_cut {
            return (What::NotRead, None);
        }
        if self.is_wrapped() && is_moved {
            return (What::Wrapped, Some(Becomes::Program { command: front.program.clone() }));
        }
        if self.is_wrapped() {
            return (What::Already, None);
        }
        let of_file = match self.env_file.as_deref().map(names_in) {
            Some(None) => return (What::NotRead, None),
            Some(Some(names)) => names,
            None => Vec::new(),
        };
        let program = &front.program;
        let mut args = vec![WORD.to_owned()];
        args.extend(front.root.iter().flat_map(|root| ["--root".to_owned(), root.clone()]));
        args.extend(["--name".to_owned(), plain_name(server)]);
        if let Some(command) = &self.command {
            let more = of_file.iter().filter(|name| !self.env.contains(name));
            args.extend(self.env.iter().chain(more).flat_map(|name| ["--env".to_owned(), name.clone()]));
            args.extend(["--".to_owned(), command.clone()]);
            return (What::Wrapped, Some(Becomes::Behind { command: program.clone(), words: args }));
        }
        let Some(url) = &self.url else { return (What::Unreachable, None) };
        if self.headers.is_empty() && !is_named {
            return (What::MayLogIn, None);
        }
        let (mut env, mut passed) = (Vec::new(), Vec::new());
        for header in &self.headers {
            match header {
                Header::Plain { name, value } => {
                    // In a variable: arguments are read by everybody on the machine, and clients put values in for `${…}` there.
                    let variable = variable_of(server, name);
                    args.extend([FROM.to_owned(), format!("{name}={variable}")]);
                    env.push((variable, value.clone()));
                }
                Header::Variable { name, variable } => {
                    args.extend([FROM.to_owned(), format!("{name}={variable}")]);
                    passed.push(variable.clone());
                }
                Header::Bearer { variable } => {
                    args.extend(["--env".to_owned(), variable.clone()]);
                    args.extend(["--header".to_owned(), bearer(variable)]);
                    passed.push(variable.clone());
                }
            }
        }
        args.extend(["--url".to_owned(), url.clone()]);
        (What::Wrapped, Some(Becomes::InPlaceOfUrl { command: program.clone(), args, env, passed }))
    }

    /// What was put in front of it, as it says itself.
    pub(super) fn front(&self) -> Option<Front> {
        let program = self.command.clone().filter(|_| self.is_wrapped())?;
        let root = self.args.get(1).filter(|word| *word == "--root").and_then(|_| self.args.get(2).cloned());
        Some(Front { program, root })
    }

    /// What it was before; `typed` is what a record says of that.
    pub(super) fn unwrapped(&self, typed: Option<&Self>) -> (What, Option<Becomes>) {
        if self.is_cut {
            return (What::NotRead, None);
        }
        let before = if self.is_wrapped() { self.before(Once::of(typed)) } else { None };
        match before {
            Some(before) => (What::Unwrapped, Some(before)),
            None => (What::NotWrapped, None),
        }
    }

    fn before(&self, once: Once) -> Option<Becomes> {
        let (mut url, mut headers) = (None, Vec::new());
        let mut args = self.args.iter().enumerate().skip(1);
        while let Some((at, word)) = args.next() {
            match word.as_str() {
                "--" => return self.args.get(at + 1).map(|_| Becomes::Itself { words: at + 2, once }),
                "--url" => url = args.next().map(|(_, url)| url.clone()),
                FROM => {
                    let (name, variable) = args.next()?.1.split_once('=')?;
                    let (name, variable) = (name.to_owned(), variable.to_owned());
                    headers.push(Restored { name, variable, is_bearer: false });
                }
                "--header" => {
                    let (_, line) = args.next()?;
                    let variable = line.strip_prefix("Authorization: Bearer ${")?.strip_suffix('}')?.to_owned();
                    headers.push(Restored { name: "Authorization".to_owned(), variable, is_bearer: true });
                }
                _ => {}
            }
        }
        Some(Becomes::Url { url: url?, headers, once })
    }
}

fn bearer(variable: &str) -> String {
    format!("Authorization: Bearer ${{{variable}}}")
}

/// A name that the bridge takes: letters, digits, `-` and single `_`.
fn plain_name(server: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name: String = server.chars().map(kept).collect();
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    name
}

/// The variable that holds a header of a tool server.
fn variable_of(server: &str, header: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = format!("{server}_{header}").chars().map(kept).collect();
    // A variable does not begin with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
