//! The container that NVIDIA's tools write: the same code for several devices, as compiled objects and as PTX, each of them
//! packed or not.

use super::{Kernel, cubin, ptx};
use crate::code_number::{Answer, Code};

/// How a container begins: `magic: u32, version: u16, header_bytes: u16, bytes: u64`, where the bytes are those after the header.
pub(super) const MAGIC: u32 = 0xba55_ed50;
const HEADER_BYTES: usize = 16;

/// How an image in it begins, in the order of the fields that matter:
/// `kind: u16` at 0, `header_bytes: u32` at 4, `bytes: u64` at 8, `packed_bytes: u32` at 16, `device: u32` at 28,
/// `flags: u64` at 40, `unpacked_bytes: u64` at 56. What is between them, and after, is of no use here.
const IMAGE_HEADER_BYTES: usize = 64;
const KIND_PTX: u16 = 1;
const KIND_OBJECT: u16 = 2;
const PACKED_LZ4: u64 = 0x2000;
const PACKED_ZSTD: u64 = 0x8000;

/// More than any compiler makes; what claims more is damaged.
const MOST_BYTES: usize = 1 << 30;

/// One image of a container, and where its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image {
    kind: u16,
    /// The device that it is for: 80 is compute capability 8.0.
    device: u32,
    flags: u64,
    at: usize,
    bytes: usize,
    unpacked_bytes: usize,
}

/// The kernels of a container, of the image that a device of this compute capability would be given. `read` gives so many
/// bytes from such a place in it, or says that there are none.
pub(super) fn kernels(
    capability: (i32, i32),
    read: impl Fn(usize, usize) -> Answer<Vec<u8>>,
) -> Answer<Vec<Kernel>> {
    let images = images(&read)?;
    let image = choose(&images, capability).ok_or(Code::NO_BINARY_FOR_GPU)?;
    let contents = unpack(image, read(image.at, image.bytes)?).ok_or(Code::INVALID_IMAGE)?;
    let kernels = match image.kind {
        KIND_OBJECT => cubin::kernels(&contents),
        _ => std::str::from_utf8(&contents)
            .ok()
            .and_then(|text| ptx::kernels(text.trim_end_matches('\0'))),
    };
    kernels.ok_or(Code::INVALID_IMAGE)
}

fn images(read: impl Fn(usize, usize) -> Answer<Vec<u8>>) -> Answer<Vec<Image>> {
    let header = read(0, HEADER_BYTES)?;
    let mut at = usize::from(u16::from_le_bytes(field(&header, 6)));
    let bytes =
        usize::try_from(u64::from_le_bytes(field(&header, 8))).map_err(|_| Code::INVALID_IMAGE)?;
    let end = at.checked_add(bytes).ok_or(Code::INVALID_IMAGE)?;
    let mut images = Vec::new();
    while at < end {
        let header = read(at, IMAGE_HEADER_BYTES)?;
        let number = |at| {
            usize::try_from(u64::from_le_bytes(field(&header, at))).map_err(|_| Code::INVALID_IMAGE)
        };
        let header_bytes = u32::from_le_bytes(field(&header, 4)) as usize;
        let bytes = number(8)?;
        let packed_bytes = u32::from_le_bytes(field(&header, 16)) as usize;
        let start = at.checked_add(header_bytes).ok_or(Code::INVALID_IMAGE)?;
        let next =
            start.checked_add(bytes).filter(|next| *next <= end).ok_or(Code::INVALID_IMAGE)?;
        if header_bytes < IMAGE_HEADER_BYTES || packed_bytes > bytes || bytes > MOST_BYTES {
            return Err(Code::INVALID_IMAGE);
        }
        images.push(Image {
            kind: u16::from_le_bytes(field(&header, 0)),
            device: u32::from_le_bytes(field(&header, 28)),
            flags: u64::from_le_bytes(field(&header, 40)),
            at: start,
            // What is packed is followed by bytes that align the next image, which are not part of it.
            bytes: if packed_bytes == 0 { bytes } else { packed_bytes },
            unpacked_bytes: number(56)?,
        });
        at = next;
    }
    Ok(images)
}

