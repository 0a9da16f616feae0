use super::*;
use crate::board_figures::BoardFigures;
use crate::link::Direction;
use crate::{FaultModel, Profile};

const FRAME: u64 = FRAME_BYTES;
const FRAMES: u64 = 16;

fn hello() -> Hello {
    let profile = Profile::named("v100-16g").unwrap().with_capacity(FRAMES * FRAME).unwrap();
    let figures = BoardFigures::new(&profile, FaultModel::Driver);
    Hello { protocol: super::super::message::PROTOCOL, device: 0, speed: 1000, figures }
}

fn device() -> SharedDevice {
    SharedDevice::new(hello()).unwrap()
}

fn claim(device: &mut SharedDevice, client: ClientNumber, frames: u64) -> Option<Vec<Extent>> {
    match device.serve(client, Request::Claim { bytes: frames * FRAME, now: 0 }).unwrap() {
        Answer::Claimed { extents, .. } => Some(extents),
        Answer::None => None,
        other => panic!("{other:?}"),
    }
}

fn free_frames(device: &mut SharedDevice) -> u64 {
    device.board.free_bytes() / FRAME
}

#[test]
fn what_a_client_does_not_hold_it_cannot_give_away() {
    let mut device = device();
    let (honest, liar) = (device.join().unwrap(), device.join().unwrap());
    let theirs = claim(&mut device, honest, 4).unwrap();
    let own = claim(&mut device, liar, 2).unwrap();
    let mixed = [own.clone(), theirs.clone()].concat();
    let twice = [own.clone(), own.clone()].concat();
    for extents in [theirs.clone(), mixed, twice] {
        for request in [Request::GiveBack { extents: extents.clone() }, Request::Export { extents }]
        {
            assert_eq!(device.serve(liar, request), Err(Violation::NotItsFrames));
            assert_eq!(free_frames(&mut device), FRAMES - 6);
        }
    }
    let part = vec![Extent { start: own[0].start, bytes: 4096 }];
    let parted = device.serve(liar, Request::GiveBack { extents: part });
    assert_eq!(parted, Err(Violation::PartOfAFrame));
    assert_eq!(device.serve(liar, Request::LetGo { token: 1 }), Err(Violation::NotItsExport));
    device.leave(liar);
    assert_eq!(free_frames(&mut device), FRAMES - 4);
    assert_eq!(device.serve(honest, Request::GiveBack { extents: theirs }), Ok(Answer::Done));
    assert_eq!(free_frames(&mut device), FRAMES);
}

#[test]
fn exported_frames_outlive_their_exporter() {
    let mut device = device();
    let (a, b) = (device.join().unwrap(), device.join().unwrap());
    let extents = claim(&mut device, a, 3).unwrap();
    let Ok(Answer::Token(token)) = device.serve(a, Request::Export { extents: extents.clone() })
    else {
        panic!("not exported");
    };
    // They are the export's now, no more the client's own.
    let back = device.serve(a, Request::GiveBack { extents: extents.clone() });
    assert_eq!(back, Err(Violation::NotItsFrames));
    assert_eq!(device.serve(b, Request::Import { token }), Ok(Answer::Imported { extents }));
    device.leave(a);
    assert_eq!(free_frames(&mut device), FRAMES - 3);
    assert_eq!(device.serve(b, Request::LetGo { token }), Ok(Answer::LetGo { still_held: false }));
    assert_eq!(free_frames(&mut device), FRAMES);
}

