//! What somebody meant who wrote a name that does not exist.

/// From this likeness on (of 1), a known name is taken for what an unknown one meant.
const LIKE: f64 = 0.5;

/// The known name that is most like it, if one is.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other| strsim::normalized_damerau_levenshtein(name, other);
    let likest = known
        .into_iter()
        .map(|other| (likeness(other), other))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    likest.filter(|(likeness, _)| *likeness >= LIKE).map(|(_, nearest)| nearest)
}

/// What to say to them: the name that they meant, or all that there are.
#[cfg(feature = "loops")]
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("there is {}", known.join(", ")),
    }
}
