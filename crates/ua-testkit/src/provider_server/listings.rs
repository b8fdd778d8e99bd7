//! What the services list, as their tool servers write it: one row of a table for each question.

use serde_json::{Value, json};
use ua_core::Timestamp;

use super::{Made, Provider};

/// A question, and how it is answered from what was made.
pub(super) struct Listing {
    pub(super) provider: Provider,
    pub(super) tool: &'static str,
    /// Whether this row is the one, where a tool lists several things.
    pub(super) is_about: fn(&Value) -> bool,
    /// The tool that made what is listed.
    pub(super) makes: &'static str,
    /// Whether a thing is in the list that is asked for.
    pub(super) is_in: fn(&Made, &Value) -> bool,
    pub(super) is_newest_first: bool,
    /// The most that are listed.
    pub(super) most: usize,
    pub(super) entry: fn(usize, &Made, &Value) -> Value,
    pub(super) answer: fn(Vec<Value>) -> Said,
}

/// The text of an answer.
pub(super) enum Said {
    Json(Value),
    Text(String),
}

impl Said {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Json(value) => value.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Whether the arguments of these names are those of the question.
fn same(made: &Made, asked: &Value, names: &[&str]) -> bool {
    names.iter().all(|name| made.arguments[name] == asked[name])
}

fn any(_asked: &Value) -> bool {
    true
}

fn plain(entries: Vec<Value>) -> Said {
    Said::Json(Value::Array(entries))
}

fn notion_list(results: Vec<Value>) -> Said {
    Said::Json(json!({"object": "list", "results": Value::Array(results), "next_cursor": null, "has_more": false}))
}

fn slack_history(messages: Vec<Value>) -> Said {
    Said::Json(json!({"ok": true, "messages": Value::Array(messages), "has_more": false}))
}

/// An entry of GitHub before its tools listed issues by the time at which they were made.
fn github_entry(index: usize, made: &Made, _asked: &Value) -> Value {
    let url = format!("https://github.test/{index}");
    json!({"number": index, "title": made.arguments["title"], "body": made.arguments["body"], "html_url": url})
}

/// A thing of Stripe as it is listed: what it was given, and the second in which it was made.
fn stripe_object(object: &str, index: usize, made: &Made, given: &[&str]) -> Value {
    let mut all = json!({"id": format!("{object}_{index}"), "object": object, "created": made.at.as_millis() / 1000, "livemode": false});
    for name in given {
        all[*name] = made.arguments[*name].clone();
    }
    all
}

/// The rows.
pub(super) const LISTINGS: &[Listing] = &[
    Listing {
        provider: Provider::GitHub,
        tool: "list_issues",
        is_about: |asked| asked["orderBy"] == "CREATED_AT",
        makes: "issue_write",
        is_in: |made, asked| same(made, asked, &["owner", "repo"]) && made.arguments["method"] == "create",
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| {
            let said = &made.arguments;
            json!({"number": index, "title": said["title"], "body": said["body"], "created_at": made.at.to_string()})
        },
        answer: |issues| Said::Json(json!({"totalCount": issues.len(), "issues": issues})),
    },
    Listing {
        provider: Provider::GitHub,
        tool: "list_issues",
        is_about: any,
        makes: "create_issue",
        is_in: |made, asked| {
            let since = asked["since"].as_str().and_then(Timestamp::parse);
            same(made, asked, &["owner", "repo"]) && since.is_none_or(|since| made.at >= since)
        },
        is_newest_first: true,
        most: 30,
        entry: github_entry,
        answer: plain,
    },
    Listing {
        provider: Provider::GitHub,
        tool: "list_pull_requests",
        is_about: any,
        makes: "create_pull_request",
        is_in: |made, asked| same(made, asked, &["owner", "repo"]),
        is_newest_first: true,
        most: 30,
        entry: github_entry,
        answer: plain,
    },
    Listing {
        provider: Provider::GitHub,
        tool: "issue_read",
        is_about: any,
        makes: "add_issue_comment",
        is_in: |made, asked| same(made, asked, &["owner", "repo", "issue_number"]),
        is_newest_first: false,
        most: 30,
        entry: github_entry,
        answer: plain,
    },
    Listing {
        provider: Provider::Slack,
        tool: "slack_get_channel_history",
        is_about: any,
        makes: "slack_post_message",
        is_in: |made, asked| same(made, asked, &["channel_id"]),
        is_newest_first: false,
        most: 100,
        entry: |index, made, _| json!({"ts": format!("{index}.0"), "text": made.arguments["text"]}),
        answer: slack_history,
    },
    Listing {
        provider: Provider::Slack,
        tool: "slack_get_thread_replies",
        is_about: any,
        makes: "slack_reply_to_thread",
        is_in: |made, asked| same(made, asked, &["channel_id", "thread_ts"]),
        is_newest_first: false,
        most: 1000,
        entry: |index, made, _| json!({"ts": format!("{index}.0"), "text": made.arguments["text"]}),
        answer: slack_history,
    },
    Listing {
        provider: Provider::Stripe,
        tool: "list_products",
        is_about: any,
        makes: "create_product",
        is_in: |_, _| true,
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| stripe_object("product", index, made, &["name", "description"]),
        answer: plain,
    },
    Listing {
        provider: Provider::Stripe,
        tool: "list_prices",
        is_about: any,
        makes: "create_price",
        is_in: |made, asked| same(made, asked, &["product"]),
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| stripe_object("price", index, made, &["product", "unit_amount", "currency"]),
        answer: plain,
    },
    Listing {
        provider: Provider::Stripe,
        tool: "list_invoices",
        is_about: any,
        makes: "create_invoice",
        is_in: |made, asked| same(made, asked, &["customer"]),
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| {
            let mut invoice = stripe_object("invoice", index, made, &["customer"]);
            invoice["billing_reason"] = json!("manual");
            invoice
        },
        answer: plain,
    },
    Listing {
        provider: Provider::Slack,
        tool: "conversations_history",
        is_about: any,
        makes: "chat_postMessage",
        is_in: |made, asked| {
            let oldest = asked["oldest"].as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
            same(made, asked, &["channel"]) && made.at.as_millis() / 1000 >= oldest
        },
        is_newest_first: false,
        most: 100,
        entry: |index, made, asked| {
            let mut message = json!({"ts": format!("{index}.0"), "text": made.arguments["text"]});
            if asked["include_all_metadata"] == true {
                message["metadata"] = made.arguments["metadata"].clone();
            }
            message
        },
        answer: slack_history,
    },
    Listing {
        provider: Provider::Trello,
        tool: "get_board_labels",
        is_about: any,
        makes: "create_label",
        is_in: |made, asked| same(made, asked, &["boardId"]),
        is_newest_first: false,
        most: 1000,
        entry: |index, made, _| {
            let id = format!("{:08x}{index:016x}", made.at.as_millis() / 1000);
            json!({"id": id, "name": made.arguments["name"], "color": made.arguments["color"]})
        },
        answer: plain,
    },
    Listing {
        provider: Provider::Discord,
        tool: "list_roles",
        is_about: any,
        makes: "create_role",
        is_in: |made, asked| same(made, asked, &["guildId"]),
        is_newest_first: false,
        most: 250,
        entry: |_, made, _| {
            let id = (made.at.as_millis() - 1_420_070_400_000) << 22;
            let name = made.arguments["name"].as_str().unwrap_or_default();
            json!(format!("- **{name}** (ID: {id})\n  • Color: None (RGB: 0)\n  • Position: 1"))
        },
        // It puts the text into the answer as JSON does.
        answer: |roles| {
            let lines: Vec<&str> = roles.iter().filter_map(Value::as_str).collect();
            Said::Json(json!(format!("Retrieved {} roles:\n{}", lines.len(), lines.join("\n"))))
        },
    },
    Listing {
        provider: Provider::Gmail,
        tool: "search_emails",
        is_about: |asked| words_of(asked).contains(&"in:sent"),
        makes: "send_email",
        is_in: is_mail,
        is_newest_first: true,
        most: 50,
        entry: mail,
        answer: mails,
    },
    Listing {
        provider: Provider::Gmail,
        tool: "search_emails",
        is_about: |asked| words_of(asked).contains(&"in:drafts"),
        makes: "draft_email",
        is_in: is_mail,
        is_newest_first: true,
        most: 50,
        entry: mail,
        answer: mails,
    },
    Listing {
        provider: Provider::Linear,
        tool: "list_comments",
        is_about: any,
        makes: "create_comment",
        is_in: |made, asked| same(made, asked, &["issueId"]),
        is_newest_first: false,
        most: 50,
        entry: |index, made, _| json!({"id": format!("comment-{index}"), "body": made.arguments["body"]}),
        answer: |comments| Said::Json(json!({"comments": comments})),
    },
    Listing {
        provider: Provider::Linear,
        tool: "list_issues",
        is_about: any,
        makes: "save_issue",
        is_in: |made, asked| same(made, asked, &["team"]) && made.arguments["id"].is_null(),
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| {
            let said = &made.arguments;
            json!({"id": format!("ENG-{index}"), "title": said["title"], "description": said["description"],
                "createdAt": made.at.to_string(), "url": format!("https://linear.test/ENG-{index}"), "team": said["team"]})
        },
        answer: |issues| Said::Json(json!({"issues": issues, "hasNextPage": false})),
    },
    Listing {
        provider: Provider::Notion,
        tool: "API-retrieve-a-comment",
        is_about: any,
        makes: "API-create-a-comment",
        is_in: |made, asked| made.arguments["parent"]["page_id"] == asked["block_id"],
        is_newest_first: false,
        most: 100,
        entry: |index, made, _| json!({"object": "comment", "id": format!("comment-{index}"), "rich_text": kept(&made.arguments["rich_text"])}),
        answer: notion_list,
    },
    Listing {
        provider: Provider::Notion,
        tool: "API-post-search",
        is_about: |asked| asked["filter"]["value"] == "page",
        makes: "API-post-page",
        is_in: |_, _| true,
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| {
            json!({"object": "page", "id": format!("page-{index}"), "created_time": to_the_minute(made.at),
                "parent": named_kind(&made.arguments["parent"]), "properties": kept_properties(&made.arguments["properties"]),
                "url": format!("https://notion.test/page-{index}"), "archived": false})
        },
        answer: notion_list,
    },
    Listing {
        provider: Provider::Notion,
        tool: "API-post-search",
        is_about: |asked| asked["filter"]["value"] == "data_source",
        makes: "API-create-a-data-source",
        is_in: |_, _| true,
        is_newest_first: true,
        most: 100,
        entry: |index, made, _| {
            json!({"object": "data_source", "id": format!("source-{index}"), "created_time": to_the_minute(made.at),
                "parent": named_kind(&made.arguments["parent"]), "title": kept(&made.arguments["title"]),
                "url": format!("https://notion.test/source-{index}")})
        },
        answer: notion_list,
    },
    Listing {
        provider: Provider::Notion,
        tool: "API-get-block-children",
        is_about: any,
        makes: "API-patch-block-children",
        is_in: |made, asked| same(made, asked, &["block_id"]),
        is_newest_first: false,
        most: 100,
        entry: |index, made, _| {
            let mut block = kept(&made.arguments["children"][0]);
            block["object"] = json!("block");
            block["id"] = json!(format!("block-{index}"));
            block["created_time"] = json!(to_the_minute(made.at));
            block["has_children"] = json!(false);
            block
        },
        answer: notion_list,
    },
    Listing {
        provider: Provider::Sql,
        tool: "read_records",
        is_about: any,
        makes: "create_record",
        is_in: |made, asked| {
            let conditions = asked["conditions"].as_object();
            let has_all =
                conditions.is_none_or(|all| all.iter().all(|(column, value)| made.arguments["data"][column] == *value));
            same(made, asked, &["table"]) && has_all
        },
        is_newest_first: false,
        most: usize::MAX,
        entry: |index, made, _| {
            let mut row = made.arguments["data"].clone();
            row["id"] = json!(index + 1);
            row
        },
        answer: |rows| Said::Json(json!({"success": true, "rowCount": rows.len(), "data": rows})),
    },
];

/// The words of a search.
fn words_of(asked: &Value) -> Vec<&str> {
    asked["query"].as_str().unwrap_or_default().split_whitespace().collect()
}

/// Whether a mail is found by the words `to:` and `after:` of a search.
fn is_mail(made: &Made, asked: &Value) -> bool {
    words_of(asked).into_iter().all(|word| match word.split_once(':') {
        Some(("to", address)) => {
            made.arguments["to"].as_array().is_some_and(|to| to.iter().any(|one| one.as_str() == Some(address)))
        }
        Some(("after", seconds)) => seconds.parse::<i64>().is_ok_and(|after| made.at.as_millis() / 1000 >= after),
        Some(("in", _)) => true,
        _ => false,
    })
}

fn mail(index: usize, made: &Made, _asked: &Value) -> Value {
    let subject = made.arguments["subject"].as_str().unwrap_or_default();
    json!(format!(
        "ID: 19ab{index:012x}\nSubject: {subject}\nFrom: Ada <ada@example.test>\nDate: {}\n",
        mail_date(made.at)
    ))
}

fn mails(found: Vec<Value>) -> Said {
    let text = |mail: Value| mail.as_str().map(str::to_owned);
    Said::Text(found.into_iter().filter_map(text).collect::<Vec<_>>().join("\n"))
}

/// A moment as mails say it.
fn mail_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = at.to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let day = usize::try_from(at.as_millis() / 86_400_000 % 7).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().unwrap_or(1).saturating_sub(1);
    let named = (DAYS.get(day).unwrap_or(&"Thu"), MONTHS.get(month).unwrap_or(&"Jan"));
    format!("{}, {} {} {} {} +0000", named.0, part(8, 10), named.1, part(0, 4), part(11, 19))
}

