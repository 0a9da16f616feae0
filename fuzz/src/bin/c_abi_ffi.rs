//! Calls of the C ABI, right and wrong ones, against a list of what must be live.

#![no_main]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

// What is called is linked by its C name.
use millpond_capi as _;
use millpond_fuzz::Choices;

type Pool = *mut c_void;
type Ptr = *mut c_void;

unsafe extern "C" {
    fn millpond_pool_open(text: *const c_char, out: *mut Pool) -> c_int;
    fn millpond_pool_close(pool: Pool) -> c_int;
    fn millpond_stream_create(pool: Pool, out: *mut Ptr) -> c_int;
    fn millpond_stream_destroy(pool: Pool, stream: Ptr) -> c_int;
    fn millpond_stream_synchronize(pool: Pool, stream: Ptr) -> c_int;
    fn millpond_alloc(pool: Pool, bytes: usize, stream: Ptr, out: *mut Ptr) -> c_int;
    fn millpond_alloc_now(pool: Pool, bytes: usize, stream: Ptr, out: *mut Ptr) -> c_int;
    fn millpond_free(pool: Pool, ptr: Ptr, bytes: usize, stream: Ptr) -> c_int;
    fn millpond_free_unsized(pool: Pool, ptr: Ptr, stream: Ptr) -> c_int;
    fn millpond_record_stream(pool: Pool, ptr: Ptr, stream: Ptr) -> c_int;
    fn millpond_block_bytes(pool: Pool, ptr: Ptr, out: *mut usize) -> c_int;
    fn millpond_configure(pool: Pool, settings: *const c_char) -> c_int;
    fn millpond_preallocate(pool: Pool, bytes: usize, count: usize) -> c_int;
    fn millpond_trim(pool: Pool, out: *mut usize) -> c_int;
    fn millpond_trim_cache(pool: Pool) -> c_int;
    fn millpond_defragment(pool: Pool, out: *mut usize) -> c_int;
    fn millpond_release_all(pool: Pool, out: *mut usize) -> c_int;
    fn millpond_get_usage(pool: Pool, out: *mut Usage) -> c_int;
}

/// `millpond_usage`.
#[repr(C)]
#[derive(Default)]
struct Usage {
    struct_bytes: usize,
    live_bytes: usize,
    live_blocks: usize,
    reserved_bytes: usize,
    peak_live_bytes: usize,
    peak_reserved_bytes: usize,
    largest_free_bytes: usize,
}

/// A pool of one input, and streams: the first is the default one.
struct Open {
    pool: Pool,
    streams: [Ptr; 3],
}

impl Open {
    fn new() -> Open {
        let mut open = Open { pool: null_mut(), streams: [null_mut(); 3] };
        let text = c"sim:v100-16g/pool:enable_defrag=false";
        // SAFETY: the places outlive the calls.
        unsafe {
            assert_eq!(millpond_pool_open(text.as_ptr(), &mut open.pool), 0);
            for stream in &mut open.streams[1..] {
                assert_eq!(millpond_stream_create(open.pool, stream), 0);
            }
        }
        open
    }
}

#[derive(Clone, Copy)]
struct Block {
    ptr: Ptr,
    bytes: usize,
    stream: Ptr,
}

const SETTINGS: [&std::ffi::CStr; 6] = [
    c"slack:0",
    c"slack:0.15",
    c"thread_cache_max_blocks:1,batch_alloc_count:1",
    c"thread_cache_max_blocks:64,batch_alloc_count:16,enable_stats:false",
    c"enable_stats:true",
    c"direct_above_bytes:1000000",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let open = Open::new();
    let mut choices = Choices(bytes);
    let mut live: Vec<Block> = Vec::new();
    while !choices.is_empty() {
        // SAFETY: what is passed is what the ABI asks for, or something that it says it refuses.
        unsafe { call(&open, &mut choices, &mut live) };
    }
    let pool = open.pool;
    for block in live {
        // SAFETY: the block is live.
        let freed = unsafe { millpond_free(pool, block.ptr, block.bytes, block.stream) };
        assert_eq!(freed, 0, "{:?} of {} bytes", block.ptr, block.bytes);
    }
    let mut usage = Usage { struct_bytes: size_of::<Usage>(), ..Usage::default() };
    // SAFETY: the place outlives the call.
    assert_eq!(unsafe { millpond_get_usage(pool, &mut usage) }, 0);
    assert_eq!((usage.live_blocks, usage.live_bytes), (0, 0));
    // SAFETY: nothing of the pool is used after this.
    assert_eq!(unsafe { millpond_pool_close(pool) }, 0);
});

/// Sizes near those at which the pool does something else, and any other.
fn size(choices: &mut Choices<'_>) -> usize {
    let exponent = u32::from(choices.byte()) % 32;
    (1_usize << exponent).wrapping_add_signed(isize::from(choices.byte() as i8))
}

