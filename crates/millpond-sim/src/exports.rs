//! Physical memory that has left the hands of whoever claimed it: several may hold it, and it goes back after the last.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::frames::Extent;

/// Names exported physical memory to others. Means nothing to another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportToken(pub u64);

/// Who holds something. A private device has one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Holder(pub(crate) u64);

/// How often each holder holds it: once for each handle. Never empty.
#[derive(Debug)]
struct Export {
    extents: Vec<Extent>,
    holders: HashMap<Holder, u64>,
}

/// What became of exported memory when a holder let go of it once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LetGo {
    /// The same holder has it still, by another handle.
    StillHeld,
    /// Only others have it.
    HeldByOthers,
    /// Nobody has it: these frames are free.
    Free(Vec<Extent>),
}

/// Everything that is exported, by token. Tokens are drawn at random, so that one of an earlier device names nothing.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    by_token: HashMap<ExportToken, Export>,
}

impl Exports {
    /// `holder` exports what it holds by one handle.
    pub(crate) fn add(&mut self, extents: Vec<Extent>, holder: Holder) -> ExportToken {
        loop {
            let token = ExportToken(fastrand::u64(1..));
            if let Entry::Vacant(place) = self.by_token.entry(token) {
                place.insert(Export { extents, holders: HashMap::from([(holder, 1)]) });
                return token;
            }
        }
    }

    /// `holder` holds it once more.
    pub(crate) fn import(&mut self, token: ExportToken, holder: Holder) -> Option<Vec<Extent>> {
        let export = self.by_token.get_mut(&token)?;
        *export.holders.entry(holder).or_default() += 1;
        Some(export.extents.clone())
    }

    /// `holder` holds it once less. `None`: it does not hold it.
    pub(crate) fn let_go(&mut self, token: ExportToken, holder: Holder) -> Option<LetGo> {
        let export = self.by_token.get_mut(&token)?;
        let times = export.holders.get_mut(&holder)?;
        *times -= 1;
        if *times > 0 {
            return Some(LetGo::StillHeld);
        }
        export.holders.remove(&holder);
        if !export.holders.is_empty() {
            return Some(LetGo::HeldByOthers);
        }
        self.by_token.remove(&token).map(|export| LetGo::Free(export.extents))
    }

    /// `holder` is gone; returns the frames that nobody has any more.
    pub(crate) fn forget_holder(&mut self, holder: Holder) -> Vec<Extent> {
        let mut free = Vec::new();
        self.by_token.retain(|_, export| {
            export.holders.remove(&holder);
            if export.holders.is_empty() {
                free.append(&mut export.extents);
            }
            !export.holders.is_empty()
        });
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_frees_it() {
        let (a, b) = (Holder(1), Holder(2));
        let extents = vec![Extent { start: 0, bytes: 2 << 20 }];
        let mut exports = Exports::default();
        let token = exports.add(extents.clone(), a);
        assert_eq!(exports.import(ExportToken(0), b), None);
        assert_eq!(exports.import(token, b).as_ref(), Some(&extents));
        assert_eq!(exports.import(token, b).as_ref(), Some(&extents));
        assert_eq!(exports.let_go(token, a), Some(LetGo::HeldByOthers));
        assert_eq!(exports.let_go(token, a), None);
        assert_eq!(exports.let_go(token, b), Some(LetGo::StillHeld));
        assert_eq!(exports.forget_holder(a), []);
        assert_eq!(exports.let_go(token, b), Some(LetGo::Free(extents.clone())));
        let token = exports.add(extents.clone(), a);
        assert_eq!(exports.forget_holder(a), extents);
        assert_eq!(exports.import(token, b), None);
    }
}
