//! Lists of stacks, as they are typed.

/// Takes a list apart. What is `key=value` goes on with the options of the stack before it.
pub(crate) fn separate(list: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in list.split(',') {
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
        let list = "mimalloc,pool:slack=0.1,alignment=4KiB,limit:bytes=1GiB/pool:slack=0,direct";
        let expected = [
            "mimalloc",
            "pool:slack=0.1,alignment=4KiB",
            "limit:bytes=1GiB/pool:slack=0",
            "direct",
        ];
        assert_eq!(separate(list), expected);
    }
}
