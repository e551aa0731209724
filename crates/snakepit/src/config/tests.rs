//! Configuration files that are accepted, and files that are rejected with their errors.

use super::*;
use crate::custody;
use crate::telemetry::LogLevel;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "/conf/snakepit.toml").map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    parse(text).err().unwrap_or_else(|| panic!("this was read:\n{text}"))
}

/// Returns all that a pool's keys set, except how its workers are started.
fn settings(pool: &PoolOptions) -> String {
    format!("{:?}", **pool)
}

/// Returns the keys that a table may have, taken from the error for an unknown key.
fn known_keys(table: &str) -> Vec<String> {
    let text = format!("{table}\n\"?\" = 1\n");
    let file = toml::Deserializer::parse(&text).expect("TOML");
    let error = <Root as serde::Deserialize>::deserialize(file).err().expect("an unknown key");
    let (_, known) = error::unknown(error.message()).expect("the known keys");
    known.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_reference_file_states_the_defaults() {
    let config = parse(Config::REFERENCE).expect("the reference");
    let pool = config.pool("example").expect("its pool");
    assert_eq!(settings(pool), settings(&crate::python("worker.py")));
    assert_eq!(format!("{:?}", config.custody()), format!("{:?}", custody::CustodyOptions::default()));
    assert_eq!(config.logging(), Logging::default());
}

#[test]
fn the_reference_mentions_every_key_and_no_other() {
    let lines: Vec<&str> = Config::REFERENCE.lines().map(|line| line.trim_start_matches('#')).collect();
    let mut tables = 0;
    for (table, fewest) in [("[pool.example]", 39), ("[custody]", 10), ("[log]", 4)] {
        let mut keys = known_keys(table);
        assert!(keys.len() >= fewest, "{keys:?}");
        tables += keys.len();
        keys.retain(|key| !lines.iter().any(|line| line.starts_with(&format!("{key} = "))));
        assert!(keys.is_empty(), "default.toml does not mention {keys:?} of {table}");
    }
    let mentioned = Config::REFERENCE.lines().filter(|line| is_setting(line)).count();
    assert_eq!(mentioned, tables);
}

fn is_setting(line: &str) -> bool {
    let key = line.trim_start_matches('#').split(" = ").next().unwrap_or_default();
    line.contains(" = ") && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn commented_keys_of_the_reference_can_be_enabled() {
    // Some keys exclude each other: `worker` and `command`, `command` and `interpreter`, a fixed size and a size that
    // follows the load.
    const LOAD: [&str; 5] =
        ["min_workers", "max_workers", "grow_after", "grow_factor", "adaptive_concurrency"];
    const PYTHON: [&str; 5] = ["interpreter", "python", "requirements", "project", "install"];
    let fixed =
        ["worker", "adapter", "http", "grpc"].into_iter().chain(PYTHON).chain(LOAD).collect::<Vec<_>>();
    for leave_out in
        [vec!["command", "workers", "concurrency", "http", "grpc", "interpreter", "project"], fixed]
    {
        let kept = |line: &&str| {
            !leave_out.iter().any(|key| line.trim_start_matches('#').starts_with(&format!("{key} =")))
        };
        let said = |line| if is_setting(line) { line.trim_start_matches('#') } else { line };
        let text: Vec<&str> = Config::REFERENCE.lines().filter(kept).map(said).collect();
        let config = parse(&text.join("\n")).expect("every key");
        let pool = &config.pools()[0];
        assert!(pool.workers == 4 || pool.sizing == Some(crate::policy::Sizing::between(1, 8)));
        assert_eq!(config.custody().state_dir.as_deref(), Some(Path::new("/conf/state")));
        assert_eq!(config.logging(), Logging::default().log_level(LogLevel::Warning).hide_output());
    }
}

#[test]
fn every_log_key_is_read_and_missing_ones_follow_the_mode() {
    let read =
        |keys: &str| parse(&format!("[pool.a]\nworker = \"w.py\"\n[log]\n{keys}\n")).map(|it| it.logging());
    assert_eq!(read("library_mode = false"), Ok(Logging::default().for_program()));
    let said =
        "library_mode = false\nlog_level = \"debug\"\ngrpc_log_level = \"off\"\nlog_python_output = false";
    let heard = Logging::default()
        .for_program()
        .log_level(LogLevel::Debug)
        .grpc_log_level(LogLevel::Off)
        .hide_output();
    assert_eq!(read(said), Ok(heard));
    let refused = read("log_level = \"loud\"").expect_err("no level");
    assert!(refused.contains("log.log_level") && refused.contains("warning"), "{refused}");
}

#[test]
fn pools_keep_the_order_of_the_file() {
    let names = ["zebra", "middle", "ant"];
    let text: String = names.map(|name| format!("[pool.{name}]\nworker = \"w.py\"\n")).concat();
    assert_eq!(parse(&text).expect("pools").names().collect::<Vec<_>>(), names);
}

#[test]
fn an_adapter_that_is_not_in_the_build_is_named() {
    let adapters = [
        ("stdio", cfg!(feature = "stdio")),
        ("http", cfg!(feature = "http")),
        ("grpc", cfg!(feature = "grpc")),
    ];
    for (name, is_there) in adapters {
        for what in ["worker = \"w.py\"", "worker = \"package.worker\"", "command = [\"./w\", \"-x\"]"] {
            let parsed = parse(&format!("[pool.math]\n{what}\nadapter = \"{name}\"\n"));
            match parsed {
                Ok(config) => assert!(is_there && config.pool("math").is_some()),
                Err(said) => assert!(!is_there && said.contains("turn on the feature"), "{said}"),
            }
        }
    }
    if cfg!(feature = "http") {
        let http = "[pool.math]\nworker = \"w.py\"\nadapter = \"http\"\nhttp = { prefix = \"/api\", method = \"PUT\" }\n";
        assert!(parse(http).is_ok());
        let said = refusal(&http.replace("PUT", "FETCH"));
        assert!(said.contains("POST"), "{said}");
    }
    if cfg!(feature = "grpc") {
        let grpc = "[pool.math]\nworker = \"w.py\"\nadapter = \"grpc\"\ngrpc = { over = \"tcp\" }\n";
        assert!(parse(grpc).is_ok() && parse(&grpc.replace("tcp", "unix")).is_ok());
        let said = refusal(&grpc.replace("tcp", "udp"));
        assert!(said.contains("unix") && said.contains("tcp"), "{said}");
        let said = refusal(&grpc.replace("\"grpc\"", "\"python\""));
        assert!(said.contains("add adapter = \"grpc\""), "{said}");
    }
    let said = refusal("[pool.math]\nworker = \"w.py\"\nadapter = \"smoke\"\n");
    assert!(said.contains("stdio"), "{said}");
}

#[cfg(feature = "http")]
#[test]
fn routes_and_readiness_are_read() {
    let read = |keys: &str| {
        parse(&format!("[pool.a]\ncommand = [\"w\"]\nadapter = \"http\"\n[pool.a.http]\n{keys}\n"))
    };
    for keys in [
        "ready = \"line\"",
        "ready = \"port\"\nport = 8000",
        "ready = { probe = \"/healthz\" }",
        "routes.get = { method = \"GET\", path = \"/items/{id}\", query = [\"limit\"], headers = { authorization = \"Bearer {token}\" } }",
        "routes.put = { method = \"PUT\", path = \"/f\", body = { bytes = { argument = \"data\", content_type = \"image/png\" } } }",
        "routes.put = { method = \"PUT\", path = \"/f\", body = { bytes = { argument = \"data\" } } }",
        "routes.form = { method = \"POST\", path = \"/\", body = \"form\" }",
        "routes.poke = { method = \"POST\", path = \"/\", body = \"none\", events = \"full\" }",
        "routes.\"a.b\" = { method = \"DELETE\", path = \"/\", body = \"json\", events = \"text\" }",
    ] {
        assert!(read(keys).is_ok(), "{keys}: {:?}", read(keys).err());
    }
}

#[test]
fn a_missing_file_invalid_toml_and_a_file_without_pools_are_named() {
    let said = refusal("[pool.math]\nworker = \n");
    assert!(said.starts_with("/conf/snakepit.toml:2: this is not TOML: "), "{said}");
    assert!(refusal("").contains("there is no pool: add a table [pool.NAME]"));
    let error = Config::load("/no/such/file.toml").expect_err("no file");
    assert_eq!(
        error.to_string(),
        "cannot read the configuration /no/such/file.toml: check its path and permissions"
    );
}

#[test]
fn sizes_and_durations_carry_their_units() {
    let text = "[pool.a]\nworker = \"w.py\"\nmax_frame = \"64KiB\"\ncall_timeout = \"1m 30s\"\n";
    let config = parse(text).expect("a pool");
    assert_eq!(config.pools()[0].max_frame, 64 << 10);
    assert_eq!(config.pools()[0].call_timeout, std::time::Duration::from_secs(90));
}

#[test]
fn every_supervision_key_is_read() {
    let text = r#"
        [pool.a]
        worker = "worker.py"
        min_workers = 2
        max_workers = 7
        grow_after = "10ms"
        idle_ttl = "5s"
        adaptive_concurrency = [2, 9]
        max_requests = 100
        ttl = "1h"
        max_rss = "1GiB"
        recycle_jitter = 0.5
        replace_at_once = 3
        lazy = true
        warm_up = [{ command = "load", args = { model = "small" } }, { command = "again" }]
        devices = ["cuda:0", "cuda:1"]
        restarts = { failures = 9 }
        retry = { attempts = 5 }
        quarantine = { enabled = false }
        breaker = { failures = 3 }
        taint = { patterns = ["wedged"] }
        stuck = { after = "5s", then = "replace" }
    "#;
    let config = parse(text).expect("a configuration");
    let pool = config.pool("a").expect("its pool");
    assert_eq!(
        pool.sizing,
        Some(
            crate::policy::Sizing::between(2, 7)
                .grow_after(std::time::Duration::from_millis(10))
                .idle_ttl(std::time::Duration::from_secs(5))
        )
    );
    let recycling = crate::policy::Recycling::default()
        .max_requests(100)
        .ttl(std::time::Duration::from_hours(1))
        .max_rss(1 << 30)
        .jitter(0.5);
    assert_eq!(pool.recycling, recycling);
    assert_eq!((pool.adaptive_concurrency, pool.concurrency, pool.replace_at_once), (Some((2, 9)), 9, 3));
    assert_eq!((pool.lazy, pool.debug, pool.warm_up.len(), pool.devices.len()), (true, false, 2, 2));
    assert_eq!(pool.restarts, crate::policy::Restarts::default().failures(9));
    assert!(pool.quarantine.if_enabled().is_none() && pool.breaker.is_some());
    assert_eq!(pool.taint, crate::policy::Taint::default().pattern("wedged"));
    let stuck = crate::policy::Stuck::default()
        .after(std::time::Duration::from_secs(5))
        .then(crate::policy::WhenStuck::Replace);
    assert_eq!(pool.stuck, stuck);
}

#[test]
fn every_key_about_python_and_hardware_is_read() {
    let text = r#"
        [pool.a]
        worker = "worker.py"
        python = "3.12"
        requirements = "requirements.txt"
        install = { tool = "pip", args = ["--no-index"], cache_dir = "envs", timeout = "5m" }
        gpus = [0, "GPU-1a"]
        threads = 3
    "#;
    let config = parse(text).expect("a configuration");
    let pool = &config.pools()[0];
    let environment = pool.environment().expect("a Python worker");
    assert!(environment.installs());
    let said = format!("{environment:?}");
    for part in ["Version(\"3.12\")", "/conf/requirements.txt", "--no-index", "/conf/envs", "Pip", "300s"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(pool.gpus, Some(crate::hardware::Gpus::These(vec!["0".into(), "GPU-1a".into()])));
    assert_eq!(pool.threads, crate::hardware::Threads::Each(3));
    let words = "[pool.a]\nworker = \"w.py\"\ngpus = \"one-per-worker\"\nthreads = \"off\"\n";
    let config = parse(words).expect("words");
    assert_eq!(config.pools()[0].gpus, Some(crate::hardware::Gpus::OnePerWorker));
    assert_eq!(config.pools()[0].threads, crate::hardware::Threads::Unlimited);
    assert!(!config.pools()[0].environment().expect("a Python worker").installs());
}

#[test]
fn environment_keys_are_read_for_every_kind_of_worker() {
    let keys = "python = \"3.12\"\nrequirements = [\"fastapi\"]";
    for launch in ["command = [\"uvicorn\", \"app:app\"]", "worker = \"w.py\"", "worker = \"package.worker\""]
    {
        for adapter in ["", "adapter = \"stdio\"", "adapter = \"http\""] {
            if adapter.contains("stdio") && !cfg!(feature = "stdio")
                || adapter.contains("http") && !cfg!(feature = "http")
            {
                continue;
            }
            let config = parse(&format!("[pool.a]\n{launch}\n{adapter}\n{keys}\n")).expect("a configuration");
            let environment = config.pools()[0].environment().expect("an environment");
            assert!(environment.installs());
            assert!(format!("{environment:?}").contains("Version(\"3.12\")"), "{environment:?}");
        }
    }
    let plain = parse("[pool.a]\ncommand = [\"w\"]\n").expect("a configuration");
    assert!(plain.pools()[0].environment().is_none());
}

#[cfg(all(feature = "grpc", feature = "http", feature = "loops", feature = "sqlite"))]
mod errors;
#[cfg(all(feature = "loops", feature = "sqlite"))]
mod loops;
#[cfg(all(feature = "loops", feature = "sqlite"))]
mod reference;
