//! A value of JSON with its members in their order and its words as they were typed, and the style that one is written in.
//!
//! A client that writes its configuration anew keeps every value and chooses blanks, line ends and escapes itself. What is put back into such a file
//! is written as the client writes.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Value, json};

use super::spans::{Member, elements, members};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// A text, a number, or one of the three names, as it was typed.
    Word(String),
    /// A list.
    List(Vec<Self>),
    /// An object, in its order.
    Object(Vec<(String, Self)>),
}

impl Told {
    /// What stands at `place`; `None` when it is broken, or has a name twice.
    pub(super) fn read(text: &str, place: &Range<usize>) -> Option<Self> {
        match text.as_bytes().get(place.start)? {
            b'{' => {
                let mut all: Vec<(String, Self)> = Vec::new();
                for member in members(text, place)? {
                    if all.iter().any(|(name, _)| *name == member.name) {
                        return None;
                    }
                    all.push((member.name, Self::read(text, &member.value)?));
                }
                Some(Self::Object(all))
            }
            b'[' => elements(text, place)?
                .iter()
                .map(|place| Self::read(text, place))
                .collect::<Option<_>>()
                .map(Self::List),
            _ => {
                let word = text.get(place.clone())?;
                serde_json::from_str::<Value>(word).ok()?;
                Some(Self::Word(word.to_owned()))
            }
        }
    }

    /// A text.
    pub(super) fn text(text: &str) -> Self {
        Self::Word(json!(text).to_string())
    }

    /// What it says, if it is a text.
    pub(super) fn as_text(&self) -> Option<String> {
        match self {
            Self::Word(word) => serde_json::from_str(word).ok(),
            Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Its members, if it is an object.
    pub(super) fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            Self::Word(_) | Self::List(_) => None,
        }
    }

    /// Its member of this name.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        self.members()?.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Whether the two are one value, however and in whatever order they are written.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Word(one), Self::Word(other)) => {
                let read = |word: &str| serde_json::from_str::<Value>(word).ok();
                let (one, other) = (read(one), read(other));
                // 5 is 5.0 for every client.
                let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
                one == other || (number(&one).is_some() && number(&one) == number(&other))
            }
            (Self::List(one), Self::List(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is(other))
            }
            (Self::Object(one), Self::Object(_)) => {
                let is_there = |(name, value): &(String, Self)| other.member(name).is_some_and(|there| value.is(there));
                other.members().is_some_and(|other| other.len() == one.len()) && one.iter().all(is_there)
            }
            (Self::Word(_), Self::List(_) | Self::Object(_))
            | (Self::List(_), Self::Word(_) | Self::Object(_))
            | (Self::Object(_), Self::Word(_) | Self::List(_)) => false,
        }
    }

    /// Whether that holds of their order too.
    pub(super) fn is_in_order(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => {
                let is_equal = |((name, value), (other, there)): (&(String, Self), &(String, Self))| {
                    name == other && value.is_in_order(there)
                };
                one.len() == other.len() && one.iter().zip(other).all(is_equal)
            }
            (Self::Word(_) | Self::List(_) | Self::Object(_), _) => self.is(other),
        }
    }
}

/// What the value is where somebody changed `written` into `now` and nobody wants what made `written` of `once` any more; `Err` where both changed
/// the same.
pub(super) fn merged(once: Option<&Told>, written: Option<&Told>, now: Option<&Told>) -> Result<Option<Told>, ()> {
    let is_same = |one: Option<&Told>, other: Option<&Told>| match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_same(now, written) {
        return Ok(once.cloned());
    }
    if is_same(once, written) {
        return Ok(now.cloned());
    }
    let of = |told: Option<&Told>| told.and_then(Told::members).map(<[_]>::to_vec);
    let (Some(_), Some(of_now)) = (of(written), of(now)) else { return Err(()) };
    let of_once = match once {
        Some(once) => once.members().ok_or(())?.to_vec(),
        None => Vec::new(),
    };
    let mut all = Vec::new();
    let more = of_now.iter().filter(|(name, _)| !of_once.iter().any(|(own, _)| own == name));
    for (name, _) in of_once.iter().chain(more) {
        let [once, written, now] = [once, written, now].map(|told| told.and_then(|told| told.member(name)));
        all.extend(merged(once, written, now)?.map(|value| (name.clone(), value)));
    }
    Ok((once.is_some() || !all.is_empty()).then_some(Told::Object(all)))
}

/// How objects or lists are laid out.
#[derive(Debug, Clone)]
enum Layout {
    /// Each member has a line.
    Lines,
    /// With these in front, between and behind.
    Inline(String, String, String),
}

/// How a value is written, as a text that is there shows.
#[derive(Debug, Clone)]
pub(super) struct Style {
    line_end: &'static str,
    base: String,
    unit: String,
    colon: String,
    comma_at_end: bool,
    outer: Layout,
    inner: Layout,
    list: Layout,
    is_ascii: bool,
    words: HashMap<String, String>,
}

impl Style {
    /// All in one line, without blanks.
    pub(super) fn compact() -> Self {
        let tight = Layout::Inline(String::new(), ",".to_owned(), String::new());
        Self {
            line_end: "\n",
            base: String::new(),
            unit: String::new(),
            colon: ":".to_owned(),
            comma_at_end: false,
            outer: tight.clone(),
            inner: tight.clone(),
            list: tight,
            is_ascii: false,
            words: HashMap::new(),
        }
    }