/// The newest object that this device can run, which is one of its own generation; else the newest PTX that it can compile.
fn choose(images: &[Image], (major, minor): (i32, i32)) -> Option<Image> {
    let device = u32::try_from(major * 10 + minor).ok()?;
    let of = |kind| images.iter().filter(move |image| image.kind == kind && image.device <= device);
    let objects = of(KIND_OBJECT).filter(|image| image.device / 10 == device / 10);
    objects
        .max_by_key(|image| image.device)
        .or_else(|| of(KIND_PTX).max_by_key(|image| image.device))
        .copied()
}

fn unpack(image: Image, contents: Vec<u8>) -> Option<Vec<u8>> {
    if image.flags & (PACKED_LZ4 | PACKED_ZSTD) == 0 {
        return Some(contents);
    }
    if image.unpacked_bytes > MOST_BYTES {
        return None;
    }
    if image.flags & PACKED_LZ4 != 0 {
        return lz4_flex::block::decompress(&contents, image.unpacked_bytes).ok();
    }
    let mut unpacked = vec![0; image.unpacked_bytes];
    let bytes = ruzstd::decoding::FrameDecoder::new().decode_all(&contents, &mut unpacked).ok()?;
    unpacked.truncate(bytes);
    Some(unpacked)
}

/// Part of a header that was read in full.
fn field<const BYTES: usize>(header: &[u8], at: usize) -> [u8; BYTES] {
    header[at..at + BYTES].try_into().expect("a slice of that length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Parameter;

    /// `testdata/kernels.ptx`, compiled by NVIDIA's ptxas for 7.5, 8.0 and 9.0 and put together with its PTX, said to be of 9.0,
    /// by NVIDIA's fatbinary; see the text's first lines.
    const PLAIN: &[u8] = include_bytes!("../../testdata/kernels.none.fatbin");
    const LZ4: &[u8] = include_bytes!("../../testdata/kernels.lz4.fatbin");
    const ZSTD: &[u8] = include_bytes!("../../testdata/kernels.zstd.fatbin");

    fn kernels_of(container: &[u8], capability: (i32, i32)) -> Answer<Vec<Kernel>> {
        kernels(capability, |at, bytes| {
            let part = at.checked_add(bytes).and_then(|end| container.get(at..end));
            part.map(<[u8]>::to_vec).ok_or(Code::INVALID_IMAGE)
        })
    }

    #[test]
    fn every_packing_and_every_device_tells_the_same_kernels() {
        let at = |offset, bytes| Parameter { offset, bytes };
        let scale_rows = vec![at(0, 8), at(8, 4), at(12, 4), at(16, 24), at(40, 1)];
        for container in [PLAIN, LZ4, ZSTD] {
            // 12.0 has no object of its own and takes the PTX.
            for capability in [(7, 5), (8, 0), (8, 9), (9, 0), (12, 0)] {
                let mut kernels = kernels_of(container, capability).unwrap();
                kernels.sort_by(|a, b| a.name.cmp(&b.name));
                let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
                assert_eq!(names, ["large", "millpond_fill", "nothing_at_all", "scale_rows"]);
                assert_eq!(kernels[0].parameters, Some(vec![at(0, 4000), at(4000, 8)]));
                assert_eq!(kernels[1].parameters, Some(vec![at(0, 8), at(8, 4), at(16, 8)]));
                assert_eq!(kernels[2].parameters, Some(Vec::new()));
                assert_eq!(kernels[3].parameters, Some(scale_rows.clone()), "{capability:?}");
            }
            assert_eq!(kernels_of(container, (7, 0)), Err(Code::NO_BINARY_FOR_GPU));
        }
    }

    #[test]
    fn damage_is_an_error_or_other_kernels_and_never_a_crash() {
        let seed = 7;
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..3000 {
            let container = [PLAIN, LZ4, ZSTD][round % 3];
            let mut damaged = container.to_vec();
            for _ in 0..1 + random.usize(..8) {
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
            }
            damaged.truncate(random.usize(..=damaged.len()));
            let _ = kernels_of(&damaged, (8, 0));
        }
        assert!(kernels_of(&PLAIN[..100], (8, 0)).is_err(), "seed {seed}");
    }
}
