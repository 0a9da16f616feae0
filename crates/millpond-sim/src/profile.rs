//! What is known of a device: sizes, speeds and latencies, each with its source.
//!
//! A profile is a TOML file of figures. A figure is a value, or a value with its source:
//!
//! ```toml
//! base = "p100-16g"                  # take every figure not given here from this built-in profile
//! title = "My card"
//! [memory]
//! capacity = "12GiB"
//! bandwidth = { value = "600GB/s", source = "measured with nvbandwidth" }
//! ```
//!
//! The built-in profiles (`profiles/*.toml` of this crate) rest on `common.toml`, which holds what is
//! the same for all.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use millpond::driver::Call;
use millpond::nearest::suggestion;

use crate::quantity::{self, Unit};

const COMMON: &str = include_str!("../profiles/common.toml");
const BUILT_IN: [(&str, &str); 5] = [
    ("a100-80g", include_str!("../profiles/a100-80g.toml")),
    ("h100-80g", include_str!("../profiles/h100-80g.toml")),
    ("v100-16g", include_str!("../profiles/v100-16g.toml")),
    ("rtx4090-24g", include_str!("../profiles/rtx4090-24g.toml")),
    ("p100-16g", include_str!("../profiles/p100-16g.toml")),
];

/// One figure of a profile: its key, its value as written, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// `section.name`, as in the file.
    pub key: String,
    /// The value as the file has it.
    pub value: String,
    /// Who says so, or `assumed`.
    pub source: String,
}

/// A profile that cannot be used. Each says in one line what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Neither the name of a built-in profile nor that of a file.
    #[error("unknown profile '{name}'{suggestion} (known: {}, or the path of a profile file)", Profile::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// `, did you mean …?` or nothing.
        suggestion: String,
    },
    /// The file could not be read.
    #[error("cannot read profile file '{path}': {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The file is not TOML.
    #[error("profile {origin}, line {line}: {reason}")]
    Syntax {
        /// The file or profile.
        origin: String,
        /// Where.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The file has a figure that no profile has.
    #[error("profile {origin}: no figure is called '{key}'{suggestion}")]
    UnknownFigure {
        /// The file or profile.
        origin: String,
        /// What it has.
        key: String,
        /// `, did you mean …?` or nothing.
        suggestion: String,
    },
    /// A figure's value makes no sense.
    #[error("profile {origin}: {key} = {value}: {reason}")]
    BadFigure {
        /// The file or profile.
        origin: String,
        /// Which figure.
        key: String,
        /// What it has.
        value: String,
        /// What it should be.
        reason: String,
    },
    /// A figure is missing, and there is no base to take it from.
    #[error(
        "profile {origin}: {key} is missing; give it, or name a base profile (base = \"a100-80g\")"
    )]
    MissingFigure {
        /// The file or profile.
        origin: String,
        /// Which figure.
        key: String,
    },
}

macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident: $key:literal in $unit:ident,)*) => {
        /// A device's figures, ready to compute with. Times are in nanoseconds.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Profile {
            /// How users name it.
            pub name: String,
            /// What it is called in full.
            pub title: String,
            $($(#[$doc])* pub $field: f64,)*
            latency_ns: [u64; Call::COUNT],
            figures: Vec<Figure>,
        }

        const FIGURES: &[(&str, Unit)] = &[$(($key, Unit::$unit),)*];

        impl Profile {
            fn from_numbers(name: String, title: String, numbers: &BTreeMap<String, f64>, figures: Vec<Figure>) -> Profile {
                Profile {
                    name,
                    title,
                    $($field: numbers[$key],)*
                    latency_ns: std::array::from_fn(|i| {
                        let key = latency_key(Call::ALL[i]);
                        numbers.get(&key).copied().unwrap_or(numbers["latency.default"]) as u64
                    }),
                    figures,
                }
            }
        }
    };
}

