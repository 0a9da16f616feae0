//! Who allocated: call stacks, each kept once.
//!
//! Stacks form a tree: each is another one and a frame further out, so those that begin alike share what they have in common. An event keeps
//! the number of its stack, whatever its depth.
//!
//! ```
//! use millpond::trace::{Frame, StackBuilder};
//!
//! let mut builder = StackBuilder::default();
//! let stack = builder.add([
//!     Frame { file: "/site-packages/torch/nn/modules/linear.py", line: 134, name: "forward" },
//!     Frame { file: "/job/model.py", line: 12, name: "attend" },
//!     Frame { file: "/job/train.py", line: 70, name: "main" },
//! ]);
//! let stacks = builder.finish();
//! assert_eq!(stacks.frames(stack).count(), 3);
//! let owner = stacks.owners().of(stack).unwrap();
//! assert_eq!(owner.to_string(), "/job/model.py:12 attend");
//! ```

use std::collections::HashMap;

use super::growing_bytes;
use super::interned::Interned;

/// A call stack, by its number in [`Stacks`]. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl StackId {
    /// Nothing is known of who called.
    pub const NONE: StackId = StackId(0);

    pub(super) fn new(number: u32) -> StackId {
        StackId(number)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// Its place in the tree; none for the root, which is no stack at all.
    fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

/// One line of a program that was being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame<'a> {
    /// The path of its source, or empty where it was not recorded.
    pub file: &'a str,
    /// The line, from 1; 0 where it was not recorded.
    pub line: u32,
    /// The function's name, or empty.
    pub name: &'a str,
}

impl Frame<'_> {
    /// Whether it is a line of the program itself: neither inside PyTorch nor in C++, nor in code that was generated.
    pub fn is_of_program(&self) -> bool {
        const COMPILED: [&str; 10] =
            ["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hpp", "so", "pyx"];
        const TYPED: [&str; 3] = ["<stdin>", "<string>", "<ipython"];
        let file = self.file;
        let is_generated = file.starts_with('<') && !TYPED.iter().any(|own| file.starts_with(own));
        let is_compiled = file.rsplit_once('.').is_some_and(|(_, end)| COMPILED.contains(&end));
        let is_of_torch = ["/torch/", "\\torch\\"].iter().any(|part| file.contains(part));
        !(file.is_empty() || file == "??" || is_generated || is_compiled || is_of_torch)
    }

    /// Without the folders: `model.py:12 attend`.
    pub fn short(&self) -> Frame<'_> {
        Frame { file: self.file.rsplit(['/', '\\']).next().unwrap_or_default(), ..*self }
    }
}

impl std::fmt::Display for Frame<'_> {
    /// `/job/model.py:12 attend`, with question marks for what is not known.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = |text| if str::is_empty(text) { "??" } else { text };
        write!(f, "{}", known(self.file))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, " {}", known(self.name))
    }
}

/// The call stacks of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    texts: Vec<Box<str>>,
    frames: Vec<RawFrame>,
    /// What [`StackId`] counts, from 1. `nodes[i].inner ≤ i`.
    nodes: Vec<Node>,
}

/// A frame whose texts are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RawFrame {
    pub(super) file: u32,
    pub(super) name: u32,
    pub(super) line: u32,
}

impl RawFrame {
    /// For a text that is not known.
    pub(super) const NO_TEXT: u32 = u32::MAX;
    pub(super) const UNKNOWN: RawFrame =
        RawFrame { file: RawFrame::NO_TEXT, name: RawFrame::NO_TEXT, line: 0 };
}

/// A stack: another one, and a frame further out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) inner: StackId,
    pub(super) frame: u32,
}

/// Frames of a stack that are kept, from the innermost on: so deep that only runaway recursion is cut, and so few that a file of many stacks
/// cannot unfold to far more than it has.
pub(super) const DEEPEST: u16 = 1024;

