//! What made other runners of agents send twice or repeat freely: names that were misread, and wording that hid the same effect.

use serde_json::{Value, json};
use ua_classify::project_scope;
use ua_core::{OnUnknown, Scope, SideEffectClass, ToolNamespace, ToolSpec, sha256};

use super::{own, plain, tool};

fn scope(spec: &ToolSpec, arguments: &Value) -> Option<Scope> {
    let policy = plain().classify(spec, Some(arguments));
    assert!(policy.is_by_content(), "{}", spec.name.raw);
    let effect = policy.effect_kind.unwrap();
    // Two paths hold the same report.
    let content = |path: &str| Some(sha256(if path.ends_with("report.pdf") { "the report" } else { path }));
    project_scope(&policy.scope, effect.as_str(), arguments, &content)
}

/// Composio is attached as an MCP server as often as not, and other servers' effects have names of all kinds.
#[test]
fn no_effect_is_repeated_freely_whatever_server_its_tool_is_on() {
    for name in [
        "GMAIL_SEND_EMAIL",
        "SLACK_SEND_MESSAGE",
        "COMPOSIO_MULTI_EXECUTE_TOOL",
        "COMPOSIO_REMOTE_WORKBENCH",
        "COMPOSIO_REMOTE_BASH_TOOL",
        "COMPOSIO_MANAGE_CONNECTIONS",
        "SPREADSHEET_ADD_ROW",
        "GOOGLESHEETS_APPEND_VALUES_TO_SPREADSHEET",
        "NOTION_ADD_THREAD",
        "TARGET_PAY",
        "create_issue",
        "whatever",
    ] {
        for (namespace, server) in
            [(ToolNamespace::Composio, "composio"), (ToolNamespace::Mcp, "composio"), (ToolNamespace::Mcp, "other")]
        {
            let policy = plain().classify(&tool(namespace, server, name), None);
            let found = (policy.class, policy.on_unknown);
            assert_eq!(found, (SideEffectClass::External, OnUnknown::Hold), "{namespace} {server} {name}");
        }
    }
}

#[test]
fn letter_case_and_arguments_that_change_nothing_do_not_make_another_mail() {
    let gmail = tool(ToolNamespace::Mcp, "composio", "GMAIL_SEND_EMAIL");
    let first = json!({"recipient_email": "Boss@Example.test", "subject": "Report", "body": "Dear boss"});
    for (field, value) in [
        ("recipient_email", json!("boss@example.test")),
        ("body", json!("Dear boss!")),
        ("is_html", json!(false)),
        ("user_id", json!("me")),
        ("cc", json!([])),
        ("memory", json!({"seen": 1})),
        ("next_step", json!("SEND")),
    ] {
        let mut second = first.clone();
        second[field] = value;
        assert_eq!(scope(&gmail, &first), scope(&gmail, &second), "{field}");
    }
}

#[test]
fn an_attachment_that_was_uploaded_again_is_the_same_attachment() {
    let gmail = tool(ToolNamespace::Mcp, "composio", "GMAIL_SEND_EMAIL");
    let mail = |key: &str, name: &str| {
        json!({"recipient_email": "boss@example.test", "subject": "Report",
            "attachment": {"s3key": key, "mimetype": "application/pdf", "name": name}})
    };
    assert_eq!(scope(&gmail, &mail("k1", "report.pdf")), scope(&gmail, &mail("k2", "report.pdf")));
    assert_ne!(scope(&gmail, &mail("k1", "report.pdf")), scope(&gmail, &mail("k1", "annex.pdf")));
    // And the upload itself is one effect, by content, so that the first handle comes back.
    let upload = tool(ToolNamespace::Mcp, "local_toolkit", "upload_to_composio");
    let by = |path: &str| scope(&upload, &json!({"path": path, "toolkit_slug": "gmail"}));
    assert_eq!(by("work_products/report.pdf"), by("report.pdf"));
    assert_ne!(by("report.pdf"), by("annex.pdf"));
}

#[test]
fn one_upload_has_one_scope_whatever_the_file_is_called() {
    let by = |path: &str, to: Value| scope(&own("upload"), &json!({"path": path, "destination": to}));
    assert_eq!(by("report.pdf", json!("file:///a")), by("copies/report.pdf", json!("file:///a")));
    assert_ne!(by("report.pdf", json!("file:///a")), by("report.pdf", json!("file:///b")));
    assert_ne!(by("report.pdf", Value::Null), by("annex.pdf", Value::Null));
}
