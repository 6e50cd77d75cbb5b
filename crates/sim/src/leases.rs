//! Leases of `coordination.k8s.io/v1`, replaced by compare-and-set. They are stored outside the cluster's `World`,
//! which clients cannot change.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::Status;

#[derive(Debug, Default)]
pub(super) struct Leases {
    objects: BTreeMap<[String; 2], Value>,
    /// Number of writes of leases so far. The lease that was written last has this number as its resourceVersion.
    version: u64,
    /// Delay of each answer. A write is applied before the delay.
    pub(super) delay: Duration,
}

impl Leases {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&[namespace, name].map(str::to_owned))
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        self.objects.remove(&[namespace, name].map(str::to_owned));
    }

    pub(super) fn read(&self, namespace: &str, name: &str) -> Result<Value, Status> {
        self.get(namespace, name).cloned().ok_or_else(|| not_found(name))
    }

    pub(super) fn create(&mut self, namespace: &str, lease: Value) -> Result<Value, Status> {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Status::new(422, "Invalid", "Lease \"\" is invalid: metadata.name: Required value"));
        }
        if self.get(namespace, &name).is_some() {
            let message = format!("leases.coordination.k8s.io \"{name}\" already exists");
            return Err(Status::new(409, "AlreadyExists", message));
        }
        Ok(self.store(namespace, &name, lease))
    }

    /// Replaces a lease and returns it as stored. Fails with 404 if there is no such lease. If `lease` has a
    /// resourceVersion other than that of the stored lease, fails with 409.
    pub(super) fn replace(&mut self, namespace: &str, name: &str, lease: Value) -> Result<Value, Status> {
        let Some(current) = self.get(namespace, name) else { return Err(not_found(name)) };
        let expected = &lease["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != current["metadata"]["resourceVersion"] {
            let message = format!(
                "Operation cannot be fulfilled on leases.coordination.k8s.io \"{name}\": the object has been modified; \
                 please apply your changes to the latest version and try again"
            );
            return Err(Status::new(409, "Conflict", message));
        }
        Ok(self.store(namespace, name, lease))
    }

    fn store(&mut self, namespace: &str, name: &str, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["namespace"] = json!(namespace);
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert([namespace, name].map(str::to_owned), lease.clone());
        lease
    }
}

fn not_found(name: &str) -> Status {
    Status::new(404, "NotFound", format!("leases.coordination.k8s.io \"{name}\" not found"))
}
