//! Commands that fork: a child of a gRPC server lacks the server's threads and inherits its locks.
//!
//! About `crates/adapters/src/grpc/handle.rs`.

use snakepit::adapter::{GrpcWorker, PythonWorker};
use snakepit::{PoolOptions, Value, args};

use crate::support::{Pit, rounds, runs, soon, until};

fn pool() -> PoolOptions {
    let worker = PythonWorker::new(super::file("forks.py")).interpreter(super::python());
    snakepit::grpc(GrpcWorker::python(worker)).workers(1).concurrency(4)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_child_of_a_command_sends_nothing_in_its_name() {
    let pit = Pit::start(pool()).await;
    for round in 0..rounds(40) {
        let fork = async {
            let ways = [("leave", 7), ("exit", 3), ("raise", 1), ("return", 0), ("tell", 9)];
            let (way, expected) = ways[round % ways.len()];
            let status: i64 = soon("a fork", pit.call("fork", args! { way: way })).await.expect("a status");
            assert_eq!(status, expected, "{way}");
        };
        let others = async {
            for number in 0..20 {
                let echoed: i64 =
                    soon("an echo", pit.call("echo", args! { value: number })).await.expect("an echo");
                assert_eq!(echoed, number);
            }
        };
        let (said, (), ()) = tokio::join!(pit.call::<String>("program", args! {}), fork, others);
        assert_eq!(said.expect("a program"), "said");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_multiprocessing_work_and_those_that_are_left_end_with_their_worker() {
    let pit = Pit::start(pool()).await;
    let mut left = Vec::new();
    for way in ["fork", "spawn", "forkserver"] {
        let squares: Vec<i64> =
            soon("a pool", pit.call("pool", args! { method: way })).await.expect("squares");
        assert_eq!(squares, [0, 1, 4, 9, 16], "{way}");
    }
    for way in ["fork", "spawn", "forkserver", "fork in a session of its own"] {
        let pid: u32 = soon("a process", pit.call("leave", args! { way: way })).await.expect("a pid");
        assert!(runs(pid), "{way}");
        left.push(pid);
    }
    let echoed: Value = pit.call("echo", args! { value: 1 }).await.expect("an echo");
    assert_eq!(echoed, Value::from(1));
    pit.end().await;
    until("all of them are gone", || !left.iter().any(|pid| runs(*pid))).await;
}
