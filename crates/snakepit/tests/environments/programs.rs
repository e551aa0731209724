//! Environments for programs without the SDK that speak lines of JSON or HTTP.
//!
//! About `crates/adapters/src/program.rs` and `crates/environments/src/build.rs`.

use std::path::PathBuf;

use snakepit::adapter::Program;
use snakepit::environment::{Cache, CachedEnvironmentState};
use snakepit::{PoolOptions, Value, args};

use crate::build::refused;
use crate::packages::PackageIndex;
use crate::support::{Pit, soon};

const LINES: &str = r#"
import json, os, sys
import tiny_package
print('{"status":"ready"}', flush=True)
for line in sys.stdin:
    call = json.loads(line)
    where = {"version": tiny_package.VERSION, "prefix": sys.prefix, "home": os.environ["VIRTUAL_ENV"]}
    print(json.dumps({"id": call["id"], "result": where}), flush=True)
"#;

const SERVER: &str = r#"
import http.server, json, os, sys
import tiny_package

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        where = {"version": tiny_package.VERSION, "prefix": sys.prefix, "home": os.environ["VIRTUAL_ENV"]}
        body = json.dumps(where).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"status": "ready", "port": server.server_port}), flush=True)
server.serve_forever()
"#;

fn program(index: &PackageIndex, name: &str, code: &str) -> Program {
    let file: PathBuf = index.file(name, code);
    let environment = index.environment().requirements(["tiny-package==1.0"]);
    Program::new([PathBuf::from("python"), file]).environment(environment)
}

async fn works_in_its_environment(index: &PackageIndex, pool: PoolOptions) {
    assert!(pool.environment().expect("what is made ahead").installs());
    let pit = Pit::start(pool.workers(1)).await;
    let place: Value = soon("the call", pit.call("where", args! {})).await.expect("a place");
    let told = |key| place.get(key).and_then(Value::as_str).expect("a text").to_owned();
    assert_eq!(told("version"), "1.0");
    assert!(PathBuf::from(told("prefix")).starts_with(index.cache()), "{place:?}");
    assert_eq!(told("prefix"), told("home"));
    assert_eq!(Cache::at(index.cache()).list().expect("a list")[0].state, CachedEnvironmentState::InUse);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_speaks_lines_finds_what_is_installed_for_it() {
    let index = PackageIndex::new();
    works_in_its_environment(&index, snakepit::stdio(program(&index, "lines.py", LINES))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_serves_http_finds_what_is_installed_for_it() {
    let index = PackageIndex::new();
    works_in_its_environment(&index, snakepit::http(program(&index, "server.py", SERVER))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_installed_is_found_by_its_name() {
    let index = PackageIndex::new();
    let environment = index.environment().requirements(["tiny-package==1.0"]);
    // It is not a worker: its output before it ends shows that it was started.
    let told = refused(snakepit::command(Program::new(["tiny"]).environment(environment)).workers(1)).await;
    assert!(told.contains("tiny 1.0"), "{told}");
}
