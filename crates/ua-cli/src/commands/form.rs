//! A form that a tool asks to have filled in, field by field (MCP elicitation).
//!
//! Invariants: a field that has a default or may be left out takes Enter alone; whatever is typed is read as what the field takes, and asked
//! again with the reason when it is not; Ctrl-D leaves the question open.

use serde_json::{Map, Value};
use ua_core::FieldKind;
use ua_store::QuestionRecord;

use crate::error::HostError;
use crate::output::{line, plain};
use crate::prompt::{Left, ask_line};

/// One field, as it is asked.
#[derive(Debug)]
struct Field {
    name: String,
    about: String,
    kind: FieldKind,
    default: Option<Value>,
    is_required: bool,
}

impl Field {
    /// The prompt that stands before what is typed.
    fn ask(&self) -> String {
        let about = if self.about.is_empty() { String::new() } else { format!(": {}", line(&self.about, 200)) };
        let enter = match (&self.default, self.is_required) {
            (Some(default), _) => format!(" (Enter for {})", shown(default)),
            (None, true) => String::new(),
            (None, false) => " (Enter to leave it out)".to_owned(),
        };
        format!("{}{about}\n  {}{enter}: ", line(&self.name, 60), line(&self.kind.takes(), 1000))
    }

    /// What was typed; `None` for a field that is left out.
    fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        match (typed.trim().is_empty(), &self.default, self.is_required) {
            (true, None, true) => Err(format!("`{}` cannot be left out", ua_core::in_a_sentence(&self.name))),
            (true, ..) => Ok(None),
            (false, ..) => self.kind.read(typed).map(Some),
        }
    }
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        other @ (Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    line(&text, 60)
}

fn form(question: &QuestionRecord) -> Vec<Field> {
    let params = question.detail.get("params").cloned().unwrap_or_default();
    let required = params.pointer("/requestedSchema/required").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |schema: &Value, name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
    let field = |(name, schema): (&String, &Value)| Field {
        name: name.clone(),
        about: text(schema, "description").or_else(|| text(schema, "title")).unwrap_or_default(),
        kind: FieldKind::of(schema),
        default: schema.get("default").cloned(),
        is_required: required.iter().any(|known| known.as_str() == Some(name)),
    };
    ua_core::fields(&params).map(field).collect()
}

/// Asks for each field. The values as the text of an answer; `None` when the input ended.
pub(super) async fn fill(question: &QuestionRecord, left: &Left) -> Result<Option<String>, HostError> {
    let mut values = Map::new();
    for field in form(question) {
        let mut ask = field.ask();
        let value = loop {
            let Some(typed) = ask_line(&ask, left).await? else { return Ok(None) };
            match field.read(&typed) {
                Ok(value) => break value,
                Err(why) => ask = format!("{}; {}", plain(&why), field.ask()),
            }
        };
        if let Some(value) = value {
            values.insert(field.name, value);
        }
    }
    Ok(Some(Value::Object(values).to_string()))
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
            "count": {"type": "integer", "default": 1, "title": "How many"},
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
        let form = form(&question);
        let field = |name: &str| form.iter().find(|field| field.name == name).unwrap();
        assert_eq!(field("size").ask(), "size: Which\\u{1b}[2J size\n  one of small, large: ");
        assert_eq!(field("count").ask(), "count: How many\n  a whole number (Enter for 1): ");
        assert_eq!(field("gift").ask(), "gift\n  yes or no (Enter for no): ");
        assert_eq!(field("note").ask(), "note\n  text (Enter to leave it out): ");
        assert_eq!(field("size").read("").unwrap_err(), "`size` cannot be left out");
        assert_eq!(field("size").read("lar"), Ok(Some(json!("large"))));
        for name in ["count", "gift", "note"] {
            assert_eq!(field(name).read(" "), Ok(None), "{name}");
        }
        assert_eq!(field("count").read("two").unwrap_err(), "`two` is not a whole number");
    }
}