/// Notion says no seconds.
fn to_the_minute(at: Timestamp) -> String {
    Timestamp::from_millis(at.as_millis() / 60_000 * 60_000).to_string()
}

/// A parent as it is given back, with its kind.
fn named_kind(parent: &Value) -> Value {
    let mut parent = parent.clone();
    if let Some(kind) = parent.as_object().and_then(|fields| fields.keys().find(|name| *name != "type").cloned()) {
        parent["type"] = json!(kind);
    }
    parent
}

/// Properties as they are given back: one that came as a mere list of texts has its kind around it.
fn kept_properties(properties: &Value) -> Value {
    let mut properties = kept(properties);
    for (name, property) in properties.as_object_mut().into_iter().flatten() {
        if property.is_array() {
            *property = json!({"id": name, "type": "title", "title": property.take()});
        }
    }
    properties
}

/// What Notion keeps of a value: all that was sent, and what it adds to a piece of text.
fn kept(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(kept).collect()),
        Value::Object(fields) => {
            let mut all: serde_json::Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), kept(value))).collect();
            if let Some(content) = fields.get("text").and_then(|text| text.get("content")).cloned() {
                all.insert("type".to_owned(), json!("text"));
                all.insert("plain_text".to_owned(), content);
                all.insert("annotations".to_owned(), json!({"bold": false, "color": "default"}));
                all.insert("href".to_owned(), Value::Null);
            }
            Value::Object(all)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mails_date_is_read_as_the_moment_that_it_was() {
        for text in ["2026-11-26T05:26:07Z", "2024-02-29T23:59:59Z", "1999-12-31T00:00:00Z"] {
            let at = Timestamp::parse(text).unwrap();
            assert_eq!(Timestamp::parse_mail_date(&mail_date(at)), Some(at), "{}", mail_date(at));
        }
    }
}
