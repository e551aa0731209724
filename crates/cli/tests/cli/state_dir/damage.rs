//! Unexpected files in the state directory, a damaged keeper, and remains of killed starts.
//!
//! About `crates/custody/src/state/kept_file.rs`, `crates/custody/src/state/run_dir.rs` and
//! `crates/custody/src/reap/sweep_lock.rs`.
#![expect(clippy::disallowed_methods, reason = "the tests start real processes, as a user would")]

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, makedev, mknodat};

use crate::support::{self, Scene, call, finish};

/// A name that a run could have.
const RUN: &str = "0199a0b0c0d07000800000000000abcd";

/// Something in the place of a file.
#[derive(Clone, Copy, Debug)]
enum Odd {
    Fifo,
    Device,
    Socket,
    Directory,
    Holes,
}

const ODD_FILES: [Odd; 5] = [Odd::Fifo, Odd::Device, Odd::Socket, Odd::Directory, Odd::Holes];

fn make_odd(path: &Path, odd: Odd) -> bool {
    let node = |kind, device| mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device);
    match odd {
        Odd::Fifo => node(FileType::Fifo, 0).expect("a FIFO"),
        Odd::Socket => node(FileType::Socket, 0).expect("a socket"),
        Odd::Directory => fs::create_dir(path).expect("a directory"),
        Odd::Holes => File::create(path).and_then(|file| file.set_len(8 << 30)).expect("holes"),
        // /dev/zero, which has no end.
        Odd::Device => {
            if node(FileType::CharacterDevice, makedev(1, 5)).is_err() {
                eprintln!("NOT PROVEN HERE: only root can create a device");
                return false;
            }
        }
    }
    true
}

/// Creates the directory of a run, still empty.
fn make_run(scene: &Scene) -> PathBuf {
    let runs = scene.state_dir().join("runs");
    let run = runs.join(RUN);
    for dir in [&runs, &run] {
        fs::create_dir(dir).expect("a directory");
        fs::set_permissions(dir, Permissions::from_mode(0o700)).expect("chmod");
    }
    run
}

/// Asserts that every command returns in time, names the file, and leaves the run alone.
fn is_let_be_and_reported(scene: Scene, file: &Path, words: &str) {
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    let cleanup = finish(&mut scene.verb("cleanup"));
    cleanup.assert_status(1);
    assert!(cleanup.stdout.contains(RUN) && cleanup.stdout.contains(words), "{cleanup:?}");
    let ledger = finish(&mut scene.verb("ledger"));
    ledger.assert_status(0);
    assert!(ledger.stdout.contains(words), "{ledger:?}");
    assert!(fs::symlink_metadata(file).is_ok(), "{} was removed", file.display());
    fs::remove_dir_all(scene.state_dir().join("runs")).expect("removed");
    scene.assert_clean();
}

/// Promise: everything is bounded. Once, a ledger that is a FIFO hung every start, and one of 8 GB was read whole.
#[test]
fn a_ledger_that_is_not_a_regular_file_blocks_nobody_and_is_reported() {
    for odd in ODD_FILES {
        let scene = Scene::new();
        let run = make_run(&scene);
        fs::write(run.join("lock"), "").expect("a lock");
        let ledger = run.join("ledger");
        if make_odd(&ledger, odd) {
            let words = if matches!(odd, Odd::Holes) { "too large" } else { "not a regular file" };
            is_let_be_and_reported(scene, &ledger, words);
        }
    }
}

/// Promise: an error while looking means "cannot judge". Once, a lock that could not be opened was taken for a free
/// one.
#[test]
fn a_lock_that_is_not_a_regular_file_blocks_nobody_and_is_reported() {
    for odd in [Odd::Fifo, Odd::Device, Odd::Socket, Odd::Directory] {
        let scene = Scene::new();
        let run = make_run(&scene);
        fs::write(run.join("ledger"), "").expect("a ledger");
        let lock = run.join("lock");
        if make_odd(&lock, odd) {
            is_let_be_and_reported(scene, &lock, "not a regular file");
        }
    }
}

