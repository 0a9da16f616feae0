//! Several processes on one simulated GPU. Every process is real, and most of them die of SIGKILL.

mod death;
mod fork_process;
mod joining;
mod meeting;
mod player;
mod together;

/// What the other tests start as a process of its own. Does nothing when it is run by hand.
#[test]
#[ignore = "is a process of the other tests"]
fn play() {
    player::play();
}
