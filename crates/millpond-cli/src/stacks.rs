//! Lists of stacks, as they are typed.

use anyhow::{Result, ensure};
use millpond::Stack;
use millpond::stack::comparable;

/// Those that were named, each once, or all that can be compared.
pub(crate) fn chosen(options: &[String]) -> Result<Vec<Stack>> {
    chosen_or(options, comparable())
}

/// Those that were named, each once, or these.
pub(crate) fn chosen_or<'a>(
    options: &[String],
    default: impl Iterator<Item = &'a str>,
) -> Result<Vec<Stack>> {
    let mut names: Vec<String> = options.iter().flat_map(|option| separate(option)).collect();
    if names.is_empty() {
        names = default.map(str::to_owned).collect();
    }
    let mut stacks: Vec<Stack> = Vec::new();
    for name in names {
        add(&mut stacks, name.parse()?);
    }
    ensure!(!stacks.is_empty(), "no allocator is named");
    Ok(stacks)
}

/// One more, unless it is there.
pub(crate) fn add(stacks: &mut Vec<Stack>, stack: Stack) {
    if stacks.iter().all(|known| known.to_string() != stack.to_string()) {
        stacks.push(stack);
    }
}

/// Takes a list apart at commas outside of brackets. What is `key=value` goes on with the options of the stack before it.
pub(crate) fn separate(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut depth = 0_i32;
    let is_end = |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth == 0
    };
    for part in list.split(is_end) {
        let is_option =
            part.split_once('=').is_some_and(|(key, _)| !key.contains(':') && !key.contains('/'));
        match names.last_mut() {
            Some(stack) if is_option => *stack += &format!(",{part}"),
            _ => names.push(part.trim().to_owned()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stay_with_their_stack() {
        let list = "mimalloc,pool:slack=0.1,alignment=4KiB,limit:bytes=1GiB/pool:slack=0,direct,\
            torch:roundup_power2_divisions=[256:1,>:8]";
        let expected = [
            "mimalloc",
            "pool:slack=0.1,alignment=4KiB",
            "limit:bytes=1GiB/pool:slack=0",
            "direct",
            "torch:roundup_power2_divisions=[256:1,>:8]",
        ];
        assert_eq!(separate(list), expected);
    }
}