/// Returns the names in the directory that begin with the prefix.
fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Returns the path of the keeper's program, which the first start writes.
fn keeper(scene: &Scene) -> PathBuf {
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    let found = names(scene.state_dir(), "keeper-");
    let [name] = &found[..] else { panic!("one keeper is expected: {found:?}") };
    scene.state_dir().join(name)
}

/// Promise: whatever can work, works, and whatever is wrong is reported. Once, a damaged keeper made every start fail
/// with "Broken pipe" forever.
#[test]
fn a_damaged_keeper_is_replaced_and_the_user_is_told() {
    let scene = Scene::new();
    let path = keeper(&scene);
    let good = fs::read(&path).expect("the keeper");
    let zeroed = vec![0; good.len()];
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for damaged in [zeroed, flipped, good[..good.len() / 3].to_vec(), [&good[..], b"x"].concat(), Vec::new()]
    {
        fs::write(&path, damaged).expect("damaged");
        let told = finish(&mut scene.exec(&[], &["true"]));
        told.assert_status(0);
        assert!(told.stderr.contains("was damaged and has been replaced"), "{told:?}");
        assert!(told.stderr.contains(&path.display().to_string()), "{told:?}");
        assert_eq!(fs::read(&path).expect("the keeper"), good);
        let quiet = finish(&mut scene.exec(&[], &["true"]));
        assert_eq!((quiet.status.code(), quiet.stderr.as_str()), (Some(0), ""));
    }
    scene.assert_clean();
}

#[test]
fn a_keeper_that_cannot_be_replaced_is_run_from_memory_and_the_user_is_told_what_to_do() {
    let scene = Scene::new();
    let path = keeper(&scene);
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory in its place");
    fs::write(path.join("precious"), "").expect("a file");
    let told = finish(&mut scene.exec(&[], &["true"]));
    told.assert_status(0);
    assert!(told.stderr.contains("cannot be replaced") && told.stderr.contains("remove it"), "{told:?}");
    assert!(path.join("precious").exists());
    scene.assert_clean();
}

/// A keeper that others can write to, or that another user owns, is not run, whatever it contains.
#[test]
fn a_keeper_that_others_could_change_is_replaced() {
    let scene = Scene::new();
    let path = keeper(&scene);
    fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("chmod");
    let told = finish(&mut scene.exec(&[], &["true"]));
    told.assert_status(0);
    assert!(told.stderr.contains("replaced"), "{told:?}");
    assert_eq!(fs::metadata(&path).expect("the keeper").permissions().mode() & 0o022, 0);
    scene.assert_clean();
}

/// The same holds for the files that are written for Python. Once, a damaged file failed every worker.
#[test]
fn a_damaged_file_of_the_sdk_is_replaced_and_the_user_is_told() {
    let scene = Scene::new();
    let add = || finish(call(&scene).args(["add", "a:=1", "b:=2"]));
    add().assert_status(0);
    let found = names(scene.state_dir(), "python-");
    let [home] = &found[..] else { panic!("one SDK is expected: {found:?}") };
    let package = scene.state_dir().join(home).join("snakepit");
    let entry = package.join("__main__.py");
    let good = fs::read(&entry).expect("the SDK");
    fs::write(&entry, vec![b'('; good.len()]).expect("damaged");
    let told = add();
    assert_eq!((told.status.code(), told.stdout.trim()), (Some(0), "3"), "{told:?}");
    assert!(told.stderr.contains("was damaged and has been replaced"), "{told:?}");
    assert!(told.stderr.contains(&entry.display().to_string()), "{told:?}");
    assert_eq!(fs::read(&entry).expect("the SDK"), good);
    fs::remove_file(&entry).expect("removed");
    let quiet = add();
    assert_eq!((quiet.status.code(), quiet.stderr.as_str()), (Some(0), ""), "{quiet:?}");
    assert_eq!(names(&package, ".tmp"), Vec::<String>::new());
    scene.assert_clean();
}

