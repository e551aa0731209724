//! Suggestions for names that do not exist.

/// The similarity from which a known name is suggested. 1 means equal.
const SIMILAR: f64 = 0.5;

/// Returns the known name that is most similar to this one, if any is similar.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |other| strsim::normalized_damerau_levenshtein(name, other);
    let best = known
        .into_iter()
        .map(|other| (similarity(other), other))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(similarity, _)| *similarity >= SIMILAR).map(|(_, nearest)| nearest)
}

/// Returns the end of an error about an unknown name: the name that was probably meant, or all names that exist.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("there is {}", known.join(", ")),
    }
}
