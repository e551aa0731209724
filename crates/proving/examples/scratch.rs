//! scratch
use snakepit::mailbox::{Mailbox, Receive, Send, SqliteMailbox};
use std::time::{Duration, Instant};
fn main() {
    let dir = tempfile::TempDir::new_in(std::env::args().nth(1).unwrap_or("/tmp".into())).unwrap();
    let n = 100_000usize;
    let body = vec![7u8; 100];
    // floor: same inserts, groups of 256
    for group in [1usize, 100, 256, 1024] {
        let path = dir.path().join(format!("floor{group}"));
        drop(SqliteMailbox::open(&path).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        let c = rusqlite::Connection::open(&path).unwrap();
        c.pragma_update(None, "synchronous", "FULL").unwrap();
        let total = if group == 1 { 2000 } else { n };
        let t = Instant::now();
        for _ in 0..total / group {
            c.execute_batch("BEGIN IMMEDIATE").unwrap();
            let mut s = c.prepare_cached("INSERT INTO message (queue, state, lease, deliveries, priority, sent, id, body) VALUES (1, 0, 0, 0, 0, ?1, ?2, ?3)").unwrap();
            for i in 0..group {
                s.execute(rusqlite::params![i as i64, [3u8; 16], body]).unwrap();
            }
            drop(s);
            c.execute_batch("COMMIT").unwrap();
        }
        println!("floor group {group}: {:.0}/s", total as f64 / t.elapsed().as_secs_f64());
    }
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for clients in [1usize, 100, 256, 1024] {
        let path = dir.path().join(format!("mail{clients}"));
        let m = SqliteMailbox::open(&path).unwrap();
        let total = if clients == 1 { 2000 } else { n };
        let t = Instant::now();
        rt.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..clients {
                let (m, body) = (m.clone(), body.clone());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..total / clients {
                        m.send(body.clone(), Send::new()).await.unwrap();
                    }
                }));
            }
            for t in tasks {
                t.await.unwrap();
            }
        });
        println!("send with {clients} clients: {:.0}/s", total as f64 / t.elapsed().as_secs_f64());
        let t = Instant::now();
        let got = rt.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..clients.min(64) {
                let m = m.clone();
                tasks.push(tokio::spawn(async move {
                    let mut got = 0;
                    loop {
                        let ms = m.receive(Receive::new().max_messages(10)).await.unwrap();
                        if ms.is_empty() {
                            break got;
                        }
                        got += ms.len();
                        let r: Vec<_> = ms.iter().map(|m| m.receipt.clone().unwrap()).collect();
                        m.ack_all(&r).await.unwrap();
                    }
                }));
            }
            let mut got = 0;
            for t in tasks {
                got += t.await.unwrap();
            }
            got
        });
        println!(
            "receive+ack by 10 with {} clients: {:.0}/s",
            clients.min(64),
            got as f64 / t.elapsed().as_secs_f64()
        );
    }
    {
        let path = dir.path().join("batch");
        let m = SqliteMailbox::open(&path).unwrap();
        let t = Instant::now();
        rt.block_on(async {
            for _ in 0..n / 100 {
                m.send_all((0..100).map(|_| (body.clone(), Send::new())).collect()).await.unwrap();
            }
        });
        println!("send_all of 100: {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    }
    let m = SqliteMailbox::open(dir.path().join("wake")).unwrap();
    let mut times = rt.block_on(async {
        let mut times = Vec::new();
        for _ in 0..300 {
            let r = m.clone();
            let w = tokio::spawn(async move {
                let ms = r.receive(Receive::new().wait(Duration::from_secs(5))).await.unwrap();
                (Instant::now(), ms)
            });
            tokio::time::sleep(Duration::from_millis(2)).await;
            let b = Instant::now();
            m.send(b"x".to_vec(), Send::new()).await.unwrap();
            let back = Instant::now();
            let (at, ms) = w.await.unwrap();
            times.push((at.duration_since(b), at.saturating_duration_since(back), back - b));
            ms[0].ack().await.unwrap();
        }
        times
    });
    times.sort();
    println!(
        "in-process wake p50 from call {:?} after return {:?}, send itself {:?}",
        times[150].0,
        {
            let mut v: Vec<_> = times.iter().map(|t| t.1).collect();
            v.sort();
            v[150]
        },
        {
            let mut v: Vec<_> = times.iter().map(|t| t.2).collect();
            v.sort();
            v[150]
        }
    );
}
