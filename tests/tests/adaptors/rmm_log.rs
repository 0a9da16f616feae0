//! RMM's log, read as its own tools do: by the names of the columns, pointers and streams in hexadecimal.

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) thread: u64,
    /// Since midnight.
    pub(crate) micros: u64,
    pub(crate) action: String,
    /// `(nil)` is 0.
    pub(crate) pointer: u64,
    pub(crate) size: usize,
    pub(crate) stream: u64,
}

/// Reads a whole log, which must be complete to its last letter.
pub(crate) fn read(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = text.lines();
    if lines.next() != Some("Thread,Time,Action,Pointer,Size,Stream") || !text.ends_with('\n') {
        return Err(format!("no header, or no end: {text:.100}"));
    }
    lines.map(|line| read_line(line).ok_or_else(|| format!("no line of a log: {line}"))).collect()
}

fn read_line(line: &str) -> Option<Line> {
    let [thread, time, action, pointer, size, stream] =
        line.split(',').collect::<Vec<_>>().try_into().ok()?;
    Some(Line {
        thread: thread.parse().ok()?,
        micros: read_time(time)?,
        action: ["allocate", "allocate failure", "free"]
            .contains(&action)
            .then(|| action.to_owned())?,
        pointer: if pointer == "(nil)" { 0 } else { hex(pointer)? },
        size: size.parse().ok()?,
        stream: hex(stream)?,
    })
}

fn read_time(time: &str) -> Option<u64> {
    let (clock, micros) = time.split_once('.').filter(|(_, micros)| micros.len() == 6)?;
    let [hours, minutes, seconds] = clock
        .split(':')
        .map(|part| part.parse::<u64>().ok().filter(|_| part.len() == 2))
        .collect::<Option<Vec<_>>>()?
        .try_into()
        .ok()?;
    let right = hours < 24 && minutes < 60 && seconds < 60;
    right.then_some(
        ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros.parse::<u64>().ok()?,
    )
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