figures! {
    /// Bytes of device memory.
    capacity_bytes: "memory.capacity" in Bytes,
    /// The page of virtual memory management.
    granularity_bytes: "memory.granularity" in Bytes,
    /// Plain allocations are rounded up to this.
    plain_granularity_bytes: "memory.plain_granularity" in Bytes,
    /// Bytes per second between the device's memory and its processors.
    bandwidth: "memory.bandwidth" in BytesPerSecond,
    /// What a plain allocation costs beyond its call, for each MiB.
    alloc_mib_ns: "memory.alloc_per_mib" in Micros,
    /// What a plain free costs beyond its call, for each MiB.
    free_mib_ns: "memory.free_per_mib" in Micros,
    /// What physical memory costs beyond the call that creates it, for each MiB.
    create_mib_ns: "memory.create_per_mib" in Micros,
    /// The same for each handle that is alive already.
    create_live_handle_ns: "latency.create_per_live_handle" in Micros,
    /// What setting access costs beyond its price for each mapping, for each MiB.
    set_access_mib_ns: "memory.set_access_per_mib" in Micros,
    /// What an allocation of a driver pool costs beyond its call, for each MiB that the pool takes from the device.
    pool_grow_mib_ns: "memory.pool_grow_per_mib" in Micros,
    /// What a driver pool costs for each MiB that it gives back to the device, in whatever call that happens.
    pool_release_mib_ns: "memory.pool_release_per_mib" in Micros,
    /// Streaming multiprocessors.
    multiprocessors: "compute.multiprocessors" in Count,
    /// Threads that one multiprocessor holds at a time.
    threads_per_multiprocessor: "compute.threads_per_multiprocessor" in Count,
    /// The least a kernel takes on the device.
    kernel_minimum_ns: "compute.kernel_minimum" in Micros,
    /// Bytes per second from host to device.
    link_to_device: "link.to_device" in BytesPerSecond,
    /// Bytes per second from device to host.
    link_to_host: "link.to_host" in BytesPerSecond,
    /// Bytes per second both ways together, when both are busy.
    link_both: "link.both" in BytesPerSecond,
    /// Copies that run beside each other.
    copy_engines: "link.copy_engines" in Count,
    /// What a copy takes before its first byte moves.
    copy_setup_ns: "link.copy_setup" in Micros,
    /// What the seed's model takes to fault one 4 KiB page in.
    naive_page_ns: "managed.naive_page" in Micros,
    /// Faults the driver takes from the device at a time.
    fault_batch: "managed.fault_batch" in Count,
    /// Faults that one multiprocessor can have outstanding.
    faults_per_multiprocessor: "managed.faults_per_multiprocessor" in Count,
    /// A region is completed when more than this share of it is resident, in percent.
    density_percent: "managed.density_threshold" in Percent,
    /// From the first fault of a batch to the driver's work on it, and from that to the replay.
    batch_ns: "managed.batch" in Micros,
    /// Reading and sorting one fault.
    fault_ns: "managed.fault" in Micros,
    /// Looking after one 2 MiB block in a batch: locks, page tables, invalidations.
    block_ns: "managed.block" in Micros,
    /// Taking one 4 KiB page from the host's page tables and mapping it for transfer.
    page_ns: "managed.page" in Micros,
}

const DEFAULT_LATENCY: &str = "latency.default";

/// Figures that older profile files without a base do not have. Free they are nowhere, so such files take what the built-in profiles share.
const NEWER: [&str; 5] = [
    "memory.create_per_mib",
    "latency.create_per_live_handle",
    "memory.set_access_per_mib",
    "memory.pool_grow_per_mib",
    "memory.pool_release_per_mib",
];

fn latency_key(call: Call) -> String {
    format!("latency.{call}")
}