impl Stacks {
    pub(super) const fn new() -> Stacks {
        Stacks { texts: Vec::new(), frames: Vec::new(), nodes: Vec::new() }
    }

    /// Of texts, frames and nodes that refer to each other's numbers.
    pub(super) fn of(texts: Vec<Box<str>>, frames: Vec<RawFrame>, nodes: Vec<Node>) -> Stacks {
        Stacks { texts, frames, nodes }
    }

    /// Whether nothing is known of who called.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The frames of a stack, from the outermost in.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Frame<'_>> {
        self.frame_numbers(stack).map(|number| self.frame(number))
    }

    /// The numbers of a stack's frames, from the outermost in.
    pub(super) fn frame_numbers(&self, stack: StackId) -> impl Iterator<Item = u32> {
        let node = |stack: StackId| self.nodes.get(stack.index()?).copied();
        std::iter::successors(node(stack), move |outer| node(outer.inner)).map(|node| node.frame)
    }

    pub(super) fn frame(&self, number: u32) -> Frame<'_> {
        let RawFrame { file, name, line } =
            self.frames.get(number as usize).copied().unwrap_or(RawFrame::UNKNOWN);
        let text = |number: u32| self.texts.get(number as usize).map_or("", |text| &**text);
        Frame { file: text(file), line, name: text(name) }
    }

    /// Which frame of each stack is to be named: the innermost of the program itself, or else the innermost of all.
    pub fn owners(&self) -> Owners<'_> {
        let is_of_program: Vec<bool> =
            (0..self.frames.len() as u32).map(|n| self.frame(n).is_of_program()).collect();
        let is_own = |frame: u32| is_of_program.get(frame as usize).copied().unwrap_or(false);
        let mut frames: Vec<u32> = Vec::with_capacity(self.nodes.len());
        // What is further in comes first, so one pass does, however deep they are.
        for node in &self.nodes {
            let inner = node.inner.index().and_then(|index| frames.get(index)).copied();
            frames.push(match inner {
                Some(inner) if is_own(inner) || !is_own(node.frame) => inner,
                _ => node.frame,
            });
        }
        Owners { stacks: self, frames }
    }

    pub(super) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    pub(super) fn raw_frames(&self) -> &[RawFrame] {
        &self.frames
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn push_text(&mut self, text: String) {
        self.texts.push(text.into());
    }

    pub(super) fn push_frame(&mut self, frame: RawFrame) {
        self.frames.push(frame);
    }

    pub(super) fn push_node(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Without the texts' own bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        growing_bytes(&self.texts) + growing_bytes(&self.frames) + growing_bytes(&self.nodes)
    }
}

/// For each stack the frame that is to be named.
#[derive(Clone, Debug)]
pub struct Owners<'a> {
    stacks: &'a Stacks,
    frames: Vec<u32>,
}

impl<'a> Owners<'a> {
    /// The frame that is to be named for a stack, if anything is known of it.
    pub fn of(&self, stack: StackId) -> Option<Frame<'a>> {
        let number = self.frames.get(stack.index()?)?;
        Some(self.stacks.frame(*number))
    }
}

/// The tree of stacks while it grows.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Interned<Node>,
    depths: Vec<u16>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { nodes: Interned::new(), depths: Vec::new() }
    }

    /// A stack with one frame more, further out: itself if it is too deep. `None`: there are more than can be counted.
    pub(super) fn push(&mut self, inner: StackId, frame: u32) -> Option<StackId> {
        let depth = inner.index().map_or(0, |index| self.depths[index]);
        if depth == DEEPEST {
            return Some(inner);
        }
        let number = self.nodes.number(Node { inner, frame })?;
        if number as usize == self.depths.len() {
            self.depths.push(depth + 1);
        }
        number.checked_add(1).map(StackId)
    }

    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes.into_values()
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.nodes.held_bytes() + growing_bytes(&self.depths)
    }
}

