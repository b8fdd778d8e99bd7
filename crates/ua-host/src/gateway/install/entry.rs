//! An entry of a client's configuration, whatever its format, and what it becomes.

use ua_bridge::Options;

/// What an entry that goes through the gateway begins with.
const WORD: &str = "gateway";
/// The name of a header whose whole value is that of a variable, in arguments.
const FROM: &str = "--header-from";

/// A client that waits so long waits as long as a person may take, in seconds.
const AN_HOUR: u32 = 3600;

/// What was done about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It goes through the gateway now.
    Wrapped,
    /// It did already.
    Already,
    /// It did already, by a program `ua` that is not this one; now it does by this one.
    Moved,
    /// It goes through the gateway of another folder.
    Elsewhere,
    /// It is as it was before the gateway.
    Unwrapped,
    /// An address without a header of its own: such a tool server may want its client to log in, which it cannot do behind the gateway. Wrapped
    /// where it is named.
    MayLogIn,
    /// Neither started by a command nor reached over HTTP in a way that the gateway has.
    Unreachable,
    /// Something that it is started with is not read whole, and would be lost.
    NotRead,
    /// It shares something that would be changed with what else the file has.
    Shared,
    /// Its name is given to two entries of one list, and only the client knows which of them it takes.
    Twice,
    /// It does not go through the gateway.
    NotWrapped,
    /// It is the gateway itself, for all of its tool servers: there is no other entry behind it.
    All,
    /// It goes through the gateway, and cannot be written as an entry of its client without it.
    NotRestored,
}

impl What {
    /// Its word for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wrapped => "wrapped",
            Self::Already => "already",
            Self::Moved => "moved",
            Self::Elsewhere => "elsewhere",
            Self::Unwrapped => "unwrapped",
            Self::MayLogIn => "may_log_in",
            Self::Unreachable => "unreachable",
            Self::NotRead => "not_read",
            Self::Shared => "shared",
            Self::Twice => "twice",
            Self::NotWrapped => "not_wrapped",
            Self::All => "all",
            Self::NotRestored => "not_restored",
        }
    }
}

/// How the program that an entry starts stands to the one that is put in front of others now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Program {
    /// It is that one, or it is named without a path, so that its client finds it.
    Here,
    /// It is another one.
    Another,
    /// There is none at its path.
    Gone,
}

/// What is put in front of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The program `ua`.
    pub program: String,
    /// The gateway's folder, where it is not the user's own.
    pub root: Option<String>,
    /// The user's own, to which an entry goes that names none; `None` where nobody says where that is.
    pub own_root: Option<String>,
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
    /// How long its client waits for a tool, in whole seconds, where it says so.
    pub(super) patience: Option<u32>,
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
    /// Something of this stands elsewhere in the file as well, or only there.
    pub(super) is_shared: bool,
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

impl Header {
    /// The client's variable that it has its value from.
    fn variable(&self) -> Option<&str> {
        match self {
            Self::Plain { .. } => None,
            Self::Variable { variable, .. } | Self::Bearer { variable } => Some(variable),
        }
    }
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
        /// Its headers. A variable that one of them holds goes.
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

/// A header as the arguments of an entry have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restored {
    /// The header's name.
    pub(super) name: String,
    /// What it holds, in order.
    pub(super) value: Vec<Piece>,
}

/// A part of a header's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// This.
    Text(String),
    /// What a variable holds.
    Variable(String),
}

impl Restored {
    /// Reads `Name: value`, where `${NAME}` stands for one of these variables, and for no other.
    fn read(line: &str, env: &[&str]) -> Option<Self> {
        let (name, mut rest) = line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim()))?;
        let mut value: Vec<Piece> = Vec::new();
        let mut text = String::new();
        while let Some((before, behind)) = rest.split_once("${") {
            text.push_str(before);
            let variable = behind.split_once('}').filter(|(variable, _)| env.contains(variable));
            if let Some((variable, _)) = variable {
                value.extend((!text.is_empty()).then(|| Piece::Text(std::mem::take(&mut text))));
                value.push(Piece::Variable(variable.to_owned()));
            } else {
                text.push_str("${");
            }
            rest = variable.map_or(behind, |(_, behind)| behind);
        }
        text.push_str(rest);
        value.extend((!text.is_empty()).then_some(Piece::Text(text)));
        Some(Self { name, value })
    }

    /// The variable whose value is all of it.
    pub(super) fn whole(&self) -> Option<&str> {
        match self.value.as_slice() {
            [Piece::Variable(variable)] => Some(variable),
            _ => None,
        }
    }

    /// The variable of a bearer's token.
    pub(super) fn bearer(&self) -> Option<&str> {
        match self.value.as_slice() {
            [Piece::Text(lead), Piece::Variable(variable)]
                if self.name.eq_ignore_ascii_case("Authorization") && lead == "Bearer " =>
            {
                Some(variable)
            }
            _ => None,
        }
    }

    /// The variables that it holds.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.value.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Its value, where `of` says what each variable holds; `None` where one of them is not known.
    pub(super) fn with(&self, of: impl Fn(&str) -> Option<String>) -> Option<String> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Variable(variable) => of(variable),
        };
        self.value.iter().map(piece).collect()
    }
}

impl Entry {
    /// Where the arguments say that it is a gateway: first, or behind what `ua` itself is told (`ua --root DIR gateway …`).
    fn gateway_at(&self) -> Option<usize> {
        let mut at = 0;
        while let Some(word) = self.args.get(at) {
            match word.as_str() {
                WORD => return Some(at),
                "--root" => at += 2,
                _ if word.starts_with("--root=") => at += 1,
                _ => return None,
            }
        }
        None
    }

