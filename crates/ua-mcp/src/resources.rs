//! A server's resources, as two tools that only look.
//!
//! A model can ask for what a server has to read in no other way. The tools are offered only when the server says that it has resources,
//! and a tool of its own that is called the same takes precedence. What is read comes back as the content of a tool's result.

use serde_json::{Map, Value, json};
use ua_core::{Outcome, RawReply, ToolAnnotations, ToolName, ToolSpec};

use crate::connection::Connection;
use crate::exchange::Unanswered;
use crate::server::ResourceTool;

/// The tool as a model sees it.
pub(crate) fn spec(name: ToolName, tool: ResourceTool) -> ToolSpec {
    let (description, input_schema) = match tool {
        ResourceTool::List => (
            format!("Lists what the tool server `{}` has to read: an address and a name each.", name.server),
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
        ),
        ResourceTool::Read => (
            format!(
                "Reads one of the resources of the tool server `{}`, by the address that list_resources gives.",
                name.server
            ),
            json!({"type": "object", "required": ["uri"], "additionalProperties": false,
                "properties": {"uri": {"type": "string", "minLength": 1, "description": "The address of the resource."}}}),
        ),
    };
    let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    ToolSpec { name, description, input_schema, annotations }
}

/// Looks, and says what came as the result of a tool.
pub(crate) async fn look(connection: &Connection, tool: ResourceTool, arguments: &Map<String, Value>) -> Outcome {
    let looked = match tool {
        ResourceTool::List => list(connection).await,
        ResourceTool::Read => {
            let params = Map::from_iter([("uri".to_owned(), arguments.get("uri").cloned().unwrap_or_default())]);
            connection.ask("resources/read", params).await.map(|result| read(&result))
        }
    };
    match looked {
        Ok(result) => Outcome::Raw(RawReply::ToolResult { result }),
        Err(Unanswered::Refused(code, message)) => {
            let text = format!("the server refused it (error {code}): {message}");
            let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
            Outcome::Raw(RawReply::ToolResult { result })
        }
        Err(Unanswered::Status(status, body) | Unanswered::NotLetIn(status, body)) => {
            Outcome::Raw(RawReply::http(status, body))
        }
        Err(Unanswered::Broken(why)) => Outcome::Lost { why },
    }
}

async fn list(connection: &Connection) -> Result<Value, Unanswered> {
    let resources = connection.all("resources/list", "resources").await.map_err(Unanswered::Broken)?;
    // A server need not have any of these.
    let templates = connection.all("resources/templates/list", "resourceTemplates").await.unwrap_or_default();
    let listed = json!({ "resources": resources, "templates": templates });
    Ok(json!({ "content": [{ "type": "text", "text": listed.to_string() }], "structuredContent": listed }))
}

/// What was read, as content: each part is an embedded resource.
fn read(result: &Value) -> Value {
    let contents = result.get("contents").and_then(Value::as_array).cloned().unwrap_or_default();
    let content: Vec<Value> =
        contents.into_iter().map(|resource| json!({ "type": "resource", "resource": resource })).collect();
    json!({ "content": content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_becomes_content() {
        let result = json!({"contents": [{"uri": "demo://a", "text": "A"}, {"uri": "demo://b", "blob": "AA=="}]});
        assert_eq!(
            read(&result)["content"][1],
            json!({"type": "resource", "resource": {"uri": "demo://b", "blob": "AA=="}})
        );
    }
}
