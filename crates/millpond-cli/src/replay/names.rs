//! What traces are called, so that they can be told apart.

use std::path::{Component, Path};

use millpond::replay::Recorded;

/// What comes before a trace's own name, if anything has to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    prefix: String,
}

impl Name {
    /// What was recorded, called like that.
    pub(crate) fn of(&self, recorded: Recorded) -> Recorded {
        Recorded { name: format!("{}{}", self.prefix, recorded.name), ..recorded }
    }
}

/// Names for files, given what they would be called: of those with the same name, as many folders with it as make them different.
pub(crate) fn told_apart(files: &[(&Path, String)]) -> Vec<Name> {
    let of = |(path, name): &(&Path, String)| {
        let namesakes = files.iter().filter(|(other, others)| others == name && other != path);
        let others: Vec<&Path> = namesakes.map(|(other, _)| *other).collect();
        Name { prefix: prefix(path, &others) }
    };
    files.iter().map(of).collect()
}

fn prefix(path: &Path, others: &[&Path]) -> String {
    let folders = folders(path);
    let most = others.iter().map(|other| self::folders(other).len()).max().unwrap_or(0);
    for depth in 0..=folders.len().max(most) {
        let own = last(&folders, depth);
        if others.iter().all(|other| last(&self::folders(other), depth) != own) {
            return own;
        }
    }
    // They differ in how they end only.
    format!("{} ", path.display())
}

fn folders(path: &Path) -> Vec<String> {
    let parts = path.parent().into_iter().flat_map(Path::components);
    let named = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// So many folders from the last, each with its slash.
fn last(folders: &[String], depth: usize) -> String {
    let from = folders.len().saturating_sub(depth);
    folders[from..].iter().map(|folder| format!("{folder}/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_them_different_is_named() {
        let files = [
            ("/run/a/x/snapshot.pickle", "snapshot"),
            ("/run/b/x/snapshot.pickle.gz", "snapshot"),
            ("b/other.csv", "other"),
            ("log.pickle", "log"),
            ("log.csv", "log"),
            // The same file twice is the same.
            ("a/twice.pickle", "twice"),
            ("a/twice.pickle", "twice"),
        ];
        let files = files.map(|(path, name)| (Path::new(path), name.to_owned()));
        let prefixes: Vec<_> = told_apart(&files).into_iter().map(|name| name.prefix).collect();
        assert_eq!(prefixes, ["a/x/", "b/x/", "", "log.pickle ", "log.csv ", "", ""]);
    }
}
