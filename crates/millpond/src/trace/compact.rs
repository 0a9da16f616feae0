//! Our own file, `.mptrace`: everything that a [`Trace`](super::Trace) holds, in few bytes, written and read as a stream.
//!
//! Integers of fixed length are little-endian. `varint` is LEB128: seven bits a byte, the lowest first, the top bit says that more follow.
//! A *signed* varint is zigzag: 0, −1, 1, −2, … are 0, 1, 2, 3, …
//!
//! ```text
//! file    "MPTRACE" version:u8 chunk… end-chunk
//! chunk   kind:u8 device:u32 unpacked_len:u32 packed_len:u32 crc:u32 packed
//!         crc    CRC-32 (zlib's) of the 13 bytes before it and of packed
//!         packed the payload, as raw deflate makes it of at most 256 KiB
//!
//! Version 1 had no call stacks: no 6, 7 and 8, and nothing that is marked with *.
//!
//! kind 1  tables    a byte says what follows, and so on to the end; numbers count from 0 in the order of appearance
//!                   1 stream  handle:varint                        2 pool    varint varint (0, 0 is there from the start)
//!                   3 thread  id:varint                            4 unknown action  len:varint text
//!                   5 name of the trace  len:varint text          6 text of frames  len:varint text
//!                   7 frame   file name line, all varint, the first two texts of frames, 2³²−1 for none
//!                   8 stack   inner:varint frame:varint: another stack, from 1, or 0, and a frame further out
//! kind 2  segments  what the device had at the end: 1 segment  addr bytes stream pool expandable, all varint
//!                   2 block of the last segment  state bytes requested_bytes, all varint; state 0 allocated, 1 pending, 2 free;
//!                   8 more: it does not begin where the last one ended, and its addr:varint follows;
//!                   16 more: its stack:varint follows*
//! kind 3  initial   blocks that were live before the first event:  addr bytes stream pool stack*, all varint
//! kind 4  events    see below
//! kind 5  end       how many events there were in all: varint
//! ```
//!
//! Tables come before what uses their numbers. What was there before the first event comes before the events of its device. Segments, initial
//! blocks and events each go on from one chunk to the next of the same kind and device, so a reader may pass over the chunks of other devices.
//!
//! An event is a byte, of which the lower half is the kind, in the order of [`EventKind`](super::EventKind), and then:
//!
//! ```text
//! bit 4 KNOWN    at a block that is live      bit 4 off  elsewhere
//!   bit 5 SAME   as many bytes as it has        bit 5 BELOW  the address is less than the last that was elsewhere
//!   bit 7 LAST   it is the last one met         bit 7 off
//! bit 6 CONTEXT  stream, pool, thread and stack* are other than the last event's
//!
//! time:signed varint, to the last event's
//! KNOWN: slot:varint unless LAST              elsewhere: distance:varint, rotated right by 8 bits
//! bytes:varint, unless KNOWN and SAME
//! CONTEXT: stream:varint pool:varint thread:varint stack:varint*
//! ```
//!
//! An `alloc` elsewhere puts its block into a slot: the one that was emptied last, or a new one. An `alloc` at a known block takes that
//! block's place; a `free_completed` there empties the slot. Thus a free costs two or three bytes, and neither side keeps more than what is live.

mod chunk;
mod event_code;
mod reader;
mod slots;
mod varint;
mod writer;

pub(super) use chunk::MAGIC;
pub(super) use reader::CompactReader;
pub(super) use writer::CompactWriter;