fn unit_of(key: &str) -> Option<Unit> {
    let is_latency = key == DEFAULT_LATENCY
        || key.strip_prefix("latency.").is_some_and(|name| Call::from_name(name).is_some());
    if is_latency {
        return Some(Unit::Micros);
    }
    FIGURES.iter().find(|(known, _)| *known == key).map(|(_, unit)| *unit)
}

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The profile of a name, or of a file.
    ///
    /// # Errors
    /// No such profile, or a file that cannot be used: one line that says what would be right.
    ///
    /// ```
    /// use millpond_sim::Profile;
    ///
    /// assert_eq!(Profile::named("v100-16g")?.capacity_bytes, 16.0 * (1u64 << 30) as f64);
    /// let error = Profile::named("v100").unwrap_err().to_string();
    /// assert!(error.starts_with("unknown profile 'v100', did you mean 'v100-16g'?"), "{error}");
    /// # Ok::<(), millpond_sim::ProfileError>(())
    /// ```
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        let looks_like_a_file = name.ends_with(".toml") || name.contains(std::path::MAIN_SEPARATOR);
        let is_built_in = BUILT_IN.iter().any(|(known, _)| *known == name);
        if !is_built_in && (looks_like_a_file || Path::new(name).is_file()) {
            let text = read_file(name).map_err(|error| ProfileError::Unreadable {
                path: name.to_owned(),
                reason: error.to_string(),
            })?;
            return Profile::parse(name, &text);
        }
        Profile::built_in(name)
    }

    fn built_in(name: &str) -> Result<Profile, ProfileError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Profile::parse(name, text),
            None => Err(ProfileError::Unknown {
                name: name.escape_debug().to_string(),
                suggestion: suggestion(name, Profile::names()),
            }),
        }
    }

    /// Reads a profile from its text; `origin` names it in errors and outputs.
    ///
    /// # Errors
    /// Not TOML, unknown or missing figures, values that make no sense.
    pub fn parse(origin: &str, text: &str) -> Result<Profile, ProfileError> {
        let built_in = BUILT_IN.iter().any(|(name, _)| *name == origin);
        let mut written = Written::read(origin, text)?;
        let mut figures = match (written.base.take(), built_in) {
            (_, true) => Written::read("common", COMMON)?.figures,
            (Some(base), false) => Profile::built_in(&base)?
                .figures
                .into_iter()
                .map(|figure| (figure.key.clone(), figure))
                .collect(),
            (None, false) => {
                let mut common = Written::read("common", COMMON)?.figures;
                common.retain(|key, _| NEWER.contains(&key.as_str()));
                common
            }
        };
        figures.extend(written.figures);

        let mut numbers = BTreeMap::new();
        for (key, figure) in &figures {
            numbers.insert(key.clone(), figure.number(origin)?);
        }
        let mut needed = FIGURES.iter().map(|(key, _)| *key).chain([DEFAULT_LATENCY]);
        if let Some(key) = needed.find(|key| !numbers.contains_key(*key)) {
            return Err(ProfileError::MissingFigure { origin: origin.to_owned(), key: key.into() });
        }
        let title = written.title.unwrap_or_else(|| origin.to_owned());
        let profile = Profile::from_numbers(
            origin.to_owned(),
            title,
            &numbers,
            figures.into_values().collect(),
        );
        profile.check(origin)?;
        Ok(profile)
    }

    /// The same device with another amount of memory.
    ///
    /// # Errors
    /// No multiple of 2 MiB, or more than the simulated GPU can have.
    pub fn with_capacity(&self, bytes: u64) -> Result<Profile, ProfileError> {
        let mut profile = self.clone();
        profile.capacity_bytes = bytes as f64;
        if let Some(figure) = profile.figures.iter_mut().find(|f| f.key == "memory.capacity") {
            figure.value = format!("{bytes}B");
        }
        profile.check(&self.name)?;
        Ok(profile)
    }

    /// Every figure, with its source.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// What a call costs the host. Of [`Call::SetAccess`] and [`Call::Unmap`]: for each mapping. Some calls cost more, for what they take or give back.
    pub fn latency_ns(&self, call: Call) -> u64 {
        self.latency_ns[call as usize]
    }

    fn check(&self, origin: &str) -> Result<(), ProfileError> {
        let bad = |key: &str, reason: &str| {
            let figure = self.figures.iter().find(|figure| figure.key == key);
            Err(bad_figure(origin, key, figure.map_or("", |figure| &figure.value), reason))
        };
        let page = self.granularity_bytes as u64;
        if page != crate::frames::FRAME_BYTES {
            return bad("memory.granularity", "the simulated GPU has pages of 2MiB only");
        }
        let plain = self.plain_granularity_bytes as u64;
        if !plain.is_power_of_two() || !(256..=page).contains(&plain) {
            return bad("memory.plain_granularity", "must be a power of two from 256B to 2MiB");
        }
        let capacity = self.capacity_bytes as u64;
        if capacity == 0 || !capacity.is_multiple_of(page) || capacity > 8 << 40 {
            return bad("memory.capacity", "must be a multiple of 2MiB, at most 8TiB");
        }
        if self.link_both < self.link_to_device.max(self.link_to_host) {
            return bad("link.both", "must not be less than either direction alone");
        }
        Ok(())
    }
}

