//! The kernels of a PTX text: names and parameters are all that is looked for.

use super::{Kernel, Parameter};

/// The kernels that a text has; `None` if it is no PTX.
pub(super) fn kernels(text: &str) -> Option<Vec<Kernel>> {
    let text = without_comments(text);
    if !text.trim_start().starts_with(".version") {
        return None;
    }
    let mut kernels = Vec::new();
    for (at, _) in text.match_indices(".entry") {
        let rest = text[at + ".entry".len()..].trim_start();
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if name.is_empty() {
            continue;
        }
        let parameters = match rest.trim_start().strip_prefix('(') {
            Some(list) => parameters(list.split(')').next().unwrap_or_default()),
            None => Some(Vec::new()),
        };
        kernels.push(Kernel { name: name.to_owned(), parameters });
    }
    Some(kernels)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%".contains(c)
}

fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n')
        } else if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else {
            kept.push('/');
            Some(1)
        };
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    kept.push_str(rest);
    kept
}

/// `.param .u64 .ptr .global .align 8 a, .param .align 8 .b8 b[192]`: each is aligned to its own size, or as it says.
fn parameters(list: &str) -> Option<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut end: usize = 0;
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let mut words = text.split_whitespace();
        let (mut bytes, mut align, mut of_pointee) = (None, None, false);
        while let Some(word) = words.next() {
            match word {
                ".param" | ".global" | ".const" | ".shared" | ".local" => {}
                ".ptr" => of_pointee = true,
                ".align" => {
                    let given: usize = words.next()?.parse().ok()?;
                    // What comes after .ptr is the alignment of what it points to.
                    if !of_pointee {
                        align = Some(given);
                    }
                }
                _ if word.starts_with('.') => bytes = Some(size_of_type(word)?),
                _ => {}
            }
        }
        let element = bytes?;
        let count = match text.split_once('[') {
            Some((_, rest)) => rest.split(']').next()?.trim().parse().ok()?,
            None => 1,
        };
        let align = align.unwrap_or(element).max(1);
        if !align.is_power_of_two() || align > 128 {
            return None;
        }
        let offset = end.checked_next_multiple_of(align)?;
        let bytes = element.checked_mul(count).filter(|bytes| *bytes <= 32764)?;
        end = offset + bytes;
        parameters.push(Parameter { offset, bytes });
    }
    Some(parameters)
}

/// `.u64`, `.f32`, `.b8`…
fn size_of_type(word: &str) -> Option<usize> {
    let bits: usize = word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
    matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        // a comment, .entry not_one(
        .version 7.0 /* .entry nor_this */
        .target sm_50
        .address_size 64
        .visible .entry millpond_fill(
            .param .u64 millpond_fill_param_0,
            .param .u32 value,
            .param .u64 .ptr .global .align 16 count
        )
        { ret; }
        .entry nothing { ret; }
        .visible .entry work (.param .u64 ns, .param .align 8 .b8 touches[192], .param .f32 x) .maxntid 1 { ret; }
    ";

    #[test]
    fn names_and_layouts_are_found() {
        let kernels = kernels(TEXT).unwrap();
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["millpond_fill", "nothing", "work"]);
        let at = |offset, bytes| Parameter { offset, bytes };
        assert_eq!(kernels[0].parameters, Some(vec![at(0, 8), at(8, 4), at(16, 8)]));
        assert_eq!(kernels[1].parameters, Some(Vec::new()));
        assert_eq!(kernels[2].parameters, Some(vec![at(0, 8), at(8, 192), at(200, 4)]));
    }

    #[test]
    fn what_is_no_ptx_has_no_kernels() {
        assert_eq!(kernels("hello"), None);
        assert_eq!(kernels(""), None);
        let odd = ".version 7.0 .entry k(.param .u64 a[99999999999999999999]) ";
        assert_eq!(kernels(odd).unwrap()[0].parameters, None);
    }
}
