use snakepit_custody::*;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let c = match std::env::args().nth(1).as_deref() {
        Some("namespace") => Containment::Namespace,
        Some("shim") => Containment::Shim,
        Some("group") => Containment::Group,
        _ => Containment::Auto,
    };
    let run =
        Run::open(Config { state_dir: Some("/tmp/exp/state".into()), containment: c, ..Config::default() })?;
    let events = run.events().unwrap();
    println!("{run:?} cgroup {:?}", run.cgroup());
    let w = run.spawn(Command::new("sh").args(["-c", "sleep 1000 & setsid sleep 1001 & echo hi $$ $SNAKEPIT_WORKER_ID; ps -o pid,ppid,comm | head -5; exit 3"]))?;
    println!("{:?}", w.wait());
    for bad in ["/nonexistent", "nope-nope", "/etc/passwd", "/"] {
        let e = run.spawn(Command::new(bad)).unwrap_err();
        println!("{} {:?}", e, e.shell_status());
    }
    let n = 500;
    let t = std::time::Instant::now();
    for _ in 0..n {
        run.spawn(Command::new("/bin/true"))?.wait();
    }
    println!("spawn+wait {:?}", t.elapsed() / n);
    let mut lat = vec![];
    for _ in 0..n {
        let t = std::time::Instant::now();
        let w = run.spawn(Command::new("/bin/true"))?;
        lat.push(t.elapsed());
        w.wait();
    }
    lat.sort();
    println!("spawn p50 {:?} p90 {:?}", lat[n as usize / 2], lat[n as usize * 9 / 10]);
    let mut lat = vec![];
    for _ in 0..n {
        let t = std::time::Instant::now();
        let mut c = std::process::Command::new("/bin/true").spawn()?;
        lat.push(t.elapsed());
        c.wait()?;
    }
    lat.sort();
    println!("posix_spawn p50 {:?} p90 {:?}", lat[n as usize / 2], lat[n as usize * 9 / 10]);
    for _ in 0..100 {
        run.spawn(Command::new("sleep").arg("1000"))?;
    }
    println!(
        "{:?}",
        ledger(std::path::Path::new("/tmp/exp/state"))?
            .iter()
            .map(|r| (r.life, r.processes.len(), r.trouble.clone()))
            .collect::<Vec<_>>()
    );
    if std::env::args().nth(2).is_some() {
        println!("{}", std::process::id());
        std::thread::park();
    }
    println!("{:?}", run.stop());
    println!("events {}", events.drain().len());
    Ok(())
}
