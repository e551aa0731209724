//! The errors of all keys and values that a configuration cannot have.

use snakepit_error_texts::ErrorTexts;

use super::{Config, refusal};

/// Adds the error of each text, below a beginning that they share.
fn add(texts: &mut ErrorTexts, beginning: &str, wrong: &[&str]) {
    for keys in wrong {
        let said = refusal(&format!("{beginning}\n{keys}\n"));
        let said = said.strip_prefix("/conf/snakepit.toml").expect("the file");
        texts.add_text(&keys.replace('\n', " | "), &said);
    }
}

#[test]
fn every_wrong_key_and_value_is_refused_with_its_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    add(
        &mut texts,
        "",
        &[
            "",
            "[pool.math]\nworker = ",
            "[pools.math]\nworker = \"w.py\"",
            "[pool.math]\nworkers = 1",
            "[pool.math]\nworker = \"\"",
            "[pool.math]\nworker = \"w.py\"\ncommand = [\"w\"]",
            "[pool.math]\nworker = \"w.py\"\nadapter = \"socket\"",
            "[pool.math]\ncommand = []",
            "[pool.math]\ncommand = [\"w\"]\nadapter = \"python\"",
            "[pool.math]\ncommand = [\"w\"]\ninterpreter = \"python3\"",
            "[pool.math]\ncommand = [\"w\"]\npython = \"3.12\"",
            "[pool.math]\ncommand = [\"w\"]\nhttp = { prefix = \"/api\" }",
            "[pool.math]\ncommand = [\"w\"]\ngrpc = { over = \"tcp\" }",
        ],
    );
    keys_of_pools(&mut texts);
    keys_of_http(&mut texts);
    let pool = "[pool.a]\nworker = \"w.py\"";
    add(&mut texts, &format!("{pool}\n[custody]"), &["xyzzy = 1", "containment = \"prison\""]);
    add(&mut texts, &format!("{pool}\n[log]"), &["log_level = \"loud\"", "library_mode = 1"]);
    insta::assert_snapshot!(texts);
}

fn keys_of_pools(texts: &mut ErrorTexts) {
    add(
        texts,
        "[pool.a]\nworker = \"w.py\"",
        &[
            "workres = 3",
            "cancel_grace = { aks = \"1s\" }",
            "call_timeout = 5",
            "call_timeout = 1.5",
            "call_timeout = true",
            "call_timeout = \"soon\"",
            "call_timeout = \"-5s\"",
            "max_frame = \"5 elephants\"",
            "max_frame = -1",
            "max_frame = []",
            "workers = 0",
            "workers = \"many\"",
            "lazy = \"yes\"",
            "env = 3",
            "affinity = \"sticky\"",
            "affinity = \"strict_que\"",
            "adapter = \"smoke\"",
            "workers = 2\nmax_workers = 4",
            "min_workers = 2",
            "min_workers = 5\nmax_workers = 4",
            "max_workers = 0",
            "grow_after = \"1s\"",
            "concurrency = 2\nadaptive_concurrency = [1, 4]",
            "adaptive_concurrency = [4, 1]",
            "stuck = { then = \"kill\" }",
            "restarts = { often = 1 }",
            "python = \"\"",
            "interpreter = \"a\"\npython = \"3.12\"",
            "requirements = [\"a\"]\nproject = \"b\"",
            "requirements = 3",
            "gpus = \"some\"",
            "gpus = \"all\"\ndevices = [\"a\"]",
            "threads = 0",
            "threads = \"many\"",
            "install = { tol = \"uv\" }",
            "install = { tool = \"conda\" }",
            "adapter = \"grpc\"\ngrpc = { over = \"udp\" }",
        ],
    );
}

fn keys_of_http(texts: &mut ErrorTexts) {
    add(
        texts,
        "[pool.a]\ncommand = [\"w\"]\nadapter = \"http\"\n[pool.a.http]",
        &[
            "method = \"FETCH\"",
            "port = 8000",
            "ready = \"port\"\nport = 0",
            "ready = \"soon\"",
            "ready = { probe = \"healthz\" }",
            "routes.get = { path = \"/\" }",
            "routes.get = { method = \"FETCH\", path = \"/\" }",
            "routes.get = { method = \"GET\", path = \"/\", qurey = [] }",
            "routes.get = { method = \"GET\", path = \"items\" }",
            "routes.get = { method = \"GET\", path = \"/\", headers = { snakepit-secret = \"x\" } }",
            "routes.get = { method = \"GET\", path = \"/\", body = \"xml\" }",
        ],
    );
}

#[test]
fn every_wrong_loop_and_service_is_refused_with_its_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    let pool = "[pool.example]\nworker = \"w.py\"";
    add(
        &mut texts,
        &format!("{pool}\n[loop.naps]"),
        &["command = \"nap\"", "mailbox = \"sqlite:a.db\"", "mailbox = \"a.db\"\ncommand = \"nap\""],
    );
    add(
        &mut texts,
        &format!("{pool}\n[loop.naps]\nmailbox = \"sqlite:a.db\"\ncommand = \"nap\""),
        &["comand = 1", "concurrency = 0", "call_timeout = 5", "reply = \"maybe\"", "pool = \"exmaple\""],
    );
    add(
        &mut texts,
        &format!("{pool}\n[service]"),
        &["health = \"localhost\"", "health = 70000", "shutdown = \"1s\""],
    );
    let config = |text: &str| Config::parse(text, "snakepit.toml").expect("a configuration");
    texts.add("no loop", &config(pool).loops_named::<&str>(&[]).expect_err("no loop"));
    let naps = config(&format!("{pool}\n[loop.naps]\nmailbox = \"sqlite:/none.db\"\ncommand = \"nap\""));
    texts.add("no such loop", &naps.loops_named(&["nasp"]).expect_err("no such loop"));
    texts.add("no mailbox", &naps.loops()[0].check_mailbox().expect_err("no file"));
    insta::assert_snapshot!(texts);
}
