//! Chat messages, each within the documented limits of the chat, for any object.

use serde_json::{Value, json};

use super::Envelope;
use crate::Event;
use informer_hub_types::{Preset, printable};

/// Maximum characters of a Slack header, as Slack allows.
const SLACK_HEADER: usize = 150;
/// Maximum characters of a Slack field. Slack allows 2,000 after escaping, which can turn one character into five
/// (`&amp;`).
const SLACK_FIELD: usize = 390;
/// Maximum characters of one value on a Teams card (limit of a message: 28 KB).
const TEAMS_VALUE: usize = 500;
/// Maximum characters of a Discord title, as Discord allows.
const DISCORD_TITLE: usize = 256;
/// Maximum characters of a field's value. Discord allows 1,024, but only 6,000 for a whole embed.
const DISCORD_VALUE: usize = 500;

/// Content of a chat message, before formatting.
struct Summary {
    title: String,
    word: &'static str,
    time: String,
    facts: Vec<(&'static str, String)>,
}

impl Summary {
    fn of(event: &Event) -> Result<Self, String> {
        let envelope = Envelope::of(event)?;
        let word = event.event_type().as_str();
        let data: Value = serde_json::from_str(envelope.data.get()).map_err(|error| error.to_string())?;
        let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name, namespace) = (text("/resource/kind"), text("/name"), text("/namespace"));
        let place = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        let title = format!("{kind} {place} {word}");
        let group = text("/resource/group");
        let resource = text("/resource/resource");
        let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
        let mut facts = vec![("Cluster", event.cluster().to_owned()), ("Resource", resource)];
        let mut fact = |name, value: String| {
            if !value.is_empty() {
                facts.push((name, value));
            }
        };
        fact("Namespace", namespace);
        fact("Phase", text("/object/status/phase"));
        fact("Reason", [text("/object/reason"), text("/object/status/reason")].concat());
        fact("Message", [text("/object/message"), text("/object/status/message")].concat());
        if data["tombstone"] == true {
            fact("Note", "the deletion itself was not seen".to_owned());
        }
        Ok(Self { title, word, time: envelope.time.clone().into_owned(), facts })
    }
}

/// Returns the chat message of an event as JSON.
pub(super) fn message(preset: Preset, event: &Event) -> Result<String, String> {
    let summary = Summary::of(event)?;
    let message = match preset {
        Preset::Slack => slack(&summary),
        Preset::Teams => teams(&summary),
        Preset::Discord => discord(&summary),
    };
    Ok(message.to_string())
}

fn slack(summary: &Summary) -> Value {
    // These three start mentions, links and entities in Slack's markup. Escaping makes the text longer.
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let field = |(name, value): &(&str, String)| json!({ "type": "mrkdwn", "text": format!("*{name}*\n{}", escape(&short(value, SLACK_FIELD))) });
    let fields: Vec<_> = summary.facts.iter().map(field).collect();
    let header = short(&summary.title, SLACK_HEADER);
    json!({
        "text": escape(&header),
        "blocks": [
            { "type": "header", "text": { "type": "plain_text", "text": header, "emoji": false } },
            { "type": "section", "fields": fields },
            { "type": "context", "elements": [{ "type": "plain_text", "text": summary.time, "emoji": false }] },
        ],
    })
}

fn teams(summary: &Summary) -> Value {
    let fact = |(name, value): &(&str, String)| json!({ "title": name, "value": plain(&short(value, TEAMS_VALUE)) });
    let facts: Vec<_> = summary.facts.iter().map(fact).collect();
    let colour = match summary.word {
        "added" => "Good",
        "deleted" => "Attention",
        _ => "Default",
    };
    let title = plain(&short(&summary.title, TEAMS_VALUE));
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [
                    { "type": "TextBlock", "text": title, "weight": "Bolder", "size": "Medium", "color": colour, "wrap": true },
                    { "type": "FactSet", "facts": facts },
                    { "type": "TextBlock", "text": summary.time, "isSubtle": true, "spacing": "Small", "wrap": true },
                ],
            },
        }],
    })
}

fn discord(summary: &Summary) -> Value {
    let field = |(name, value): &(&str, String)| json!({ "name": name, "value": plain(&short(value, DISCORD_VALUE)), "inline": value.len() < 40 });
    let fields: Vec<_> = summary.facts.iter().map(field).collect();
    let colour = match summary.word {
        "added" => 0x57_F2_87,
        "deleted" => 0xED_42_45,
        _ => 0x58_65_F2,
    };
    json!({
        "embeds": [{
            "title": short(&summary.title, DISCORD_TITLE), "color": colour, "fields": fields, "timestamp": summary.time,
        }],
        "allowed_mentions": { "parse": [] },
    })
}

/// Makes a text printable and shortens it to at most `limit` UTF-16 units. A chat may count other units, but never more
/// of them. Returns `–` instead of an empty text, which chats reject.
fn short(text: &str, limit: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for c in printable(text).chars() {
        // Leave room for the ellipsis.
        if length + c.len_utf16() > limit - 1 {
            out.push('…');
            break;
        }
        length += c.len_utf16();
        out.push(c);
    }
    if out.trim().is_empty() { "–".to_owned() } else { out }
}