fn age(path: &Path) {
    let times = FileTimes::new().set_modified(SystemTime::now() - Duration::from_hours(2));
    File::open(path).and_then(|file| file.set_times(times)).expect("an older file");
}

/// Promise: the next start removes what killed starts have left. Once, 1.2 MB stayed for each.
#[test]
fn a_start_removes_the_temporary_files_of_killed_ones_and_not_those_of_living_ones() {
    let scene = Scene::new();
    let path = keeper(&scene);
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    // Earlier versions used these names.
    let (left, fresh) = (beside(".4711"), beside(".4712"));
    let unlocked = scene.state_dir().join(".tmp-keeper-1-1");
    let locked = scene.state_dir().join(".tmp-keeper-1-2");
    for file in [&left, &fresh, &unlocked, &locked] {
        fs::write(file, "half a keeper").expect("a file");
    }
    age(&left);
    let writer = File::open(&locked).expect("the file");
    flock(&writer, FlockOperation::LockShared).expect("locked");
    let mine = scene.state_dir().join("keeper-notes.txt");
    fs::write(&mine, "a person's own").expect("a file");
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    assert!(!left.exists() && !unlocked.exists(), "{:?}", names(scene.state_dir(), ""));
    assert!(fresh.exists() && locked.exists() && mine.exists(), "{:?}", names(scene.state_dir(), ""));
    drop(writer);
    finish(&mut scene.verb("cleanup")).assert_status(0);
    assert!(!locked.exists());
    scene.assert_clean();
}

#[test]
fn a_half_created_run_is_removed_at_once_unless_it_is_locked() {
    let scene = Scene::new();
    drop(keeper(&scene));
    let runs = scene.state_dir().join("runs");
    let new = |digit: &str| {
        let dir = runs.join(format!(".new-{}{digit}", &RUN[1..]));
        fs::create_dir(&dir).expect("a directory");
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).expect("chmod");
        dir
    };
    let [bare, left, begun, locked] = ["1", "2", "3", "4"].map(new);
    fs::write(left.join("lock"), "").expect("a lock");
    fs::write(left.join("ledger"), "half").expect("a ledger");
    // The process that creates this run has only created the directory so far.
    let maker = File::open(&begun).expect("the directory");
    flock(&maker, FlockOperation::LockShared).expect("locked");
    let lock = File::create(locked.join("lock")).expect("a lock");
    flock(&lock, FlockOperation::LockExclusive).expect("locked");
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    assert!(!bare.exists() && !left.exists(), "{:?}", names(&runs, ".new"));
    assert!(begun.exists() && locked.exists(), "{:?}", names(&runs, ".new"));
    drop((maker, lock));
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    assert_eq!(names(&runs, ".new"), Vec::<String>::new());
    scene.assert_clean();
}

/// Promise: killed starts leave nothing that the next start does not remove.
#[test]
fn first_starts_that_are_killed_at_any_moment_leave_nothing() {
    let rounds = if std::env::var_os("SNAKEPIT_QUICK").is_some() { 10 } else { 60 };
    for round in 0..rounds {
        let scene = Scene::new();
        let mut exec = scene.exec(&[], &["true"]);
        let mut child = exec.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        // Spreads the kills over the time that a start takes. This does not wait for an event.
        let until = Instant::now() + Duration::from_micros(300 * round);
        while Instant::now() < until && child.try_wait().expect("its status").is_none() {
            std::thread::yield_now();
        }
        let _ = child.kill();
        child.wait().expect("its status");
        scene.assert_all_end_within(support::PATIENCE);
        finish(&mut scene.exec(&[], &["true"])).assert_status(0);
        assert_eq!(names(scene.state_dir(), "keeper-").len(), 1, "{:?}", names(scene.state_dir(), ""));
        assert_eq!(names(scene.state_dir(), ".tmp"), Vec::<String>::new());
        assert_eq!(names(&scene.state_dir().join("runs"), ".new"), Vec::<String>::new());
        scene.assert_clean();
    }
}
