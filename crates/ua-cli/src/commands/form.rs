//! A form that a tool asks to have filled in, field by field (MCP elicitation).
//!
//! Invariants: a field that has a default or may be left out takes Enter alone; whatever is typed is read as what the field takes, and asked
//! again with the reason when it is not; nothing is sent before the values stand together and somebody said yes to them, and whoever says no
//! finds them again as what Enter takes; Ctrl-C and Ctrl-D leave the question open.

use serde_json::{Map, Value};
use ua_core::FieldKind;
use ua_store::QuestionRecord;

use crate::error::HostError;
use crate::output::{line, plain};
use crate::prompt::{Left, ask_line, confirm};

/// One field, as it is asked.
#[derive(Debug)]
struct Field {
    name: String,
    about: String,
    kind: FieldKind,
    default: Option<Value>,
    /// What was typed before, which Enter keeps.
    typed: Option<Value>,
    is_required: bool,
}

impl Field {
    /// The prompt that stands before what is typed.
    fn ask(&self) -> String {
        let about = if self.about.is_empty() { String::new() } else { format!(": {}", line(&self.about, 200)) };
        let enter = match (self.typed.as_ref().or(self.default.as_ref()), self.is_required) {
            (Some(default), _) => format!(" (Enter for {})", shown(default)),
            (None, true) => String::new(),
            (None, false) => " (Enter to leave it out)".to_owned(),
        };
        format!("{}{about}\n  {}{enter}: ", line(&self.name, 60), line(&self.kind.takes(), 1000))
    }

    /// What was typed; `None` for a field that is left out.
    fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        if typed.trim().is_empty() && self.typed.is_some() {
            return Ok(self.typed.clone());
        }
        match (typed.trim().is_empty(), &self.default, self.is_required) {
            (true, None, true) => Err(format!("`{}` cannot be left out", ua_core::in_a_sentence(&self.name))),
            (true, ..) => Ok(None),
            (false, ..) => self.kind.read(typed).map(Some),
        }
    }
}

fn shown(value: &Value) -> String {
    line(&in_words(value), 60)
}

