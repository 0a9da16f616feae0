//! Processes that die, and what they leave: nothing.

use std::time::Duration;

use crate::meeting::{Meeting, kill, wait_until};

const MIB: u64 = 1 << 20;

#[test]
fn what_a_killed_process_held_serves_another() {
    let meeting = Meeting::new("capacity=1073741824");
    let (mut a, mut b) = (meeting.join(), meeting.join());
    let share = 1024 * MIB * 60 / 100;
    a.ask_number(&format!("alloc {share}"));
    let refused = b.ask(&format!("alloc {share}"));
    assert!(refused.contains("out of memory"), "{refused}");
    assert_eq!(a.ask("storm 1"), "storm begins");
    std::thread::sleep(Duration::from_millis(20));
    a.kill();
    wait_until("the memory is back", || {
        let answer = b.ask(&format!("alloc {share}"));
        assert!(answer.contains("out of memory") || answer.parse::<u64>().is_ok(), "{answer}");
        answer.parse::<u64>().is_ok()
    });
    drop(b);
    meeting.end();
}

#[test]
fn fifty_deaths_at_any_moment_harm_no_survivor() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let total = 256 * MIB;
    let meeting = Meeting::new(&format!("capacity={total}"));
    let mut survivors = [meeting.join(), meeting.join()];
    let mut blocks = Vec::new();
    for (who, survivor) in survivors.iter_mut().enumerate() {
        for bytes in [3 * MIB, 64 << 10, 5 * MIB] {
            let (block, of) = (survivor.ask_number(&format!("alloc {bytes}")), rng.u64(..));
            survivor.ask(&format!("write {block} {of} {bytes}"));
            blocks.push((who, format!("check {block} {of} {bytes}")));
        }
    }
    for death in 0..50 {
        let mut victim = meeting.start("");
        match death % 5 {
            // Before, while or after it joins.
            0 => std::thread::sleep(Duration::from_micros(rng.u64(0..15_000))),
            _ => {
                assert_eq!(victim.answer().as_deref(), Some("joined"));
                victim.tell(&format!("storm {}", rng.u64(..)));
                std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
            }
        }
        let (who, check) = &blocks[rng.usize(0..blocks.len())];
        survivors[*who].tell(check);
        victim.kill();
        assert_eq!(survivors[*who].answer().as_deref(), Some("same"), "seed {seed}");
    }
    for (who, check) in &blocks {
        assert_eq!(survivors[*who].ask(check), "same", "seed {seed}");
    }
    let [mut first, second] = survivors;
    second.kill();
    for (_, check) in blocks.iter().filter(|(who, _)| *who == 0) {
        let block = check.split_whitespace().nth(1).unwrap();
        assert_eq!(first.ask(&format!("free {block}")), "done");
    }
    wait_until("everything is free", || first.ask_number("free-bytes") == total);
    // All of it can be had, and is clean.
    let all = first.ask_number(&format!("alloc {total}"));
    assert_eq!(first.ask(&format!("check-zero {all} {total}")), "zero", "seed {seed}");
    assert_eq!(meeting.brokers(), 1);
    drop(first);
    meeting.end();
}

#[test]
fn a_child_that_outlives_its_parent_keeps_nothing_of_the_device() {
    let meeting = Meeting::new("capacity=67108864");
    let (mut parent, mut other) = (meeting.join(), meeting.join());
    parent.ask_number("alloc 4194304");
    let child = parent.ask_number("fork-a-sleeper");
    parent.kill();
    wait_until("the memory is back", || other.ask_number("free-bytes") == 64 * MIB);
    kill(child as u32);
    drop(other);
    meeting.end();
}

#[test]
fn a_forked_child_has_no_device_and_its_parent_still_has_it() {
    let meeting = Meeting::new("capacity=67108864");
    let mut parent = meeting.join();
    let block = parent.ask_number("alloc 4194304");
    parent.ask(&format!("write {block} 5 4096"));
    let answer = parent.ask("fork");
    assert!(answer.contains("driver error 3") && answer.contains("forked"), "{answer}");
    assert_eq!(parent.ask(&format!("check {block} 5 4096")), "same");
    drop(parent);
    meeting.end();
}
