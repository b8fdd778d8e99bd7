//! A search over configurations as people and programs type them: in every format with whatever blanks, comments, quotes and commas it allows. What is
//! between an install and its uninstall can be read and says what it is to say, and behind them the file is to the byte what it was.

use std::fmt::Write as _;
use std::path::Path;

use super::meant::{Meant, is_as_meant};
use super::restored::{Typed, entries};
use super::{Format, Front, What, installed, uninstalled};

/// Drawn from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(below).unwrap()).unwrap()
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn is(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// What is typed, as a value.
#[derive(Clone)]
enum Value {
    Text(&'static str),
    Bare(&'static str),
    List(Vec<Self>),
    Fields(Vec<(&'static str, Self)>),
}

const WORDS: [&str; 14] = [
    "a",
    "-y",
    "@x/mail-server",
    "--flag=x y",
    "C:\\p",
    "ünï",
    "",
    "\"q\"",
    "it's",
    "${HOME}/x",
    "#no",
    "//x",
    "/* y, } */",
    "--",
];

fn words(chance: &mut Chance) -> Value {
    Value::List((0..chance.below(4)).map(|_| Value::Text(chance.one_of(&WORDS))).collect())
}

fn pairs(chance: &mut Chance, names: &[&'static str]) -> Value {
    let count = chance.below(names.len() + 1);
    Value::Fields(names.iter().take(count).map(|name| (*name, Value::Text(chance.one_of(&WORDS)))).collect())
}

/// The fields of an entry, in any order.
fn entry(chance: &mut Chance, format: Format) -> Vec<(&'static str, Value)> {
    let mut fields = Vec::new();
    let (command, env, has_url) = match format {
        Format::Json | Format::Toml => ("command", "env", true),
        Format::Yaml => ("cmd", "envs", false),
    };
    if has_url && chance.is(3) {
        fields.push(("url", Value::Text(chance.one_of(&["http://127.0.0.1:9/mcp", "https://x.example/mcp?a=1&b=2"]))));
        let headers = pairs(chance, &["X-Key", "Authorization"]);
        fields.push((if format == Format::Toml { "http_headers" } else { "headers" }, headers));
    } else {
        fields.push((command, Value::Text(chance.one_of(&["npx", "/usr/bin/node", "my prog", "cmd#1"]))));
        if !chance.is(4) {
            fields.push(("args", words(chance)));
        }
        if chance.is(2) {
            fields.push((env, pairs(chance, &["TOKEN", "lower_1"])));
        }
    }
    if chance.is(2) {
        fields.push(("timeout", Value::Bare(chance.one_of(&["60", "true", "1.5"]))));
    }
    if chance.is(4) {
        fields.push(("also", words(chance)));
    }
    for at in (1..fields.len()).rev() {
        let other = chance.below(at + 1);
        fields.swap(at, other);
    }
    fields
}

/// Texts as JSON has them, which TOML and YAML read too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

struct Json<'c>(&'c mut Chance, &'static str);

impl Json<'_> {
    fn blank(&mut self, depth: usize) -> String {
        let Self(chance, line_end) = self;
        let line = format!("{line_end}{}", "  ".repeat(depth));
        let mut blank = chance.one_of(&[line.as_str(), line.as_str(), "", " "]).to_owned();
        if chance.is(12) {
            blank += &chance.one_of(&["/* y, } */".to_owned(), format!("// c \"x\": {{{line_end}")]);
        }
        blank
    }

    fn around(&mut self, all: Vec<String>, depth: usize) -> String {
        let mut made = String::new();
        let count = all.len();
        for (at, one) in all.into_iter().enumerate() {
            made += &self.blank(depth + 1);
            made += &one;
            // A comma at the end of all is passed over.
            if at + 1 < count || self.0.is(4) {
                if self.0.is(12) {
                    made.push(' ');
                }
                made.push(',');
            }
        }
        made + &self.blank(depth)
    }

    fn value(&mut self, value: &Value, depth: usize) -> String {
        match value {
            Value::Text(text) => quoted(text),
            Value::Bare(word) => (*word).to_owned(),
            Value::List(all) => {
                let all = all.iter().map(|one| self.value(one, depth + 1)).collect();
                format!("[{}]", self.around(all, depth))
            }
            Value::Fields(all) => {
                let fields = all.iter().map(|(name, value)| (quoted(name), value));
                let fields: Vec<String> = fields
                    .map(|(name, value)| {
                        format!("{name}{}{}", self.0.one_of(&[":", ": ", " : "]), self.value(value, depth + 1))
                    })
                    .collect();
                format!("{{{}}}", self.around(fields, depth))
            }
        }
    }

    fn file(chance: &mut Chance) -> String {
        let line_end = chance.one_of(&["\n", "\n", "\r\n"]);
        let servers = ["a", "b c", "ü"].map(|name| (name, Value::Fields(entry(chance, Format::Json))));
        let mut top = vec![("mcpServers", Value::Fields(servers.to_vec())), ("n", Value::Bare("5"))];
        if chance.is(2) {
            top.reverse();
        }
        let mut json = Json(chance, line_end);
        let lead = json.blank(0);
        let file = json.value(&Value::Fields(top), 0);
        format!("{lead}{file}{}", json.0.one_of(&["", line_end]))
    }
}

fn toml_value(chance: &mut Chance, value: &Value, line_end: &str) -> String {
    match value {
        Value::Text(text) if !text.contains('\'') && chance.is(4) => format!("'{text}'"),
        Value::Text(text) => quoted(text),
        Value::Bare(word) => (*word).to_owned(),
        Value::List(all) => {
            let all: Vec<String> = all.iter().map(|one| toml_value(chance, one, line_end)).collect();
            if chance.is(3) {
                let comment = chance.one_of(&["", " # c ]"]);
                let lines: Vec<String> = all.iter().map(|one| format!("  {one},{comment}{line_end}")).collect();
                return format!("[{line_end}{}]", lines.concat());
            }
            let (lead, comma) = chance.one_of(&[("", ", "), (" ", ","), ("", " , ")]);
            format!("[{lead}{}{lead}]", all.join(comma))
        }
        Value::Fields(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|(name, value)| {
                    format!("{name}{}{}", chance.one_of(&["=", " = "]), toml_value(chance, value, line_end))
                })
                .collect();
            if all.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", all.join(", ")) }
        }
    }
}

fn toml_file(chance: &mut Chance) -> String {
    let line_end = chance.one_of(&["\n", "\n", "\r\n"]);
    let mut parts = Vec::new();
    for name in ["a", "\"b c\"", "d"] {
        let fields = entry(chance, Format::Toml);
        let mut part = chance.one_of(&["", "# about [it]"]).to_owned();
        if !part.is_empty() {
            part += line_end;
        }
        write!(part, "[mcp_servers.{name}]{}{line_end}", chance.one_of(&["", " # x"])).unwrap();
        let mut below = String::new();
        for (field, value) in &fields {
            if let Value::Fields(pairs) = value
                && chance.is(2)
            {
                write!(below, "[mcp_servers.{name}.{field}]{line_end}").unwrap();
                for (name, value) in pairs {
                    write!(below, "{name} = {}{line_end}", toml_value(chance, value, line_end)).unwrap();
                }
                continue;
            }
            let (lead, equals) = chance.one_of(&[("", " = "), ("  ", "="), ("", "=  ")]);
            let comment = chance.one_of(&["", "", " # z"]);
            write!(part, "{lead}{field}{equals}{}{comment}{line_end}", toml_value(chance, value, line_end)).unwrap();
        }
        parts.push(part + &below);
    }
    parts.push(format!("[profiles.x]{line_end}d = 1979-05-27T07:32:00Z{line_end}"));
    let file = format!("n = 5 # five{line_end}{}", parts.join(chance.one_of(&["", line_end])));
    if chance.is(3) { file.trim_end().to_owned() } else { file }
}

fn yaml_flow(chance: &mut Chance, value: &Value) -> String {
    match value {
        Value::Text(text) if chance.is(3) => format!("'{}'", text.replace('\'', "''")),
        Value::Text(text) if chance.is(2) && text.chars().all(|c| c.is_ascii_alphabetic()) && !text.is_empty() => {
            (*text).to_owned()
        }
        Value::Text(text) => quoted(text),
        Value::Bare(word) => (*word).to_owned(),
        Value::List(all) => {
            let all: Vec<String> = all.iter().map(|one| yaml_flow(chance, one)).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Fields(all) => {
            let all: Vec<String> =
                all.iter().map(|(name, value)| format!("{name}: {}", yaml_flow(chance, value))).collect();
            format!("{{{}}}", all.join(", "))
        }
    }
}

fn yaml_file(chance: &mut Chance) -> String {
    let line_end = chance.one_of(&["\n", "\n", "\r\n"]);
    let mut file = format!("# c: d{line_end}n: 5{line_end}extensions:{line_end}");
    for name in ["a", "b-c", "d"] {
        let fields = entry(chance, Format::Yaml);
        if chance.is(4) {
            write!(file, "  {name}: {}{line_end}", yaml_flow(chance, &Value::Fields(fields))).unwrap();
            continue;
        }
        write!(file, "  {name}:{line_end}").unwrap();
        for (field, value) in &fields {
            if let Value::List(all) = value
                && !all.is_empty()
                && chance.is(2)
            {
                write!(file, "    {field}:{line_end}").unwrap();
                let indent = chance.one_of(&["    ", "      "]);
                for one in all {
                    let comment = chance.one_of(&["", "", "  # one"]);
                    write!(file, "{indent}- {}{comment}{line_end}", yaml_flow(chance, one)).unwrap();
                }
                continue;
            }
            let comment = chance.one_of(&["", "", "   # c: d"]);
            write!(file, "    {field}: {}{comment}{line_end}", yaml_flow(chance, value)).unwrap();
        }
    }
    file + chance.one_of(&["", "last: x"])
}

#[test]
fn whatever_is_typed_can_be_read_between_and_is_to_the_byte_what_it_was_behind() {
    let front = Front { program: "/opt/ua".to_owned(), root: None, own_root: None };
    let (mut wrapped, mut left) = (0, 0);
    for (name, typed) in
        [("a.json", Json::file as fn(&mut Chance) -> String), ("a.toml", toml_file), ("a.yaml", yaml_file)]
    {
        let path = Path::new("/nowhere").join(name);
        let format = Format::of(&path);
        for seed in (0..400_u64).filter(|seed| crate::share::has(usize::try_from(*seed).unwrap())) {
            let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(7));
            let before = typed(&mut chance);
            let case = format!("{name} {seed}\n{before}");
            let was = entries(format, &path, &before).unwrap_or_else(|| panic!("{case}"));
            let (made, kept) =
                installed(&path, None, &before, &front, &[]).unwrap_or_else(|error| panic!("{error}: {case}"));
            let now = entries(format, &path, &made.text).unwrap_or_else(|| panic!("{case}\n---\n{}", made.text));
            assert_eq!(now.len(), was.len(), "{case}\n---\n{}", made.text);
            for (change, (.., entry)) in made.changes.iter().zip(&now) {
                assert_eq!(change.what == What::Wrapped, entry.is_wrapped(), "{change:?}: {case}\n---\n{}", made.text);
                wrapped += usize::from(entry.is_wrapped());
                left += usize::from(!entry.is_wrapped());
            }
            let Some(kept) = kept else { continue };
            let back =
                uninstalled(&path, Some(kept), &made.text, &[]).unwrap_or_else(|error| panic!("{error}: {case}"));
            assert_eq!(back.text, before, "{case}\n---\n{}", made.text);
            // Without a record it says what it said.
            let apart = format.unwrapped(&path, &made.text, &Typed::default(), &[]);
            let apart = apart.unwrap_or_else(|error| panic!("{error}: {case}\n---\n{}", made.text)).text;
            let said = |text: &str| {
                let all = entries(format, &path, text).unwrap_or_else(|| panic!("{case}\n---\n{text}"));
                all.into_iter().map(|(.., entry)| (entry.command, entry.args, entry.url)).collect::<Vec<_>>()
            };
            assert_eq!(said(&apart), said(&before), "{case}\n---\n{}\n---\n{apart}", made.text);
            // Nothing is taken for what was meant that is not: here that nothing was.
            let nothing: Vec<Meant> =
                was.into_iter().map(|(project, name, was)| Meant { of: (project, name), was, becomes: None }).collect();
            assert!(!is_as_meant(format, &path, &before, &made.text, &nothing), "{case}");
        }
    }
    let of = crate::share::of();
    assert!(wrapped > 1_400 / of && left > 14 / of, "{wrapped} {left}");
}
