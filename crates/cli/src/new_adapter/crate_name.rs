//! The names that a crate can have, and the name of its type.

use std::str::FromStr;

/// Names that cargo or the compiler reserves.
const RESERVED: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final \
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait \
    true try type typeof unsafe unsized use virtual where while yield alloc core std proc_macro test build deps examples \
    incremental";

/// Crates that the new crate depends on.
const NEEDED: [&str; 4] = ["snakepit", "futures-util", "serde-json", "tokio"];

/// Code in which the type's name must be unique.
const CODE: [&str; 2] = [include_str!("template/lib.rs.txt"), include_str!("template/conformance.rs.txt")];

/// The name of a crate.
#[derive(Debug)]
pub(super) struct CrateName(String);

impl FromStr for CrateName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name.is_empty() {
            return Err("it is empty".into());
        }
        if name.len() > 64 {
            return Err("it has more than 64 characters".into());
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if let Some(other) = name.chars().find(|c| !is_plain(*c)) {
            return Err(format!("{other:?} is not a lowercase letter, a digit, a hyphen or an underscore"));
        }
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err("it does not begin with a letter".into());
        }
        if name.ends_with(['-', '_']) {
            return Err("it does not end with a letter or a digit".into());
        }
        if RESERVED.split_whitespace().any(|word| word == name.replace('-', "_")) {
            return Err("it is a word of the language or of cargo".into());
        }
        if NEEDED.contains(&name.replace('_', "-").as_str()) {
            return Err("it is the name of a crate that the adapter needs".into());
        }
        Ok(Self(name.to_owned()))
    }
}

impl CrateName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the crate's type: `MyLines` for `my-lines`. Adds an ending if the code already uses the
    /// word.
    fn type_name(&self) -> String {
        let words = self.0.split(['-', '_']).map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        });
        let name: String = words.collect();
        let in_use = |code: &&str| code.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        if CODE.iter().any(in_use) { format!("{name}Adapter") } else { name }
    }

    pub(super) fn fill(&self, text: &str) -> String {
        text.replace("@name@", &self.0)
            .replace("@crate@", &self.0.replace('-', "_"))
            .replace("@Type@", &self.type_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_crate_names_are_accepted_and_invalid_ones_rejected_with_the_reason() {
        for good in ["my-lines", "lines2", "a", "x_y"] {
            assert!(good.parse::<CrateName>().is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "empty"),
            ("My", "'M'"),
            ("a b", "' '"),
            ("../x", "'.'"),
            ("a/b", "'/'"),
            ("2x", "begin with a letter"),
            ("x-", "does not end"),
            ("match", "a word of"),
            ("test", "a word of"),
            ("tokio", "needs"),
            ("snakepit", "needs"),
            ("größe", "'ö'"),
        ] {
            let reason = bad.parse::<CrateName>().expect_err(bad);
            assert!(reason.contains(why), "{bad}: {reason}");
        }
        assert!("x".repeat(65).parse::<CrateName>().is_err());
    }

    #[test]
    fn types_are_named_after_the_crate() {
        let filled = |name: &str| name.parse::<CrateName>().expect("a name").fill("@name@ @crate@ @Type@");
        assert_eq!(filled("my-lines"), "my-lines my_lines MyLines");
        assert_eq!(filled("a__b2"), "a__b2 a__b2 AB2");
        for taken in [
            "lines",
            "arc",
            "string",
            "result",
            "some",
            "held-calls",
            "remote-error",
            "box-future",
            "mine",
            "clone",
        ] {
            assert!(filled(taken).ends_with("Adapter"), "{}", filled(taken));
        }
    }
}
