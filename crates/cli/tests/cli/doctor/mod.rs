//! The report of `snakepit doctor`, as text and as JSON.

mod system;

use serde_json::Value;

use crate::support::{Scene, finish};

#[test]
fn doctor_finds_the_default_tier_and_explains_the_rest() {
    let scene = Scene::new();
    let done = finish(&mut scene.verb("doctor"));
    let text = &done.assert_status(0).stdout;
    for section in ["Tiers", "System", "Limits", "State directory", "Python"] {
        assert!(text.lines().any(|line| line == section), "{section} is missing:\n{text}");
    }
    for name in [
        "namespace",
        "shim",
        "group",
        "auto",
        "cgroup.kill",
        "pidfs",
        "/proc",
        "PID namespace",
        "time namespace",
        "user namespaces",
        "cgroup v2",
        "seccomp",
        "no_new_privs",
        "open files",
        "processes",
        "file size",
        "pid_max",
        "memfd_noexec",
        "path",
        "usable",
        "python3",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with("  ") && line.contains(name)),
            "{name} is missing:\n{text}"
        );
    }
    assert!(text.contains(&scene.state_dir().display().to_string()), "{text}");
    assert!(text.ends_with("All is well: `snakepit exec` runs in the shim tier here.\n"), "{text}");
    scene.assert_clean();
}

#[test]
fn doctor_says_the_same_as_json() {
    let scene = Scene::new();
    let done = finish(scene.verb("doctor").arg("--json"));
    let report: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!((&report["healthy"], &report["default_tier"]), (&true.into(), &"shim".into()), "{report}");
    let shim =
        report["tiers"].as_array().expect("tiers").iter().find(|tier| tier["name"] == "shim").expect("shim");
    assert_eq!(shim["verdict"], "ok", "{report}");
    scene.assert_clean();
}

#[test]
fn doctor_says_why_a_state_directory_cannot_be_used() {
    let scene = Scene::new();
    let file = scene.state_dir().join("file");
    std::fs::write(&file, "").expect("a file");
    let link = scene.state_dir().join("link");
    std::os::unix::fs::symlink(scene.state_dir(), &link).expect("a link");
    for (dir, why) in [
        (file.as_path(), "not a directory"),
        (link.as_path(), "symbolic link"),
        ("/dev/null/x".as_ref(), "Not a directory"),
    ] {
        let done =
            finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).arg("doctor").arg("--state-dir").arg(dir));
        assert!(done.assert_status(1).stdout.contains(why), "{why}:\n{}", done.stdout);
        assert!(done.stdout.contains("does not work here"), "{}", done.stdout);
    }
    scene.assert_clean();
}

#[test]
fn doctor_warns_of_a_script_in_pythons_place() {
    let scene = Scene::new();
    let shims = tempfile::tempdir().expect("a directory");
    let shim = shims.path().join("python3");
    std::fs::write(&shim, "#!/bin/sh\nPATH=${PATH#*:} exec python3 \"$@\"\n").expect("a shim");
    std::fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let path = format!("{}:{}", shims.path().display(), std::env::var("PATH").expect("PATH"));
    let done = finish(scene.verb("doctor").env("PATH", path));
    let warning = format!("{} is a script", shim.display());
    assert!(done.assert_status(0).stdout.contains(&warning), "{}", done.stdout);
    scene.assert_clean();
}

#[test]
fn doctor_works_without_python() {
    let scene = Scene::new();
    let done = finish(scene.verb("doctor").env("PATH", "/nonexistent"));
    assert!(done.assert_status(0).stdout.contains("not in PATH"), "{}", done.stdout);
    scene.assert_clean();
}
