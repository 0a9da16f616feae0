//! The functions that the hook has in place of the driver's, by symbol, and by the name and version that programs ask for.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use crate::abi_ffi;
use crate::entry_ffi::Own;
use crate::nvml_ffi;

/// Every function of CUDA's public headers: symbol, name, version, per-thread or not. The stand-in for the driver is made from the same
/// table.
const TABLE: &str = include_str!("../../millpond-simcuda/names.tsv");

/// The newest version that the table knows of.
pub(crate) const NEWEST: i32 = 13000;

/// A form of a function.
struct Form {
    symbol: &'static str,
    name: &'static str,
    version: i32,
    per_thread: bool,
}

fn forms() -> &'static [Form] {
    static FORMS: OnceLock<Vec<Form>> = OnceLock::new();
    FORMS.get_or_init(|| TABLE.lines().filter_map(form).collect())
}

fn form(line: &'static str) -> Option<Form> {
    let mut fields = line.split('\t');
    let (symbol, name) = (fields.next()?, fields.next()?);
    let version = fields.next()?.parse().ok()?;
    Some(Form { symbol, name, version, per_thread: fields.next()? != "-" })
}

/// The symbol that `cuGetProcAddress` means by a name: its newest form that is not newer than the version.
pub(crate) fn symbol_of(name: &str, version: i32, per_thread: bool) -> Option<&'static str> {
    let fits = |form: &&Form| {
        form.name == name && form.version <= version && (per_thread || !form.per_thread)
    };
    forms()
        .iter()
        .filter(fits)
        .max_by_key(|form| (form.per_thread, form.version))
        .map(|form| form.symbol)
}

/// All our functions.
fn own() -> impl Iterator<Item = &'static Own> {
    abi_ffi::ALL.iter().copied().flatten().chain(nvml_ffi::OWN)
}

/// Our function of a symbol.
pub(crate) fn own_function(symbol: &CStr) -> Option<*const c_void> {
    let symbol = symbol.to_bytes();
    // Almost everything that a process looks for is something else.
    if !symbol.starts_with(b"cu") && !symbol.starts_with(b"nvml") {
        return None;
    }
    own().find(|own| own.symbol.as_bytes() == symbol).map(|own| own.address())
}

/// Our function for what `cuGetProcAddress` finds.
pub(crate) fn own_form(name: &str, version: i32, per_thread: bool) -> Option<*const c_void> {
    let symbol = symbol_of(name, version, per_thread)?;
    own().find(|own| own.symbol == symbol).map(|own| own.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_and_the_kind_of_default_stream_decide_the_form() {
        for (name, version, per_thread, symbol) in [
            ("cuMemAlloc", 12090, false, Some("cuMemAlloc_v2")),
            ("cuMemAlloc", 12090, true, Some("cuMemAlloc_v2")),
            ("cuMemAlloc", 2000, false, Some("cuMemAlloc")),
            ("cuLaunchKernel", 12000, true, Some("cuLaunchKernel_ptsz")),
            ("cuLaunchKernel", 6000, true, Some("cuLaunchKernel")),
            ("cuLaunchKernel", 12000, false, Some("cuLaunchKernel")),
            ("cuGraphInstantiate", 12000, false, Some("cuGraphInstantiateWithFlags")),
            ("cuMemCreate", 10000, false, None),
            ("cuNothing", 12000, false, None),
        ] {
            assert_eq!(
                symbol_of(name, version, per_thread),
                symbol,
                "{name} {version} {per_thread}"
            );
        }
    }

    #[test]
    fn each_of_our_functions_is_in_a_header() {
        for own in abi_ffi::ALL.iter().copied().flatten() {
            let forms = forms().iter().filter(|form| form.symbol == own.symbol);
            assert_ne!(forms.count(), 0, "{}", own.symbol);
        }
    }

    /// What queues work for the device, in whatever form, must not slip through.
    #[test]
    fn everything_that_queues_work_is_ours() {
        let starts = [
            "cuMemcpy",
            "cuMemset",
            "cuLaunch",
            "cuGraphLaunch",
            "cuGraphUpload",
            "cuMemPrefetch",
            "cuMemDiscard",
            "cuMemBatchDecompress",
            "cuMemMapArrayAsync",
            "cuStreamWriteValue",
            "cuStreamWaitValue",
            "cuStreamBatchMemOp",
            "cuStreamAttachMemAsync",
            "cuStreamBeginCapture",
            "cuSignalExternalSemaphores",
            "cuWaitExternalSemaphores",
            "cuGraphicsMapResources",
            "cuGraphicsUnmapResources",
        ];
        let queues = |symbol: &str| {
            starts.iter().any(|start| symbol.starts_with(start))
                && !symbol.starts_with("cuLaunchHostFunc")
        };
        let missing: Vec<_> = forms()
            .iter()
            .map(|form| form.symbol)
            .filter(|symbol| queues(symbol) && !own().any(|own| own.symbol == *symbol))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
