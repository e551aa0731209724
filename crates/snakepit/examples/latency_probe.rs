use snakepit::{Pool, PythonWorker, Snakepit, args, value::Blob};
use std::time::Instant;
fn main() {
    let flavor = std::env::args().nth(1).unwrap_or_default();
    let n: usize = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(20000);
    let rt = if flavor == "ct" { tokio::runtime::Builder::new_current_thread().enable_all().build() } else { tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() }.unwrap();
    rt.block_on(async move {
        let w = PythonWorker::new("/work/main/crates/proving/src/bin/bench_calls/python/worker.py").interpreter("/work/target-bench/bench-venv/bin/python").env("SNAKEPIT_CODEC", "msgspec");
        let pit = Snakepit::builder().pool(Pool::python(w).workers(std::env::args().nth(4).and_then(|k| k.parse().ok()).unwrap_or(1)).queue_limit(100000)).start().await.unwrap();
        let p2 = pit.clone();
        if let Some(k) = std::env::args().nth(3).and_then(|k| k.parse::<usize>().ok()) {
            for _ in 0..5 {
            let t = Instant::now();
            let tasks: Vec<_> = (0..k).map(|_| { let p = pit.clone(); tokio::spawn(async move {
                let data = Blob::from(vec![b'x'; 64]);
                for _ in 0..n / k { let _: Blob = p.call("echo", args! { data: data }).await.unwrap(); }
            })}).collect();
            for t in tasks { t.await.unwrap(); }
            println!("{:.0}/s", n as f64 / t.elapsed().as_secs_f64());
            }
        } else {
        tokio::spawn(async move {
            let data = Blob::from(vec![b'x'; 64]);
            let mut ts = Vec::with_capacity(n);
            for _ in 0..n {
                let t = Instant::now();
                let _: Blob = p2.call("echo", args! { data: data }).await.unwrap();
                ts.push(t.elapsed().as_nanos() as f64 / 1000.0);
            }
            ts.sort_by(f64::total_cmp);
            println!("p50 {:.1} p90 {:.1} p99 {:.1}", ts[n / 2], ts[n * 9 / 10], ts[n * 99 / 100]);
        }).await.unwrap();
        }
        pit.stop().await;
    });
}
