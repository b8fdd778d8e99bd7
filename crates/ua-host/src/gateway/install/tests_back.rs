//! Searches over formats, styles, changes and orders: whatever somebody did to a file between installs and uninstalls, the gateway is gone from it
//! and everything else is as they left it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;

use super::ordered::Told;
use super::{Front, Kept, installed, uninstalled};

/// How a client writes JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Writes {
    unit: Option<&'static str>,
    comma: &'static str,
    colon: &'static str,
    line_end: &'static str,
    end: &'static str,
    is_ascii: bool,
    is_sorted: bool,
}

const TIGHT: Writes =
    Writes { unit: None, comma: ",", colon: ":", line_end: "\n", end: "", is_ascii: false, is_sorted: false };
const STYLES: [Writes; 7] = [
    Writes { unit: Some("  "), colon: ": ", ..TIGHT },
    Writes { unit: Some("  "), colon: ": ", end: "\n", ..TIGHT },
    TIGHT,
    Writes { comma: ", ", colon: ": ", is_ascii: true, ..TIGHT },
    Writes { unit: Some("\t"), colon: ": ", is_ascii: true, ..TIGHT },
    Writes { unit: Some("    "), colon: ": ", line_end: "\r\n", end: "\r\n", ..TIGHT },
    Writes { unit: Some("  "), colon: ": ", is_sorted: true, ..TIGHT },
];

impl Writes {
    fn file(self, told: &Told) -> String {
        format!("{}{}", self.at(told, 0), self.end)
    }

    fn at(self, told: &Told, depth: usize) -> String {
        let around = |all: Vec<String>, depth: usize| match self.unit {
            Some(unit) => {
                let line = |depth| format!("{}{}", self.line_end, unit.repeat(depth));
                format!("{}{}{}", line(depth + 1), all.join(&format!(",{}", line(depth + 1))), line(depth))
            }
            None => all.join(self.comma),
        };
        match told {
            Told::Word(word) => self.word(word),
            Told::List(all) if all.is_empty() => "[]".to_owned(),
            Told::Object(all) if all.is_empty() => "{}".to_owned(),
            Told::List(all) => format!("[{}]", around(all.iter().map(|one| self.at(one, depth + 1)).collect(), depth)),
            Told::Object(all) => {
                let mut all = all.clone();
                if self.is_sorted {
                    all.sort_by(|one, other| one.0.cmp(&other.0));
                }
                let member = |(name, value): &(String, Told)| {
                    format!("{}{}{}", self.word(&json!(name).to_string()), self.colon, self.at(value, depth + 1))
                };
                format!("{{{}}}", around(all.iter().map(member).collect(), depth))
            }
        }
    }

    fn word(self, word: &str) -> String {
        let Ok(text) = serde_json::from_str::<String>(word) else { return word.to_owned() };
        let plain = json!(text).to_string();
        if !self.is_ascii {
            return plain;
        }
        let unit = |c: char| {
            let units: Vec<String> = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            units.concat()
        };
        plain.chars().map(|c| if c.is_ascii() { c.to_string() } else { unit(c) }).collect()
    }
}

fn told(text: &str) -> Told {
    let start = text.find('{').unwrap();
    Told::read(text, &(start..text.trim_end().len())).unwrap()
}

/// The value at this path, to be changed.
fn at<'a>(told: &'a mut Told, path: &[&str]) -> &'a mut Vec<(String, Told)> {
    let Told::Object(all) = told else { panic!("no object") };
    match path {
        [] => all,
        [name, rest @ ..] => at(&mut all.iter_mut().find(|(own, _)| own == name).unwrap().1, rest),
    }
}

fn put(told: &mut Told, path: &[&str], name: &str, value: &str) {
    let value = Told::read(value, &(0..value.len())).unwrap();
    let all = at(told, path);
    match all.iter_mut().find(|(own, _)| own == name) {
        Some((_, old)) => *old = value,
        None => all.push((name.to_owned(), value)),
    }
}

const BEFORE: &str = r#"{"numStartups": 5, "tips": {"ü": "é😀", "x": 1.0, "none": [], "null": null},
  "mcpServers": {
    "mail": {"command": "npx", "args": ["-y", "mail-server", "ü"], "env": {"K": "v12340"}},
    "bare": {"command": "srv"},
    "last first": {"env": {"A": "1"}, "args": ["--", "--name"], "command": "x\ty", "timeout": 5},
    "web": {"type": "http", "url": "https://x.example/mcp", "headers": {"X-B": "2", "Authorization": "Bearer ü"}},
    "odd": {"headers": {"Z": "1", "A": "2"}, "note": {"deep": [1, {"a": 2}]}, "url": "https://z.example/mcp"},
    "plain": {"type": "http", "url": "https://y.example/mcp"},
    "none": {"type": "stdio", "command": "a b", "args": [], "env": {}}},
  "projects": {"/a/b": {"allowedTools": [], "mcpServers": {"mail": {"command": "m2", "args": ["ü"]}}, "seen": 1},
    "/c": {"mcpServers": {}}}}"#;