    /// What its arguments say to the gateway, once it is one.
    fn options(&self) -> Option<Options<'_, String>> {
        self.gateway_at().map(|at| Options::of(&self.args[at + 1..]))
    }

    /// The folder of the gateway that its arguments name, in front of its word or behind it.
    fn root(&self) -> Option<&str> {
        let own = Options::of(&self.args).options;
        let said = own.iter().find(|(word, _)| *word == "--root").and_then(|(_, root)| root.map(String::as_str));
        said.or_else(|| own.iter().find_map(|(word, _)| word.strip_prefix("--root=")))
    }

    /// Whether it goes through a gateway.
    pub(super) fn is_wrapped(&self) -> bool {
        self.options().is_some_and(|options| options.name_a_server())
    }

    /// Whether it is the gateway for all of its tool servers.
    fn is_all(&self) -> bool {
        self.options().is_some_and(|options| options.has("--all"))
    }

    /// What it becomes with the gateway in front of it. `is_named`: a person named this very entry. `program`: what it starts.
    /// `names_in` says which variables a file of
    /// variables has, where it can be read.
    pub(super) fn wrapped(
        &self,
        server: &str,
        front: &Front,
        is_named: bool,
        program: Program,
        names_in: &dyn Fn(&str) -> Option<Vec<String>>,
    ) -> (What, Option<Becomes>) {
        if self.is_shared {
            return (What::Shared, None);
        }
        if self.is_cut {
            return (What::NotRead, None);
        }
        if self.is_wrapped() {
            let here = front.root.as_deref().or(front.own_root.as_deref());
            let there = self.root().or(front.own_root.as_deref());
            let is_elsewhere = here.is_some() && here != there;
            return match program {
                // Nothing starts it as it is.
                Program::Gone => (What::Moved, Some(Becomes::Program { command: front.program.clone() })),
                Program::Here | Program::Another if is_elsewhere => (What::Elsewhere, None),
                // Somebody may have meant that one, unless they name the entry.
                Program::Another if is_named => {
                    (What::Moved, Some(Becomes::Program { command: front.program.clone() }))
                }
                Program::Here | Program::Another => (What::Already, None),
            };
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
        // Without it the broker takes a client that it knows for one that waits as long as a person may take.
        if let Some(seconds) = self.patience.filter(|seconds| *seconds < AN_HOUR) {
            args.extend(["--patience".to_owned(), seconds.to_string()]);
        }
        // No process has such a variable, so its value would be lost.
        if self.env.iter().chain(&of_file).any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return (What::NotRead, None);
        }
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
                    let is_taken = |variable: &str| {
                        env.iter().any(|(taken, _)| taken == variable)
                            || self.env.iter().any(|taken| taken == variable)
                            || self.headers.iter().any(|header| header.variable() == Some(variable))
                    };
                    let variable = own_variable(&variable_of(server, name), is_taken);
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
        let at = self.gateway_at()?;
        let root = self.args.get(at + 1).filter(|word| *word == "--root").and_then(|_| self.args.get(at + 2).cloned());
        Some(Front { program, root, own_root: None })
    }

    /// What it was before; `typed` is what a record says of that.
    pub(super) fn unwrapped(&self, typed: Option<&Self>) -> (What, Option<Becomes>) {
        if self.is_shared {
            return (What::Shared, None);
        }
        if self.is_cut {
            return (What::NotRead, None);
        }
        if !self.is_wrapped() {
            return (What::NotWrapped, None);
        }
        if self.is_all() {
            return (What::All, None);
        }
        match self.before(Once::of(typed)) {
            Some(before) => (What::Unwrapped, Some(before)),
            None => (What::NotRestored, None),
        }
    }

    fn before(&self, once: Once) -> Option<Becomes> {
        let (mut url, mut lines, mut env) = (None, Vec::new(), Vec::new());
        let Options { options, command } = self.options()?;
        if let Some(command) = command {
            return (!command.is_empty()).then(|| Becomes::Itself { words: self.args.len() - command.len() + 1, once });
        }
        for (option, value) in options {
            match (option.as_str(), value) {
                ("--url", value) => url = value.cloned(),
                (FROM, value) => {
                    let (name, variable) = value?.split_once('=')?;
                    env.push(variable);
                    lines.push(format!("{name}: ${{{variable}}}"));
                }
                ("--env", value) => env.push(value?.as_str()),
                ("--header", value) => lines.push(value?.clone()),
                ("--name" | "--project" | "--patience" | "--root", None) => return None,
                _ => {}
            }
        }
        // A header may stand in front of the variable that it holds.
        let headers = lines.iter().map(|line| Restored::read(line, &env)).collect::<Option<_>>()?;
        Some(Becomes::Url { url: url?, headers, once })
    }
}

fn bearer(variable: &str) -> String {
    format!("Authorization: Bearer ${{{variable}}}")
}

/// A name that the bridge takes: letters, digits, `-` and single `_`.
pub(in crate::gateway) fn plain_name(server: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name: String = server.chars().map(kept).collect();
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    name
}

/// A variable that holds nothing else: names of headers may differ in what is the same in those of variables.
fn own_variable(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut variable = name.to_owned();
    let mut number = 1_u32;
    while is_taken(&variable) {
        number += 1;
        variable = format!("{name}_{number}");
    }
    variable
}

/// The variable that holds a header of a tool server.
fn variable_of(server: &str, header: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = format!("{server}_{header}").chars().map(kept).collect();
    // A variable does not begin with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
