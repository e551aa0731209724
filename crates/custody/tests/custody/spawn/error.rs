//! What a spawn refuses.

use snakepit_custody::{Command, ExitStatus, SpawnError};

use crate::support::Home;

#[test]
fn a_command_beyond_the_systems_limit_is_rejected_as_too_large() {
    let home = Home::new();
    let run = home.open();
    for size in [3 * 1024 * 1024, 20 * 1024 * 1024] {
        let arguments = std::iter::repeat_n("x".repeat(100_000), size / 100_000);
        let error = run.spawn(Command::new("true").args(arguments)).unwrap_err();
        assert!(matches!(error, SpawnError::TooLarge), "{error}");
    }
    assert_eq!(run.spawn(Command::new("true")).unwrap().wait().status, ExitStatus::Code(0));
}

#[test]
fn a_command_that_cannot_start_is_named_and_leaves_nothing() {
    let home = Home::new();
    let run = home.open();
    let refuse = |command: Command, status: u8, words: &str| {
        let error = run.spawn(command).unwrap_err();
        assert_eq!(error.shell_status(), status, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refuse(Command::new("no-such-program-anywhere"), 127, "no-such-program-anywhere: command not found");
    refuse(Command::new("/no/such/program"), 127, "/no/such/program: command not found");
    refuse(Command::new(""), 127, "command not found");
    refuse(Command::new("/etc/passwd"), 126, "/etc/passwd: cannot be executed");
    refuse(Command::new("/"), 126, "/: cannot be executed");
    refuse(Command::new(format!("/{}", "x".repeat(5000))), 126, "cannot be executed");
    refuse(Command::new("tr\0ue"), 125, "the command contains a NUL byte");
    refuse(Command::new("true").arg("a\0b"), 125, "an argument contains a NUL byte");
    refuse(Command::new("true").env("A", "b\0c"), 125, "a variable's value contains a NUL byte");
    refuse(Command::new("true").env("A=B", "c"), 125, "\"A=B\" cannot be the name");
    refuse(Command::new("true").current_dir("/no/such/dir"), 125, "/no/such/dir");
    refuse(Command::new("true").current_dir("/etc/passwd"), 125, "/etc/passwd");
    let null = || std::fs::File::open("/dev/null").unwrap();
    refuse(Command::new("true").fd(null(), 2), 125, "descriptor number 2 is taken");
    refuse(Command::new("true").fd(null(), 5).fd(null(), 5), 125, "descriptor number 5 is taken");
    refuse(Command::new("true").nice(5).oom_score_adj(5000), 125, "cannot set oom_score_adj");
    assert!(run.workers().is_empty());
    assert!(home.living_on_record().is_empty());
}

#[test]
fn a_script_without_its_interpreter_says_so() {
    let home = Home::new();
    let run = home.open();
    let script = home.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = run.spawn(Command::new(&script)).unwrap_err();
    assert_eq!(error.shell_status(), 126);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("interpreter"), "{error:?}");
}
