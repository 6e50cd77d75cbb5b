//! Three faulty clusters in a separate process: proxies before a server that can be switched to hang, to drip, or to
//! send garbage.

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::process::Helper;

/// Argument that makes the binary run the proxies.
pub const FLAG: &str = "--fronts";

/// Fault of a proxy while faults are switched on.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Accepts connections and never answers.
    Dead,
    /// Forwards one byte a second.
    Drip,
    /// Answers with random bytes, as fast as they are read.
    Garbage,
}

/// Handle of the proxies, for the bench.
pub struct Fronts {
    process: Helper,
    /// URLs of the proxies: dead, drip, garbage.
    pub urls: Vec<String>,
}

impl Fronts {
    /// Starts three proxies before a server, each for a third of its pods, with faults switched off.
    pub fn start(server: &str) -> Self {
        let mut process = Helper::start(&[FLAG], &[("FRONT_OF", server.to_owned())], None);
        let urls = (0..3).map(|i| format!("http://{}/shards/{i}/3", process.line())).collect();
        Self { process, urls }
    }

    /// Switches all faults on or off. Ends every connection.
    pub fn set_bad(&mut self, bad: bool) {
        self.process.ask(if bad { "bad" } else { "well" });
    }
}

/// Runs the process of the proxies.
pub fn serve() {
    let server = std::env::var("FRONT_OF").unwrap();
    let server: SocketAddr = server.trim_start_matches("http://").parse().unwrap();
    let runtime = super::runtime();
    let bad = watch::Sender::new(false);
    for fault in [Fault::Dead, Fault::Drip, Fault::Garbage] {
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        println!("{}", listener.local_addr().unwrap());
        runtime.spawn(accept(listener, server, fault, bad.subscribe()));
    }
    for line in std::io::stdin().lock().lines() {
        bad.send_replace(line.unwrap() == "bad");
        println!("done");
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, fault: Fault, bad: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut bad = bad.clone();
        tokio::spawn(async move {
            let is_bad = *bad.borrow_and_update();
            let _ = client.set_nodelay(true);
            tokio::select! {
                _ = bad.changed() => {}
                _ = converse(client, server, is_bad.then_some(fault)) => {}
            }
        });
    }
}

/// Serves one connection. An error ends it.
async fn converse(mut client: TcpStream, server: SocketAddr, fault: Option<Fault>) -> std::io::Result<()> {
    match fault {
        None => drop(copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?).await?),
        Some(Fault::Dead) => while client.read(&mut [0; 1024]).await? > 0 {},
        Some(Fault::Drip) => drip(client, TcpStream::connect(server).await?).await?,
        Some(Fault::Garbage) => garbage(client).await?,
    }
    Ok(())
}

async fn drip(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    let ((mut requests, mut to_client), (mut responses, mut to_server)) = (client.into_split(), server.into_split());
    let forward = tokio::spawn(async move { tokio::io::copy(&mut requests, &mut to_server).await });
    let mut byte = [0];
    while responses.read(&mut byte).await? > 0 {
        to_client.write_all(&byte).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    forward.abort();
    Ok(())
}

async fn garbage(mut client: TcpStream) -> std::io::Result<()> {
    if client.read(&mut [0; 1024]).await? == 0 {
        return Ok(());
    }
    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
    // Random bytes, with lines of all lengths.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = vec![0; 32 * 1024];
    loop {
        for byte in &mut noise {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        client.write_all(&noise).await?;
    }
}
