//! A script inside a program that has an engine already: it uses that engine, and leaves it running.
//!
//! `cargo run -p snakepit --example embedded`

use snakepit::{CallError, Pool, ScriptError, Snakepit, args};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.py");
    let pit = Snakepit::builder().pool(Pool::python(worker).workers(1)).start_global().await?;

    println!("a library adds: {}", library(1, 2).await?);
    println!("and one with a pool of its own: {}", library_with_pool(worker, 3, 4).await?);
    println!("the program goes on: {}", pit.call::<String>("greet", args! { name: "World" }).await?);

    pit.stop().await;
    Ok(())
}

/// Does not know who started the engine, and does not need to.
async fn library(a: i64, b: i64) -> Result<i64, ScriptError<CallError>> {
    snakepit::script(Snakepit::builder()).run(async |pit| pit.call("add", args! { a: a, b: b }).await).await
}

/// Has a pool of its own, which ends with the script; the program's is not touched.
async fn library_with_pool(worker: &str, a: i64, b: i64) -> Result<i64, ScriptError<CallError>> {
    let pool = Pool::python(worker).name("own").workers(1);
    snakepit::script(pool).run(async |pit| pit.call("add", args! { a: a, b: b }).await).await
}
