//! Texts with arguments: `/items/{id}`, `Bearer {token}`.

/// A text in which `{name}` stands for an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum TemplatePart {
    Text(String),
    Argument(String),
}

impl Template {
    /// Parses a text. `{{` and `}}` stand for braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(format!("{text:?} has a `}}` without a `{{`"));
            }
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?} has a `{{` without a `}}`"))?;
            if !is_name(name) {
                return Err(format!(
                    "{text:?} has {{{name}}}: write the name of an argument between the braces, made of letters, digits and `_`"
                ));
            }
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Argument(name.to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Self(parts))
    }

    /// Returns the names of its arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Argument(name) => Some(name.as_str()),
        })
    }

    /// Returns the text with the arguments filled in, or `None` if `find` returns `None` for one of them.
    pub(crate) fn fill<E>(
        &self,
        mut find: impl FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<Option<String>, E> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Argument(name) => match find(name)? {
                    Some(found) => filled.push_str(&found),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(filled))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<Option<String>, String> {
        Template::parse(text)?.fill(|name| Ok((name != "none").then(|| name.to_uppercase())))
    }

    #[test]
    fn arguments_stand_between_braces() {
        assert_eq!(filled("Bearer {token}"), Ok(Some("Bearer TOKEN".into())));
        assert_eq!(filled("{a}{b_1}-{{c}}"), Ok(Some("AB_1-{c}".into())));
        assert_eq!(filled(""), Ok(Some(String::new())));
        assert_eq!(filled("a{none}"), Ok(None));
        let named = Template::parse("{a}/{b}").expect("a template");
        assert_eq!(named.arguments().collect::<Vec<_>>(), ["a", "b"]);
    }
}
