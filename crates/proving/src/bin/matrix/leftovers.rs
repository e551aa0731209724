//! Proves that the measurement leaves nothing behind: no process, no control group, no mount, no file.
//!
//! This must not rely on the measuring process. It looks for the names on a list after that process has ended.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Deadline, census, random};

/// The variable that names the file in which the measuring process records its names.
pub(crate) const LIST: &str = "SNAKEPIT_MATRIX_NAMES";

/// The time for which processes that were killed last may still be readable.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// Measures in another process, and looks for what that process left.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let list = std::env::temp_dir().join(format!("matrix-{}", random::word()));
    let before = mounts();
    let me = std::env::current_exe().expect("a program has a path");
    let measured = Command::new(me).arg("measure").args(args).env(LIST, &list).status();
    let status = measured.expect("start the measuring process");

    let noted = fs::read_to_string(&list).unwrap_or_default();
    let _ = fs::remove_file(&list);
    let names: Vec<String> = noted.lines().map(str::to_owned).collect();
    let left = [processes(&names), cgroups(&names), files(&names), changed(&before, &mounts())].concat();
    for what in &left {
        println!("LEFT BEHIND: {what}");
    }
    if left.is_empty() {
        println!("left behind: no process, no cgroup, no mount, no file");
    }
    match status.code() {
        Some(0) if left.is_empty() => ExitCode::SUCCESS,
        Some(code @ 2..) => ExitCode::from(code as u8),
        _ => ExitCode::FAILURE,
    }
}

fn processes(names: &[String]) -> Vec<String> {
    let deadline = Deadline::after(LAST_MOMENTS);
    let found = recheck(Deadline::patient(), "the last look", || {
        let found = census::mentioning(names);
        (found.is_empty() || deadline.left().is_none()).then_some(found)
    });
    found.iter().map(|found| format!("the process {} ({})", found.pid, found.cmdline)).collect()
}

fn files(names: &[String]) -> Vec<String> {
    let paths = names.iter().map(|name| std::env::temp_dir().join(name));
    paths.filter(|path| path.exists()).map(|path| format!("the file {}", path.display())).collect()
}

/// Returns the differences between two tables of mounts. All of our mounts are in separate namespaces and not in it.
fn changed(before: &[String], after: &[String]) -> Vec<String> {
    let came = after.iter().filter(|it| !before.contains(it)).map(|it| format!("the mount {it}"));
    let went = before.iter().filter(|it| !after.contains(it)).map(|it| format!("the mount is gone: {it}"));
    came.chain(went).collect()
}

fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    table.lines().map(str::to_owned).collect()
}

/// Returns the control groups of either version with one of the names.
fn cgroups(names: &[String]) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    let mut found = Vec::new();
    for line in table.lines() {
        let mut fields = line.split(' ').skip(1);
        if let (Some(place), Some("cgroup" | "cgroup2")) = (fields.next(), fields.next()) {
            search(Path::new(place), names, &mut found);
        }
    }
    found
}

fn search(dir: &Path, names: &[String], found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let text = path.display().to_string();
        if names.iter().any(|name| text.contains(name.as_str())) {
            found.push(format!("the cgroup {text}"));
        }
        search(&path, names, found);
    }
}
