//! From the text of a stack to the stack.

use std::collections::HashMap;

use super::entry::{AdaptorEntry, OptionSpec, ResourceEntry};
use super::error::StackError;
use super::options::{Given, Options};
use super::{ADAPTORS, Layer, RESOURCES, Stack};

/// Reads a whole stack.
pub(super) fn stack(text: &str) -> Result<Stack, StackError> {
    match text.trim() {
        "" => Err(StackError::Empty),
        text => layers(text, &mut Failed::new()),
    }
}

/// Why no stack begins where so much of the text is left. A path may end at many places, and each would be tried with each below it.
type Failed = HashMap<usize, StackError>;

/// What a name stands for.
#[derive(Clone, Copy)]
enum Entry {
    Resource(&'static ResourceEntry),
    Adaptor(&'static AdaptorEntry),
}

impl Entry {
    fn named(name: &str) -> Option<Entry> {
        let resource = RESOURCES.iter().find(|entry| entry.name == name).map(Entry::Resource);
        let adaptor = || ADAPTORS.iter().find(|entry| entry.name == name).map(Entry::Adaptor);
        resource.or_else(adaptor)
    }

    fn name(self) -> &'static str {
        match self {
            Entry::Resource(entry) => entry.name,
            Entry::Adaptor(entry) => entry.name,
        }
    }

    fn specs(self) -> &'static [OptionSpec] {
        match self {
            Entry::Resource(entry) => entry.options,
            Entry::Adaptor(entry) => entry.options,
        }
    }

    fn option_names(self) -> Vec<&'static str> {
        self.specs().iter().map(|spec| spec.name).collect()
    }
}

fn name_at_start(text: &str) -> &str {
    &text[..text.find([':', '/']).unwrap_or(text.len())]
}

/// A layer, and all below it.
fn layers(text: &str, failed: &mut Failed) -> Result<Stack, StackError> {
    if let Some(error) = failed.get(&text.len()) {
        return Err(error.clone());
    }
    layer_and_below(text, failed).inspect_err(|error| {
        failed.insert(text.len(), error.clone());
    })
}

fn layer_and_below(text: &str, failed: &mut Failed) -> Result<Stack, StackError> {
    let name = name_at_start(text);
    let entry =
        Entry::named(name).ok_or_else(|| StackError::UnknownName { name: name.to_owned() })?;
    let rest = &text[name.len()..];
    match rest.strip_prefix(':') {
        Some(options) => options_and_below(entry, Vec::new(), options, failed),
        None => below(entry, Vec::new(), rest, failed),
    }
}

/// The rest of the options of a layer, and all below it.
fn options_and_below(
    entry: Entry,
    given: Vec<Given>,
    text: &str,
    failed: &mut Failed,
) -> Result<Stack, StackError> {
    let end_of_key = text.find(['=', ',', '/']).unwrap_or(text.len());
    let (spec, text) = match text[end_of_key..].strip_prefix('=') {
        Some(value) => (spec_named(entry, text[..end_of_key].trim())?, value),
        None => {
            let alone = entry.specs().iter().find(|spec| spec.stands_alone && given.is_empty());
            let no_value = || StackError::NoValue {
                of: entry.name(),
                option: text[..end_of_key].to_owned(),
                known: entry.option_names(),
            };
            (alone.ok_or_else(no_value)?, text)
        }
    };
    if given.iter().any(|given| given.is(spec)) {
        return Err(StackError::Twice { of: entry.name(), option: spec.name });
    }
    let mut first_error = None;
    for end in ends_of_value(entry, spec, text) {
        let mut given = given.clone();
        let value = text[..end].trim();
        given.push(Given::read(spec, value).map_err(|remedy| StackError::BadValue {
            of: entry.name(),
            option: spec.name.to_owned(),
            value: value.to_owned(),
            remedy,
        })?);
        let rest = &text[end..];
        let answer = match rest.strip_prefix(',') {
            Some(more) => options_and_below(entry, given, more, failed),
            None => below(entry, given, rest, failed),
        };
        match answer {
            // This slash belongs to the path, and the stack goes on after another one.
            Err(error) if error.is_about_order() => {
                first_error.get_or_insert(error);
            }
            answer => return answer,
        }
    }
    Err(first_error.expect("a value ends somewhere"))
}

fn spec_named(entry: Entry, name: &str) -> Result<&'static OptionSpec, StackError> {
    entry.specs().iter().find(|spec| spec.name == name).ok_or_else(|| StackError::UnknownOption {
        of: entry.name(),
        option: name.to_owned(),
        known: entry.option_names(),
    })
}

/// Where a value may end: at the next comma or slash outside of brackets, but that a path may contain both. There it ends where an option or a name that
/// is known begins, or at the end.
fn ends_of_value(entry: Entry, spec: &OptionSpec, text: &str) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut ends = text.char_indices().filter_map(|(at, letter)| match letter {
        '[' => {
            depth += 1;
            None
        }
        ']' => {
            depth = depth.saturating_sub(1);
            None
        }
        ',' | '/' => (depth == 0 || spec.kind.is_path()).then_some(at),
        _ => None,
    });
    if !spec.kind.is_path() {
        return vec![ends.next().unwrap_or(text.len())];
    }
    let begins_something = |at: &usize| {
        let after = &text[at + 1..];
        if text[*at..].starts_with('/') {
            Entry::named(name_at_start(after)).is_some()
        } else {
            after.split_once('=').is_some_and(|(key, _)| entry.option_names().contains(&key.trim()))
        }
    };
    ends.filter(begins_something).chain([text.len()]).collect()
}

