//! A script inside a program that already has an engine: it uses that engine, and leaves it running.
//!
//! `cargo run -p snakepit --example embedded`

use std::io::{self, Write};

use snakepit::{CallError, ScriptError, Snakepit, args, python};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(python(worker).workers(1)).start_global().await?;

    say(&format!("a library adds: {}", library(1, 2).await?));
    say(&format!("and one with a pool of its own: {}", library_with_pool(worker, 3, 4).await?));
    say(&format!("the program goes on: {}", pit.call::<String>("greet", args! { name: "World" }).await?));

    pit.stop().await;
    Ok(())
}

/// Prints a line. Unlike `println!`, does not panic if the output has no reader any more.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Does not know which code started the engine, and does not need to.
async fn library(a: i64, b: i64) -> Result<i64, ScriptError<CallError>> {
    snakepit::script(Snakepit::builder()).run(async |pit| pit.call("add", args! { a: a, b: b }).await).await
}

/// Has a pool of its own, which ends with the script. The pool of the program is not affected.
async fn library_with_pool(worker: &str, a: i64, b: i64) -> Result<i64, ScriptError<CallError>> {
    let pool = python(worker).name("own").workers(1);
    snakepit::script(pool).run(async |pit| pit.call("add", args! { a: a, b: b }).await).await
}
