//! Calls `examples/grpc/stranger.py`, a worker without the SDK:
//! `STRANGER=venv/bin/python cargo run -p snakepit --features grpc --example stranger`

use snakepit::adapter::GrpcWorker;
use snakepit::{Snakepit, args, grpc};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let python = std::env::var("STRANGER").unwrap_or_else(|_| "python3".into());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grpc/stranger.py");
    let pit = Snakepit::builder().pool(grpc(GrpcWorker::command([&*python, file]))).start().await?;
    let greeting: String = pit.call("greet", args! { name: "World" }).await?;
    println!("{greeting}");
    pit.stop().await;
    Ok(())
}
