//! Checks of a configuration, made at the start of a hub and at each reload.
//!
//! Some checks repeat rules of the configuration parser. A program that embeds the hub may build its configuration
//! without the parser.

use super::durable::DurableSubscription;
use super::error::{StartError, WITHOUT_FLEET};
use informer_hub_config::Config;
use informer_hub_types::check_name;

const NAME_TAKEN: &str = "another subscription or sink has this name";

/// Checks the configuration and the durable subscriptions of a hub that is about to start.
pub(super) fn check(config: &Config, durable: &[DurableSubscription]) -> Result<(), StartError> {
    check_config(config)?;
    for (at, one) in durable.iter().enumerate() {
        let wrong = |problem: String| StartError::Subscription { name: one.name.clone(), problem };
        check_name("name", &one.name).map_err(|error| wrong(format!("the name must be {}", error.rule)))?;
        if config.hub.state_dir.is_none() {
            return Err(wrong("a durable subscription needs a state directory; set hub.state_dir".to_owned()));
        }
        if durable[..at].iter().any(|other| other.name == one.name) {
            return Err(wrong(NAME_TAKEN.to_owned()));
        }
        check_subscription(config, &one.name, &one.resources)?;
    }
    Ok(())
}

/// Checks that this build supports `[fleet]`, if it is configured. Also checks that the names in each table are unique,
/// and that the resources selected by sinks are configured. The parser of configuration files enforces these two rules,
/// but an embedding program may build its configuration without the parser.
pub(super) fn check_config(config: &Config) -> Result<(), StartError> {
    if config.fleet.is_some() && !cfg!(feature = "fleet") {
        let problem = WITHOUT_FLEET.to_owned();
        return Err(StartError::Fleet { problem });
    }
    let tables: [(&str, Vec<&str>); 4] = [
        ("clusters", config.clusters.iter().map(|one| one.name.as_str()).collect()),
        ("resources", config.resources.iter().map(|one| one.name.as_str()).collect()),
        ("sinks", config.sinks.iter().map(|one| one.name.as_str()).collect()),
        ("readers", config.readers.iter().map(|one| one.name.as_str()).collect()),
    ];
    for (table, mut names) in tables {
        names.sort_unstable();
        if let Some(name) = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
            return Err(StartError::Duplicate { table: table.to_owned(), name: name.to_owned() });
        }
    }
    for sink in &config.sinks {
        if let Some(unknown) = unknown_resource(config, &sink.select.resources) {
            let problem = format!("there is no [resources.{unknown}]");
            return Err(StartError::Sink { sink: sink.name.clone(), key: "match.resources", problem });
        }
    }
    Ok(())
}

/// Checks that the configuration has all resources that a durable subscription selects, and that no sink has the name
/// of the subscription.
pub(super) fn check_subscription(config: &Config, name: &str, resources: &[String]) -> Result<(), StartError> {
    let wrong = |problem: String| StartError::Subscription { name: name.to_owned(), problem };
    if config.sinks.iter().any(|sink| sink.name == name) {
        return Err(wrong(NAME_TAKEN.to_owned()));
    }
    match unknown_resource(config, resources) {
        Some(unknown) => Err(wrong(format!("there is no [resources.{unknown}]"))),
        None => Ok(()),
    }
}

fn unknown_resource<'n>(config: &Config, names: &'n [String]) -> Option<&'n String> {
    names.iter().find(|name| !config.resources.iter().any(|resource| resource.name == **name))
}