/// Escapes Markdown characters. The result is at most twice as long.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '*' | '_' | '`' | '~' | '|' | '[' | ']' | '<' | '>' | '#') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::event::EventOptions;
    use super::super::super::event::tests::{added, object, origin};
    use super::*;
    use informer_hub_types::printable::hostile as hostile_text;

    fn hostile() -> Vec<Event> {
        let texts = [
            String::new(),
            "web-0".to_owned(),
            "<!channel> @everyone & <@U123> [x](javascript:alert(1)) **b** ```".to_owned(),
            "\u{202e}\0\"\\\r\n\u{7}".to_owned(),
            hostile_text::TEXT.to_owned(),
            "😀".repeat(100_000),
            "*".repeat(100_000),
            "&".repeat(100_000),
        ];
        let event = |text: &String| {
            let json = json!({"status": {"phase": text, "reason": text, "message": text}, "reason": 1, "message": {"a": text}});
            let object = object(origin("apps", "deployments", "Deployment"), text, text, "1", &json);
            Event::new(
                &added(object, false),
                jiff::Timestamp::from_second(1_800_000_000).unwrap(),
                &EventOptions::default(),
            )
            .unwrap()
        };
        texts.iter().map(event).collect()
    }

    fn message(preset: Preset, event: &Event) -> (Value, usize) {
        let text = super::message(preset, event).unwrap();
        (serde_json::from_str(&text).unwrap(), text.len())
    }

    /// Returns the length of a JSON string in UTF-16 units.
    fn length(value: &Value) -> usize {
        let text = value.as_str().expect("a text");
        assert!(!text.trim().is_empty());
        text.encode_utf16().count()
    }

    #[test]
    fn slack_message_is_within_limits() {
        for event in hostile() {
            let (message, _) = message(Preset::Slack, &event);
            assert!(length(&message["text"]) <= 40_000);
            let blocks = message["blocks"].as_array().unwrap();
            assert!(blocks.len() <= 50);
            assert!(length(&blocks[0]["text"]["text"]) <= 150);
            let fields = blocks[1]["fields"].as_array().unwrap();
            assert!((1..=10).contains(&fields.len()));
            for field in fields {
                assert!(length(&field["text"]) <= 2000);
                let text = field["text"].as_str().unwrap();
                assert!(!text.contains('<') && !text.contains('>'), "{text}");
            }
        }
    }

    #[test]
    fn teams_message_is_an_adaptive_card_within_limits() {
        for event in hostile() {
            let (message, bytes) = message(Preset::Teams, &event);
            assert!(bytes <= 28 * 1024, "{bytes}");
            assert_eq!(message["type"], "message");
            let attachment = &message["attachments"][0];
            assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
            let card = &attachment["content"];
            assert_eq!((&card["type"], &card["version"]), (&"AdaptiveCard".into(), &"1.4".into()));
            assert!(length(&card["body"][0]["text"]) > 0);
            for fact in card["body"][1]["facts"].as_array().unwrap() {
                assert!(length(&fact["title"]) > 0 && length(&fact["value"]) > 0);
            }
        }
    }

    #[test]
    fn discord_message_is_within_limits_without_mentions() {
        for event in hostile() {
            let (message, _) = message(Preset::Discord, &event);
            assert_eq!(message["allowed_mentions"], json!({"parse": []}));
            let embed = &message["embeds"][0];
            assert!(length(&embed["title"]) <= 256);
            let fields = embed["fields"].as_array().unwrap();
            assert!(fields.len() <= 25);
            let mut all = length(&embed["title"]);
            for field in fields {
                assert!(length(&field["name"]) <= 256 && length(&field["value"]) <= 1024);
                all += length(&field["name"]) + length(&field["value"]);
            }
            assert!(all <= 6000, "{all}");
            assert!(embed["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        }
    }

    #[test]
    fn chat_messages_neutralize_hostile_text() {
        let event = &hostile()[4];
        for preset in [Preset::Slack, Preset::Teams, Preset::Discord] {
            let (message, _) = message(preset, event);
            let mut texts = Vec::new();
            gather(&message, &mut texts);
            let shown: Vec<_> = texts.iter().filter(|text| text.contains("forged")).collect();
            assert!(shown.len() > 3, "{preset:?}: {texts:?}");
            // Slack's layout has a line break between a field's name and value.
            for text in shown {
                hostile_text::assert_harmless("a chat", text, 1);
            }
        }
    }

    fn gather(value: &Value, texts: &mut Vec<String>) {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| gather(value, texts)),
            Value::Object(members) => members.values().for_each(|value| gather(value, texts)),
            _ => {}
        }
    }

    #[test]
    fn chat_message_names_kind_object_and_cluster() {
        let json = json!({"status": {"phase": "Failed"}});
        let object = object(origin("", "pods", "Pod"), "shop", "web-0", "1", &json);
        let event = Event::new(
            &added(object, false),
            jiff::Timestamp::from_second(1_800_000_000).unwrap(),
            &EventOptions::default(),
        )
        .unwrap();
        let (message, _) = message(Preset::Slack, &event);
        assert_eq!(message["text"], "Pod shop/web-0 added");
        let text = message.to_string();
        assert!(text.contains("prod-eu") && text.contains("Failed"), "{text}");
    }
}