/// The same of a value that is about to be sent, of which nothing is left out that a terminal can take.
fn shown_whole(value: &Value) -> String {
    line(&in_words(value), 1000)
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        other @ (Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

fn form(question: &QuestionRecord, typed: &Map<String, Value>) -> Vec<Field> {
    let params = question.detail.get("params").cloned().unwrap_or_default();
    let required = params.pointer("/requestedSchema/required").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |schema: &Value, name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
    let field = |(name, schema): (&String, &Value)| Field {
        name: name.clone(),
        about: text(schema, "description").or_else(|| text(schema, "title")).unwrap_or_default(),
        kind: FieldKind::of(schema),
        default: ua_core::default_of(schema).cloned(),
        typed: typed.get(name).cloned(),
        is_required: required.iter().any(|known| known.as_str() == Some(name)),
    };
    ua_core::fields(&params).map(field).collect()
}

/// What came of a form.
#[derive(Debug)]
pub(super) enum Filled {
    /// The values as the text of an answer.
    Values(String),
    /// Nothing is sent; why the question is asked again.
    Not(String),
}

/// Asks for each field, and whether the values are meant. What was `typed` at an earlier time is what Enter takes, and is kept there.
pub(super) async fn fill(
    question: &QuestionRecord,
    typed: &mut Map<String, Value>,
    left: &Left,
) -> Result<Filled, HostError> {
    let form = form(question, typed);
    for field in &form {
        let mut ask = field.ask();
        let value = loop {
            let Some(said) = ask_line(&ask, left).await? else {
                return Ok(Filled::Not("the form was not filled in".to_owned()));
            };
            match field.read(&said) {
                Ok(value) => break value,
                Err(why) => ask = format!("{}; {}", plain(&why), field.ask()),
            }
        };
        if let Some(value) = value {
            typed.insert(field.name.clone(), value);
        }
    }
    let values = Value::Object(typed.clone()).to_string();
    if let Err(why) = ua_ledger::check_elicited(question, Some(&values)) {
        return Ok(Filled::Not(format!("the tool does not accept that: {}", plain(&why))));
    }
    let ask = if form.is_empty() { "Accept it?".to_owned() } else { to_be_sent(&form, typed) };
    Ok(if confirm(&ask, left).await? { Filled::Values(values) } else { Filled::Not(String::new()) })
}

/// The values as they would be sent, defaults included, and whether they are meant.
fn to_be_sent(form: &[Field], typed: &Map<String, Value>) -> String {
    let one = |field: &Field| {
        let value = typed.get(&field.name).or(field.default.as_ref());
        let value = value.map_or_else(|| "left out".to_owned(), shown_whole);
        format!("  {}: {value}\n", line(&field.name, 60))
    };
    let values: String = form.iter().map(one).collect();
    format!("\n{values}Send these values?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_store::{Choice, QuestionKind, QuestionStatus};

    use super::*;

    #[test]
    fn a_form_is_asked_field_by_field_and_enter_is_offered_only_where_it_is_taken() {
        let schema = json!({"required": ["size", "gift"], "properties": {
            "size": {"type": "string", "enum": ["small", "large"], "description": "Which\u{1b}[2J size"},
            "count": {"type": "integer", "default": 1, "minimum": 1, "maximum": 9, "title": "How many"},
            "many": {"type": "integer", "default": 10, "maximum": 9},
            "gift": {"type": "boolean", "default": false},
            "note": {"type": "string"},
        }});
        let question = QuestionRecord {
            question_id: ua_core::QuestionId::parse("q_1").unwrap(),
            run_id: ua_core::RunId::parse("run_1").unwrap(),
            call_id: None,
            kind: QuestionKind::Elicitation,
            text: "t".into(),
            detail: json!({"params": {"requestedSchema": schema}}),
            choices: vec![Choice::Continue, Choice::Skip, Choice::Abort],
            created_at: ua_core::Env::simulated(1).now(),
            status: QuestionStatus::Open,
            answer: None,
            closed_because: None,
        };
        let first = form(&question, &Map::new());
        let field = |name: &str| first.iter().find(|field| field.name == name).unwrap();
        assert_eq!(field("size").ask(), "size: Which\\u{1b}[2J size\n  one of small, large: ");
        assert_eq!(field("count").ask(), "count: How many\n  a whole number, at least 1, at most 9 (Enter for 1): ");
        assert_eq!(field("gift").ask(), "gift\n  yes or no (Enter for no): ");
        assert_eq!(field("note").ask(), "note\n  text (Enter to leave it out): ");
        assert_eq!(field("size").read("").unwrap_err(), "`size` cannot be left out");
        assert_eq!(field("size").read("lar"), Ok(Some(json!("large"))));
        for name in ["count", "gift", "note"] {
            assert_eq!(field(name).read(" "), Ok(None), "{name}");
        }
        // A default that the form refuses is no default.
        assert_eq!(field("many").ask(), "many\n  a whole number, at most 9 (Enter to leave it out): ");
        assert_eq!(field("count").read("12").unwrap_err(), "`12` does not fit: it must be at most 9");
        assert_eq!(field("count").read("two").unwrap_err(), "`two` is not a whole number");
        // Asked again, Enter keeps what was typed, and the values stand together before they are sent.
        let typed = json!({"size": "large", "count": 4}).as_object().unwrap().clone();
        let again = super::form(&question, &typed);
        let size = again.iter().find(|field| field.name == "size").unwrap();
        assert_eq!(size.ask(), "size: Which\\u{1b}[2J size\n  one of small, large (Enter for large): ");
        assert_eq!((size.read(""), size.read("small")), (Ok(Some(json!("large"))), Ok(Some(json!("small")))));
        let ask = to_be_sent(&again, &typed);
        for line in ["  size: large\n", "  count: 4\n", "  gift: no\n", "  note: left out\n"] {
            assert!(ask.contains(line), "{ask}");
        }
    }
}
