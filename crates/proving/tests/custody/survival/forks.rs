//! A library forks the host. Whatever the copy does, the engine continues to serve.

use super::EmbedderProcess;

#[test]
fn a_forked_copy_that_exits_stops_or_drops_leaves_the_engine_alone() {
    for how in ["exit", "exit-now", "exit-in-order", "drop", "stop", "cleanup"] {
        for runtime in ["runtime=multi", "runtime=current"] {
            let way = format!("how={how}");
            let ended = EmbedderProcess::start(&["fork", &way, runtime]).end();
            let expected = ["the copy ended with 5", "served"];
            assert_eq!(ended.said(), expected, "{how}, {runtime}: {:#?}", ended.lines);
            assert_eq!(ended.status, Some(0), "{how}");
        }
    }
}
