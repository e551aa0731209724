//! `snakepit env`, and calls that need an environment. An environment is built once, and either completely or not at
//! all, whichever process is killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::pty::Pty;
use crate::support::{self, Done, MOMENT, PATIENCE, Running, Scene, ends_until, finish};

/// A scene with packages that exist nowhere else, and a directory for environments.
struct PackageIndex {
    scene: Scene,
    home: tempfile::TempDir,
}

impl PackageIndex {
    fn new() -> Self {
        let index = Self { scene: Scene::new(), home: tempfile::tempdir().expect("a directory") };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snakepit/tests/workers/packages.py");
        finish(index.scene.command("python3").arg(script).arg(index.home.path().join("packages")))
            .assert_status(0);
        index
    }

    fn env(&self, verb: &str) -> Command {
        let mut command = self.scene.command(env!("CARGO_BIN_EXE_snakepit"));
        command
            .args(["env", verb, "--cache-dir", "envs"])
            .current_dir(self.home.path())
            .env("SNAKEPIT_STATE_DIR", self.scene.state_dir());
        command
    }

    fn build(&self, package: &str) -> Command {
        let mut command = self.env("build");
        command.args([
            "--install-arg=--no-index",
            "--install-arg=--no-cache-dir",
            "--install-arg=--find-links",
            "--install-arg=packages",
            package,
        ]);
        command
    }

