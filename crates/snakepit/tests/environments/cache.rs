//! The cache of environments: several hosts at once, the clock, and files that people change.

use std::fs::File;
use std::time::{Duration, SystemTime};

use snakepit::Snakepit;
use snakepit::environment::{Cache, CachedEnvironmentState};

use crate::build::{refused, version_of};
use crate::packages::{PackageIndex, pool, teller};
use crate::support::{Pit, config, lines, until};

/// Builds an environment, and returns its key.
async fn made(index: &PackageIndex) -> String {
    Pit::start(pool(index.environment().requirements(["tiny-package"]))).await.end().await;
    Cache::at(index.cache()).list().expect("a list")[0].key.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_with_a_time_in_the_future_can_be_pruned() {
    let index = PackageIndex::new();
    let mark = index.cache().join(format!("{}.env", made(&index).await));
    let tomorrow = SystemTime::now() + Duration::from_hours(24);
    File::options().append(true).open(&mark).and_then(|it| it.set_modified(tomorrow)).expect("its time");
    let cache = Cache::at(index.cache());
    assert!(cache.prune(Duration::from_hours(1)).expect("nothing").is_empty(), "it was used just now");
    assert_eq!(cache.prune(Duration::ZERO).expect("pruned").len(), 1);
    assert!(index.homes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_manifest_does_not_block_listing_or_rebuilding() {
    let index = PackageIndex::new();
    let mark = index.cache().join(format!("{}.env", made(&index).await));
    std::fs::write(&mark, b"snakepit environment 1\n\xff\xff").expect("torn");
    let states = || {
        let list = Cache::at(index.cache()).list().expect("a list");
        list.into_iter().map(|entry| entry.state).collect::<Vec<_>>()
    };
    assert_eq!(states(), [CachedEnvironmentState::Half]);
    made(&index).await;
    assert_eq!((states(), index.homes().len()), (vec![CachedEnvironmentState::Ready], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_another_hosts_build_is_bounded() {
    let index = PackageIndex::new();
    let key = made(&index).await;
    let lock = File::open(index.cache().join(format!("{key}.lock"))).expect("a lock");
    lock.lock().expect("held alone, as by a host that is stopped in the middle");
    let patient = index.environment().timeout(Duration::from_secs(1)).requirements(["tiny-package"]);
    let told = refused(pool(patient)).await;
    assert!(told.contains("not built within 1s") && told.contains("another host"), "{told}");
    drop(lock);
    made(&index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_whose_sources_change_during_its_build_is_discarded() {
    for change in ["slow-package # now\n", ""] {
        let index = PackageIndex::new();
        let (log, list) = (index.path().join("log"), index.file("list.txt", "slow-package\n"));
        let worker = teller().env("SLOW_LOG", &log).env("SLOW_SECONDS", "1");
        let worker = worker.environment(index.environment().requirements_file("list.txt"));
        let home = tempfile::tempdir().expect("a directory");
        let pool = snakepit::python(worker).workers(1);
        let start = tokio::spawn(Snakepit::builder().pool(pool).custody(config(&home)).start());
        until("the package is being built", || !lines(&log.to_string_lossy()).is_empty()).await;
        match change {
            "" => std::fs::remove_file(&list).expect("removed"),
            text => std::fs::write(&list, text).expect("written"),
        }
        let told = crate::support::chain(&start.await.expect("a task").expect_err("a start that fails"));
        let expected = if change.is_empty() { "cannot read" } else { "changed during the build" };
        assert!(told.contains(expected), "{told}");
        assert!(index.homes().is_empty(), "{:?}", index.homes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_in_a_requirements_list_are_relative_to_the_configuration() {
    let index = PackageIndex::new();
    std::fs::create_dir(index.path().join("lists")).expect("a directory");
    index.file("lists/base.txt", "tiny-package\n");
    index.file("limits.txt", "tiny-package<2\n");
    let list = ["-r lists/base.txt", "-c limits.txt"];
    let pit = Pit::start(pool(index.environment().requirements(list))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
    pit.end().await;
    index.file("limits.txt", "tiny-package>=2\n");
    let pit = Pit::start(pool(index.environment().requirements(list))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "2.0");
    pit.end().await;
}
