//! `requires-python`: the versions of Python that a project supports.
//!
//! Written here instead of using the crate `pep440_rs`: the answer only names a wrong interpreter before anything is
//! installed. A clause that this file cannot parse is left to `uv` or `pip`, which have the whole grammar.

use std::cmp::Ordering;

/// Finds the specifier in a `pyproject.toml` (in the table `[project]`) or in a lock (before all tables).
pub(super) fn find(content: &str) -> Option<String> {
    let mut in_table = true;
    for line in content.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            in_table = table.trim_end() == "project]";
        }
        if let (true, Some(rest)) = (in_table, line.strip_prefix("requires-python")) {
            let quoted = rest.trim_start().strip_prefix('=')?.trim_start();
            let quote = quoted.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
            return Some(quoted[1..].split(quote).next()?.trim().to_owned());
        }
    }
    None
}

/// Reports whether a specifier, such as `>=3.9,<4`, allows a version. Returns `None` if it cannot be parsed, which
/// leaves the decision to the tool.
pub(super) fn allows(specifier: &str, version: &str) -> Option<bool> {
    let version = numbers(version)?;
    let mut all = true;
    for clause in specifier.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
        let split = clause.find(|c: char| c.is_ascii_digit())?;
        let (sign, wanted) = (clause[..split].trim(), clause[split..].trim());
        let (wanted, is_series) = match wanted.strip_suffix(".*") {
            Some(series) => (numbers(series)?, true),
            None => (numbers(wanted)?, false),
        };
        let in_series = version.len() >= wanted.len() && version[..wanted.len()] == wanted[..];
        let order = compare(&version, &wanted);
        all &= match (sign, is_series) {
            ("==", true) => in_series,
            ("!=", true) => !in_series,
            ("==", false) => order == Ordering::Equal,
            ("!=", false) => order != Ordering::Equal,
            (">=", false) => order != Ordering::Less,
            ("<=", false) => order != Ordering::Greater,
            (">", false) => order == Ordering::Greater,
            ("<", false) => order == Ordering::Less,
            ("~=", false) if wanted.len() > 1 => {
                let series = &wanted[..wanted.len() - 1];
                order != Ordering::Less && version.len() >= series.len() && version[..series.len()] == *series
            }
            _ => return None,
        };
    }
    Some(all)
}

/// Returns a version that a specifier names and allows: the lower bound, or the only version.
pub(super) fn lowest(specifier: &str) -> Option<&str> {
    let signs = [">=", "==", "~="];
    let bounds = specifier
        .split(',')
        .filter_map(|clause| signs.iter().find_map(|sign| clause.trim().strip_prefix(sign)));
    let mut versions = bounds.map(|version| version.trim().trim_end_matches(".*"));
    versions.find(|version| allows(specifier, version) == Some(true))
}

/// Returns the numbers of a version. Those of `3.14.0rc1` are the ones before the letters.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    version[..end].trim_end_matches('.').split('.').map(|number| number.parse().ok()).collect()
}

/// Compares versions. Missing numbers are zero.
fn compare(one: &[u64], other: &[u64]) -> Ordering {
    let at = |numbers: &[u64], index: usize| numbers.get(index).copied().unwrap_or(0);
    let count = one.len().max(other.len());
    (0..count)
        .map(|index| at(one, index).cmp(&at(other, index)))
        .find(|it| it.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifier_is_found_in_its_table_only() {
        assert_eq!(find("[project]\nname = \"x\"\nrequires-python = \">=3.9\"\n").as_deref(), Some(">=3.9"));
        assert_eq!(find("version = 1\nrequires-python = '==3.12.*'\n").as_deref(), Some("==3.12.*"));
        assert_eq!(find("[tool.other]\nrequires-python = \">=4\"\n"), None);
        assert_eq!(find("[project]\nname = \"x\"\n"), None);
    }

    #[test]
    fn a_version_that_fits_is_suggested() {
        for (specifier, expected) in [
            (">=3.13", Some("3.13")),
            ("<4, >= 3.12.1", Some("3.12.1")),
            ("==3.12.*", Some("3.12")),
            ("~=3.11", Some("3.11")),
            ("!=3.12,>=3.12", None),
            ("<3.10", None),
            ("", None),
        ] {
            assert_eq!(lowest(specifier), expected, "{specifier}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        for (specifier, version, expected) in [
            (">=3.9", "3.10.1", Some(true)),
            (">=3.9", "3.9", Some(true)),
            (">=3.9.0", "3.9", Some(true)),
            (">=3.12", "3.11.7", Some(false)),
            (">=3.9,<3.12", "3.12.0", Some(false)),
            (">= 3.9, < 4", "3.13.1", Some(true)),
            ("==3.12.*", "3.12.4", Some(true)),
            ("==3.12.*", "3.1.2", Some(false)),
            ("!=3.12.*", "3.12.4", Some(false)),
            ("~=3.9", "3.13.0", Some(true)),
            ("~=3.9.2", "3.10.0", Some(false)),
            ("~=3.9.2", "3.9.1", Some(false)),
            (">3.11", "3.11.0", Some(false)),
            ("==3.11", "3.11.0", Some(true)),
            (">=3.14", "3.14.0rc1", Some(true)),
            ("", "3.11", Some(true)),
            ("===3.11", "3.11", None),
            ("nonsense", "3.11", None),
        ] {
            assert_eq!(allows(specifier, version), expected, "{specifier} {version}");
        }
    }
}
