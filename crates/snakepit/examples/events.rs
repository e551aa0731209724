//! Writes one line of JSON for each event of an engine: `cargo run -p snakepit --example events`.

use std::error::Error;
use std::io::Write as _;

use snakepit::telemetry::{self, Event};
use snakepit::{Snakepit, args, python};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut events = telemetry::subscribe();
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(1)).start().await?;
    let _: String = pit.call("greet", args! { name: "World" }).await?;
    pit.stop().await;
    events.drain().iter().try_for_each(write_line)
}

fn write_line(event: &Event) -> Result<(), Box<dyn Error>> {
    writeln!(std::io::stdout(), "{}", serde_json::to_string(event)?)?;
    Ok(())
}