/// The text of a file, as far as any profile goes.
fn read_file(path: &str) -> std::io::Result<String> {
    const MOST_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// A profile file as it is written.
struct Written {
    title: Option<String>,
    base: Option<String>,
    figures: BTreeMap<String, Figure>,
}

impl Written {
    fn read(origin: &str, text: &str) -> Result<Written, ProfileError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            ProfileError::Syntax {
                origin: origin.to_owned(),
                line: text[..offset].matches('\n').count() + 1,
                reason: error.message().lines().next().unwrap_or("not TOML").to_owned(),
            }
        })?;
        let mut written = Written { title: None, base: None, figures: BTreeMap::new() };
        for (section, content) in table {
            match (section.as_str(), content) {
                ("title", toml::Value::String(title)) => written.title = Some(title),
                ("base", toml::Value::String(base)) => written.base = Some(base),
                ("title" | "base", value) => {
                    return Err(bad_figure(
                        origin,
                        &section,
                        &text_of(value),
                        "must be text in quotes",
                    ));
                }
                (_, toml::Value::Table(content)) => {
                    for (name, value) in content {
                        written.add(origin, format!("{section}.{name}"), value)?;
                    }
                }
                (_, value) => written.add(origin, section.clone(), value)?,
            }
        }
        Ok(written)
    }

    fn add(&mut self, origin: &str, key: String, value: toml::Value) -> Result<(), ProfileError> {
        if unit_of(&key).is_none() {
            let latencies: Vec<String> = Call::ALL.iter().map(|call| latency_key(*call)).collect();
            let known = FIGURES.iter().map(|(known, _)| *known);
            let known = known.chain(latencies.iter().map(String::as_str)).chain(["title", "base"]);
            return Err(ProfileError::UnknownFigure {
                origin: origin.to_owned(),
                suggestion: suggestion(&key, known),
                key: key.escape_debug().to_string(),
            });
        }
        let (value, source) = match value {
            toml::Value::Table(mut figure) => {
                let source = figure.remove("source").map_or_else(|| origin.to_owned(), text_of);
                match (figure.remove("value"), figure.keys().next()) {
                    (Some(value), None) => (text_of(value), source),
                    _ => {
                        let reason = "must be a value, or { value = …, source = \"…\" }";
                        return Err(bad_figure(origin, &key, &figure.to_string(), reason));
                    }
                }
            }
            value => (text_of(value), origin.to_owned()),
        };
        self.figures.insert(key.clone(), Figure { key, value, source });
        Ok(())
    }
}

fn bad_figure(origin: &str, key: &str, value: &str, reason: &str) -> ProfileError {
    ProfileError::BadFigure {
        origin: origin.to_owned(),
        key: key.escape_debug().to_string(),
        value: value.trim().escape_debug().to_string(),
        reason: reason.to_owned(),
    }
}

fn text_of(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        other => other.to_string(),
    }
}

