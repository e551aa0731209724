//! Environments in their cache: what hosts do to each other there, and what time and people do to it.

use std::fs::File;
use std::time::{Duration, SystemTime};

use snakepit::environment::{Cache, EntryState};
use snakepit::{Pool, Snakepit};

use crate::building::{refused, version_of};
use crate::packages::{Shop, pool, teller};
use crate::support::{Pit, config, lines, until};

/// Makes an environment, and tells its key.
async fn made(shop: &Shop) -> String {
    Pit::start(pool(shop.environment().requirements(["tiny-package"]))).await.end().await;
    Cache::at(shop.cache()).list().expect("a list")[0].key.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_set_back_keeps_nothing_from_being_pruned() {
    let shop = Shop::new();
    let mark = shop.cache().join(format!("{}.env", made(&shop).await));
    let tomorrow = SystemTime::now() + Duration::from_hours(24);
    File::options().append(true).open(&mark).and_then(|it| it.set_modified(tomorrow)).expect("its time");
    let cache = Cache::at(shop.cache());
    assert!(cache.prune(Duration::from_hours(1)).expect("nothing").is_empty(), "it was used just now");
    assert_eq!(cache.prune(Duration::ZERO).expect("pruned").len(), 1);
    assert!(shop.homes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_cannot_be_read_is_in_nobodys_way() {
    let shop = Shop::new();
    let mark = shop.cache().join(format!("{}.env", made(&shop).await));
    std::fs::write(&mark, b"snakepit environment 1\n\xff\xff").expect("torn");
    let states = || {
        let list = Cache::at(shop.cache()).list().expect("a list");
        list.into_iter().map(|entry| entry.state).collect::<Vec<_>>()
    };
    assert_eq!(states(), [EntryState::Half]);
    made(&shop).await;
    assert_eq!((states(), shop.homes().len()), (vec![EntryState::Ready], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_another_host_does_not_wait_without_end() {
    let shop = Shop::new();
    let key = made(&shop).await;
    let lock = File::open(shop.cache().join(format!("{key}.lock"))).expect("a lock");
    lock.lock().expect("held alone, as by a host that is stopped in the middle");
    let patient = shop.environment().timeout(Duration::from_secs(1)).requirements(["tiny-package"]);
    let told = refused(pool(patient)).await;
    assert!(told.contains("not made within 1s") && told.contains("another host"), "{told}");
    drop(lock);
    made(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_or_removed_while_it_was_installed_is_not_kept() {
    for change in ["slow-package # now\n", ""] {
        let shop = Shop::new();
        let (log, list) = (shop.path().join("log"), shop.file("list.txt", "slow-package\n"));
        let worker = teller().env("SLOW_LOG", &log).env("SLOW_SECONDS", "1");
        let worker = worker.environment(shop.environment().requirements_file("list.txt"));
        let home = tempfile::tempdir().expect("a directory");
        let pool = Pool::python(worker).workers(1);
        let start = tokio::spawn(Snakepit::builder().pool(pool).custody(config(&home)).start());
        until("the package is being built", || !lines(&log.to_string_lossy()).is_empty()).await;
        match change {
            "" => std::fs::remove_file(&list).expect("removed"),
            text => std::fs::write(&list, text).expect("written"),
        }
        let told = crate::support::chain(&start.await.expect("a task").expect_err("a start that fails"));
        let expected = if change.is_empty() { "cannot read" } else { "was changed while it was installed" };
        assert!(told.contains(expected), "{told}");
        assert!(shop.homes().is_empty(), "{:?}", shop.homes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_may_name_files_from_where_its_configuration_is() {
    let shop = Shop::new();
    std::fs::create_dir(shop.path().join("lists")).expect("a directory");
    shop.file("lists/base.txt", "tiny-package\n");
    shop.file("limits.txt", "tiny-package<2\n");
    let list = ["-r lists/base.txt", "-c limits.txt"];
    let pit = Pit::start(pool(shop.environment().requirements(list))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "1.0");
    pit.end().await;
    shop.file("limits.txt", "tiny-package>=2\n");
    let pit = Pit::start(pool(shop.environment().requirements(list))).await;
    assert_eq!(version_of(&pit, "tiny_package").await, "2.0");
    pit.end().await;
}