    /// That of the object which stands at `place`.
    pub(super) fn of(text: &str, place: &Range<usize>) -> Option<Self> {
        let all = members(text, place)?;
        let first = all.first()?;
        let lead = text.get(place.start + 1..first.token.start)?;
        let trail = text.get(all.last()?.value.end..place.end - 1)?;
        // A comma at the end may stand in the line of the brace behind it.
        let behind_line = |blank: &str| blank.rsplit(['\n', ',']).next().unwrap_or_default().to_owned();
        let (base, inside) = (behind_line(trail), behind_line(lead));
        let unit = inside.strip_prefix(base.as_str()).unwrap_or("  ").to_owned();
        let spans = |all: &[Member]| all.iter().map(|member| member.token.start..member.value.end).collect::<Vec<_>>();
        let outer = layout(text, place, &spans(&all))?;
        let of_object = |member: &Member| {
            let inside = members(text, &member.value).filter(|inside| !inside.is_empty())?;
            layout(text, &member.value, &spans(&inside))
        };
        let of_list = |member: &Member| {
            let inside = elements(text, &member.value).filter(|inside| !inside.is_empty())?;
            layout(text, &member.value, &inside)
        };
        let mut words = HashMap::new();
        gather(text, place, &mut words);
        Some(Self {
            line_end: if lead.contains("\r\n") { "\r\n" } else { "\n" },
            base,
            unit,
            colon: text.get(first.token.end..first.value.start)?.to_owned(),
            comma_at_end: trail.starts_with(','),
            inner: all.iter().find_map(of_object).unwrap_or_else(|| outer.clone()),
            list: all.iter().find_map(of_list).unwrap_or_else(|| outer.clone()),
            outer,
            is_ascii: text.is_ascii(),
            words,
        })
    }

    /// The value as it is written in this style.
    pub(super) fn write(&self, told: &Told) -> String {
        self.at(told, 0)
    }

    fn at(&self, told: &Told, depth: usize) -> String {
        match told {
            Told::Word(word) => self.word(word),
            Told::List(all) if all.is_empty() => "[]".to_owned(),
            Told::List(all) => {
                let all: Vec<String> = all.iter().map(|one| self.at(one, depth + 1)).collect();
                format!("[{}]", self.laid_out(&self.list, &all, depth))
            }
            Told::Object(all) if all.is_empty() => "{}".to_owned(),
            Told::Object(all) => {
                let layout = if depth == 0 { &self.outer } else { &self.inner };
                let member = |(name, value): &(String, Told)| {
                    format!("{}{}{}", self.word(&json!(name).to_string()), self.colon, self.at(value, depth + 1))
                };
                let all: Vec<String> = all.iter().map(member).collect();
                format!("{{{}}}", self.laid_out(layout, &all, depth))
            }
        }
    }

    fn laid_out(&self, layout: &Layout, all: &[String], depth: usize) -> String {
        match layout {
            Layout::Lines => {
                let line = |depth: usize| format!("{}{}{}", self.line_end, self.base, self.unit.repeat(depth));
                let comma = if self.comma_at_end { "," } else { "" };
                let inside = line(depth + 1);
                format!("{inside}{}{comma}{}", all.join(&format!(",{inside}")), line(depth))
            }
            Layout::Inline(lead, between, trail) => format!("{lead}{}{trail}", all.join(between)),
        }
    }

    /// A word as it stands there already, else as such a file has it.
    fn word(&self, word: &str) -> String {
        let Ok(text) = serde_json::from_str::<String>(word) else { return word.to_owned() };
        if let Some(there) = self.words.get(&text) {
            return there.clone();
        }
        let plain = json!(text).to_string();
        if !self.is_ascii {
            return plain;
        }
        let mut made = String::new();
        for c in plain.chars() {
            if c.is_ascii() {
                made.push(c);
            } else {
                made.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
        made
    }
}

/// How the members at these places of an object or a list are laid out.
fn layout(text: &str, place: &Range<usize>, members: &[Range<usize>]) -> Option<Layout> {
    let (first, last) = (members.first()?, members.last()?);
    let lead = text.get(place.start + 1..first.start)?;
    if lead.contains('\n') {
        return Some(Layout::Lines);
    }
    let between = match members.get(1) {
        Some(second) => text.get(first.end..second.start)?,
        None => ", ",
    };
    Some(Layout::Inline(lead.to_owned(), between.to_owned(), text.get(last.end..place.end - 1)?.to_owned()))
}

/// The texts that stand at `place`, with names, as they were typed.
fn gather(text: &str, place: &Range<usize>, words: &mut HashMap<String, String>) {
    let mut note = |place: &Range<usize>| {
        let word = text.get(place.clone()).unwrap_or_default();
        if let Ok(said) = serde_json::from_str::<String>(word) {
            words.entry(said).or_insert_with(|| word.to_owned());
        }
    };
    let mut inside = vec![place.clone()];
    while let Some(place) = inside.pop() {
        if let Some(members) = members(text, &place) {
            for member in &members {
                note(&member.token);
            }
            inside.extend(members.into_iter().map(|member| member.value));
        } else if let Some(elements) = elements(text, &place) {
            inside.extend(elements);
        } else {
            note(&place);
        }
    }
}
