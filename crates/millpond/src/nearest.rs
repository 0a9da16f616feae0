//! The right name nearest to a wrong one, for error messages.

/// The candidate that a mistyped `name` most likely meant, if any is near enough to suggest.
///
/// ```
/// use millpond::nearest::nearest;
///
/// assert_eq!(nearest("a100-80", ["a100-80g", "h100-80g"]), Some("a100-80g"));
/// assert_eq!(nearest("A100-80G", ["a100-80g", "h100-80g"]), Some("a100-80g"));
/// assert_eq!(nearest("teapot", ["a100-80g", "h100-80g"]), None);
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR_ENOUGH: f64 = 0.75;
    // Capitals are the commonest way to mistype a name.
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name, &candidate.to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity >= NEAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `", did you mean 'x'?"`, or nothing where no candidate is near.
pub fn suggestion<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|near| format!(", did you mean '{near}'?")).unwrap_or_default()
}
