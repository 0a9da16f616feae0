//! Live and reserved bytes over events, and where blocks lay.

use millpond::replay::{MemoryMap, Recorder, Span};
use serde::Serialize;

/// Live and reserved bytes over events, per allocator, and where blocks lay.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    /// What is drawn.
    title: String,
    /// How many events there were.
    events: u64,
    /// What the program held: the same with every allocator that came to its end.
    live: Series,
    /// What each allocator had reserved.
    reserved: Vec<Series>,
    /// Where each allocator put blocks, in the same order. May be empty.
    maps: Vec<Map>,
}

/// What was recorded of an allocator.
pub(crate) struct Watched<'a> {
    pub(crate) name: &'a str,
    pub(crate) recorder: &'a Recorder,
    /// Why it stopped before the end.
    pub(crate) stopped: Option<&'a str>,
}

impl Chart {
    /// The same events, done by several allocators; at least one.
    pub(crate) fn of(title: &str, events: u64, watched: &[Watched<'_>]) -> Chart {
        let furthest = watched.iter().max_by_key(|one| one.recorder.timeline().last_event());
        Chart {
            title: title.to_owned(),
            events,
            live: Series::live(furthest.expect("there is one").recorder),
            reserved: watched.iter().map(Series::reserved).collect(),
            maps: watched.iter().map(|one| Map::of(one.recorder.memory_map())).collect(),
        }
    }
}

/// Something in bytes over events.
#[derive(Debug, Serialize)]
struct Series {
    /// Of which allocator.
    name: String,
    /// How many events a bucket stands for.
    width_events: u64,
    /// The least in each bucket, as differences to the bucket before.
    least: Vec<i64>,
    /// The most in each bucket, as differences to the least.
    above: Vec<u64>,
    /// The most of all.
    peak_bytes: u64,
    /// When that was first reached.
    peak_event: u64,
    /// The last event it knows of; less than the chart's when the allocator stopped there.
    last_event: u64,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

impl Series {
    /// What was live.
    fn live(recorder: &Recorder) -> Series {
        let timeline = recorder.timeline();
        let peak = timeline.peak_live();
        let spans = timeline.buckets().iter().map(|bucket| bucket.live);
        Series { peak_bytes: peak.bytes, peak_event: peak.event, ..Series::of(recorder, spans) }
    }

    /// What an allocator had reserved.
    fn reserved(watched: &Watched<'_>) -> Series {
        let timeline = watched.recorder.timeline();
        let peak = timeline.peak_reserved();
        let spans = timeline.buckets().iter().map(|bucket| bucket.reserved);
        Series {
            name: watched.name.to_owned(),
            peak_bytes: peak.bytes,
            peak_event: peak.event,
            stopped: watched.stopped.map(str::to_owned),
            ..Series::of(watched.recorder, spans)
        }
    }

    fn of(recorder: &Recorder, spans: impl Iterator<Item = Span> + Clone) -> Series {
        let mut before = 0;
        let difference = |span: Span| {
            let least = i64::try_from(span.least).expect("no device has so many bytes");
            least - std::mem::replace(&mut before, least)
        };
        Series {
            name: "live".to_owned(),
            width_events: recorder.timeline().width_events(),
            least: spans.clone().map(difference).collect(),
            above: spans.map(|span| span.most - span.least).collect(),
            peak_bytes: 0,
            peak_event: 0,
            last_event: recorder.timeline().last_event(),
            stopped: None,
        }
    }
}

/// Where an allocator put blocks. Addresses at which there never was a block are left out, so that what is used lies side by side.
#[derive(Debug, Default, Serialize)]
struct Map {
    /// Address and bytes of each stretch in use; the addresses are counted from the first.
    stretches: Vec<[u64; 2]>,
    /// The first address of all, for people.
    base: String,
    /// Gaps between stretches are at least this.
    granule_bytes: u64,
    /// Of each block: where it begins in the stretches side by side.
    offset: Vec<u64>,
    /// Its bytes.
    bytes: Vec<u64>,
    /// The event that allocated it, as the difference to the block before.
    from: Vec<u64>,
    /// How many events later it was freed.
    lasts: Vec<u64>,
    /// How many blocks there were in all.
    blocks: u64,
    /// The part of all live bytes, over all events, that the blocks here are.
    share: f64,
}

impl Map {
    /// Lays the stretches side by side.
    fn of(map: &MemoryMap) -> Map {
        let stretches: Vec<_> = map.stretches().iter().collect();
        let base = stretches.first().map_or(0, |first| first.address);
        let mut begins = Vec::with_capacity(stretches.len());
        let mut end = 0;
        for stretch in &stretches {
            begins.push(end);
            end += stretch.bytes;
        }
        let mut drawn = Map {
            stretches: stretches.iter().map(|one| [one.address - base, one.bytes]).collect(),
            base: format!("{base:#x}"),
            granule_bytes: map.stretches().granule_bytes(),
            blocks: map.blocks(),
            share: map.share_kept(),
            ..Map::default()
        };
        let mut before = 0;
        for placement in map.placements() {
            let after = stretches.partition_point(|one| one.address <= placement.address);
            let stretch = after.checked_sub(1).expect("a block lies in a stretch");
            drawn.offset.push(begins[stretch] + placement.address - stretches[stretch].address);
            drawn.bytes.push(placement.bytes);
            drawn
                .from
                .push(placement.from_event - std::mem::replace(&mut before, placement.from_event));
            drawn.lasts.push(placement.to_event - placement.from_event);
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use millpond::driver::DevicePtr;

    use super::*;

    #[test]
    fn stretches_lie_side_by_side() {
        const PAGE: u64 = 2 << 20;
        let mut recorder = Recorder::default();
        recorder.allocated(0, DevicePtr(100 * PAGE), 2 * PAGE, 0);
        recorder.allocated(1, DevicePtr(900 * PAGE + 512), 1000, 3);
        recorder.step(3, 2 * PAGE + 1000, 3 * PAGE);
        recorder.freed(0, 5);
        recorder.step(5, 1000, 3 * PAGE);
        recorder.end(8);
        let map = Map::of(recorder.memory_map());
        assert_eq!(map.stretches, [[0, 2 * PAGE], [800 * PAGE, PAGE]]);
        assert_eq!((map.offset, map.bytes), (vec![0, 2 * PAGE + 512], vec![2 * PAGE, 1000]));
        assert_eq!((map.from, map.lasts), (vec![0, 3], vec![5, 5]));
        let live = Series::live(&recorder);
        assert_eq!((live.peak_bytes, live.peak_event, live.last_event), (2 * PAGE + 1000, 3, 7));
        let most = 2 * PAGE as i64 + 1000;
        assert_eq!(live.least, [0, 0, 0, most, 0, 1000 - most, 0, 0]);
        assert_eq!(live.above, [0; 8]);
    }
}
