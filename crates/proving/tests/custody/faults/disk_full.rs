//! The disk is full: the spawn is refused, no worker runs unrecorded, and spawns work again once there is room.

use std::fs;

use snakepit_proving::private_mount::{self, mount_tmpfs, with_private_mounts};
use snakepit_proving::{Case, HostReply};

super::each_tier!(while_the_run_is_open, before_the_run_is_opened);

/// A page for each directory and file that custody needs, and a few more.
const SMALL: &str = "size=64k,mode=755";

fn while_the_run_is_open(case: &mut Case) {
    if let Some(why) = private_mount::refusal() {
        return super::unproven(&why);
    }
    with_private_mounts(|| {
        let home = case.dir().join("home");
        mount_tmpfs(&home, SMALL);
        let mut host = case.host_with(1, "stand");
        let filler = home.join("filler");
        fill(&filler);
        let mut running = 1;
        // The ledger's existing page holds eight records.
        let refusal = loop {
            match host.ask("spawn 1 stand") {
                HostReply::Ok(told) => running += host.announced(&told).len(),
                HostReply::No(_, text) => break text,
            }
            assert!(running < 20, "the spawn is never refused");
        };
        case.note(&host);
        assert!(refusal.to_lowercase().contains("space"), "the error says what is wrong: {refusal}");
        let found = case.tagged_processes();
        assert_eq!(found.len(), running, "nothing runs unrecorded: {found:#?}");
        super::read_only_state_dir::must_heal(case, &mut host, || {
            fs::remove_file(&filler).expect("make room");
        });
        case.end_allowed_survivors();
        case.cleanup().expect("the reaper");
        assert!(case.run_dirs().is_empty());
    });
}

fn before_the_run_is_opened(case: &mut Case) {
    if let Some(why) = private_mount::refusal() {
        return super::unproven(&why);
    }
    with_private_mounts(|| {
        let home = case.dir().join("home");
        mount_tmpfs(&home, SMALL);
        fill(&home.join("filler"));
        let mut host = case.bare_host();
        let reply = host.try_open(case.tier, &case.state(), &case.options);
        let (_, text) = reply.expect_refusal("open on a full disk");
        assert!(text.to_lowercase().contains("space"), "the error says what is wrong: {text}");
        host.say("return");
        host.wait();
        case.verdict();
    });
}

fn fill(path: &std::path::Path) {
    let mut file = fs::File::create(path).expect("the filler");
    while std::io::Write::write(&mut file, &[1; 512]).is_ok_and(|count| count > 0) {}
}