/// Makes [`Stacks`].
#[derive(Debug)]
pub struct StackBuilder {
    texts: HashMap<Box<str>, u32>,
    frames: Interned<RawFrame>,
    tree: Tree,
}

impl Default for StackBuilder {
    fn default() -> StackBuilder {
        StackBuilder { texts: HashMap::new(), frames: Interned::new(), tree: Tree::new() }
    }
}

impl StackBuilder {
    /// A stack of these frames, from the innermost out, as PyTorch lists them. What is further out than 1024 frames is left out.
    ///
    /// # Panics
    /// There are 2³² of anything.
    pub fn add<'f>(&mut self, frames: impl IntoIterator<Item = Frame<'f>>) -> StackId {
        frames.into_iter().fold(StackId::NONE, |inner, frame| {
            let raw = RawFrame {
                file: self.text(frame.file),
                name: self.text(frame.name),
                line: frame.line,
            };
            let number = self.frames.number(raw);
            number.and_then(|number| self.tree.push(inner, number)).expect("32 bits are enough")
        })
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("32 bits are enough");
        self.texts.insert(text.into(), number);
        number
    }

    /// All that were added.
    pub fn finish(self) -> Stacks {
        let mut texts: Vec<(Box<str>, u32)> = self.texts.into_iter().collect();
        texts.sort_unstable_by_key(|(_, number)| *number);
        let texts = texts.into_iter().map(|(text, _)| text).collect();
        Stacks::of(texts, self.frames.into_values(), self.tree.into_nodes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, line: u32) -> Frame<'_> {
        Frame { file, line, name: "f" }
    }

    #[test]
    fn the_innermost_line_of_the_program_is_named() {
        const TORCH: &str = "/lib/site-packages/torch/nn/functional.py";
        let mut builder = StackBuilder::default();
        let cases = [
            (
                vec![frame("??", 0), frame(TORCH, 1), frame("/job/a.py", 2), frame("/job/b.py", 3)],
                2,
            ),
            (vec![frame("/job/a.py", 5), frame(TORCH, 1), frame("/job/b.py", 3)], 5),
            (vec![frame("CUDACachingAllocator.cpp", 7), frame(TORCH, 1)], 7),
            (vec![frame("<eval_with_key>.3", 8), frame("<stdin>", 9)], 9),
        ];
        let ids: Vec<_> = cases.iter().map(|(frames, _)| builder.add(frames.clone())).collect();
        assert_eq!(builder.add(cases[0].0.clone()), ids[0], "the same stack has the same number");
        assert_eq!(builder.add([]), StackId::NONE);
        let stacks = builder.finish();
        let owners = stacks.owners();
        for (id, (frames, line)) in ids.into_iter().zip(&cases) {
            assert_eq!(owners.of(id).unwrap().line, *line);
            let mut back: Vec<_> = stacks.frames(id).collect();
            back.reverse();
            assert_eq!(back, *frames);
        }
        assert_eq!((owners.of(StackId::NONE), owners.of(StackId(9999))), (None, None));
        assert_eq!(stacks.frames(StackId(9999)).count(), 0);
    }

    #[test]
    fn frames_are_shown_as_far_as_they_are_known() {
        let frame = Frame { file: "/job/model.py", line: 12, name: "attend" };
        assert_eq!(frame.to_string(), "/job/model.py:12 attend");
        assert_eq!(frame.short().to_string(), "model.py:12 attend");
        assert_eq!(Frame { file: "", line: 0, name: "" }.to_string(), "?? ??");
    }

    #[test]
    fn a_stack_is_cut_where_it_is_too_deep() {
        let mut builder = StackBuilder::default();
        let stack = builder.add((1..=5000).map(|line| frame("/job/a.py", line)));
        let stacks = builder.finish();
        assert_eq!(stacks.frames(stack).count(), usize::from(DEEPEST));
        assert_eq!(stacks.owners().of(stack).unwrap().line, 1);
    }
}
