//! The manifest of an environment: a small file beside it, written last. An environment without a manifest is
//! incomplete.
//!
//! The manifest names the location of the environment and its recipe. The format has a version. A manifest that
//! cannot be parsed counts as absent, and the environment is built again.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use snakepit_custody::catch_file_size_limit;

const FIRST_LINE: &str = "snakepit environment 1";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// The name of the environment's directory, beside the manifest.
    pub(super) home: String,
    pub(super) python: String,
    pub(super) tool: String,
    pub(super) made: SystemTime,
    pub(super) recipe: String,
}

impl Manifest {
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(Self::parse)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (head, recipe) = text.split_once("\nrecipe\n")?;
        let mut lines = head.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let fact = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
        };
        let home =
            fact("home").filter(|home| !home.is_empty() && !home.contains('/') && !home.starts_with('.'))?;
        let made = UNIX_EPOCH + Duration::from_secs(fact("made")?.parse().ok()?);
        Some(Self { home, python: fact("python")?, tool: fact("tool")?, made, recipe: recipe.to_owned() })
    }

    fn text(&self) -> String {
        let made = self.made.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let Self { home, python, tool, recipe, .. } = self;
        format!("{FIRST_LINE}\nhome {home}\npython {python}\ntool {tool}\nmade {made}\nrecipe\n{recipe}")
    }

    /// Writes the manifest atomically, after the environment has reached the disk.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("draft");
        let file = fs::File::create(&draft)?;
        catch_file_size_limit(|| io::Write::write_all(&mut &file, self.text().as_bytes()))?;
        sync_all_files(&file)?;
        fs::rename(&draft, path)
    }

    /// Records that the environment is in use now.
    pub(super) fn touch(path: &Path) -> io::Result<()> {
        fs::File::options().append(true).open(path)?.set_modified(wall_now())
    }
}

/// Returns the wall time, which files carry and other processes compare.
#[expect(clippy::disallowed_methods, reason = "the file system's times are of this clock")]
pub(super) fn wall_now() -> SystemTime {
    SystemTime::now()
}

/// Flushes the whole file system of the file, if the system can.
fn sync_all_files(file: &fs::File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1, as released.
    const SAMPLE: &str = "snakepit environment 1\nhome 0123-ab-1\npython 3.11.7\ntool pip 23.2.1\nmade 1763222400\n\
                          recipe\npython cpython 3.11.7\nrequirements\nnumpy>=2\n";

    #[test]
    fn version_1_is_read_and_written_as_released() {
        let manifest = Manifest::parse(SAMPLE).expect("a manifest");
        assert_eq!((manifest.home.as_str(), manifest.tool.as_str()), ("0123-ab-1", "pip 23.2.1"));
        assert_eq!(manifest.recipe, "python cpython 3.11.7\nrequirements\nnumpy>=2\n");
        assert_eq!(manifest.text(), SAMPLE);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0123.env");
        assert_eq!(Manifest::read(&path).expect("absent"), None);
        manifest.write(&path).expect("written");
        assert_eq!(Manifest::read(&path).expect("read"), Some(manifest));
    }

    #[test]
    fn a_manifest_that_is_torn_or_unknown_or_points_elsewhere_counts_as_absent() {
        for end in 0..SAMPLE.find("recipe\n").expect("a recipe") + 6 {
            assert_eq!(Manifest::parse(&SAMPLE[..end]), None, "{end}");
        }
        assert_eq!(Manifest::parse(&SAMPLE.replace("environment 1", "environment 2")), None);
        assert_eq!(Manifest::parse(&SAMPLE.replace("0123-ab-1", "../../etc")), None);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0123.env");
        fs::write(&path, [SAMPLE.as_bytes(), b"\xff\xfe"].concat()).expect("written");
        assert_eq!(Manifest::read(&path).expect("bytes that are no text count as absent"), None);
    }
}
