//! Requests of a reader by one way out, and their answers.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::hub::{Planted, Reader};
use super::rows::Ask;
use crate::client::{command, outcome};

/// Returns everything that a reader receives by a way.
pub(super) async fn text_of(hub: &Planted, reader: &Reader, ask: &Ask) -> String {
    match ask {
        Ask::Get { path, accept, last_event } => {
            let request = hub.client().get(hub.url.clone() + path);
            let request = match last_event {
                Some(position) => request.header("last-event-id", position),
                None => request,
            };
            hub.send(request, reader, accept).await.1
        }
        Ask::Post { path, accept, body } => {
            let request = hub.client().post(hub.url.clone() + path).body(body.clone());
            hub.send(request, reader, accept).await.1
        }
        Ask::Command(words) => {
            let command = client_command(hub, reader, words);
            tokio::task::spawn_blocking(move || {
                let outcome = outcome(command);
                outcome.out + &outcome.err
            })
            .await
            .unwrap()
        }
        Ask::Until(words, end) => {
            let (command, end) = (client_command(hub, reader, words), *end);
            tokio::task::spawn_blocking(move || read_until(command, end)).await.unwrap()
        }
        Ask::Letters => {
            let mut text = String::new();
            for letter in hub.letters().await {
                let path = format!("/v1/sinks/refused/dead-letters/{}", letter["number"]);
                text += &hub.get(reader, &path, "application/json").await.1;
            }
            text
        }
    }
}

fn client_command(hub: &Planted, reader: &Reader, words: &[&str]) -> std::process::Command {
    let mut command = command(words);
    command.env("INFORMER_HUB_URL", &hub.url).env("INFORMER_HUB_TOKEN", reader.token);
    command
}

/// Reads lines until one has a text or the command ends, and ends the command.
fn read_until(mut command: std::process::Command, end: &str) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        text += &line;
        text.push('\n');
        if line.contains(end) {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    text
}
