//! A host: two workers, a call, a stream and an error.
//!
//! `cargo run -p snakepit --example hello`

use futures_util::StreamExt;
use snakepit::{Snakepit, args, python};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(2)).start().await?;

    let greeting: String = pit.call("greet", args! { name: "World" }).await?;
    println!("{greeting}");

    let mut numbers = pit.stream::<u32>("count", args! { to: 3 }).open()?;
    while let Some(number) = numbers.next().await {
        println!("{}", number?);
    }

    if let Err(error) = pit.call::<i64>("add", args! { a: 1, b: "two" }).await {
        println!("{error}");
    }

    pit.stop().await;
    Ok(())
}
