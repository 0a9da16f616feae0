//! The pages under `docs`, whose examples are run.

use crate::simcuda::root;

/// What the first block of a page in a language says.
///
/// # Panics
/// If there is no such page or block.
pub fn block(page: &str, language: &str) -> String {
    let path = root().join("docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let start = format!("```{language}\n");
    let (_, after) = text.split_once(&start).unwrap_or_else(|| panic!("{page}: no {language}"));
    after.split_once("```").unwrap_or_else(|| panic!("{page}: no end")).0.to_owned()
}
