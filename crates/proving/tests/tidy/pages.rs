//! What pages say of tests, of other libraries and of measurements is found where they say.

use std::fs;

use super::{assert_none, collect, offenders, root};

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the code spans of a text.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| line.starts_with("| ")).map(cells)
}

/// Reports whether a name is that of a test: words in lower case, joined by underscores.
fn names_a_test(span: &str) -> bool {
    span.matches('_').count() > 1 && span.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[test]
fn the_tests_that_the_compatibility_page_names_exist() {
    let page = page("docs/compatibility.md");
    let named: Vec<&str> = code_spans(&page).filter(|span| names_a_test(span)).collect();
    assert!(named.len() > 15, "{named:?}");
    let functions = offenders(|source| {
        let lines = source.text.lines().filter_map(|line| line.split_once("fn ")?.1.split_once('('));
        lines.map(|(name, _)| name.to_owned()).collect()
    });
    let mut python = Vec::new();
    collect(&root().join("python/tests"), "py", &mut python);
    let python: Vec<String> =
        python.iter().map(|path| fs::read_to_string(path).expect("readable source")).collect();
    let exists = |name: &str| {
        functions.iter().any(|function| function == name)
            || python.iter().any(|tests| tests.contains(&format!("\ndef {name}(")))
    };
    let missing: Vec<String> = named.into_iter().filter(|name| !exists(name)).map(str::to_owned).collect();
    assert_none(&missing, "docs/compatibility.md names these tests, which do not exist");
}

/// The names that the specifications of Snakepit for Elixir and of weakincentives use.
const OTHER_NAMES: &str = "
    run_as_script/2 :exit_mode :none :halt :stop :auto :stop_mode :if_started :always :never :await_pool
    SNAKEPIT_SCRIPT_EXIT SNAKEPIT_SCRIPT_HALT --no-halt :init.get_argument ArgumentError status System.halt/1
    System.stop/1 Process.sleep owned? Application.ensure_all_started/1 Application.stop mix Snakepit.Shutdown
    Snakepit.Examples.Bootstrap.run_example/2 script.shutdown.start :io.put_chars :io.format Logger
    Snakepit.Application.start snakepit/application.ex Snakepit.Application.stop/1 Snakepit.cleanup/0 RuntimeCleanup
    ProcessRegistry Snakepit.Pool.PIDLedger PIDLedger.register_process unregister_process clear register unregister
    GenServer start_link handle_call :dets open_file System.cmd pids_for_run get_all_pids beam_run_id run_id
    current_run_id beam_os_pid os_pid pgid worker_id elixir_pid spawned_at Snakepit.Pool.ApplicationCleanup
    application_cleanup.ex terminate/2 cleanup_orphans spawn_and_track setsid process_group_kill
    kill_with_escalation wait_until_dead WorkerSupervisor Worker.Starter GRPCWorker GenericWorker Snakepit.Pool
    Port.open :spawn_executable Port.info Port.close :exit_status config library_mode log_level grpc_log_level
    log_python_output cleanup_on_stop cleanup_on_stop_timeout_ms cleanup_poll_interval_ms cleanup_retry_interval_ms
    cleanup_max_retries :snakepit, :success :timeout Snakepit.Adapter @behaviour @impl init/1 adapter_state
    start_worker/2 execute/3 wait_for_ready_signal :worker_start_timeout :exited Jason.decode grpc_channel
    port_process grpc_server.py GRPC.Stub.connect DSPex.Runtime.Py.Adapter dspex_runtime_py run_worker.sh venv
    MainLoop EvalLoop MainLoopRequest Message UserRequestT OutputT AnalystLoop MyMainLoop _handle_message Runnable
    run max_iterations visibility_timeout wait_time_seconds shutdown running _running _shutdown_event
    _current_message with AbstractContextManager __enter__ __exit__ LoopGroup shutdown_timeout LoopGroup.run
    install_signals LoopGroup.shutdown _trigger_shutdown ThreadPoolExecutor max_workers threading.Thread
    _handle_signal _instance _callbacks _callbacks_lock _triggered _lock _executor _futures
    ShutdownCoordinator.install signals get trigger triggered coordinator.register Mailbox.send requests.send
    Mailbox.receive acknowledge closed nack ReceiptHandleExpiredError
";

#[test]
fn the_page_on_migrating_has_every_name_of_the_specifications() {
    let page = page("docs/migrating.md");
    let left: Vec<String> =
        rows(&page).flat_map(|row| code_spans(row[0]).map(str::to_owned).collect::<Vec<_>>()).collect();
    // A span may have more than the name, such as arguments.
    let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let has = |name: &str| {
        left.iter().any(|span| {
            let mut places = span.match_indices(name).map(|(at, _)| (&span[..at], &span[at + name.len()..]));
            places.any(|(before, after)| {
                !is_inside(before.chars().next_back()) && !is_inside(after.chars().next())
            })
        })
    };
    let names = OTHER_NAMES.split_whitespace();
    let missing: Vec<String> = names.filter(|name| !has(name)).map(str::to_owned).collect();
    assert_none(&missing, "docs/migrating.md lacks these names in its left columns");
}

/// The participants of the README's table, by the names that docs/bench/calls.md has for them.
const PARTICIPANTS: [(&str, &[&str]); 5] = [
    (
        "the floor: an echo without a library",
        &["raw echo, blocking", "pipelined msgspec echo, no scheduler", "bare python3 that connects back"],
    ),
    ("`multiprocessing.Pool`, from Python", &["mp.Pool", "mp.Pool, forked", "mp.Pool, spawned"]),
    ("`ProcessPoolExecutor`, from Python", &["ProcessPoolExecutor"]),
    ("mosec over HTTP", &["mosec over HTTP"]),
    ("tonic to grpcio (sync)", &["tonic → grpcio sync", "grpcio sync servers"]),
];

/// Returns the figures of a cell, such as `2.78 ms forked, 31.26 ms spawned`, each with the word after it.
fn figures(cell: &str) -> Vec<(String, &str)> {
    let parts = cell.split(", ").filter(|part| *part != "–");
    parts
        .map(|part| match part.split_once("s ") {
            Some((figure, variant)) => (format!("{figure}s"), variant),
            None => (part.to_owned(), ""),
        })
        .collect()
}

#[test]
fn the_figures_of_the_readme_are_those_of_the_pages_that_it_cites() {
    let readme = page("README.md");
    let calls = page("docs/bench/calls.md");
    let measured: Vec<Vec<&str>> = rows(&calls).collect();
    let (_, section) = readme.split_once("\n## How fast it is\n").expect("the section");
    let (before, table) = section.split_once("\n\n|").expect("a table");
    let (table, after) = table.split_once("\n\n").expect("the end of the table");
    let columns: Vec<&str> = code_spans(before).collect();
    assert_eq!(columns.len(), 3, "{columns:?}");
    let mut found = Vec::new();
    for row in rows(table).filter(|row| row.len() == 4) {
        let peers = PARTICIPANTS.iter().find(|(name, _)| *name == row[0]).map(|(_, peers)| *peers);
        if peers.is_none() && row[0] != "Snakepit" {
            found.push(format!("{} is not in PARTICIPANTS", row[0]));
        }
        for (column, cell) in columns.iter().zip(&row[1..]) {
            for (figure, variant) in figures(cell) {
                let is_measured = measured.iter().filter(|line| line[0] == *column).any(|line| match peers {
                    None => line[1].split(' ').take(2).collect::<Vec<_>>().join(" ").starts_with(&figure),
                    Some(peers) => {
                        line[2].starts_with(&figure) && peers.contains(&line[3]) && line[3].ends_with(variant)
                    }
                });
                if !is_measured {
                    found.push(format!("{}, {column}: {figure} {variant}", row[0]));
                }
            }
        }
    }
    // One figure more, in the sentence below the table.
    let custody = page("docs/bench/custody.md");
    let row =
        code_spans(after).find(|span| span.starts_with("kill -9 of the host →")).expect("the row of custody");
    let (_, rest) = after.split_once("the last process is gone in ").expect("the sentence");
    let figure = rest.split(" (").next().unwrap_or_default();
    if !rows(&custody).any(|line| line[0] == row && line[1].starts_with(&format!("{figure} ("))) {
        found.push(format!("{row}: {figure}"));
    }
    assert_none(&found, "README.md has figures that the pages do not have");
}