#[test]
fn managed_memory_of_two_clients_is_apart_even_at_the_same_address() {
    let mut device = device();
    let (a, b) = (device.join().unwrap(), device.join().unwrap());
    let range = PageRange::new(64 * FRAME, 12 * FRAME, (64 * FRAME, 76 * FRAME));
    let resident = |device: &mut SharedDevice, client| match device
        .serve(client, Request::ResidentBytes { range })
    {
        Ok(Answer::Number(bytes)) => bytes / FRAME,
        other => panic!("{other:?}"),
    };
    device.serve(a, Request::Touch { range, written: true, now: 0 }).unwrap();
    assert_eq!((resident(&mut device, a), resident(&mut device, b)), (12, 0));
    device.serve(b, Request::Touch { range, written: true, now: 0 }).unwrap();
    assert_eq!((resident(&mut device, a), resident(&mut device, b)), (4, 12));
    device.leave(b);
    assert_eq!((resident(&mut device, a), free_frames(&mut device)), (4, 12));
    device.leave(a);
    assert_eq!(free_frames(&mut device), FRAMES);
}

/// Found by fuzzing: both ends lie in the page of the range, the wrong way round.
#[test]
fn an_allocation_that_ends_before_it_begins_is_refused() {
    let mut device = device();
    let liar = device.join().unwrap();
    let words = [4096_u64, 4096, 4196, 4097];
    let range: PageRange = postcard::from_bytes(&postcard::to_stdvec(&words).unwrap()).unwrap();
    assert_eq!(device.serve(liar, Request::Forget { range }), Err(Violation::ImpossibleRange));
}

#[test]
fn no_message_breaks_the_board_and_everything_comes_back() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut device = device();
    let mut clients = vec![device.join().unwrap()];
    let number = |rng: &mut fastrand::Rng| match rng.u32(0..4) {
        0 => rng.u64(..),
        1 => rng.u64(0..64) * FRAME,
        2 => rng.u64(0..1 << 48),
        _ => rng.u64(0..FRAMES) * FRAME,
    };
    for _ in 0..20_000 {
        let client = clients[rng.usize(0..clients.len())];
        let extent = Extent { start: number(&mut rng), bytes: number(&mut rng) };
        let (now, start) = (number(&mut rng), number(&mut rng));
        // Through bytes, because only so can a range be made that makes no sense.
        let words = [start, number(&mut rng), start, number(&mut rng)];
        let range: PageRange = postcard::from_bytes(&postcard::to_stdvec(&words).unwrap()).unwrap();
        let request = match rng.u32(0..14) {
            0 => Request::Claim { bytes: number(&mut rng), now },
            1 => Request::GiveBack { extents: vec![extent] },
            2 => Request::Export { extents: vec![extent] },
            3 => Request::Import { token: number(&mut rng) },
            4 => Request::LetGo { token: number(&mut rng) },
            5 => Request::Transfer { direction: Direction::ToHost, bytes: now, ready: start },
            6 => Request::Touch { range, written: rng.bool(), now },
            7 => Request::PrefetchToDevice { range, now },
            8 => Request::PrefetchToHost { range, now },
            9 => Request::Populate { range, now },
            10 => Request::Forget { range },
            11 => Request::ResidentBytes { range },
            12 => Request::GiveEverythingBack,
            _ => Request::FreeBytes,
        };
        if device.serve(client, request).is_err() || rng.u32(0..50) == 0 {
            device.leave(client);
            clients.retain(|other| *other != client);
        }
        if clients.is_empty() || rng.u32(0..20) == 0 {
            clients.push(device.join().unwrap());
        }
    }
    clients.iter().for_each(|client| device.leave(*client));
    assert_eq!(free_frames(&mut device), FRAMES, "seed {seed}");
}

#[test]
fn a_client_cannot_book_the_link_for_later() {
    let mut device = device();
    let (a, b) = (device.join().unwrap(), device.join().unwrap());
    let transfer = |ready| Request::Transfer { direction: Direction::ToDevice, bytes: 1, ready };
    for _ in 0..100 {
        device.serve(a, transfer(u64::MAX / 8)).unwrap();
    }
    let Ok(Answer::Interval(interval)) = device.serve(b, transfer(0)) else { panic!("refused") };
    assert!(interval.end <= device.clock.now_ns() + MOST_AHEAD_NS + 1_000, "{interval:?}");
}
