//! Which devices a program sees, and in what order: the environment variable `CUDA_VISIBLE_DEVICES`.

use crate::layouts::Uuid;

/// The environment variable.
pub(crate) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// How the names of whole devices begin.
const PREFIX: &str = "GPU-";

/// The devices that a program sees: numbers of the machine's devices, in the order in which the program numbers them. `list` is
/// the variable's value; without it all devices are visible.
///
/// The list ends before its first entry that names no device, as CUDA documents, and an entry that names a device twice leaves
/// none visible. Entries are numbers (what follows the digits is not read), or UUIDs of which the beginning is enough if only one
/// device begins so.
pub(crate) fn visible(list: Option<&str>, devices: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..devices).collect() };
    let mut found = Vec::new();
    for entry in list.split(',') {
        let Some(device) = device_of(entry.trim(), devices) else { break };
        if found.contains(&device) {
            return Vec::new();
        }
        found.push(device);
    }
    found
}

fn device_of(entry: &str, devices: usize) -> Option<usize> {
    if entry.starts_with(PREFIX) {
        let mut named = (0..devices)
            .filter(|device| uuid_text(*device).starts_with(&entry.to_lowercase()[PREFIX.len()..]));
        return named.next().filter(|_| named.next().is_none());
    }
    let digits = entry.find(|c: char| !c.is_ascii_digit()).unwrap_or(entry.len());
    entry[..digits].parse().ok().filter(|device| *device < devices)
}

/// The UUID of a device of the machine.
pub(crate) fn uuid(device: usize) -> Uuid {
    let mut bytes = *b"millpond-sim\0\0\0\0";
    bytes[12..].copy_from_slice(&(device as u32).to_be_bytes());
    bytes
}

/// A UUID as `nvidia-smi -L` shows it, after `GPU-`.
fn uuid_text(device: usize) -> String {
    let hex: String = uuid(device).iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_which_devices_there_are_and_in_what_order() {
        for (list, expected) in [
            (None, &[0, 1, 2][..]),
            (Some(""), &[]),
            (Some("-1"), &[]),
            (Some("NoDevFiles"), &[]),
            (Some("1"), &[1]),
            (Some("2,0"), &[2, 0]),
            (Some(" 2 , 0 "), &[2, 0]),
            (Some("1,-1,2"), &[1]),
            (Some("0,3,1"), &[0]),
            (Some("0,,1"), &[0]),
            (Some("0,1,0"), &[]),
            (Some("1gpu,2"), &[1, 2]),
            (Some("99999999999999999999"), &[]),
        ] {
            assert_eq!(visible(list, 3), expected, "{list:?}");
        }
    }

    #[test]
    fn a_uuid_names_a_device_by_as_much_as_is_its_own() {
        let full = |device| format!("GPU-{}", uuid_text(device));
        assert_eq!(full(1), "GPU-6d696c6c-706f-6e64-2d73-696d00000001");
        assert_eq!(visible(Some(&format!("{},{}", full(2), full(0))), 3), [2, 0]);
        assert_eq!(visible(Some(&full(1).to_uppercase()), 3), [1]);
        assert_eq!(visible(Some("GPU-6d69"), 1), [0], "one device: any beginning names it");
        assert_eq!(visible(Some("GPU-6d69"), 2), [0; 0], "two devices begin so");
        assert_eq!(visible(Some(&format!("{},GPU-ffff,0", full(1))), 3), [1]);
        assert_eq!(visible(Some("MIG-1"), 3), [0; 0]);
    }
}
