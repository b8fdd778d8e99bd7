//! The built-in tool server over its standard input and output, in the folder that is its only argument; the tests of this
//! crate compare it with the same server over HTTP.

use std::error::Error;

use ua_toolserver::{Settings, serve_stdio};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let workspace = std::env::args().nth(1).ok_or("name a folder")?;
    Ok(serve_stdio(Settings::in_workspace(workspace)).await?)
}