/// # Safety
/// `live` is what the pool has handed out.
unsafe fn call(open: &Open, choices: &mut Choices<'_>, live: &mut Vec<Block>) {
    let Open { pool, streams } = open;
    let (pool, operation) = (*pool, choices.byte());
    let stream = streams[usize::from(operation >> 5) % streams.len()];
    let chosen = usize::from(choices.byte());
    let at = (!live.is_empty()).then(|| chosen % live.len());
    let mut ptr: Ptr = null_mut();
    let mut number = 0;
    // SAFETY: places outlive calls; wrong pointers are ones that the ABI looks up and refuses.
    unsafe {
        match operation & 31 {
            0..=7 => {
                let bytes = size(choices);
                if millpond_alloc(pool, bytes, stream, &mut ptr) == 0 && bytes > 0 {
                    let end = ptr as usize + bytes;
                    let overlaps = |block: &Block| {
                        (block.ptr as usize) < end
                            && (ptr as usize) < block.ptr as usize + block.bytes
                    };
                    assert!(
                        !live.iter().any(overlaps),
                        "{ptr:?} of {bytes} bytes is handed out twice"
                    );
                    assert_eq!(ptr as usize % 256, 0);
                    live.push(Block { ptr, bytes, stream });
                }
            }
            8 => {
                let bytes = size(choices);
                if millpond_alloc_now(pool, bytes, stream, &mut ptr) == 0 && bytes > 0 {
                    live.push(Block { ptr, bytes, stream });
                }
            }
            9..=15 => {
                let Some(at) = at else { return };
                let block = live.swap_remove(at);
                assert_eq!(millpond_free(pool, block.ptr, block.bytes, stream), 0);
                assert_ne!(millpond_free(pool, block.ptr, block.bytes, stream), 0, "a second free");
            }
            16 => {
                let Some(at) = at else { return };
                let block = live.swap_remove(at);
                assert_eq!(millpond_free_unsized(pool, block.ptr, stream), 0);
            }
            17 => {
                let Some(at) = at else { return };
                let wrong = live[at].bytes.wrapping_add(usize::from(choices.byte()) + 1);
                assert_ne!(millpond_free(pool, live[at].ptr, wrong, stream), 0, "a wrong size");
            }
            18 => {
                let Some(at) = at else { return };
                let inside =
                    live[at].ptr.wrapping_byte_add(1 + choices.word() as usize % live[at].bytes);
                let is_live = live.iter().any(|block| block.ptr == inside);
                assert!(
                    is_live || millpond_free_unsized(pool, inside, stream) != 0,
                    "an address inside"
                );
            }
            19 => {
                let wild = (choices.word() as usize) << 9;
                let is_live = live.iter().any(|block| block.ptr as usize == wild);
                assert!(
                    is_live || wild == 0 || millpond_free(pool, wild as Ptr, 1, stream) != 0,
                    "{wild:#x}"
                );
            }
            20 => {
                let Some(at) = at else { return };
                assert_eq!(millpond_record_stream(pool, live[at].ptr, stream), 0);
            }
            21 => {
                let Some(at) = at else { return };
                assert_eq!(millpond_block_bytes(pool, live[at].ptr, &mut number), 0);
                assert_eq!(number, live[at].bytes);
            }
            22 => {
                let _ = millpond_preallocate(pool, size(choices) % (1 << 24), chosen % 8);
            }
            23 => assert_eq!(millpond_trim(pool, &mut number), 0),
            24 => assert_eq!(millpond_trim_cache(pool), 0),
            25 => assert_eq!(millpond_defragment(pool, &mut number), 0),
            26 => assert_eq!(millpond_release_all(pool, &mut number), 0),
            27 => assert_eq!(millpond_stream_synchronize(pool, stream), 0),
            28 => {
                let setting = SETTINGS[chosen % SETTINGS.len()];
                let _ = millpond_configure(pool, setting.as_ptr());
            }
            29 => {
                let length = chosen.min(choices.0.len());
                let (text, rest) = choices.0.split_at(length);
                choices.0 = rest;
                let Ok(text) = CString::new(text) else { return };
                // A setting that names a file would write it.
                if !text.to_string_lossy().contains("snapshot") {
                    let _ = millpond_configure(pool, text.as_ptr());
                }
            }
            30 => {
                assert_ne!(millpond_alloc(null_mut(), 1, stream, &mut ptr), 0);
                assert_ne!(millpond_alloc(pool, 1, stream, null_mut()), 0);
                assert_ne!(millpond_pool_close(null_mut()), 0);
            }
            _ => {
                let mut own = null_mut();
                assert_eq!(millpond_stream_create(pool, &mut own), 0);
                if millpond_alloc(pool, size(choices) % (1 << 22) + 1, own, &mut ptr) == 0 {
                    assert_eq!(millpond_free_unsized(pool, ptr, own), 0);
                }
                assert_eq!(millpond_stream_destroy(pool, own), 0);
            }
        }
    }
}
