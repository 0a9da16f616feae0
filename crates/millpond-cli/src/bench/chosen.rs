//! Which allocators to measure: by the names of the list, or by what builds a stack.

use std::sync::Arc;

use anyhow::Result;
use millpond::stack::RESOURCES;
use millpond::{Resource, Stack, StackError};

use super::allocators::{ALLOCATORS, Allocator, millpond};
use super::runner::Runner;
use super::unknown;
use crate::device::Site;
use crate::stacks::separate;

/// Something to measure.
pub(crate) enum Chosen {
    /// One of the list.
    Listed(&'static Allocator),
    /// Built by name.
    Stack(Stack),
}

impl Chosen {
    /// What it is called in tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Chosen::Listed(allocator) => allocator.name.to_owned(),
            Chosen::Stack(stack) => stack.to_string(),
        }
    }

    /// Makes one on a device, which if it is simulated it shares with nobody.
    pub(crate) fn make(&self, site: &Site) -> Result<Box<dyn Runner>> {
        match self {
            Chosen::Listed(allocator) => (allocator.make)(site),
            Chosen::Stack(stack) => {
                let make =
                    |driver| -> Result<Arc<dyn Resource>> { Ok(stack.build(driver)?.resource) };
                millpond(&self.name(), site, make)
            }
        }
    }
}

/// Those of the list that are chosen, in its order, and then the stacks, each once; nothing chosen is the whole list.
pub(crate) fn allocators(options: &[String]) -> Result<Vec<Chosen>> {
    let names: Vec<String> = options.iter().flat_map(|option| separate(option)).collect();
    let is_chosen = |allocator: &&Allocator| {
        names.is_empty() || names.iter().any(|name| name == allocator.name)
    };
    let mut chosen: Vec<Chosen> = ALLOCATORS.iter().filter(is_chosen).map(Chosen::Listed).collect();
    for name in &names {
        if ALLOCATORS.iter().any(|allocator| allocator.name == name) {
            continue;
        }
        let stack = Chosen::Stack(read(name)?);
        if chosen.iter().all(|other| other.name() != stack.name()) {
            chosen.push(stack);
        }
    }
    Ok(chosen)
}

fn read(name: &str) -> Result<Stack> {
    match name.parse() {
        Ok(stack) => Ok(stack),
        // A single wrong name may be meant for either.
        Err(StackError::UnknownName { name: wrong }) if wrong == name => {
            let listed = ALLOCATORS.iter().map(|allocator| allocator.name);
            let resources = RESOURCES.iter().map(|entry| entry.name);
            let mut known: Vec<&'static str> = listed.collect();
            known.extend(
                resources.filter(|resource| !ALLOCATORS.iter().any(|a| a.name == *resource)),
            );
            unknown("allocator", name, &known)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_list_come_first_and_each_once() {
        let names = |options: &[&str]| -> Vec<String> {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            allocators(&options).unwrap().iter().map(Chosen::name).collect()
        };
        let chosen = names(&["stats/pool,rlsf", "limit:1GiB/pool", "mimalloc", "stats/pool"]);
        assert_eq!(chosen, ["mimalloc", "rlsf", "stats/pool", "limit:bytes=1GiB/pool"]);
        assert_eq!(names(&[]).len(), ALLOCATORS.len());
    }
}
