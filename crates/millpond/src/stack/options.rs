//! The options of one layer of a stack.

use std::fmt;
use std::path::{Path, PathBuf};

use super::entry::{Kind, OptionSpec};
use crate::nearest::suggestion;
use crate::written;

/// The options of a resource or an adaptor: what was chosen, and defaults for the rest.
///
/// An entry's constructor reads each of its options by the name and in the kind that its table declares. To ask for
/// another is a mistake of the table, and panics; every entry is tried in the tests.
#[derive(Clone, Debug)]
pub struct Options {
    all: Vec<Chosen>,
}

#[derive(Clone, Debug)]
struct Chosen {
    spec: &'static OptionSpec,
    text: String,
    value: Value,
    by_default: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Size(usize),
    Count(u64),
    Fraction(f64),
    Switch(bool),
    Path(PathBuf),
    Text,
    Word(&'static str),
    None,
}

impl Options {
    /// All of an entry's options, with what was given; `None` and the option that must be given but was not.
    pub(super) fn new(
        specs: &'static [OptionSpec],
        mut given: Vec<Given>,
    ) -> Result<Options, &'static OptionSpec> {
        let given_options = given.len();
        let is_missing = |spec: &&OptionSpec| {
            given[..given_options].iter().all(|given| given.0.spec.name != spec.name)
        };
        let missing: Vec<&'static OptionSpec> = specs.iter().filter(is_missing).collect();
        for spec in missing {
            let text = spec.default.ok_or(spec)?;
            let value = read(spec.kind, text).expect("defaults are right");
            given.push(Given(Chosen { spec, text: text.to_owned(), value, by_default: true }));
        }
        Ok(Options { all: given.into_iter().map(|given| given.0).collect() })
    }

    fn value(&self, name: &str) -> &Value {
        match self.all.iter().find(|chosen| chosen.spec.name == name) {
            Some(chosen) => &chosen.value,
            None => panic!("the table has no option {name}"),
        }
    }

    /// Bytes.
    pub fn size(&self, name: &str) -> usize {
        self.size_or_none(name).unwrap_or_else(|| panic!("{name} may be none"))
    }

