//! Fake NATS server for tests, with the part of the protocol that a publisher needs.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Answer to a message if no stream listens to its subject.
const NO_STREAM: &str = "HMSG REPLY SID 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";

/// How the server reacts to published messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behavior {
    /// Stores all messages.
    #[default]
    Store,
    /// Answers the next message with an error, and stores later messages.
    RefuseOnce,
    /// Refuses messages that contain this text, as too large.
    Poison(String),
    /// Accepts messages without an answer.
    Silent,
    /// Answers each message that no stream listens to its subject.
    NoStream,
    /// Answers that no stream listens to subjects with this ending, and stores other messages.
    NoStreamFor(&'static str),
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) behavior: Behavior,
    /// Stored messages without duplicates: subject, id, payload.
    pub(crate) stored: Vec<(String, String, String)>,
    /// Number of duplicates published.
    pub(crate) duplicates: usize,
    /// CONNECT lines of the clients.
    pub(crate) connects: Vec<String>,
}

/// Fake server; stops with the test's runtime.
#[derive(Debug)]
pub(crate) struct FakeNats {
    pub(crate) addr: SocketAddr,
    pub(crate) store: Arc<Mutex<Store>>,
}

impl FakeNats {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, store) = (listener.local_addr().unwrap(), Arc::<Mutex<Store>>::default());
        let kept = Arc::clone(&store);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&kept)));
            }
        });
        Self { addr, store }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.addr)
    }
}

async fn serve(socket: TcpStream, store: Arc<Mutex<Store>>) -> std::io::Result<()> {
    let (read, mut write) = socket.into_split();
    let mut read = BufReader::new(read);
    let info = r#"{"server_id":"F","server_name":"f","version":"2.12.0","proto":1,"headers":true,"jetstream":true,"max_payload":1048576,"host":"h","port":1,"go":"g","client_id":1,"nonce":""}"#;
    write.write_all(format!("INFO {info}\r\n").as_bytes()).await?;
    let mut sid = String::new();
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => write.write_all(b"PONG\r\n").await?,
            ["CONNECT", ..] => store.lock().connects.push(line.clone()),
            ["SUB", _, id] => id.clone_into(&mut sid),
            ["HPUB", subject, reply, head, total] => {
                let (head, total): (usize, usize) = (head.parse().unwrap(), total.parse().unwrap());
                let mut body = vec![0; total + 2];
                read.read_exact(&mut body).await?;
                let headers = String::from_utf8_lossy(&body[..head]).into_owned();
                let id = headers.lines().find_map(|line| line.strip_prefix("Nats-Msg-Id: ")).unwrap_or_default();
                let payload = String::from_utf8_lossy(&body[head..total]).into_owned();
                let answer = answer(&mut store.lock(), subject, id, payload);
                if let Some(answer) = answer {
                    write.write_all(answer.replace("REPLY", reply).replace("SID", &sid).as_bytes()).await?;
                }
            }
            _ => {}
        }
    }
}

fn answer(store: &mut Store, subject: &str, id: &str, payload: String) -> Option<String> {
    let message = |json: &str| Some(format!("MSG REPLY SID {}\r\n{json}\r\n", json.len()));
    let failed = |code: u16, err_code: u32, text: &str| {
        message(&format!(r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{text}"}}}}"#))
    };
    match store.behavior.clone() {
        Behavior::Silent => return None,
        Behavior::NoStream => return Some(NO_STREAM.to_owned()),
        Behavior::NoStreamFor(ending) if subject.ends_with(ending) => return Some(NO_STREAM.to_owned()),
        Behavior::RefuseOnce => {
            store.behavior = Behavior::Store;
            return failed(503, 10077, "maximum messages exceeded");
        }
        Behavior::Poison(text) if payload.contains(&text) => {
            return failed(400, 10054, "message size exceeds maximum allowed");
        }
        Behavior::Store | Behavior::Poison(_) | Behavior::NoStreamFor(_) => {}
    }
    let duplicate = store.stored.iter().any(|(_, known, _)| known == id);
    if duplicate {
        store.duplicates += 1;
    } else {
        store.stored.push((subject.to_owned(), id.to_owned(), payload));
    }
    message(&format!(r#"{{"stream":"S","seq":{},"duplicate":{duplicate}}}"#, store.stored.len()))
}
