//! `millpond allocators`: what allocators are made of.

use anyhow::{Result, bail};
use millpond::nearest::suggestion;
use millpond::stack::{ADAPTORS, OptionSpec, RESOURCES};
use serde::Serialize;

use crate::cli::AllocatorsOptions;
use crate::output::{print, print_table, table};

#[derive(Serialize)]
struct Report {
    resources: Vec<Entry>,
    adaptors: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    about: &'static str,
    options: Vec<EntryOption>,
}

#[derive(Serialize)]
struct EntryOption {
    name: &'static str,
    kind: String,
    /// `null`: it must be given.
    default: Option<&'static str>,
    help: &'static str,
    /// Its value may stand first and alone.
    stands_alone: bool,
}

impl Entry {
    fn new(name: &'static str, about: &'static str, options: &'static [OptionSpec]) -> Entry {
        let options = options.iter().map(|option| EntryOption {
            name: option.name,
            kind: option.kind.to_string(),
            default: option.default,
            help: option.help,
            stands_alone: option.stands_alone,
        });
        Entry { name, about, options: options.collect() }
    }
}

/// Lists all resources and adaptors, or those that were named.
pub(crate) fn run(options: &AllocatorsOptions) -> Result<()> {
    let all: Vec<&str> = RESOURCES
        .iter()
        .map(|entry| entry.name)
        .chain(ADAPTORS.iter().map(|entry| entry.name))
        .collect();
    if let Some(wrong) = options.names.iter().find(|name| !all.contains(&name.as_str())) {
        let near = suggestion(wrong, all.iter().copied());
        bail!("unknown allocator '{wrong}'{near} (known: {})", all.join(", "));
    }
    let is_shown = |entry: &Entry| {
        options.names.is_empty() || options.names.iter().any(|name| name == entry.name)
    };
    let resources =
        RESOURCES.iter().map(|entry| Entry::new(entry.name, entry.about, entry.options));
    let adaptors = ADAPTORS.iter().map(|entry| Entry::new(entry.name, entry.about, entry.options));
    let report = Report {
        resources: resources.filter(is_shown).collect(),
        adaptors: adaptors.filter(is_shown).collect(),
    };
    if options.json.write(&report)? {
        return Ok(());
    }
    print_entries("RESOURCE", &report.resources)?;
    print_entries("ADAPTOR", &report.adaptors)?;
    print(
        "A stack is adaptors before a resource, with slashes between: limit:4GiB/pool, or stats/trace:log.csv/pool:slack=0.05.\n\
         Options are key=value,key=value; the value of the one marked * may stand alone.\n",
    )
}

fn print_entries(title: &str, entries: &[Entry]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut rows = table([title, "OPTION", "DEFAULT", "WHAT IT IS"]);
    for entry in entries {
        rows.add_row([entry.name, "", "", entry.about]);
        for option in &entry.options {
            let mark = if option.stands_alone { " *" } else { "" };
            rows.add_row([
                "",
                &format!("{}{mark}", option.name),
                option.default.unwrap_or("required"),
                &format!("{} ({})", option.help, option.kind),
            ]);
        }
    }
    print_table(&rows)?;
    print("\n")
}
