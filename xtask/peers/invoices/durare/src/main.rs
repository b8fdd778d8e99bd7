mod shop;

use std::sync::Arc;

use durare::{DurableContext, DurableEngine, Error, SqliteProvider, WorkflowOptions};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[derive(Clone, Serialize, Deserialize)]
enum Said {
    User(String),
    Calls { tool: String, order: String },
    Result(String),
    Text(String),
}

/// Says what a model would say; a real one is a client of its own, and its tools are described by hand.
async fn ask_model(history: Vec<Said>) -> Result<Said, Error> {
    Ok(match history.len() {
        1 => Said::Calls { tool: "send_invoice".into(), order: "A-17".into() },
        _ => Said::Text("The invoice for A-17 is on its way.".into()),
    })
}

async fn invoices(context: DurableContext, task: String) -> Result<String, Error> {
    let mut history = vec![Said::User(task)];
    for turn in 0..20 {
        let asked = history.clone();
        let reply: Said = context.step(&format!("model_{turn}"), || ask_model(asked)).await?;
        history.push(reply.clone());
        match reply {
            Said::Calls { tool, order } if tool == "send_invoice" => {
                let key = format!("invoices-2026-11/{turn}");
                let sent: String = context
                    .step(&format!("send_invoice_{turn}"), || async move {
                        shop::send(&order, &key).await.map_err(|why| Error::app(why.to_string()))
                    })
                    .await?;
                history.push(Said::Result(sent));
            }
            Said::Text(text) => return Ok(text),
            Said::Calls { tool, .. } => return Err(Error::app(format!("no tool {tool}"))),
            Said::User(_) | Said::Result(_) => {}
        }
    }
    Err(Error::app("20 turns and no end".to_string()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Its own default does not sync a commit.
    let options = SqliteConnectOptions::new()
        .filename("durare.db")
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    let mut engine = DurableEngine::new(Arc::new(SqliteProvider::from_pool(pool))).await?;
    engine.register("invoices", invoices);
    let task = "Send an invoice for every order that has none.".to_string();
    let run = engine.start("invoices", task, WorkflowOptions::with_id("invoices-2026-11")).await?;
    println!("{}", run.result().await?);
    Ok(())
}
