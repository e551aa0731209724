//! An engine that is configured by a file.

use snakepit::{Config, args};

use crate::support::{self, Pit};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_becomes_an_engine_with_its_pools() {
    let home = tempfile::tempdir().expect("a directory");
    let worker = support::python("basic.py").file().expect("a file");
    let text = format!(
        "[pool.one]\nworker = {worker:?}\nworkers = 1\n\n[pool.two]\nworker = {worker:?}\nworkers = 2\n"
    );
    let file = home.path().join("snakepit.toml");
    std::fs::write(&file, text).expect("a configuration");
    let config = Config::load(&file).expect("a configuration");
    let pit = Pit::build(config.builder()).await;
    let names: Vec<&str> = pit.pools().iter().map(snakepit::Pool::name).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(pit.pools()[1].workers().len(), 2);
    let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).pool("two").await.expect("a sum");
    assert_eq!(sum, 3);
    pit.end().await;
}
