//! A step with a tool of the program and the tools of a server beside it, which dies in the middle of an effect.
//!
//! ```sh
//! cargo run -p ua-sdk --features mcp --example servers -- servers.json
//! ```
//!
//! Nobody can know whether the comment was posted, so the program says that a person has to answer; with `happened` as a second
//! argument it answers itself, and goes on.
#![expect(clippy::print_stdout, reason = "what the example shows is what it prints")]

use ua_sdk::Choice;
use ua_sdk::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // This program is the helper that its servers are started below.
    ua_sdk::helper();
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "servers.json".to_owned());
    let happened = args.next().is_some_and(|word| word == "happened");
    let model = Model::scripted(
        r#"{"turns": [
            {"tools": [{"name": "mcp__program__weather", "input": {}}]},
            {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "{{result:toolu_1_1}}", "die_without": "died"}}]},
            {"text": "Posted."}
        ]}"#,
    )?;
    let step = Step::new("weather")
        .model(model)
        .tool(tool("weather", "How the weather is.", async |_: Call, (): ()| Ok::<_, Failure>("It rains.")).reads())
        .servers(Servers::file(file)?)
        .input("Tell the forum how the weather is.");
    let runs = Runs::open("state")?;
    if happened {
        for question in runs.questions("weather").await? {
            runs.answer(&question, Choice::Happened).await?;
        }
    }
    match runs.run(&step, "weather").await? {
        Outcome::Complete { final_output, .. } => println!("complete: {final_output}"),
        Outcome::Waiting { question } => println!("answer first: {}", question.text),
        other @ (Outcome::Stopped { .. } | Outcome::Failed { .. } | Outcome::Cancelled) => println!("{other:?}"),
    }
    Ok(())
}
