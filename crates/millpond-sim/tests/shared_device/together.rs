//! What processes share while all live.

use crate::meeting::{Meeting, wait_until};

const MIB: u64 = 1 << 20;

#[test]
fn managed_memory_of_one_process_evicts_the_others() {
    let meeting = Meeting::new("capacity=67108864");
    let (mut a, mut b) = (meeting.join(), meeting.join());
    let size = 48 * MIB;
    let (of_a, of_b) =
        (a.ask_number(&format!("managed {size}")), b.ask_number(&format!("managed {size}")));
    a.ask(&format!("touch {of_a} {size}"));
    assert_eq!(a.ask_number(&format!("resident {of_a} {size}")), size);
    b.ask(&format!("touch {of_b} {size}"));
    assert_eq!(b.ask_number(&format!("resident {of_b} {size}")), size);
    assert_eq!(a.ask_number(&format!("resident {of_a} {size}")), 16 * MIB);
    // Claims evict too, whosever it is: first A's, which were used longest ago.
    a.ask_number(&format!("alloc {}", 32 * MIB));
    assert_eq!(a.ask_number(&format!("resident {of_a} {size}")), 0);
    assert_eq!(b.ask_number(&format!("resident {of_b} {size}")), 32 * MIB);
    a.kill();
    wait_until("the claim is back", || b.ask_number("free-bytes") == 32 * MIB);
    drop(b);
    meeting.end();
}

#[test]
fn two_processes_that_copy_at_once_share_one_link() {
    // A copy of 1 MiB takes 10.5 ms there, so that the processes have time to keep up.
    let meeting = Meeting::new("capacity=67108864,speed=1000,link=100MB/s");
    let (mut a, mut b) = (meeting.join(), meeting.join());
    let (count, copy_ns) = (10, MIB * 1_000_000_000 / 100_000_000);
    let mut margin_ns = 50_000_000;
    let alone_ns = loop {
        let start = a.ask_number("now") + margin_ns;
        match a.ask(&format!("copies {start} {count} {MIB}")).parse::<u64>() {
            Ok(took) => break took,
            Err(_) => margin_ns *= 2,
        }
    };
    assert!(alone_ns >= count * copy_ns && alone_ns < count * copy_ns * 11 / 10, "{alone_ns}");
    let together_ns = loop {
        let start = a.ask_number("now") + margin_ns;
        let line = format!("copies {start} {count} {MIB}");
        a.tell(&line);
        b.tell(&line);
        let (of_a, of_b) = (a.answer().unwrap(), b.answer().unwrap());
        match (of_a.parse::<u64>(), of_b.parse::<u64>()) {
            (Ok(of_a), Ok(of_b)) => break of_a.max(of_b),
            _ => margin_ns *= 2,
        }
    };
    // The link carries one after the other, in whatever order. They began within a call's time of each other.
    let (least, most) = (2 * count * copy_ns - MIB, 2 * count * copy_ns * 11 / 10);
    assert!((least..most).contains(&together_ns), "{together_ns} not in {least}..{most}");
    drop((a, b));
    meeting.end();
}

#[test]
fn a_process_that_lost_its_device_to_a_wrong_address_can_begin_anew_and_others_go_on() {
    let meeting = Meeting::new("capacity=67108864");
    let (mut a, mut b) = (meeting.join(), meeting.join());
    let (of_a, of_b) = (a.ask_number("alloc 8388608"), b.ask_number("alloc 8388608"));
    let managed = a.ask_number("managed 8388608");
    a.ask(&format!("touch {managed} 8388608"));
    b.ask(&format!("write {of_b} 3 8388608"));
    assert!(a.ask("stray").contains("illegal address"));
    assert!(a.ask(&format!("free {of_a}")).contains("illegal address"));
    assert_eq!(b.ask_number("free-bytes"), 64 * MIB - 3 * 8 * MIB);
    assert_eq!(a.ask("reset"), "done");
    assert_eq!(b.ask_number("free-bytes"), 64 * MIB - 8 * MIB);
    assert_eq!(b.ask(&format!("check {of_b} 3 8388608")), "same");
    let again = a.ask_number(&format!("alloc {}", 56 * MIB));
    assert_eq!(a.ask(&format!("check-zero {again} {}", 56 * MIB)), "zero");
    drop((a, b));
    meeting.end();
}

#[test]
fn exported_memory_is_the_same_bytes_and_lasts_until_the_last_process_lets_go() {
    let meeting = Meeting::new("capacity=67108864");
    let (mut a, mut b, mut c) = (meeting.join(), meeting.join(), meeting.join());
    let size = 6 * MIB;
    let handle = a.ask_number(&format!("create {size}"));
    let at = a.ask_number(&format!("map {handle} {size}"));
    a.ask(&format!("write {at} 11 {size}"));
    let token = a.ask_number(&format!("export {handle}"));
    assert_eq!(a.ask_number(&format!("export {handle}")), token);
    assert!(b.ask("import 12345").contains("invalid handle"));

    let imported = b.ask_number(&format!("import {token}"));
    let there = b.ask_number(&format!("map {imported} {size}"));
    assert_eq!(b.ask(&format!("check {there} 11 {size}")), "same");
    b.ask(&format!("write {there} 12 {size}"));
    assert_eq!(a.ask(&format!("check {at} 12 {size}")), "same");
    assert_eq!(c.ask_number("free-bytes"), 64 * MIB - size);

    // The exporter dies: who imported still has it, and can pass it on.
    a.kill();
    assert_eq!(b.ask(&format!("check {there} 12 {size}")), "same");
    assert_eq!(b.ask(&format!("release {imported}")), "done");
    let passed_on = c.ask_number(&format!("import {token}"));
    assert_eq!(b.ask(&format!("unmap {there} {size}")), "done");
    assert_eq!(b.ask_number("free-bytes"), 64 * MIB - size);
    let last = c.ask_number(&format!("map {passed_on} {size}"));
    assert_eq!(c.ask(&format!("check {last} 12 {size}")), "same");
    c.kill();
    wait_until("the last is gone", || b.ask_number("free-bytes") == 64 * MIB);
    assert!(b.ask(&format!("import {token}")).contains("invalid handle"));
    drop(b);
    meeting.end();
}
