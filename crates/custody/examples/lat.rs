use snakepit_custody::*;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let n: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(300);
    let run = Run::open(Config { state_dir: Some("/tmp/exp/state".into()), containment: Containment::Shim, ..Config::default() })?;
    for round in 0..3 {
    let (mut a, mut b, mut w) = (vec![], vec![], vec![]);
    for _ in 0..n {
        let t = std::time::Instant::now(); let x = run.spawn(Command::new("/bin/true"))?; a.push(t.elapsed()); x.wait(); w.push(t.elapsed());
        let t = std::time::Instant::now(); let mut c = std::process::Command::new("/bin/true").spawn()?; b.push(t.elapsed()); c.wait()?;
    }
    a.sort(); b.sort(); w.sort();
    println!("{round} ours p10 {:?} p50 {:?}  posix p10 {:?} p50 {:?} ratio {:.2}; spawn+wait p50 {:?}", a[n/10], a[n/2], b[n/10], b[n/2], a[n/2].as_secs_f64()/b[n/2].as_secs_f64(), w[n/2]);
    }
    Ok(())
}
