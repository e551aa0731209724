//! Only the user and root may be able to write to the state directory, the cache of environments and their parents,
//! because the keeper and the SDK run from there.
//!
//! About `crates/custody/src/state/walk.rs`, `crates/custody/src/state/owner.rs` and
//! `crates/custody/src/state/private_dir.rs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Done, Scene, finish};

/// Two ordinary users.
const ALICE: u32 = 47_110;
const MALLORY: u32 = 47_111;

/// Directories below one that every user may enter, so that users other than root can reach them.
struct World {
    scene: Scene,
    dir: tempfile::TempDir,
}

impl World {
    /// Returns `None`, and prints so, unless the test runs as root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT PROVEN HERE: only root can change the owner of a directory");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("chmod");
        let scene = Scene::new();
        // A copy that every user can reach. `cp` makes it, because this process would have the file open for writing
        // while it forks.
        let mut copy = scene.command("cp");
        finish(copy.arg(env!("CARGO_BIN_EXE_snakepit")).arg(dir.path().join("snakepit"))).assert_status(0);
        Some(Self { scene, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, name: &str, owner: u32, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a directory");
        chown(&path, Some(owner), Some(owner)).expect("chown");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// Runs a command with this state directory as this user. `before` are words before the program.
    fn exec_by(&self, user: u32, before: &[&str], state: &Path) -> Done {
        let user = user.to_string();
        let mut command = self.scene.command("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).args(before);
        command.arg(self.path("snakepit")).args(["exec", "--state-dir"]).arg(state).args(["--", "true"]);
        finish(command.current_dir("/"))
    }

    fn exec(&self, state: &Path) -> Done {
        self.exec_by(0, &[], state)
    }

    #[track_caller]
    fn is_refused(&self, state: &Path, words: &[&str]) {
        refused(&self.exec(state), words);
        assert!(!state.join("runs").exists(), "something was made in {}", state.display());
    }
}

#[track_caller]
fn refused(done: &Done, words: &[&str]) {
    done.assert_status(125);
    for word in words {
        assert!(done.stderr.contains(word), "{word:?} is not said: {done:?}");
    }
}

/// Promise: no other user's program is run. Once, the owner of a directory above could replace the keeper.
#[test]
fn a_state_directory_below_one_of_another_user_is_refused() {
    let Some(world) = World::new() else { return };
    let theirs = world.make("theirs", MALLORY, 0o755);
    let words = [theirs.to_str().expect("plain"), "47111"];
    world.is_refused(&theirs.join("state"), &words);
    world.make("theirs/ours", 0, 0o700);
    world.is_refused(&theirs.join("ours/deep/state"), &words);
    // A path that leads through the directory and back is rejected, too.
    world.make("fine", 0, 0o755);
    refused(&world.exec(&theirs.join("ours/../../fine/state")), &words);
    world.scene.assert_clean();
}

#[test]
fn a_state_directory_below_one_that_others_may_write_to_is_refused_unless_it_is_sticky() {
    let Some(world) = World::new() else { return };
    let open = world.make("open", 0, 0o777);
    world.is_refused(&open.join("state"), &["chmod o-w", open.to_str().expect("plain"), "0777"]);
    let group = world.make("group", 0, 0o775);
    chown(&group, None, Some(MALLORY)).expect("chown");
    world.is_refused(&group.join("state"), &["chmod g-w", group.to_str().expect("plain")]);
    let sticky = world.make("sticky", 0, 0o1777);
    world.exec(&sticky.join("state")).assert_status(0);
    // Others can create directories beside ours, but theirs are rejected.
    chown(world.make("sticky/theirs", 0, 0o755), Some(MALLORY), None).expect("chown");
    world.is_refused(&sticky.join("theirs/state"), &["47111"]);
    // Others must never be able to write to the directory itself.
    let leaf = world.make("leaf", 0, 0o1777);
    world.is_refused(&leaf, &["chmod"]);
    world.scene.assert_clean();
}

#[test]
fn a_user_may_use_directories_of_their_own_and_of_root() {
    let Some(world) = World::new() else { return };
    let home = world.make("home", ALICE, 0o755);
    world.exec_by(ALICE, &[], &home.join(".local/state/snakepit")).assert_status(0);
    let made = fs::metadata(home.join(".local/state/snakepit")).expect("made");
    assert_eq!((made.uid(), made.mode() & 0o7777), (ALICE, 0o700));
    refused(&world.exec_by(MALLORY, &[], &home.join("state")), &["47110"]);
    world.scene.assert_clean();
}

#[test]
fn missing_directories_are_created_private_whatever_the_umask() {
    let Some(world) = World::new() else { return };
    let home = world.make("home", ALICE, 0o755);
    for (umask, mode) in [("000", 0o755), ("002", 0o755), ("077", 0o700), ("777", 0o700)] {
        let state = home.join(umask).join("state");
        let script = format!("umask {umask}; exec \"$@\"");
        world.exec_by(ALICE, &["bash", "-c", &script, "-"], &state).assert_status(0);
        let modes = [&home.join(umask), &state, &state.join("runs")]
            .map(|dir| fs::metadata(dir).expect("made").mode() & 0o7777);
        assert_eq!(modes, [mode, 0o700, 0o700], "umask {umask}");
    }
    world.scene.assert_clean();
}

#[test]
fn links_of_this_user_or_root_are_followed_except_in_the_last_component() {
    let Some(world) = World::new() else { return };
    let real = world.make("real", 0, 0o755);
    let link = |name: &str, target: &Path, owner: u32| {
        let link = world.path(name);
        symlink(target, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(owner), Some(owner)).expect("lchown");
        link
    };
    let ours = link("ours", &real, 0);
    world.exec(&ours.join("state")).assert_status(0);
    assert!(real.join("state/runs").exists());
    let relative = link("relative", Path::new("real/../ours"), 0);
    world.exec(&relative.join("state")).assert_status(0);
    refused(&world.exec(&ours.join("../ours")), &["symbolic link"]);
    let theirs = link("theirs", &real, MALLORY);
    refused(&world.exec(&theirs.join("state")), &["47111", "theirs"]);
    // The target of a link is checked as closely as the rest.
    let bad = world.make("bad", MALLORY, 0o755);
    let to_bad = link("to_bad", &bad, 0);
    refused(&world.exec(&to_bad.join("state")), &["47111", bad.to_str().expect("plain")]);
    let endless = link("endless", Path::new("endless/x"), 0);
    refused(&world.exec(&endless.join("state")), &["symbolic links"]);
    world.scene.assert_clean();
}

/// Returns the words that run one command on a machine with these users.
fn with_users(world: &World, passwd: &str, group: &str, nsswitch: &str) -> Vec<String> {
    let file = |name: &str, text: &str| {
        let path = world.path(name);
        fs::write(&path, text).expect("written");
        format!("mount --bind {} /etc/{name}", path.display())
    };
    let files = [("passwd", passwd), ("group", group), ("nsswitch.conf", nsswitch)];
    let mounts: Vec<String> = files.iter().map(|(name, text)| file(name, text)).collect();
    mounts.into_iter().chain(["exec \"$@\"".to_owned()]).collect()
}

/// Promise: whatever can work, works. Ubuntu and Debian give each user a private group, and some also the umask 002.
#[test]
fn a_group_that_is_the_users_own_may_write_and_one_with_other_members_may_not() {
    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nalice:x:47110:47110::/:/bin/sh\nbob:x:47112:47112::/:/bin/sh\n";
    const FILES: &str = "passwd: files systemd\ngroup: files\n";
    let Some(world) = World::new() else { return };
    let home = world.make("home", ALICE, 0o2775);
    let cases = [
        ("own", PASSWD.to_owned(), "root:x:0:\nalice:x:47110:\n", FILES, true),
        ("named", PASSWD.to_owned(), "root:x:0:\nalice:x:47110:alice,root\n", FILES, true),
        ("member", PASSWD.to_owned(), "root:x:0:\nalice:x:47110:alice,bob\n", FILES, false),
        ("primary", PASSWD.replace("47112:47112", "47112:47110"), "alice:x:47110:\n", FILES, false),
        ("twice", PASSWD.to_owned(), "alice:x:47110:\nalso:x:47110:bob\n", FILES, false),
        ("unknown", PASSWD.to_owned(), "root:x:0:\n", FILES, false),
        ("elsewhere", PASSWD.to_owned(), "alice:x:47110:\n", "passwd: files sss\ngroup: files\n", false),
        ("nis", format!("{PASSWD}+::::::\n"), "alice:x:47110:\n", "passwd: compat\n", false),
    ];
    for (name, passwd, group, nsswitch, works) in cases {
        let script = with_users(&world, &passwd, group, nsswitch).join(" && ");
        let state = home.join(name).join("state");
        let user = ALICE.to_string();
        let mut command = world.scene.command("unshare");
        command.args(["-m", "bash", "-c", &script, "-", "setpriv", "--reuid", &user, "--regid", &user]);
        command.arg("--clear-groups").arg(world.path("snakepit"));
        command.args(["exec", "--state-dir"]).arg(&state).args(["--", "true"]);
        let done = finish(command.current_dir("/"));
        if works {
            done.assert_status(0);
        } else {
            refused(&done, &["chmod g-w", home.to_str().expect("plain")]);
        }
    }
    world.scene.assert_clean();
}

/// In a user namespace, every user that is not mapped appears as `nobody`, including root.
#[test]
fn in_a_user_namespace_only_system_directories_of_unmapped_users_count_as_roots() {
    let Some(world) = World::new() else { return };
    if !finish(world.scene.command("setpriv").args(["--reuid", "47110", "unshare", "-Ur", "true"]))
        .status
        .success()
    {
        eprintln!("NOT PROVEN HERE: users may not create user namespaces");
        return;
    }
    let own = tempfile::tempdir_in("/tmp").expect("a directory");
    chown(own.path(), Some(ALICE), Some(ALICE)).expect("chown");
    let state = own.path().join("state");
    for map in [
        &["unshare", "-Ur"][..],
        &["unshare", "-U", "--map-current-user"],
        &["unshare", "-Ur", "unshare", "-Ur"],
    ] {
        world.exec_by(ALICE, map, &state).assert_status(0);
    }
    // Nothing shows whether this directory belongs to root.
    let home = world.make("home", ALICE, 0o755);
    world.exec_by(ALICE, &[], &home.join("state")).assert_status(0);
    let words = [world.dir.path().to_str().expect("plain"), "user namespace"];
    refused(&world.exec_by(ALICE, &["unshare", "-Ur"], &home.join("state")), &words);
    // Nothing even shows which directories are our own.
    refused(&world.exec_by(ALICE, &["unshare", "-U"], &state), &["user namespace"]);
    world.scene.assert_clean();
}

/// The same holds for what `pip` installs, because it is run as well.
#[test]
fn a_cache_of_environments_below_a_directory_of_another_user_is_refused() {
    let Some(world) = World::new() else { return };
    let theirs = world.make("theirs", MALLORY, 0o755);
    let cache = world.make("theirs/envs", 0, 0o700);
    let build = |cache: &Path| {
        let mut command = world.scene.command(env!("CARGO_BIN_EXE_snakepit"));
        command.args(["env", "build", "--cache-dir"]).arg(cache).arg("nothing-of-this-name");
        finish(&mut command)
    };
    let done = build(&cache);
    assert!(!done.status.success(), "{done:?}");
    assert!(done.stderr.contains("47111"), "{done:?}");
    assert!(done.stderr.contains(theirs.to_str().expect("plain")), "{done:?}");
    assert_eq!(fs::read_dir(&cache).expect("the cache").count(), 0);
    let prune = finish(
        world.scene.command(env!("CARGO_BIN_EXE_snakepit")).args(["env", "prune", "--cache-dir"]).arg(&cache),
    );
    assert!(!prune.status.success() && prune.stderr.contains("47111"), "{prune:?}");
}
