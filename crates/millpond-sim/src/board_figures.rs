//! What a board computes with: the part of a profile that all users of a device must agree on.

use serde::{Deserialize, Serialize};

use crate::frames::FRAME_BYTES;
use crate::{FaultModel, Profile};

macro_rules! board_figures {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub(crate) struct BoardFigures {
            pub(crate) profile: String,
            pub(crate) fault_model: FaultModel,
            $($(#[$doc])* pub(crate) $field: f64,)*
        }

        impl BoardFigures {
            pub(crate) fn new(profile: &Profile, fault_model: FaultModel) -> BoardFigures {
                BoardFigures {
                    profile: profile.name.clone(),
                    fault_model,
                    $($field: profile.$field,)*
                }
            }

            /// The name of each number, and the number.
            fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

board_figures! {
    capacity_bytes,
    multiprocessors,
    threads_per_multiprocessor,
    link_to_device,
    link_to_host,
    link_both,
    copy_engines,
    naive_page_ns,
    fault_batch,
    faults_per_multiprocessor,
    density_percent,
    batch_ns,
    fault_ns,
    block_ns,
    page_ns,
}

/// The largest device.
const MOST_BYTES: f64 = (8_u64 << 40) as f64;
/// No figure of a device is larger than this.
const MOST: f64 = 1e15;

impl BoardFigures {
    /// The first thing that is not the same in both: its name, what it is here, and what there.
    pub(crate) fn difference(&self, other: &BoardFigures) -> Option<(String, String, String)> {
        let different = |name: &str, here: String, there: String| {
            (here != there).then(|| (name.to_owned(), here, there))
        };
        let models = [self.fault_model, other.fault_model].map(|model| format!("{model:?}"));
        let [model, other_model] = models;
        different("profile", self.profile.clone(), other.profile.clone())
            .or_else(|| different("fault_model", model, other_model))
            .or_else(|| {
                let mut pairs = self.numbers().zip(other.numbers());
                pairs.find_map(|((name, here), (_, there))| {
                    different(name, here.to_string(), there.to_string())
                })
            })
    }

    /// The first figure that no device has. A profile's are sound; what comes in a message may be anything.
    pub(crate) fn unsound(&self) -> Option<&'static str> {
        let capacity = self.capacity_bytes;
        if !(1.0..=MOST_BYTES).contains(&capacity) || capacity % FRAME_BYTES as f64 != 0.0 {
            return Some("capacity_bytes");
        }
        let rates = ["link_to_device", "link_to_host", "link_both"];
        let counts = ["multiprocessors", "threads_per_multiprocessor", "fault_batch"];
        let least = |name| {
            let at_least_one = rates.contains(&name) || counts.contains(&name);
            if at_least_one || name == "faults_per_multiprocessor" { 1.0 } else { 0.0 }
        };
        let mut numbers = self.numbers();
        numbers.find(|(name, number)| !(least(name)..=MOST).contains(number)).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_sound_and_differences_have_names() {
        let figures =
            |name: &str| BoardFigures::new(&Profile::named(name).unwrap(), FaultModel::Driver);
        for name in Profile::names() {
            assert_eq!(figures(name).unsound(), None);
            assert_eq!(figures(name).difference(&figures(name)), None);
        }
        let (a, mut b) = (figures("a100-80g"), figures("a100-80g"));
        b.block_ns += 1.0;
        assert_eq!(a.difference(&b).unwrap().0, "block_ns");
        assert_eq!(a.difference(&figures("p100-16g")).unwrap().0, "profile");
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            b.block_ns = bad;
            assert_eq!(b.unsound(), Some("block_ns"));
        }
        b.capacity_bytes = 1e30;
        assert_eq!(b.unsound(), Some("capacity_bytes"));
    }
}
