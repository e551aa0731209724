//! Environments are built once for all pools that need them.

use std::time::Duration;

use snakepit::environment::{Cache, CachedEnvironmentState};
use snakepit::telemetry::{self, Event};
use snakepit::{EngineError, PoolOptions, Snakepit, args};

use crate::packages::{PackageIndex, pool, teller};
use crate::support::{Pit, chain, config, lines, runs_in, soon};

pub(crate) async fn version_of(pit: &Pit, package: &str) -> String {
    soon("the call", pit.call("version_of", args! { package: package })).await.expect("its version")
}

/// Returns why a pool does not start. Checks that the attempt leaves nothing behind.
pub(crate) async fn refused(pool: PoolOptions) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let started = soon("the start", Snakepit::builder().pool(pool).custody(config(&home)).start()).await;
    let error: EngineError = started.expect_err("a start that fails");
    assert!(runs_in(home.path()).is_empty());
    chain(&error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_finds_the_packages_that_its_pool_names_and_the_next_pool_does_not_wait_for_them() {
    let index = PackageIndex::new();
    let environment = index.environment().requirements(["tiny-package<2"]);
    let mut told = Vec::new();
    for round in 0..2 {
        let mut events = telemetry::subscribe();
        let pit = Pit::start(pool(environment.clone())).await;
        assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
        let of_path: String = pit.call("output_of", args! { program: "tiny" }).await.expect("its script");
        assert_eq!(of_path, "tiny 1.0", "scripts that were installed are in PATH");
        let entries = Cache::at(index.cache()).list().expect("a list");
        assert_eq!((entries.len(), entries[0].state), (1, CachedEnvironmentState::InUse), "{entries:?}");
        pit.end().await;
        let ready = events.drain().into_iter().find_map(|event| match event {
            Event::EnvironmentReady { made, .. } => Some(made),
            _ => None,
        });
        told.push(ready);
        assert_eq!(index.homes().len(), 1, "round {round}");
    }
    assert_eq!(told, [Some(true), Some(false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_hosts_build_an_environment_once() {
    let index = PackageIndex::new();
    let log = index.path().join("log");
    let start = || {
        let environment = index.environment().requirements(["slow-package"]);
        let worker = teller().env("SLOW_LOG", &log).env("SLOW_SECONDS", "0.5").environment(environment);
        Pit::start(snakepit::python(worker).workers(1))
    };
    let (one, two, three) = tokio::join!(start(), start(), start());
    for pit in [one, two, three] {
        assert_eq!(version_of(&pit, "slow_package").await, "1.0");
        pit.end().await;
    }
    assert_eq!(lines(&log.to_string_lossy()), ["built"]);
    assert_eq!(index.homes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_requirements_file_or_project_makes_another_environment() {
    let index = PackageIndex::new();
    index.file("requirements.txt", "-r more.txt\n");
    index.file("more.txt", "tiny-package==1.0\n");
    let file = index.environment().requirements_file("requirements.txt");
    let pit = Pit::start(pool(file.clone())).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
    pit.end().await;
    index.file("more.txt", "tiny-package==2.0\n");
    let pit = Pit::start(pool(file)).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "2.0");
    pit.end().await;
    let project = "[project]\nname = \"mine\"\nversion = \"1\"\ndependencies = [\"tiny-package<2\"]\n";
    index.file("pyproject.toml", project);
    let pit = Pit::start(pool(index.environment().project("pyproject.toml"))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
    pit.end().await;
    assert_eq!(index.homes().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_of_a_requirements_file_are_checked() {
    let index = PackageIndex::new();
    let wrong = "0".repeat(64);
    index.file("requirements.txt", &format!("tiny-package==1.0 --hash=sha256:{wrong}\n"));
    let told = refused(pool(index.environment().requirements_file("requirements.txt"))).await;
    assert!(told.contains("differs from the locked one"), "{told}");
    assert!(index.homes().is_empty(), "{:?}", index.homes());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_cannot_be_built_says_why_and_leaves_nothing() {
    let index = PackageIndex::new();
    let told = refused(pool(index.environment().requirements(["no-such-package-at-all"]))).await;
    assert!(told.contains("no-such-package-at-all") && told.contains("check its spelling"), "{told}");
    let told = refused(pool(index.environment().python("3.99").requirements(["tiny-package"]))).await;
    assert!(told.contains("no Python 3.99") && told.contains("pyenv install 3.99"), "{told}");
    let told = refused(pool(index.environment().requirements_file("none.txt"))).await;
    assert!(told.contains("none.txt"), "{told}");
    let told = refused(pool(index.environment().project("none"))).await;
    assert!(told.contains("none is not a project"), "{told}");
    index.file("pylock.toml", "lock-version = \"1.0\"\n");
    let told = refused(pool(index.environment().project("pylock.toml"))).await;
    assert!(told.contains("and uv is disabled here"), "{told}");
    index.file("not-a-directory", "");
    let environment = index.environment().cache_dir("not-a-directory/envs").requirements(["tiny-package"]);
    let told = refused(pool(environment)).await;
    assert!(told.contains("not-a-directory") && told.contains("Not a directory"), "{told}");
    let told = refused(pool(index.environment().python(index.path()).requirements(["tiny-package"]))).await;
    assert!(told.contains("virtual environment"), "{told}");
    assert!(index.homes().is_empty(), "{:?}", index.homes());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_the_error_says_so() {
    let index = PackageIndex::new();
    // This address does not answer, whatever the network of the machine is like.
    let args = ["--retries", "1", "--index-url", "http://127.0.0.1:9/simple"];
    let environment = index.environment().install_args(args).requirements(["tiny-package"]);
    let told = refused(pool(environment)).await;
    assert!(told.contains("the package index cannot be reached"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_takes_too_long_is_ended_with_its_processes() {
    let index = PackageIndex::new();
    let environment = index.environment().timeout(Duration::from_secs(4)).requirements(["slow-package"]);
    let worker = teller().env("SLOW_SECONDS", "600").environment(environment);
    let told = refused(snakepit::python(worker).workers(1)).await;
    assert!(told.contains("not built within 4s"), "{told}");
    assert!(index.homes().is_empty(), "{:?}", index.homes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_others_may_write_to_is_rejected() {
    let index = PackageIndex::new();
    std::fs::create_dir(index.cache()).expect("a directory");
    let open: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(index.cache(), open).expect("its mode");
    let told = refused(pool(index.environment().requirements(["tiny-package"]))).await;
    assert!(told.contains("can be written by everybody") && told.contains("chmod"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_keeps_environments_in_use_and_removes_unfinished_ones() {
    let index = PackageIndex::new();
    let cache = Cache::at(index.cache());
    let pit = Pit::start(pool(index.environment().requirements(["tiny-package"]))).await;
    let half = index.cache().join(format!("{}-dead-1", "0".repeat(20)));
    std::fs::create_dir_all(half.join("venv/bin")).expect("a half one");
    let states = |cache: &Cache| cache.list().expect("a list").iter().map(|it| it.state).collect::<Vec<_>>();
    assert_eq!(states(&cache), [CachedEnvironmentState::InUse, CachedEnvironmentState::Half]);
    let pruned = cache.prune(Duration::ZERO).expect("pruned");
    assert_eq!(pruned.len(), 1, "{pruned:?}");
    assert!(!half.exists());
    assert_eq!(version_of(&pit, "tiny_package").await, "2.0");
    pit.end().await;
    assert_eq!(states(&cache), [CachedEnvironmentState::Ready]);
    assert!(cache.prune(Duration::from_hours(1)).expect("nothing").is_empty());
    assert_eq!(cache.prune(Duration::ZERO).expect("pruned").len(), 1);
    assert_eq!(std::fs::read_dir(index.cache()).expect("there").count(), 0, "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_with_missing_files_is_built_again() {
    let index = PackageIndex::new();
    let environment = index.environment().requirements(["tiny-package"]);
    Pit::start(pool(environment.clone())).await.end().await;
    let [home] = &index.homes()[..] else { panic!("{:?}", index.homes()) };
    std::fs::remove_dir_all(index.cache().join(home)).expect("removed");
    let pit = Pit::start(pool(environment)).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "2.0");
    pit.end().await;
}
