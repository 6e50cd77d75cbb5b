//! Tests of the journal on a simulated disk.

mod damage;
mod displaced;
mod histories;
mod model;
mod plain;
