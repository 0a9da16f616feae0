//! Every function of the public headers by the name and version under which programs ask for it.

/// One function: the name and the first version in which it has this form.
pub(crate) struct Name {
    name: &'static str,
    version: u32,
    per_thread: bool,
    function: Function,
}

/// The address of code, to be handed out.
pub(crate) struct Function(*const ());

// SAFETY: the address of code is the same for every thread.
unsafe impl Sync for Function {}

#[allow(missing_docs, non_snake_case, clashing_extern_declarations, unreachable_pub)]
mod generated {
    use super::{Function, Name};

    include!(concat!(env!("OUT_DIR"), "/names.rs"));
}

/// What is found under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Function(*const ()),
    /// The name exists, but in no form this old.
    NewerOnly,
    Unknown,
}

/// The newest form of a function that is not newer than a version.
pub(crate) fn find(name: &str, version: u32, per_thread: bool) -> Found {
    let names = generated::NAMES;
    let first = names.partition_point(|entry| entry.name < name);
    let forms = names[first..].iter().take_while(|entry| entry.name == name);
    let mut found = Found::Unknown;
    let mut best = (false, 0);
    for form in forms {
        if found == Found::Unknown {
            found = Found::NewerOnly;
        }
        let rank = (form.per_thread && per_thread, form.version);
        let fits = form.version <= version && (per_thread || !form.per_thread);
        if fits && (rank >= best || found == Found::NewerOnly) {
            (best, found) = (rank, Found::Function(form.function.0));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Found, find, generated};

    #[test]
    fn a_version_decides_which_form_is_found() {
        let at = |name, version, per_thread| find(name, version, per_thread);
        assert_ne!(at("cuMemAlloc", 2000, false), at("cuMemAlloc", 3020, false));
        assert_eq!(at("cuMemAlloc", 3020, false), at("cuMemAlloc", 12090, false));
        assert_eq!(at("cuMemAlloc", 12090, true), at("cuMemAlloc", 12090, false));
        assert_ne!(at("cuLaunchKernel", 12000, true), at("cuLaunchKernel", 12000, false));
        assert_eq!(at("cuLaunchKernel", 4000, true), at("cuLaunchKernel", 4000, false));
        assert_eq!(at("cuMemCreate", 10000, false), Found::NewerOnly);
        assert_eq!(at("cuNothing", 12000, false), Found::Unknown);
        assert_eq!(at("", 0, false), Found::Unknown);
    }

    #[test]
    fn names_are_sorted() {
        assert!(generated::NAMES.is_sorted_by_key(|entry| (entry.name, entry.version)));
    }
}
