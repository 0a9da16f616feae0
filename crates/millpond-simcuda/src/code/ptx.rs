//! The kernels of a PTX text: names and parameters are all that is looked for.

use super::{Kernel, Needs, Parameter, threads};

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
        let (parameters, rest) = match rest.trim_start().strip_prefix('(') {
            Some(list) => {
                let (list, rest) = list.split_once(')').unwrap_or((list, ""));
                (parameters(list), rest)
            }
            None => (Some(Vec::new()), rest),
        };
        kernels.push(Kernel { name: name.to_owned(), parameters, needs: needs(rest) });
    }
    Some(kernels)
}

/// What the directives between a kernel's parameters and its body say, and the shared memory that its body declares.
fn needs(text: &str) -> Needs {
    let mut needs = Needs::default();
    let (directives, body) = text.split_once('{').unwrap_or((text, ""));
    for directive in directives.split('.').skip(1) {
        let (name, sizes) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
        let sizes: Vec<u32> = sizes.split(',').map_while(|size| size.trim().parse().ok()).collect();
        let shape = [0, 1, 2].map(|axis| sizes.get(axis).copied().unwrap_or(1));
        match name {
            "maxntid" if !sizes.is_empty() => needs.most_threads = Some(threads(shape)),
            "reqntid" if !sizes.is_empty() => needs.block = Some(shape),
            "maxnreg" if !sizes.is_empty() => needs.registers = sizes[0].min(needs.registers),
            _ => {}
        }
    }
    needs.shared_bytes = shared_bytes(body_of(body));
    needs
}

/// The text up to the brace that ends what was opened before it.
fn body_of(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// `.shared .align 4 .b8 tile[400];`, one after the other. What says no size takes what launches ask for.
fn shared_bytes(body: &str) -> u32 {
    let mut end: usize = 0;
    for statement in body.split(';') {
        let Some((_, declaration)) = statement.split_once(".shared ") else { continue };
        // Instructions name the memory they touch, as in ld.shared.
        if !declaration.trim_start().starts_with('.') {
            continue;
        }
        let Some(parameters) = parameters(declaration) else { continue };
        let align = alignment(declaration);
        for parameter in parameters {
            end = end.next_multiple_of(align) + parameter.bytes;
        }
    }
    u32::try_from(end).unwrap_or(u32::MAX)
}

fn alignment(declaration: &str) -> usize {
    let mut words = declaration.split_whitespace().skip_while(|word| *word != ".align");
    let align = words.nth(1).and_then(|align| align.parse().ok());
    align.filter(|align: &usize| align.is_power_of_two() && *align <= 128).unwrap_or(1)
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
        assert_eq!(kernels[2].needs, Needs { most_threads: Some(1), ..Needs::default() });
    }

    #[test]
    fn limits_and_shared_memory_are_found() {
        let kernels = kernels(
            ".version 8.0 .extern .shared .align 16 .b8 asked_for[];
            .visible .entry bounded(.param .u64 a) .maxntid 128, 2, 1 .minnctapersm 2 .maxnreg 24 {
                .shared .align 4 .b8 tile[400]; { .shared .align 8 .f64 sum; }
                ld.shared.f32 %f1, [tile]; }
            .entry exact .reqntid 64 { ret; } .shared .align 4 .b8 of_no_kernel[4000];",
        )
        .unwrap();
        let bounded =
            Needs { most_threads: Some(256), registers: 24, shared_bytes: 408, ..Needs::default() };
        assert_eq!(kernels[0].needs, bounded);
        assert_eq!(kernels[1].needs, Needs { block: Some([64, 1, 1]), ..Needs::default() });
        assert_eq!((bounded.most_threads(), kernels[1].needs.most_threads()), (256, 64));
    }

    #[test]
    fn what_is_no_ptx_has_no_kernels() {
        assert_eq!(kernels("hello"), None);
        assert_eq!(kernels(""), None);
        let odd = ".version 7.0 .entry k(.param .u64 a[99999999999999999999]) ";
        assert_eq!(kernels(odd).unwrap()[0].parameters, None);
    }
}