impl Figure {
    fn number(&self, origin: &str) -> Result<f64, ProfileError> {
        let unit = unit_of(&self.key).expect("unknown figures were refused when read");
        quantity::parse(&self.value, unit)
            .map_err(|reason| bad_figure(origin, &self.key, &self.value, &reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        Profile::parse("mine.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_profile_reads_and_every_figure_has_a_source() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            for figure in profile.figures() {
                assert!(!figure.source.is_empty(), "{name}: {} has no source", figure.key);
                assert_ne!(figure.source, name, "{name}: {} has no source", figure.key);
                assert_ne!(figure.source, "common", "{name}: {} has no source", figure.key);
            }
            let has = |key: &&str| profile.figures().iter().any(|figure| figure.key == **key);
            assert_eq!(NEWER.iter().find(|key| !has(key)), None, "{name} says nothing of it");
        }
    }

    /// One machine's price, with thousands of handles alive, is not the price of a create on every card.
    #[test]
    fn a_create_has_the_price_of_its_own_card() {
        for (name, from_us, to_us) in [
            ("a100-80g", 20.0, 30.0),
            ("h100-80g", 15.0, 25.0),
            ("rtx4090-24g", 7.0, 8.0),
            ("v100-16g", 8.0, 29.0),
            ("p100-16g", 8.0, 29.0),
        ] {
            let profile = Profile::named(name).unwrap();
            let of_2_mib_ns = profile.latency_ns(Call::Create) as f64 + 2.0 * profile.create_mib_ns;
            assert!((from_us..=to_us).contains(&(of_2_mib_ns / 1e3)), "{name}: {of_2_mib_ns} ns");
        }
    }

    #[test]
    fn a_file_changes_what_it_names_and_keeps_the_rest_of_its_base() {
        let base = Profile::named("p100-16g").unwrap();
        let mine =
            Profile::parse("mine.toml", "base='p100-16g'\n[memory]\ncapacity='12GiB'\n").unwrap();
        assert_eq!(mine.capacity_bytes, 12.0 * f64::from(1 << 30));
        assert_eq!(mine.link_to_device, base.link_to_device);
    }

    #[test]
    fn a_wrong_file_is_answered_in_one_line_with_what_would_be_right() {
        let cases = [
            ("base='p100-16g'\n[memory]\ncapcity='1GiB'", "did you mean 'memory.capacity'?"),
            ("base='p100-16g'\n[memory]\ncapacity='lots'", "memory.capacity = lots: "),
            ("base='p100-16g'\n[memory]\ncapacity='3MiB'", "must be a multiple of 2MiB"),
            ("base='p100-16g'\n[memory]\ncapacity=", "line 3: "),
            ("base='p100'", "did you mean 'p100-16g'?"),
            ("base='mine.toml'", "unknown profile 'mine.toml'"),
            ("base=3", "base = 3: must be text in quotes"),
            ("base='p100-16g'\n[memory]\ncapacity={valeu='1GiB'}", "must be a value, or {"),
            (
                "base='p100-16g'\n[memory]\ncapacity={value='1GiB',scource='me'}",
                "must be a value, or {",
            ),
            ("base='p100-16g'\n[memory]\ncapacity='1\\nGiB'", "memory.capacity = "),
            ("base='p100-16g'\n[memory]\ncapacity='9TiB'", "at most 8TiB"),
            ("base='p100-16g'\n[memory]\nbandwidth='1B/s'", "must be a rate"),
            ("base='p100-16g'\n[latency]\nalloc=1e300", "latency.alloc = "),
            (
                "base='p100-16g'\n[compute]\nmultiprocessors=4000000000",
                "compute.multiprocessors = ",
            ),
            ("base='p100-16g'\n[memory]\n\"a\\nb\"='9TiB'", "no figure is called"),
            ("[memory]\ncapacity='2GiB'", "memory.granularity is missing"),
            ("base='p100-16g'\n[link]\nboth='1GB/s'", "must not be less than"),
            ("base='p100-16g'\n[latency]\nalloc=-1", "latency.alloc = -1: "),
        ];
        for (text, expected) in cases {
            let complaint = complaint(text);
            assert!(complaint.contains(expected), "{text:?} gave: {complaint}");
            assert!(!complaint.contains('\n'), "{complaint}");
        }
    }
}
