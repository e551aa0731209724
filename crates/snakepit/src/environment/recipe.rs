//! What an environment is made of, as one text: equal texts are the same environment.
//!
//! The text has the interpreter's identity, what is asked for, and what the files that ask for it say; not which tool makes
//! it. Files and directories that are installed from here count by their size and time; of what is editable, only the files that
//! say what it needs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::python::Identity;
use super::{Environment, EnvironmentError, Needs, requires};

/// How deep files of requirements may name each other.
const DEEPEST: usize = 16;

/// What is installed, and the text that it is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recipe {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The files of a project that say what it needs.
const PROJECT_FILES: [&str; 3] = ["pyproject.toml", "setup.cfg", "setup.py"];

/// What a tool is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The text of a requirements file, and further files with the option that names each: in a file, they would be looked for
    /// beside it.
    List(String, Vec<(&'static str, PathBuf)>),
    File(PathBuf),
    Pyproject(PathBuf),
    /// The directory of a project that `uv` has locked.
    UvLock(PathBuf),
    Pylock(PathBuf),
}

impl Recipe {
    pub(super) fn read(
        environment: &Environment,
        needs: &Needs,
        identity: &Identity,
    ) -> Result<Self, EnvironmentError> {
        let dir = environment.base();
        let Identity { implementation, version, abi, platform, base, .. } = identity;
        let mut text = String::new();
        let _ = writeln!(text, "python {implementation} {version} {abi} {platform} {}", base.display());
        let cache = environment.cache.as_ref().map(|cache| dir.join(cache));
        let mut reading = Reading { dir: dir.clone(), cache, text, seen: BTreeSet::new() };
        // What they name may be relative.
        if !environment.args.is_empty() {
            let _ = writeln!(reading.text, "dir {}", dir.display());
        }
        for arg in &environment.args {
            let _ = writeln!(reading.text, "arg {arg}");
        }
        let source = match needs {
            Needs::Requirements(list) => reading.list(list)?,
            Needs::RequirementsFile(file) => reading.file(dir.join(file))?,
            Needs::Project(project) => {
                let source = reading.project(&dir.join(project))?;
                fits(&source, identity)?;
                source
            }
        };
        Ok(Self { text: reading.text, source })
    }

    /// The name of its place. Nothing is secured by it: the text itself is compared, too.
    pub(super) fn key(&self) -> String {
        // FNV-1a of 128 bits.
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in self.text.bytes() {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
        // Paths with it stand in the first line of scripts, which the system keeps short.
        format!("{:020x}", hash >> 48)
    }
}

/// Whether the project is for this Python, as far as it says so.
fn fits(source: &Source, identity: &Identity) -> Result<(), EnvironmentError> {
    let path = match source {
        Source::Pyproject(path) => path.clone(),
        Source::UvLock(home) => home.join("pyproject.toml"),
        Source::List(..) | Source::File(_) | Source::Pylock(_) => return Ok(()),
    };
    let said = fs::read_to_string(&path).ok().and_then(|content| requires::said(&content));
    match said {
        Some(needs) if requires::allows(&needs, &identity.version) == Some(false) => {
            Err(EnvironmentError::WrongPython {
                path,
                needs,
                python: identity.executable.clone(),
                version: identity.version.clone(),
            })
        }
        _ => Ok(()),
    }
}

struct Reading {
    dir: PathBuf,
    /// It may be inside of what is installed, and changes by that.
    cache: Option<PathBuf>,
    text: String,
    seen: BTreeSet<PathBuf>,
}

impl Reading {
    fn list(&mut self, list: &[String]) -> Result<Source, EnvironmentError> {
        let mut list: Vec<&str> =
            list.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        list.sort_unstable();
        list.dedup();
        let text = list.join("\n") + "\n";
        let _ = write!(self.text, "requirements\n{text}");
        let dir = self.dir.clone();
        self.mentioned(&text, &dir, 0)?;
        let (mut packages, mut files) = (String::new(), Vec::new());
        for line in logical_lines(&text) {
            match Mention::of(&line) {
                Mention::File(option, file) if !file.contains("://") => files.push((option, dir.join(file))),
                _ => packages = packages + &line + "\n",
            }
        }
        Ok(Source::List(packages, files))
    }

    fn file(&mut self, file: PathBuf) -> Result<Source, EnvironmentError> {
        let content = self.note("requirements", &file)?;
        self.mentioned(&content, file.parent().unwrap_or(Path::new("/")), 0)?;
        Ok(Source::File(file))
    }

    fn project(&mut self, project: &Path) -> Result<Source, EnvironmentError> {
        let path = if project.is_dir() {
            const KNOWN: [&str; 4] = ["uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt"];
            let found = KNOWN.iter().map(|name| project.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| EnvironmentError::UnknownProject(project.to_owned()))?
        } else {
            project.to_owned()
        };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let beside = |name: &str| path.with_file_name(name);
        let home = path.parent().unwrap_or(Path::new("/")).to_owned();
        let has_ending = |ending: &str| path.extension().is_some_and(|it| it == ending);
        let is_pylock = name.starts_with("pylock.") && has_ending("toml");
        let is_list = has_ending("txt") || has_ending("in");
        match name.as_str() {
            "uv.lock" | "pyproject.toml" if beside("uv.lock").is_file() => {
                let lock = self.note("uv.lock", &beside("uv.lock"))?;
                self.note("pyproject", &beside("pyproject.toml"))?;
                self.locked(&lock, &home);
                Ok(Source::UvLock(home))
            }
            "pyproject.toml" => self.note("pyproject", &path).map(|_| Source::Pyproject(path)),
            _ if is_pylock => self.note("pylock", &path).map(|_| Source::Pylock(path)),
            _ if is_list => self.file(path),
            _ => Err(EnvironmentError::UnknownProject(path)),
        }
    }

    /// Takes in what a `uv.lock` has from disk: `source = { directory = "libs/mine" }`. It tells where, and not which.
    fn locked(&mut self, lock: &str, home: &Path) {
        for source in lock.lines().filter_map(|line| line.trim().strip_prefix("source = { ")) {
            let place = |kind: &str| source.strip_prefix(kind)?.strip_prefix(" = \"")?.split('"').next();
            if let Some(place) = place("directory").or_else(|| place("path")) {
                self.stamp(&home.join(place), 0);
            } else if let Some(place) = place("editable").filter(|place| *place != ".") {
                self.stamp_project(&home.join(place));
            }
        }
    }

    /// Takes a file in.
    fn note(&mut self, kind: &str, path: &Path) -> Result<String, EnvironmentError> {
        let content = fs::read_to_string(path)
            .map_err(|source| EnvironmentError::Unreadable { path: path.to_owned(), source })?;
        let _ = writeln!(self.text, "{kind} {}\n{content}", content.len());
        Ok(content)
    }

    /// Takes in what the lines of a requirements file name: other such files, and what is installed from here.
    fn mentioned(&mut self, text: &str, beside: &Path, depth: usize) -> Result<(), EnvironmentError> {
        for line in logical_lines(text) {
            match Mention::of(&line) {
                Mention::File(_, file) => {
                    let path = beside.join(&file);
                    // An address is the tool's matter.
                    if depth < DEEPEST && !file.contains("://") && self.seen.insert(path.clone()) {
                        let content = self.note("included", &path)?;
                        self.mentioned(&content, path.parent().unwrap_or(Path::new("/")), depth + 1)?;
                    }
                }
                Mention::Editable(place) if place.contains("://") => {}
                Mention::Editable(place) => {
                    let path = self.dir.join(place);
                    let _ = writeln!(self.text, "local {}", path.display());
                    self.stamp_project(&path);
                }
                Mention::Package(place) => {
                    let path = self.dir.join(&place);
                    if looks_like_a_path(&place) && path.exists() {
                        let _ = writeln!(self.text, "local {}", path.display());
                        self.stamp(&path, 0);
                    }
                }
            }
        }
        Ok(())
    }

    /// What an editable project needs is said by these files; its code is found where it is.
    fn stamp_project(&mut self, path: &Path) {
        for name in PROJECT_FILES {
            self.stamp(&path.join(name), 0);
        }
    }

    /// Sizes and times of a file, or of all files of a directory but what tools leave there.
    fn stamp(&mut self, path: &Path, depth: usize) {
        // What is named may be a link. Below it, links could lead round in circles.
        let meta = if depth == 0 { path.metadata() } else { path.symlink_metadata() };
        let Ok(meta) = meta else { return };
        if !meta.is_dir() {
            let _ = writeln!(
                self.text,
                "stamp {} {} {}.{:09}",
                path.display(),
                meta.len(),
                meta.mtime(),
                meta.mtime_nsec()
            );
            return;
        }
        let Ok(entries) = fs::read_dir(path) else { return };
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for entry in entries {
            let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_left_by_tools = name.starts_with('.')
                || name.ends_with(".egg-info")
                || ["__pycache__", "build", "dist"].contains(&&*name)
                || self.cache.as_deref() == Some(&entry);
            if !is_left_by_tools && depth < DEEPEST {
                self.stamp(&entry, depth + 1);
            }
        }
    }
}

/// What a line of a requirements file names.
enum Mention {
    /// Another such file, by this option.
    File(&'static str, String),
    /// A directory whose code is used where it is.
    Editable(String),
    /// What is installed: a package, or the place of one.
    Package(String),
}

impl Mention {
    fn of(line: &str) -> Self {
        let option = |names: [&str; 2]| {
            let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
            Some(rest.trim_start_matches(['=', ' ', '\t']).trim().trim_matches(['"', '\'']))
        };
        if let Some(file) = option(["--requirement", "-r"]) {
            return Self::File("-r", file.to_owned());
        }
        if let Some(file) = option(["--constraint", "-c"]) {
            return Self::File("-c", file.to_owned());
        }
        match option(["--editable", "-e"]) {
            Some(place) => Self::Editable(place_of(place)),
            None => Self::Package(place_of(line)),
        }
    }
}

/// Where a package is, without its name, its extras and its conditions.
fn place_of(requirement: &str) -> String {
    let address = requirement.split_once('@').map(|(_, address)| address.trim_start());
    let address = address.filter(|address| address.starts_with("file:") || address.starts_with(['.', '/']));
    let place = address.unwrap_or(requirement);
    let place = place.strip_prefix("file://").or_else(|| place.strip_prefix("file:")).unwrap_or(place);
    place.split([';', ' ', '[', '#']).next().unwrap_or_default().to_owned()
}

fn looks_like_a_path(place: &str) -> bool {
    let is_wheel = Path::new(place).extension().is_some_and(|ending| ending == "whl");
    !place.contains("://") && (place.contains('/') || is_wheel || place == "." || place == "..")
}

/// The lines of a requirements file as `pip` reads them: put together where they go on, and without comments.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun = String::new();
    for line in text.lines() {
        if let Some(line) = line.strip_suffix('\\') {
            begun.push_str(line);
            continue;
        }
        let line = std::mem::take(&mut begun) + line;
        lines.push(without_comment(&line).trim().to_owned());
    }
    lines.push(without_comment(&begun).trim().to_owned());
    lines.retain(|line| !line.is_empty());
    lines
}

/// A `#` in the middle of a word, as in an address, begins no comment.
fn without_comment(line: &str) -> &str {
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').find(|(at, _)| begins(*at));
    comment.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            executable: "/usr/bin/python3".into(),
            base: "/usr/bin/python3.11".into(),
            implementation: "cpython".into(),
            version: "3.11.7".into(),
            abi: "cpython-311-x86_64-linux-gnu".into(),
            platform: "linux-x86_64".into(),
            pip: None,
        }
    }

    fn key(environment: &Environment) -> String {
        let needs = environment.needs.as_ref().expect("something to install");
        Recipe::read(environment, needs, &identity()).unwrap_or_else(|error| panic!("{error}")).key()
    }

    fn asks(list: &[&str]) -> Environment {
        Environment::new().requirements(list.iter().copied())
    }

    #[test]
    fn the_order_of_requirements_and_the_tool_change_nothing_and_all_else_does() {
        let plain = key(&asks(&["a", "b>=2"]));
        assert_eq!(plain.len(), 20);
        assert_eq!(plain, key(&asks(&["b>=2", " a ", "a"])));
        assert_eq!(plain, key(&asks(&["a", "b>=2"]).installer(crate::environment::Installer::Pip)));
        assert_ne!(plain, key(&asks(&["a", "b>=3"])));
        assert_ne!(plain, key(&asks(&["a", "b>=2"]).install_args(["--pre"])));
        let other = Identity { version: "3.11.8".into(), ..identity() };
        let environment = asks(&["a", "b>=2"]);
        let needs = environment.needs.as_ref().expect("needs");
        assert_ne!(plain, Recipe::read(&environment, needs, &other).expect("a recipe").key());
    }

    #[test]
    fn what_files_include_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
        write(
            "requirements.txt",
            "a # -r none.txt\n-r 'more.txt'  # the rest\n--constraint \\\n  limits.txt\n",
        );
        write("more.txt", "b\n-r requirements.txt\n./local.whl\n");
        write("limits.txt", "b<2\n");
        write("local.whl", "one");
        let environment = Environment::new().requirements_file("requirements.txt").relative_to(dir.path());
        let before = key(&environment);
        assert_eq!(before, key(&environment));
        write("more.txt", "b>1\n-r requirements.txt\n./local.whl\n");
        let included = key(&environment);
        assert_ne!(before, included);
        write("local.whl", "another");
        let changed = key(&environment);
        assert_ne!(included, changed);
        write("limits.txt", "b<3\n");
        assert_ne!(changed, key(&environment));
    }

    #[test]
    fn what_is_installed_from_disk_counts_however_it_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
        fs::create_dir_all(dir.path().join("lib/code")).expect("directories");
        fs::create_dir_all(dir.path().join("envs")).expect("a directory");
        std::os::unix::fs::symlink("lib", dir.path().join("link")).expect("a link");
        let address = format!("lib @ file://{}/lib", dir.path().display());
        let mut size = 0;
        let mut changes = |line: &str, file: &str| {
            let environment = asks(&[line]).relative_to(dir.path()).cache_dir("envs");
            let before = key(&environment);
            assert_eq!(before, key(&environment), "{line}");
            size += 1;
            write(file, &"x".repeat(size));
            before != key(&environment)
        };
        for line in [".", "./lib", "lib/", "./lib[more] ; python_version > '3'", "./link", &address] {
            assert!(changes(line, "lib/code/a.py"), "{line}");
            assert!(!changes(line, "envs/x"), "what is made is no reason to make it again: {line}");
        }
        // The code of an editable one is found where it is; what it needs is installed.
        for line in ["-e .", "--editable=.", "-e ./lib[more]"] {
            assert!(!changes(line, "lib/code/a.py"), "{line}");
        }
        assert!(changes("-e .", "pyproject.toml") && changes("-e ./lib", "lib/setup.cfg"));
    }

    #[test]
    fn a_project_is_known_by_its_lock_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let source = || {
            let environment = Environment::new().project(".").relative_to(dir.path());
            let needs = environment.needs.clone().expect("a project");
            Recipe::read(&environment, &needs, &identity()).map(|recipe| recipe.source)
        };
        assert!(matches!(source(), Err(EnvironmentError::UnknownProject(_))));
        for (name, is_it) in [
            ("requirements.txt", (|it| matches!(it, Source::File(_))) as fn(&Source) -> bool),
            ("pyproject.toml", |it| matches!(it, Source::Pyproject(_))),
            ("pylock.toml", |it| matches!(it, Source::Pylock(_))),
            ("uv.lock", |it| matches!(it, Source::UvLock(_))),
        ] {
            fs::write(dir.path().join(name), "").expect("written");
            let source = source().unwrap_or_else(|error| panic!("{error}"));
            assert!(is_it(&source), "{name}: {source:?}");
        }
    }
}