/// All below a layer: `/…` below an adaptor, nothing below a resource.
fn below(
    entry: Entry,
    given: Vec<Given>,
    rest: &str,
    failed: &mut Failed,
) -> Result<Stack, StackError> {
    let missing = |spec: &OptionSpec| StackError::Missing {
        of: entry.name(),
        option: spec.name,
        help: spec.help,
    };
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    match entry {
        Entry::Resource(entry) if rest.is_empty() => {
            let options = Options::new(entry.options, given).map_err(missing)?;
            Ok(Stack { adaptors: Vec::new(), resource: Layer { entry, options } })
        }
        Entry::Resource(entry) => {
            let below = name_at_start(rest).to_owned();
            Err(StackError::SomethingBelow { name: entry.name, below })
        }
        Entry::Adaptor(entry) if rest.is_empty() => {
            Err(StackError::NothingBelow { name: entry.name })
        }
        Entry::Adaptor(entry) => {
            let options = Options::new(entry.options, given).map_err(missing)?;
            let mut stack = layers(rest, failed)?;
            stack.adaptors.insert(0, Layer { entry, options });
            Ok(stack)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_without_an_end_are_refused_at_once() {
        let error = stack(&"trace:a/".repeat(60)).unwrap_err();
        assert!(matches!(error, StackError::NothingBelow { name: "trace" }), "{error}");
    }

    #[test]
    fn what_is_read_is_written() {
        let cases = [
            ("pool", "pool"),
            (" direct ", "direct"),
            ("limit:4GiB/pool", "limit:bytes=4GiB/pool"),
            ("stats/track:backtraces=false/pool:slack=0.1,alignment=4KiB", ""),
            ("trace:/tmp/log.csv/pool", "trace:path=/tmp/log.csv/pool"),
            ("trace:path=a,b.csv/limit:1/direct", "trace:path=a,b.csv/limit:bytes=1/direct"),
            ("trace:/home/pool/log.csv/stats/pool", "trace:path=/home/pool/log.csv/stats/pool"),
            ("pool:oom_snapshot=/tmp/direct/x,slack=0", "pool:oom_snapshot=/tmp/direct/x,slack=0"),
            ("binning:upstream=bestfit,most_exponent=24", ""),
            ("torch:roundup_power2_divisions=[256:1,>:8],expandable_segments=true", ""),
            ("stats/torch:roundup_power2_divisions=4", ""),
        ];
        for (text, expected) in cases {
            let expected = if expected.is_empty() { text } else { expected };
            let stack = stack(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(stack.to_string(), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_is_right() {
        let cases = [
            ("", "an empty text names no allocator"),
            (
                "pol",
                "unknown allocator 'pol', did you mean 'pool'? (resources: pool, direct, async, managed, pinned, bestfit, arena, bfc, buddy, slab, binning, fixed, torch; adaptors: stats, limit, trace, track, onfailure, prefetch, aligned)",
            ),
            ("stats/limt:4GiB/pool", "unknown allocator 'limt', did you mean 'limit'?"),
            ("limit:4GiB/trak/pool", "unknown allocator 'trak', did you mean 'track'?"),
            ("limit:4GiB", "limit is an adaptor and wraps something"),
            ("stats", "write a resource after it, such as stats/pool"),
            ("stats/", "stats is an adaptor and wraps something"),
            ("pool/stats", "pool is a resource and stands last: write 'stats' before it"),
            (
                "pool:slak=1",
                "pool has no option 'slak', did you mean 'slack'? (options: alignment,",
            ),
            ("direct:x=1", "direct has no option 'x' (it has none)"),
            ("pool:slack", "pool: 'slack' is no option: write key=value (options: alignment"),
            ("pool:0.1", "pool: '0.1' is no option: write key=value"),
            ("limit/pool", "limit needs its bytes: write limit:bytes=… (what may be live"),
            ("limit:1,bytes=2/pool", "limit: bytes is given twice"),
            ("limit:much/pool", "limit: bytes = much: must be a size such as 4GiB"),
            ("pool:slack=x", "pool: slack = x: must be a fraction such as 0.1"),
            ("track:report=stdrr/pool", "must be stderr or none, did you mean 'stderr'?"),
            ("trace:/tmp/x.csv/limit:4XB/pool", "limit: bytes = 4XB: must be a size"),
            ("tourch", "unknown allocator 'tourch', did you mean 'torch'?"),
            ("best_fit", "unknown allocator 'best_fit', did you mean 'bestfit'?"),
            ("stats/slabs", "unknown allocator 'slabs', did you mean 'slab'?"),
            ("torch:max_split_size_mb=64", "did you mean 'max_split_size'?"),
            ("bfc:releases_region=no", "did you mean 'releases_regions'?"),
            ("bfc:releases_regions=no", "bfc: releases_regions = no: must be true or false"),
            ("arena:upstream=pol", "did you mean 'pool'?"),
            ("trace:/tmp/x.csv", "trace is an adaptor and wraps something"),
        ];
        for (text, expected) in cases {
            let error = stack(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
