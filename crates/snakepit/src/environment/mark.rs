//! The mark of an environment that is whole: a small file beside it, written last.
//!
//! It says where the environment is and what it was made of. Its form has a version; one that cannot be read is no mark, and
//! the environment is made again.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::custody::catch_file_size_limit;

const FIRST_LINE: &str = "snakepit environment 1";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The name of its directory, beside the mark.
    pub(super) home: String,
    pub(super) python: String,
    pub(super) tool: String,
    pub(super) made: SystemTime,
    pub(super) recipe: String,
}

impl Mark {
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

    /// Puts the mark in its place, whole or not at all, and after everything that it vouches for has reached the disk.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("draft");
        let file = fs::File::create(&draft)?;
        catch_file_size_limit(|| io::Write::write_all(&mut &file, self.text().as_bytes()))?;
        sync_all_files(&file)?;
        fs::rename(&draft, path)
    }

    /// Notes that somebody uses the environment now.
    pub(super) fn touch(path: &Path) -> io::Result<()> {
        fs::File::options().append(true).open(path)?.set_modified(SystemTime::now())
    }
}

/// Of the file system that the file is in.
fn sync_all_files(file: &fs::File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 1 was written from its first day on.
    const SAMPLE: &str = "snakepit environment 1\nhome 0123-ab-1\npython 3.11.7\ntool pip 23.2.1\nmade 1763222400\n\
                          recipe\npython cpython 3.11.7\nrequirements\nnumpy>=2\n";

    #[test]
    fn a_mark_of_version_1_is_read_and_written_as_ever() {
        let mark = Mark::parse(SAMPLE).expect("a mark");
        assert_eq!((mark.home.as_str(), mark.tool.as_str()), ("0123-ab-1", "pip 23.2.1"));
        assert_eq!(mark.recipe, "python cpython 3.11.7\nrequirements\nnumpy>=2\n");
        assert_eq!(mark.text(), SAMPLE);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0123.env");
        assert_eq!(Mark::read(&path).expect("absent"), None);
        mark.write(&path).expect("written");
        assert_eq!(Mark::read(&path).expect("read"), Some(mark));
    }

    #[test]
    fn what_is_torn_or_of_another_version_or_leads_elsewhere_is_no_mark() {
        for end in 0..SAMPLE.find("recipe\n").expect("a recipe") + 6 {
            assert_eq!(Mark::parse(&SAMPLE[..end]), None, "{end}");
        }
        assert_eq!(Mark::parse(&SAMPLE.replace("environment 1", "environment 2")), None);
        assert_eq!(Mark::parse(&SAMPLE.replace("0123-ab-1", "../../etc")), None);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0123.env");
        fs::write(&path, [SAMPLE.as_bytes(), b"\xff\xfe"].concat()).expect("written");
        assert_eq!(Mark::read(&path).expect("what is no text is no mark"), None);
    }
}