type Changed = fn(&mut Told);

/// What a client changes beside the entries, or in them.
const CHANGES: [(&str, Changed); 9] = [
    ("nothing", |_| ()),
    ("a number", |told| put(told, &[], "numStartups", "6")),
    ("a new entry", |told| put(told, &["mcpServers"], "new", r#"{"command": "new", "args": []}"#)),
    ("an entry less", |told| at(told, &["mcpServers"]).retain(|(name, _)| name != "bare")),
    ("a new project", |told| put(told, &["projects"], "/d", r#"{"mcpServers": {}}"#)),
    ("another order", |told| at(told, &["mcpServers"]).reverse()),
    ("a variable", |told| put(told, &["mcpServers", "mail", "env"], "K", r#""other""#)),
    ("a field more", |told| {
        put(told, &["mcpServers", "mail"], "timeout", "7");
        put(told, &["mcpServers", "odd"], "timeout", "7");
        put(told, &["mcpServers", "odd", "note"], "deep", "[]");
    }),
    ("a field less", |told| at(told, &["mcpServers", "last first"]).retain(|(name, _)| name != "timeout")),
];

/// What is installed and taken away, in which gateway: the names, or all.
#[derive(Debug, PartialEq)]
enum Step {
    In(&'static str, &'static [&'static str]),
    Out(&'static str, &'static [&'static str]),
}
use Step::{In, Out};

const ORDERS: [(&[Step], &[Step]); 8] = [
    (&[In("one", &[])], &[Out("one", &[])]),
    (&[In("one", &["mail"]), In("one", &[])], &[Out("one", &[])]),
    (&[In("one", &["mail", "plain"]), In("one", &["web"])], &[Out("one", &["mail"]), Out("one", &[])]),
    (
        &[In("one", &["mail"]), In("one", &["bare", "web"])],
        &[Out("one", &["web"]), Out("one", &["mail"]), Out("one", &[])],
    ),
    (&[In("one", &["mail"]), In("two", &[])], &[Out("one", &[]), Out("two", &[])]),
    (&[In("one", &["mail"]), In("two", &[])], &[Out("two", &[]), Out("one", &[])]),
    (&[In("one", &["mail"]), In("two", &[])], &[Out("two", &[])]),
    (&[In("one", &["bare"]), In("two", &["mail"]), In("one", &[])], &[Out("two", &["mail"]), Out("one", &[])]),
];

/// The file after these steps, with what somebody does to it between the two halves of them, or behind each install.
fn after(name: &str, before: &str, order: &(&[Step], &[Step]), each: bool, change: &dyn Fn(&str) -> String) -> String {
    let path = Path::new("/nowhere").join(name);
    let (ins, outs) = order;
    let names = |names: &[&str], text: &str| -> Vec<String> {
        names.iter().filter(|name| text.contains(**name)).map(|&name| name.to_owned()).collect()
    };
    // What each gateway keeps of the file.
    let mut kept: HashMap<&str, Kept> = HashMap::new();
    let again = |kept: Option<&Kept>| {
        kept.map(|kept| Kept { path: kept.path.clone(), written: kept.written.clone(), before: kept.before.clone() })
    };
    let mut text = before.to_owned();
    for (at, step) in ins.iter().chain(*outs).enumerate() {
        match step {
            In(root, servers) => {
                let front =
                    Front { program: "/opt/ua".to_owned(), root: Some(format!("/roots/{root}")), own_root: None };
                let (edited, new) =
                    installed(&path, again(kept.get(root)), &text, &front, &names(servers, &text)).unwrap();
                text = edited.text;
                kept.extend(new.map(|new| (*root, new)));
                if each || at + 1 == ins.len() {
                    text = change(&text);
                }
            }
            Out(root, servers) => {
                text = uninstalled(&path, again(kept.get(root)), &text, &names(servers, &text)).unwrap().text;
                if servers.is_empty() {
                    kept.remove(root);
                }
            }
        }
    }
    assert!(!text.contains("gateway"), "{text}");
    text
}

/// A client that writes its whole file in a style of its own: the gateway is gone, every other value is as the client left it, and where the client
/// keeps the order of members the file is to the byte as if there had never been a gateway.
#[test]
fn a_client_that_writes_all_of_its_file_has_it_without_the_gateway() {
    let model = told(BEFORE);
    let (mut all, mut exact) = (0, 0);
    let typed = BEFORE.replacen("\"env\"", "// mine\n\"env\"", 1);
    let marked = format!("\u{feff}{BEFORE}");
    let befores = STYLES.iter().map(|style| style.file(&model)).chain([BEFORE.to_owned(), typed, marked]);
    for before in befores {
        for style in STYLES {
            for (what, change) in CHANGES {
                // Each order meets each change, each style before and each behind.
                all += 1;
                if !crate::share::has(all) {
                    continue;
                }
                for order in [&ORDERS[all % ORDERS.len()], &ORDERS[(all / CHANGES.len()) % ORDERS.len()]] {
                    let rewrite = |text: &str| {
                        let mut told = told(text);
                        change(&mut told);
                        style.file(&told)
                    };
                    let mut wanted = told(&before);
                    change(&mut wanted);
                    let made = after("a.json", &before, order, false, &rewrite);
                    assert!(told(&made).is(&wanted), "{style:?} {what} {order:?}\n{before}\n---\n{made}");
                    if style.is_sorted {
                        continue;
                    }
                    exact += 1;
                    assert_eq!(made, style.file(&wanted), "{style:?} {what} {order:?}\n{before}");
                }
            }
        }
    }
    assert!(all > 500 && exact > 900 / crate::share::of() - 20, "{all} {exact}");
}

const TOML: &str = "# top\nmodel = \"x\"  # c\nstarts = 5\n\n[mcp_servers.mail] # m\ncommand = 'python3' # p\nargs = [\n  \"a\", # one\n  'b', \"c\",\n]\nstartup_timeout_sec = 9\n\n[mcp_servers.mail.env]\nK = \"v\"\n\n[mcp_servers.bare]\ncommand = 'x'\n\n[mcp_servers.patient]\ncommand = \"y\"\nargs = [ \"--\",  \"--url\" ]\ntool_timeout_sec = 3600\n\n[mcp_servers.none]\nargs = []\ncommand = \"z\"\n\n[mcp_servers.web]\nurl = \"https://x.example.com/mcp\"\nbearer_token_env_var = \"TOK\" # t\n\n[mcp_servers.plain]\nurl = \"https://y.example.com/mcp\"";
const INLINE: &str = "starts = 5\n[mcp_servers]\nmail = { command = \"a\", args = [\"b\",\"c\"] }\nbare = {command='x'}\nweb = { url = \"https://x.example.com/mcp\", http_headers = { \"B\" = \"1\", A = \"2\" } }\nplain = { command = \"p\", tool_timeout_sec = 3600 }\n# end";
const YAML: &str = "# c\nstarts: 5\nextensions:\n  mail:\n    type: stdio\n    cmd: 'python3'   # cmd\n    args:\n    - a # one\n    # between\n    - \"b, c\"\n    - 'it''s'\n    envs: {K: v}\n    enabled: true\n  bare: {cmd: x, type: stdio}\n  web:\n    cmd: \"y \\\" z\" # w\n    args: []\n  plain:\n    args: [ -x,  \"y\" ] # last\n    cmd: /usr/bin/z";

/// What somebody changes beside the entries.
const BESIDE: [fn(&str) -> String; 5] = [
    |text| text.to_owned(),
    |text| text.replacen('5', "6", 1),
    |text| format!("# more\n{text}"),
    |text| text.replacen("starts", "the_number_of_all_starts", 1),
    |text| format!("{text}\n# more"),
];

/// Whatever the line ends, and whether the last line has one: a change beside the entries stays, and they are as they were typed, comments and line
/// breaks within lists too.
#[test]
fn what_is_typed_is_put_back_to_the_byte_whatever_its_line_ends() {
    let mut all = 0;
    for (name, before) in [("a.toml", TOML), ("b.toml", INLINE), ("c.yaml", YAML), ("d.json", BEFORE)] {
        for line_end in ["\n", "\r\n"] {
            for end in ["", "\n"] {
                let before = format!("{before}{end}").replace('\n', line_end);
                for (number, change) in BESIDE.iter().enumerate() {
                    // JSON has no such comments.
                    if name == "d.json" && matches!(number, 2 | 4) {
                        continue;
                    }
                    let change = |text: &str| change(text).replace("\r\n", "\n").replace('\n', line_end);
                    for order in &ORDERS {
                        for each in [true, false] {
                            all += 1;
                            if !crate::share::has(all) {
                                continue;
                            }
                            let ins = if each { order.0.len() } else { 1 };
                            let wanted = (0..ins).fold(before.clone(), |text, _| change(&text));
                            let made = after(name, &before, order, each, &change);
                            assert_eq!(made, wanted, "{name} {number} {order:?} {each} {line_end:?} {end:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(all > 1000, "{all}");
}

/// A client that writes all of its TOML once more: every value is as it left it, and the gateway is gone.
#[test]
fn a_client_that_writes_its_toml_once_more_has_its_values() {
    for before in [TOML, INLINE] {
        let model: toml::Table = toml::from_str(before).unwrap();
        for pretty in [true, false] {
            for starts in [5, 6] {
                for order in &ORDERS {
                    let rewrite = |text: &str| {
                        let mut table: toml::Table = toml::from_str(text).unwrap();
                        table.insert("starts".to_owned(), starts.into());
                        if pretty { toml::to_string_pretty(&table).unwrap() } else { toml::to_string(&table).unwrap() }
                    };
                    let made = after("a.toml", before, order, false, &rewrite);
                    let mut wanted = model.clone();
                    wanted.insert("starts".to_owned(), starts.into());
                    let is: toml::Table = toml::from_str(&made).unwrap();
                    assert_eq!(is, wanted, "{pretty} {order:?}\n{made}");
                }
            }
        }
    }
}
