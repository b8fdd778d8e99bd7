//! Steps of one durare workflow on PostgreSQL. `durare-server-steps URL STEPS` prints how many microseconds they took.

use std::sync::Arc;
use std::time::Instant;

use durare::{DurableContext, DurableEngine, Error, PostgresProvider, WorkflowOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (url, steps) = (arguments.next().ok_or("a URL")?, arguments.next().ok_or("a number")?);
    let steps: u64 = steps.parse()?;
    let mut engine = DurableEngine::new(Arc::new(PostgresProvider::connect(&url).await?)).await?;
    engine.register("steps", |context: DurableContext, steps: u64| async move {
        let mut micros = 0;
        for step in 0..steps {
            let begun = Instant::now();
            context
                .step(&format!("step_{step}"), || async move { Ok::<_, Error>(format!("done {step}")) })
                .await?;
            micros += u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        }
        Ok::<_, Error>(micros)
    });
    let micros: u64 = engine.start("steps", steps, WorkflowOptions::with_id("measured")).await?.result().await?;
    println!("{micros}");
    Ok(())
}
