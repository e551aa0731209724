//! The recipe of an environment, as one text. Environments with equal texts are the same.
//!
//! The text contains the identity of the interpreter, the requirements, and the content of the files that name them,
//! but not the tool that builds the environment. Local files and directories are represented by size and modification
//! time. Of an editable project, only the files that name its requirements are represented.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::python::Identity;
use super::{Environment, EnvironmentError, Packages, requires_python};

/// The maximum depth of nested requirements files, and of directories.
const MAX_DEPTH: usize = 16;

/// The packages to install, and the text that identifies them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recipe {
    pub(super) text: String,
    pub(super) source: PackageSource,
}

/// The files of a project that may name its requirements.
const PROJECT_FILES: [&str; 3] = ["pyproject.toml", "setup.cfg", "setup.py"];

/// What the tool installs from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PackageSource {
    /// The text of a requirements file, and further files, each with its option. In the text, their paths would be
    /// relative to the requirements file.
    List(String, Vec<(&'static str, PathBuf)>),
    File(PathBuf),
    Pyproject(PathBuf),
    /// The directory of a project with a `uv.lock`.
    UvLock(PathBuf),
    Pylock(PathBuf),
}

impl Recipe {
    pub(super) fn read(
        environment: &Environment,
        packages: &Packages,
        identity: &Identity,
    ) -> Result<Self, EnvironmentError> {
        let dir = environment.base();
        let Identity { implementation, version, abi, platform, base, .. } = identity;
        let mut text = String::new();
        let _ = writeln!(text, "python {implementation} {version} {abi} {platform} {}", base.display());
        let cache = environment.cache.as_ref().map(|cache| dir.join(cache));
        let mut reader = RecipeReader { dir: dir.clone(), cache, text, seen: BTreeSet::new() };
        // The arguments may contain relative paths.
        if !environment.args.is_empty() {
            let _ = writeln!(reader.text, "dir {}", dir.display());
        }
        for arg in &environment.args {
            let _ = writeln!(reader.text, "arg {arg}");
        }
        let source = match packages {
            Packages::Requirements(list) => reader.list(list)?,
            Packages::RequirementsFile(file) => reader.file(dir.join(file))?,
            Packages::Project(project) => {
                let source = reader.project(&dir.join(project))?;
                check_python(&source, identity)?;
                source
            }
        };
        Ok(Self { text: reader.text, source })
    }

    /// Returns the key of the environment in the cache. A collision does no harm, because the manifest contains the
    /// whole text, and the texts are compared.
    pub(super) fn key(&self) -> String {
        // 128-bit FNV-1a. Keys must stay the same between versions, which the hashers of std do not guarantee, and
        // three lines need no crate. Custody's FNV-1a has 64 bits, too few for a key.
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in self.text.bytes() {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
        // The key is part of the `#!` lines of scripts, whose length the system limits.
        format!("{:020x}", hash >> 48)
    }
}

/// Rejects a Python that the project excludes by `requires-python`.
fn check_python(source: &PackageSource, identity: &Identity) -> Result<(), EnvironmentError> {
    let path = match source {
        PackageSource::Pyproject(path) => path.clone(),
        PackageSource::UvLock(home) => home.join("pyproject.toml"),
        PackageSource::List(..) | PackageSource::File(_) | PackageSource::Pylock(_) => return Ok(()),
    };
    let specifier = fs::read_to_string(&path).ok().and_then(|content| requires_python::find(&content));
    match specifier {
        Some(needs) if requires_python::allows(&needs, &identity.version) == Some(false) => {
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

/// Reads requirements, and collects the text of a recipe.
struct RecipeReader {
    dir: PathBuf,
    /// The cache, which may be inside a directory that is installed. Every build changes it.
    cache: Option<PathBuf>,
    text: String,
    seen: BTreeSet<PathBuf>,
}

impl RecipeReader {
    fn list(&mut self, list: &[String]) -> Result<PackageSource, EnvironmentError> {
        let mut list: Vec<&str> =
            list.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        list.sort_unstable();
        list.dedup();
        let text = list.join("\n") + "\n";
        let _ = write!(self.text, "requirements\n{text}");
        let dir = self.dir.clone();
        self.read_lines(&text, &dir, 0)?;
        let (mut packages, mut files) = (String::new(), Vec::new());
        for line in logical_lines(&text) {
            match RequirementLine::parse(&line) {
                RequirementLine::File(option, file) if !file.contains("://") => {
                    files.push((option, dir.join(file)));
                }
                _ => packages = packages + &line + "\n",
            }
        }
        Ok(PackageSource::List(packages, files))
    }

    fn file(&mut self, file: PathBuf) -> Result<PackageSource, EnvironmentError> {
        let content = self.add_file("requirements", &file)?;
        self.read_lines(&content, file.parent().unwrap_or(Path::new("/")), 0)?;
        Ok(PackageSource::File(file))
    }

    fn project(&mut self, project: &Path) -> Result<PackageSource, EnvironmentError> {
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
                let lock = self.add_file("uv.lock", &beside("uv.lock"))?;
                self.add_file("pyproject", &beside("pyproject.toml"))?;
                self.local_packages_of_lock(&lock, &home);
                Ok(PackageSource::UvLock(home))
            }
            "pyproject.toml" => self.add_file("pyproject", &path).map(|_| PackageSource::Pyproject(path)),
            _ if is_pylock => self.add_file("pylock", &path).map(|_| PackageSource::Pylock(path)),
            _ if is_list => self.file(path),
            _ => Err(EnvironmentError::UnknownProject(path)),
        }
    }

    /// Adds the local packages of a `uv.lock`: `source = { directory = "libs/mine" }`. The lock contains their paths,
    /// but not their content.
    fn local_packages_of_lock(&mut self, lock: &str, home: &Path) {
        for source in lock.lines().filter_map(|line| line.trim().strip_prefix("source = { ")) {
            let place = |kind: &str| source.strip_prefix(kind)?.strip_prefix(" = \"")?.split('"').next();
            if let Some(place) = place("directory").or_else(|| place("path")) {
                self.stamp(&home.join(place), 0);
            } else if let Some(place) = place("editable").filter(|place| *place != ".") {
                self.stamp_project(&home.join(place));
            }
        }
    }

    /// Adds the content of a file.
    fn add_file(&mut self, kind: &str, path: &Path) -> Result<String, EnvironmentError> {
        let content = fs::read_to_string(path)
            .map_err(|source| EnvironmentError::Unreadable { path: path.to_owned(), source })?;
        let _ = writeln!(self.text, "{kind} {}\n{content}", content.len());
        Ok(content)
    }

    /// Adds the requirements files and local packages that the lines of a requirements file name.
    fn read_lines(&mut self, text: &str, beside: &Path, depth: usize) -> Result<(), EnvironmentError> {
        for line in logical_lines(text) {
            match RequirementLine::parse(&line) {
                RequirementLine::File(_, file) => {
                    let path = beside.join(&file);
                    // URLs are left to the tool.
                    if depth < MAX_DEPTH && !file.contains("://") && self.seen.insert(path.clone()) {
                        let content = self.add_file("included", &path)?;
                        self.read_lines(&content, path.parent().unwrap_or(Path::new("/")), depth + 1)?;
                    }
                }
                RequirementLine::Editable(place) if place.contains("://") => {}
                RequirementLine::Editable(place) => {
                    let path = self.dir.join(place);
                    let _ = writeln!(self.text, "local {}", path.display());
                    self.stamp_project(&path);
                }
                RequirementLine::Package(place) => {
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

    /// Adds the files that name the requirements of an editable project. Its code is used in place.
    fn stamp_project(&mut self, path: &Path) {
        for name in PROJECT_FILES {
            self.stamp(&path.join(name), 0);
        }
    }

    /// Adds the size and time of a file, or of all files in a directory except those that tools leave there.
    fn stamp(&mut self, path: &Path, depth: usize) {
        // The path itself may be a link. Links below it are not followed, because they could form a cycle.
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
            if !is_left_by_tools && depth < MAX_DEPTH {
                self.stamp(&entry, depth + 1);
            }
        }
    }
}

/// A line of a requirements file.
enum RequirementLine {
    /// Another requirements file, and the option that names it.
    File(&'static str, String),
    /// A directory whose code is used in place.
    Editable(String),
    /// A package, by name or path.
    Package(String),
}

impl RequirementLine {
    fn parse(line: &str) -> Self {
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
            Some(place) => Self::Editable(path_of(place)),
            None => Self::Package(path_of(line)),
        }
    }
}

/// Returns the path in a requirement, without name, extras and conditions.
fn path_of(requirement: &str) -> String {
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

/// Returns the lines of a requirements file as `pip` reads them: with continued lines joined and comments removed.
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

/// Removes a comment. A `#` inside a word, as in a URL, does not begin a comment.
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
        let packages = environment.packages.as_ref().expect("something to install");
        Recipe::read(environment, packages, &identity()).unwrap_or_else(|error| panic!("{error}")).key()
    }

    fn asks(list: &[&str]) -> Environment {
        Environment::new().requirements(list.iter().copied())
    }

    #[test]
    fn the_key_ignores_the_order_of_requirements_and_the_tool_and_nothing_else() {
        let plain = key(&asks(&["a", "b>=2"]));
        assert_eq!(plain.len(), 20);
        assert_eq!(plain, key(&asks(&["b>=2", " a ", "a"])));
        assert_eq!(plain, key(&asks(&["a", "b>=2"]).installer(crate::Installer::Pip)));
        assert_ne!(plain, key(&asks(&["a", "b>=3"])));
        assert_ne!(plain, key(&asks(&["a", "b>=2"]).install_args(["--pre"])));
        let other = Identity { version: "3.11.8".into(), ..identity() };
        let environment = asks(&["a", "b>=2"]);
        let packages = environment.packages.as_ref().expect("packages");
        assert_ne!(plain, Recipe::read(&environment, packages, &other).expect("a recipe").key());
    }

    #[test]
    fn included_files_change_the_key() {
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
    fn local_packages_change_the_key_however_they_are_named() {
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
            assert!(!changes(line, "envs/x"), "the cache itself must not change the key: {line}");
        }
        // The code of an editable package is used in place. Only its requirements are installed.
        for line in ["-e .", "--editable=.", "-e ./lib[more]"] {
            assert!(!changes(line, "lib/code/a.py"), "{line}");
        }
        assert!(changes("-e .", "pyproject.toml") && changes("-e ./lib", "lib/setup.cfg"));
    }

    #[test]
    fn the_lock_file_decides_the_kind_of_a_project() {
        let dir = tempfile::tempdir().expect("a directory");
        let source = || {
            let environment = Environment::new().project(".").relative_to(dir.path());
            let packages = environment.packages.clone().expect("a project");
            Recipe::read(&environment, &packages, &identity()).map(|recipe| recipe.source)
        };
        assert!(matches!(source(), Err(EnvironmentError::UnknownProject(_))));
        for (name, is_it) in [
            ("requirements.txt", (|it| matches!(it, PackageSource::File(_))) as fn(&PackageSource) -> bool),
            ("pyproject.toml", |it| matches!(it, PackageSource::Pyproject(_))),
            ("pylock.toml", |it| matches!(it, PackageSource::Pylock(_))),
            ("uv.lock", |it| matches!(it, PackageSource::UvLock(_))),
        ] {
            fs::write(dir.path().join(name), "").expect("written");
            let source = source().unwrap_or_else(|error| panic!("{error}"));
            assert!(is_it(&source), "{name}: {source:?}");
        }
    }
}