    fn list(&self) -> Vec<Value> {
        let done = finish(self.env("list").arg("--json"));
        let list: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
        list["environments"].as_array().expect("a list").clone()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Asserts that the environment contains everything that the package consists of.
    fn assert_works(&self, environment: &Value, package: &str) {
        let python = Path::new(environment["path"].as_str().expect("a path")).join("bin/python");
        let look = format!("import {package}; print({package}.VERSION)");
        let mut command = self.scene.command(&python.to_string_lossy());
        finish(command.args(["-I", "-c", &look])).assert_status(0);
    }
}

#[test]
fn an_environment_is_built_listed_used_and_pruned() {
    let index = PackageIndex::new();
    let empty = finish(&mut index.env("list"));
    assert!(empty.assert_status(0).stdout.starts_with("There are no environments in "), "{}", empty.stdout);
    let built = finish(&mut index.build("tiny-package<2"));
    assert!(built.assert_status(0).stdout.ends_with("(made)\n"), "{}", built.stdout);
    assert!(built.stderr.contains("step 3 of 4: "), "{}", built.stderr);
    let again = finish(&mut index.build("tiny-package<2"));
    assert!(again.assert_status(0).stdout.ends_with("(was there)\n"), "{}", again.stdout);
    assert_eq!(again.stderr, "");
    let list = index.list();
    assert_eq!((list.len(), list[0]["state"].as_str()), (1, Some("ready")), "{list:?}");
    index.assert_works(&list[0], "tiny_package");
    let shown = finish(&mut index.env("list")).stdout;
    assert!(shown.contains("tiny-package<2") && shown.contains("ready"), "{shown}");
    let kept = finish(index.env("prune").args(["--unused-for", "1h"]));
    assert_eq!(kept.assert_status(0).stdout, "Nothing to remove.\n");
    let pruned = finish(&mut index.env("prune"));
    assert!(pruned.assert_status(0).stdout.starts_with("Removed 1 environment ("), "{}", pruned.stdout);
    assert!(index.list().is_empty());
    index.scene.assert_clean();
}

#[test]
fn a_configuration_names_the_packages_of_its_workers() {
    let index = PackageIndex::new();
    let worker = "import snakepit\n@snakepit.command\ndef version():\n    import tiny_package\n    return tiny_package.VERSION\n";
    std::fs::write(index.path("worker.py"), worker).expect("a worker");
    let config = "[pool.plain]\nworker = \"worker.py\"\n[pool.packed]\nworker = \"worker.py\"\n\
                  requirements = [\"tiny-package<2\"]\n\
                  install = { tool = \"pip\", args = [\"--no-index\", \"--find-links\", \"packages\"], cache_dir = \"envs\" }\n";
    std::fs::write(index.path("snakepit.toml"), config).expect("a configuration");
    let built = finish(&mut index.env("build"));
    assert!(built.assert_status(0).stdout.starts_with("packed: "), "{}", built.stdout);
    let unknown = finish(index.env("build").args(["--pool", "pakced"]));
    assert!(unknown.assert_status(2).stderr.contains("its pools are plain, packed"), "{}", unknown.stderr);
    let call = |pool: &str| {
        let mut call = index.scene.verb("call");
        finish(call.args(["--pool", pool, "version"]).current_dir(index.home.path()))
    };
    assert_eq!(call("packed").assert_status(0).stdout, "1.0\n");
    call("plain").assert_status(1);
    assert_eq!(index.list().len(), 1);
    let mixed = finish(index.env("build").args(["--pool", "packed", "tiny-package"]));
    assert!(mixed.assert_status(2).stderr.contains("cannot be used with"), "{}", mixed.stderr);
    index.scene.assert_clean();
}

#[test]
fn an_environment_built_in_advance_uses_the_variables_of_its_workers() {
    let index = PackageIndex::new();
    let log = index.path("log");
    let config = format!(
        "[pool.slow]\nworker = \"worker.py\"\nrequirements = [\"slow-package\"]\nenv = {{ SLOW_LOG = {log:?} }}\n\
         install = {{ args = [\"--no-index\", \"--find-links\", \"packages\"] }}\n"
    );
    std::fs::write(index.path("snakepit.toml"), config).expect("a configuration");
    finish(&mut index.env("build")).assert_status(0);
    assert_eq!(std::fs::read_to_string(log).expect("it was noted"), "built\n");
    index.scene.assert_clean();
}

/// Runs a build with a different mount for the directory of environments. Returns `None` if mounting is not permitted.
fn build_in(index: &PackageIndex, mount: &str, package: &str, python: &str) -> Option<Done> {
    let dir = index.path("envs");
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut build = index.build(package);
    build.args(["--python", python]);
    let mut command = index.scene.command("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]);
    command.arg(build.get_program()).args(build.get_args()).current_dir(index.home.path());
    command.env("SNAKEPIT_STATE_DIR", index.scene.state_dir());
    let done = finish(&mut command);
    let is_refused = done.stderr.contains("unshare: ") || done.stderr.contains("mount: ");
    if is_refused {
        support::unproven(&format!("nothing can be mounted ({})", done.stderr.trim()));
    }
    (!is_refused).then_some(done)
}

const READ_ONLY: &str = "mount --bind envs envs && mount -o remount,bind,ro envs";

#[test]
fn a_cache_that_is_only_read_serves_what_it_has_and_refuses_the_rest_with_what_to_do() {
    let index = PackageIndex::new();
    finish(&mut index.build("tiny-package<2")).assert_status(0);
    let Some(done) = build_in(&index, READ_ONLY, "tiny-package<2", "python3") else { return };
    assert!(done.assert_status(0).stdout.ends_with("(was there)\n"), "{}", done.stdout);
    let done = build_in(&index, READ_ONLY, "tiny-package>=2", "python3").expect("mounted before");
    assert!(done.assert_status(1).stderr.contains("SNAKEPIT_CACHE_DIR"), "{}", done.stderr);
    assert_eq!(index.list().len(), 1);
    index.scene.assert_clean();
}

/// Every error names its cause and the way out. Debian's `venv` reports any failure of `ensurepip` as a missing
/// package.
#[test]
fn a_full_disk_is_reported_with_the_way_out_at_every_step() {
    let index = PackageIndex::new();
    let of_the_system = Path::new("/usr/bin/python3").exists().then_some("/usr/bin/python3");
    for python in ["python3"].into_iter().chain(of_the_system) {
        // If `pip` is installed outside, none is put into the environment.
        let pip = format!("$({python} -Ic 'import pip; print(pip.__path__[0])')");
        let hide_pip = format!("if {python} -Ic 'import pip'; then mount -t tmpfs none \"{pip}\"; fi");
        for hidden in ["true", &hide_pip] {
            let mut told = 0;
            // From a file system that holds no directory to one that holds most of the package.
            for pages in [1, 4, 16, 64] {
                let mount = format!("{hidden} && mount -t tmpfs -o size={}k,mode=700 none envs", pages * 4);
                let Some(done) = build_in(&index, &mount, "slow-package", python) else { return };
                if done.status.success() {
                    break;
                }
                let said = &done.assert_status(1).stderr;
                assert!(said.contains("snakepit env prune"), "{python}, {hidden}, {pages}: {said}");
                told += 1;
            }
            assert!(told > 0, "{python}, {hidden}: nothing was too small");
        }
    }
    index.scene.assert_clean();
}

#[test]
fn a_terminal_shows_a_bar_that_fits_it() {
    let index = PackageIndex::new();
    let mut pty = Pty::bash(&index.scene);
    let build = |columns: u32, package: &str| {
        let words: Vec<_> = index.build(package).get_args().map(|word| word.display().to_string()).collect();
        let (home, state) = (index.home.path().display(), index.scene.state_dir().display());
        let program = env!("CARGO_BIN_EXE_snakepit");
        format!(
            "cd {home} && stty cols {columns} && SNAKEPIT_STATE_DIR={state} {program} {}",
            words.join(" ")
        )
    };
    pty.type_line(&build(100, "slow-package"));
    pty.expect("\r\x1b[2K████░░░░ environment ");
    pty.expect("pip install");
    pty.expect("██████░░ environment ");
    pty.expect(": checking the environment ");
    pty.expect("\r\x1b[2K");
    pty.expect("(made)\r\n");
    pty.prompt();
    // A bar wider than the terminal would wrap, and its second line would stay when the bar is redrawn.
    pty.type_line(&build(12, "tiny-package"));
    pty.expect("\r\x1b[2K████░░░░ env\r\x1b[2K");
    pty.expect("(made)");
    pty.prompt();
    assert!(pty.leave().success());
    index.scene.assert_clean();
}

#[test]
fn a_failed_build_exits_with_1_and_a_wrong_command_line_with_2() {
    let index = PackageIndex::new();
    let done = finish(&mut index.build("no-such-package-at-all"));
    assert!(done.assert_status(1).stderr.contains("no-such-package-at-all"), "{}", done.stderr);
    assert!(done.stdout.is_empty());
    let done = finish(index.env("build").args(["--python", "3.99", "tiny-package"]));
    assert!(done.assert_status(1).stderr.contains("pyenv install 3.99"), "{}", done.stderr);
    finish(index.env("build").args(["--python", "3"])).assert_status(2);
    finish(&mut index.env("build")).assert_status(2);
    assert!(index.list().is_empty());
    index.scene.assert_clean();
}

#[test]
fn a_signal_ends_a_build_and_all_that_it_started() {
    let index = PackageIndex::new();
    let mut build = index.build("slow-package");
    let log = index.path("log");
    let build = Running::start(build.env("SLOW_SECONDS", "600").env("SLOW_LOG", &log));
    let until = Instant::now() + PATIENCE;
    while !log.exists() {
        assert!(Instant::now() < until, "it does not get to the package");
        std::thread::yield_now();
    }
    build.signal(Signal::TERM);
    build.finish().assert_status(128 + 15);
    index.scene.assert_clean();
}

/// Returns the number of rounds: all if `SNAKEPIT_FULL` is set, few if `SNAKEPIT_QUICK` is set.
fn rounds() -> u32 {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    match () {
        () if is_set("SNAKEPIT_FULL") => 40,
        () if is_set("SNAKEPIT_QUICK") => 3,
        () => 16,
    }
}

/// The time limit for all rounds on a busy machine.
const ALL_ROUNDS: Duration = Duration::from_mins(1);

#[test]
fn a_half_built_environment_of_a_killed_host_is_never_used() {
    let index = PackageIndex::new();
    let slow = |command: &mut Command| {
        command.env("SLOW_SECONDS", "0.2");
    };
    // Measures one build, to spread the kills over all of it.
    let mut whole = index.build("slow-package");
    slow(&mut whole);
    let mut took = finish(&mut whole).assert_status(0).took;
    finish(&mut index.env("prune")).assert_status(0);
    let (mut rounds_made, mut cut, mut had_been_made) = (0, 0, 0);
    let began = Instant::now();
    for round in 0..rounds() {
        if began.elapsed() > ALL_ROUNDS {
            break;
        }
        rounds_made += 1;
        let mut build = index.build("slow-package");
        slow(&mut build);
        let build = Running::start(&mut build);
        // The golden ratio spreads any number of rounds evenly. The square root moves them towards the end, where the
        // mark is written.
        let part = (f64::from(round) * 0.618_034).fract();
        let moment = took.mul_f64(part.sqrt() * 1.05);
        let ended = ends_until(build.pid(), Instant::now() + moment);
        build.signal(Signal::KILL);
        let done = build.finish();
        if ended {
            // The machine may have been busy during the measurement. Without this, all other builds would end before
            // their kill.
            took = took.min(done.took);
        } else {
            cut += 1;
        }
        index.scene.assert_all_end_within(MOMENT);
        let list = index.list();
        assert!(list.len() <= 1, "{list:?}");
        for environment in &list {
            match environment["state"].as_str() {
                Some("ready") => {
                    index.assert_works(environment, "slow_package");
                    had_been_made += 1;
                    finish(&mut index.env("prune")).assert_status(0);
                }
                Some("half") => {}
                state => panic!("round {round}: {state:?} without a builder: {environment}"),
            }
        }
    }
    println!("{cut} of {rounds_made} were cut short, {had_been_made} environments were whole by then");
    assert!(cut * 4 >= rounds_made, "only {cut} of {rounds_made} rounds were cut short");
    let mut last = index.build("slow-package");
    slow(&mut last);
    finish(&mut last).assert_status(0);
    let list = index.list();
    index.assert_works(&list[0], "slow_package");
    let homes =
        std::fs::read_dir(index.path("envs")).expect("there").flatten().filter(|it| it.path().is_dir());
    assert_eq!(homes.count(), 1, "what was cut short is removed by who builds next");
    finish(index.scene.verb("cleanup").stdin(std::process::Stdio::null())).assert_status(0);
    index.scene.assert_clean();
}

#[test]
fn concurrent_programs_build_an_environment_once_even_if_one_is_killed() {
    let index = PackageIndex::new();
    let log = index.path("log");
    let start = |seconds: &str| {
        let mut build = index.build("slow-package");
        Running::start(build.env("SLOW_LOG", &log).env("SLOW_SECONDS", seconds))
    };
    let built = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let first = start("600");
    let until = Instant::now() + PATIENCE;
    while built() == 0 {
        assert!(Instant::now() < until, "it does not get to the package");
        std::thread::yield_now();
    }
    let waiting = [start("0"), start("0")];
    assert!(!ends_until(waiting[0].pid(), Instant::now() + Duration::from_millis(300)), "it does not wait");
    first.signal(Signal::KILL);
    let _ = first.finish();
    for build in waiting {
        build.finish().assert_status(0);
    }
    assert_eq!(built(), 2, "one by the first, one by who took over");
    assert_eq!(index.list().len(), 1);
    finish(&mut index.scene.verb("cleanup"));
    index.scene.assert_clean();
}

/// Returns a command on a machine that has this program in `PATH`.
fn with_program(scene: &Scene, name: &str, code: &str) -> (tempfile::TempDir, Command) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    std::fs::write(&path, code).expect("a program");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let mut command = scene.command(env!("CARGO_BIN_EXE_snakepit"));
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").expect("PATH"));
    command.env("PATH", path).env("SNAKEPIT_STATE_DIR", scene.state_dir()).env_remove("CUDA_VISIBLE_DEVICES");
    (dir, command)
}

const TWO_GPUS: &str = "#!/bin/sh\necho '0, NVIDIA Fake A'\necho '1, NVIDIA Fake B'\n";

#[test]
fn doctor_shows_the_cores_and_the_gpus() {
    let scene = Scene::new();
    let (_dir, mut doctor) = with_program(&scene, "nvidia-smi", TWO_GPUS);
    let done = finish(doctor.arg("doctor").env("CUDA_VISIBLE_DEVICES", "1"));
    let text = &done.assert_status(0).stdout;
    assert!(text.contains("cores usable"), "{text}");
    for line in
        ["cuda:0 (NVIDIA Fake A), cuda:1 (NVIDIA Fake B); CUDA_VISIBLE_DEVICES=1", "Environments", "Hardware"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (_dir, mut doctor) = with_program(&scene, "nvidia-smi", "#!/bin/sh\necho failed >&2\nexit 9\n");
    let done = finish(doctor.args(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    let names: Vec<_> =
        report["hardware"].as_array().expect("findings").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["cpu", "cuda", "rocm", "mps"]);
    scene.assert_clean();
}

#[test]
fn a_pool_that_asks_for_gpus_gets_them_from_nvidia_smi_and_one_that_does_not_never_asks() {
    let scene = Scene::new();
    let home = tempfile::tempdir().expect("a directory");
    let worker = "import os, snakepit\n@snakepit.command\ndef seen():\n    \
                  return [os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'SNAKEPIT_DEVICE', 'CUDA_DEVICE_ORDER')]\n";
    std::fs::write(home.path().join("worker.py"), worker).expect("a worker");
    let config = "[pool.one]\nworker = \"worker.py\"\ngpus = \"one-per-worker\"\n[pool.second]\nworker = \"worker.py\"\n\
                  gpus = [1]\n[pool.none]\nworker = \"worker.py\"\n";
    std::fs::write(home.path().join("snakepit.toml"), config).expect("a configuration");
    let call = |pool: &str, smi: &str| {
        let (_dir, mut call) = with_program(&scene, "nvidia-smi", smi);
        finish(call.args(["call", "--json", "--pool", pool, "seen"]).current_dir(home.path()))
    };
    assert_eq!(call("one", TWO_GPUS).assert_status(0).stdout, "[\"0\",\"cuda:0\",\"PCI_BUS_ID\"]\n");
    assert_eq!(call("second", TWO_GPUS).assert_status(0).stdout, "[\"1\",\"cuda:1\",\"PCI_BUS_ID\"]\n");
    // The pool does not ask: this `nvidia-smi` would run into its time limit.
    assert_eq!(call("none", "#!/bin/sh\nexec sleep 600\n").assert_status(0).stdout, "[null,null,null]\n");
    let refused = call("one", "#!/bin/sh\nexit 9\n");
    assert!(refused.stderr.contains("asks for GPUs, but none was found"), "{}", refused.stderr);
    scene.assert_clean();
}
