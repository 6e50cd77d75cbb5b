//! Three clusters that can go bad, in a process of their own: fronts before a server, which pass on what it says until
//! they are told to be dead, to drip, and to send garbage.

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::process::Helper;

/// Makes the binary the fronts.
pub const FLAG: &str = "--fronts";

/// What a front does when it is bad.
#[derive(Clone, Copy, Debug)]
enum Ill {
    /// It takes connections, and never answers.
    Dead,
    /// It passes on a byte a second.
    Drip,
    /// It answers with bytes that mean nothing, as fast as they are taken.
    Garbage,
}

/// The fronts, seen from the bench.
pub struct Fronts {
    process: Helper,
    /// Where they listen: dead, dripping, garbled.
    pub urls: Vec<String>,
}

impl Fronts {
    /// Three fronts before a server, each before a third of its pods. They are well.
    pub fn start(server: &str) -> Self {
        let mut process = Helper::start(&[FLAG], &[("FRONT_OF", server.to_owned())], None);
        let urls = (0..3).map(|i| format!("http://{}/shards/{i}/3", process.line())).collect();
        Self { process, urls }
    }

    /// Has them all be bad, or well again. Ends every connection.
    pub fn set_bad(&mut self, bad: bool) {
        self.process.ask(if bad { "bad" } else { "well" });
    }
}

/// The fronts' process.
pub fn serve() {
    let server = std::env::var("FRONT_OF").unwrap();
    let server: SocketAddr = server.trim_start_matches("http://").parse().unwrap();
    let runtime = super::runtime();
    let bad = watch::Sender::new(false);
    for ill in [Ill::Dead, Ill::Drip, Ill::Garbage] {
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        println!("{}", listener.local_addr().unwrap());
        runtime.spawn(accept(listener, server, ill, bad.subscribe()));
    }
    for line in std::io::stdin().lock().lines() {
        bad.send_replace(line.unwrap() == "bad");
        println!("done");
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, ill: Ill, bad: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut bad = bad.clone();
        tokio::spawn(async move {
            let is_bad = *bad.borrow_and_update();
            let _ = client.set_nodelay(true);
            tokio::select! {
                _ = bad.changed() => {}
                _ = converse(client, server, is_bad.then_some(ill)) => {}
            }
        });
    }
}

/// One connection. An error is its end.
async fn converse(mut client: TcpStream, server: SocketAddr, ill: Option<Ill>) -> std::io::Result<()> {
    match ill {
        None => drop(copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?).await?),
        Some(Ill::Dead) => while client.read(&mut [0; 1024]).await? > 0 {},
        Some(Ill::Drip) => drip(client, TcpStream::connect(server).await?).await?,
        Some(Ill::Garbage) => garbage(client).await?,
    }
    Ok(())
}

async fn drip(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    let ((mut asked, mut answers), (mut said, mut asks)) = (client.into_split(), server.into_split());
    let forward = tokio::spawn(async move { tokio::io::copy(&mut asked, &mut asks).await });
    let mut byte = [0];
    while said.read(&mut byte).await? > 0 {
        answers.write_all(&byte).await?;
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
    // Bytes of all values, lines of all lengths.
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