    /// Bytes, or nothing.
    pub fn size_or_none(&self, name: &str) -> Option<usize> {
        match self.value(name) {
            Value::Size(bytes) => Some(*bytes),
            Value::None => None,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A whole number.
    pub fn count(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Count(count) => *count,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A number such as 0.1.
    pub fn fraction(&self, name: &str) -> f64 {
        self.fraction_or_none(name).unwrap_or_else(|| panic!("{name} may be none"))
    }

    /// A number such as 0.1, or nothing.
    pub fn fraction_or_none(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Value::Fraction(fraction) => Some(*fraction),
            Value::None => None,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Yes or no.
    pub fn switch(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Switch(on) => *on,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A file.
    pub fn path(&self, name: &str) -> &Path {
        self.path_or_none(name).unwrap_or_else(|| panic!("{name} may be none"))
    }

    /// A file, or nothing.
    pub fn path_or_none(&self, name: &str) -> Option<&Path> {
        match self.value(name) {
            Value::Path(path) => Some(path),
            Value::None => None,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// One of the words that the table allows.
    pub fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Word(word) => word,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Says what an option is where nothing was said. What cannot be read, or is no option, changes nothing.
    pub(super) fn set_default(&mut self, name: &str, text: &str) {
        let unsaid = |chosen: &&mut Chosen| chosen.spec.name == name && chosen.by_default;
        if let Some(chosen) = self.all.iter_mut().find(unsaid)
            && let Ok(value) = read(chosen.spec.kind, text)
        {
            (chosen.text, chosen.value) = (text.to_owned(), value);
        }
    }

    /// What stands for an option, as it was written.
    pub(super) fn text(&self, name: &str) -> String {
        let chosen = self.all.iter().find(|chosen| chosen.spec.name == name);
        chosen.map_or_else(String::new, |chosen| chosen.text.clone())
    }
}

/// `:key=value,key=value` of what was given, or nothing.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.all.iter().filter(|chosen| !chosen.by_default);
        for (number, Chosen { spec, text, .. }) in given.enumerate() {
            let separator = if number == 0 { ':' } else { ',' };
            write!(f, "{separator}{}={text}", spec.name)?;
        }
        Ok(())
    }
}

/// An option that was given, and could be read.
#[derive(Clone, Debug)]
pub(super) struct Given(Chosen);

impl Given {
    /// Reads a value; the error says what it may be.
    pub(super) fn read(spec: &'static OptionSpec, text: &str) -> Result<Given, String> {
        let value = read(spec.kind, text)?;
        Ok(Given(Chosen { spec, text: text.to_owned(), value, by_default: false }))
    }

    pub(super) fn is(&self, spec: &OptionSpec) -> bool {
        self.0.spec.name == spec.name
    }
}

fn read(kind: Kind, text: &str) -> Result<Value, String> {
    let size = |what: &str| {
        let bytes = written::size(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Value::Size).ok_or_else(|| format!("must be {what}"))
    };
    let path = || match text {
        "" => Err("must be the path of a file".to_owned()),
        _ => Ok(Value::Path(text.into())),
    };
    let fraction = |what: &str| {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Value::Fraction).ok_or_else(|| format!("must be {what}"))
    };
    match kind {
        Kind::SizeOrNone | Kind::PathOrNone | Kind::FractionOrNone if text == "none" => {
            Ok(Value::None)
        }
        Kind::Size => size("a size such as 4GiB"),
        Kind::SizeOrNone => size("a size such as 4GiB, or none"),
        Kind::Path | Kind::PathOrNone => path(),
        Kind::Count => {
            text.parse().map(Value::Count).map_err(|_| "must be a whole number".to_owned())
        }
        Kind::Fraction => fraction("a fraction such as 0.1"),
        Kind::FractionOrNone => fraction("a fraction such as 0.1, or none"),
        // Its form is the business of whoever reads it.
        Kind::Text(_) => Ok(Value::Text),
        Kind::Switch => {
            let on = written::switch(text).map(Value::Switch);
            on.ok_or_else(|| "must be true or false".to_owned())
        }
        Kind::OneOf(words) => match words.iter().find(|word| **word == text) {
            Some(word) => Ok(Value::Word(word)),
            None => {
                let near = suggestion(text, words.iter().copied());
                Err(format!("must be {}{near}", words.join(" or ")))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_kind() {
        assert_eq!(read(Kind::Size, "4GiB"), Ok(Value::Size(4 << 30)));
        assert_eq!(read(Kind::Size, "1.5KiB"), Ok(Value::Size(1536)));
        assert_eq!(read(Kind::Size, "1000"), Ok(Value::Size(1000)));
        assert_eq!(read(Kind::Switch, "True"), Ok(Value::Switch(true)));
        assert_eq!(read(Kind::SizeOrNone, "none"), Ok(Value::None));
        assert_eq!(read(Kind::FractionOrNone, "none"), Ok(Value::None));
        assert_eq!(read(Kind::FractionOrNone, "0.5"), Ok(Value::Fraction(0.5)));
        assert_eq!(read(Kind::OneOf(&["trim", "nothing"]), "trim"), Ok(Value::Word("trim")));
        let wrong = [
            (Kind::Size, "-1"),
            (Kind::Size, "much"),
            (Kind::Size, "none"),
            (Kind::Size, "99999999999999999999GiB"),
            (Kind::Size, ""),
            (Kind::Count, "1.5"),
            (Kind::Count, "-1"),
            (Kind::Fraction, "nan"),
            (Kind::Fraction, "inf"),
            (Kind::Fraction, "none"),
            (Kind::FractionOrNone, "non"),
            (Kind::Switch, "maybe"),
            (Kind::Path, ""),
            (Kind::OneOf(&["trim"]), "trm"),
        ];
        for (kind, text) in wrong {
            let remedy = read(kind, text).expect_err(text);
            assert!(remedy.starts_with("must be "), "{kind:?} {text}: {remedy}");
        }
    }
}
